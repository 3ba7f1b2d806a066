"""What message each record is: the same for all, or as a header or a field of its own says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.errors import UsageError
from catchment.topics.decode.arrays import whole
from catchment.topics.decode.letters import EMPTY
from catchment.topics.decode.protobuf.columns import Reading
from catchment.topics.decode.protobuf.shape import Part, Shape
from catchment.topics.decode.schema import shown
from catchment.topics.decode.wire import Bytes, Positions, flat
from catchment.topics.split import header_texts

_NAMES_A_TYPE = ("string", "enum", "int32", "int64", "uint32", "uint64", "sint32", "sint64")


@dataclass(frozen=True)
class Sorted:
    """Records of which it is known what message they are. Each is in one of `groups`, or in `dead`."""

    data: Bytes
    starts: Positions  # of the messages, one for each record
    ends: Positions
    groups: list[tuple[Shape, Positions]]  # with the numbers of their records, ascending
    dead: dict[int, str]


class Chooser(Protocol):
    """Tells what message each record is."""

    def sort(self, records: pa.Table) -> Sorted:
        """Those of a shape together. May raise ExportStopped or RegistryError."""


class Always:
    """Every record is this message."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def sort(self, records: pa.Table) -> Sorted:
        values = whole(records["value"])
        there, dead = _with_value(values)
        return Sorted(*flat(values), [(self._shape, there)], dead)


class ByHeader:
    """The header of this name says the type."""

    def __init__(self, header: str, shapes: Mapping[str, Shape]) -> None:
        self._header, self._shapes = header, shapes

    def sort(self, records: pa.Table) -> Sorted:
        values = whole(records["value"])
        there, dead = _with_value(values)
        types = header_texts(records, self._header).take(pa.array(there))
        return Sorted(*flat(values), _by_type(types, there, self._shapes, f"header {self._header!r}", dead), dead)


class ByField:
    """The field of this name says the type. It is the same in all messages, so it can be read before they are known."""

    def __init__(self, field: str, shapes: Mapping[str, Shape]) -> None:
        """UsageError unless all of them have it, with the same number and kind."""
        self._field, self._shapes = field, shapes
        part = _same(field, {shape.name: shape for shape in shapes.values()}.values())
        shape = next(iter(shapes.values()))
        self._envelope = Shape("protobuf message", shape.descriptor, (replace(part, oneof="", required=False),))

    def sort(self, records: pa.Table) -> Sorted:
        values = whole(records["value"])
        there, dead = _with_value(values)
        data, starts, ends = flat(values)
        reading = Reading(data)
        found = reading.messages(self._envelope, starts[there], ends[there], there)
        types = found.field(0).cast(pa.string())
        if reading.bad:
            dead |= reading.bad
            good = np.flatnonzero(~np.isin(there, list(reading.bad)))
            types, there = types.take(pa.array(good)), there[good]
        groups = _by_type(types, there, self._shapes, f"field {self._field!r}", dead)
        return Sorted(data, starts, ends, groups, dead)


def _with_value(values: pa.BinaryArray) -> tuple[Positions, dict[int, str]]:
    """The records that have a value, be it empty; and the others."""
    if not values.null_count:
        return np.arange(len(values)), {}
    null = values.is_null().to_numpy(zero_copy_only=False)
    return np.flatnonzero(~null), dict.fromkeys(np.flatnonzero(null).tolist(), EMPTY)


def _by_type(
    types: pa.Array, rows: Positions, shapes: Mapping[str, Shape], where: str, dead: dict[int, str]
) -> list[tuple[Shape, Positions]]:
    """Rows by the shape that their types mean. The others are noted as dead."""
    coded = types.dictionary_encode()
    meant = [shapes.get(name) for name in coded.dictionary.to_pylist()]
    codes = pc.fill_null(coded.indices, -1).to_numpy()
    found: dict[str, tuple[Shape, list[int]]] = {}
    for code, shape in enumerate(meant):
        if shape is not None:
            found.setdefault(shape.name, (shape, []))[1].append(code)
    lost = ~np.isin(codes, [code for _, many in found.values() for code in many])
    for row, code in zip(rows[lost].tolist(), codes[lost].tolist(), strict=True):
        name = coded.dictionary[code].as_py() if code >= 0 else ""
        dead[row] = f"type {shown(name)} ({where}) is not one of messages" if name else f"no type: no {where}"
    return [(shape, rows[np.isin(codes, many)]) for shape, many in found.values()]


def _same(field: str, shapes: Iterable[Shape]) -> Part:
    """The field that all of these have alike."""
    hint = "give it the same number and type in all of messages, or let a header name the type (type_from: {header: …})"
    first: tuple[str, Part] | None = None
    for shape in shapes:
        part = next((one for one in shape.parts if one.name == field), None)
        if part is None:
            raise UsageError(f"{shape.name} has no field {field}, which is to name the type", hint=hint)
        if part.many or part.read not in _NAMES_A_TYPE:
            raise UsageError(
                f"{shape.name}.{field} is {part.kind}, so it cannot name the type",
                hint="use a field that is a string, an enum or an integer, or a header (type_from: {header: …})",
            )
        if first is None:
            first = shape.name, part
        elif _wire(first[1]) != _wire(part):
            raise UsageError(f"{field} is not the same in {first[0]} and {shape.name}", hint=hint)
    assert first is not None
    return first[1]


def _wire(part: Part) -> tuple[Any, ...]:
    return part.tag, part.read, part.names, part.nullable, part.default

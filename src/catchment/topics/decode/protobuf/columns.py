"""Columns from the fields that were found in many protobuf messages.

Messages are sorted by where they lie, and so is everything in them: where a value lies says which of two came later.
Of several values of a field the last one counts, of the fields of a oneof the last one that is there, and messages
that come several times are merged, as if one had been written behind the other. What does not count is checked too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.topics.decode.arrays import struct
from catchment.topics.decode.protobuf.scan import BAD_PACK, FEW, Found, scan, unpacked
from catchment.topics.decode.protobuf.shape import ENTRY, MESSAGE, PIECE, TEXT_OF, TIMESTAMP, WRAPPER, Part, Shape
from catchment.topics.decode.protobuf.text import as_json
from catchment.topics.decode.schema import within
from catchment.topics.decode.wire import Bytes, Flags, Positions, Words, slices, texts, zigzag

_AnyArray = np.ndarray[Any, Any]
_EARLIEST, _LATEST = -62_135_596_800, 253_402_300_799  # seconds: the years 1 to 9999, as protobuf has them
_MESSAGES = (MESSAGE, TIMESTAMP, WRAPPER, TEXT_OF, ENTRY)

_NUMBERS: dict[str, Callable[[Words], _AnyArray]] = {
    "double": lambda words: words.view(np.float64),
    "float": lambda words: words.astype(np.uint32).view(np.float32),
    "int64": lambda words: words.view(np.int64),
    "uint64": lambda words: words,
    "int32": lambda words: words.astype(np.uint32).view(np.int32),
    "uint32": lambda words: words.astype(np.uint32).astype(np.int64),
    "bool": lambda words: words != 0,
    "enum": lambda words: words.astype(np.uint32).view(np.int32),
    "sint32": lambda words: zigzag(words & np.uint64(0xFFFFFFFF)).astype(np.int32),
    "sint64": zigzag,
}


class Reading:
    """Reads messages that lie in `data`. `bad` says why some of them are none, by number; the first reason stays."""

    def __init__(self, data: Bytes, *, few: int = FEW) -> None:
        self._data, self._few = data, few
        self._gone = False
        self.bad: dict[int, str] = {}

    def messages(self, shape: Shape, starts: Positions, ends: Positions, numbers: Positions) -> pa.StructArray:
        """One for each of these, anything for those that are bad. starts: ascending. numbers: what `bad` calls them."""
        level = _Level(self, shape, len(starts), numbers, "", 0)
        return level.read(starts, ends, None)

    def of_what_is_gone(self) -> Reading:
        """For values that do not count: they have to be protobuf, and may say what they like."""
        reading = Reading(self._data, few=self._few)
        reading.bad, reading._gone = self.bad, True
        return reading

    def blame(self, numbers: Positions, reason: str) -> None:
        """These are not protobuf."""
        for number in numbers.tolist():
            self.bad.setdefault(number, reason)

    def refuse(self, numbers: Positions, reason: str) -> None:
        """These are protobuf, and nevertheless can be no row."""
        if not self._gone:
            self.blame(numbers, reason)

    def scanned(
        self, shape: Shape, starts: Positions, ends: Positions, numbers: Positions, depth: int
    ) -> dict[int, Found]:
        found, bad = scan(self._data, starts, ends, shape.tags(), depth=depth, few=self._few)
        for row, reason in bad.items():
            self.bad.setdefault(int(numbers[row]), f"not a {shape.name}: {reason}")
        return found

    @property
    def data(self) -> Bytes:
        return self._data


class _Level:
    """Messages of one shape, which are in others or in none."""

    def __init__(self, reading: Reading, shape: Shape, count: int, numbers: Positions, path: str, depth: int) -> None:
        self._reading, self._shape, self._path, self._depth = reading, shape, path, depth
        self._count = count  # of rows
        self._numbers = numbers  # of the outermost message, for each row

    def read(self, starts: Positions, ends: Positions, owners: Positions | None) -> pa.StructArray:
        """owners: the row of each message, ascending, if there are not as many rows as messages."""
        numbers = self._numbers if owners is None else self._numbers[owners]
        scanned = self._reading.scanned(self._shape, starts, ends, numbers, self._depth)
        found = {}
        for part in self._shape.parts:
            values = self._values(part, scanned, numbers)
            found[part.number] = values if owners is None else Found(owners[values.which], values.at, values.value)
        for oneof in sorted({part.oneof for part in self._shape.parts} - {""}):
            self._choose([part for part in self._shape.parts if part.oneof == oneof], found)
        columns = [self._column(part, found[part.number]) for part in self._shape.parts]
        return struct(columns, [part.name for part in self._shape.parts], self._count)

    def _values(self, part: Part, scanned: dict[int, Found], numbers: Positions) -> Found:
        """By message, in the order of the bytes."""
        if not part.packs:
            return scanned[part.tag]
        pieces = scanned[part.number << 3 | PIECE]
        if not len(pieces):
            return scanned[part.tag]
        values, bad = unpacked(self._reading.data, pieces, part.wire)
        if bad.any():
            self._reading.blame(numbers[pieces.which[bad]], f"{within(self._path, part.name)}: {BAD_PACK}")
        return Found.together([one for one in (scanned[part.tag], values) if len(one)])

    def _choose(self, parts: list[Part], found: dict[int, Found]) -> None:
        """Of a oneof: what came before the last value of another field is gone."""
        last = {}
        for part in parts:
            last[part.number] = np.full(self._count, -1, np.int64)
            last[part.number][found[part.number].which] = found[part.number].at
        for part in parts:
            values = found[part.number]
            others = np.max([last[one.number] for one in parts if one is not part], axis=0)
            kept = values.at > others[values.which]
            if not kept.all():
                self._check(part, values.take(~kept))
                found[part.number] = values.take(kept)

    def _check(self, part: Part, values: Found) -> None:
        """Find out whether values that do not count are bad."""
        gone = _Level(self._reading.of_what_is_gone(), self._shape, self._count, self._numbers, self._path, self._depth)
        gone._array(part, values, self._numbers[values.which])

    def _column(self, part: Part, found: Found) -> pa.Array:
        path = within(self._path, part.name)
        if part.many:
            return self._lists(part, found)
        there = np.zeros(self._count, np.bool_)
        there[found.which] = True
        if part.required and not there.all():
            self._reading.refuse(self._numbers[~there], f"{path}: required, and not there")
        if part.nullable and not len(found):  # without a look at all that would be inside
            return pa.nulls(self._count, part.kind.arrow())
        if part.read in _MESSAGES:
            return self._messages(part, found, there)
        if len(found) == self._count and there.all():
            return self._array(part, found, self._numbers)
        if len(found) > np.count_nonzero(there):
            again = np.ones(len(found), np.bool_)
            again[_last(found.which)] = False
            self._check(part, found.take(again))
            found = found.take(~again)
        at, value = np.zeros(self._count, np.int64), np.zeros(self._count, np.uint64)
        at[found.which], value[found.which] = found.at, found.value
        fill = part.default is not None and not part.nullable
        null = ~there if part.nullable or fill else None
        column = self._array(part, Found(np.arange(self._count), at, value), self._numbers, null)
        return pc.fill_null(column, pa.scalar(part.default, column.type)) if fill else column

    def _lists(self, part: Part, found: Found) -> pa.Array:
        ends = np.zeros(self._count + 1, np.int32)
        np.cumsum(np.bincount(found.which, minlength=self._count), out=ends[1:])
        wanted = part.kind.arrow()
        if part.read != ENTRY:
            if len(found):
                items = self._array(part, found, self._numbers[found.which])
            else:
                items = pa.array([], wanted.value_type)
            return pa.ListArray.from_arrays(pa.array(ends), items, type=wanted)
        if not len(found):
            nothing = pa.array([], pa.string()), pa.array([], wanted.item_type)
            return pa.MapArray.from_arrays(pa.array(ends), *nothing, type=wanted)
        entries = self._array(part, found, self._numbers[found.which])
        keys, items = entries.flatten()
        keys = keys.cast(pa.string())
        kept = _last_of_each(found.which, keys)
        if len(kept) < len(keys):
            keys, items = keys.take(pa.array(kept)), items.take(pa.array(kept))
            np.cumsum(np.bincount(found.which[kept], minlength=self._count), out=ends[1:])
        return pa.MapArray.from_arrays(pa.array(ends), keys, items, type=wanted)

    def _messages(self, part: Part, found: Found, there: Flags) -> pa.Array:
        """One message in each row, merged from all that are there."""
        if not part.nullable and not part.required:  # the value of a map: an absent one is there, and empty
            return self._inner(part, found, self._numbers, found.which, self._count)
        rows = np.flatnonzero(there)
        if len(rows) == len(found):
            values = self._inner(part, found, self._numbers[rows], None, len(rows))
        else:
            owners = np.searchsorted(rows, found.which)
            values = self._inner(part, found, self._numbers[rows], owners, len(rows))
        if len(rows) == self._count:
            return values
        index = np.zeros(self._count, np.int64)
        index[rows] = np.arange(len(rows))
        return values.take(pa.array(index, mask=~there))

    def _array(self, part: Part, found: Found, numbers: Positions, null: Flags | None = None) -> pa.Array:
        """The values themselves, one after the other."""
        if part.read in _MESSAGES:
            return self._inner(part, found, numbers, None, len(found))
        if part.wire == PIECE:
            pieces = slices(self._reading.data, found.at, found.value.astype(np.int64), null)
            if part.read == "bytes":
                return pieces
            column, bad = texts(pieces)
            if bad.any():
                self._reading.blame(numbers[bad], f"{within(self._path, part.name)}: not valid UTF-8")
                column = pc.if_else(pa.array(bad), "", column)
            return column
        values = _NUMBERS[part.read](np.ascontiguousarray(found.value))
        if part.read == "enum":
            return _named(values, part.names, null)
        if part.read == "uint64":
            return _decimals(values, null)
        return pa.array(values, mask=null)

    def _inner(self, part: Part, found: Found, numbers: Positions, owners: Positions | None, count: int) -> pa.Array:
        path = within(self._path, part.name) + ("[]" if part.many else "")
        if part.read == TEXT_OF:
            return self._json(part, found, numbers, owners, count)
        level = _Level(self._reading, part.inner, count, numbers, path, self._depth + 1)
        values = level.read(found.at, found.at + found.value.astype(np.int64), owners)
        if part.read == WRAPPER:
            return values.field(0)
        if part.read == TIMESTAMP:
            return self._moments(values, numbers, path)
        return values

    def _json(self, part: Part, found: Found, numbers: Positions, owners: Positions | None, count: int) -> pa.Array:
        rows = np.arange(count) if owners is None else owners
        pieces = slices(self._reading.data, found.at, found.value.astype(np.int64))
        column, wrong, unfit = as_json(part.inner.descriptor, pieces, rows, count)
        path = within(self._path, part.name)
        for row in wrong:
            self._reading.blame(numbers[row : row + 1], f"{path}: not a {part.inner.name}")
        for row, reason in unfit.items():
            self._reading.refuse(numbers[row : row + 1], f"{path}: {reason}")
        return column

    def _moments(self, values: pa.StructArray, numbers: Positions, path: str) -> pa.Array:
        seconds = values.field("seconds").to_numpy()
        nanos = values.field("nanos").to_numpy().astype(np.int64)
        bad = (seconds < _EARLIEST) | (seconds > _LATEST) | (nanos < 0) | (nanos >= 1_000_000_000)
        if bad.any():
            self._reading.refuse(numbers[bad], f"{path}: not a Timestamp between the years 1 and 9999")
            seconds = np.where(bad, 0, seconds)
        return pa.array(seconds * 1_000_000 + nanos // 1000, pa.timestamp("us", "UTC"))


def _last(rows: Positions) -> Positions:
    """Where in an ascending list each row is for the last time."""
    return np.flatnonzero(np.append(rows[1:] != rows[:-1], True)) if len(rows) else rows


def _last_of_each(rows: Positions, keys: pa.Array) -> Positions:
    """Of equal keys in one row, the last one, in order."""
    coded = keys.dictionary_encode()
    together = rows * max(len(coded.dictionary), 1) + coded.indices.to_numpy()
    _, first = np.unique(together[::-1], return_index=True)
    return np.sort(len(together) - 1 - first)


def _named(values: _AnyArray, names: tuple[tuple[int, str], ...], null: Flags | None) -> pa.Array:
    numbers = np.array([number for number, _ in names], np.int32)
    at = np.minimum(np.searchsorted(numbers, values), len(numbers) - 1)
    known = numbers[at] == values
    column = pa.array([name for _, name in names], pa.string()).take(pa.array(at, mask=null))
    return column if known.all() else pc.if_else(pa.array(known), column, pa.array(values, mask=null).cast(pa.string()))


def _decimals(values: Words, null: Flags | None) -> pa.Array:
    wide = np.zeros((len(values), 2), np.uint64)  # the lower half first
    wide[:, 0] = values
    valid = None if null is None else pa.array(~null).buffers()[1]
    return pa.Array.from_buffers(pa.decimal128(20, 0), len(values), [valid, pa.py_buffer(wide)])

"""JSON messages with a frame of a schema registry: without it, they are decoded as JSON is.

A field for which the message's JSON Schema declares one plain type is of that kind from the start, whatever its first
values look like: a `number` that happens to be whole is a DOUBLE. What the schema says of other fields, and whether
messages keep to it, is not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.config.secret import Url
from catchment.topics.decode.arrays import whole
from catchment.topics.decode.decoder import Decoded, Typed
from catchment.topics.decode.registry import Registry, UnknownSchema, shared, unframed
from catchment.topics.decode.schema import BIGINT, BOOLEAN, DOUBLE, MAX_FIELDS, TEXT, Field, Kind, Schema
from catchment.topics.decode.schemas import Schemas
from catchment.topics.decode.translated import TranslatedDecoder
from catchment.topics.decode.wire import slices

KIND = "JSON"
_PLAIN = {"integer": BIGINT, "number": DOUBLE, "string": TEXT, "boolean": BOOLEAN}


class FramedJson:
    """A `Decoder`. Dead letters have their frames."""

    def __init__(self, registry: Url | str | Registry, schemas: Schemas) -> None:
        self._frames = _Frames(registry if isinstance(registry, Registry) else shared(registry))
        self._decoder = TranslatedDecoder(self._frames, schemas)
        self._schemas = schemas

    def types(self, records: pa.Table, field: str) -> Typed:
        """What this field says in each record, `a.b` for a field of a field: text as it is, numbers as in JSON."""
        return self._decoder.types(records, field)

    def decode(self, type_name: str, records: pa.Table, keep: Sequence[str] = ()) -> Decoded:
        """Rows of one type. New fields are grown in the schemas; a record that does not fit is a dead letter."""
        records = records.combine_chunks()
        for declared in self._frames.declared(whole(records["value"])):
            grown = self._schemas.of(type_name).without_clash(declared)
            if grown.count() <= MAX_FIELDS:
                self._schemas.grow(type_name, grown)
        return self._decoder.decode(type_name, records, keep)

    def finish(self, type_name: str, table: pa.Table) -> pa.Table:
        """A table decoded earlier, with the columns of the final schema; then Kafka's own and what was kept."""
        return self._decoder.finish(type_name, table)


class _Frames:
    """A `Translation`: takes the frames off."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[int, Schema | str] = {}  # by number: what is declared, or why it cannot be used

    def json(self, values: pa.BinaryArray) -> tuple[pa.BinaryArray, dict[int, str]]:
        found = unframed(values)
        dead = dict(found.bad)
        good = np.ones(len(values), np.bool_)
        good[list(dead)] = False
        for number in np.unique(found.numbers[good]).tolist():
            declared = self._declared(number)
            if isinstance(declared, str):
                rows = np.flatnonzero(good & (found.numbers == number))
                dead |= dict.fromkeys(rows.tolist(), declared)
        good[list(dead)] = False
        starts, ends = found.starts[good], found.ends[good]
        return slices(found.data, starts, ends - starts), dead

    def declared(self, values: pa.BinaryArray) -> list[Schema]:
        """What the schemas of these messages declare, in the order in which they come first."""
        found = unframed(values)
        numbers, first = np.unique(np.delete(found.numbers, list(found.bad)), return_index=True)
        each = (self._declared(number) for number in numbers[np.argsort(first)].tolist())
        return [one for one in each if isinstance(one, Schema)]

    def _declared(self, number: int) -> Schema | str:
        if number not in self._known:
            try:
                schema = self._registry.schema(number)
            except UnknownSchema as unknown:
                return unknown.message  # not kept: it may be registered yet
            if schema.kind == KIND:
                self._known[number] = declared_by(schema.text)
            else:
                self._known[number] = f"schema {number} is of kind {schema.kind}, and the export decodes JSON"
        return self._known[number]


def declared_by(text: str) -> Schema:
    """The fields of a message for which a JSON Schema declares one plain type, null beside it or not."""
    try:
        properties = json.loads(text).get("properties")
    except (ValueError, AttributeError, RecursionError):
        return Schema()
    if not isinstance(properties, dict) or len(properties) > MAX_FIELDS:
        return Schema()
    found = Schema()
    for name, declared in properties.items():
        kind = _kind(declared)
        if kind is not None:
            found = found.without_clash(Schema((Field(name, kind),)))  # of names that differ in case, the first
    return found if found.misnamed() is None else Schema()


def _kind(declared: object) -> Kind | None:
    try:
        types = _types(declared)
    except RecursionError:
        return None
    plain = [one for one in types if one != "null"]
    return Kind(_PLAIN[plain[0]]) if len(plain) == 1 and str(plain[0]) in _PLAIN else None


def _types(declared: object) -> list[Any]:
    """All types that are allowed; more than one if nobody can say."""
    if not isinstance(declared, Mapping):
        return []
    if "type" in declared:
        one = declared["type"]
        return one if isinstance(one, list) else [one]
    for either in ("oneOf", "anyOf"):
        if isinstance(declared.get(either), list):
            return [one for member in declared[either] for one in (_types(member) or [None])]
    return []

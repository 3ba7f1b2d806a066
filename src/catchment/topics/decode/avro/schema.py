"""An Avro schema as the nodes that read what was written with it.

What a schema says becomes a column:

    boolean, int, long, float, double     BOOLEAN, INT, BIGINT, FLOAT, DOUBLE
    string, enum, uuid                    STRING
    bytes, fixed                          BINARY
    record, array, map                    STRUCT, ARRAY, MAP
    date                                  DATE
    timestamp-millis, -micros             TIMESTAMP
    local-timestamp-millis, -micros       TIMESTAMP_NTZ
    decimal                               DECIMAL; one of more than 38 digits stays BINARY
    duration                              STRUCT<months, days, millis>
    time-millis, -micros                  INT, BIGINT: since midnight, as Spark reads them
    timestamp-nanos, local-…-nanos        BIGINT: a TIMESTAMP would lose the last three digits
    union with null                       the other member, nullable
    union of int and long, float, double  the wider one
    any other union                       STRUCT<member0, member1, …>, null left out of the count, as Spark reads it
    null                                  no column

A schema that is not a record gives one column, `value`; a union of records gives its members. A record that contains
itself has no columns, and is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import fastavro.schema
from fastavro.schema import SchemaParseException, UnknownType

from catchment.topics.decode.avro.leaves import (
    Decimal,
    Duration,
    Enum,
    Fixed,
    Float,
    Node,
    Nothing,
    Number,
    Piece,
    Text,
    Truth,
    Uuid,
)
from catchment.topics.decode.avro.nested import Choice, List, Map, Record
from catchment.topics.decode.schema import BIGINT, DOUBLE, MAX_FIELDS, STRUCT, Kind, Schema, within

MOST_DIGITS = 38
MOST_DEEP = 100
VALUE = "value"  # the column of a schema that is not a record


class BadSchema(Exception):
    """A schema that cannot be used. The text says why."""


def parse(text: str, others: Iterable[str] = ()) -> Node:
    """The node of a schema, whose kind is a STRUCT. `others` are schemas whose named types it uses, in an order in
    which each comes after what it uses itself. BadSchema if it cannot be used.
    """
    named: dict[str, Any] = {}
    try:
        for other in others:
            fastavro.schema.parse_schema(json.loads(other), named_schemas=named)
        schema = fastavro.schema.parse_schema(json.loads(text), named_schemas=named)
        node = _Builder(named).node(schema, "")
    except UnknownType as error:
        raise BadSchema(f"it uses {str(error)[:100]}, which is defined nowhere") from None
    except SchemaParseException as error:
        raise BadSchema(str(error)[:200]) from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise BadSchema(f"it is not an Avro schema ({str(error)[:200]})") from None
    except RecursionError:
        raise BadSchema(_DEEP) from None
    if node.kind.word != STRUCT or isinstance(node, Duration):
        return Record("", [(VALUE, node)])
    if why := Schema(node.kind.fields).misnamed():
        raise BadSchema(why)
    return node


def fingerprint(text: str) -> bytes:
    """What a message in single-object encoding says of its schema: eight bytes."""
    canonical = fastavro.schema.to_parsing_canonical_form(json.loads(text))
    return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))


class _Builder:
    """Nodes from what fastavro has parsed. A named type has a node at each place that uses it."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._open: list[str] = []  # records that we are in
        self._built = self._depth = 0

    def node(self, schema: Any, path: str) -> Node:
        """The node of a type at this place."""
        self._depth += 1
        found = self._node(schema, path)
        self._depth -= 1
        return found

    def _node(self, schema: Any, path: str) -> Node:
        self._built += 1
        if self._depth > MOST_DEEP:
            raise BadSchema(_DEEP)
        if self._built > 4 * MAX_FIELDS:
            raise BadSchema(f"it has more than {MAX_FIELDS} fields")
        if isinstance(schema, list):
            members = [self.node(one, path) for one in schema]
            return Choice(path or VALUE, members)
        name = schema if isinstance(schema, str) else schema["type"]
        if not isinstance(name, str):
            return self.node(name, path)
        if name in _PLAIN:
            return self._leaf(name, schema if isinstance(schema, dict) else {}, path or VALUE)
        if isinstance(schema, str):
            return self.node(self._named[schema], path)
        return getattr(self, f"_{name}")(schema, path)  # type: ignore[no-any-return]

    def _record(self, schema: Mapping[str, Any], path: str) -> Node:
        name = schema["name"]
        if name in self._open:
            raise BadSchema(f"the record {name} contains itself, so that it has no columns")
        self._open.append(name)
        fields = [(one["name"], self.node(one["type"], within(path, one["name"]))) for one in schema["fields"]]
        self._open.pop()
        folded = [one.lower() for one, _ in fields]
        for one, _ in fields:
            if folded.count(one.lower()) > 1:
                raise BadSchema(f"{within(path, one)}: another field differs from it only in case; rename one of them")
        return Record(path, fields)

    _error = _record

    def _array(self, schema: Mapping[str, Any], path: str) -> Node:
        return List(path or VALUE, self.node(schema["items"], f"{path or VALUE}[]"))

    def _map(self, schema: Mapping[str, Any], path: str) -> Node:
        return Map(path or VALUE, self.node(schema["values"], f"{path or VALUE}[]"))

    def _enum(self, schema: Mapping[str, Any], path: str) -> Node:
        if not schema["symbols"]:
            raise BadSchema(f"{path or VALUE}: an enum without symbols")
        return Enum(path or VALUE, list(schema["symbols"]))

    def _fixed(self, schema: Mapping[str, Any], path: str) -> Node:
        size, logical = schema["size"], schema.get("logicalType")
        path = path or VALUE
        if not isinstance(size, int) or not 0 < size < 1 << 31:
            raise BadSchema(f"{path}: a fixed of {size} bytes")
        if logical == "uuid" and size == 16:
            return Uuid(path)
        if logical == "duration" and size == 12:
            return Duration(path)
        return _decimal(Fixed(path, Kind("BINARY"), size), schema)

    def _leaf(self, name: str, schema: Mapping[str, Any], path: str) -> Node:
        logical = schema.get("logicalType")
        if name == "bytes":
            return _decimal(Piece(path, Kind("BINARY")), schema)
        return _LOGICAL.get((name, logical), _PLAIN[name])(path)


def _decimal(below: Piece | Fixed, schema: Mapping[str, Any]) -> Node:
    """A decimal, if it is one that can be: else it stays what it is below, as Avro wants it."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if schema.get("logicalType") != "decimal" or not isinstance(precision, int) or not isinstance(scale, int):
        return below
    return Decimal(below, precision, scale) if 0 < precision <= MOST_DIGITS and 0 <= scale <= precision else below


_DEEP = "it is nested too deeply"
_PLAIN: dict[str, Callable[[str], Node]] = {
    "null": Nothing,
    "boolean": Truth,
    "int": lambda path: Number(path, Kind("INT"), int32=True),
    "long": lambda path: Number(path, Kind(BIGINT)),
    "float": lambda path: Float(path, Kind("FLOAT"), "<f4"),
    "double": lambda path: Float(path, Kind(DOUBLE), "<f8"),
    "bytes": lambda path: Piece(path, Kind("BINARY")),
    "string": Text,
}
_LOGICAL: dict[tuple[str, Any], Callable[[str], Node]] = {
    ("int", "date"): lambda path: Number(path, Kind("DATE"), int32=True),
    ("long", "timestamp-millis"): lambda path: Number(path, Kind("TIMESTAMP"), factor=1000),
    ("long", "timestamp-micros"): lambda path: Number(path, Kind("TIMESTAMP")),
    ("long", "local-timestamp-millis"): lambda path: Number(path, Kind("TIMESTAMP_NTZ"), factor=1000),
    ("long", "local-timestamp-micros"): lambda path: Number(path, Kind("TIMESTAMP_NTZ")),
}

"""JSON with a registry's frames: rows as without them, kinds as the schema has them, dead letters as they came."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from catchment.errors import RegistryError
from catchment.testing.clock import FakeClock
from catchment.testing.registry import SchemaRegistry, framed
from catchment.topics.decode.framed import FramedJson, declared_by
from catchment.topics.decode.registry import Registry
from catchment.topics.decode.schemas import Schemas
from catchment.topics.names import Place
from catchment.topics.records import RECORDS
from tests.unit.topics.write.ranges import memory

ORDER = json.dumps({"type": "object", "properties": {"price": {"type": "number"}, "id": {"type": ["integer", "null"]}}})


def decoder(server: SchemaRegistry, declared: dict[str, str] | None = None) -> FramedJson:
    registry = Registry("http://registry.test", transport=server.transport(), clock=FakeClock())
    return FramedJson(registry, Schemas(memory(), Place("g", "t"), declared or {}, 1))


def records(*values: bytes | None) -> pa.Table:
    count = len(values)
    columns = [range(count), [0] * count, [b"k"] * count, values]
    return pa.table([pa.array(one, type) for one, type in zip(columns, RECORDS.types, strict=True)], schema=RECORDS)


def test_frames_come_off_and_declared_kinds_are_there_from_the_start() -> None:
    server = SchemaRegistry()
    number = server.register("orders", ORDER, "JSON")
    found = decoder(server).decode("", records(framed(number, b'{"price": 3, "more": 1}')))
    assert found.table.schema.field("price").type == pa.float64()
    assert found.table.schema.field("more").type == pa.int64()
    assert found.table.drop_columns(["_offset", "_timestamp"]).to_pylist() == [{"price": 3.0, "id": None, "more": 1}]
    assert not found.dead.num_rows


def test_dead_letters_have_their_frames() -> None:
    server = SchemaRegistry()
    number, avro = server.register("orders", ORDER, "JSON"), server.register("avro", '"string"')
    values = [
        framed(number, b'{"price": 1.5}'),
        b'{"price": 1.5}',
        framed(avro, b"{}"),
        framed(99, b"{}"),
        framed(number, b"{"),
        framed(number, b'{"price": "x"}'),
        None,
        framed(number, b'{"price": 2}'),
    ]
    found = decoder(server).decode("", records(*values))
    assert found.table["_offset"].to_pylist() == [0, 7]
    assert found.dead["value"].to_pylist() == values[1:7]
    reasons = found.dead["reason"].to_pylist()
    assert reasons[0].startswith("not framed")
    assert reasons[1:4] == [
        f"schema {avro} is of kind AVRO, and the export decodes JSON",
        "the registry has no schema 99",
        "not valid JSON",
    ]
    assert reasons[4].startswith("price: ")
    assert reasons[5] == "the message has no value"


def test_types_and_then_rows() -> None:
    server = SchemaRegistry()
    number = server.register("orders", ORDER, "JSON")
    one = decoder(server)
    typed = one.types(records(framed(number, b'{"t": "a"}'), b"x", framed(number, b'{"t": "b", "price": 1}')), "t")
    assert typed.types.to_pylist() == ["a", "b"]
    assert typed.dead["offset"].to_pylist() == [1]
    found = one.decode("b", typed.records.slice(1))
    assert found.table["price"].to_pylist() == [1.0]
    assert one.finish("b", found.table).schema.names == ["price", "id", "t", "_offset", "_timestamp"]


def test_what_is_declared_in_the_configuration_goes_before_the_registry() -> None:
    server = SchemaRegistry()
    number = server.register("orders", ORDER, "JSON")
    found = decoder(server, {"*": "price DECIMAL(10,2)"}).decode("", records(framed(number, b'{"price": 3}')))
    assert found.table.schema.field("price").type == pa.decimal128(10, 2)


def test_a_registry_that_is_away_is_an_error_and_not_a_dead_letter() -> None:
    with pytest.raises(RegistryError):
        decoder(SchemaRegistry(away=True)).decode("", records(framed(1, b"{}")))


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ({"type": "integer"}, "BIGINT"),
        ({"type": "number"}, "DOUBLE"),
        ({"type": "string", "format": "date-time"}, "string"),
        ({"type": ["null", "boolean"]}, "BOOLEAN"),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, "BIGINT"),
        ({"anyOf": [{"type": "number"}, {"type": "null"}], "default": None}, "DOUBLE"),
        ({"anyOf": [{"type": "number"}, {"$ref": "#/x"}]}, None),
        ({"type": ["integer", "string"]}, None),
        ({"type": "object"}, None),
        ({"type": {"a": 1}}, None),
        ({}, None),
        (True, None),
    ],
)
def test_only_one_plain_type_is_taken(declared: Any, kind: str | None) -> None:
    found = declared_by(json.dumps({"properties": {"x": declared}})).plain()
    assert found == ([["x", kind]] if kind else [])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "{}",
        '{"properties": []}',
        "[]",
        '{"properties": {"_offset": {"type": "integer"}}}',
        "[" * 200_000,
        '{"properties": {"a": ' + '{"anyOf": [' * 700 + '"x"' + "]}" * 700 + "}}",
    ],
    ids=range(8),
)
def test_a_schema_that_declares_nothing_for_us(text: str) -> None:
    assert declared_by(text).fields == ()

"""The registry's client against a registry that others run in earnest, and against our own over a socket."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

from catchment.errors import RegistryError
from catchment.testing.apicurio import Apicurio, apicurio
from catchment.testing.clock import FakeClock
from catchment.testing.registry import framed, schema_registry
from catchment.topics.decode.avro.parser import FramedAvro
from catchment.topics.decode.framed import declared_by
from catchment.topics.decode.protobuf.parser import ProtobufParser
from catchment.topics.decode.protobuf.registry import Framed
from catchment.topics.decode.registry import Reference, Registry, UnknownSchema

ENUM = {"type": "enum", "name": "x.Color", "symbols": ["RED", "BLUE"]}
CAR = {"type": "record", "name": "Car", "fields": [{"name": "color", "type": "x.Color"}]}
COLOR = ("x.Color", "color", 1)


@pytest.fixture(scope="module")
def server() -> Iterator[Apicurio]:
    with apicurio() as running:
        yield running


def test_schemas_of_all_kinds(server: Apicurio) -> None:
    avro = server.register("avro", '"string"')
    schema = server.register("json", '{"type": "object", "properties": {"p": {"type": "number"}}}', "JSON")
    proto = server.register("proto", 'syntax = "proto3"; message M { int32 x = 1; }', "PROTOBUF")
    registry = Registry(server.url)
    assert [registry.schema(number).kind for number in (avro, schema, proto)] == ["AVRO", "JSON", "PROTOBUF"]
    assert json.loads(registry.schema(avro).text) == "string"
    assert declared_by(registry.schema(schema).text).plain() == [["p", "DOUBLE"]]


def test_messages_whose_schema_refers_to_another(server: Apicurio) -> None:
    server.register("color", json.dumps(ENUM))
    number = server.register("car", json.dumps(CAR), references=[COLOR])
    registry = Registry(server.url)
    assert registry.schema(number).references == (Reference(*COLOR),)
    values = pa.array([framed(number, b"\2"), framed(number + 1000, b"\2"), framed(number, b"\0")], pa.binary())
    [found], dead = FramedAvro(registry).parse(pa.table({"value": values}))
    assert found.values.to_pylist() == [{"color": "BLUE"}, {"color": "RED"}]
    assert dead == {1: f"the registry has no schema {number + 1000}"}


def test_protobuf_of_a_registry_that_gives_text(server: Apicurio) -> None:
    server.register("line", 'syntax = "proto3"; package lib; message Line { string sku = 1; }', "PROTOBUF")
    text = 'syntax = "proto3"; package lib; import "line.proto"; message A {} message B { repeated Line lines = 2; }'
    number = server.register("b", text, "PROTOBUF", references=[("line.proto", "line", 1)])
    values = pa.array([framed(number, b"\2\2\x12\x03\x0a\x01x"), framed(number, b"\2\2\x12")], pa.binary())
    [found], dead = ProtobufParser(Framed(Registry(server.url))).parse(pa.table({"value": values}))
    assert found.values.to_pylist() == [{"lines": [{"sku": "x"}]}]
    assert list(dead) == [1]


def test_what_is_not_there(server: Apicurio) -> None:
    registry = Registry(server.url)
    with pytest.raises(UnknownSchema):
        registry.schema(987_654)
    with pytest.raises(UnknownSchema):
        registry.referenced(Reference("n", "no-such-subject", 1))
    with pytest.raises(RegistryError, match="is the URL right"):
        Registry(server.url.removesuffix("/v7")).schema(1)


def test_our_own_registry_says_the_same(server: Apicurio) -> None:
    """What the double answers is what a client of the real one sees."""
    found = []
    with schema_registry() as double:
        for one in (server, double):
            one.register("color", json.dumps(ENUM))
            number = one.register("car", json.dumps(CAR), references=[COLOR])
            registry = Registry(one.url)
            schema = registry.schema(number)
            used = registry.referenced(schema.references[0])
            found.append((schema.kind, json.loads(schema.text), schema.references, used.kind, json.loads(used.text)))
    assert found[0] == found[1]


def test_a_registry_that_went_away() -> None:
    with schema_registry() as running:
        number = running.register("s", '"string"')
        registry = Registry(running.url, clock=FakeClock())
        assert registry.schema(number).text == '"string"'
        running.away = True
        with pytest.raises(RegistryError, match="was asked for schema 9 4 times in vain"):
            registry.schema(9)
        assert registry.schema(number).text == '"string"'  # which is known
        running.away, running.user = False, ("kim", "secret")
        with pytest.raises(RegistryError, match="answered 401"):
            registry.schema(9)
        with pytest.raises(UnknownSchema):
            Registry(running.url.replace("//", "//kim:secret@")).schema(9)

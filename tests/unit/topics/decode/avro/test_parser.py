"""Avro, read across messages: the same rows that fastavro reads one by one, and the same opinion of what is broken."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catchment.config.topics import Export
from catchment.errors import RegistryError, UsageError
from catchment.testing.clock import FakeClock
from catchment.testing.registry import SchemaRegistry, framed
from catchment.topics.decode.avro import schema as avro_schema
from catchment.topics.decode.avro.parser import MARK, PIECE, FramedAvro, PlainAvro
from catchment.topics.decode.columns import ColumnDecoder, Parsed
from catchment.topics.decode.registry import Registry
from catchment.topics.decode.schemas import Schemas
from catchment.topics.names import Place
from tests.unit.topics.decode.avro.avros import (
    comparable,
    for_fastavro,
    for_us,
    judged,
    number,
    schemas,
    values,
    written,
)
from tests.unit.topics.write.ranges import BEGIN, Message, all_rows, memory, rows_of, write
from tests.unit.topics.write.ranges import written as was_written

SLOW = settings(
    deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
STRICTER = ("beyond 32 bits", "neither 0 nor 1", "comes twice", "no such symbol", "no such member")


def parsed(schema: Any, messages: Sequence[bytes | None], few: int = 32) -> tuple[Parsed, dict[int, str]]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    [found], dead = PlainAvro(text, few=few).parse(pa.table({"value": pa.array(messages, pa.binary())}))
    found.values.validate(full=True)
    assert found.values.type == found.kind.arrow()
    assert found.values.null_count == 0
    assert sorted([*found.rows.to_pylist(), *dead]) == list(range(len(messages)))
    return found, dead


def rows(schema: Any, messages: Sequence[bytes], few: int = 32) -> list[Any]:
    found, dead = parsed(schema, messages, few)
    assert not dead
    return list(found.values.to_pylist())


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": one} for name, one in fields.items()]}


@SLOW
@given(st.data(), st.sampled_from([0, 2, 32]))
def test_rows_are_what_was_written(data: st.DataObject, few: int) -> None:
    schema = data.draw(schemas())
    some = data.draw(st.lists(values(schema), max_size=8))
    messages = [written(schema, one) for one in some]
    ready = fastavro.parse_schema(schema)
    for message, one in zip(messages, some, strict=True):  # what we write is Avro
        assert comparable(judged(ready, message)) == comparable(for_fastavro(schema, one))
    assert comparable(rows(schema, messages, few)) == comparable([for_us(schema, one) for one in some])


@SLOW
@given(st.data())
def test_a_broken_message_is_told_and_disturbs_no_other(data: st.DataObject) -> None:
    schema = data.draw(schemas(plain=True))
    messages = [written(schema, one) for one in data.draw(st.lists(values(schema), min_size=1, max_size=6))]
    for at in data.draw(st.lists(st.integers(0, len(messages) - 1), max_size=3)):
        messages[at] = data.draw(broken(messages[at]))
    alone = [parsed(schema, [message]) for message in messages]
    reasons = {at: dead[0] for at, (_, dead) in enumerate(alone) if dead}
    good = [found.values.to_pylist()[0] for found, dead in alone if not dead]
    for few in (0, 2, 32):
        found, dead = parsed(schema, messages, few)
        assert dead == reasons
        assert comparable(found.values.to_pylist()) == comparable(good)
    ready = fastavro.parse_schema(schema)
    for at, message in enumerate(messages):
        if at not in reasons:
            judged(ready, message)
        elif message and not any(words in reasons[at] for words in STRICTER):
            with pytest.raises(Exception):  # noqa: B017  # of any kind
                judged(ready, message)


def broken(message: bytes) -> st.SearchStrategy[bytes]:
    places = st.integers(0, max(len(message) - 1, 0))
    flips = st.tuples(places, st.integers(0, 255)).map(
        lambda flip: message[: flip[0]] + bytes([flip[1]]) + message[flip[0] + 1 :]
    )
    return flips | places.map(lambda place: message[:place]) | st.binary(max_size=3).map(lambda more: message + more)


@SLOW
@given(st.data())
def test_any_bytes_at_all_are_rows_or_dead_letters(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    messages = data.draw(st.lists(st.binary(max_size=40), max_size=6))
    assert parsed(schema, messages, 0)[1] == parsed(schema, messages, 32)[1]


@pytest.mark.parametrize(
    ("type", "kind"),
    [
        ("boolean", "BOOLEAN"),
        ("int", "INT"),
        ("long", "BIGINT"),
        ("float", "FLOAT"),
        ("double", "DOUBLE"),
        ("bytes", "BINARY"),
        ("string", "STRING"),
        ({"type": "string", "logicalType": "uuid"}, "STRING"),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, "STRING"),
        ({"type": "fixed", "name": "F", "size": 16}, "BINARY"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "STRING"),
        ({"type": "int", "logicalType": "date"}, "DATE"),
        ({"type": "int", "logicalType": "time-millis"}, "INT"),
        ({"type": "long", "logicalType": "time-micros"}, "BIGINT"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "TIMESTAMP"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "TIMESTAMP"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "BIGINT"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "TIMESTAMP_NTZ"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "TIMESTAMP_NTZ"),
        ({"type": "long", "logicalType": "of our own"}, "BIGINT"),
        ({"type": "string", "logicalType": "date"}, "STRING"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, "DECIMAL(10,2)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, "BINARY"),
        (
            {"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"},
            "STRUCT<months: BIGINT, days: BIGINT, millis: BIGINT>",
        ),
        ({"type": "array", "items": ["null", "int"]}, "ARRAY<INT>"),
        ({"type": "map", "values": {"type": "array", "items": "long"}}, "MAP<STRING, ARRAY<BIGINT>>"),
        (["null", "long"], "BIGINT"),
        (["string", "null"], "STRING"),
        (["string"], "STRING"),
        (["long", "null", "int"], "BIGINT"),
        (["double", "float"], "DOUBLE"),
        (["null", "string", "int"], "STRUCT<member0: STRING, member1: INT>"),
        (["int", "float"], "STRUCT<member0: INT, member1: FLOAT>"),
        (
            ["int", {"type": "long", "logicalType": "timestamp-millis"}],
            "STRUCT<member0: INT, member1: TIMESTAMP>",
        ),
        ("null", "void"),
    ],
)
def test_what_a_type_becomes(type: Any, kind: str) -> None:
    found, _ = parsed(record(x=type), [])
    assert str(found.kind) == f"STRUCT<x: {kind}>"
    assert found.values.type.names == ([] if type == "null" else ["x"])


def test_named_types_may_be_used_again_and_have_namespaces() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "namespace": "a.b",
        "fields": [
            {"name": "x", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
            {"name": "y", "type": ["null", "E"]},
            {"name": "z", "type": {"type": "array", "items": "a.b.E"}},
        ],
    }
    assert rows(schema, [b"\x02\x02\x00\x02\x02\x00"]) == [{"x": "B", "y": "A", "z": ["B"]}]


def test_a_fixed_uuid() -> None:
    one = UUID("00112233-4455-6677-8899-aabbccddeeff")
    schema = record(x=["null", {"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}])
    assert rows(schema, [b"\2" + one.bytes, b"\0", b"\2" + bytes(16)]) == [
        {"x": str(one)},
        {"x": None},
        {"x": str(UUID(int=0))},
    ]


@pytest.mark.parametrize(
    ("schema", "message", "row"),
    [
        ("string", number(2) + b"hi", {"value": "hi"}),
        (["null", "int"], b"\0", {"value": None}),
        ({"type": "array", "items": "int"}, number(1) + number(5) + b"\0", {"value": [5]}),
        (
            [record(a="int"), {**record(b="string"), "name": "S"}],
            number(1) + number(1) + b"x",
            {"member0": None, "member1": {"b": "x"}},
        ),
        (
            {"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"},
            bytes(12),
            {"value": {"months": 0, "days": 0, "millis": 0}},
        ),
    ],
)
def test_a_schema_that_is_not_a_record(schema: Any, message: bytes, row: Any) -> None:
    assert rows(json.dumps(schema), [message]) == [row]


HUGE = number(1 << 61)


@pytest.mark.parametrize("few", [0, 32])
@pytest.mark.parametrize(
    ("type", "message", "why"),
    [
        ("long", b"", "the message has no value"),
        ("long", None, "the message has no value"),
        ("long", b"\x80", "x: the message ends within it; was it written with another schema?"),
        ("long", b"\xff" * 10 + b"\1", "x: the message ends within it; was it written with another schema?"),
        ("long", b"\0\0", "bytes are left over after the last field; was it written with another schema?"),
        ("int", number(1 << 31), "x: a number beyond 32 bits"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            number(1 << 60),
            "x: a number beyond what a TIMESTAMP holds",
        ),
        ("boolean", b"\2", "x: a boolean that is neither 0 nor 1; was it written with another schema?"),
        ("double", bytes(7), "x: the message ends within it; was it written with another schema?"),
        ("string", number(-1), "x: longer than the message; was it written with another schema?"),
        ("string", HUGE + b"text", "x: longer than the message; was it written with another schema?"),
        ("string", number(2) + b"\xc3\x28", "x: not valid UTF-8"),
        ("bytes", number(3) + b"ab", "x: longer than the message; was it written with another schema?"),
        (["null", "int"], number(2), "x: its union has no such member; was it written with another schema?"),
        (["null", "int"], number(-1), "x: its union has no such member; was it written with another schema?"),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            number(1),
            "x: its enum has no such symbol; was it written with another schema?",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 3},
            number(2) + (1000).to_bytes(2, "big"),
            "x: a number of more than 3 digits",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 38},
            number(17) + b"\1" + bytes(16),
            "x: a number of more than 38 digits",
        ),
        (
            {"type": "array", "items": "int"},
            HUGE + bytes(20),
            "x: more elements than the message has bytes for; was it written with another schema?",
        ),
        (
            {"type": "array", "items": "double"},
            number(3) + bytes(20),
            "x: more elements than the message has bytes for; was it written with another schema?",
        ),
        (
            {"type": "array", "items": "string"},
            number(-(1 << 63)) + number(4) + bytes(20),
            "x: more elements than the message has bytes for; was it written with another schema?",
        ),
        (
            {"type": "array", "items": "long"},
            number(2) + b"\0\x80",
            "x[]: the message ends within it; was it written with another schema?",
        ),
        (
            {"type": "array", "items": "string"},
            number(2) + number(1) + b"a" + number(9),
            "x[]: longer than the message; was it written with another schema?",
        ),
        (
            {"type": "array", "items": "null"},
            HUGE,
            "x: the message ends within it; was it written with another schema?",
        ),
        (
            {"type": "map", "values": "int"},
            (number(1) + number(1) + b"a" + number(1)) * 2 + b"\0",
            "x: a key comes twice in the map",
        ),
        (
            {"type": "map", "values": "int"},
            number(1) + number(1) + b"\xff" + number(1) + b"\0",
            "x (a key): not valid UTF-8",
        ),
    ],
)
def test_why_a_message_is_a_dead_letter(type: Any, message: bytes | None, why: str, few: int) -> None:
    assert parsed(record(x=type), [message], few)[1] == {0: why}


def test_claimed_counts_of_what_takes_no_bytes_cost_nothing() -> None:
    empty = {"type": "array", "items": {"type": "record", "name": "Q", "fields": [{"name": "n", "type": "null"}]}}
    schema = record(x=empty, y="int")
    for few in (0, 32):
        assert rows(schema, [HUGE + HUGE + b"\0" + number(7)], few) == [{"y": 7}]


def test_many_messages_are_read_in_pieces() -> None:
    schema = record(n="int", text="string", deep=deep_list(20))
    size = PIECE // 500
    messages = [number(n) + number(size) + b"x" * size + b"\0" for n in range(1400)]
    messages[700] = messages[700][:-1]
    found, dead = parsed(schema, messages)
    assert [one["n"] for one in found.values.to_pylist()] == [n for n in range(1400) if n != 700]
    assert list(dead) == [700]


def deep_list(levels: int) -> Any:
    return {"type": "array", "items": deep_list(levels - 1) if levels else "int"}


def test_a_list_as_deep_as_may_be() -> None:
    levels = 90
    message = number(1) * (levels + 1) + number(7) + b"\0" * (levels + 1)
    for few in (0, 32):
        [row] = rows(record(x=deep_list(levels)), [message], few)
        found = row["x"]
        for _ in range(levels + 1):
            [found] = found
        assert found == 7


def test_a_long_list_in_a_single_message() -> None:
    schema = record(x={"type": "array", "items": "string"}, y={"type": "array", "items": "long"})
    texts, longs = [f"text {at}" for at in range(3000)], list(range(-500, 3000))
    message = (
        number(3000)
        + b"".join(number(len(one)) + one.encode() for one in texts)
        + b"\0"
        + number(3500)
        + b"".join(map(number, longs))
        + b"\0"
    )
    short = number(1) + number(1) + b"a" + b"\0" + b"\0"
    for few in (0, 3, 32):
        assert rows(schema, [short, message, short, short, short], few)[1] == {"x": texts, "y": longs}
        assert parsed(schema, [message[:-9], short], few)[1] == {
            0: "y[]: the message ends within it; was it written with another schema?"
        }


def test_decimals_with_more_bytes_than_they_need() -> None:
    schema = record(x={"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1})
    messages = [number(len(one)) + one for one in (b"", b"\xff" * 40, bytes(30) + b"\7", b"\x80", b"\1\0")]
    assert [str(one["x"]) for one in rows(schema, messages)] == ["0.0", "-0.1", "0.7", "-12.8", "25.6"]


def test_single_object_encoding_is_told_by_its_mark() -> None:
    schema = record(x="string")
    mark = MARK + avro_schema.fingerprint(json.dumps(schema))
    plain = number(2) + b"hi"
    assert rows(schema, [plain, mark + plain, plain]) == [{"x": "hi"}] * 3
    assert list(parsed(schema, [MARK + bytes(8) + plain, plain])[1]) == [0]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "it is not an Avro schema"),
        ("3", "it is not an Avro schema"),
        ('"nosuch"', "nosuch"),
        ('{"type": "record", "fields": []}', ""),
        (record(x={"type": "enum", "name": "E", "symbols": ["A", "A"]}), ""),
        (record(next=["null", "R"]), "the record R contains itself"),
        (record(x={"type": "array", "items": "R"}), "the record R contains itself"),
        (record(_offset="long"), "_offset: this name is taken"),
        (record(a="int", A="int"), "a: another field differs from it only in case"),
        (record(x={"type": "fixed", "name": "F", "size": 0}), "x: a fixed of 0 bytes"),
        (record(x={"type": "enum", "name": "E", "symbols": []}), "x: an enum without symbols"),
        ('{"type": "array", "items": ' * 120 + '"int"' + "}" * 120, "it is nested too deeply"),
    ],
)
def test_a_schema_that_cannot_be_used(schema: Any, why: str) -> None:
    with pytest.raises(UsageError, match=f"the Avro schema cannot be used: .*{why}"):
        PlainAvro(schema if isinstance(schema, str) else json.dumps(schema))


def test_a_schema_that_unfolds_into_too_many_fields() -> None:
    inner: Any = "int"
    for at in range(30):  # each record has the one below it twice
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"R{at - 1}" if at else "int"}]
        inner = {"type": "record", "name": f"R{at}", "fields": fields}
    with pytest.raises(UsageError, match="more than 2000 fields"):
        PlainAvro(json.dumps(inner))
    text = '{"type": "array", "items": ' * 3000 + '"int"' + "}" * 3000
    with pytest.raises(UsageError, match="nested too deeply"):
        PlainAvro(text)


ORDER = record(type="string", at={"type": "long", "logicalType": "timestamp-millis"}, n=["null", "int"])


def order(offset: int, type: str, n: int | None) -> Message:
    body = number(len(type)) + type.encode() + number(BEGIN + offset) + (b"\0" if n is None else b"\2" + number(n))
    return Message(offset, body)


@pytest.mark.parametrize("from_file", [False, True])
def test_a_range_is_written_by_type_and_day(tmp_path: Path, *, from_file: bool) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    where = {"schema_file": str(file)} if from_file else {"schema": json.dumps(ORDER)}
    split = {"type": {"field": "type"}, "day": {"field": "at", "by": "day"}}
    export = Export.model_validate(
        {"group": "orders", "decode": {"name": "avro", **where}, "split": split, "dead_letters": {"stop_above": "100%"}}
    )
    messages = [order(at, "ab"[at % 2], None if at % 3 else at) for at in range(20)]
    messages[5] = Message(5, messages[5].value[:-1] if messages[5].value else b"")
    bucket = memory()
    found = was_written(write(bucket, tmp_path / "scratch", export, messages, rows=7))
    by_folder = all_rows(bucket, found)
    assert {folder.rpartition("clicks/")[2] for folder in by_folder} == {
        "type=a/day=2024-10-04",
        "type=b/day=2024-10-04",
    }
    kept = {row["_offset"]: row["n"] for some in by_folder.values() for row in some}
    assert kept == {at: None if at % 3 else at for at in range(20) if at != 5}
    [dead] = rows_of(bucket, found.dead[0].key)
    assert dead["value"] == messages[5].value
    assert dead["reason"].startswith("n: the message ends within it")


class Lake:
    """A registry and a decoder of framed messages, over one memory."""

    def __init__(self) -> None:
        self.server = SchemaRegistry()
        registry = Registry("http://registry.test", transport=self.server.transport(), clock=FakeClock())
        self.decoder = ColumnDecoder(FramedAvro(registry), Schemas(memory(), Place("g", "t"), {}, 1))

    def register(self, subject: str, schema: Any, **more: Any) -> int:
        return self.server.register(subject, json.dumps(schema), **more)

    def decode(self, *messages: bytes | None) -> tuple[list[Any], list[tuple[bytes | None, str]]]:
        table = pa.table(
            {
                "offset": pa.array(range(len(messages)), pa.int64()),
                "timestamp": pa.array([0] * len(messages), pa.int64()),
                "key": pa.nulls(len(messages), pa.binary()),
                "value": pa.array(messages, pa.binary()),
            }
        )
        found = self.decoder.decode("", table)
        dead = list(zip(found.dead["value"].to_pylist(), found.dead["reason"].to_pylist(), strict=True))
        return found.table.drop_columns(["_timestamp"]).to_pylist(), dead


def test_each_message_is_read_with_its_own_schema() -> None:
    lake = Lake()
    old = lake.register("s", record(id="int", gone="string"))
    new = lake.register("s", record(name="string", id="int"))
    found, dead = lake.decode(
        framed(new, number(1) + b"a" + number(1)),
        framed(old, number(2) + number(1) + b"g"),
        framed(new, number(1) + b"b" + number(3)),
    )
    assert not dead
    assert found == [
        {"name": "a", "id": 1, "gone": None, "_offset": 0},
        {"name": None, "id": 2, "gone": "g", "_offset": 1},
        {"name": "b", "id": 3, "gone": None, "_offset": 2},
    ]


def test_references_are_followed() -> None:
    lake = Lake()
    lake.register("e", {"type": "enum", "name": "x.E", "symbols": ["A", "B"]})
    lake.register("in", {**record(e="x.E"), "name": "x.In"}, references=[("x.E", "e", 1)])
    top = lake.register(
        "top", record(a="x.In", b=["null", "x.In"], c="x.E"), references=[("x.In", "in", 1), ("x.E", "e", 1)]
    )
    found, dead = lake.decode(framed(top, number(1) + number(0) + number(1)))
    assert (found, dead) == ([{"a": {"e": "B"}, "b": None, "c": "B", "_offset": 0}], [])


def test_what_cannot_be_read_with_its_schema_is_a_dead_letter_with_its_frame() -> None:
    lake = Lake()
    fine = lake.register("s", record(id="int"))
    recursive = lake.register("r", record(next=["null", "R"]))
    other = lake.server.register("j", "{}", "JSON")
    lost = lake.register("l", record(id="x.Lost"), references=[("x.Lost", "nowhere", 1)])
    messages = [
        framed(fine, number(1)),
        framed(77, b""),
        framed(recursive, b"\0"),
        framed(other, b"{}"),
        framed(lost, b"{}"),
        number(1),
        framed(fine, b""),
        None,
    ]
    found, dead = lake.decode(*messages)
    assert found == [{"id": 1, "_offset": 0}]
    assert [value for value, _ in dead] == messages[1:]
    assert [why for _, why in dead] == [
        "the registry has no schema 77",
        f"schema {recursive} cannot be used: the record R contains itself, so that it has no columns",
        f"schema {other} is of kind JSON, and the export decodes Avro",
        "the registry has no version 1 of subject 'nowhere'",
        "not framed: the first byte is not the 0 that comes before a schema's number",
        "id: the message ends within it; was it written with another schema?",
        "the message has no value",
    ]


def test_a_registry_that_is_away_is_an_error() -> None:
    lake = Lake()
    lake.server.away = True
    with pytest.raises(RegistryError):
        lake.decode(framed(1, b""))

"""Decoders, each through a whole export: from a real broker, by real Spark jobs, to rows that Spark reads."""

from __future__ import annotations

import io
import json
import shutil
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest
from pyspark.sql import SparkSession

from catchment.errors import UsageError
from catchment.lake import Lake
from catchment.lake.topics import Topics
from catchment.testing.kafka import KafkaBroker
from catchment.testing.kafka_messages import Message
from catchment.testing.registry import framed, schema_registry
from catchment.topics.service import Until
from tests.spark.exports import caught_up, opened, text
from tests.unit.topics.decode.protobuf.protos import compiled, message_class

EXAMPLE = Path(__file__).parents[2] / "examples" / "decoders" / "payments.py"


def rows(topics: Topics, group: str, topic: str, *columns: str) -> list[tuple[Any, ...]]:
    found = topics.read(group, topic).select("_offset", *columns).collect()
    return sorted(tuple(row)[1:] for row in found)


@pytest.fixture
def local(tmp_path: Path) -> dict[str, Any]:
    return {"path": str(tmp_path / "lake")}


def test_lines_of_text_and_messagepack_and_a_decoder_of_ones_own(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, local: dict[str, Any]
) -> None:
    # The decoder is where nothing but the folder of the configuration leads to.
    folder = tmp_path / "conf"
    folder.mkdir()
    module = f"payments_{kafka.fresh_topic().replace('-', '_').replace('.', '_')}"
    shutil.copy(EXAMPLE, folder / f"{module}.py")
    lines, packed, fixed = (kafka.fresh_topic(partitions=2) for _ in range(3))
    for partition in (0, 1):
        kafka.produce(lines, [f"INFO 17 n={n} ok".encode() for n in range(500)] + [b"?"], partition)
        pack = [msgspec.msgpack.encode({"type": f"t{n % 2}", "n": n, "raw": b"\xff"}) for n in range(500)]
        kafka.produce(packed, [*pack, pack[0][:-1]], partition)
        pay = [b"%010d20261115-%011dEUR" % (n, 990 + n) for n in range(500)]
        kafka.produce(fixed, [Message(one, headers=[("a", b"b")]) for one in (*pay, b"x")], partition)
    exports: dict[str, dict[str, Any]] = {
        lines: {"name": "regex", "pattern": r"^(?P<level>\w+) \d+ n=(?P<n>\d+)", "schemas": {"*": "n INT"}},
        packed: {"name": "msgpack", "schemas": {"*": "raw BINARY"}},
        fixed: {"name": f"{module}:payments", "options": {"default_currency": "CHF"}},
    }
    splits: dict[str, dict[str, Any]] = {
        lines: {"level": {"field": "level"}},
        packed: {"type": {"field": "type"}},
        fixed: {"day": {"field": "day", "by": "day"}},
    }
    for topic, decode in exports.items():
        export = {"group": "rows", "decode": decode, "split": splits[topic], "dead_letters": {"stop_above": "50%"}}
        config = folder / f"{topic}.yaml"
        config.write_text(text(kafka.bootstrap, topic, [export], local, tmp_path / "ws"))
        with Lake.open(config) as opening:
            with Lake(opening.config, spark=spark) as lake:
                done = Topics(lake).export(until=Until.CAUGHT_UP, beat=0.5)
        assert not done.problems
        assert [(one.rows, one.dead) for one in done.exports] == [(1000, 2)]

    def read(topic: str, *columns: str) -> list[tuple[Any, ...]]:
        with opened((folder / f"{topic}.yaml").read_text(), spark) as topics:
            return rows(topics, "rows", topic, *columns)

    assert read(lines, "level", "n") == sorted([("INFO", n) for n in range(500)] * 2)
    assert read(packed, "type", "n", "raw") == sorted([(f"t{n % 2}", n, b"\xff") for n in range(500)] * 2)
    wanted = [(n, date(2026, 11, 15), -Decimal(990 + n) / 100, "EUR") for n in range(500)]
    assert read(fixed, "account", "`day`", "amount", "currency") == sorted(
        [(account, str(day), amount, currency) for account, day, amount, currency in wanted] * 2
    )


def test_what_cannot_be_decoded_is_said_before_anything_is_started(
    kafka: KafkaBroker, spark: SparkSession, tmp_path: Path, local: dict[str, Any]
) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, [b"x"], 0)
    for decode, why in (
        ({"name": "regex", "pattern": "(?P<a>x)(?=y)"}, r"cannot be used: .*\(\?="),
        ("no_such_module:decode", "there is no module no_such_module"),
        ({"name": "msgpack", "schemas": {"*": "a NOTHING"}}, "NOTHING is not a type"),
    ):
        config = text(kafka.bootstrap, topic, [{"group": "rows", "decode": decode}], local, tmp_path / "ws")
        with pytest.raises(UsageError, match=why):
            caught_up(config, spark)
    assert not (tmp_path / "lake" / "topics").exists()


PROTO = """
syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto";
enum Status { NEW = 0; PAID = 1; }
message Line { string sku = 1; uint64 count = 2; }
message Order { int64 id = 1; Status status = 2; repeated Line lines = 3; map<string, double> fees = 4;
                google.protobuf.Timestamp at = 5; optional string note = 6; }
message Refund { int64 id = 1; string why = 2; }
"""


def test_protobuf_whose_header_names_the_message(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, local: dict[str, Any]
) -> None:
    descriptor = tmp_path / "shop.desc"
    descriptor.write_bytes(compiled({"shop.proto": PROTO}))
    order_of, refund_of = message_class(PROTO, "shop.Order"), message_class(PROTO, "shop.Refund")
    topic = kafka.fresh_topic(partitions=2)
    for partition in (0, 1):
        made = []
        for n in range(300):
            lines, at = [{"sku": "a", "count": 2**64 - 1}] * (n % 3), {"seconds": 1_790_000_000}
            order = order_of(id=n, status=n % 2, lines=lines, fees={"x": n / 2}, at=at)
            made.append(Message(order.SerializeToString(), headers=[("type", b"order")]))
            made.append(Message(refund_of(id=n, why="é").SerializeToString(), headers=[("type", b"refund")]))
        kafka.produce(topic, [*made, Message(b"\x08", headers=[("type", b"order")]), Message(b"")], partition)
    decode = {
        "name": "protobuf",
        "descriptor": str(descriptor),
        "messages": {"order": "shop.Order", "refund": "shop.Refund"},
        "type_from": {"header": "type"},
    }
    export = {
        "group": "rows",
        "decode": decode,
        "split": {"type": {"header": "type", "default": "none"}},
        "dead_letters": {"stop_above": "50%"},
    }
    config = text(kafka.bootstrap, topic, [export], local, tmp_path / "ws")
    with opened(config, spark) as topics:
        fresh = topics.export(until=Until.CAUGHT_UP, beat=0.5)
        assert not fresh.problems
        assert [(one.rows, one.dead) for one in fresh.exports] == [(1200, 4)]
        found = topics.read("rows", topic)
        orders = found.where("type = 'order'").selectExpr(
            "id", "status", "size(lines)", "try_element_at(lines, 1).count", "fees['x']", "unix_seconds(at)", "note"
        )
        wanted = [
            (n, ("NEW", "PAID")[n % 2], n % 3, Decimal(2**64 - 1) if n % 3 else None, n / 2, 1_790_000_000, None)
            for n in range(300)
        ]
        assert sorted(map(tuple, orders.collect()), key=str) == sorted(wanted * 2, key=str)
        assert found.where("type = 'refund' AND why = 'é'").count() == 600


def test_avro_whose_frames_name_two_schemas_of_a_registry(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, local: dict[str, Any]
) -> None:
    def order(schema: dict[str, Any], **fields: Any) -> bytes:
        file = io.BytesIO()
        fastavro.schemaless_writer(file, fastavro.parse_schema(schema), fields)
        return file.getvalue()

    fields: list[dict[str, Any]] = [
        {"name": "type", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "lines", "type": {"type": "array", "items": ["null", "int"]}},
    ]
    old = {"type": "record", "name": "Order", "fields": fields}
    price = {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}
    new = {**old, "fields": [*fields, price]}
    topic = kafka.fresh_topic(partitions=2)
    with schema_registry() as registry:
        registry.user = ("kim", "secret-42")
        first, second = (registry.register("orders-value", json.dumps(schema)) for schema in (old, new))
        for partition in (0, 1):
            made = []
            for n in range(300):
                plain: dict[str, Any] = {"type": f"t{n % 2}", "at": 1_790_000_000_000 + n, "lines": [n, None][: n % 3]}
                made.append(framed(first, order(old, **plain)))
                made.append(framed(second, order(new, **plain, price=Decimal(n) / 100)))
            kafka.produce(topic, [*made, made[0][:-1], framed(77, b""), b"{}"], partition)
        decode = {"name": "avro", "registry": registry.url.replace("//", "//kim:secret-42@")}
        split = {"type": {"field": "type"}, "day": {"field": "at", "by": "day"}}
        export = {"group": "rows", "decode": decode, "split": split, "dead_letters": {"stop_above": "50%"}}
        config = text(kafka.bootstrap, topic, [export], local, tmp_path / "ws")
        with opened(config, spark) as topics:
            done = topics.export(until=Until.CAUGHT_UP, beat=0.5)
            assert not done.problems
            assert [(one.rows, one.dead) for one in done.exports] == [(1200, 6)]
            columns = ("type", "unix_millis(at)", "lines", "price")
            found = [tuple(row) for row in topics.read("rows", topic).selectExpr(*columns).collect()]
        assert "secret-42" not in "".join(path.read_text() for path in (tmp_path / "lake").rglob("*.json"))
    wanted = [
        (f"t{n % 2}", 1_790_000_000_000 + n, [n, None][: n % 3], made_price)
        for n in range(300)
        for made_price in (None, Decimal(n) / 100)
    ]
    assert sorted(found, key=str) == sorted(wanted * 2, key=str)

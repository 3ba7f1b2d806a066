"""Decoders, each through a whole export: from a real broker, by real Spark jobs, to rows that Spark reads."""

from __future__ import annotations

import shutil
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from catchment.errors import UsageError
from catchment.lake import Lake
from catchment.lake.topics import Topics
from catchment.testing.kafka import KafkaBroker
from catchment.testing.kafka_messages import Message
from catchment.topics.service import Until
from tests.spark.exports import caught_up, opened, text

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

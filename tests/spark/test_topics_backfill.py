"""Going back, with a real broker and real Spark jobs, while the live export goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from catchment.testing.kafka import KafkaBroker
from catchment.testing.kafka_messages import Message
from catchment.topics import committed
from catchment.topics.backfill.run import Outcome
from catchment.topics.manifest import Counts, File
from catchment.topics.names import Place
from catchment.topics.service import Service
from tests.spark.exports import DAY, caught_up, opened, text

POLICY = {"max_messages": 400, "max_age": "1s"}
BACKUP: dict[str, Any] = {"group": "backup", "policy": {"max_messages": 900, "max_age": "1s"}}


def events(pattern: str, generation: int) -> dict[str, Any]:
    return {
        "group": "events",
        "generation": generation,
        "decode": {"name": "regex", "pattern": pattern, "schemas": {"*": "amount DOUBLE, n BIGINT"}},
        "split": {"kind": {"field": "kind"}, "day": {"field": "at", "unit": "iso", "by": "day"}},
        "policy": POLICY,
    }


# The first takes the whole part of an amount for all of it: no dead letter, no error, only wrong sums.
WRONG = events(r"^(?P<at>\S+) (?P<kind>\w+) (?P<amount>[0-9]+)\S* (?P<n>[0-9]+)$", 1)
RIGHT = events(r"^(?P<at>\S+) (?P<kind>\w+) (?P<amount>[0-9.]+) (?P<n>[0-9]+)$", 2)


def line(number: int) -> Message:
    when = DAY + timedelta(hours=number % 48)
    value = f"{when:%Y-%m-%dT%H:%M:%SZ} {('order', 'refund')[number % 3 == 0]} {number % 100}.25 {number}"
    return Message(value.encode(), key=b"%d" % number)


def worth(numbers: range) -> float:
    return sum(number % 100 + 0.25 for number in numbers)


def total(rows: DataFrame) -> float:
    [row] = rows.agg({"amount": "sum"}).collect()
    return float(row[0])


@contextmanager
def live(config: str, spark: SparkSession) -> Iterator[Callable[[], object]]:
    """An export that runs until the block ends, or until it is told to stop."""
    services: list[Service] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            with opened(config, spark) as topics:
                topics.export(beat=0.5, on_ready=services.append)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="live")
    thread.start()

    def stop() -> None:
        until(lambda: bool(services or failed))
        for service in services:
            service.stop()
        thread.join()

    try:
        yield stop
    finally:
        stop()
        assert not failed, failed


def until(true: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)


def test_the_parser_bug(spark: SparkSession, kafka: KafkaBroker, tmp_path: Path) -> None:
    """docs/topics-parser-bug.md, step by step."""
    topic = kafka.fresh_topic(partitions=2, config={"retention.ms": "-1"})
    storage = {"path": str(tmp_path / "lake")}
    before = text(kafka.bootstrap, topic, [BACKUP, WRONG], storage, tmp_path / "ws")
    after = text(kafka.bootstrap, topic, [BACKUP, RIGHT], storage, tmp_path / "ws")
    sent = 0

    def produce(more: int) -> None:
        nonlocal sent
        for partition in (0, 1):
            kafka.produce(topic, [line(n) for n in range(sent, sent + more) if n % 2 == partition], partition)
        sent += more

    def exported(group: str) -> int:
        with opened(after, spark) as topics:
            return sum(file.rows for file in topics.files(group, topic))

    # 1 The wrong decoder is in production, and nobody notices: nothing is dead, nothing is missing.
    produce(3000)
    with live(before, spark) as stop_old:
        until(lambda: exported("events") == sent and exported("backup") == sent)
        with opened(before, spark) as topics:
            rows = topics.read("events", topic)
            assert rows.count() == sent
            assert total(rows) == worth(range(sent)) - 0.25 * sent
        # 2 A day later Kafka has dropped the data.
        for partition in (0, 1):
            kafka.delete_records(topic, partition, kafka.end(topic, partition))
        # 3 The fix is rolled out as a new generation: the new replica begins before the old one ends.
        with live(after, spark):
            stop_old()
            produce(500)
            # 4 What was exported is written anew from the backup, while messages keep coming.
            with opened(after, spark) as topics:
                plan = topics.backfill("events", topic, replace=True, dry_run=True)
                assert not plan.problems
                assert sum(one.todo.before.counts.written for one in plan.ranges if one.todo.before) >= 3000

                def coming(step: str) -> None:
                    if step == "swap" and sent < 4000:
                        produce(100)

                done = topics.backfill("events", topic, replace=True, on_step=coming)
            assert not done.problems
            assert {one.outcome for one in done.ranges} == {Outcome.SWAPPED}
            # 5 Every range has as many rows as before.
            for one in done.ranges:
                assert one.todo.before is not None
                assert one.counts == one.todo.before.counts
            until(lambda: exported("events") == sent and exported("backup") == sent)
    # 6 Counts and sums agree, and nothing is there twice.
    with opened(after, spark) as topics:
        rows = topics.read("events", topic)
        assert sorted(row.n for row in rows.select("n").collect()) == list(range(sent))
        assert total(rows) == worth(range(sent))
        assert {one.generation for one in topics.files("events", topic)} == {2}
        repaired = topics.repair()
        assert repaired[f"events/{topic}"].removed
        verified = topics.verify()
        assert all(one.findings == () for one in verified.values()), verified
        assert verified[f"events/{topic}"].rows == sent


def test_from_kafka_and_from_the_backup_it_is_the_same(spark: SparkSession, kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic(partitions=2)
    with kafka.transaction() as transaction:  # its mark is a hole in both
        transaction.produce(topic, [line(n) for n in range(10)], 0)
    kafka.produce(topic, [line(n) for n in range(10, 1500)], 0)
    kafka.produce(topic, [line(n) for n in range(1500, 2000)], 1)
    found: list[list[tuple[int, int, Counts, tuple[File, ...]]]] = []
    for source in ({"source": "backup"}, {"from_kafka": True}):
        storage = {"path": str(tmp_path / f"lake-{len(found)}")}
        caught_up(text(kafka.bootstrap, topic, [BACKUP, WRONG], storage, tmp_path / "ws"), spark)
        config = text(kafka.bootstrap, topic, [BACKUP, RIGHT], storage, tmp_path / "ws")
        with opened(config, spark) as topics:
            done = topics.backfill("events", topic, replace=True, **source)
            assert not done.problems
            assert len(done.ranges) == 6
            bucket = topics._lake.bucket
            found.append([(one.first, one.last, one.counts, one.files) for one in manifests(bucket, topic)])
            assert topics.verify(groups=["events"])[f"events/{topic}"].missing == 0
    assert found[0] == found[1]


def manifests(bucket: Any, topic: str) -> list[Any]:
    return list(committed.manifests(bucket, Place("events", topic)))

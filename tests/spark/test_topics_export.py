"""Exports from a real broker by real Spark jobs."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catchment.errors import UsageError
from catchment.testing.kafka import COMPACTED, KafkaBroker, kafka_broker
from catchment.testing.kafka_messages import Message
from catchment.testing.process import answers
from catchment.testing.s3 import S3Server, s3_server
from catchment.topics.service import Service, Until
from tests.spark.exports import BACKUP, DAY, EVENTS, Later, caught_up, event, events, opened, text


@pytest.fixture
def local(tmp_path: Path) -> dict[str, Any]:
    return {"path": str(tmp_path / "lake")}


def ns(topics: Any, group: str, topic: str) -> list[int]:
    return sorted(row.n for row in topics.read(group, topic).select("n").collect())


def test_mixed_types_are_split_by_type_and_day_next_to_a_backup(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, local: dict[str, Any]
) -> None:
    topic = kafka.fresh_topic(partitions=2)
    for partition in (0, 1):
        kafka.produce(topic, events(range(partition * 500, partition * 500 + 500)), partition)
    config = text(kafka.bootstrap, topic, [EVENTS, BACKUP], local, tmp_path / "ws")
    done = caught_up(config, spark)
    assert not done.problems
    with opened(config, spark) as topics:
        assert ns(topics, "events", topic) == list(range(1000))
        rows = topics.read("events", topic)
        misplaced = rows.selectExpr("day", "type", "date_format(timestamp_millis(ts), 'yyyy-MM-dd') as own").where(
            "day != own"
        )
        assert rows.groupBy("type").count().count() == 3
        assert rows.groupBy("day").count().count() == 3
        assert misplaced.count() == 0
        one = topics.read("events", topic, type="t1", day="2026-11-11")
        assert 0 < one.count() < 400
        backup = topics.read("backup", topic)
        assert backup.count() == 1000
        assert {json.loads(row.value)["n"] for row in backup.select("value").collect()} == set(range(1000))
        # A plain reader of the directory sees the same rows.
        assert spark.read.parquet(f"{local['path']}/topics/events/{topic}").count() == 1000
        verified = topics.verify()
        assert all(not one.findings for one in verified.values()), verified
        assert {name: (one.rows, one.missing, one.twice) for name, one in verified.items()} == {
            f"events/{topic}": (1000, 0, 0),
            f"backup/{topic}": (1000, 0, 0),
        }
        status = topics.status()
        assert status.well
        assert {(one.committed, one.lag) for one in status.standings} == {(499, 0)}


def test_odd_messages_lose_nothing(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, local: dict[str, Any]
) -> None:
    topic = kafka.fresh_topic(config={"max.message.bytes": "8000000"})
    large = event(4, "large", text="x" * 5_000_000)
    kafka.produce(
        topic,
        [
            event(0),
            b"not json in the middle",
            Message(event(2), key=None),
            Message(event(3), key=b"\xff\x00", headers=[("h", b"1"), ("h", None)]),
            large,
            b"",
            Message(None, key=b"tombstone"),
            event(7, when=datetime(2099, 1, 1, tzinfo=UTC)),
            event(8, "a/b=c %"),
            event(9),
        ],
        0,
    )
    config = text(kafka.bootstrap, topic, [EVENTS, BACKUP], local, tmp_path / "ws")
    assert not caught_up(config, spark).problems
    with opened(config, spark) as topics:
        assert ns(topics, "events", topic) == [0, 2, 3, 4, 7, 8, 9]
        assert topics.read("events", topic, day="2099-01-01").count() == 1
        assert topics.read("events", topic, type="a/b=c %").count() == 1
        backup = {row.offset: row for row in topics.read("backup", topic).collect()}
        assert bytes(backup[4].value) == large
        assert (backup[2].key, bytes(backup[3].key), backup[6].value, bytes(backup[5].value)) == (
            None,
            b"\xff\x00",
            None,
            b"",
        )
        assert [(one.key, one.value and bytes(one.value)) for one in backup[3].headers] == [("h", b"1"), ("h", None)]
        dead = spark.read.parquet(f"{local['path']}/topics/events/{topic}/_dead").collect()
        assert sorted(row.offset for row in dead) == [1, 5, 6]
        assert all(row.reason for row in dead)
        assert all(not one.findings for one in topics.verify().values())


def test_too_many_dead_letters_stop_the_export_and_lose_nothing(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, local: dict[str, Any]
) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, [*events(range(50)), *[b"bad"] * 50], 0)
    strict = {**EVENTS, "dead_letters": {"stop_above": "1%"}}
    config = text(kafka.bootstrap, topic, [strict], local, tmp_path / "ws")
    [problem] = caught_up(config, spark).problems
    assert "50 of" in problem and "[0, 99]" in problem and "stop_above" in problem
    with opened(config, spark) as topics:
        status = topics.status()
        assert not status.well
        assert status.standings[0].committed is None
    relaxed = text(kafka.bootstrap, topic, [EVENTS], local, tmp_path / "ws")
    assert not caught_up(relaxed, spark).problems
    with opened(relaxed, spark) as topics:
        assert ns(topics, "events", topic) == list(range(50))


def test_transactions_leave_gaps_that_are_on_record(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, local: dict[str, Any]
) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, events(range(3)), 0)
    with kafka.transaction() as aborted:
        aborted.produce(topic, events(range(100, 105)))
        aborted.abort()
    with kafka.transaction() as good:
        good.produce(topic, events(range(3, 6)))
        good.commit()
    with kafka.transaction() as pending:
        pending.produce(topic, events(range(6, 8)))
        config = text(kafka.bootstrap, topic, [EVENTS], local, tmp_path / "ws")
        caught_up(config, spark)
        with opened(config, spark) as topics:
            assert ns(topics, "events", topic) == list(range(6))  # what is not committed waits
        pending.commit()
    caught_up(config, spark)
    with opened(config, spark) as topics:
        assert ns(topics, "events", topic) == list(range(8))
        [found] = topics.verify().values()
        assert (found.rows, found.gaps, found.findings) == (8, 8, ())  # five aborted and three marks


def test_compaction_leaves_gaps_that_are_on_record(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, local: dict[str, Any]
) -> None:
    topic = kafka.fresh_topic(config=COMPACTED)
    kafka.produce(topic, [Message(event(n), key=b"same" if n % 2 else f"{n}".encode()) for n in range(20)], 0)
    kafka.compact(topic)
    end = kafka.end(topic)
    config = text(kafka.bootstrap, topic, [EVENTS, BACKUP], local, tmp_path / "ws")
    caught_up(config, spark)
    with opened(config, spark) as topics:
        for name, one in topics.verify().items():
            assert one.gaps >= 9, name  # of the same key only the last one stays
            assert (one.rows + one.dead + one.gaps, one.findings) == (end, ())


def test_a_bucket_that_is_away_for_a_while_stops_commits_and_loses_nothing(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka.fresh_topic(partitions=2)
    with s3_server() as server:
        storage = {
            "bucket": server.fresh_bucket(),
            "endpoint_url": server.endpoint,
            "region_name": server.region,
            "aws_access_key_id": server.access_key,
            "aws_secret_access_key": server.secret_key,
        }
        small = {**EVENTS, "policy": {"max_messages": 400, "max_age": "1s"}}
        config = text(kafka.bootstrap, topic, [small], storage, tmp_path / "ws")
        steps: list[str] = []
        services: list[Service] = []

        def run() -> None:
            with opened(config, spark) as topics:
                topics.export(beat=0.5, on_ready=services.append, on_step=steps.append)

        running = threading.Thread(target=run)
        running.start()
        try:
            for round in range(3):
                kafka.produce(topic, events(range(round * 1000, round * 1000 + 1000)), round % 2)
                done = steps.count("claim")
                _until(lambda done=done: steps.count("claim") > done)
                server.process.stop()  # in the middle of a range
                committed = steps.count("commit")
                time.sleep(3)
                assert steps.count("commit") <= committed + 1  # the one that was under way
                server.process.start(lambda: answers(int(server.endpoint.rpartition(":")[2])), patience=60)
            _until(lambda: caught(config, spark), 120)
        finally:
            services[0].stop()
            running.join(120)
        with opened(config, spark) as topics:
            [found] = topics.verify().values()
            assert (found.rows, found.missing, found.twice) == (3000, 0, 0)


def caught(config: str, spark: SparkSession) -> bool:
    with opened(config, spark) as topics:
        return all(one.lag == 0 for one in topics.status().standings)


def test_an_export_over_sasl_and_ssl(spark: SparkSession, tmp_path: Path, local: dict[str, Any]) -> None:
    with kafka_broker(security=True) as kafka:
        topic = kafka.fresh_topic()
        kafka.produce(topic, events(range(100)), 0)
        door = kafka.sasl_ssl
        config = text(door.bootstrap, topic, [EVENTS], local, tmp_path / "ws", kafka=dict(door.settings))
        assert not caught_up(config, spark).problems
        with opened(config, spark) as topics:
            assert ns(topics, "events", topic) == list(range(100))
            assert topics.status().well


def test_a_range_without_a_single_message_is_all_gaps(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, local: dict[str, Any]
) -> None:
    topic = kafka.fresh_topic()
    with kafka.transaction() as aborted:
        aborted.produce(topic, events(range(5)))
        aborted.abort()
    config = text(kafka.bootstrap, topic, [EVENTS, BACKUP], local, tmp_path / "ws")
    assert not caught_up(config, spark).problems
    with opened(config, spark) as topics:
        assert [(one.rows, one.gaps) for one in topics.verify().values()] == [(0, 6), (0, 6)]


def test_retention_that_overtakes_is_an_error_until_it_is_gone_over(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, local: dict[str, Any]
) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, events(range(10)), 0)
    config = text(kafka.bootstrap, topic, [EVENTS], local, tmp_path / "ws")
    caught_up(config, spark)
    kafka.produce(topic, events(range(10, 30)), 0)
    kafka.delete_records(topic, 0, 15)
    [problem] = caught_up(config, spark).problems
    assert "no longer has the offsets from 10 to 14" in problem
    assert f"catchment topics skip --group events --topic {topic} --kafka-partition 0 --to 15" in problem
    with opened(config, spark) as topics:
        assert "10 to 14" in topics.status().standings[0].problems[0]
        with pytest.raises(UsageError, match="Kafka still has"):
            topics.skip("events", topic, kafka_partition=0, to=20)
        [gone] = topics.skip("events", topic, kafka_partition=0)
        assert (gone.first, gone.last) == (10, 14)
    assert not caught_up(config, spark).problems
    with opened(config, spark) as topics:
        assert ns(topics, "events", topic) == [*range(10), *range(15, 30)]
        [found] = topics.verify().values()
        assert (found.rows, found.gaps, found.missing) == (25, 5, 0)


def test_a_topic_made_again_is_an_error_until_it_is_accepted(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, local: dict[str, Any]
) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, events(range(5)), 0)
    config = text(kafka.bootstrap, topic, [EVENTS], local, tmp_path / "ws")
    caught_up(config, spark)
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    kafka.produce(topic, events(range(100, 120)), 0)
    [problem] = caught_up(config, spark).problems
    assert "made again" in problem and "--recreated" in problem
    with opened(config, spark) as topics:
        assert ns(topics, "events", topic) == list(range(5))
        topics.skip("events", topic, recreated=True)
    assert not caught_up(config, spark).problems
    with opened(config, spark) as topics:
        assert ns(topics, "events", topic) == [*range(5), *range(100, 120)]
        assert all(not one.findings for one in topics.verify().values())


def test_topics_and_kafka_partitions_that_appear_are_found_and_do_not_collide(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, local: dict[str, Any]
) -> None:
    name = kafka.fresh_topic()
    kafka.produce(name, events(range(10)), 0)
    config = text(kafka.bootstrap, f"{name}.*", [EVENTS], local, tmp_path / "ws", start="latest")
    services: list[Service] = []
    ready = threading.Event()

    def on_ready(service: Service) -> None:
        services.append(service)
        ready.set()

    def run() -> None:
        with opened(config, spark) as topics:
            topics.export(beat=0.5, on_ready=on_ready, on_step=steps.append)

    steps: list[str] = []
    policy = {"policy": {"max_age": "1s"}}
    config = text(kafka.bootstrap, f"{name}.*", [{**EVENTS, **policy}], local, tmp_path / "ws", start="latest")
    running = threading.Thread(target=run)
    running.start()
    try:
        assert ready.wait(60)
        _until(lambda: "look" in steps)
        kafka.add_partitions(name, 2)
        kafka.produce(name, events(range(10, 20)), 1)
        other = kafka.create_topic(f"{name}-other", partitions=1)
        kafka.produce(other, events(range(20, 30)), 0)
        _until(lambda: steps.count("advance") >= 2)
    finally:
        services[0].stop()
        running.join(60)
    with opened(config, spark) as topics:
        assert ns(topics, "events", name) == list(range(10, 20))  # all of the new one, nothing of what was there
        assert ns(topics, "events", other) == list(range(20, 30))


def test_days_are_closed_and_late_events_are_published_again(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, local: dict[str, Any]
) -> None:
    topic = kafka.fresh_topic(partitions=2)
    kafka.produce(topic, [event(n, "a", DAY + timedelta(hours=n)) for n in range(30)], 0)
    kafka.produce(topic, [event(99, "a", datetime(2099, 1, 1, tzinfo=UTC))], 1)
    closing = {**EVENTS, "finalize": {"lateness": "2h"}, "heartbeat": "1s"}
    config = text(kafka.bootstrap, topic, [closing], local, tmp_path / "ws")
    folder = Path(local["path"]) / "topics" / "events" / topic / "type=a"
    at = datetime(2026, 11, 12, 1, 59, tzinfo=UTC)
    caught_up(config, spark, Later(at - datetime.now(UTC)))
    assert (folder / "day=2026-11-10" / "_SUCCESS").exists()
    assert not (folder / "day=2026-11-11" / "_SUCCESS").exists()  # one minute short of its end and two hours
    caught_up(config, spark, Later(at + timedelta(minutes=2) - datetime.now(UTC)))
    success = json.loads((folder / "day=2026-11-11" / "_SUCCESS").read_text())
    assert (success["rows"], success["published"], success["late_rows"]) == (6, 1, 0)
    assert not (folder / "day=2099-01-01" / "_SUCCESS").exists()
    kafka.produce(topic, [event(100, "a", DAY), event(101, "late", DAY)], 1)
    caught_up(config, spark, Later(at + timedelta(minutes=3) - datetime.now(UTC)))
    again = json.loads((folder / "day=2026-11-10" / "_SUCCESS").read_text())
    assert (again["rows"], again["published"], again["late_rows"]) == (25, 2, 1)
    first_seen_late = folder.parent / "type=late" / "day=2026-11-10" / "_SUCCESS"
    assert json.loads(first_seen_late.read_text())["late_rows"] == 1
    with opened(config, spark) as topics:
        assert all(not one.findings for one in topics.verify().values())


def test_an_export_to_s3(spark: SparkSession, kafka: KafkaBroker, s3: S3Server, tmp_path: Path) -> None:
    topic = kafka.fresh_topic(partitions=2)
    kafka.produce(topic, events(range(300)), 0)
    storage = {
        "bucket": s3.fresh_bucket(),
        "prefix": "prod",
        "endpoint_url": s3.endpoint,
        "region_name": s3.region,
        "aws_access_key_id": s3.access_key,
        "aws_secret_access_key": s3.secret_key,
    }
    config = text(kafka.bootstrap, topic, [EVENTS, BACKUP], storage, tmp_path / "ws")
    assert not caught_up(config, spark).problems
    kafka.produce(topic, events(range(300, 400)), 1)
    assert not caught_up(config, spark).problems
    with opened(config, spark) as topics:
        verified = topics.verify()
        assert {(one.rows, len(one.findings)) for one in verified.values()} == {(400, 0)}


def test_once_leaves_what_is_not_due(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, local: dict[str, Any]
) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, events(range(25)), 0)
    small = {**EVENTS, "policy": {"max_messages": 10}}
    config = text(kafka.bootstrap, topic, [small], local, tmp_path / "ws")
    with opened(config, spark) as topics:
        [done] = topics.export(until=Until.DONE).exports
        assert (done.ranges, done.messages) == (2, 20)
        assert topics.status().standings[0].lag == 5


def _until(done: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)

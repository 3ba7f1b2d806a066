"""Ranges written by Spark jobs, from a real broker: exactly these offsets, whatever lies between them."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from catchment.bucket.contract import Bucket
from catchment.bucket.open import open_bucket
from catchment.config.storage import Storage
from catchment.config.topics import Export
from catchment.errors import BrokerError, BucketError, CatchmentError
from catchment.testing.kafka import KafkaBroker
from catchment.testing.kafka_messages import Message
from catchment.testing.s3 import S3Server
from catchment.topics.definition import fingerprint
from catchment.topics.names import Source
from catchment.topics.work import Reading, Refused, Target, Work, Written
from catchment.topics.write.job import SparkWriter
from tests.spark.programs import run

BACKUP = Export.model_validate({"group": "backup"})
EVENTS = Export.model_validate({"group": "events", "decode": "json", "split": {"type": {"field": "type"}}})


class Site:
    """A bucket, and what writes to it."""

    def __init__(self, spark: SparkSession, kafka: KafkaBroker, storage: Storage, memory: int = 256_000_000) -> None:
        self.writer = SparkWriter(spark, Target(storage, memory))
        self.reading = Reading(kafka.bootstrap, {})
        self.bucket: Bucket = open_bucket(storage)

    def write(self, *works: Work) -> list[Written]:
        found = self.writer.write(self.reading, works)
        for one in found:
            assert isinstance(one, Written), one
            one.counts.check(one.first, one.last)
        return [one for one in found if isinstance(one, Written)]

    def table(self, found: Written) -> pa.Table:
        return pa.concat_tables(pq.ParquetFile(io.BytesIO(self.bucket.get(file.key))).read() for file in found.files)


@pytest.fixture
def site(spark: SparkSession, kafka: KafkaBroker, tmp_path: Path) -> Site:
    return Site(spark, kafka, Storage(id="main", path=tmp_path / "lake"))


def work(export: Export, topic: str, first: int, last: int, partition: int = 0) -> Work:
    return Work(export, topic, Source(partition), first, last, fingerprint(export))


def values(numbers: Sequence[int]) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def test_a_backup_has_exactly_its_offsets_and_every_byte(site: Site, kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic(config={"max.message.bytes": "10000000"})
    large = bytes(range(256)) * 20_480  # 5 MB
    sent = [
        Message(b"before"),
        Message(b"\x00\xff", key=None, headers=[("a", b"1"), ("a", None), ("ü", b"")], timestamp=1_790_000_000_123),
        Message(b"", key=b""),
        Message(None, key=b"k"),
        Message(large, key=b"large"),
        Message(b"after"),
    ]
    kafka.produce(topic, sent, 0)
    (found,) = site.write(work(BACKUP, topic, 1, 4))
    rows = site.table(found)
    assert rows["offset"].to_pylist() == [1, 2, 3, 4]
    assert rows["key"].to_pylist() == [None, b"", b"k", b"large"]
    assert rows["value"].to_pylist() == [b"\x00\xff", b"", None, large]
    assert rows["headers"].to_pylist()[0] == [
        {"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "ü", "value": b""},
    ]  # fmt: skip
    assert rows["headers"].to_pylist()[1:] == [[], [], []]
    assert rows["timestamp"].cast(pa.int64())[0].as_py() == 1_790_000_000_123
    assert set(rows["timestamp_type"].to_pylist()) == {"CreateTime"}
    assert found.raw_bytes == len(large) + 2 + 1 + 5
    assert found.holes == ()


def test_many_large_messages_do_not_make_a_batch_too_large(site: Site, kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic(config={"max.message.bytes": "10000000"})
    kafka.produce(topic, [bytes([number]) * 5_000_000 for number in range(30)], 0)
    (found,) = site.write(work(BACKUP, topic, 0, 29))
    assert found.counts.written == 30
    assert [value[0] for value in site.table(found)["value"].to_pylist()] == list(range(30))


def test_a_transaction_aborted_in_the_middle_is_a_hole(site: Site, kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, values(range(3)), 0)
    with kafka.transaction() as gone:
        gone.produce(topic, values(range(100, 110)))
        gone.abort()
    with kafka.transaction() as kept:
        kept.produce(topic, values(range(3, 6)))
    end = kafka.end(topic)
    assert end == 3 + 11 + 4
    (found,) = site.write(work(BACKUP, topic, 0, end - 1))
    assert site.table(found)["value"].to_pylist() == values(range(6))
    assert found.holes == ((3, 13), (17, 17))
    # Ranges that begin or end inside of it, or hold nothing but it.
    parts = [site.write(work(BACKUP, topic, first, last))[0] for first, last in ((0, 7), (8, 12), (13, 15), (17, 17))]
    assert [part.counts.read for part in parts] == [3, 0, 2, 0]
    assert parts[1].holes == ((8, 12),) and parts[1].files == ()


def test_several_topics_in_one_job(site: Site, kafka: KafkaBroker) -> None:
    one, two = kafka.fresh_topic(2), kafka.fresh_topic(1)
    for topic, partition, text in ((one, 0, b"a"), (one, 1, b"b"), (two, 0, b"c")):
        kafka.produce(topic, [b'{"type": "%s", "n": %d}' % (text, number) for number in range(5)], partition)
    works = [work(EVENTS, one, 1, 3, 1), work(EVENTS, two, 0, 4), work(EVENTS, one, 0, 1)]
    found = site.write(*works)
    assert [(part.topic, part.source, part.first, part.last) for part in found] == [
        (each.topic, each.source, each.first, each.last) for each in works
    ]
    assert [file.key.split("/")[2:4] for part in found for file in part.files] == [
        [one, "type=b"], [two, "type=c"], [one, "type=a"],
    ]  # fmt: skip
    assert [site.table(part)["_offset"].to_pylist() for part in found] == [[1, 2, 3], [0, 1, 2, 3, 4], [0, 1]]


def test_two_ranges_of_one_kafka_partition_are_two_jobs(site: Site) -> None:
    with pytest.raises(ValueError, match="one Kafka partition"):
        site.write(work(BACKUP, "t", 0, 1), work(BACKUP, "t", 2, 3))


def test_what_retention_took_is_an_error_and_never_a_gap(site: Site, kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic(2)
    kafka.produce(topic, values(range(10)), 0)
    kafka.produce(topic, values(range(10)), 1)
    kafka.delete_records(topic, 0, 5)
    for first, last in ((0, 9), (0, 3), (4, 5)):
        with pytest.raises(BrokerError, match="Kafka does not have all messages of") as told:
            site.write(work(BACKUP, topic, first, last), work(BACKUP, topic, 0, 9, 1))
        assert f"[{first}, {last}]" in str(told.value)
        assert "\n" not in str(told.value)
    assert not [entry for entry in site.bucket.list() if f"_0_{0:020d}" in entry.key]
    (found,) = site.write(work(BACKUP, topic, 5, 9))
    assert found.counts.read == 5


def test_a_topic_that_is_gone_is_an_error(site: Site) -> None:
    with pytest.raises(BrokerError, match="Kafka did not give backup/nowhere Kafka partition 0"):
        site.write(work(BACKUP, "nowhere", 0, 9))


def test_a_bucket_that_is_away_is_its_own_error(spark: SparkSession, kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, values(range(10)), 0)
    (tmp_path / "file").write_text("not a folder")
    writer = SparkWriter(spark, Target(Storage(id="main", path=tmp_path / "file" / "lake")))
    with pytest.raises(BucketError) as told:
        writer.write(Reading(kafka.bootstrap, {}), [work(BACKUP, topic, 0, 9)])
    assert "Traceback" not in str(told.value)


def test_dead_letters_above_the_limit_refuse_one_range_of_two(site: Site, kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic(2)
    kafka.produce(topic, [b'{"type": "a"}'] * 5, 0)
    kafka.produce(topic, [b"nonsense"] * 20, 1)
    good, bad = site.writer.write(site.reading, [work(EVENTS, topic, 0, 4), work(EVENTS, topic, 0, 19, 1)])
    assert isinstance(good, Written) and good.counts.written == 5
    assert isinstance(bad, Refused) and not bad.again
    assert "20 of 20 messages" in bad.reason


def test_more_than_fits_in_memory(spark: SparkSession, kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, [b'{"type": "t%d", "text": "%s"}' % (n % 5, b"x" * 500) for n in range(20_000)], 0)
    site = Site(spark, kafka, Storage(id="main", path=tmp_path / "lake"), memory=1_000_000)
    (found,) = site.write(work(EVENTS, topic, 0, 19_999))
    assert found.counts.written == 20_000
    assert sorted(site.table(found)["_offset"].to_pylist()) == list(range(20_000))


def test_a_job_can_be_called_off(site: Site, spark: SparkSession, kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, values(range(10)), 0)
    failed: list[Exception] = []

    def write() -> None:
        try:
            site.write(work(BACKUP, topic, 0, 500))  # the end never comes
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    while not spark.sparkContext.statusTracker().getActiveStageIds():
        thread.join(0.1)
        assert thread.is_alive()
    site.writer.cancel()
    thread.join(30)
    assert not thread.is_alive()
    assert isinstance(failed[0], CatchmentError) and "called off" in str(failed[0])
    with pytest.raises(CatchmentError, match="called off"):
        site.write(work(BACKUP, topic, 0, 5))


def test_ranges_on_s3(spark: SparkSession, kafka: KafkaBroker, s3: S3Server) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, [b'{"type": "t%d", "n": %d}' % (n % 7, n) for n in range(100)], 0)
    storage = Storage.model_validate(
        {
            "id": "main",
            "bucket": s3.fresh_bucket(),
            "prefix": "prod",
            "endpoint_url": s3.endpoint,
            "region_name": s3.region,
            "aws_access_key_id": s3.access_key,
            "aws_secret_access_key": s3.secret_key,
        }
    )
    site = Site(spark, kafka, storage)
    (one,) = site.write(work(EVENTS, topic, 0, 99))
    assert len(one.files) == 7
    assert sorted(site.table(one)["_offset"].to_pylist()) == list(range(100))
    (two,) = site.write(work(EVENTS, topic, 0, 99))
    assert two.files == one.files


PROGRAM = """
    import json, os, sys
    from catchment.config.storage import Storage
    from catchment.config.topics import Export
    from catchment.spark.session import session
    from catchment.topics.definition import fingerprint
    from catchment.topics.names import Source
    from catchment.topics.work import Reading, Target, Work
    from catchment.topics.write.job import SparkWriter

    brokers, topic, path, python = sys.argv[1:]
    export = Export.model_validate({"group": "events", "decode": "json", "split": {"type": {"field": "type"}}})
    spark = session("local-cluster[2,1,1200]", {"spark.pyspark.python": python, "spark.speculation": "true"})
    writer = SparkWriter(spark, Target(Storage(id="main", path=path)))
    works = [Work(export, topic, Source(number), 0, 49, fingerprint(export)) for number in range(4)]
    found = writer.write(Reading(brokers, {}), works)
    spark.stop()
    print(json.dumps([[part.counts.written, [file.key for file in part.files]] for part in found]))
"""


def test_ranges_on_a_cluster(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic(4)
    for partition in range(4):
        kafka.produce(topic, [b'{"type": "t%d", "n": %d}' % (n % 3, n) for n in range(50)], partition)
    done = run(PROGRAM, kafka.bootstrap, topic, str(tmp_path / "lake"), sys.executable)
    assert done.returncode == 0, done.stderr
    answer: list[Any] = json.loads(done.stdout)
    assert [written for written, _ in answer] == [50] * 4
    keys = [key for _, some in answer for key in some]
    assert len(keys) == len(set(keys)) == 12
    bucket = open_bucket(Storage(id="main", path=tmp_path / "lake"))
    assert {key for entry in bucket.list() if (key := entry.key).endswith(".parquet")} == set(keys)

"""What an export asks of the bucket, counted by the S3 server itself; and the time of a range when there are many."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import SparkSession

from catchment.clock import SYSTEM
from catchment.config.load import load_text
from catchment.lake import Lake
from catchment.spark.session import session
from catchment.testing.kafka import KafkaBroker, kafka_broker
from catchment.testing.s3 import s3_server
from catchment.topics.export import Exporter
from catchment.topics.kafka import Cluster
from catchment.topics.manifest import Counts, Manifest
from catchment.topics.names import Place, Source
from catchment.topics.offsets import Hint
from catchment.topics.work import Reading, Target
from catchment.topics.write.job import SparkWriter

PARTITIONS = 4


def main() -> None:
    spark = session("local[2]", app="bench-topics-requests")
    try:
        with kafka_broker() as kafka:
            requests(spark, kafka)
            flat(spark, kafka)
    finally:
        spark.stop()


def requests(spark: SparkSession, kafka: KafkaBroker) -> None:
    """Driver and tasks together: every line of the server's own log."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "access.log"
        with s3_server(arguments=("--access-log", str(log))) as s3:
            storage = {
                "bucket": s3.fresh_bucket(),
                "endpoint_url": s3.endpoint,
                "region_name": s3.region,
                "aws_access_key_id": s3.access_key,
                "aws_secret_access_key": s3.secret_key,
            }
            topic = kafka.fresh_topic(partitions=PARTITIONS)

            def asked() -> int:
                time.sleep(0.3)  # the server writes its log a little later
                return len(log.read_text().splitlines()) if log.exists() else 0

            def produced() -> None:
                for partition in range(PARTITIONS):
                    kafka.produce(topic, [_event(n) for n in range(1000)], partition)

            with _exporter(spark, kafka, topic, storage) as one:
                for _ in range(3):  # the schema is recorded, workers know it
                    produced()
                    _run(one)
            with _exporter(spark, kafka, topic, storage) as one:
                before = asked()
                one.step()
                start = asked() - before
                print(
                    f"requests at start, {PARTITIONS} Kafka partitions, {3 * PARTITIONS} ranges there: {start}"
                    f" = 1 for what the export is, 1 for what is closed, {(start - 2) / PARTITIONS:g} for each of them"
                )
                before = asked()
                for _ in range(10):
                    one.step()
                print(f"requests per idle tick between heartbeats: {(asked() - before) / 10:g}")
                produced()
                before = asked()
                done = _run(one)
                files = sum(len(manifest.files) for manifest in done)
                more = (asked() - before - files) / len(done)
                print(f"requests per committed range beyond its files ({files // len(done)} each): {more:g}")


def flat(spark: SparkSession, kafka: KafkaBroker) -> None:
    """The same ranges, after 10, 1 000 and 10 000 others. Manifests are seeded; the ranges themselves are real."""
    topic = kafka.fresh_topic()
    kafka.produce(topic, [_event(n) for n in range(40_000)], 0)
    times: dict[int, float] = {}
    for there in (10, 10, 1_000, 10_000):  # the first one warms up
        with tempfile.TemporaryDirectory() as folder:
            storage = {"path": f"{folder}/lake"}
            with _exporter(spark, kafka, topic, storage, max_messages=1000) as one:
                _seed(one, topic, there)
                one.step(flush=True)
                started = time.perf_counter()
                done = [manifest for _ in range(10) for manifest in one.step(flush=True).committed]
                times[there] = (time.perf_counter() - started) / len(done)
    base = times[10]
    for there, taken in times.items():
        print(f"time of a range with {there} committed before it: {taken / base:.2f}x  ({taken:.3f} s)")


def _seed(one: Exporter, topic: str, there: int) -> None:
    bucket, place = one._bucket, Place(one.export.group, topic)
    [info] = one._kafka.topics(lambda name: name == topic).values()
    from catchment.topics import identity

    known = identity.register(bucket, place, info.id, one.export, lambda: {0: 0})
    for first in range(there):
        manifest = Manifest(
            topic,
            known.topic_id,
            Source(0),
            first,
            first,
            1,
            one._fingerprint,
            Counts(0, 1, 0, 0, 0),
            holes=((first, first),),
        )
        bucket.put(place.commit(Source(0), first), manifest.body("seeded"))
    bucket.put(place.hint(Source(0)), json.dumps(Hint(there, mean=100.0).plain()).encode())


@contextmanager
def _exporter(
    spark: SparkSession, kafka: KafkaBroker, topic: str, storage: dict[str, Any], **policy: Any
) -> Iterator[Exporter]:
    export = {
        "group": "events",
        "decode": "json",
        "split": {"type": {"field": "type"}, "day": {"field": "ts", "unit": "ms", "by": "day"}},
        "finalize": {"lateness": "2h"},
        "policy": {"max_age": "1h", **policy},
    }
    text = yaml.safe_dump(
        {
            "object_storage": [{"id": "main", **storage}],
            "topics": [{"match": topic, "brokers": kafka.bootstrap, "exports": [export]}],
        },
        sort_keys=False,
    )
    with Lake(load_text(text), spark=spark) as lake:
        config = lake.config.topics[0]
        cluster = Cluster(kafka.bootstrap, {})
        try:
            yield Exporter(
                config,
                config.exports[0],
                bucket=lake.bucket,
                kafka=cluster,
                writer=SparkWriter(spark, Target(lake.config.state_storage)),
                reading=Reading(kafka.bootstrap, {}),
                owner="bench",
                gone=lambda owner: True,
                clock=SYSTEM,
            )
        finally:
            cluster.close()


def _run(one: Exporter) -> list[Manifest]:
    done: list[Manifest] = []
    while True:
        step = one.step(flush=True)
        done += step.committed
        if not step.again:
            return done


def _event(number: int) -> bytes:
    when = int((time.time() + number % 3 * 86_400) * 1000)  # of days that are not closed yet
    return json.dumps({"type": f"t{number % 3}", "ts": when, "n": number}).encode()

"""Messages per second from one broker: Catchment against Spark's own writes, on the same messages, turn about.

read alone          Spark's Kafka source into a sum of lengths
read and pass on    the same rows handed to Python as Arrow batches, and only counted
Spark's own         from_json and partitionBy, or the raw columns, to Parquet
Catchment           one job of SparkWriter: the ranges of all Kafka partitions, split by type and day

Then every decoder, every format and going back (`topics_forms.py`).
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench import topics_forms
from catchment.config.storage import Storage
from catchment.config.topics import Export
from catchment.spark.session import session
from catchment.testing.kafka import KafkaBroker, kafka_broker
from catchment.topics.definition import fingerprint
from catchment.topics.names import Source
from catchment.topics.work import Reading, Target, Work, Written
from catchment.topics.write.job import FETCH, SparkWriter

MESSAGES = 2_000_000
ROUNDS = 3
SCHEMA = "type STRING, ts BIGINT, id BIGINT, user STRING, amount DOUBLE, ok BOOLEAN, country STRING, note STRING"
EVENTS = {
    "group": "events",
    "decode": "json",
    "split": {"type": {"field": "type"}, "day": {"field": "ts", "unit": "ms", "by": "day"}},
}


def main() -> None:
    spark = session("local[2]", app="bench-topics", conf={"spark.ui.enabled": "false"})
    try:
        with kafka_broker(java_options=("-Xms512m", "-Xmx1g")) as kafka:
            bodies = [_message(number) for number in range(100_000)]
            print(f"{MESSAGES:,} messages of {sum(map(len, bodies)) / len(bodies):.0f} bytes, 10 types, 3 days, zstd")
            for partitions in (4, 2, 1):
                topic = kafka.fresh_topic(partitions, {"compression.type": "uncompressed"})
                for partition in range(partitions):
                    kafka.produce(topic, topics_forms.repeated(bodies, MESSAGES // partitions), partition)
                with tempfile.TemporaryDirectory() as folder:
                    _Side(spark, kafka, topic, partitions, Path(folder)).compare()
            topics_forms.compare(spark, kafka)
    finally:
        spark.stop()


class _Side:
    """Both sides on one topic."""

    def __init__(self, spark: SparkSession, kafka: KafkaBroker, topic: str, partitions: int, folder: Path) -> None:
        self.spark, self.kafka, self.topic, self.partitions, self.folder = spark, kafka, topic, partitions, folder
        self.seconds: Counter[str] = Counter()

    def compare(self) -> None:
        print(f"-- {self.partitions} Kafka partitions")
        events: dict[str, Callable[[], object]] = {
            "read alone": self.read,
            "read and pass on": self.passed,
            "Spark's own, by type and day": self.own_events,
            "Catchment, by type and day": lambda: self.ours(EVENTS),
        }
        taken = self._turns(events if self.partitions == 4 else dict(list(events.items())[2:]))
        ratio = taken["Spark's own, by type and day"] / taken["Catchment, by type and day"]
        print(f"Catchment against Spark's own write, by type and day: {ratio:.2f}x")
        if self.partitions == 4:
            whole = sum(self.seconds.values())
            parts = ", ".join(f"{name} {spent / whole:.0%}" for name, spent in self.seconds.most_common())
            print(f"where the time of our tasks goes (read: waiting for Spark's side): {parts}")
        raw = self._turns(
            {"Spark's own, raw": self.own_raw, "Catchment, backup": lambda: self.ours({"group": "backup"})}
        )
        own, ours = raw.values()
        print(f"Catchment against Spark's own write, backup: {own / ours:.2f}x")

    def _turns(self, what: dict[str, Callable[[], object]]) -> dict[str, float]:
        for do in what.values():
            do()  # warm
        self.seconds.clear()
        times: dict[str, list[float]] = {name: [] for name in what}
        for _ in range(ROUNDS):
            for name, do in what.items():
                started = time.perf_counter()
                do()
                times[name].append(time.perf_counter() - started)
        found = {name: median(one) for name, one in times.items()}
        for name, one in found.items():
            print(f"{name}: {MESSAGES / one:,.0f} messages/s  ({one:.2f} s)", flush=True)
        return found

    def read(self) -> None:
        self._messages().select(F.sum(F.length("value"))).collect()

    def passed(self) -> None:
        def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # inside: sent as it is
            yield pa.RecordBatch.from_pydict({"n": [sum(batch.num_rows for batch in batches)]})

        columns = ["offset", "unix_millis(timestamp) AS timestamp", "key", "value"]
        self._messages().selectExpr(*columns).mapInArrow(counted, "n BIGINT").collect()

    def own_events(self) -> None:
        rows = self._messages().select(
            "offset", "timestamp", F.from_json(F.col("value").cast("string"), SCHEMA).alias("j")
        )
        rows = rows.select("j.*", "offset", "timestamp").withColumn("day", F.to_date(F.timestamp_millis("ts")))
        self._written(rows.write.partitionBy("type", "day"))

    def own_raw(self) -> None:
        rows = self._messages(headers=True).select("key", "value", "headers", "timestamp", "timestampType", "offset")
        self._written(rows.write)

    def ours(self, values: dict[str, Any]) -> None:
        export = Export.model_validate(values)
        lake = self.folder / "lake"
        shutil.rmtree(lake, ignore_errors=True)
        lake.mkdir()
        writer = SparkWriter(self.spark, Target(Storage.model_validate({"id": "main", "path": str(lake)})))
        last = MESSAGES // self.partitions - 1
        works = [
            Work(export, self.topic, Source(partition), 0, last, fingerprint(export), "bench")
            for partition in range(self.partitions)
        ]
        for one in writer.write(Reading(self.kafka.bootstrap, {}), works):
            assert isinstance(one, Written)
            assert one.counts.written == last + 1
            self.seconds.update(dict(one.seconds))

    def _messages(self, *, headers: bool = False) -> DataFrame:
        ends = {str(partition): MESSAGES // self.partitions for partition in range(self.partitions)}
        options = {f"kafka.{name}": value for name, value in FETCH.items()} | {
            "kafka.bootstrap.servers": self.kafka.bootstrap,
            "assign": json.dumps({self.topic: list(range(self.partitions))}),
            "startingOffsets": json.dumps({self.topic: dict.fromkeys(ends, 0)}),
            "endingOffsets": json.dumps({self.topic: ends}),
            "includeHeaders": str(headers).lower(),
        }
        return self.spark.read.format("kafka").options(**options).load()

    def _written(self, writer: Any) -> None:
        writer.mode("overwrite").option("compression", "zstd").parquet(str(self.folder / "own"))


def _message(number: int) -> bytes:
    return json.dumps(topics_forms.event(number)).encode()


if __name__ == "__main__":
    main()

"""Ranges written as Spark jobs: Spark reads exactly their offsets, one task per range, and Python does the rest.

A job gives one row per task, with what became of its range. A task that read no message at all gives none: nobody there
knows which range it was. So what gave no row had no message, because a task that failed fails its job.
"""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from catchment.bucket.open import open_bucket
from catchment.errors import CatchmentError
from catchment.spark.failures import causes
from catchment.topics.decode.decoder import needs_headers
from catchment.topics.kafka import Part
from catchment.topics.work import Reading, Refused, Target, Work, Written
from catchment.topics.write.explain import explained
from catchment.topics.write.range import all_gaps, write_range
from catchment.topics.write.scratch import scratch_folder
from catchment.topics.write.tally import Misread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 65_536
BATCH_BYTES = 32 << 20
UNMEASURED = (1 << 31) - 1  # Spark's word for batches whose bytes are not looked at
SMALL = 4096  # bytes of a key, a value or a header; a batch of such messages is small enough unmeasured
FEW_HEADERS = 8
# A fetch of Kafka's default size makes the reader wait for the network most of the time.
FETCH = {
    "max.partition.fetch.bytes": str(16 << 20),
    "fetch.max.bytes": str(64 << 20),
    "receive.buffer.bytes": str(1 << 20),
    "max.poll.records": "10000",
}

PATIENCE = 60  # seconds without an answer from Kafka after which a task gives up


class SparkWriter:
    """Writes ranges as Spark jobs, one task per range: `topics.export.Writes` says what it promises.

    Safe for threads: each call is a job of its own.
    """

    def __init__(self, spark: SparkSession, target: Target, *, isolation: str = "read_committed") -> None:
        self._spark = spark.newSession()  # settings of our own; the same Spark
        self._spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH_ROWS)
        self._spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", UNMEASURED)
        self._measuring = self._spark.newSession()
        self._measuring.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH_ROWS)
        self._measuring.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", BATCH_BYTES)
        self._large: set[str] = set()  # topics that had large messages
        self._target, self._isolation = target, isolation
        self._lock = threading.Lock()
        self._tags: set[str] = set()
        self._made = 0
        self._cancelled = False

    @property
    def parallelism(self) -> int:
        """How many ranges are written at once."""
        return self._spark.sparkContext.defaultParallelism

    def write(self, reading: Reading, works: Sequence[Work]) -> list[Written | Refused]:
        if not works:
            return []
        by_part = {(work.topic, work.source.partition): work for work in works}
        if len(by_part) != len(works):
            raise ValueError("two ranges of one Kafka partition cannot be in one job")
        measured = any(work.topic in self._large for work in works)
        answers = dict(self._run(reading, by_part, measured=measured))
        again = {part: by_part[part] for part, answer in answers.items() if isinstance(answer, LargeMessages)}
        if again:
            self._large.update(topic for topic, _ in again)
            answers |= dict(self._run(reading, again, measured=True))
        for answer in answers.values():
            if isinstance(answer, CatchmentError):
                raise answer
        return [answers.get(part) or all_gaps(work) for part, work in by_part.items()]

    def cancel(self) -> None:
        """End the jobs that are running, and start no more: their calls of `write` raise. From any thread."""
        with self._lock:
            self._cancelled = True
            tags = tuple(self._tags)
        for tag in tags:
            self._spark.sparkContext.cancelJobsWithTag(tag)

    def _run(self, reading: Reading, by_part: Mapping[Part, Work], *, measured: bool) -> list[tuple[Part, Any]]:
        works = list(by_part.values())
        context = self._spark.sparkContext
        with self._lock:
            if self._cancelled:
                raise _cancelled()
            self._made += 1
            tag = f"catchment-write-{id(self):x}-{self._made}"
            self._tags.add(tag)
        context.addJobTag(tag)
        context.setInterruptOnCancel(True)
        try:
            found = self._records(reading, works, measured=measured).mapInArrow(
                _task(by_part, self._target), "answer binary"
            )
            return [pickle.loads(row[0]) for row in found.collect()]
        except Exception as error:
            if self._cancelled:
                raise _cancelled() from None
            raise explained(causes(error), works, reading.settings) from None
        finally:
            context.removeJobTag(tag)
            with self._lock:
                self._tags.discard(tag)

    def _records(self, reading: Reading, works: Sequence[Work], *, measured: bool) -> DataFrame:
        """The messages of these ranges, with the columns that their tasks look at.

        Spark can keep a batch below so many bytes, but then measures it after each message, and that takes longer than
        all the rest of passing it on. So at first nothing is measured, and large messages are passed on without their
        content, marked by a negative Kafka partition; the task then says that the range has to be measured.
        """
        parts: dict[str, list[int]] = {}
        first: dict[str, dict[str, int]] = {}
        end: dict[str, dict[str, int]] = {}
        for work in works:
            number = work.source.partition
            parts.setdefault(work.topic, []).append(number)
            first.setdefault(work.topic, {})[str(number)] = work.first
            end.setdefault(work.topic, {})[str(number)] = work.last + 1
        export = works[0].export
        headers = needs_headers(export.decode) or any(split.header is not None for split in export.split.values())
        options = {f"kafka.{name}": value for name, value in {**FETCH, **reading.settings}.items()} | {
            "kafka.bootstrap.servers": reading.brokers,
            "kafka.isolation.level": self._isolation,
            "assign": json.dumps(parts),
            "startingOffsets": json.dumps(first),
            "endingOffsets": json.dumps(end),
            "failOnDataLoss": "true",
            "kafkaConsumer.pollTimeoutMs": str(PATIENCE * 1000),
            "includeHeaders": str(headers).lower(),
        }
        columns = ["partition", "offset", "unix_millis(timestamp) AS timestamp", "key", "value"]
        columns += ["topic"] if len(parts) > 1 else []
        # Without headers it is null, and Arrow's lists in Java take time by the square of a batch's nulls to measure.
        columns += ["coalesce(headers, array()) AS headers"] if headers else []
        columns += ["timestampType AS timestamp_type"] if export.decode is None else []
        spark = self._measuring if measured else self._spark
        found = spark.read.format("kafka").options(**options).load().selectExpr(*columns)
        return found if measured else found.selectExpr(*_marked(found.columns))


class LargeMessages(CatchmentError):
    """The range has messages that batches have to be measured for."""


def _marked(columns: Sequence[str]) -> list[str]:
    """These columns, with a negative Kafka partition and no content for messages that are not small."""
    small = ["coalesce(octet_length(key), 0)", "coalesce(octet_length(value), 0)"]
    if "headers" in columns:
        each = (f"get(headers, {at})" for at in range(FEW_HEADERS))
        sizes = ", ".join(f"octet_length({one}.key), octet_length({one}.value)" for one in each)
        many = f"CASE WHEN size(headers) > {FEW_HEADERS} THEN {SMALL + 1} ELSE greatest({sizes}, 0) END"
        small.append(f"CASE WHEN size(headers) = 0 THEN 0 ELSE {many} END")
    fits = f"greatest({', '.join(small)}) <= {SMALL}"
    changed = {
        "partition": f"CASE WHEN {fits} THEN partition ELSE -1 - partition END AS partition",
        "key": f"CASE WHEN {fits} THEN key END AS key",
        "value": f"CASE WHEN {fits} THEN value END AS value",
        "headers": f"CASE WHEN {fits} THEN headers ELSE array() END AS headers",
    }
    return [changed.get(name, name) for name in columns]


def _task(by_part: Mapping[Part, Work], target: Target) -> Any:
    """What runs on executors. A function, as Spark wants it; the names that it uses are found there by import."""
    works = dict(by_part)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_task(works, target, batches)

    return task


def run_task(works: Mapping[Part, Work], target: Target, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task: one range from its batches to one row, which says what became of it. No batch, no row."""
    source = (batch for batch in batches if batch.num_rows)
    first = next(source, None)
    if first is None:
        return
    topics = {topic for topic, _ in works}
    number = first["partition"][0].as_py()
    part = (first["topic"][0].as_py() if len(topics) > 1 else topics.pop(), number if number >= 0 else -1 - number)
    answer: Written | Refused | CatchmentError
    try:
        bucket = open_bucket(target.storage)
        try:
            with scratch_folder() as scratch:
                mine = (_checked(batch, part) for batch in chain([first], source))
                answer = write_range(works[part], mine, bucket, scratch, target.memory)
        finally:
            bucket.close()
    except CatchmentError as error:
        # As a value it arrives as it is. Raised, it would be a text inside a Java exception, and Spark would try again
        # what was tried often enough here.
        answer = error
    for _ in source:  # Spark counts a task that left its input unread as failed
        pass
    yield pa.RecordBatch.from_pydict({"answer": pa.array([pickle.dumps((part, answer))], pa.binary())})


def _checked(batch: pa.RecordBatch, part: Part) -> pa.RecordBatch:
    """A batch without the columns that say where it is from. Misread if it is not all from there."""
    drop = [name for name in ("topic", "partition") if name in batch.schema.names]
    if pc.min(batch["partition"]).as_py() < 0:
        raise LargeMessages(f"{part[0]} Kafka partition {part[1]} has large messages")
    for name, wanted in zip(("topic", "partition"), part, strict=True):
        if name in drop and batch[name].unique().to_pylist() != [wanted]:
            raise Misread(f"a task got messages of other Kafka partitions than {part[0]} {part[1]}")
    return batch.drop_columns(drop)


def _cancelled() -> CatchmentError:
    return CatchmentError(
        "writing was called off", hint="nothing of it was committed; it is done again at the next start"
    )

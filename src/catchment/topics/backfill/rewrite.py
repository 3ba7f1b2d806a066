"""Writing ranges again as Spark jobs: from a backup, a task for each range; from Kafka, as exports do it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from catchment.bucket.contract import Bucket
from catchment.bucket.open import open_bucket
from catchment.errors import BrokerError, CatchmentError
from catchment.spark.failures import causes
from catchment.topics.backfill.backup import Backup, Replayed
from catchment.topics.backfill.plan import Read
from catchment.topics.committed import Span
from catchment.topics.export import Writes
from catchment.topics.identity import Identity
from catchment.topics.kafka import Kafka
from catchment.topics.names import Source
from catchment.topics.period import Period
from catchment.topics.work import Reading, Refused, Target, Work, Written
from catchment.topics.write.explain import explained
from catchment.topics.write.range import write_range
from catchment.topics.write.scratch import scratch_folder

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

RANGE = 1_000_000  # messages of a range that is added from Kafka
Answer = Written | Refused | CatchmentError  # an error: this range was not written, and may be if tried again


class Rewrites(Protocol):
    """Where messages come from, and what writes ranges of them again."""

    def reads(self, source: Source, first: int, last: int) -> tuple[Read, ...] | str: ...
    def before(self, source: Source, end: int, period: Period) -> Sequence[Span]: ...
    def write(self, works: Sequence[Work]) -> Iterator[tuple[Work, Answer]]:
        """Write these ranges, and say what became of each as they are done, in their order."""


Runs = Callable[[Sequence[Replayed]], Iterable[Answer]]  # writes these ranges, and answers in their order


class FromBackup:
    """Ranges read from a backup's files. `run` is what writes them: Spark tasks, or this process."""

    def __init__(self, backup: Backup, run: Runs) -> None:
        self._backup, self._run = backup, run
        self.reads, self.before = backup.reads, backup.before

    def write(self, works: Sequence[Work]) -> Iterator[tuple[Work, Answer]]:
        yield from zip(works, self._run([self._replayed(work) for work in works]), strict=True)

    def _replayed(self, work: Work) -> Replayed:
        pieces = self._backup.pieces(work.source, work.first, work.last)
        assert not isinstance(pieces, str)  # the plan has asked before
        return Replayed(work, self._backup.place, pieces)


def on_spark(spark: Callable[[], SparkSession], target: Target) -> Runs:
    """A Spark task for each range. Only values are sent: each task opens the bucket by itself."""

    def run(ranges: Sequence[Replayed]) -> Iterator[Answer]:
        context = spark().sparkContext
        wave = max(1, context.defaultParallelism) * 4  # what a wave has written is committed before the next begins
        for at in range(0, len(ranges), wave):
            yield from _wave(context, target, list(ranges[at : at + wave]))

    return run


def _wave(context: SparkContext, target: Target, some: list[Replayed]) -> Iterable[Answer]:
    """A job for these. If it fails, one for each: what made it fail must not take the others with it."""
    try:
        found: list[Answer] = context.parallelize(some, len(some)).map(Task(target)).collect()
        return found
    except Exception as error:
        if len(some) == 1:
            return [explained(causes(error), [one.work for one in some], {})]
    return (answer for one in some for answer in _wave(context, target, [one]))


def in_process(bucket: Bucket, memory: int) -> Runs:
    """One after the other, here."""

    def run(ranges: Sequence[Replayed]) -> Iterator[Answer]:
        return (rewritten(one, bucket, memory) for one in ranges)

    return run


@dataclass(frozen=True)
class Task:
    """What a Spark task runs."""

    target: Target

    def __call__(self, replayed: Replayed) -> Answer:
        try:
            bucket = open_bucket(self.target.storage, create=False)
        except CatchmentError as error:
            return error
        try:
            return rewritten(replayed, bucket, self.target.memory)
        finally:
            bucket.close()


def rewritten(replayed: Replayed, bucket: Bucket, memory: int) -> Answer:
    """One range, from the backup to files of the new generation."""
    try:
        with scratch_folder() as scratch:
            return write_range(replayed.work, replayed.batches(bucket, scratch), bucket, scratch, memory)
    except CatchmentError as error:
        return error  # as a value it arrives as it is, and Spark does not try again what was tried here


class FromKafka:
    """Ranges read from Kafka, as long as it has them. `writer` is asked for when there is something to write."""

    def __init__(
        self, kafka: Kafka, topic: str, identity: Identity, writer: Callable[[], Writes], reading: Reading
    ) -> None:
        self._kafka, self._topic, self._identity = kafka, topic, identity
        self._made, self._reading = writer, reading
        listed = kafka.topics(lambda name: name == topic).get(topic)
        self._same = listed is not None and listed.id == identity.topic_id
        parts = [(topic, partition) for partition in listed.partitions] if listed else []
        self._ends = {part[1]: ends for part, ends in kafka.ends(parts).items()} if parts else {}

    def reads(self, source: Source, first: int, last: int) -> tuple[Read, ...] | str:
        ends = self._ends.get(source.partition)
        if not self._same or source.life != self._identity.life or ends is None:
            return f"Kafka no longer has the topic {self._topic} that it was read from"
        if first < ends.earliest:
            return f"Kafka no longer has the offsets from {first} to {min(last, ends.earliest - 1)}"
        if last >= ends.end:
            return f"Kafka ends at {ends.end}, below the committed offset {last}"
        return (Read(f"{self._topic} Kafka partition {source} [{first}, {last}]", last - first + 1),)

    def before(self, source: Source, end: int, period: Period) -> Sequence[Span]:
        ends = self._ends.get(source.partition)
        if ends is None or not self._same:
            return ()
        part = (self._topic, source.partition)
        low = max(ends.earliest, period.first or 0)
        if period.start is not None:
            low = max(low, self._kafka.offsets_at([part], period.start).get(part, end))
        high = end if period.last is None else min(end, period.last + 1)
        if period.end is not None:
            high = min(high, self._kafka.offsets_at([part], period.end).get(part, end))
        cuts = [*range(high, low, -RANGE), low]
        return [Span(source, first, last - 1) for last, first in pairwise(cuts)][::-1]

    def write(self, works: Sequence[Work]) -> Iterator[tuple[Work, Answer]]:
        """Jobs of at most one range of each Kafka partition, a few at a time: Spark's source takes no more."""
        jobs: list[list[Work]] = []
        seen: dict[Source, int] = {}
        for work in works:
            at = seen[work.source] = seen.get(work.source, -1) + 1
            if at == len(jobs):
                jobs.append([])
            jobs[at].append(work)
        if not jobs:
            return
        writer = self._made()
        at_once = max(1, -(-writer.parallelism // len(seen)))
        with ThreadPoolExecutor(at_once, thread_name_prefix="backfill") as pool:
            for job, answers in zip(jobs, pool.map(lambda job: self._job(writer, job), jobs), strict=True):
                yield from zip(job, answers, strict=True)

    def _job(self, writer: Writes, job: Sequence[Work]) -> Sequence[Answer]:
        answers: list[Answer]
        try:
            answers = list(writer.write(self._reading, job))
            now = self._kafka.topics(lambda name: name == self._topic).get(self._topic)
        except CatchmentError as error:
            if len(job) == 1 or isinstance(error, BrokerError):  # a broker that is away is so for all of them
                return [error] * len(job)
            return [answer for work in job for answer in self._job(writer, [work])]
        if now is None or now.id != self._identity.topic_id:  # what was read may be of another topic
            return [CatchmentError(f"topic {self._topic} is gone, or was made again meanwhile")] * len(job)
        return answers

"""Every interleaving of backfills with each other, with those who close days, and with repair.

The promise: at every moment each range has one manifest, whose files are all there; a later definition never gives way
to an earlier one; and once all is settled, a closed day lists exactly the files that manifests list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from catchment.bucket import swap
from catchment.bucket.contract import ABSENT, Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Backoff, Retrying
from catchment.config.decode import Split
from catchment.config.topics import Export, Finalize
from catchment.errors import Conflict, NotFound
from catchment.testing.clock import FakeClock
from catchment.testing.interleave import Explored, Interleaver, Task
from catchment.topics import committed, finalize, offsets
from catchment.topics.backfill.plan import Read
from catchment.topics.backfill.rewrite import Answer
from catchment.topics.backfill.run import backfill
from catchment.topics.committed import Span
from catchment.topics.identity import Identity
from catchment.topics.manifest import Counts, File, Manifest
from catchment.topics.names import FileName, Place, Source
from catchment.topics.offsets import Hint
from catchment.topics.period import Period
from catchment.topics.publish import Publication
from catchment.topics.repair import repair
from catchment.topics.work import Work, Written

PLACE = Place("events", "orders")
ONE = Source(0)
DAY = "day=2026-11-15"
END = datetime(2026, 11, 16, tzinfo=UTC)
WATERMARK = datetime(2026, 11, 16, 3, tzinfo=UTC)
NOW = datetime(2026, 11, 17, tzinfo=UTC)
FOLDERS = {1: ("type=wrong",), 2: ("type=a", "type=b"), 3: ("type=a",)}  # where each generation puts its rows


def export(generation: int) -> Export:
    split = {"type": Split(key=True), "day": Split(timestamp=True, by="day")}
    return Export(group="events", generation=generation, split=split, finalize=Finalize())


def careful(bucket: Bucket) -> tuple[Bucket, Callable[[], str]]:
    numbers = count()
    retrying = Retrying(bucket, backoff=Backoff(attempts=2), clock=FakeClock(), chance=lambda: 0.0)
    return retrying, lambda: f"{bucket.name}-{next(numbers)}"


def written(bucket: Bucket, generation: int) -> Written:
    """All files of the range [0, 3], put as tasks put them."""
    folders = FOLDERS[generation]
    files = []
    for folder in folders:
        key = PLACE.file(f"{folder}/{DAY}", FileName(generation, ONE, 0, 3, f"{generation}" * 12, "parquet"))
        try:
            stat = bucket.put(key, b"rows", when=ABSENT)
        except Conflict:
            try:
                stat = bucket.head(key)
            except NotFound:
                stat = bucket.put(key, b"rows")
        files.append(File(key, stat.etag, stat.size, 4 // len(folders), 0, 3))
    return Written("orders", ONE, 0, 3, Counts(4, 0, 4, 0, 0), tuple(files), (), (), 4)


class Again:
    """Writes the range anew, with what its generation makes of it."""

    def __init__(self, bucket: Bucket, generation: int) -> None:
        self._bucket, self._generation = bucket, generation

    def reads(self, source: Source, first: int, last: int) -> tuple[Read, ...] | str:
        return ()

    def before(self, source: Source, end: int, period: Period) -> Sequence[Span]:
        return ()

    def write(self, works: Sequence[Work]) -> Iterator[tuple[Work, Answer]]:
        for work in works:
            yield work, written(self._bucket, self._generation)


def backfiller(generation: int) -> Task:
    def task(bucket: Bucket) -> None:
        inner, nonce = careful(bucket)
        backfill(
            inner,
            PLACE,
            export(generation),
            Identity("id", 0, {0: 0}),
            Period(),
            Again(inner, generation),
            replace=True,
            owner=bucket.name,
            now=lambda: NOW,
            nonce=nonce,
            workers=1,
        )

    return task


def closer(bucket: Bucket) -> None:
    inner, nonce = careful(bucket)
    finalize.close(inner, PLACE, export(1), WATERMARK, nonce=nonce, workers=1)


def repairer(bucket: Bucket) -> None:
    inner, nonce = careful(bucket)
    repair(inner, PLACE, now=NOW, nonce=nonce)


def setup(*, closed: bool) -> Callable[[Bucket], None]:
    """A range that the first generation wrote; its day is closed, or is not yet."""

    def prepare(bucket: Bucket) -> None:
        old = written(bucket, 1)
        manifest = Manifest("orders", "id", ONE, 0, 3, 1, "", old.counts, old.files)
        bucket.put(PLACE.commit(ONE, 0), manifest.body("n"))
        known = offsets.read_hint(bucket, PLACE, ONE, 0)
        offsets.write_hint(bucket, known, Hint(4), NOW, lambda: "n")
        if closed:
            finalize.close(bucket, PLACE, export(1), WATERMARK, nonce=lambda: "n", workers=1)

    return prepare


def manifest_of(bucket: Bucket) -> Manifest:
    [found] = committed.manifests(bucket, PLACE, workers=1)
    return found


def holds(bucket: MemoryBucket) -> None:
    found = manifest_of(bucket)
    assert (found.first, found.last, found.counts.written) == (0, 3, 4)
    there = {entry.key for entry in bucket.list(PLACE.prefix)}
    assert {file.key for file in found.files} <= there, "a file that readers are told of is not there"


def forward(before: MemoryBucket, after: MemoryBucket) -> None:
    assert manifest_of(before).generation <= manifest_of(after).generation, "an earlier definition came back"


def published(bucket: Bucket) -> set[str]:
    keys = [entry.key for entry in bucket.list(PLACE.prefix) if entry.key.endswith(("/_SUCCESS", "/_LATE"))]
    return {file.key for key in keys for file in Publication.parse(key, swap.read(bucket, key).value).files}


def settled(generation: int) -> Callable[[MemoryBucket], None]:
    """Whoever is left runs it once more, and the day is closed: in any order."""

    def check(bucket: MemoryBucket) -> None:
        for steps in ((backfiller(generation), closer), (closer, backfiller(generation))):
            fork = bucket.fork()
            for step in steps:
                step(fork)
            holds(fork)
            found = manifest_of(fork)
            assert found.generation == generation
            assert published(fork) == {file.key for file in found.files}, "a closed day lists something else"
            repairer(fork)
            holds(fork)
            files = {entry.key for entry in fork.list(PLACE.prefix) if entry.key.endswith(".parquet")}
            assert files == {file.key for file in found.files}, "something is left over"

    return check


def explore(tasks: dict[str, Task], generation: int, *, closed: bool, **bounds: Any) -> Explored:
    explored = Interleaver(
        tasks,
        setup=setup(closed=closed),
        invariant=holds,
        relation=forward,
        final=settled(generation),
        versions=False,
        limit=400_000,
        **bounds,
    ).explore()
    assert explored.complete
    return explored


SOAK = pytest.mark.soak
LONG = [pytest.param({name: 1}, marks=SOAK) for name in ("crashes", "lost")]


@pytest.mark.parametrize("bounds", [{}, *LONG])
def test_a_backfill_and_a_closer(bounds: dict[str, int]) -> None:
    tasks = {"backfill": backfiller(2), "close": closer}
    print(f"a backfill and a closer, {bounds}: {explore(tasks, 2, closed=False, **bounds)}")


@pytest.mark.soak
@pytest.mark.parametrize("bounds", [{}, {"lost": 1}])
def test_two_backfills_of_one_definition(bounds: dict[str, int]) -> None:
    tasks = {"one": backfiller(2), "two": backfiller(2)}
    print(f"two backfills, {bounds}: {explore(tasks, 2, closed=True, **bounds)}")


def test_two_definitions_at_once() -> None:
    tasks = {"second": backfiller(2), "third": backfiller(3)}
    print(f"two definitions: {explore(tasks, 3, closed=True)}")


@pytest.mark.parametrize("bounds", [{}, pytest.param({"crashes": 1}, marks=SOAK)])
def test_a_backfill_and_repair(bounds: dict[str, int]) -> None:
    tasks = {"backfill": backfiller(2), "repair": repairer}
    print(f"a backfill and repair, {bounds}: {explore(tasks, 2, closed=True, **bounds)}")


def test_all_of_them_by_chance() -> None:
    tasks = {"second": backfiller(2), "third": backfiller(3), "close": closer, "repair": repairer}
    interleaver = Interleaver(
        tasks, setup=setup(closed=False), invariant=holds, relation=forward, final=settled(3), crashes=1, lost=1
    )
    print(f"all of them: {interleaver.sample(60)}")


@pytest.mark.soak
def test_two_definitions_and_a_closer() -> None:
    tasks = {"second": backfiller(2), "third": backfiller(3), "close": closer}
    interleaver = Interleaver(
        tasks, setup=setup(closed=False), invariant=holds, relation=forward, final=settled(3), crashes=2, lost=1
    )
    print(f"two definitions and a closer: {interleaver.sample(3000)}")


def test_a_backfill_that_does_not_compare_is_caught() -> None:
    """The model can fail: a put without its precondition lets an earlier definition win."""

    def careless(bucket: Bucket) -> None:
        inner, nonce = careful(bucket)
        new = written(inner, 2)
        manifest = Manifest("orders", "id", ONE, 0, 3, 2, "", new.counts, new.files)
        inner.put(PLACE.commit(ONE, 0), manifest.body(nonce()))

    with pytest.raises(AssertionError, match="an earlier definition came back"):
        explore({"careless": careless, "third": backfiller(3)}, 3, closed=False)

"""Two who add what lies before an export's start, and cut it otherwise, in every order.

The promise: at every moment the ranges meet, none overlaps another, and the export's start is where one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pytest

from catchment.bucket import swap
from catchment.bucket.contract import ABSENT, Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.config.decode import Split
from catchment.config.topics import Export
from catchment.errors import Conflict, NotFound
from catchment.testing.interleave import Interleaver, Task
from catchment.topics import committed, identity, offsets
from catchment.topics.backfill.plan import Read
from catchment.topics.backfill.rewrite import Answer
from catchment.topics.backfill.run import backfill
from catchment.topics.committed import Span
from catchment.topics.identity import Identity
from catchment.topics.manifest import Counts, File, Manifest
from catchment.topics.names import FileName
from catchment.topics.offsets import Hint
from catchment.topics.period import Period
from catchment.topics.repair import repair
from catchment.topics.work import Work, Written
from tests.model.test_topics_backfill import DAY, NOW, ONE, PLACE, careful

START, END = 4, 6  # the export began at the one, and everything below the other is committed
CUTS = {"fine": ((0, 1), (2, 3)), "coarse": ((0, 3),), "odd": ((0, 0), (1, 3))}


def export(generation: int = 1) -> Export:
    return Export(group="events", generation=generation, split={"day": Split(timestamp=True, by="day")})


def written(bucket: Bucket, work: Work) -> Written:
    """The range's only file, put as tasks put it."""
    mark = f"{work.generation}" * 12
    key = PLACE.file(DAY, FileName(work.generation, work.source, work.first, work.last, mark, "parquet"))
    try:
        stat = bucket.put(key, b"rows", when=ABSENT)
    except Conflict:
        try:
            stat = bucket.head(key)
        except NotFound:
            stat = bucket.put(key, b"rows")
    rows = work.last - work.first + 1
    file = File(key, stat.etag, stat.size, rows, work.first, work.last)
    return Written("orders", work.source, work.first, work.last, Counts(rows, 0, rows, 0, 0), (file,), (), (), rows)


class Cut:
    """Has everything, in ranges of its own."""

    def __init__(self, bucket: Bucket, cut: str) -> None:
        self._bucket, self._cut = bucket, CUTS[cut]

    def reads(self, source: object, first: int, last: int) -> tuple[Read, ...] | str:
        return ()

    def before(self, source: object, end: int, period: Period) -> Sequence[Span]:
        return [Span(ONE, first, min(last, end - 1)) for first, last in self._cut if first < end]

    def write(self, works: Sequence[Work]) -> Iterator[tuple[Work, Answer]]:
        for work in works:
            yield work, written(self._bucket, work)


def adder(cut: str, generation: int = 1) -> Task:
    def task(bucket: Bucket) -> None:
        inner, nonce = careful(bucket)
        known = identity.read(inner, PLACE)
        assert known is not None
        about = (inner, PLACE, export(generation), known, Period(), Cut(inner, cut))
        how = {"owner": bucket.name, "now": lambda: NOW, "nonce": nonce, "workers": 1}
        backfill(*about, replace=True, before_start=True, **how)  # type: ignore[arg-type]

    return task


def repairer(bucket: Bucket) -> None:
    inner, nonce = careful(bucket)
    repair(inner, PLACE, now=NOW, nonce=nonce)


def begun(bucket: Bucket) -> None:
    one = written(bucket, Work(export(), "orders", ONE, START, END - 1, ""))
    manifest = Manifest("orders", "id", ONE, START, END - 1, 1, "", one.counts, one.files)
    bucket.put(PLACE.commit(ONE, START), manifest.body("n"))
    known = Identity("id", 0, {0: START}, {1: {}, 2: {}})
    swap.swap(bucket, swap.read(bucket, PLACE.export()), known.plain(), nonce=lambda: "n")
    offsets.write_hint(bucket, offsets.read_hint(bucket, PLACE, ONE, 0), Hint(END), NOW, lambda: "n")


def holds(bucket: MemoryBucket) -> None:
    found = list(committed.manifests(bucket, PLACE, workers=1))
    assert all(one.next == other.first for one, other in pairwise(found)), "offsets are twice there, or missing"
    assert found[-1].next == END
    known = identity.read(bucket, PLACE)
    assert known is not None
    assert known.starts[0] in {one.first for one in found}, "the export begins where no range does"
    there = {entry.key for entry in bucket.list(PLACE.prefix)}
    assert {file.key for one in found for file in one.files} <= there, "a file that readers are told of is not there"


def settled(generation: int) -> Callable[[MemoryBucket], None]:
    """Whoever is left runs it once more, with whatever cut."""

    def check(bucket: MemoryBucket) -> None:
        for cut in CUTS:
            fork = bucket.fork()
            adder(cut, generation)(fork)
            holds(fork)
            found = list(committed.manifests(fork, PLACE, workers=1))
            assert found[0].first == 0
            repairer(fork)
            files = {entry.key for entry in fork.list(PLACE.prefix) if entry.key.endswith(".parquet")}
            assert files == {file.key for one in found for file in one.files}, "something is left over"

    return check


@pytest.mark.soak
@pytest.mark.parametrize("other", ["coarse", "odd"])
def test_two_that_cut_otherwise(other: str) -> None:
    tasks = {"fine": adder("fine"), "other": adder(other)}
    model = Interleaver(tasks, setup=begun, invariant=holds, final=settled(1), versions=False, limit=400_000)
    explored = model.explore()
    assert explored.complete
    print(f"two that add before the start, fine and {other}: {explored}")


def test_two_that_cut_otherwise_two_definitions_and_repair_by_chance() -> None:
    tasks = {"fine": adder("fine"), "odd": adder("odd", 2), "repair": repairer}
    model = Interleaver(tasks, setup=begun, invariant=holds, final=settled(2), versions=False, crashes=1, lost=1)
    print(f"two that add before the start, and repair: {model.sample(200)}")


def test_adding_without_recording_the_bounds_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model can fail."""
    monkeypatch.setattr(identity, "reserve", lambda *args, **more: True)
    tasks = {"fine": adder("fine"), "coarse": adder("coarse")}
    with pytest.raises(AssertionError, match="twice there"):
        Interleaver(tasks, setup=begun, invariant=holds, versions=False, limit=400_000).explore()

"""Every interleaving of those who commit ranges and those who close the day that the ranges fall into.

The promise: of a day that is closed, every committed file is listed once, as soon as its committer has done its duty
(or somebody did it in its place); nothing that is not committed is ever listed; what is listed stays; and the first
list is complete: it has all that was committed before the closing was announced.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any, Literal

import pytest

from catchment.bucket import swap
from catchment.bucket.contract import ABSENT, Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Backoff, Retrying
from catchment.config.decode import Split
from catchment.config.topics import Export, Finalize
from catchment.errors import Conflict
from catchment.testing.clock import FakeClock
from catchment.testing.interleave import Explored, Interleaver, Task
from catchment.topics import committed, finalize
from catchment.topics.manifest import Counts, File, Manifest
from catchment.topics.names import FileName, Place, Source
from catchment.topics.publish import Publication

PLACE = Place("events", "orders")
FOLDER = "day=2026-11-15"
END = datetime(2026, 11, 16, tzinfo=UTC)
WATERMARK = datetime(2026, 11, 16, 3, tzinfo=UTC)
Kind = Literal["republish", "count"]


def export(late: Kind) -> Export:
    return Export(group="events", split={"day": Split(timestamp=True, by="day")}, finalize=Finalize(late=late))


def name_of(partition: int, fingerprint: str = "0" * 12) -> FileName:
    return FileName(1, Source(partition), 0, 9, fingerprint, "parquet")


def careful(bucket: Bucket) -> tuple[Bucket, Callable[[], str]]:
    numbers = count()
    retrying = Retrying(bucket, backoff=Backoff(attempts=2), clock=FakeClock(), chance=lambda: 0.0)
    return retrying, lambda: f"{bucket.name}-{next(numbers)}"


def commit(bucket: Bucket, partition: int) -> Manifest:
    """The manifest of a range whose file is there."""
    file = File(PLACE.file(FOLDER, name_of(partition)), "its etag", 4, 10, 0, 9)
    counts = Counts(10, 0, 10, 0, 0)
    manifest = Manifest("orders", "id", Source(partition), 0, 9, 1, "", counts, (file,))
    try:
        bucket.put(PLACE.commit(manifest.source, 0), manifest.body("n"), when=ABSENT)
    except Conflict:
        pass  # by itself, before it was started again
    return manifest


def committer(partition: int, late: Kind, *, forgotten: bool = False) -> Task:
    """Commits a range and does its duty. `forgotten`: once it died nobody starts it again."""

    def task(bucket: Bucket) -> None:
        if forgotten and not bucket.name.endswith(".0"):
            return
        inner, nonce = careful(bucket)
        manifest = commit(inner, partition)
        finalize.after_commit(inner, PLACE, export(late), manifest, nonce=nonce, workers=1)
        inner.put(PLACE.hint(manifest.source), b"advanced")

    return task


def closer(late: Kind, *, forgotten: bool = False) -> Task:
    def task(bucket: Bucket) -> None:
        if forgotten and not bucket.name.endswith(".0"):
            return
        inner, nonce = careful(bucket)
        finalize.close(inner, PLACE, export(late), WATERMARK, nonce=nonce, workers=1)

    return task


def setup(*partitions: int) -> Callable[[Bucket], None]:
    """A range that was committed long ago; a file of an attempt that lost; files of ranges about to be committed."""

    def prepare(bucket: Bucket) -> None:
        for partition in (*partitions, 7):
            bucket.put(PLACE.file(FOLDER, name_of(partition)), b"rows")
        bucket.put(PLACE.file(FOLDER, name_of(7, "f" * 12)), b"other rows")
        bucket.put(PLACE.hint(commit(bucket, 7).source), b"advanced")

    return prepare


def listed(bucket: Bucket, key: str) -> list[str]:
    found = swap.read(bucket, key)
    return [file.key for file in Publication.parse(key, found.value).files] if found.exists else []


def everything(bucket: Bucket) -> list[str]:
    """What is listed, late or not; a file that both lists have was in time."""
    success, late = listed(bucket, PLACE.success(FOLDER)), listed(bucket, PLACE.late(FOLDER))
    return success + [key for key in late if key not in success]


def holds(bucket: MemoryBucket) -> None:
    manifests = list(committed.manifests(bucket, PLACE, workers=1))
    files = {file.key: manifest.source for manifest in manifests for file in manifest.files}
    shown = everything(bucket)
    assert len(shown) == len(set(shown)), "a file is listed twice"
    assert set(shown) <= files.keys(), "something is listed that is not committed"
    success = listed(bucket, PLACE.success(FOLDER))
    assert not success or PLACE.file(FOLDER, name_of(7)) in success, "the first list was not complete"
    if finalize.state(bucket, PLACE).closed == END:
        hints = {entry.key for entry in bucket.list(f"{PLACE.prefix}_offsets/")}
        done = {key for key, source in files.items() if PLACE.hint(source) in hints}
        assert done <= set(shown), "a committed file of a closed day is not listed"


def only_grows(late: Kind) -> Callable[[MemoryBucket, MemoryBucket], None]:
    def check(before: MemoryBucket, after: MemoryBucket) -> None:
        key = PLACE.success(FOLDER)
        first, then = listed(before, key), listed(after, key)
        assert set(first) <= set(then), "a list lost a file"
        assert late == "republish" or not first or first == then, "the first publication was changed"
        old, new = finalize.state(before, PLACE), finalize.state(after, PLACE)
        assert old.closed is None or (new.closed is not None and new.closed >= old.closed), "what was closed is open"

    return check


def recovered(late: Kind) -> Callable[[MemoryBucket], None]:
    """Whoever is left completes the closing, and does the duty for ranges whose hint was not advanced: in any order."""

    def duty(bucket: MemoryBucket) -> None:
        for manifest in committed.manifests(bucket, PLACE, workers=1):
            if not list(bucket.list(PLACE.hint(manifest.source))):
                finalize.after_commit(bucket, PLACE, export(late), manifest, workers=1)

    def complete(bucket: MemoryBucket) -> None:
        finalize.close(bucket, PLACE, export(late), WATERMARK, workers=1)

    def check(bucket: MemoryBucket) -> None:
        for steps in ((duty, complete), (complete, duty)):
            fork = bucket.fork()
            for step in steps:
                step(fork)
            holds(fork)
            assert finalize.state(fork, PLACE) == finalize.State(END)
            files = {file.key for one in committed.manifests(fork, PLACE, workers=1) for file in one.files}
            assert files == set(everything(fork)), "after all is settled, a committed file is not listed"

    return check


def explore(tasks: dict[str, Task], late: Kind, **bounds: Any) -> Explored:
    explored = Interleaver(
        tasks,
        setup=setup(*range(len([name for name in tasks if name.startswith("commit")]))),
        invariant=holds,
        relation=only_grows(late),
        final=recovered(late),
        versions=False,
        limit=2_000_000,
        **bounds,
    ).explore()
    assert explored.complete
    return explored


@pytest.mark.parametrize("late", ["republish", "count"])
def test_a_committer_and_a_closer_that_die_at_any_call_for_good(late: Kind) -> None:
    tasks = {"commit": committer(0, late, forgotten=True), "close": closer(late, forgotten=True)}
    print(f"a committer and a closer: {explore(tasks, late, crashes=2)}")


@pytest.mark.parametrize("late", ["republish", "count"])
@pytest.mark.parametrize("bounds", [{"crashes": 1}, {"lost": 1}])
def test_a_committer_and_a_closer_that_die_and_start_again_or_miss_a_reply(late: Kind, bounds: dict[str, int]) -> None:
    tasks = {"commit": committer(0, late), "close": closer(late)}
    print(f"a committer and a closer: {explore(tasks, late, **bounds)}")


@pytest.mark.soak
@pytest.mark.parametrize("late", ["republish", "count"])
def test_two_committers_and_a_closer(late: Kind) -> None:
    tasks = {"commit": committer(0, late), "commit too": committer(1, late), "close": closer(late)}
    print(f"two committers and a closer: {explore(tasks, late)}")


@pytest.mark.soak
@pytest.mark.parametrize("late", ["republish", "count"])
def test_a_committer_and_two_closers(late: Kind) -> None:
    tasks = {"commit": committer(0, late), "close": closer(late), "other": closer(late)}
    print(f"a committer and two closers: {explore(tasks, late)}")


@pytest.mark.soak
@pytest.mark.parametrize("late", ["republish", "count"])
def test_two_committers_and_a_closer_with_a_crash(late: Kind) -> None:
    forgotten = {"forgotten": True}
    tasks = {
        "commit": committer(0, late, **forgotten),
        "commit too": committer(1, late, **forgotten),
        "close": closer(late, **forgotten),
    }
    print(f"two committers and a closer, a crash: {explore(tasks, late, crashes=1)}")


@pytest.mark.parametrize("late", ["republish", "count"])
def test_two_committers_and_two_closers_by_chance(late: Kind) -> None:
    tasks = {
        "one": committer(0, late, forgotten=True),
        "two": committer(1, late, forgotten=True),
        "close": closer(late, forgotten=True),
        "other": closer(late),
    }
    interleaver = Interleaver(
        tasks, setup=setup(0, 1), invariant=holds, relation=only_grows(late), final=recovered(late), crashes=1, lost=1
    )
    print(f"two of each: {interleaver.sample(150)}")


def test_a_committer_that_looks_before_it_commits_is_caught() -> None:
    """The model can fail: the order of manifest and look is what the promise rests on."""

    def hasty(bucket: Bucket) -> None:
        inner, nonce = careful(bucket)
        seen = finalize.state(inner, PLACE)
        manifest = commit(inner, 0)
        if seen.line is not None:
            finalize.after_commit(inner, PLACE, export("republish"), manifest, nonce=nonce, workers=1)
        inner.put(PLACE.hint(manifest.source), b"advanced")

    with pytest.raises(AssertionError, match="not listed"):
        explore({"commit": hasty, "close": closer("republish")}, "republish")

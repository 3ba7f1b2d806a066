"""The explorer itself: does it see every order, and does it find the bugs that only one order shows?"""

from __future__ import annotations

import json
from math import comb
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from catchment.bucket.contract import ABSENT, Bucket, matches
from catchment.bucket.memory import MemoryBucket
from catchment.errors import Conflict
from catchment.testing.interleave import Interleaver, InvariantBroken, Task


def test_it_sees_every_order() -> None:
    seen: set[tuple[str, ...]] = set()

    def writer(name: str) -> Task:
        def task(bucket: Bucket) -> None:
            for n in range(3):
                bucket.put(f"{name}{n}", b"")
                bucket.put("last", f"{name}{n}".encode())

        return task

    def remember(bucket: MemoryBucket) -> None:
        history = tuple(held.etag for held in reversed(bucket.versions("last")))
        seen.add(history)

    explored = Interleaver({"a": writer("a"), "b": writer("b")}, final=remember).explore()
    assert explored.complete
    # "last" is written three times by each: every merge of the two sequences occurs.
    assert len(seen) == comb(6, 3)


def increment(bucket: Bucket) -> None:
    """The classic lost update."""
    value = int(bucket.get("counter"))
    bucket.put("counter", str(value + 1).encode())


def careful_increment(bucket: Bucket) -> None:
    while True:
        stat = bucket.head("counter")
        try:
            value = int(bucket.get("counter", etag=stat.etag))
            bucket.put("counter", str(value + 1).encode(), when=matches(stat.etag))
        except Conflict:
            continue
        return


def start_at_zero(bucket: Bucket) -> None:
    bucket.put("counter", b"0")


def is_two(bucket: MemoryBucket) -> None:
    assert bucket.get("counter") == b"2", "an increment was lost"


def test_it_finds_a_lost_update_and_tells_the_schedule() -> None:
    explorer = Interleaver({"a": increment, "b": increment}, setup=start_at_zero, final=is_two)
    with pytest.raises(InvariantBroken) as caught:
        explorer.explore()
    told = str(caught.value)
    assert "an increment was lost" in told
    assert "a.0: get counter" in told
    assert "b.0: put counter" in told


def test_a_careful_increment_holds_in_every_order() -> None:
    explored = Interleaver(
        {"a": careful_increment, "b": careful_increment}, setup=start_at_zero, final=is_two
    ).explore()
    assert explored.complete
    assert explored.states > 20


def test_three_tasks() -> None:
    def is_three(bucket: MemoryBucket) -> None:
        assert bucket.get("counter") == b"3"

    tasks = {name: careful_increment for name in "abc"}
    assert Interleaver(tasks, setup=start_at_zero, final=is_three).explore().complete


def test_a_crash_after_any_call_is_explored_and_the_task_starts_again() -> None:
    """Increment is not idempotent: a crash right after the put counts twice."""
    explorer = Interleaver(
        {"a": careful_increment, "b": careful_increment}, setup=start_at_zero, final=is_two, crashes=1
    )
    with pytest.raises(InvariantBroken, match="dies"):
        explorer.explore()


def test_the_bucket_tells_a_restarted_task_who_it_is() -> None:
    names: set[str] = set()

    def task(bucket: Bucket) -> None:
        bucket.put(f"started/{bucket.name}", b"")
        names.add(bucket.name)

    assert Interleaver({"a": task}, crashes=2).explore().complete
    assert names == {"a.0", "a.1", "a.2"}


def test_a_lost_reply_takes_effect_and_raises() -> None:
    outcomes: set[tuple[bool, bool]] = set()

    def task(bucket: Bucket) -> None:
        try:
            bucket.put("x", b"mine", when=ABSENT)
            told = True
        except Exception:
            told = False
        outcomes.add((told, bucket.get("x") == b"mine"))

    assert Interleaver({"a": task}, lost=1, expected=(Exception,)).explore().complete
    assert outcomes == {(True, True), (False, True)}


def test_the_invariant_is_checked_after_each_call_and_not_only_at_the_end() -> None:
    def task(bucket: Bucket) -> None:
        bucket.put("x", b"bad")
        bucket.put("x", b"good")

    def never_bad(bucket: MemoryBucket) -> None:
        assert (("x", b"bad", ()),) != bucket.state()

    with pytest.raises(InvariantBroken):
        Interleaver({"a": task}, invariant=never_bad).explore()


def test_the_limit_is_said() -> None:
    explored = Interleaver({name: careful_increment for name in "abc"}, setup=start_at_zero, limit=5).explore()
    assert explored == type(explored)(runs=5, states=explored.states, complete=False)


def test_a_task_that_is_not_deterministic_is_reported() -> None:
    runs: list[int] = []

    def fickle(bucket: Bucket) -> None:
        runs.append(1)
        if len(runs) < 3:
            bucket.put("x", json.dumps(len(runs)).encode())
            bucket.put("y", b"")

    def steady(bucket: Bucket) -> None:
        bucket.put("z", b"")
        bucket.put("z", b"2")

    with pytest.raises(InvariantBroken, match="did something else"):
        Interleaver({"a": fickle, "b": steady}).explore()


def test_a_relation_sees_the_bucket_before_and_after_each_call() -> None:
    def task(bucket: Bucket) -> None:
        bucket.put("x", b"1")
        bucket.delete("x")

    def never_fewer(before: MemoryBucket, after: MemoryBucket) -> None:
        assert len(before.state()) <= len(after.state()), "something is gone"

    with pytest.raises(InvariantBroken, match="something is gone") as caught:
        Interleaver({"a": task}, relation=never_fewer).explore()
    assert str(caught.value).endswith("2. a.0: delete x")


def test_a_sample_runs_to_the_end_each_time_is_repeatable_and_finds_what_is_common() -> None:
    ends: list[bytes] = []

    def final(bucket: MemoryBucket) -> None:
        ends.append(bucket.get("counter"))

    def sample(seed: int) -> list[bytes]:
        ends.clear()
        tasks = {name: increment for name in "abc"}
        explored = Interleaver(tasks, setup=start_at_zero, final=final, crashes=1).sample(50, seed=seed)
        assert (explored.runs, explored.complete) == (50, False)
        assert explored.states > 50
        return [*ends]

    first = sample(1)
    assert len(first) == 50
    assert sample(1) == first
    assert sample(2) != first
    with pytest.raises(InvariantBroken, match="an increment was lost"):
        Interleaver({"a": increment, "b": increment}, setup=start_at_zero, final=is_two).sample(50)


def test_without_versions_only_what_is_current_makes_a_state() -> None:
    def writer(bucket: Bucket) -> None:
        for n in range(3):
            bucket.put("x", str(n).encode())

    tasks: dict[str, Task] = {"a": writer, "b": writer}
    with_versions = Interleaver(tasks).explore()
    without = Interleaver(tasks, versions=False).explore()
    assert without.complete
    assert without.states < with_versions.states


def test_a_file_that_is_put_may_be_gone_when_the_task_is_stopped(tmp_path: Path) -> None:
    def task(bucket: Bucket) -> None:
        with TemporaryDirectory(dir=tmp_path) as folder:
            path = Path(folder) / "body"
            path.write_bytes(b"from a file")
            bucket.put("x", path)
        bucket.put("y", bucket.get("x"))

    def final(bucket: MemoryBucket) -> None:
        assert bucket.get("y") == b"from a file"

    assert Interleaver({"a": task, "b": task}, final=final).explore().complete
    assert list(tmp_path.iterdir()) == []

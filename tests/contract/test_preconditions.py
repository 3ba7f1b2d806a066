"""Preconditions: judged and done as one step, under real concurrency, on every store."""

from __future__ import annotations

import json
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from catchment.bucket.contract import ABSENT, Bucket, Precondition, matches
from catchment.bucket.local import LocalBucket
from catchment.bucket.probe import PREFIX, probe
from catchment.bucket.swap import read, swap
from catchment.bucket.wrap import Backoff, Retrying
from catchment.errors import Conflict
from catchment.testing.clock import FakeClock
from catchment.testing.dying import DyingBucket, lost_reply
from tests.contract.stores import Store

WRITERS = 32


def test_absent(bucket: Bucket) -> None:
    bucket.put("k", b"one", when=ABSENT)
    with pytest.raises(Conflict) as caught:
        bucket.put("k", b"two", when=ABSENT)
    assert caught.value.key == "k"
    assert bucket.get("k") == b"one"


def test_matches(bucket: Bucket) -> None:
    one = bucket.put("k", b"one").etag
    two = bucket.put("k", b"two", when=matches(one)).etag
    with pytest.raises(Conflict):
        bucket.put("k", b"three", when=matches(one))
    assert bucket.get("k") == b"two"
    bucket.put("k", b"three", when=matches(two))
    assert bucket.get("k") == b"three"


def test_matching_what_is_not_there_is_a_conflict(bucket: Bucket) -> None:
    etag = bucket.put("other", b"x").etag
    with pytest.raises(Conflict):
        bucket.put("missing", b"x", when=matches(etag))
    assert [entry.key for entry in bucket.list()] == ["other"]


def test_a_put_that_lost_leaves_no_version_and_no_tags(bucket: Bucket) -> None:
    bucket.put("k", b"one", tags={"who": "first"})
    with pytest.raises(Conflict):
        bucket.put("k", b"two", when=ABSENT, tags={"who": "second"})
    assert bucket.tags("k") == {"who": "first"}
    assert len(bucket.versions("k")) == 1


def test_what_the_store_supports_is_found_by_doing(bucket: Bucket) -> None:
    support = probe(bucket)
    assert support.absent and support.matches and support.tags and support.versions
    assert support.compare_and_set
    assert list(bucket.list(PREFIX)) == []


def test_32_writers_and_one_winner(store: Store) -> None:
    """Each round, 32 clients try the same put at once: absent first, then matching the winner's ETag."""
    buckets = [store.open() for _ in range(WRITERS)]
    etag: str | None = None
    for turn in range(3):
        when = ABSENT if etag is None else matches(etag)
        gate = threading.Barrier(WRITERS)

        # The turn is part of the body: the same bytes again would have the same ETag, and a stale one would match.
        bodies = [f"turn {turn}, writer {number};".encode() * 50 for number in range(WRITERS)]

        def attempt(
            number: int, when: Precondition = when, gate: threading.Barrier = gate, bodies: list[bytes] = bodies
        ) -> str | None:
            gate.wait()
            try:
                return buckets[number].put("race", bodies[number], when=when).etag
            except Conflict:
                return None

        with ThreadPoolExecutor(WRITERS) as pool:
            results = list(pool.map(attempt, range(WRITERS)))
        winners = [number for number, result in enumerate(results) if result is not None]
        assert len(winners) == 1
        assert store.open().get("race") == bodies[winners[0]]
        etag = results[winners[0]]


def increment(root: str, times: int, barrier: object) -> None:
    """One process of many: add one to a counter, by compare-and-set, this many times."""
    bucket = LocalBucket(root, keep_versions=3, durable=False)
    barrier.wait()  # type: ignore[attr-defined]
    done = 0
    while done < times:
        before = read(bucket, "counter")
        try:
            swap(bucket, before, {"count": before.value.get("count", 0) + 1})
        except Conflict:
            continue
        done += 1


def test_32_processes_over_one_local_directory_lose_no_increment(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(WRITERS)
    with_root = (str(tmp_path), 5, barrier)
    processes = [context.Process(target=increment, args=with_root) for _ in range(WRITERS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * WRITERS
    assert json.loads(LocalBucket(tmp_path).get("counter"))["count"] == WRITERS * 5


def test_a_reply_lost_after_the_write_took_effect_is_won_and_not_lost(bucket: Bucket) -> None:
    """The retry is told Conflict by its own first attempt; the nonce tells that it was our own."""
    for etag_first in (False, True):
        key = f"k{etag_first}"
        if etag_first:
            swap(bucket, read(bucket, key), {"value": 0})
        before = read(bucket, key)
        flaky = DyingBucket(bucket, at=1, when="after", error=lost_reply(key))
        after = swap(Retrying(flaky, clock=FakeClock()), before, {"value": 1})
        assert flaky.log.count(f"put {key}") == 2
        assert read(bucket, key) == after
        assert after.value["value"] == 1
        assert swap(bucket, after, {"value": 2}).value["value"] == 2


def test_somebody_elses_write_while_our_reply_was_lost_is_a_conflict(bucket: Bucket) -> None:
    before = read(bucket, "k")
    swap(bucket, before, {"who": "them"})
    flaky = DyingBucket(bucket, at=1, when="before", error=lost_reply("k"))
    with pytest.raises(Conflict):
        swap(Retrying(flaky, backoff=Backoff(attempts=3), clock=FakeClock()), before, {"who": "us"})
    assert read(bucket, "k").value["who"] == "them"

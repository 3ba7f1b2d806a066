"""Every interleaving of processes that share a lease, with crashes and lost replies.

The promise: an epoch has one owner, ever, and epochs only go up. Two processes may believe for a while that they
hold the lease (one of them paused), but never under the same epoch, which is what fences their writes.
"""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import count

import pytest

from catchment.bucket.contract import Bucket
from catchment.bucket.lease import Held, Leases
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Backoff, Retrying
from catchment.errors import LeaseLost
from catchment.testing.clock import FakeClock
from catchment.testing.interleave import Explored, Interleaver, Task


def worker(*, patience: int) -> Task:
    """Take the lease, renew it, free it. Waiting is asking again after ttl on one's own clock, `patience` times."""

    def task(bucket: Bucket) -> None:
        clock, numbers = FakeClock(), count()
        careful = Retrying(bucket, backoff=Backoff(attempts=2), clock=clock, chance=lambda: 0.0)
        leases = Leases(careful, bucket.name, ttl=10, clock=clock, nonce=lambda: f"{bucket.name}-{next(numbers)}")
        for _ in range(patience):
            lease = leases.acquire("lock")
            if isinstance(lease, Held):
                clock.sleep(lease.wait)
                continue
            with suppress(LeaseLost):
                leases.free(leases.renew(lease))
            return

    return task


def epochs_have_one_owner(bucket: MemoryBucket) -> None:
    owners: dict[int, str] = {}
    last = 0
    for version in reversed(bucket.versions("lock")):
        record = json.loads(bucket.get("lock", version=version.version))
        assert record["epoch"] >= last, "an epoch went back"
        assert owners.setdefault(record["epoch"], record["owner"]) == record["owner"], "two owners under one epoch"
        last = record["epoch"]


def test_two_processes() -> None:
    tasks = {"a": worker(patience=2), "b": worker(patience=2)}
    explored = Interleaver(tasks, invariant=epochs_have_one_owner).explore()
    print(f"two processes: {explored}")
    assert explored.complete


def test_two_processes_and_a_crash_after_any_call() -> None:
    explored = explore_two(crashes=1)
    print(f"two processes, a crash: {explored}")


def test_two_processes_and_a_lost_reply_to_any_call() -> None:
    explored = explore_two(lost=1)
    print(f"two processes, a lost reply: {explored}")


@pytest.mark.soak
def test_two_processes_with_a_crash_and_a_lost_reply() -> None:
    explored = explore_two(crashes=1, lost=1)
    print(f"two processes, a crash and a lost reply: {explored}")


def explore_two(*, crashes: int = 0, lost: int = 0) -> Explored:
    tasks = {"a": worker(patience=2), "b": worker(patience=1)}
    explored = Interleaver(tasks, invariant=epochs_have_one_owner, crashes=crashes, lost=lost).explore()
    assert explored.complete
    return explored


def test_three_processes() -> None:
    tasks = {name: worker(patience=1) for name in "abc"}
    explored = Interleaver(tasks, invariant=epochs_have_one_owner).explore()
    print(f"three processes: {explored}")
    assert explored.complete

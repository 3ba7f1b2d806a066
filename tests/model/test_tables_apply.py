"""Every interleaving of those who land batches and those who apply them in order.

The promise: no publication is in the table twice; batches that were there from the start are applied in the order of
their names; and once all is settled, what is published last of each batch is in the table, the backlog is empty and the
lock is free.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from catchment.bucket.contract import Bucket, Entry
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Backoff, Retrying
from catchment.config.tables import Tables
from catchment.errors import UsageError
from catchment.tables import control
from catchment.tables import lock as locks
from catchment.tables.apply import Applier
from catchment.tables.landing import Landed, Landing, publication
from catchment.tables.lock import Lock, State
from catchment.tables.names import Batch, Table
from catchment.testing.clock import FakeClock
from catchment.testing.interleave import Explored, Interleaver, Task
from catchment.testing.tables import FakeEngine

TABLE = Table("sales", "orders")
PATHS = ("a", "b")
CONFIG = Tables.model_validate({"order_per_table": True, "late": "apply", "max_retries": 0})
SETTINGS: Any = None  # the engine of these tests does not look at them


def careful(bucket: Bucket) -> tuple[Bucket, Callable[[], str]]:
    numbers = count()
    retrying = Retrying(bucket, backoff=Backoff(attempts=2), clock=FakeClock(), chance=lambda: 0.0)
    return retrying, lambda: f"{bucket.name}-{next(numbers)}"


def applier(bucket: Bucket, nonce: Callable[[], str], owner: str, **how: Any) -> Applier:
    return Applier(
        bucket,
        CONFIG,
        FakeEngine(bucket, **how),
        lambda table, path, base: SETTINGS,
        owner=owner,
        gone=lambda owner: True,  # whoever holds a lock may be taken for dead at any time: the worst guess
        clock=FakeClock(),
        nonce=nonce,
    )


def publishing(bucket: Bucket) -> None:
    """Puts what it finds into the backlog."""
    inner, nonce = careful(bucket)
    publish(applier(inner, nonce, bucket.name), Landing(inner, CONFIG))


def subscribing(batches: int) -> Task:
    """Applies what is in the backlog, so many batches."""

    def task(bucket: Bucket) -> None:
        inner, nonce = careful(bucket)
        one = applier(inner, nonce, bucket.name)
        for _ in range(batches):
            if not one.ordered(landed_of(*PATHS)).again:
                break

    return task


def replica(batches: int) -> Task:
    """Both."""

    def task(bucket: Bucket) -> None:
        publishing(bucket)
        subscribing(batches)(bucket)

    return task


def publish(one: Applier, landing: Landing) -> None:
    landed = landing.look().tables[TABLE]
    for path in sorted(landed.closed):
        found = landing.publication(landed.closed[path], FakeClock().now())
        if found is not None:
            one.publish(Batch(TABLE, path, found))
    landed.pointers = sorted(landed.closed)
    one.wake(landed)


def landed_of(*paths: str) -> Landed:
    """As a listing shows it: a subscriber looks at nothing else of it."""
    entries = {path: Entry(f"{TABLE.prefix}{path}/_SUCCESS", 0, FakeClock().now(), None) for path in paths}
    return Landed(TABLE, TABLE.prefix, entries, begun=True)


def publisher(path: str) -> Task:
    """Publishes a batch again."""

    def task(bucket: Bucket) -> None:
        careful(bucket)[0].put(f"{TABLE.prefix}{path}/_SUCCESS", b"")

    return task


def setup(*paths: str, published: bool) -> Callable[[Bucket], None]:
    """Batches that have landed; already in the backlog, or not yet."""

    def prepare(bucket: Bucket) -> None:
        for path in paths:
            bucket.put(f"{TABLE.prefix}{path}/part.csv", b"1,2")
            bucket.put(f"{TABLE.prefix}{path}/_SUCCESS", b"")
        if published:
            numbers = count()
            publish(applier(bucket, lambda: f"first-{next(numbers)}", "first"), Landing(bucket, CONFIG))
        bucket.put(TABLE.lock, json.dumps({**Lock().value(), "nonce": "first"}).encode())

    return prepare


def applied(bucket: Bucket) -> list[str]:
    return [name.removeprefix("catchment:").partition("@")[0] for name in FakeEngine(bucket).order(TABLE)]


def in_order(bucket: MemoryBucket) -> None:
    firsts = list(dict.fromkeys(applied(bucket)))  # by each batch's first time
    assert firsts == sorted(firsts), f"applied out of order: {firsts}"


def settled(*paths: str) -> Callable[[MemoryBucket], None]:
    """Whoever is left runs on: everything ends well."""

    def check(bucket: MemoryBucket) -> None:
        fork = bucket.fork()
        numbers = count()
        one = applier(fork, lambda: f"last-{next(numbers)}", "last")
        landing = Landing(fork, CONFIG)
        for _ in range(3):
            publish(one, landing)
            while one.ordered(landed_of(*paths)).again:
                pass
        engine = FakeEngine(fork)
        for path in paths:
            now = publication(fork, f"{TABLE.prefix}{path}/_SUCCESS")
            assert now is not None
            assert engine.applied(Batch(TABLE, path, now)) is not None, f"{path} was lost"
        assert not list(fork.list(TABLE.backlog)), "the backlog is not empty"
        assert locks.read(fork, TABLE).lock.state is State.FREE

    return check


def explore(tasks: dict[str, Task], *paths: str, published: bool = True, **bounds: Any) -> Explored:
    explored = Interleaver(
        tasks,
        setup=setup(*paths, published=published),
        invariant=in_order,
        final=settled(*paths),
        versions=True,
        limit=400_000,
        **bounds,
    ).explore()
    assert explored.complete
    return explored


def test_two_subscribers_and_one_batch() -> None:
    tasks = {"one": subscribing(1), "two": subscribing(1)}
    print(f"two subscribers, one batch: {explore(tasks, 'a')}")


def test_a_subscriber_that_dies_at_any_call_or_misses_a_reply() -> None:
    print(f"a subscriber that dies, two batches: {explore({'one': subscribing(2)}, 'a', 'b', crashes=2, lost=1)}")


def test_a_batch_that_is_published_again_meanwhile() -> None:
    tasks = {"one": subscribing(2), "again": publisher("a"), "publishing": publishing}
    print(f"published again: {explore(tasks, 'a')}")


def test_a_batch_that_is_skipped_while_its_owner_is_paused_stays_out() -> None:
    """Whichever is first, the table has the batch once or not at all, and the next one is applied."""

    def skipping(bucket: Bucket) -> None:
        inner, nonce = careful(bucket)
        found = publication(inner, f"{TABLE.prefix}a/_SUCCESS")
        assert found is not None
        with suppress(UsageError):  # it was applied by then
            control.skip(inner, FakeEngine(inner), landed_of(*PATHS), Batch(TABLE, "a", found), "then", nonce=nonce)

    def final(bucket: MemoryBucket) -> None:
        fork = bucket.fork()
        numbers = count()
        one = applier(fork, lambda: f"last-{next(numbers)}", "last")
        while one.ordered(landed_of(*PATHS)).again:
            pass
        rows = FakeEngine(fork).rows(TABLE)
        assert len(rows) == 2 and rows[1] is not None
        assert not list(fork.list(TABLE.backlog))
        assert locks.read(fork, TABLE).lock.state is State.FREE

    explored = Interleaver(
        {"one": subscribing(1), "skip": skipping},
        setup=setup(*PATHS, published=True),
        invariant=in_order,
        final=final,
        versions=True,
        limit=400_000,
    ).explore()
    assert explored.complete
    print(f"skip against a subscriber: {explored}")


@pytest.mark.soak
@pytest.mark.parametrize("bounds", [{"crashes": 1}, {"lost": 1}])
def test_two_subscribers_with_a_crash_or_a_lost_reply(bounds: dict[str, Any]) -> None:
    tasks = {"one": subscribing(1), "two": subscribing(1)}
    print(f"two subscribers, {bounds}: {explore(tasks, 'a', **bounds)}")


def test_all_of_them_by_chance() -> None:
    tasks = {"one": replica(2), "two": replica(2), "again": publisher("a")}
    interleaver = Interleaver(
        tasks,
        setup=setup("a", "b", published=False),
        invariant=in_order,
        final=settled("a", "b"),
        crashes=2,
        lost=1,
        versions=True,
    )
    print(f"two replicas, two batches, published again: {interleaver.sample(40)}")

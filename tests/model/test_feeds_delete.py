"""Every interleaving of deleting an hour on purpose with uploads, reconciling and replication into it.

The promise: once the tombstone is there it stays, and when all have ended nothing is left of the hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from catchment.bucket.contract import ANY, Body, Bucket, Entry, Precondition, Stat, Tags
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Backoff, Retrying, Wrapper
from catchment.feeds.delete import delete, plan_delete
from catchment.feeds.hours import Span
from catchment.feeds.reconcile import Algorithm, Rules
from catchment.feeds.replicate import Place, replicate
from catchment.feeds.settle import settle
from catchment.testing.clock import FakeClock
from catchment.testing.interleave import Interleaver, Task
from tests.model.sets import FEED, GZIP, HOUR, ZSTD, archive_of, encode, sets, upload_of

SPAN = Span(HOUR, HOUR.next)
BOTH = pytest.mark.parametrize("algorithm", ["hashed", "primary"])


class Under(Wrapper):
    """One of two storages in one memory bucket: all keys below a prefix."""

    def __init__(self, inner: Bucket, prefix: str) -> None:
        super().__init__(Retrying(inner, backoff=Backoff(attempts=2), clock=FakeClock(), chance=lambda: 0.0))
        self._prefix = prefix

    def put(self, key: str, body: Body, *, when: Precondition = ANY, tags: Tags | None = None) -> Stat:
        return self.inner.put(self._prefix + key, body, when=when, tags=tags)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[Entry]:
        for entry in self.inner.list(self._prefix + prefix, after=self._prefix + after if after else ""):
            yield entry._replace(key=entry.key[len(self._prefix) :])

    def open(self, key: str, *, version: str | None = None, etag: str | None = None):  # type: ignore[no-untyped-def]
        return self.inner.open(self._prefix + key, version=version, etag=etag)

    def head(self, key: str, *, version: str | None = None) -> Stat:
        return self.inner.head(self._prefix + key, version=version)

    def delete(self, key: str, *, version: str | None = None) -> None:
        self.inner.delete(self._prefix + key, version=version)


def deleter(prefix: str) -> Task:
    def task(bucket: Bucket) -> None:
        storage = Under(bucket, prefix)
        delete(storage, plan_delete(storage, [FEED], SPAN).hours, clock=FakeClock())

    return task


def late(prefix: str, rules: Rules) -> Task:
    """A replica that uploads to the hour and reconciles it, whenever that may be."""

    def task(bucket: Bucket) -> None:
        storage = Under(bucket, prefix)
        storage.put(*upload_of("yz", ZSTD))
        assert settle(storage, FEED, HOUR, rules, sets).settled

    return task


def replicator(rules: Rules) -> Task:
    def task(bucket: Bucket) -> None:
        places = {id: Place(Under(bucket, f"{id}/"), rules) for id in ("one", "two")}
        replicate(places, FEED, SPAN, sets)

    return task


def stored(bucket: MemoryBucket, prefix: str) -> list[str]:
    return [entry.key.removeprefix(f"{prefix}/") for entry in bucket.list(f"{prefix}/")]


def tombstone_stays(before: MemoryBucket, after: MemoryBucket) -> None:
    for prefix in ("one", "two"):
        key = HOUR.tombstone(FEED)
        assert key not in stored(before, prefix) or key in stored(after, prefix), "the tombstone is gone"


def fill(*prefixes: str) -> Callable[[Bucket], None]:
    def setup(bucket: Bucket) -> None:
        for prefix in prefixes:
            key, body = upload_of("xy")
            bucket.put(f"{prefix}/{key}", body)

    return setup


@BOTH
@pytest.mark.parametrize(("crashes", "lost"), [(0, 0), (1, 0), (0, 1)])
def test_a_late_upload_into_a_deleted_hour_goes_too(algorithm: Algorithm, crashes: int, lost: int) -> None:
    def final(bucket: MemoryBucket) -> None:
        # If the upload came before the plan, or after the tombstone, or in between: nothing of it is left.
        assert stored(bucket, "one") == [HOUR.tombstone(FEED)]

    tasks = {"delete": deleter("one/"), "late": late("one/", Rules(GZIP, algorithm))}
    explored = Interleaver(
        tasks, setup=fill("one"), relation=tombstone_stays, final=final, crashes=crashes, lost=lost, versions=False
    ).explore()
    print(f"\n{algorithm}, delete and a late upload, {crashes=} {lost=}: {explored.states} distinct states")
    assert explored.complete


@BOTH
def test_replication_never_brings_a_deleted_hour_back(algorithm: Algorithm) -> None:
    """Storage two lacks the hour, or is just about to get it, while it is deleted from both."""

    def final(bucket: MemoryBucket) -> None:
        assert stored(bucket, "one") == [HOUR.tombstone(FEED)]
        left = stored(bucket, "two")
        # Planned before the copy arrived, deleting had nothing to do in two: then the hour is there, and wanted.
        assert left == [HOUR.tombstone(FEED)] or HOUR.tombstone(FEED) not in left

    def both(bucket: Bucket) -> None:
        deleter("one/")(bucket)
        deleter("two/")(bucket)

    explored = Interleaver(
        {"delete": both, "replicate": replicator(Rules(GZIP, algorithm))},
        setup=fill("one"),
        relation=tombstone_stays,
        final=final,
        crashes=1,
        versions=False,
    ).explore()
    print(f"\n{algorithm}, delete and replicate: {explored.states} distinct states")
    assert explored.complete


@BOTH
def test_two_replicators_end_in_the_same_hour_everywhere(algorithm: Algorithm) -> None:
    rules = Rules(GZIP, algorithm)

    def final(bucket: MemoryBucket) -> None:
        for prefix in ("one", "two"):
            keys = stored(bucket, prefix)
            assert len(keys) == 1, keys
            assert bucket.get(f"{prefix}/{keys[0]}") == encode("xy", GZIP)

    explored = Interleaver(
        {"a": replicator(rules), "b": replicator(rules)},
        setup=settled_in_one(rules),
        final=final,
        crashes=1,
        versions=False,
    ).explore()
    print(f"\n{algorithm}, two replicators: {explored.states} distinct states")
    assert explored.complete


def settled_in_one(rules: Rules) -> Callable[[Bucket], None]:
    def setup(bucket: Bucket) -> None:
        fill("one")(bucket)
        settle(Under(bucket, "one/"), FEED, HOUR, rules, sets)

    return setup


def test_storages_that_have_different_downloads_of_an_hour_exchange_them() -> None:
    memory = MemoryBucket()
    one, two = Under(memory, "one/"), Under(memory, "two/")
    one.put(*upload_of("xy"))
    two.put(*upload_of("yz", ZSTD))
    places = {"one": Place(one, Rules(GZIP)), "two": Place(two, Rules(GZIP))}
    replicate(places, FEED, SPAN, sets)
    wanted = [archive_of("xyz", GZIP).key]
    replicate(places, FEED, SPAN, sets)
    assert stored(memory, "one") == stored(memory, "two") == wanted
    assert replicate(places, FEED, SPAN, sets) == []

"""Deleting hours, and having them back."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from catchment.bucket.contract import Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.feeds.delete import delete, plan_delete, revive
from catchment.feeds.hours import Span
from catchment.feeds.names import Archive, Compression, Hour, set_hash
from catchment.feeds.settle import damaged_prefix
from catchment.testing.clock import START, FakeClock
from catchment.testing.dying import Died, DyingBucket

HOUR = Hour(datetime(2026, 1, 1, 8, tzinfo=UTC))
DAY = Span.of(HOUR.start, HOUR.start + timedelta(days=1))


def archive(feed: str, hour: Hour, name: str | None, compression: Compression = Compression.GZIP) -> Archive:
    return Archive(feed, hour, None if name is None else set_hash(name), compression)


def fill(bucket: Bucket) -> list[str]:
    """Two hours of one feed, one of another, and the hour before."""
    before = Hour(HOUR.start - timedelta(hours=1))
    archives = [
        archive("a", before, "x"),
        archive("a", HOUR, "x"),
        archive("a", HOUR, None),
        archive("a", HOUR.next, "x", Compression.ZSTD),
        archive("b", HOUR, "x"),
    ]
    for each in archives:
        bucket.put(each.key, b"four")
    bucket.put(damaged_prefix("a", HOUR) + "piece", b"bad")
    return [each.key for each in archives]


def keys(bucket: Bucket) -> list[str]:
    return [entry.key for entry in bucket.list()]


def test_a_plan_says_what_would_go_and_changes_nothing() -> None:
    bucket = MemoryBucket()
    fill(bucket)
    before = bucket.history()
    found = plan_delete(bucket, ["a"], DAY)
    assert [(doomed.feed, doomed.hour) for doomed in found.hours] == [("a", HOUR), ("a", HOUR.next)]
    assert found.archives == 3
    assert found.size == 12
    assert bucket.history() == before


def test_deleting_leaves_a_tombstone_and_the_rest_of_the_feeds() -> None:
    bucket = MemoryBucket()
    before_hour, *_, other = fill(bucket)
    told: list[Hour] = []
    gone = delete(
        bucket, plan_delete(bucket, ["a"], DAY).hours, clock=FakeClock(), progress=lambda done: told.append(done.hour)
    )
    assert gone == 4  # three archives and what was set aside
    assert keys(bucket) == sorted([before_hour, other, HOUR.tombstone("a"), HOUR.next.tombstone("a")])
    assert told == [HOUR, HOUR.next]
    record = json.loads(bucket.get(HOUR.tombstone("a")))
    assert record["deleted"] == START.isoformat()
    assert len(record["archives"]) == 2


def test_deleting_again_finds_nothing() -> None:
    bucket = MemoryBucket()
    fill(bucket)
    delete(bucket, plan_delete(bucket, ["a", "b"], DAY).hours, clock=FakeClock())
    assert plan_delete(bucket, ["a", "b"], DAY).hours == ()


def test_the_tombstone_comes_before_anything_goes() -> None:
    memory = MemoryBucket()
    fill(memory)
    bucket = DyingBucket(memory, at=10_000)
    delete(bucket, plan_delete(bucket, ["b"], DAY).hours, clock=FakeClock())
    changes = [call for call in bucket.log if not call.startswith("list")]
    assert changes[0] == f"put {HOUR.tombstone('b')}"
    assert changes[1].startswith("delete ")


def test_what_came_after_the_plan_goes_too() -> None:
    bucket = MemoryBucket()
    fill(bucket)
    planned = plan_delete(bucket, ["b"], DAY)
    late = archive("b", HOUR, "late").key
    bucket.put(late, b"x")
    delete(bucket, planned.hours, clock=FakeClock())
    assert late not in keys(bucket)


def test_dying_at_any_call_and_deleting_again_ends_the_same() -> None:
    clean = MemoryBucket()
    fill(clean)
    delete(clean, plan_delete(clean, ["a", "b"], DAY).hours, clock=FakeClock())
    for when in ("before", "after"):
        for at in range(1, 100):
            memory = MemoryBucket()
            fill(memory)
            dying = DyingBucket(memory, at=at, when=when)
            with suppress(Died):
                delete(dying, plan_delete(dying, ["a", "b"], DAY).hours, clock=FakeClock())
            delete(memory, plan_delete(memory, ["a", "b"], DAY).hours, clock=FakeClock())
            assert keys(memory) == keys(clean)
            if dying.calls < at:
                break
        else:
            raise AssertionError("deleting never ends")


def test_reviving_removes_tombstones_in_the_span_only() -> None:
    bucket = MemoryBucket()
    fill(bucket)
    delete(bucket, plan_delete(bucket, ["a"], DAY).hours, clock=FakeClock())
    assert revive(bucket, ["a"], Span(HOUR, HOUR.next)) == [("a", HOUR)]
    assert HOUR.tombstone("a") not in keys(bucket)
    assert HOUR.next.tombstone("a") in keys(bucket)


def test_an_hour_that_only_another_storage_has_is_kept_out_too() -> None:
    here, there = MemoryBucket(), MemoryBucket()
    there.put(archive("a", HOUR, "x").key, b"four")
    assert plan_delete(here, ["a"], DAY).hours == ()
    plan = plan_delete(here, ["a"], DAY, elsewhere=[there])
    assert [(doomed.hour, doomed.archives) for doomed in plan.hours] == [(HOUR, ())]
    delete(here, plan.hours, clock=FakeClock())
    assert keys(here) == [HOUR.tombstone("a")]
    assert plan_delete(here, ["a"], DAY, elsewhere=[there]).hours == ()
    assert keys(there) == [archive("a", HOUR, "x").key]

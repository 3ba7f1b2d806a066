"""Listing hours: what is there, in which range, in how many requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from catchment.bucket.contract import Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Counting
from catchment.errors import UsageError
from catchment.feeds.hours import Span, list_feeds, list_hour, list_hours
from catchment.feeds.names import Archive, Compression, Hour, set_hash

FEED = "subway"
START = Hour(datetime(2025, 12, 31, 22, tzinfo=UTC))


def hours(count: int, first: Hour = START) -> list[Hour]:
    return [Hour(first.start + timedelta(hours=n)) for n in range(count)]


def fill(bucket: Bucket, *, feed: str = FEED, count: int = 5) -> None:
    for hour in hours(count):
        bucket.put(Archive(feed, hour, set_hash(["a"]), Compression.GZIP).key, b"x")


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("start", "end", "first", "last", "folder"),
    [
        ("2026-01-01T08:00", "2026-01-01T09:00", 8, 8, "2026/01/01/08/"),
        ("2026-01-01T08:59:59.999", "2026-01-01T09:00", 8, 8, "2026/01/01/08/"),
        ("2026-01-01T08:00", "2026-01-01T09:00:00.001", 8, 9, "2026/01/01/"),
        ("2026-01-01T00:00", "2026-01-02T00:00", 0, 23, "2026/01/01/"),
        ("2026-01-01T00:00", "2026-01-02T00:00:01", 0, 0, "2026/01/"),
        ("2026-01-31T23:00", "2026-02-01T01:00", 23, 0, "2026/"),
        ("2025-12-31T23:00", "2026-01-01T01:00", 23, 0, ""),
    ],
)
def test_a_period_is_rounded_to_hours_and_read_from_the_folder_they_share(
    start: str, end: str, first: int, last: int, folder: str
) -> None:
    span = Span.of(moment(start), moment(end))
    assert span.first is not None
    assert span.end is not None
    assert span.first.start.hour == first
    assert (span.end.start - timedelta(hours=1)).hour == last
    assert span.folder() == folder


def test_times_in_other_zones_are_the_same_moments() -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    span = Span.of(datetime(2026, 1, 1, 13, 30, tzinfo=east), datetime(2026, 1, 1, 14, 30, tzinfo=east))
    assert span == Span.of(moment("2026-01-01T08:00"), moment("2026-01-01T09:00"))


def test_a_start_that_is_not_before_the_end_is_refused() -> None:
    for end in ("2026-01-01T08:00", "2025-01-01T08:00"):
        with pytest.raises(UsageError, match="start_time") as caught:
            Span.of(moment("2026-01-01T08:00"), moment(end))
        assert caught.value.hint


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(UsageError, match="time zone"):
        Span.of(datetime(2026, 1, 1), moment("2026-01-02T00:00"))  # noqa: DTZ001 (that is the point)


def test_every_range_gives_exactly_its_hours() -> None:
    bucket = MemoryBucket()
    fill(bucket)
    fill(bucket, feed="subway2")
    there = hours(5)
    for first in range(5):
        for end in range(first + 1, 6):
            span = Span(there[first], Hour(START.start + timedelta(hours=end)))
            assert [found.hour for found in list_hours(bucket, FEED, span)] == there[first:end]
            assert all(hour in span for hour in there[first:end])
    assert [found.hour for found in list_hours(bucket, FEED, Span())] == there


def test_what_was_set_aside_and_what_is_not_ours_is_no_hour() -> None:
    bucket = MemoryBucket()
    fill(bucket, count=1)
    for key in ("_damaged/2025/12/31/22/x", "readme.txt", "2025/readme.txt", "2025/13/01/00/x"):
        bucket.put(f"feeds/{FEED}/{key}", b"x")
    assert [found.hour for found in list_hours(bucket, FEED, Span())] == [START]


def test_a_range_of_hours_is_one_listing() -> None:
    bucket = Counting(MemoryBucket())
    fill(bucket)
    bucket.counts.requests.clear()
    assert len(list(list_hours(bucket, FEED, Span.of(START.start, START.start + timedelta(days=400))))) == 5
    assert bucket.counts.requests == {"list": 1}


def test_one_hour_as_it_is_listed() -> None:
    bucket = MemoryBucket()
    fill(bucket, count=2)
    archive = Archive(FEED, START, set_hash(["a"]), Compression.GZIP)
    stable = Archive(FEED, START, None, Compression.ZSTD)
    stray = START.prefix(FEED) + "notes.txt"
    elsewhere = START.prefix(FEED) + Archive(FEED, START.next, set_hash(["b"]), Compression.GZIP).name
    for key in (stable.key, stray, elsewhere, START.tombstone(FEED)):
        bucket.put(key, b"")
    found = list_hour(bucket, FEED, START)
    assert [stored.archive for stored in found.archives] == [stable, archive]
    assert [stored.archive for stored in found.live] == [archive]  # the other one is empty
    assert found.deleted
    assert set(found.others) == {stray, elsewhere}


def test_the_feeds_that_a_bucket_has() -> None:
    bucket = MemoryBucket()
    fill(bucket, feed="b")
    fill(bucket, feed="a")
    bucket.put("topics/x", b"")
    assert list_feeds(bucket) == ["a", "b"]

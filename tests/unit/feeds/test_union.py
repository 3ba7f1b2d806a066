"""Hours read as the union of whatever archives are there."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import BinaryIO

import pytest

from catchment.bucket.contract import Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Counting, Wrapper
from catchment.errors import DamagedArchive, Unreachable, UsageError
from catchment.feeds.hours import Span
from catchment.feeds.names import Archive, Compression
from catchment.feeds.union import Flaw, Reading, hours, read_span
from catchment.testing.dying import DyingBucket, lost_reply
from tests.unit.feeds.stores import FEED, HOUR, Meddling, cut_short, download, hours_later, noise, packed, store


@pytest.fixture
def bucket() -> MemoryBucket:
    return MemoryBucket()


def bodies(*buckets: Bucket, fold: bool = False) -> list[bytes]:
    return [reading.body for reading in read_span(buckets, FEED, fold=fold)]


def read_with_flaws(*buckets: Bucket) -> tuple[list[bytes], list[Flaw]]:
    flaws: list[Flaw] = []
    return [reading.body for reading in read_span(buckets, FEED, on_flaw=flaws.append)], flaws


def test_an_hour_that_is_not_reconciled_gives_each_download_once(bucket: MemoryBucket) -> None:
    store(bucket, {1: b"a", 5: b"c", 9: b"e"}, compression=Compression.GZIP)
    store(bucket, {1: b"a", 3: b"b", 5: b"c"}, compression=Compression.ZSTD)
    store(bucket, {7: b"d"}, compression=Compression.XZ)
    assert bodies(bucket) == [b"a", b"b", b"c", b"d", b"e"]


def test_time_and_hash_come_with_each_body(bucket: MemoryBucket) -> None:
    store(bucket, {1: b"a"})
    one = download(1, b"a")
    assert list(read_span([bucket], FEED)) == [Reading(one.time, one.hash, b"a")]


def test_the_same_set_in_two_compressions_is_fetched_once(bucket: MemoryBucket) -> None:
    for compression in Compression:
        store(bucket, {1: b"a", 2: b"b"}, compression=compression)
    counting = Counting(bucket)
    assert bodies(counting) == [b"a", b"b"]
    assert counting.counts.requests == {"list": 1, "open": 1}


def test_consecutive_repeats_stay_unless_folding_is_asked_for(bucket: MemoryBucket) -> None:
    store(bucket, {1: b"a", 2: b"b"})
    store(bucket, {3: b"b", 4: b"a", 5: b"a"})
    assert bodies(bucket) == [b"a", b"b", b"b", b"a", b"a"]
    assert bodies(bucket, fold=True) == [b"a", b"b", b"a"]


def test_folding_keeps_the_first_of_each_hour(bucket: MemoryBucket) -> None:
    store(bucket, {1: b"same", 2: b"same"})
    store(bucket, {0: b"same"}, hour=hours_later(1))
    assert bodies(bucket, fold=True) == [b"same", b"same"]


def test_a_primary_archive_and_latecomers_are_one_hour(bucket: MemoryBucket) -> None:
    store(bucket, {1: b"a", 2: b"b"}, primary=True)
    store(bucket, {2: b"b", 3: b"c"})
    assert bodies(bucket) == [b"a", b"b", b"c"]


def test_a_primary_key_that_was_let_go_of_holds_nothing(bucket: MemoryBucket) -> None:
    bucket.put(Archive(FEED, HOUR, None, Compression.GZIP).key, b"")
    store(bucket, {1: b"a"})
    assert bodies(bucket) == [b"a"]


def test_a_deleted_hour_is_empty_whatever_came_late(bucket: MemoryBucket) -> None:
    store(bucket, {1: b"a"})
    store(bucket, {1: b"b"}, hour=hours_later(1))
    bucket.put(HOUR.tombstone(FEED), b"{}")
    assert bodies(bucket) == [b"b"]


def test_several_buckets_are_one() -> None:
    here, there = MemoryBucket(name="here"), MemoryBucket(name="there")
    store(here, {1: b"a", 2: b"b"})
    store(there, {2: b"b", 3: b"c"})
    store(there, {0: b"later"}, hour=hours_later(1))
    assert bodies(here, there) == [b"a", b"b", b"c", b"later"]


def test_only_what_lies_in_the_period_and_only_its_hours_are_fetched(bucket: MemoryBucket) -> None:
    for later in range(5):
        store(bucket, {0: b"first", 1800: b"half", 3599: b"last"}, hour=hours_later(later))
    counting = Counting(bucket)
    start, end = HOUR.start + timedelta(minutes=30), HOUR.start + timedelta(hours=2, minutes=30)
    found = list(read_span([counting], FEED, start, end))
    assert [reading.body for reading in found] == [b"half", b"last", b"first", b"half", b"last", b"first"]
    assert found[0].time == start
    assert counting.counts.requests == {"list": 1, "open": 3}


@pytest.mark.parametrize("bounds", [(None, 2), (2, None), (None, None)])
def test_a_period_may_be_open(bucket: MemoryBucket, bounds: tuple[int | None, int | None]) -> None:
    for later in range(4):
        store(bucket, {0: b"%d" % later}, hour=hours_later(later))
    start, end = (None if bound is None else hours_later(bound).start for bound in bounds)
    first, last = bounds[0] or 0, 4 if bounds[1] is None else bounds[1]
    assert [reading.body for reading in read_span([bucket], FEED, start, end)] == [
        b"%d" % later for later in range(first, last)
    ]


def test_a_period_that_ends_before_it_starts_is_refused(bucket: MemoryBucket) -> None:
    with pytest.raises(UsageError, match="start_time"):
        list(read_span([bucket], FEED, hours_later(1).start, HOUR.start))
    with pytest.raises(UsageError, match="time zone"):
        list(read_span([bucket], FEED, datetime(2026, 11, 15)))  # noqa: DTZ001 (that is the point)


def test_archives_that_vanish_because_they_were_merged_meanwhile(bucket: MemoryBucket) -> None:
    old = [store(bucket, {1: b"a", 3: b"c"}), store(bucket, {2: b"b"})]

    def merged_meanwhile(inner: Bucket) -> None:
        store(inner, {1: b"a", 2: b"b", 3: b"c"})
        for archive in old:
            inner.delete(archive.key)

    assert bodies(Meddling(bucket, merged_meanwhile)) == [b"a", b"b", b"c"]


def test_a_primary_archive_that_changes_meanwhile(bucket: MemoryBucket) -> None:
    store(bucket, {1: b"a"}, primary=True)
    assert bodies(Meddling(bucket, lambda inner: store(inner, {1: b"a", 2: b"b"}, primary=True))) == [b"a", b"b"]


def test_a_call_that_fails_at_any_point_loses_and_repeats_nothing(bucket: MemoryBucket) -> None:
    store(bucket, {1: b"a", 3: b"c"})
    store(bucket, {2: b"b"})
    for at in count(2):  # the first one is the listing, which the Retrying wrapper sees to
        dying = DyingBucket(bucket, at=at, error=lost_reply())
        assert bodies(dying) == [b"a", b"b", b"c"]
        if dying.calls < at:
            break
    assert at > 2


class Breaking(Wrapper):
    """The connection breaks after so many bytes, a few times."""

    def __init__(self, inner: Bucket, after: int, times: int) -> None:
        super().__init__(inner)
        self._after, self._times = after, times

    @contextmanager
    def open(self, key: str, *, version: str | None = None, etag: str | None = None) -> Iterator[BinaryIO]:
        whole = self.inner.get(key, version=version, etag=etag)
        if self._times:
            self._times -= 1
            yield io.BufferedReader(_Broken(whole[: self._after]))
        else:
            yield io.BytesIO(whole)


class _Broken(io.RawIOBase):
    def __init__(self, start: bytes) -> None:
        self._start = io.BytesIO(start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        part = self._start.read(len(buffer))
        if not part:
            raise Unreachable("the connection broke")
        buffer[: len(part)] = part
        return len(part)


def test_a_connection_that_breaks_half_way_goes_on_where_it_was(bucket: MemoryBucket) -> None:
    wanted = {second: noise(200_000, second) for second in range(5)}
    archive = store(bucket, wanted)
    half = len(bucket.get(archive.key)) // 2
    assert bodies(Breaking(bucket, half, 3)) == list(wanted.values())


def test_a_connection_that_always_breaks_is_an_error_and_no_damage(bucket: MemoryBucket) -> None:
    store(bucket, {1: noise(200_000, 1)})
    with pytest.raises(Unreachable):
        bodies(Breaking(bucket, 1000, 1000))


def test_a_truncated_archive_gives_what_is_good_and_the_other_archives_the_rest(bucket: MemoryBucket) -> None:
    wanted = {second: noise(100_000, second) for second in range(10)}
    bad = store(bucket, {second: body for second, body in wanted.items() if second != 4})
    store(bucket, {second: body for second, body in wanted.items() if second > 3})
    cut_short(bucket, bad)
    found, flaws = read_with_flaws(bucket)
    assert found == list(wanted.values())
    assert [flaw.place for flaw in flaws] == [f"memory/{bad.key}"]
    assert flaws[0].hour == HOUR.start


def test_what_is_damaged_here_may_be_whole_in_another_bucket() -> None:
    here, there = MemoryBucket(name="here"), MemoryBucket(name="there")
    wanted = {second: noise(100_000, second) for second in range(5)}
    cut_short(here, store(here, wanted))
    store(there, wanted)
    found, flaws = read_with_flaws(here, there)
    assert found == list(wanted.values())
    assert [flaw.place.split("/")[0] for flaw in flaws] == ["here"]


def test_without_a_say_in_it_damage_is_an_error_after_all_that_is_good(bucket: MemoryBucket) -> None:
    cut_short(bucket, store(bucket, {second: noise(100_000, second) for second in range(5)}))
    found = []
    with pytest.raises(DamagedArchive) as error:
        for reading in read_span([bucket], FEED):
            found.append(reading.body)
    assert found == [noise(100_000, second) for second in range(len(found))]
    assert 0 < len(found) < 5
    assert "audit" in error.value.hint


def test_an_archive_that_holds_less_than_its_name_says(bucket: MemoryBucket) -> None:
    promised, _ = packed({1: b"a", 2: b"b"})
    _, held = packed({1: b"a"})
    bucket.put(promised.key, held)
    found, flaws = read_with_flaws(bucket)
    assert found == [b"a"]
    assert "name" in flaws[0].reason


def test_a_member_of_another_feed_or_hour_is_not_let_in(bucket: MemoryBucket) -> None:
    right, _ = packed({1: b"a"})
    for feed, hour in (("other", HOUR), (FEED, hours_later(3))):
        _, content = packed({1: b"a"}, feed=feed, hour=hour)
        bucket.put(right.key, content)
        found, flaws = read_with_flaws(bucket)
        assert found == []
        assert len(flaws) == 1


def test_hostile_members_are_never_taken_for_downloads(bucket: MemoryBucket) -> None:
    good = download(1, b"a").name
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name in (f"../{good}", f"/tmp/{good}", "../../evil", good):
            member = tarfile.TarInfo(name)
            member.size = 1
            tar.addfile(member, io.BytesIO(b"a"))
    archive, _ = packed({1: b"a"})
    bucket.put(archive.key, out.getvalue())
    found, _ = read_with_flaws(bucket)
    assert found == [b"a"]


def test_a_listing_that_fails_is_never_an_empty_one(bucket: MemoryBucket) -> None:
    store(bucket, {1: b"a"})
    with pytest.raises(Unreachable):
        bodies(DyingBucket(bucket, at=1, error=lost_reply()))


def test_a_feed_whose_name_starts_like_another(bucket: MemoryBucket) -> None:
    store(bucket, {1: b"a"})
    store(bucket, {1: b"b"}, feed="subway2")
    store(bucket, {1: b"c"}, feed="subway_20261115T08")
    assert bodies(bucket) == [b"a"]
    assert [reading.body for reading in read_span([bucket], "subway_20261115T08")] == [b"c"]


def test_hours_come_in_order_and_keys_of_others_are_passed_over(bucket: MemoryBucket) -> None:
    for later in (30, 0, 7000):
        store(bucket, {1: b"a"}, hour=hours_later(later))
    bucket.put(f"feeds/{FEED}/_damaged/2026/11/15/08/x", b"?")
    bucket.put(f"feeds/{FEED}/2026/11/15/08/notes.txt", b"?")
    bucket.put(f"feeds/{FEED}/2026/README", b"?")
    assert [hour for hour, _ in hours([bucket], FEED, Span())] == [HOUR, hours_later(30), hours_later(7000)]
    assert bodies(bucket) == [b"a"] * 3


def test_times_in_another_zone_mean_the_same_moment(bucket: MemoryBucket) -> None:
    store(bucket, {1: b"a"})
    there = datetime.fromisoformat("2026-11-15T10:00:00+02:00")
    assert there.astimezone(UTC) == HOUR.start
    assert len(list(read_span([bucket], FEED, there, there + timedelta(hours=1)))) == 1
    assert list(read_span([bucket], FEED, there - timedelta(hours=2), there)) == []

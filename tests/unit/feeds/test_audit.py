"""Finding what is wrong with hours, and mending what can be mended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from catchment.bucket.contract import Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Counting
from catchment.feeds.audit import Audit, Finding, Kind, Subject, audit, gaps
from catchment.feeds.hours import Span
from catchment.feeds.names import Archive, Compression
from catchment.feeds.reconcile import Rules
from catchment.feeds.replicate import Place
from catchment.feeds.scratch import scratch
from catchment.feeds.union import read_span
from catchment.testing.dying import DyingBucket, lost_reply
from tests.unit.feeds.stores import FEED, HOUR, Meddling, cut_short, hours_later, noise, packed, store

GZIP = Rules(Compression.GZIP)
PRIMARY = Rules(Compression.GZIP, "primary")


@pytest.fixture
def here() -> MemoryBucket:
    return MemoryBucket(name="here")


@pytest.fixture
def there() -> MemoryBucket:
    return MemoryBucket(name="there")


class Auditor:
    def __init__(self, folder: Path) -> None:
        self._codecs = scratch(folder)

    def __call__(
        self,
        buckets: Mapping[str, Bucket],
        *,
        rules: Rules = GZIP,
        span: Span | None = None,
        fix: bool = False,
        read: bool = True,
        declared: bool = True,
    ) -> Audit:
        places = {id: Place(bucket, rules) for id, bucket in buckets.items()}
        return audit([Subject(FEED, places, declared)], span or Span(), self._codecs, read=read, fix=fix)


@pytest.fixture
def audited(tmp_path: Path) -> Auditor:
    return Auditor(tmp_path)


def kinds(found: Audit) -> list[tuple[Kind, str]]:
    return [(finding.kind, finding.storage) for finding in found.findings]


def held(bucket: Bucket) -> list[bytes]:
    return [reading.body for reading in read_span([bucket], FEED)]


def test_all_is_well(here: MemoryBucket, there: MemoryBucket, audited: Auditor) -> None:
    for later in range(3):
        store(here, {1: b"a"}, hour=hours_later(later))
        store(there, {1: b"a"}, hour=hours_later(later))
    found = audited({"here": here, "there": there})
    assert found == Audit(hours=3, archives=6, findings=())
    assert found.well


def test_an_unmerged_hour(here: MemoryBucket, audited: Auditor) -> None:
    store(here, {1: b"a"})
    store(here, {2: b"b"})
    found = audited({"here": here})
    assert kinds(found) == [(Kind.UNMERGED, "here")]
    assert "2 archives" in found.findings[0].detail
    assert not found.well
    mended = audited({"here": here}, fix=True)
    assert mended.findings == (replace(found.findings[0], mended=True),)
    assert mended.well
    assert len(list(here.list())) == 1
    assert held(here) == [b"a", b"b"]
    assert audited({"here": here}).findings == ()


def test_with_primary_an_hour_without_one_is_unmerged(here: MemoryBucket, audited: Auditor) -> None:
    store(here, {1: b"a"})
    assert kinds(audited({"here": here}, rules=PRIMARY)) == [(Kind.UNMERGED, "here")]
    assert audited({"here": here}, rules=PRIMARY, fix=True).well
    assert [entry.key for entry in here.list()] == [Archive(FEED, HOUR, None, Compression.GZIP).key]


def test_archives_that_came_to_a_deleted_hour(here: MemoryBucket, audited: Auditor) -> None:
    here.put(HOUR.tombstone(FEED), b"{}")
    store(here, {1: b"late"})
    assert kinds(audited({"here": here})) == [(Kind.UNMERGED, "here")]
    assert audited({"here": here}, fix=True).well
    assert [entry.key for entry in here.list()] == [HOUR.tombstone(FEED)]


def test_an_hour_that_a_storage_lacks(here: MemoryBucket, there: MemoryBucket, audited: Auditor) -> None:
    store(here, {1: b"a"})
    found = audited({"here": here, "there": there})
    assert kinds(found) == [(Kind.UNREPLICATED, "there")]
    assert audited({"here": here, "there": there}, fix=True).well
    assert held(there) == [b"a"]


def test_storages_that_each_have_something_else(here: MemoryBucket, there: MemoryBucket, audited: Auditor) -> None:
    store(here, {1: b"a"})
    store(there, {2: b"b"})
    found = audited({"here": here, "there": there})
    assert kinds(found) == [(Kind.UNREPLICATED, "here"), (Kind.UNREPLICATED, "there")]
    assert audited({"here": here, "there": there}, fix=True).well
    assert held(here) == held(there) == [b"a", b"b"]


def test_three_storages_come_to_have_the_same(here: MemoryBucket, there: MemoryBucket, audited: Auditor) -> None:
    third = MemoryBucket(name="third")
    store(here, {1: b"a"})
    store(there, {2: b"b"})
    buckets = {"here": here, "there": there, "third": third}
    assert audited(buckets, fix=True).well
    assert held(here) == held(there) == held(third) == [b"a", b"b"]


def test_an_hour_deleted_in_one_storage_stays_so(here: MemoryBucket, there: MemoryBucket, audited: Auditor) -> None:
    store(here, {1: b"a"})
    there.put(HOUR.tombstone(FEED), b"{}")
    assert audited({"here": here, "there": there}, fix=True).findings == ()
    assert held(there) == []
    assert held(here) == [b"a"]


def test_hours_that_are_missing(here: MemoryBucket, there: MemoryBucket, audited: Auditor) -> None:
    for later in (0, 1, 5):
        store(here, {1: b"a"}, hour=hours_later(later))
    store(there, {1: b"a"}, hour=hours_later(3))
    found = audited({"here": here, "there": there}, fix=True)
    missing = [finding for finding in found.findings if finding.kind is Kind.MISSING]
    assert [(finding.hour, finding.hours, finding.mended) for finding in missing] == [
        (hours_later(2).start, 1, False),
        (hours_later(4).start, 1, False),
    ]
    assert not found.well


def test_a_gap_is_one_finding_however_long() -> None:
    assert gaps(FEED, [hours_later(50), HOUR]) == [
        Finding(Kind.MISSING, FEED, HOUR.next.start, "", gaps(FEED, [HOUR, hours_later(50)])[0].detail, 49)
    ]
    assert gaps(FEED, []) == gaps(FEED, [HOUR]) == gaps(FEED, [HOUR, HOUR.next]) == []


def runs(found: Sequence[Finding]) -> list[tuple[datetime, int]]:
    assert {finding.kind for finding in found} <= {Kind.MISSING}
    return [(finding.hour, finding.hours) for finding in found]


def test_hours_are_expected_up_to_the_end_and_from_the_start_if_there_is_one() -> None:
    there = [hours_later(4), hours_later(6)]
    assert runs(gaps(FEED, there, Span(end=hours_later(5000)))) == [
        (hours_later(5).start, 1),
        (hours_later(7).start, 4993),
    ]
    assert runs(gaps(FEED, there, Span(HOUR, hours_later(7)))) == [(HOUR.start, 4), (hours_later(5).start, 1)]
    assert runs(gaps(FEED, [HOUR], Span(HOUR, HOUR.next))) == []


def test_nothing_at_all_is_one_finding() -> None:
    assert runs(gaps(FEED, [], Span(end=hours_later(9)))) == [(hours_later(8).start, 1)]
    assert runs(gaps(FEED, [], Span(HOUR, hours_later(9)))) == [(HOUR.start, 9)]
    assert runs(gaps(FEED, [], Span(HOUR, HOUR))) == []  # no hour has passed
    assert runs(gaps(FEED, [], Span(HOUR.next, HOUR))) == []


def test_a_collector_that_is_dead(here: MemoryBucket, audited: Auditor) -> None:
    store(here, {1: b"a"})
    span = Span(end=hours_later(10))
    found = audited({"here": here}, span=span)
    assert runs(found.findings) == [(HOUR.next.start, 9)]
    assert not found.well
    assert audited({"here": here}, span=span, declared=False).well  # nobody says that it is still collected


def test_a_feed_that_nothing_is_there_of(here: MemoryBucket, audited: Auditor) -> None:
    span = Span(end=hours_later(10))
    found = audited({"here": here}, span=span)
    assert len(found.findings) == 1
    assert "nothing of it is there" in found.findings[0].detail
    assert not found.well
    assert audited({"here": here}, span=span, declared=False).well


def test_where_no_storage_answers_nothing_is_said_to_be_missing(here: MemoryBucket, audited: Auditor) -> None:
    found = audited({"here": DyingBucket(here, at=1, error=lost_reply())}, span=Span(end=hours_later(10)))
    assert found.findings == ()
    assert len(found.problems) == 1


def test_an_hour_that_was_deleted_is_not_missing(here: MemoryBucket, audited: Auditor) -> None:
    for later in (0, 2):
        store(here, {1: b"a"}, hour=hours_later(later))
    here.put(hours_later(1).tombstone(FEED), b"{}")
    assert audited({"here": here}).findings == ()


def test_a_corrupt_archive_is_mended_from_the_other_storage(
    here: MemoryBucket, there: MemoryBucket, audited: Auditor
) -> None:
    wanted = {second: noise(50_000, second) for second in range(6)}
    for bucket in (here, there):
        archive = store(bucket, wanted)
    cut_short(here, archive)
    found = audited({"here": here, "there": there})
    assert kinds(found) == [(Kind.CORRUPT, "here")]
    assert archive.name in found.findings[0].detail
    assert audited({"here": here, "there": there}, read=False).well  # nothing but reading can tell
    assert audited({"here": here, "there": there}, fix=True).well
    assert held(here) == held(there) == list(wanted.values())
    assert any("/_damaged/" in entry.key for entry in here.list())


def test_a_corrupt_archive_alone_keeps_what_is_good(audited: Auditor) -> None:
    here = MemoryBucket(versions=False)  # so that the whole one is gone
    cut_short(here, store(here, {second: noise(50_000, second) for second in range(6)}))
    found = audited({"here": here}, fix=True)
    assert kinds(found) == [(Kind.CORRUPT, "here")]
    assert found.well
    assert 0 < len(held(here)) < 6
    assert audited({"here": here}).well


def test_an_archive_whose_name_is_not_its_content(here: MemoryBucket, audited: Auditor) -> None:
    promised, _ = packed({1: b"a", 2: b"b"})
    real, content = packed({1: b"a"})
    here.put(promised.key, content)
    assert kinds(audited({"here": here})) == [(Kind.CORRUPT, "here")]
    assert audited({"here": here}, fix=True).well
    assert [entry.key for entry in here.list(f"feeds/{FEED}/2")] == [real.key]


def test_another_compression_is_written_anew_where_that_is_safe(here: MemoryBucket, audited: Auditor) -> None:
    store(here, {1: b"a"}, compression=Compression.ZSTD)
    store(here, {1: b"a"}, compression=Compression.BZIP2, hour=hours_later(1))
    found = audited({"here": here}, fix=True)
    assert [(finding.kind, finding.hour, finding.mended) for finding in found.findings] == [
        (Kind.COMPRESSION, HOUR.start, True),
        (Kind.COMPRESSION, hours_later(1).start, False),  # .bz2 sorts before .gz, and the smaller key is kept
    ]
    assert "stays" in found.findings[1].detail
    assert found.findings[1].note
    assert found.well  # there is nothing that anyone could do about it
    assert [entry.key.rsplit(".", 1)[1] for entry in here.list()] == ["gz", "bz2"]
    assert held(here) == [b"a", b"a"]


def test_another_compression_that_can_be_mended_counts_until_it_is(here: MemoryBucket, audited: Auditor) -> None:
    store(here, {1: b"a"}, compression=Compression.ZSTD)
    found = audited({"here": here})
    assert kinds(found) == [(Kind.COMPRESSION, "here")]
    assert not found.findings[0].note
    assert not found.well


def test_a_primary_archive_stays_in_its_compression(here: MemoryBucket, audited: Auditor) -> None:
    store(here, {1: b"a"}, compression=Compression.ZSTD, primary=True)
    for fix in (False, True):
        found = audited({"here": here}, rules=PRIMARY, fix=fix)
        assert [(finding.kind, finding.note, finding.mended) for finding in found.findings] == [
            (Kind.COMPRESSION, True, False)
        ]
        assert found.well


@pytest.mark.parametrize("primary", [(True, True), (True, False), (False, True)])
def test_primary_archives_that_differ_inside(
    here: MemoryBucket, there: MemoryBucket, audited: Auditor, primary: tuple[bool, bool]
) -> None:
    store(here, {1: b"a", 2: b"b"}, primary=primary[0])
    store(there, {2: b"b", 3: b"c"}, primary=primary[1])
    buckets = {"here": here, "there": there}
    assert kinds(audited(buckets)) == [(Kind.UNREPLICATED, "here"), (Kind.UNREPLICATED, "there")]
    assert audited(buckets, read=False).well  # nothing but reading can tell
    mended = audited(buckets, fix=True)
    assert mended.well, mended
    assert [finding.mended for finding in mended.findings] == [True, True]
    assert held(here) == held(there) == [b"a", b"b", b"c"]
    assert audited(buckets).findings == ()


def test_only_the_storage_that_lacks_something_is_named(
    here: MemoryBucket, there: MemoryBucket, audited: Auditor
) -> None:
    store(here, {1: b"a", 2: b"b"}, primary=True)
    store(there, {1: b"a"}, primary=True)
    assert kinds(audited({"here": here, "there": there}, rules=PRIMARY)) == [(Kind.UNREPLICATED, "there")]
    store(there, {1: b"a", 2: b"b"}, primary=True, compression=Compression.GZIP)
    assert audited({"here": here, "there": there}, rules=PRIMARY).well


def test_what_merging_brings_to_light_is_copied_into_a_primary_archive_too(
    here: MemoryBucket, there: MemoryBucket, audited: Auditor
) -> None:
    store(here, {1: b"a"}, primary=True)
    store(there, {1: b"a"})
    store(there, {2: b"b"})
    assert audited({"here": here, "there": there}, fix=True).well
    assert held(here) == held(there) == [b"a", b"b"]


def test_nobody_says_how_a_feed_that_is_not_declared_is_compressed(here: MemoryBucket, audited: Auditor) -> None:
    store(here, {1: b"a"}, compression=Compression.ZSTD)
    assert audited({"here": here}, declared=False).findings == ()


def test_everything_at_once(here: MemoryBucket, there: MemoryBucket, audited: Auditor) -> None:
    wanted = {second: noise(50_000, second) for second in range(4)}
    cut_short(here, store(here, wanted))
    store(here, {9: b"here"}, compression=Compression.ZSTD)
    store(there, wanted, compression=Compression.XZ)
    store(there, {8: b"there"})
    found = audited({"here": here, "there": there}, fix=True)
    assert found.well, found
    assert {kind for kind, _ in kinds(found)} == {Kind.UNMERGED, Kind.CORRUPT, Kind.COMPRESSION}
    assert held(here) == held(there) == [*wanted.values(), b"there", b"here"]
    assert audited({"here": here, "there": there}).findings == ()


def test_a_storage_that_is_down_is_a_problem_and_hides_nothing(
    here: MemoryBucket, there: MemoryBucket, audited: Auditor
) -> None:
    store(here, {1: b"a"})
    store(here, {2: b"b"})
    down = DyingBucket(there, at=1, error=lost_reply())
    found = audited({"here": here, "there": down})
    assert kinds(found) == [(Kind.UNMERGED, "here")]
    assert len(found.problems) == 1
    assert "there" in found.problems[0]
    assert not found.well


def test_reading_that_fails_is_a_problem_and_no_damage(here: MemoryBucket, audited: Auditor) -> None:
    store(here, {1: b"a"})
    for at in range(2, 4):
        found = audited({"here": DyingBucket(here, at=at, error=lost_reply())})
        assert found.findings == ()
        assert found.archives == 1


def test_an_hour_that_is_merged_while_it_is_read(here: MemoryBucket, audited: Auditor) -> None:
    old = store(here, {1: b"a"})

    def merged_meanwhile(inner: Bucket) -> None:
        store(inner, {1: b"a", 2: b"b"})
        inner.delete(old.key)

    found = audited({"here": Meddling(here, merged_meanwhile)})
    assert found.well


def test_only_the_period_and_listings_are_cheap(here: MemoryBucket, audited: Auditor) -> None:
    for later in range(100):
        store(here, {1: b"a"}, hour=hours_later(later))
    counting = Counting(here)
    found = audited({"here": counting}, read=False, span=Span(hours_later(10), hours_later(40)))
    assert (found.hours, found.archives) == (30, 0)
    assert counting.counts.requests == {"list": 1}

"""Manifests are read in order, whole, by windows; what cannot be read is never left out silently."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Counting
from catchment.errors import BucketError, Unreachable
from catchment.testing.dying import DyingBucket, lost_reply
from catchment.topics import committed
from catchment.topics.committed import Break, Unreadable
from catchment.topics.manifest import Counts, Manifest
from catchment.topics.names import Place, Source
from tests.unit.topics.written import ONE, PLACE, TWO, Lake, healthy


def bounds(found: list[Manifest]) -> list[tuple[str, int, int]]:
    return [(str(one.source), one.first, one.last) for one in found]


def empty(first: int, last: int, source: Source = ONE) -> Manifest:
    size = last - first + 1
    return Manifest("clicks", "id", source, first, last, 1, "f", Counts(size, 0, 0, 0, size))


@pytest.mark.parametrize("workers", [1, 3])
def test_all_of_them_in_order(workers: int) -> None:
    lake = healthy()
    found = list(committed.manifests(lake.bucket, PLACE, workers=workers))
    assert bounds(found) == [(one, *both) for one in "01" for both in ((0, 9), (10, 24), (25, 31))]
    assert bounds(list(committed.manifests(lake.bucket, PLACE, TWO, workers=workers))) == bounds(found)[3:]


@pytest.mark.parametrize(
    "first, last, expected",
    [
        (None, None, [0, 10, 25]),
        (9, 9, [0]),
        (9, 10, [0, 10]),
        (11, 12, [10]),
        (24, None, [10, 25]),
        (None, 10, [0, 10]),
        (31, 99, [25]),
        (32, None, []),
        (0, 0, [0]),
    ],
)
def test_a_window_of_offsets(first: int | None, last: int | None, expected: list[int]) -> None:
    lake = healthy()
    found = list(committed.manifests(lake.bucket, PLACE, ONE, first=first, last=last))
    assert [one.first for one in found] == expected


def test_a_window_reads_no_more_than_it_must() -> None:
    counting = Counting(healthy().bucket)
    list(committed.manifests(counting, PLACE, ONE, first=26, last=27))
    assert dict(counting.counts.requests) == {"list": 1, "read": 1}


def test_many_are_read_in_order_and_whoever_stops_ends_it() -> None:
    lake = Lake()
    for first in range(0, 300, 3):
        lake.publish(empty(first, first + 2))
    found = committed.manifests(lake.bucket, PLACE, workers=4)
    assert next(found).first == 0
    found.close()  # type: ignore[attr-defined]
    every = [one.first for one in committed.manifests(lake.bucket, PLACE, workers=4)]
    assert every == list(range(0, 300, 3))


def test_kafka_partitions_are_in_the_order_of_their_numbers() -> None:
    lake = Lake()
    for partition in (10, 2, 1):
        lake.publish(empty(0, 1, Source(partition)))
    lake.publish(empty(0, 1, Source(1, 1)))
    order = [Source(1), Source(1, 1), Source(2), Source(10)]
    assert committed.sources(lake.bucket, PLACE) == order
    assert [one.source for one in committed.manifests(lake.bucket, PLACE)] == order


def test_what_cannot_be_read_is_named() -> None:
    lake = healthy()
    key = PLACE.commit(ONE, 10)
    lake.bucket.put(key, b"{}")
    with pytest.raises(BucketError, match=key) as caught:
        list(committed.manifests(lake.bucket, PLACE))
    assert caught.value.key == key
    found = list(committed.each(lake.bucket, PLACE))
    assert [one for one in found if isinstance(one, Unreadable)] == [
        Unreadable(key, found[1].why if isinstance(found[1], Unreadable) else "", (ONE, 10))
    ]
    assert len(found) == 6


def test_a_manifest_under_another_ones_name_is_not_believed() -> None:
    lake = healthy()
    body = lake.bucket.get(PLACE.commit(ONE, 10))
    for key in (PLACE.commit(ONE, 32), PLACE.commit(TWO, 10), Place("events", "other").commit(ONE, 10)):
        bucket = MemoryBucket()
        bucket.put(key, body)
        place = Place("events", "other") if "other" in key else PLACE
        with pytest.raises(BucketError, match="manifest of another range"):
            list(committed.manifests(bucket, place))


def test_what_is_not_named_as_a_manifest_is_none() -> None:
    lake = healthy()
    lake.bucket.put(f"{PLACE.commits()}0/notes.txt", b"hello")
    lake.bucket.put(f"{PLACE.commits()}what/00000000000000000000.json", b"hello")
    assert len(list(committed.manifests(lake.bucket, PLACE))) == 6
    strange = [one.key for one in committed.each(lake.bucket, PLACE) if isinstance(one, Unreadable)]
    assert strange == [f"{PLACE.commits()}0/notes.txt", f"{PLACE.commits()}what/00000000000000000000.json"]
    assert committed.sources(lake.bucket, PLACE) == [ONE, TWO]


@pytest.mark.parametrize("workers", [1, 3])
def test_trouble_with_the_bucket_is_no_shorter_answer(workers: int) -> None:
    lake = healthy()
    for at in range(1, 8):
        dying = DyingBucket(lake.bucket, at=at, error=lost_reply())
        with pytest.raises(Unreachable):
            list(committed.each(dying, PLACE, workers=workers))


def test_places() -> None:
    bucket = MemoryBucket()
    assert list(committed.places(bucket)) == []
    Lake(bucket, Place("b", "two")).begin()
    Lake(bucket, Place("b", "one")).publish(replace(empty(0, 1), topic="one"))
    Lake(bucket, Place("a", "three")).begin()
    bucket.put("topics/readme.txt", b"")
    bucket.put("topics/a/readme.txt", b"")
    bucket.put("topics/a/stray/readme.txt", b"")
    bucket.put("feeds/a/b/_export.json", b"{}")
    assert list(committed.places(bucket)) == [Place("a", "three"), Place("b", "one"), Place("b", "two")]


def test_files_and_where() -> None:
    lake = healthy()
    every = list(committed.files(lake.bucket, PLACE))
    assert sum(one.rows for one in every) == 2 * (10 + 10 + 5)
    assert not any("_dead" in one.key for one in every)
    only = list(committed.files(lake.bucket, PLACE, where={"type": "a", "day": ["2026-11-15", "2026-11-17"]}))
    assert {one.folder for one in only} == {"type=a/day=2026-11-15", "type=a/day=2026-11-17"}
    assert all(one.values["type"] == "a" for one in only)
    assert list(committed.files(lake.bucket, PLACE, where={"country": "de"})) == []
    assert {one.first for one in committed.files(lake.bucket, PLACE, ONE, first=26)} == {25}


def test_a_manifest_that_lists_what_is_not_its_exports() -> None:
    lake = healthy()
    manifest = lake.write(32, 33)
    lake.publish(replace(manifest, files=tuple(replace(one, key="topics/other") for one in manifest.files)))
    with pytest.raises(BucketError, match="lists topics/other"):
        list(committed.files(lake.bucket, PLACE))


def test_a_chain_without_breaks() -> None:
    ranges = [empty(10, 19), empty(0, 9), empty(20, 20), empty(5, 9, TWO)]
    assert committed.chain(ranges) == []
    assert committed.chain(ranges, {ONE: 0, TWO: 5}) == []


def test_holes_and_overlaps_of_a_chain() -> None:
    assert committed.chain([empty(0, 9), empty(15, 19)]) == [Break(ONE, 10, 14, False, 0, 15)]
    assert committed.chain([empty(0, 9), empty(8, 19)]) == [Break(ONE, 8, 9, True, 0, 8)]
    assert committed.chain([empty(0, 99), empty(10, 19), empty(100, 100)]) == [Break(ONE, 10, 19, True, 0, 10)]
    assert committed.chain([empty(7, 9)], {ONE: 5}) == [Break(ONE, 5, 6, False, None, 7)]
    assert committed.chain([empty(7, 9)], {TWO: 5}) == []


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=8, unique_by=lambda one: one[0]))
def test_breaks_are_exactly_the_offsets_that_are_not_there_once(ranges: list[tuple[int, int]]) -> None:
    found = committed.chain([empty(first, first + span) for first, span in ranges], {ONE: 0})
    times = [sum(first <= offset <= first + span for first, span in ranges) for offset in range(40)]
    end = max((first + span for first, span in ranges), default=-1)
    none = {offset for one in found if not one.overlap for offset in range(one.first, one.last + 1)}
    two = {offset for one in found if one.overlap for offset in range(one.first, one.last + 1)}
    assert none == {offset for offset in range(end + 1) if times[offset] == 0}
    assert two == {offset for offset in range(end + 1) if times[offset] > 1}

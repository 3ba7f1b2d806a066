"""Locate: every offset of small exports against what is really in their files, and how much is asked of the bucket."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.bucket.contract import ABSENT
from catchment.bucket.wrap import Counting
from catchment.errors import Unreachable
from catchment.testing.dying import DyingBucket
from catchment.topics import identity, offsets
from catchment.topics.locate import Located, State, judge, locate, neighbours, places
from catchment.topics.manifest import Counts, File, Manifest
from catchment.topics.names import Place, Source
from catchment.topics.offsets import Claim
from tests.unit.topics.written import BACKUP, ONE, PLACE, TWO, Lake, folder_at, healthy


def at(lake: Lake, offset: int, partition: int = 0, **how: int) -> Located:
    return locate(lake.bucket, lake.place, partition, offset, **how)


# What became of an offset


def test_every_written_offset_is_in_one_of_the_files_that_are_named() -> None:
    lake = healthy()
    gone = {15: State.FILTERED, **dict.fromkeys((20, 21, 25, 31), State.HOLE)}
    for offset in range(32):
        found = at(lake, offset)
        if offset in gone:
            assert found.state == gone[offset] or not found.certain
            continue
        assert found.state == State.WRITTEN
        folder = "_dead" if offset in (12, 13) else folder_at(offset)[0]
        keys = [one.key for one in found.files]
        assert [key for key in keys if key.startswith(f"{PLACE.prefix}{folder}/")]
        assert len(keys) == 1 or not found.certain
        assert [one.dead for one in found.files if "/_dead/" in one.key] == ([True] if offset in (12, 13) else [])


def test_the_range_is_told() -> None:
    found = at(healthy(), 18, 1)
    assert (found.group, found.topic, found.kafka_partition, found.life, found.offset) == ("events", "clicks", 1, 0, 18)
    assert found.manifest == PLACE.commit(TWO, 10)
    assert (found.first, found.last, found.generation) == (10, 24, 1)


def test_a_backup_holds_an_offset_for_certain() -> None:
    lake = Lake(place=Place("backup", "clicks"), export=BACKUP).begin()
    lake.commit(0, 9, gaps=[4])
    assert [at(lake, offset).certain for offset in range(10)] == [True] * 10
    assert at(lake, 4).state == State.HOLE
    (file,) = at(lake, 5).files
    assert (file.first, file.last, file.rows, file.dead) == (0, 9, 9, False)


def file(first: int, last: int, rows: int) -> File:
    return File(f"topics/g/t/{first}", "e", 10, rows, first, last)


def manifest(
    *files: File,
    dead: tuple[File, ...] = (),
    filtered: int = 0,
    gaps: int = 0,
    holes: tuple[tuple[int, int], ...] | None = (),
) -> Manifest:
    written, set_aside = sum(one.rows for one in files), sum(one.rows for one in dead)
    read = written + set_aside + filtered
    counts = Counts(read, gaps, written, set_aside, filtered)
    return Manifest("t", "id", ONE, 0, read + gaps - 1, 1, "f", counts, files, dead, holes)


@pytest.mark.parametrize(
    ("range", "offset", "state", "keys", "certain"),
    [
        (manifest(file(0, 9, 6), file(3, 6, 4)), 5, State.WRITTEN, [3], True),  # the second has no gaps
        (manifest(file(0, 9, 6), file(1, 8, 4)), 5, State.WRITTEN, [0, 1], False),
        (manifest(file(0, 9, 6), file(1, 8, 4)), 8, State.WRITTEN, [1], True),  # its last one
        (manifest(file(0, 9, 9), filtered=1), 5, State.WRITTEN, [0], False),
        (manifest(file(0, 8, 9), filtered=1), 9, State.FILTERED, [], True),
        (manifest(file(0, 8, 8), dead=(file(5, 5, 1),), gaps=1, holes=((9, 9),)), 5, State.WRITTEN, [5], True),
        (manifest(file(0, 8, 9), gaps=1, holes=((9, 9),)), 9, State.HOLE, [], True),
        (manifest(file(0, 8, 9), gaps=1, holes=None), 9, State.HOLE, [], True),
        (manifest(file(0, 9, 9), gaps=1, holes=None), 5, State.WRITTEN, [0], False),
        (manifest(file(0, 7, 8), filtered=1, gaps=1, holes=None), 9, State.UNTOLD, [], False),
    ],
)
def test_what_a_manifest_says(range: Manifest, offset: int, state: State, keys: list[int], certain: bool) -> None:
    found = judge(range, offset)
    assert (found.state, found.certain) == (state, certain)
    assert [int(one.key.rpartition("/")[2]) for one in found.files] == keys


@given(st.data())
def test_what_is_certain_is_so(data: st.DataObject) -> None:
    """Every offset of a range goes somewhere by chance; what is said of each is compared with where it went."""
    where = data.draw(st.lists(st.sampled_from(["a", "b", "c", "dead", "filtered", "hole"]), min_size=1, max_size=30))
    held = {name: [offset for offset, one in enumerate(where) if one == name] for name in set(where)}
    files = {name: File(name, "e", 1, len(one), one[0], one[-1]) for name, one in held.items()}
    gaps = held.get("hole", [])
    made = manifest(
        *(files[name] for name in "abc" if name in files),
        dead=(files["dead"],) if "dead" in files else (),
        filtered=len(held.get("filtered", [])),
        gaps=len(gaps),
        holes=data.draw(st.sampled_from([None, tuple((one, one) for one in gaps)])),
    )
    for offset, truth in enumerate(where):
        found = judge(made, offset)
        keys = [one.key for one in found.files]
        if truth in ("filtered", "hole"):
            assert not found.certain or (found.state == truth and not keys)
        else:
            assert found.state == State.WRITTEN
            assert keys == [truth] if found.certain else truth in keys


# What is not in a range


def test_what_is_not_committed_says_where_the_export_goes_on() -> None:
    lake = healthy()
    found = at(lake, 40)
    assert (found.state, found.next, found.found) == (State.AWAITED, 32, False)
    lake.hint(ONE, 32, claim=Claim(32, 41, "me-7", 1, "f", error="a disk is full"))
    assert "[32, 41] is claimed by me-7 (a disk is full)" in at(lake, 40).why
    assert "claimed" not in at(lake, 42).why
    lake.bucket.put(PLACE.hint(ONE), b"not json")
    assert at(lake, 40).next == 32


def test_a_kafka_partition_that_came_later_is_awaited_from_its_beginning() -> None:
    assert (at(healthy(), 3, 9).state, at(healthy(), 3, 9).next) == (State.AWAITED, 0)


def test_what_was_before_the_start_was_never_exported() -> None:
    lake = Lake().begin({0: 5, 1: 7})
    assert at(lake, 4).state == State.BEFORE
    assert at(lake, 5).state == State.AWAITED
    lake.commit(5, 9)
    assert at(lake, 4).state == State.BEFORE
    assert "began at offset 5" in at(lake, 4).why
    lake.commit(3, 4)  # added later
    assert at(lake, 3).state == State.WRITTEN
    assert "began at offset 3" in at(lake, 2).why


def test_skipped_offsets_say_why() -> None:
    lake = healthy()
    gone = replace(lake.write(32, 39, gaps=range(32, 40)), skipped="gone over by hand")
    lake.publish(gone)
    assert (at(lake, 35).state, at(lake, 35).why) == (State.SKIPPED, "gone over by hand")


def test_offsets_between_two_ranges_are_lost_and_not_awaited() -> None:
    lake = healthy()
    lake.publish(lake.write(40, 49))
    found = at(lake, 35)
    assert found.state == State.LOST
    assert "from 32 to 39" in found.why


def test_a_manifest_that_cannot_be_read_hides_its_range() -> None:
    lake = healthy()
    lake.bucket.put(PLACE.commit(ONE, 10), b"{}")
    found = at(lake, 12)
    assert (found.state, found.certain, found.manifest) == (State.UNREADABLE, False, PLACE.commit(ONE, 10))
    lake.bucket.put(PLACE.export(), b"{}")
    assert at(lake, 5).state == State.WRITTEN  # the manifests are enough
    assert list(places(lake.bucket, "clicks")) == [PLACE]


def test_a_bucket_that_does_not_answer_is_no_answer() -> None:
    lake = healthy()
    for call in range(1, 5):
        bucket = DyingBucket(lake.bucket, at=call, error=Unreachable("no answer"))
        if call <= 3:
            with pytest.raises(Unreachable):
                locate(bucket, PLACE, 0, 12)
        else:
            assert locate(bucket, PLACE, 0, 12).found


def test_lives_of_a_topic_are_told_apart() -> None:
    lake = Lake().begin()
    lake.commit(0, 9)
    identity.accept_recreated(lake.bucket, PLACE, "id-2", {0: 0}, nonce=lake.nonce)
    found = at(lake, 5)
    assert (found.life, found.state) == (1, State.AWAITED)
    assert "--life 0" in found.why
    assert at(lake, 5, life=0).state == State.WRITTEN
    assert (at(lake, 12, life=0).state, at(lake, 12, life=0).next) == (State.AWAITED, 10)
    assert at(lake, 5, life=7).state == State.BEFORE
    lake.commit(0, 4, Source(0, 1))
    assert at(lake, 3).manifest == PLACE.commit(Source(0, 1), 0)


def test_without_a_record_of_the_export_the_manifests_are_enough() -> None:
    lake = Lake()
    assert at(lake, 0).state == State.BEFORE
    lake.commit(5, 9)
    lake.commit(0, 9, Source(1, 2))
    assert at(lake, 6).state == State.WRITTEN
    assert at(lake, 4).state == State.BEFORE
    assert at(lake, 4, 1).life == 2


def test_the_exports_of_a_topic_are_found_in_every_group() -> None:
    lake = healthy()
    other = Lake(lake.bucket, Place("backup", "clicks"), BACKUP).begin()
    Lake(lake.bucket, Place("else", "views"), BACKUP).begin()
    old = Lake(lake.bucket, Place("old", "clicks"), BACKUP)
    old.commit(0, 3)  # of which no _export.json is left
    assert list(places(lake.bucket, "clicks")) == [other.place, lake.place, old.place]
    assert list(places(lake.bucket, "nothing")) == []


# How the range is found


def named(firsts: list[int]) -> Lake:
    lake = Lake()
    for first in firsts:
        lake.bucket.put(PLACE.commit(ONE, first), b"", when=ABSENT)
    return lake


@given(
    st.sets(st.integers(0, 300), max_size=60).map(sorted),
    st.integers(0, 320),
    st.integers(1, 7),
    st.integers(1, 9),
)
def test_the_ranges_around_an_offset_are_found_by_any_steps(
    firsts: list[int], offset: int, page: int, step: int
) -> None:
    lake = named(firsts)
    lake.bucket.put(f"{PLACE.commits(ONE)}00-note.txt", b"no manifest")
    lake.bucket.put(PLACE.commit(TWO, 0), b"of another Kafka partition")
    cut = bisect_right(firsts, offset)
    before, after = (firsts[cut - 1] if cut else None), (firsts[cut] if cut < len(firsts) else None)
    assert neighbours(lake.bucket, PLACE, ONE, offset, page=page, step=step) == (before, after)


@pytest.mark.parametrize(
    ("firsts", "offset", "most"),
    [
        ([n * 100_000 for n in range(3000)], 150_050_000, 1),  # usual ranges: the first look has it
        ([n * 10_000_000 for n in range(1000)], 5_009_999_999, 2),  # wide ones
        (list(range(20_000)), 15_000, 12),  # a range for each message
        ([0], 10**15, 9),  # nothing for a long time
    ],
)
def test_few_listings_are_needed(firsts: list[int], offset: int, most: int) -> None:
    bucket = Counting(named(firsts).bucket)
    assert neighbours(bucket, PLACE, ONE, offset)[0] == firsts[bisect_right(firsts, offset) - 1]
    assert bucket.counts.requests["list"] <= most


def test_no_file_is_opened_and_one_manifest_is_read() -> None:
    lake = Lake().begin()
    for first in range(0, 500, 10):
        lake.commit(first, first + 9)
    bucket = Counting(lake.bucket)
    assert locate(bucket, PLACE, 0, 250).found
    assert dict(bucket.counts.requests) == {"read": 2, "list": 1}  # _export.json, the names, the manifest
    assert offsets.read_manifest(bucket, PLACE, ONE, 250) is not None

"""From buckets to files."""

from __future__ import annotations

import errno
import os
import tarfile
from itertools import count
from pathlib import Path

import pytest

from catchment.bucket.contract import Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Counting
from catchment.errors import CatchmentError, UsageError
from catchment.feeds.hours import Span
from catchment.feeds.names import Archive, Compression
from catchment.feeds.retrieve import Layout, Progress, Retrieved, retrieve
from catchment.feeds.target import NOTES, Target
from catchment.testing.dying import Died, DyingBucket, lost_reply
from tests.unit.feeds.stores import FEED, HOUR, Meddling, cut_short, download, hours_later, noise, packed, store

ALL = Span()


@pytest.fixture
def bucket() -> MemoryBucket:
    return MemoryBucket()


def tree(target: Path) -> dict[str, bytes]:
    """Every file but the notes."""
    return {
        str(path.relative_to(target)): path.read_bytes()
        for path in sorted(target.rglob("*"))
        if path.is_file() and NOTES not in path.parts
    }


def get(bucket: Bucket, target: Path, *feeds: str, **layout: bool) -> Retrieved:
    return retrieve([bucket], feeds or (FEED,), ALL, Layout(target, **layout))


def test_where_files_go(bucket: MemoryBucket, tmp_path: Path) -> None:
    store(bucket, {1: b"a"})
    store(bucket, {1: b"b"}, hour=hours_later(1))
    store(bucket, {1: b"c"}, feed="bus")
    a, b = download(1, b"a").name, download(1, b"b", hour=hours_later(1)).name
    c = download(1, b"c", feed="bus").name
    eight, nine = "2026/11/15/08", "2026/11/15/09"
    plain = {f"bus/{eight}/{c}": b"c", f"subway/{eight}/{a}": b"a", f"subway/{nine}/{b}": b"b"}
    for number, (layout, wanted) in enumerate(
        (
            ({}, plain),
            ({"collapse_feeds": True}, {f"{eight}/{c}": b"c", f"{eight}/{a}": b"a", f"{nine}/{b}": b"b"}),
            ({"collapse_time": True}, {f"bus/{c}": b"c", f"subway/{a}": b"a", f"subway/{b}": b"b"}),
            ({"collapse_feeds": True, "collapse_time": True}, {c: b"c", a: b"a", b: b"b"}),
        )
    ):
        target = tmp_path / str(number)
        done = get(bucket, target, FEED, "bus", **layout)
        assert tree(target) == wanted
        assert (done.hours, done.kept, done.files, done.bytes, done.problems) == (3, 0, 3, 3, ())


def test_only_the_hours_and_feeds_asked_for(bucket: MemoryBucket, tmp_path: Path) -> None:
    for later in range(4):
        store(bucket, {1: b"%d" % later}, hour=hours_later(later))
        store(bucket, {1: b"bus"}, hour=hours_later(later), feed="bus")
    retrieve([bucket], [FEED], Span(hours_later(1), hours_later(3)), Layout(tmp_path))
    assert sorted(tree(tmp_path).values()) == [b"1", b"2"]


def test_an_hour_that_is_not_reconciled(bucket: MemoryBucket, tmp_path: Path) -> None:
    store(bucket, {1: b"a", 2: b"b"}, compression=Compression.ZSTD)
    store(bucket, {2: b"b", 3: b"c"}, compression=Compression.BZIP2)
    store(bucket, {0: b"z"}, primary=True)
    done = get(bucket, tmp_path)
    assert sorted(tree(tmp_path).values()) == [b"a", b"b", b"c", b"z"]
    assert (done.hours, done.files) == (1, 4)


def test_folding(bucket: MemoryBucket, tmp_path: Path) -> None:
    store(bucket, {1: b"a", 2: b"a", 3: b"b"})
    store(bucket, {1: b"a", 4: b"b"})
    get(bucket, tmp_path, fold=True)
    assert [path.split("/")[-1] for path in tree(tmp_path)] == [download(1, b"a").name, download(3, b"b").name]


def test_the_archive_itself(bucket: MemoryBucket, tmp_path: Path) -> None:
    archive = store(bucket, {1: b"a", 2: b"b"})
    done = get(bucket, tmp_path, extract=False)
    assert tree(tmp_path) == {f"subway/2026/11/15/08/{archive.name}": bucket.get(archive.key)}
    assert done.files == 1


def test_one_archive_even_if_the_hour_is_not_reconciled(bucket: MemoryBucket, tmp_path: Path) -> None:
    store(bucket, {1: b"a"})
    store(bucket, {2: b"b"})
    get(bucket, tmp_path, extract=False, collapse_time=True, collapse_feeds=True)
    whole, _ = packed({1: b"a", 2: b"b"})
    assert list(tree(tmp_path)) == [whole.name]
    with tarfile.open(tmp_path / whole.name) as tar:
        assert tar.getnames() == [download(1, b"a").name, download(2, b"b").name]


def test_folding_archives_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no_extract"):
        Layout(tmp_path, extract=False, fold=True)


@pytest.mark.parametrize("primary", [False, True])
@pytest.mark.parametrize("layout", [{}, {"fold": True}, {"extract": False}, {"collapse_time": True}])
def test_what_is_there_whole_is_not_fetched_again(tmp_path: Path, primary: bool, layout: dict[str, bool]) -> None:
    bucket = Counting(MemoryBucket())
    for later in range(3):
        store(bucket, {1: b"a", 2: b"a", 3: b"c"}, hour=hours_later(later), primary=primary)
    first = get(bucket, tmp_path, **layout)
    before = tree(tmp_path)
    bucket.counts.requests.clear()
    again = get(bucket, tmp_path, **layout)
    assert bucket.counts.requests == {"list": 1}
    assert (again.hours, again.kept, again.files, first.kept) == (3, 3, 0, 0)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("extract", [True, False])
def test_what_was_changed_or_removed_here_is_fetched_again(bucket: MemoryBucket, tmp_path: Path, extract: bool) -> None:
    for later in range(3):
        store(bucket, {1: noise(1000, later), 2: b"b"}, hour=hours_later(later))
    get(bucket, tmp_path, extract=extract)
    before = tree(tmp_path)
    paths = [tmp_path / name for name in before]
    paths[0].unlink()
    paths[-1].write_bytes(paths[-1].read_bytes()[:-1])
    again = get(bucket, tmp_path, extract=extract)
    assert tree(tmp_path) == before
    assert (again.kept, again.files) == (1, 2)


@pytest.mark.parametrize("primary", [False, True])
def test_what_came_to_the_bucket_since_is_fetched(bucket: MemoryBucket, tmp_path: Path, primary: bool) -> None:
    store(bucket, {1: b"a"}, primary=primary)
    get(bucket, tmp_path)
    store(bucket, {1: b"a", 2: b"b"}, primary=primary)
    again = get(bucket, tmp_path)
    assert sorted(tree(tmp_path).values()) == [b"a", b"b"]
    assert (again.kept, again.files) == (0, 1)  # the one that is there is not written again


@pytest.mark.parametrize("layout", [{}, {"collapse_feeds": True, "collapse_time": True}])
def test_an_archive_that_grew_replaces_the_one_that_was_retrieved(
    bucket: MemoryBucket, tmp_path: Path, layout: dict[str, bool]
) -> None:
    old = store(bucket, {1: b"a"})
    store(bucket, {1: b"other"}, hour=hours_later(1))
    store(bucket, {1: b"other"}, feed="bus")
    get(bucket, tmp_path, FEED, "bus", extract=False, **layout)
    others = {name: body for name, body in tree(tmp_path).items() if not name.endswith(old.name)}
    strange, _ = packed({9: b"somebody's own"})
    beside = next(path for path in tmp_path.rglob(old.name)).parent / strange.name
    beside.write_bytes(b"put here by hand")
    new = store(bucket, {1: b"a", 2: b"b"})
    bucket.delete(old.key)
    assert get(bucket, tmp_path, FEED, "bus", extract=False, **layout).problems == ()
    found = tree(tmp_path)
    assert not any(name.endswith(old.name) for name in found)
    assert {name.split("/")[-1] for name in found.keys() - others.keys()} == {new.name, strange.name}
    assert others.items() <= found.items()
    assert get(bucket, tmp_path, FEED, "bus", extract=False, **layout).kept == 3


def test_archives_beside_downloads_take_nothing_of_each_other(bucket: MemoryBucket, tmp_path: Path) -> None:
    archive = store(bucket, {1: b"a"})
    get(bucket, tmp_path, extract=False)
    get(bucket, tmp_path)
    get(bucket, tmp_path, extract=False)
    assert {name.split("/")[-1] for name in tree(tmp_path)} == {archive.name, download(1, b"a").name}


@pytest.mark.parametrize("extract", [True, False])
def test_cut_off_at_any_call_and_run_again(bucket: MemoryBucket, tmp_path: Path, extract: bool) -> None:
    for later in range(3):
        store(bucket, {1: b"a%d" % later, 2: b"b"}, hour=hours_later(later))
        store(bucket, {3: b"c%d" % later}, hour=hours_later(later))
    get(bucket, tmp_path / "clean", extract=extract)
    clean = tree(tmp_path / "clean")
    for at in count(1):
        target = tmp_path / str(at)
        dying = DyingBucket(bucket, at=at)
        try:
            retrieve([dying], [FEED], ALL, Layout(target, extract=extract), workers=1)
        except Died:
            assert set(tree(target).items()) <= set(clean.items())
        get(bucket, target, extract=extract)
        assert tree(target) == clean
        assert list((target / NOTES / "partial").iterdir()) == []
        if dying.calls < at:
            break
    assert at > 3


def test_what_a_killed_process_left_half_written_goes(bucket: MemoryBucket, tmp_path: Path) -> None:
    store(bucket, {1: b"a"})
    left = tmp_path / NOTES / "partial" / "1"
    left.mkdir(parents=True)
    (left / "body").write_bytes(b"half")
    get(bucket, tmp_path)
    assert list(tree(tmp_path).values()) == [b"a"]
    assert not left.exists()


def test_a_corrupt_archive_is_told_and_the_rest_is_done(bucket: MemoryBucket, tmp_path: Path) -> None:
    wanted = {second: noise(50_000, second) for second in range(6)}
    bad = store(bucket, wanted)
    cut_short(bucket, bad)
    store(bucket, {1: b"fine"}, hour=hours_later(1))
    done = get(bucket, tmp_path)
    assert done.hours == 1
    assert [problem.place for problem in done.problems] == [f"memory/{bad.key}"]
    found = [body for body in tree(tmp_path).values() if body != b"fine"]
    assert 0 < len(found) < 6
    assert found == list(wanted.values())[: len(found)]
    assert b"fine" in tree(tmp_path).values()
    # It is not taken for whole: once it has been mended, the rest comes.
    store(bucket, wanted)
    assert get(bucket, tmp_path).problems == ()
    assert len(tree(tmp_path)) == 7


def test_a_corrupt_archive_as_an_archive_is_what_is_good_of_it(bucket: MemoryBucket, tmp_path: Path) -> None:
    bad = store(bucket, {second: noise(50_000, second) for second in range(6)})
    cut_short(bucket, bad)
    done = get(bucket, tmp_path, extract=False, collapse_time=True)
    assert {problem.place for problem in done.problems} == {f"memory/{bad.key}"}
    (name,) = tree(tmp_path / FEED)
    assert name != bad.name
    with tarfile.open(tmp_path / FEED / name) as tar:
        assert 0 < len(tar.getnames()) < 6


def test_an_archive_of_rubbish(bucket: MemoryBucket, tmp_path: Path) -> None:
    bad, _ = packed({1: b"a"})
    bucket.put(bad.key, b"this is not gzip")
    store(bucket, {1: b"fine"}, hour=hours_later(1))
    for extract in (True, False):
        done = get(bucket, tmp_path, extract=extract)
        assert len(done.problems) == 1
        assert done.hours == 1


def test_a_bucket_that_is_down_does_not_hide_what_another_has(bucket: MemoryBucket, tmp_path: Path) -> None:
    store(bucket, {1: b"a"})
    down = DyingBucket(MemoryBucket(name="far"), at=1, error=lost_reply())
    done = retrieve([down, bucket], [FEED], ALL, Layout(tmp_path))
    assert list(tree(tmp_path).values()) == [b"a"]
    assert [problem.place for problem in done.problems] == ["far"]


def test_two_buckets_are_one(tmp_path: Path) -> None:
    here, there = MemoryBucket(name="here"), MemoryBucket(name="there")
    store(here, {1: b"a"})
    store(there, {2: b"b"})
    for extract in (True, False):
        retrieve([here, there], [FEED], ALL, Layout(tmp_path / str(extract), extract=extract))
    assert sorted(tree(tmp_path / "True").values()) == [b"a", b"b"]
    (name,) = tree(tmp_path / "False")
    assert name.endswith(packed({1: b"a", 2: b"b"})[0].name)


@pytest.mark.parametrize("extract", [True, False])
def test_archives_that_are_merged_meanwhile(bucket: MemoryBucket, tmp_path: Path, extract: bool) -> None:
    old = [store(bucket, {1: b"a"}), store(bucket, {2: b"b"})]

    def merged_meanwhile(inner: Bucket) -> None:
        store(inner, {1: b"a", 2: b"b"})
        for archive in old:
            inner.delete(archive.key)

    done = get(Meddling(bucket, merged_meanwhile), tmp_path, extract=extract)
    assert (done.problems, done.hours) == ((), 1)
    assert len(tree(tmp_path)) == (2 if extract else 1)


def test_a_deleted_hour_is_not_retrieved(bucket: MemoryBucket, tmp_path: Path) -> None:
    store(bucket, {1: b"a"})
    bucket.put(HOUR.tombstone(FEED), b"{}")
    done = get(bucket, tmp_path)
    assert (done.hours, tree(tmp_path)) == (0, {})


def test_nothing_is_written_through_a_link_that_leads_out(bucket: MemoryBucket, tmp_path: Path) -> None:
    store(bucket, {1: b"a"})
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.mkdir()
    target.mkdir()
    (target / FEED).symlink_to(outside)
    with pytest.raises(CatchmentError, match="leads out"):
        get(bucket, target, collapse_time=True)
    assert list(outside.iterdir()) == []


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(bucket: MemoryBucket, tmp_path: Path) -> None:
    store(bucket, {1: b"a"})
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    place = tmp_path / "target" / FEED / download(1, b"a").name
    place.parent.mkdir(parents=True)
    place.symlink_to(precious)
    get(bucket, tmp_path / "target", collapse_time=True)
    assert precious.read_bytes() == b"precious"
    assert not place.is_symlink()
    assert place.read_bytes() == b"a"


def test_one_process_at_a_time(bucket: MemoryBucket, tmp_path: Path) -> None:
    with Target(Layout(tmp_path)).owned(), pytest.raises(UsageError, match="another process"):
        get(bucket, tmp_path)


def test_a_target_that_cannot_be_made(bucket: MemoryBucket, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="target_directory"):
        get(bucket, tmp_path / "file" / "below")


def test_a_file_in_the_place_of_a_folder_ends_it_with_a_clear_error(bucket: MemoryBucket, tmp_path: Path) -> None:
    store(bucket, {1: b"a"})
    (tmp_path / FEED).write_bytes(b"a file")
    with pytest.raises(CatchmentError, match=os.strerror(errno.ENOTDIR)):
        get(bucket, tmp_path)


def test_progress_ends_where_it_should(bucket: MemoryBucket, tmp_path: Path) -> None:
    archives = [store(bucket, {1: b"a"}, hour=hours_later(later)) for later in range(3)]
    size = sum(len(bucket.get(archive.key)) for archive in archives)
    seen: list[Progress] = []
    retrieve([bucket], [FEED], ALL, Layout(tmp_path), on_progress=seen.append)
    assert seen[0] == Progress(0, 3, 0, size)
    assert seen[-1] == Progress(3, 3, size, size)
    assert [progress.hours for progress in seen] == [0, 1, 2, 3]


def test_a_feed_named_twice_is_retrieved_once(bucket: MemoryBucket, tmp_path: Path) -> None:
    store(bucket, {1: b"a"})
    assert get(bucket, tmp_path, FEED, FEED).hours == 1


def test_the_name_of_an_archive_is_kept_for_the_primary_one(bucket: MemoryBucket, tmp_path: Path) -> None:
    archive = store(bucket, {1: b"a"}, primary=True)
    get(bucket, tmp_path, extract=False, collapse_time=True)
    assert archive == Archive(FEED, HOUR, None, Compression.GZIP)
    assert list(tree(tmp_path)) == [f"{FEED}/{archive.name}"]

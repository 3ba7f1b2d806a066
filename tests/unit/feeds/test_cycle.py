"""From the workspace to the storages: nothing is lost, nothing is left, and one failure stops nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import count
from pathlib import Path

import pytest

from catchment.bucket.contract import Bucket, Stat
from catchment.bucket.memory import MemoryBucket
from catchment.config import Config, Feed, Storage
from catchment.errors import Unreachable
from catchment.feeds.archive import Member, Packed, read
from catchment.feeds.clean import clean
from catchment.feeds.cycle import WORKERS, Cycle
from catchment.feeds.downloads import Downloads
from catchment.feeds.names import Archive, Compression, Download, Hour, body_hash
from catchment.feeds.tasks import Tasks, standard
from catchment.monitor.history import History
from catchment.monitor.record import Monitor
from catchment.monitor.store import Store
from catchment.testing.clock import FakeClock
from catchment.testing.dying import Died, DyingBucket

EIGHT = datetime(2026, 11, 15, 8, tzinfo=UTC)
NINE = EIGHT + timedelta(hours=1)


def config(*feeds: str, storages: Iterable[str] = ("main",)) -> Config:
    return Config(
        feeds=tuple(Feed(id=feed, url="https://example.com/", periodicity=timedelta(seconds=5)) for feed in feeds),  # type: ignore[arg-type]
        object_storage=tuple(
            Storage(id=name, path=Path(f"/nowhere/{name}"), state=index == 0) for index, name in enumerate(storages)
        ),
    )


class Place:
    """A workspace, its storages, and what is recorded about them."""

    def __init__(self, root: Path, *feeds: str, buckets: Mapping[str, Bucket] | None = None) -> None:
        self.workspace = root / "workspace"
        self.buckets = buckets or {"main": MemoryBucket()}
        self.downloads = Downloads(self.workspace)
        self.clock = FakeClock(NINE + timedelta(seconds=3))
        self.store = Store(root / "monitor.sqlite", clock=self.clock)
        self.config = config(*feeds, storages=self.buckets)

    def land(self, feed: str, seconds: float, body: bytes) -> Path:
        return self.downloads.land(Download(feed, EIGHT + timedelta(seconds=seconds), body_hash(body), ".pb"), body)

    def cycle(self, *, buckets: Mapping[str, Bucket] | None = None, tasks: Tasks | None = None) -> Cycle:
        monitor = Monitor(self.store, clock=self.clock)
        return Cycle(self.config, self.workspace, buckets or self.buckets, monitor, clock=self.clock, tasks=tasks)

    @property
    def tasks(self) -> Tasks:
        return standard(self.workspace / "scratch")

    def files(self) -> list[str]:
        found = (path for path in self.workspace.rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self.workspace)) for path in found)

    def recorded(self, kind: str) -> list[tuple[str, str, str]]:
        events = History(self.store.path).events(kind=kind)
        return [(event.subject, event.outcome, event.note) for event in reversed(events)]


def held(bucket: Bucket, prefix: str = "feeds/") -> dict[str, dict[str, bytes]]:
    """What each archive of a bucket holds."""
    found = {}
    for entry in bucket.list(prefix):
        archive = Archive.parse(entry.key)
        assert archive is not None, entry.key
        members = read(BytesIO(bucket.get(entry.key)), archive.compression)
        found[entry.key] = {one.download.name: one.body for one in members if isinstance(one, Member)}
    return found


def test_an_hour_goes_from_disk_to_one_archive_in_every_storage(tmp_path: Path) -> None:
    place = Place(tmp_path, "subway", buckets={"main": MemoryBucket(), "other": MemoryBucket()})
    paths = [place.land("subway", seconds, b"%d" % seconds) for seconds in (1, 5, 10)]
    expected = {path.name: path.read_bytes() for path in paths}
    report = place.cycle().run_once(NINE)
    assert [len(done) for done in (report.archived, report.uploaded, report.reconciled)] == [1, 2, 2]
    assert report.problems == []
    for bucket in place.buckets.values():
        assert list(held(bucket).values()) == [expected]
    assert place.files() == []
    assert [outcome for kind in ("archive", "upload", "reconcile") for _, outcome, _ in place.recorded(kind)] == [
        "ok"
    ] * 5


def test_only_what_was_fetched_before_the_cut_is_archived(tmp_path: Path) -> None:
    place = Place(tmp_path, "subway")
    place.land("subway", 3599.999, b"old")
    new = place.land("subway", 3600, b"new")
    place.cycle().run_once(NINE)
    assert [list(members.values()) for members in held(place.buckets["main"]).values()] == [[b"old"]]
    assert new.exists()


def test_a_download_that_lands_while_its_hour_is_packed_makes_the_next_archive(tmp_path: Path) -> None:
    place = Place(tmp_path, "subway")
    place.land("subway", 1, b"first")
    tasks = place.tasks

    def pack(files: Iterable[Path], target: Path, *, feed: str, hour: Hour, compression: Compression) -> Packed | None:
        done = tasks.pack(files, target, feed=feed, hour=hour, compression=compression)
        place.land("subway", 2, b"late")
        return done

    cycle = place.cycle(tasks=replace(tasks, pack=pack))
    cycle.run_once(NINE)
    assert len([name for name in place.files() if name.startswith("downloads/")]) == 1
    place.cycle().run_once(NINE)
    assert [sorted(members.values()) for members in held(place.buckets["main"]).values()] == [[b"first", b"late"]]


def test_what_an_earlier_process_left_is_picked_up(tmp_path: Path) -> None:
    place = Place(tmp_path, "subway")
    place.land("subway", 1, b"a")
    kept = place.tasks

    def killed(bucket: Bucket, path: Path) -> Stat:
        raise Died

    with pytest.raises(Died):
        place.cycle(tasks=replace(kept, upload=killed)).run_once(NINE)
    place.land("subway", 2, b"b")
    (place.workspace / "partial").mkdir(exist_ok=True)
    (place.workspace / "partial" / "half").write_bytes(b"x")
    (place.workspace / "archives" / "subway" / ".subway.unfinished").write_bytes(b"x")
    cycle = place.cycle()
    assert cycle.sweep() == 2
    assert clean(cycle).clean
    assert [sorted(members.values()) for members in held(place.buckets["main"]).values()] == [[b"a", b"b"]]
    assert place.files() == []


def test_a_kill_between_packing_and_removing_costs_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path, "subway")
    for seconds in range(3):
        place.land("subway", seconds, b"%d" % seconds)
    tasks = place.tasks

    def pack(files: Iterable[Path], target: Path, *, feed: str, hour: Hour, compression: Compression) -> Packed | None:
        tasks.pack(files, target, feed=feed, hour=hour, compression=compression)
        raise Died

    with pytest.raises(Died):
        place.cycle(tasks=replace(tasks, pack=pack)).run_once(NINE)
    assert clean(place.cycle()).clean
    assert [len(members) for members in held(place.buckets["main"]).values()] == [3]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_any_request_costs_nothing(tmp_path: Path, when: str) -> None:
    for at in count(1):
        place = Place(tmp_path / str(at), "subway", "bus")
        for seconds in range(3):
            place.land("subway", seconds, b"%d" % seconds)
        place.land("bus", 1, b"bus")
        dying = DyingBucket(place.buckets["main"], at=at, when=when)
        with suppress(Died):
            place.cycle(buckets={"main": dying}).run_once(NINE)
        place.land("subway", 10, b"after")
        assert clean(place.cycle()).clean
        found = [sorted(members.values()) for members in held(place.buckets["main"]).values()]
        assert found == [[b"bus"], [b"0", b"1", b"2", b"after"]]
        if dying.calls < at:
            assert at > 5
            break


def test_a_storage_that_is_away_gets_everything_when_it_is_back(tmp_path: Path) -> None:
    class Away(DyingBucket):
        away = True

        def _call(self, operation, key, do):  # type: ignore[no-untyped-def]
            self.calls += 1
            if self.away:
                raise Unreachable("no answer", key=key)
            return do()

    away = Away(MemoryBucket(), at=0)
    feeds = [f"feed-{n}" for n in range(20)]
    place = Place(tmp_path, *feeds, buckets={"main": MemoryBucket(), "other": away})
    for feed in feeds:
        place.land(feed, 1, b"a")
    cycle = place.cycle()
    report = cycle.run_once(NINE)
    assert len(held(place.buckets["main"])) == 20
    assert len(report.problems) == 20
    assert away.calls <= WORKERS  # and not once for every feed
    assert len(cycle.left()) == 20
    away.away = False
    assert cycle.run_once(NINE).well
    assert held(away) == held(place.buckets["main"])
    assert place.files() == []
    outcomes = {outcome for _, outcome, note in place.recorded("upload") if "other" in note}
    assert outcomes == {"failed", "skipped", "ok"}


def test_one_feeds_failure_stops_no_other(tmp_path: Path) -> None:
    place = Place(tmp_path, "a", "b", "c")
    for feed in "abc":
        place.land(feed, 1, feed.encode())
    tasks = place.tasks

    def upload(bucket: Bucket, path: Path) -> Stat:
        if path.name.startswith("b_"):
            raise RuntimeError("something nobody thought of")
        return tasks.upload(bucket, path)

    report = place.cycle(tasks=replace(tasks, upload=upload)).run_once(NINE)
    assert [key.split("/")[1] for key in held(place.buckets["main"])] == ["a", "c"]
    assert len(report.problems) == 1 and "something nobody thought of" in report.problems[0]
    assert [(subject, outcome) for subject, outcome, _ in sorted(place.recorded("upload"))] == [
        ("feeds/a", "ok"),
        ("feeds/b", "failed"),
        ("feeds/c", "ok"),
    ]
    assert clean(place.cycle()).clean
    assert len(held(place.buckets["main"])) == 3


def test_a_damaged_download_is_set_aside_and_the_rest_of_the_hour_goes_on(tmp_path: Path) -> None:
    place = Place(tmp_path, "subway")
    place.land("subway", 1, b"good")
    bad = place.land("subway", 2, b"truncated")
    bad.write_bytes(b"trunc")
    cycle = place.cycle()
    report = cycle.run_once(NINE)
    bucket = place.buckets["main"]
    assert [list(members.values()) for members in held(bucket, "feeds/subway/2026").values()] == [[b"good"]]
    aside = [entry.key for entry in bucket.list("feeds/subway/_damaged/")]
    assert len(aside) == 1 and bad.name in aside[0] and bucket.get(aside[0]) == b"trunc"
    assert place.files() == []
    assert any(bad.name in problem for problem in report.problems)
    assert [outcome for _, outcome, _ in place.recorded("damaged")] == ["failed"]


def test_an_hour_of_nothing_but_damage_is_set_aside_too(tmp_path: Path) -> None:
    place = Place(tmp_path, "subway")
    place.land("subway", 1, b"whole").write_bytes(b"wh")
    cleaned = clean(place.cycle())
    assert cleaned.clean
    assert [entry.key.split("/")[2] for entry in place.buckets["main"].list("feeds/")] == ["_damaged"]


def test_a_download_that_cannot_be_read_now_is_kept_for_later(tmp_path: Path) -> None:
    place = Place(tmp_path, "subway")
    place.land("subway", 1, b"good")
    body = b"behind a dead link for a while"
    path = place.land("subway", 2, body)
    path.unlink()
    os.symlink(path, path)  # a loop: reading fails for every user
    assert not clean(place.cycle()).report.well
    path.unlink()
    path.write_bytes(body)
    assert clean(place.cycle()).clean
    assert [sorted(members.values()) for members in held(place.buckets["main"]).values()] == [[body, b"good"]]


def test_a_feed_that_is_no_longer_declared_is_archived_all_the_same(tmp_path: Path) -> None:
    place = Place(tmp_path, "subway")
    place.land("removed", 1, b"a")
    assert clean(place.cycle()).clean
    assert len(held(place.buckets["main"])) == 1


def test_clean_takes_the_current_hour_too(tmp_path: Path) -> None:
    place = Place(tmp_path, "subway")
    place.land("subway", 3601, b"now")
    cleaned = clean(place.cycle())
    assert cleaned.clean and cleaned.left == ()
    assert len(held(place.buckets["main"])) == 1


def test_clean_says_what_is_left(tmp_path: Path) -> None:
    place = Place(tmp_path, "subway", buckets={"main": DyingBucket(MemoryBucket(), at=1, error=Unreachable("away"))})
    place.land("subway", 1, b"a")
    cleaned = clean(place.cycle())
    assert not cleaned.clean
    assert [path.parent.name for path in cleaned.left] == ["15"]


def test_hours_that_a_dead_replica_left_are_settled_by_another(tmp_path: Path) -> None:
    bucket = MemoryBucket()
    for name, body in (("one", b"a"), ("two", b"b")):
        dead = Place(tmp_path / name, "subway", buckets={"main": bucket})
        dead.land("subway", 1, body)
        cycle = dead.cycle()
        cycle.stopping = lambda: True  # uploads, and never reconciles
        cycle.run_once(NINE)
    assert len(held(bucket)) == 2
    living = Place(tmp_path / "living", "subway", buckets={"main": bucket})
    living.cycle().run_once(NINE, look_back=2)
    assert [sorted(members.values()) for members in held(bucket).values()] == [[b"a", b"b"]]


def test_looking_back_at_settled_hours_is_one_request_for_each_feed(tmp_path: Path) -> None:
    place = Place(tmp_path, "subway", "bus")
    place.land("subway", 1, b"a")
    cycle = place.cycle()
    counting = DyingBucket(place.buckets["main"], at=0)
    cycle = place.cycle(buckets={"main": counting})
    cycle.run_once(NINE)
    counting.log.clear()
    cycle.run_once(NINE, look_back=24)
    assert [line.split()[0] for line in counting.log] == ["list", "list"]


def test_an_hour_that_one_storage_lacks_is_replicated(tmp_path: Path) -> None:
    place = Place(tmp_path, "subway", buckets={"main": MemoryBucket(), "new": MemoryBucket()})
    alone = Place(tmp_path / "before", "subway", buckets={"main": place.buckets["main"]})
    alone.land("subway", 1, b"a")
    alone.cycle().run_once(NINE)
    assert held(place.buckets["new"]) == {}
    place.cycle().run_once(NINE, look_back=2)
    assert held(place.buckets["new"]) == held(place.buckets["main"])
    assert [note for _, _, note in place.recorded("replicate")] == ["20261115T08 from main to new"]

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from catchment import __version__
from catchment.bucket.contract import ANY, Body, Entry, Precondition, Stat, Tags
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Wrapper
from catchment.errors import Unreachable
from catchment.monitor import Beating, Replica, Watch, this_replica
from catchment.testing.clock import FakeClock

MOMENT = datetime(2026, 11, 15, 8, tzinfo=UTC)


class Weather(Wrapper):
    """A bucket out of reach while `down`. `puts` wakes whoever waits for one."""

    def __init__(self) -> None:
        super().__init__(MemoryBucket())
        self.down = False
        self.puts = threading.Semaphore(0)

    def put(self, key: str, body: Body, *, when: Precondition = ANY, tags: Tags | None = None) -> Stat:
        try:
            self._check()
            return super().put(key, body, when=when, tags=tags)
        finally:
            self.puts.release()

    def delete(self, key: str, *, version: str | None = None) -> None:
        self._check()
        super().delete(key, version=version)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[Entry]:
        self._check()
        return super().list(prefix, after=after)

    def _check(self) -> None:
        if self.down:
            raise Unreachable("no answer")


class WithoutEtags(Wrapper):
    """Lists as a local directory does."""

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[Entry]:
        return (entry._replace(etag=None) for entry in super().list(prefix, after=after))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(MOMENT)


@pytest.fixture
def bucket() -> Weather:
    return Weather()


def keys(bucket: Weather) -> list[str]:
    return [entry.key for entry in bucket.list("_catchment/replicas/")]


def test_a_record_says_who_runs_where(bucket: Weather, clock: FakeClock) -> None:
    replica = this_replica("feeds collect", workspace="/data/workspace", interval=5, clock=clock)
    Beating(bucket, replica).refresh()
    (key,) = keys(bucket)
    assert key == f"_catchment/replicas/{replica.id}.json"
    found = json.loads(bucket.get(key))
    assert found == {
        "id": replica.id,
        "host": replica.host,
        "pid": replica.pid,
        "command": "feeds collect",
        "version": __version__,
        "started": "2026-11-15T08:00:00.000Z",
        "beat": 1,
        "interval": 5,
        "workspace": "/data/workspace",
    }
    assert Replica.parse(bucket.get(key)) == replace(replica, beat=1)


def test_ids_are_new_at_each_start() -> None:
    assert this_replica("web").id != this_replica("web").id


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"\xff", b'{"id": "a", "pid": "x"}', b"null"])
def test_what_is_no_record_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="not the record of a replica"):
        Replica.parse(body)


def test_fields_of_a_newer_version_are_ignored(clock: FakeClock) -> None:
    replica = this_replica("web", clock=clock)
    assert Replica.parse(json.dumps(json.loads(replica.body()) | {"colour": "blue"}).encode()) == replica


def test_the_record_is_refreshed_while_the_process_lives_and_removed_when_it_stops(bucket: Weather) -> None:
    with Beating(bucket, this_replica("web", interval=0.01)) as beating:
        for _ in range(4):
            assert bucket.puts.acquire(timeout=30)
        (key,) = keys(bucket)
        assert Replica.parse(bucket.get(key)).beat >= 3
    assert keys(bucket) == []
    assert beating.failures == 0


def test_trouble_with_the_bucket_is_counted_and_logged_once(bucket: Weather, caplog: pytest.LogCaptureFixture) -> None:
    told: list[int] = []
    beating = Beating(bucket, this_replica("web", interval=0.01), on_failure=lambda: told.append(1))
    bucket.down = True
    with beating:
        for _ in range(4):
            assert bucket.puts.acquire(timeout=30)
        assert len(caplog.records) == 1
        bucket.down = False
        for _ in range(2):
            assert bucket.puts.acquire(timeout=30)
        assert len(keys(bucket)) == 1
    assert (beating.failures, len(told)) >= (3, 3)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert keys(bucket) == []


def test_stopping_without_a_bucket_is_no_error(bucket: Weather, caplog: pytest.LogCaptureFixture) -> None:
    with Beating(bucket, this_replica("web", interval=60)):
        bucket.down = True
    bucket.down = False
    assert len(keys(bucket)) == 1
    assert "cannot be removed" in caplog.text


@pytest.mark.parametrize("etags", [True, False])
def test_a_process_is_gone_when_its_record_stays_the_same_for_long_enough(
    bucket: Weather, clock: FakeClock, *, etags: bool
) -> None:
    living = Beating(bucket, this_replica("a", interval=10))
    dead = Beating(bucket, this_replica("b", interval=10))
    living.refresh()
    dead.refresh()
    watch = Watch(bucket if etags else WithoutEtags(bucket), clock=clock)

    def alive() -> set[str]:
        return {seen.replica.command for seen in watch.look() if seen.alive and seen.replica}

    assert alive() == {"a", "b"}
    for _ in range(3):
        clock.advance(10)
        living.refresh()
        assert alive() == {"a", "b"}
    clock.advance(10)
    assert alive() == {"a"}
    assert (watch.gone(dead.replica.id), watch.gone(living.replica.id)) == (True, False)
    dead.refresh()  # it was only slow
    assert alive() == {"a", "b"}


def test_wall_clocks_play_no_part(bucket: Weather, clock: FakeClock) -> None:
    Beating(bucket, this_replica("web", clock=FakeClock(MOMENT - timedelta(days=365)))).refresh()
    watch = Watch(bucket, patience=30, clock=clock)
    watch.look()
    clock.set_wall(MOMENT + timedelta(days=365))
    clock.advance(29)
    assert [(seen.alive, seen.quiet) for seen in watch.look()] == [(True, 29.0)]
    clock.set_wall(MOMENT - timedelta(days=365))
    clock.advance(1)
    assert [(seen.alive, seen.quiet) for seen in watch.look()] == [(False, 30.0)]


def test_a_new_watcher_cannot_tell_yet(bucket: Weather, clock: FakeClock) -> None:
    replica = this_replica("web")
    Beating(bucket, replica).refresh()
    clock.advance(10_000)
    assert not Watch(bucket, clock=clock).gone(replica.id)


def test_who_has_no_record_is_gone(bucket: Weather, clock: FakeClock) -> None:
    assert Watch(bucket, clock=clock).gone("host-1-00000000")


def test_a_failed_look_is_not_taken_for_nobody_there(bucket: Weather, clock: FakeClock) -> None:
    bucket.down = True
    with pytest.raises(Unreachable):
        Watch(bucket, clock=clock).gone("host-1-00000000")


def test_a_record_that_cannot_be_read_is_still_somebody(bucket: Weather, clock: FakeClock) -> None:
    bucket.put("_catchment/replicas/odd.json", b"?")
    bucket.put("_catchment/replicas/readme.txt", b"?")
    watch = Watch(bucket, clock=clock)
    assert [(seen.id, seen.replica, seen.alive) for seen in watch.look()] == [("odd", None, True)]
    clock.advance(1000)
    assert watch.gone("odd")


def test_records_of_the_dead_are_tidied_away_and_the_living_come_back(bucket: Weather, clock: FakeClock) -> None:
    slow = Beating(bucket, this_replica("slow", interval=10))
    slow.refresh()
    watch = Watch(bucket, clock=clock)
    watch.look()
    clock.advance(50)
    assert watch.tidy(quiet=100) == []
    clock.advance(50)
    assert watch.tidy(quiet=100) == [slow.replica.id]
    assert keys(bucket) == []
    slow.refresh()
    assert [seen.alive for seen in watch.look()] == [True]

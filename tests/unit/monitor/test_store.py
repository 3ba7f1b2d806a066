from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from catchment.errors import SetupError
from catchment.monitor import FAILED, OK, SKIPPED, Event, History, Store, Totals, store_path
from catchment.monitor.schema import UPGRADES, upgrade, version
from catchment.monitor.store import REST, SWEEP_SLICE
from catchment.testing.clock import FakeClock

MOMENT = datetime(2026, 11, 15, 8, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return store_path(tmp_path)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(MOMENT)


@pytest.fixture
def store(path: Path, clock: FakeClock) -> Iterator[Store]:
    with closing(Store(path, clock=clock, patience=0.05)) as store:
        yield store


def event(outcome: str = OK, *, second: float = 0, subject: str = "feeds/subway", kind: str = "download") -> Event:
    return Event(MOMENT + timedelta(seconds=second), subject, kind, outcome)


def agree(path: Path) -> int:
    """Check that totals say what the details say; how many events there are."""
    history = History(path)
    events = history.events(limit=10**9)
    for total in history.totals():
        own = [one for one in events if (one.subject, one.kind) == (total.subject, total.kind)]
        durations = [one.duration for one in own if one.duration is not None]
        assert total.count == len(own) == sum(total.outcomes.values())
        assert total.failures == sum(one.outcome == FAILED for one in own)
        assert (total.first, total.last) == (min(one.time for one in own), max(one.time for one in own))
        assert total.timed == len(durations)
        assert total.duration_sum == pytest.approx(sum(durations))
        assert (total.duration_min, total.duration_max) == (min(durations, default=None), max(durations, default=None))
        assert total.last_success == max((one.time for one in own if one.outcome == OK), default=None)
        for name, value in total.numbers.items():
            assert value == pytest.approx(sum(one.numbers.get(name, 0) for one in own))
    assert sum(total.count for total in history.totals()) == len(events)
    return len(events)


def test_totals(store: Store, path: Path) -> None:
    for second, (outcome, duration) in enumerate(
        [(FAILED, 3.0), (OK, 1.0), (SKIPPED, None), (FAILED, 2.0), (FAILED, None)]
    ):
        moment = MOMENT + timedelta(seconds=second)
        assert store.append(Event(moment, "feeds/subway", "download", outcome, duration, {"bytes": 10, outcome: 1}))
    assert History(path).totals() == [
        Totals(
            subject="feeds/subway",
            kind="download",
            count=5,
            failures=3,
            timed=3,
            duration_sum=6.0,
            duration_min=1.0,
            duration_max=3.0,
            first=MOMENT,
            last=MOMENT + timedelta(seconds=4),
            last_success=MOMENT + timedelta(seconds=1),
            errors_in_a_row=2,
            outcomes={FAILED: 3, OK: 1, SKIPPED: 1},
            numbers={"bytes": 50.0, FAILED: 3.0, OK: 1.0, SKIPPED: 1.0},
        )
    ]
    assert History(path).totals()[0].duration_mean == 2.0
    assert agree(path) == 5


@pytest.mark.parametrize(
    ("outcomes", "in_a_row"),
    [
        ([OK], 0),
        ([FAILED], 1),
        ([FAILED, FAILED, OK], 0),
        ([OK, FAILED, SKIPPED, FAILED], 2),
        ([FAILED, "late"], 1),
        ([SKIPPED], 0),
    ],
)
def test_errors_in_a_row(store: Store, path: Path, outcomes: list[str], in_a_row: int) -> None:
    for outcome in outcomes:
        store.append(event(outcome))
    assert History(path).totals()[0].errors_in_a_row == in_a_row


def test_a_clock_that_goes_back_does_not_move_totals_back(store: Store, path: Path) -> None:
    for second in (5, 9, 1):
        store.append(event(second=second))
    (total,) = History(path).totals()
    assert (total.first.second, total.last.second) == (1, 9)
    assert total.last_success == total.last


def test_totals_are_there_again_after_a_restart(path: Path, clock: FakeClock) -> None:
    for _ in range(3):
        with closing(Store(path, clock=clock)) as store:
            store.append(event(FAILED))
    with closing(Store(path, clock=clock)) as store:
        known = store.totals_of("feeds/subway", "download")
        assert known is not None
        assert (known.count, known.errors_in_a_row) == (3, 3)
        assert store.totals_of("feeds/bus", "download") is None


def test_events_can_be_chosen(store: Store, path: Path) -> None:
    for second, (subject, kind, outcome) in enumerate(
        [
            ("feeds/subway", "download", OK),
            ("feeds/subway", "upload", FAILED),
            ("feeds/subway2", "download", OK),
            ("feedsx/a", "download", OK),
        ]
    ):
        store.append(event(outcome, second=second, subject=subject, kind=kind))
    history = History(path)

    def seconds(events: list[Event]) -> list[int]:
        return [one.time.second for one in events]

    assert seconds(history.events()) == [3, 2, 1, 0]
    assert seconds(history.events(limit=2)) == [3, 2]
    assert seconds(history.events(subject="feeds/subway")) == [1, 0]
    assert seconds(history.events(subject="feeds/")) == [2, 1, 0]
    assert seconds(history.events(kind="upload")) == [1]
    assert seconds(history.events(outcome=OK)) == [3, 2, 0]
    assert seconds(history.events(since=MOMENT + timedelta(seconds=2))) == [3, 2]
    assert [total.subject for total in history.totals(subject="feeds/")] == [
        "feeds/subway",
        "feeds/subway",
        "feeds/subway2",
    ]
    assert [total.kind for total in history.totals(subject="feeds/subway", kind="upload")] == ["upload"]


def test_summary(store: Store, path: Path) -> None:
    for second, (outcome, duration) in enumerate([(OK, 9.0), (OK, 1.0), (FAILED, 3.0), (SKIPPED, None)]):
        store.append(Event(MOMENT + timedelta(seconds=second), "feeds/subway", "download", outcome, duration))
    (found,) = History(path).summary(MOMENT + timedelta(seconds=1))
    assert (found.subject, found.kind, found.count, found.failures) == ("feeds/subway", "download", 3, 1)
    assert (found.duration_mean, found.duration_max) == (2.0, 3.0)
    assert (found.last.second, found.outcomes) == (3, {OK: 1, FAILED: 1, SKIPPED: 1})
    assert History(path).summary(MOMENT + timedelta(hours=1)) == []


def test_a_store_that_was_never_begun_has_no_history(tmp_path: Path) -> None:
    history = History(tmp_path / "monitor.sqlite")
    assert (history.events(), history.totals(), history.summary(MOMENT)) == ([], [], [])
    assert list(tmp_path.iterdir()) == []


def test_details_are_swept_and_totals_stay(path: Path, clock: FakeClock) -> None:
    with closing(Store(path, keep=timedelta(hours=1), clock=clock)) as store:
        for _ in range(8):
            store.append(Event(clock.now(), "feeds/subway", "download", OK))
            clock.advance(1200)
    kept = History(path).events()
    assert [one.time for one in kept] == [MOMENT + timedelta(seconds=1200 * number) for number in (7, 6, 5, 4)]
    assert History(path).totals()[0].count == 8


def test_sweeping_is_done_now_and_then(path: Path, clock: FakeClock) -> None:
    with closing(Store(path, clock=clock)) as store:
        for _ in range(3):
            store.append(event())
    clock.advance(7200)
    with closing(Store(path, keep=timedelta(hours=1), clock=clock)) as store:
        store.append(Event(clock.now(), "feeds/bus", "download", OK))
        assert [one.subject for one in History(path).events()] == ["feeds/bus"]
        store.append(event())  # old already when it comes, and it is not time to sweep
        assert [one.subject for one in History(path).events()] == ["feeds/bus", "feeds/subway"]
        clock.advance(181)
        store.append(Event(clock.now(), "feeds/bus", "download", OK))
        assert [one.subject for one in History(path).events()] == ["feeds/bus", "feeds/bus"]


def test_a_great_sweep_is_done_in_slices(path: Path, clock: FakeClock) -> None:
    with closing(Store(path, keep=timedelta(hours=1), clock=clock)) as store:
        with closing(sqlite3.connect(path)) as db, db:
            row = "INSERT INTO event (time, subject, kind, outcome, note) VALUES (0, 'feeds/bus', 'download', 'ok', '')"
            db.executemany(row, [()] * (SWEEP_SLICE + 2))
        left = []
        for _ in range(2):
            store.append(event())
            left.append(len(History(path).events(subject="feeds/bus")))
    assert left == [2, 0]


def test_a_reader_sees_what_is_written_meanwhile(store: Store, path: Path) -> None:
    store.append(event())
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM event").fetchone() == (1,)
        assert store.append(event())  # a reader in the middle of a question does not hold it up
        assert reader.execute("SELECT count(*) FROM event").fetchone() == (1,)
        reader.rollback()
        assert reader.execute("SELECT count(*) FROM event").fetchone() == (2,)


def test_threads_share_a_store(store: Store, path: Path) -> None:
    def work() -> None:
        for _ in range(50):
            store.append(event())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (agree(path), store.dropped) == (200, 0)


WRITER = """
import sys
from pathlib import Path
from catchment.monitor import FAILED, OK, Monitor, Store
monitor = Monitor(Store(Path(sys.argv[1]), patience=30))
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[2])):
    outcome = FAILED if number % 7 == 0 else OK
    monitor.record(f"feeds/f{number % 3}", "download", outcome, duration=number % 5, numbers={"bytes": number})
print("dropped", monitor.store.dropped)
"""


def writer(path: Path, count: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def test_processes_share_a_store(path: Path) -> None:
    writers = [writer(path, 300) for _ in range(3)]
    for process in writers:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    assert [process.communicate(b"go\n")[0] for process in writers] == [b"dropped 0\n"] * 3
    assert agree(path) == 900


def test_a_killed_writer_leaves_whole_records_and_totals_that_agree(path: Path) -> None:
    chance = random.Random(7)
    seen = 0
    for _ in range(5):
        process = writer(path, 10**9)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.stdin.write(b"go\n")
        process.stdin.flush()
        while _count(path) == seen:
            time.sleep(0.005)
        time.sleep(chance.random() / 20)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        found = agree(path)
        assert found > seen
        seen = found
    with closing(Store(path)) as store:
        assert store.append(event())
    assert agree(path) == seen + 1
    assert not list(path.parent.glob("*damaged*"))


def _count(path: Path) -> int:
    return sum(total.count for total in History(path).totals())


FORK = """
import os, sys
from pathlib import Path
from catchment.monitor import OK, Monitor, Store
monitor = Monitor(Store(Path(sys.argv[1])))
monitor.record("feeds/subway", "download", OK)
monitor.store._lock.acquire()  # as if another thread were just writing: in the child nobody will let go of it
child = os.fork()
if child:
    monitor.store._lock.release()
monitor.record("feeds/subway", "download", OK)
if child == 0:
    os._exit(monitor.store.dropped)
sys.exit(os.waitpid(child, 0)[1] or monitor.store.dropped)
"""


def test_a_store_goes_on_in_a_forked_process(path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORK, str(path)], check=True, timeout=60)
    assert agree(path) == 3


def test_a_lock_that_is_not_let_go_of_costs_records_and_not_the_work(
    store: Store, path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert not store.append(event())
        assert not store.append(event())
        clock.advance(REST)
        assert not store.append(event())
        other.execute("ROLLBACK")
    assert not store.append(event())  # still resting
    clock.advance(REST)
    assert store.append(event())
    assert (store.dropped, agree(path)) == (4, 1)
    begun, ended = [record.getMessage() for record in caplog.records]
    assert "records are dropped" in begun
    assert "4 records were dropped" in ended


def garbage(path: Path) -> None:
    path.write_bytes(os.urandom(20_000))


def broken_pages(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)


@pytest.mark.parametrize("harm", [garbage, broken_pages])
@pytest.mark.parametrize("when", ["at start", "while open"])
def test_a_damaged_file_is_set_aside(
    path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture, harm: Callable[[Path], None], when: str
) -> None:
    store = Store(path, clock=clock)
    for second in range(50):
        store.append(event(second=second))
    store.close()
    if when == "while open":
        store = Store(path, clock=clock)
    harm(path)
    damaged = path.read_bytes()
    if when == "at start":
        store = Store(path, clock=clock)
    with closing(store):
        assert store.append(event(second=99))
    assert [one.time.second for one in History(path).events(since=MOMENT + timedelta(seconds=60))] == [39]
    assert agree(path) == 1
    (aside,) = path.parent.glob("monitor.sqlite.damaged-*[0-9a-f]")
    assert aside.read_bytes() == damaged
    assert store.dropped == 0
    (said,) = [record.getMessage() for record in caplog.records]
    assert aside.name in said


def test_of_two_that_meet_the_damage_one_sets_the_file_aside(path: Path, clock: FakeClock) -> None:
    with closing(Store(path, clock=clock)) as one, closing(Store(path, clock=clock)) as other:
        one.append(event())
        other.append(event())
        one.close()
        other.close()
        garbage(path)
        assert one.append(event())
        # What the other would do had its write failed just before the first renamed the file.
        other._set_aside(sqlite3.DatabaseError("file is not a database"))
        assert other.append(event())
    assert agree(path) == 2
    assert len(list(path.parent.glob("monitor.sqlite.damaged-*[0-9a-f]"))) == 1


def test_an_event_that_can_only_half_be_written_is_not(store: Store, path: Path, clock: FakeClock) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TRIGGER harm BEFORE INSERT ON total_outcome BEGIN SELECT RAISE(ABORT, 'no'); END")
        assert not store.append(event())
        assert agree(path) == 0
        db.execute("DROP TRIGGER harm")
    clock.advance(REST)
    assert store.append(event())
    assert agree(path) == 1


def test_a_second_process_goes_over_to_the_new_file(path: Path, clock: FakeClock) -> None:
    with closing(Store(path, clock=clock)) as one, closing(Store(path, clock=clock)) as other:
        one.append(event())
        other.append(event())
        path.rename(path.with_name("moved"))
        assert one.append(event())
        assert other.append(event())
    assert agree(path) == 2


def test_a_removed_file_is_begun_anew(store: Store, path: Path) -> None:
    store.append(event())
    path.unlink()
    assert store.append(event())
    assert (agree(path), store.dropped) == (1, 0)


def test_the_log_of_a_removed_file_is_not_played_into_the_new_one(store: Store, path: Path, clock: FakeClock) -> None:
    store.append(event())
    left = path.with_name("monitor.sqlite-wal")
    content = left.read_bytes()
    assert content
    store.close()
    path.unlink()
    left.write_bytes(content)
    with closing(Store(path, clock=clock)) as new:
        assert new.append(event(second=7))
    assert [one.time.second for one in History(path).events()] == [7]


FULL = """
import resource, sys
from pathlib import Path
from datetime import timedelta
from catchment.monitor import OK, Monitor, Store
from catchment.testing.clock import FakeClock
clock = FakeClock()
store = Store(Path(sys.argv[1]), clock=clock)
monitor = Monitor(store, clock=clock)
def fill(count):
    for _ in range(count):
        monitor.record("feeds/subway", "download", OK, note="x" * 1000)
        clock.advance(60)
fill(20)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
fill(300)
lost = store.dropped
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
fill(20)
print(lost > 0, store.dropped == lost, 340 - lost)
"""


def test_a_full_disk_costs_records_and_not_the_work(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=True)
    lost_some, lost_no_more, kept = done.stdout.split()
    assert (lost_some, lost_no_more, int(kept)) == ("True", "True", agree(path))


def test_a_newer_store_is_refused_with_a_next_step(path: Path, store: Store) -> None:
    store.append(event())
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    for use in (lambda: Store(path), lambda: History(path).events()):
        with pytest.raises(SetupError, match=r"newer Catchment.*upgrade Catchment, or move the file"):
            use()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM event").fetchone() == (1,)


def test_an_older_store_is_upgraded_whole_or_not_at_all(path: Path, store: Store) -> None:
    store.append(event())
    newer = (*UPGRADES, ("ALTER TABLE event ADD COLUMN host TEXT", "CREATE TABLE extra (x)"))
    broken = (*UPGRADES, ("ALTER TABLE event ADD COLUMN host TEXT", "CREATE TABLE event (x)"))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        with pytest.raises(sqlite3.OperationalError):
            upgrade(db, path, broken)
        assert version(db, path) == len(UPGRADES)
        upgrade(db, path, newer)
        upgrade(db, path, newer)
        assert version(db, path, newer) == len(newer)
        assert db.execute("SELECT subject, host FROM event").fetchall() == [("feeds/subway", None)]

"""What happened, kept in `<workspace>/logs/monitor.sqlite`.

Several processes may write to it and others read it meanwhile (`History`). An event and the totals that count it are
one transaction, so they agree however a process ends. Details older than `keep` are swept now and then; totals stay.

The store never stops the work. A file that is damaged is set aside and a new one begun; a full disk, a lock that is
not let go of or a folder that cannot be written to cost records, which are counted, and the log tells when that begins
and ends.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from catchment.clock import SYSTEM, Clock
from catchment.errors import SetupError
from catchment.monitor.event import FAILED, OK, Event
from catchment.monitor.history import History, Totals, stored
from catchment.monitor.schema import connect_to_write

log = logging.getLogger(__name__)

PATIENCE = 2.0  # seconds to wait for another process's lock before a record is dropped
REST = 10.0  # seconds without trying after a drop: a store in trouble must not slow the work down
SWEEP_SLICE = 5_000  # rows removed at once, so that a sweep never holds the lock for long
LOGS = ("-wal", "-shm")  # what SQLite keeps beside the file
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

# Connections that a fork left us with. SQLite forbids to use them here, or even to close them.
_inherited: list[sqlite3.Connection] = []

_EVENT = "INSERT INTO event (time, subject, kind, outcome, duration, numbers, note) VALUES (?, ?, ?, ?, ?, ?, ?)"
_TOTAL = """
INSERT INTO total VALUES (:subject, :kind, 1, :failed, :timed, :seconds, :duration, :duration, :time, :time,
    CASE WHEN :succeeded THEN :time END, :failed)
ON CONFLICT DO UPDATE SET
    count = count + 1,
    failures = failures + :failed,
    timed = timed + :timed,
    duration_sum = duration_sum + :seconds,
    duration_min = min(coalesce(duration_min, :duration), coalesce(:duration, duration_min)),
    duration_max = max(coalesce(duration_max, :duration), coalesce(:duration, duration_max)),
    first = min(first, :time),
    last = max(last, :time),
    last_success = CASE WHEN :succeeded THEN max(coalesce(last_success, :time), :time) ELSE last_success END,
    errors_in_a_row = CASE WHEN :succeeded THEN 0 ELSE errors_in_a_row + :failed END
"""
_OUTCOME = "INSERT INTO total_outcome VALUES (?, ?, ?, 1) ON CONFLICT DO UPDATE SET count = count + 1"
_NUMBER = "INSERT INTO total_number VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET sum = sum + excluded.sum"
_SWEEP = "DELETE FROM event WHERE id IN (SELECT id FROM event WHERE time < ? ORDER BY time LIMIT ?)"


def store_path(workspace: Path) -> Path:
    """Where a workspace has its store."""
    return workspace / "logs" / "monitor.sqlite"


class Store:
    """The writing side. Safe to use from threads, and after a fork."""

    def __init__(
        self, path: Path, *, keep: timedelta | None = None, clock: Clock = SYSTEM, patience: float = PATIENCE
    ) -> None:
        """Open the store, or begin it. SetupError if a newer Catchment wrote it; any other trouble is met later.

        `keep` is how long details are kept; None means for good.
        """
        self.path = path
        self.dropped = 0  # records that could not be stored, by this process
        self._keep = keep
        self._clock = clock
        self._patience = patience
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and inode of the file that is open
        self._pid = os.getpid()
        self._trouble = ""
        self._rest_until = 0.0
        self._sweep_at = clock.monotonic()
        self._history = History(path)
        try:
            self._connected()
        except (sqlite3.Error, OSError) as error:
            self._met(error)

    def append(self, event: Event) -> bool:
        """Keep this event; whether that worked. Never raises for trouble with the store."""
        self._after_fork()
        with self._lock:
            if self._trouble and self._clock.monotonic() < self._rest_until:
                self.dropped += 1
                return False
            for last in (False, True):
                try:
                    self._write(self._connected(), event)
                except (sqlite3.Error, OSError, SetupError) as error:
                    # A damaged file is set aside, so the same record has a good chance on the new one.
                    if self._met(error) and not last:
                        continue
                    self.dropped += 1
                    return False
                self._recovered()
                return True
            raise AssertionError("unreachable")

    def totals_of(self, subject: str, kind: str) -> Totals | None:
        """The all-time totals of one subject and kind, if they can be read."""
        try:
            found = self._history.totals(subject=subject, kind=kind)
        except (sqlite3.Error, OSError, SetupError):
            return None
        return found[0] if found else None

    def close(self) -> None:
        """Let go of the file. Calling it twice is fine; a later `append` opens it again."""
        self._after_fork()
        with self._lock:
            self._disconnect()

    def _connected(self) -> sqlite3.Connection:
        """The connection, made anew when the file at our path is no longer the one we have open."""
        if self._db is not None and _identity(self.path) != self._file:
            self._disconnect()  # set aside by another process, or removed by a person
        if self._db is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._alone():
                self._file = _identity(self.path)  # known before a damaged file can fail to open
                self._db = connect_to_write(self.path, patience=self._patience)
                self._file = _identity(self.path)
        return self._db

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process opens the store or sets it aside meanwhile. BlockingIOError if one takes too long to."""
        with _beside(self.path, ".lock").open("w") as lock:
            end = self._clock.monotonic() + self._patience
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if self._clock.monotonic() >= end:
                        raise
                    self._clock.sleep(0.01)
            yield

    def _after_fork(self) -> None:
        """In a child process, begin anew: neither the lock nor the connection of the parent is ours."""
        if self._pid != os.getpid():
            if self._db is not None:
                _inherited.append(self._db)
            self._db, self._pid, self._lock = None, os.getpid(), threading.Lock()

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def _write(self, db: sqlite3.Connection, event: Event) -> None:
        time = stored(event.time)
        numbers = json.dumps(dict(event.numbers), separators=(",", ":")) if event.numbers else None
        names = (event.subject, event.kind)
        db.execute("BEGIN IMMEDIATE")
        try:
            db.execute(_EVENT, (time, *names, event.outcome, event.duration, numbers, event.note))
            db.execute(
                _TOTAL,
                {
                    "subject": event.subject,
                    "kind": event.kind,
                    "time": time,
                    "failed": int(event.outcome == FAILED),
                    "succeeded": int(event.outcome == OK),
                    "timed": int(event.duration is not None),
                    "seconds": event.duration or 0.0,
                    "duration": event.duration,
                },
            )
            db.execute(_OUTCOME, (*names, event.outcome))
            if event.numbers:
                db.executemany(_NUMBER, [(*names, name, value) for name, value in event.numbers.items()])
            self._sweep(db)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _sweep(self, db: sqlite3.Connection) -> None:
        """Remove a slice of what is older than `keep`, if it is time; the rest follows with the next records."""
        if self._keep is None or self._clock.monotonic() < self._sweep_at:
            return
        oldest = stored(self._clock.now() - self._keep)
        if db.execute(_SWEEP, (oldest, SWEEP_SLICE)).rowcount < SWEEP_SLICE:
            seconds = self._keep.total_seconds()
            self._sweep_at = self._clock.monotonic() + min(max(seconds / 20, 1.0), 3600.0)

    def _met(self, error: Exception) -> bool:
        """Deal with trouble. True if it is worth trying again at once."""
        damaged = isinstance(error, sqlite3.Error) and (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _DAMAGED
        if damaged:
            try:
                self._set_aside(error)
                return True
            except OSError as failure:
                error = failure
        if not self._trouble:
            log.error("%s cannot be written to (%s); records are dropped until it can", self.path, error)
        self._trouble = str(error) or type(error).__name__
        self._rest_until = self._clock.monotonic() + REST
        return False

    def _recovered(self) -> None:
        if self._trouble:
            log.warning("%s can be written to again; %d records were dropped so far", self.path, self.dropped)
            self._trouble = ""

    def _set_aside(self, error: Exception) -> None:
        """Rename the damaged file, unless another process has done so: then the file there is a new and good one."""
        ours = self._file
        self._disconnect()
        with self._alone():
            if _identity(self.path) != ours:
                return
            stamp = self._clock.now().strftime("%Y%m%dT%H%M%S")
            aside = _beside(self.path, f".damaged-{stamp}-{os.getpid()}-{os.urandom(2).hex()}")
            for end in (*LOGS, ""):  # the log of a damaged file must never be played into the new one
                part = _beside(self.path, end)
                if part.exists():
                    part.rename(_beside(aside, end))
        log.error("%s is damaged (%s); set aside as %s, and a new one begun", self.path, error, aside.name)


def _beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino

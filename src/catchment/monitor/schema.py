"""The tables of the monitor's store, and how an older store becomes a current one."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from catchment.errors import SetupError

# Each entry takes a store from the version that is its index to the next. Never change one that was released: add one.
UPGRADES: tuple[tuple[str, ...], ...] = (
    (
        # Times are whole microseconds since 1970 in UTC: exact, and quick to compare.
        """CREATE TABLE event (
            id INTEGER PRIMARY KEY,
            time INTEGER NOT NULL,
            subject TEXT NOT NULL,
            kind TEXT NOT NULL,
            outcome TEXT NOT NULL,
            duration REAL,
            numbers TEXT,
            note TEXT NOT NULL
        )""",
        "CREATE INDEX event_time ON event (time)",
        "CREATE INDEX event_subject ON event (subject, kind, time)",
        # All-time totals: never swept, and written in the transaction of the event that they count.
        """CREATE TABLE total (
            subject TEXT NOT NULL,
            kind TEXT NOT NULL,
            count INTEGER NOT NULL,
            failures INTEGER NOT NULL,
            timed INTEGER NOT NULL,
            duration_sum REAL NOT NULL,
            duration_min REAL,
            duration_max REAL,
            first INTEGER NOT NULL,
            last INTEGER NOT NULL,
            last_success INTEGER,
            errors_in_a_row INTEGER NOT NULL,
            PRIMARY KEY (subject, kind)
        ) WITHOUT ROWID""",
        """CREATE TABLE total_outcome (
            subject TEXT NOT NULL,
            kind TEXT NOT NULL,
            outcome TEXT NOT NULL,
            count INTEGER NOT NULL,
            PRIMARY KEY (subject, kind, outcome)
        ) WITHOUT ROWID""",
        """CREATE TABLE total_number (
            subject TEXT NOT NULL,
            kind TEXT NOT NULL,
            name TEXT NOT NULL,
            sum REAL NOT NULL,
            PRIMARY KEY (subject, kind, name)
        ) WITHOUT ROWID""",
    ),
)


def connect_to_read(path: Path, *, patience: float) -> sqlite3.Connection:
    """A connection for questions, which waits up to `patience` seconds for other processes."""
    db = sqlite3.connect(path, timeout=patience, isolation_level=None)
    db.execute("PRAGMA query_only = 1")
    return db


def connect_to_write(path: Path, *, patience: float) -> sqlite3.Connection:
    """A connection to a current store. Creates the file, or upgrades it, if need be; the caller sees to it that no two
    processes do so at once, since SQLite does not wait for a lock when it changes the journal's mode.
    """
    # Transactions are begun and ended by hand; the caller keeps threads apart.
    db = sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)
    try:
        # Readers go on while one writes. A killed process loses nothing; a machine that loses power, the last moments.
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA journal_size_limit = 16777216")
        upgrade(db, path)
    except BaseException:
        db.close()
        raise
    return db


def upgrade(db: sqlite3.Connection, path: Path, upgrades: Sequence[Sequence[str]] = UPGRADES) -> None:
    """Bring the store to the current version, whole or not at all. SetupError if a newer Catchment wrote it."""
    if version(db, path, upgrades) == len(upgrades):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        # Looked up again: another process may have been quicker.
        for step in upgrades[version(db, path, upgrades) :]:
            for statement in step:
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {len(upgrades)}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def version(db: sqlite3.Connection, path: Path, upgrades: Sequence[Sequence[str]] = UPGRADES) -> int:
    """The store's version; 0 for a new file. SetupError if it is newer than this Catchment."""
    found = int(db.execute("PRAGMA user_version").fetchone()[0])
    if found > len(upgrades):
        raise SetupError(
            f"{path} was written by a newer Catchment (its version is {found}; this one knows {len(upgrades)})",
            hint="upgrade Catchment, or move the file away to begin a new one",
        )
    return found

"""Reading what happened, in any process, also while others write it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from catchment.monitor.event import Event
from catchment.monitor.schema import UPGRADES, connect_to_read, version

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Totals:
    """All that ever happened of one kind to one subject. Sweeping details does not change it."""

    subject: str
    kind: str
    count: int
    failures: int
    timed: int  # how many of them had a duration
    duration_sum: float
    duration_min: float | None  # None: none had a duration
    duration_max: float | None
    first: datetime
    last: datetime
    last_success: datetime | None
    errors_in_a_row: int  # failures since the last success
    outcomes: Mapping[str, int]
    numbers: Mapping[str, float]  # summed

    @property
    def duration_mean(self) -> float | None:
        return self.duration_sum / self.timed if self.timed else None


@dataclass(frozen=True)
class Summary:
    """What happened of one kind to one subject since some moment, as far as the details reach back."""

    subject: str
    kind: str
    count: int
    failures: int
    duration_mean: float | None
    duration_max: float | None
    last: datetime
    outcomes: Mapping[str, int]


class History:
    """Questions to a store. A store that was never begun has no history; one that cannot be read raises sqlite3.Error
    (or SetupError, if a newer Catchment wrote it).

    `subject` is a whole subject, or all below one if it ends in a slash: `feeds/subway`, `feeds/`.
    """

    def __init__(self, path: Path, *, patience: float = 5.0) -> None:
        self.path = path
        self._patience = patience

    def events(
        self,
        *,
        subject: str | None = None,
        kind: str | None = None,
        outcome: str | None = None,
        since: datetime | None = None,
        limit: int = 1000,
    ) -> list[Event]:
        """The newest events, newest first."""
        where, values = _where(subject, kind, outcome, since)
        query = f"SELECT time, subject, kind, outcome, duration, numbers, note FROM event {where}"
        with self._open() as db:
            rows = db.execute(f"{query} ORDER BY time DESC, id DESC LIMIT ?", (*values, limit)).fetchall() if db else []
        return [
            Event(_moment(time), about, did, ended, duration, json.loads(numbers) if numbers else {}, note)
            for time, about, did, ended, duration, numbers, note in rows
        ]

    def totals(self, *, subject: str | None = None, kind: str | None = None) -> list[Totals]:
        """All-time totals, by subject and kind."""
        where, values = _where(subject, kind)
        with self._open() as db:
            if db is None:
                return []
            db.execute("BEGIN")  # the three tables as of one moment
            rows = db.execute(f"SELECT * FROM total {where} ORDER BY subject, kind", values).fetchall()
            outcomes = _grouped(db.execute(f"SELECT subject, kind, outcome, count FROM total_outcome {where}", values))
            numbers = _grouped(db.execute(f"SELECT subject, kind, name, sum FROM total_number {where}", values))
        return [
            Totals(
                subject=about,
                kind=did,
                count=count,
                failures=failures,
                timed=timed,
                duration_sum=total,
                duration_min=least,
                duration_max=most,
                first=_moment(first),
                last=_moment(last),
                last_success=None if success is None else _moment(success),
                errors_in_a_row=in_a_row,
                outcomes={name: int(times) for name, times in outcomes.get((about, did), {}).items()},
                numbers=numbers.get((about, did), {}),
            )
            for about, did, count, failures, timed, total, least, most, first, last, success, in_a_row in rows
        ]

    def summary(self, since: datetime) -> list[Summary]:
        """What happened since then, by subject and kind."""
        query = """
            SELECT subject, kind, outcome, count(*), count(duration), sum(duration), max(duration), max(time),
                sum(outcome = 'failed')
            FROM event WHERE time >= ? GROUP BY subject, kind, outcome ORDER BY subject, kind, outcome
        """
        with self._open() as db:
            rows = db.execute(query, (stored(since),)).fetchall() if db else []
        grouped: dict[tuple[str, str], list[tuple[str, int, int, float | None, float | None, int, int]]] = {}
        for about, did, *rest in rows:
            grouped.setdefault((about, did), []).append(tuple(rest))
        return [_summed(about, did, parts) for (about, did), parts in grouped.items()]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection | None]:
        """A connection for one question: short, so that nothing stands in the way of writers or of a file set aside."""
        if not self.path.exists():
            yield None
            return
        with closing(connect_to_read(self.path, patience=self._patience)) as db:
            # A store that is being begun has no tables yet, and so no history.
            yield db if version(db, self.path) == len(UPGRADES) else None


def _where(
    subject: str | None, kind: str | None, outcome: str | None = None, since: datetime | None = None
) -> tuple[str, list[str | int]]:
    terms: list[str] = []
    values: list[str | int] = []
    if subject is not None and subject.endswith("/"):
        terms.append("subject >= ? AND subject < ?")
        values += [subject, subject[:-1] + "0"]  # 0 is the character after the slash
    elif subject is not None:
        terms.append("subject = ?")
        values.append(subject)
    for column, value in (("kind", kind), ("outcome", outcome)):
        if value is not None:
            terms.append(f"{column} = ?")
            values.append(value)
    if since is not None:
        terms.append("time >= ?")
        values.append(stored(since))
    return ("WHERE " + " AND ".join(terms) if terms else ""), values


def _grouped(rows: sqlite3.Cursor) -> dict[tuple[str, str], dict[str, float]]:
    found: dict[tuple[str, str], dict[str, float]] = {}
    for about, did, name, value in rows:
        found.setdefault((about, did), {})[name] = value
    return found


def _summed(about: str, did: str, parts: list[tuple[str, int, int, float | None, float | None, int, int]]) -> Summary:
    timed = sum(part[2] for part in parts)
    longest = [part[4] for part in parts if part[4] is not None]
    return Summary(
        subject=about,
        kind=did,
        count=sum(part[1] for part in parts),
        failures=sum(part[6] for part in parts),
        duration_mean=sum(part[3] or 0.0 for part in parts) / timed if timed else None,
        duration_max=max(longest, default=None),
        last=_moment(max(part[5] for part in parts)),
        outcomes={part[0]: part[1] for part in parts},
    )


def _moment(stored: int) -> datetime:
    return EPOCH + timedelta(microseconds=stored)


def stored(moment: datetime) -> int:
    """A moment as the store keeps it: whole microseconds since 1970, in UTC."""
    return (moment - EPOCH) // timedelta(microseconds=1)

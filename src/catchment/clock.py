"""The only reader of time. Everything that waits or stamps takes a Clock, so a test can own time."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time for names and people, monotonic time for waiting and for judging who is alive."""

    def now(self) -> datetime:
        """The wall clock, always in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back. Only differences mean anything, and only within this process."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait. Zero or less returns at once."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)


SYSTEM: Clock = SystemClock()


def isoformat(moment: datetime) -> str:
    """A moment as text that sorts: 2026-11-15T08:00:00.000Z."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"

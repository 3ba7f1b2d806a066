"""A clock that a test owns."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """Time that stands still until it is moved. Sleeping moves it, at once, so nothing ever really waits."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start
        self._monotonic = 0.0
        self._lock = threading.Lock()
        self.slept: list[float] = []  # every sleep that was asked for, in order

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if seconds > 0:
            self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass, on both clocks."""
        if seconds < 0:
            raise ValueError("time does not go back; use set_wall for a wall clock that does")
        with self._lock:
            self._monotonic += seconds
            self._now += timedelta(seconds=seconds)

    def set_wall(self, moment: datetime) -> None:
        """Set the wall clock alone, as a person or a time server does: forwards or backwards."""
        with self._lock:
            self._now = moment

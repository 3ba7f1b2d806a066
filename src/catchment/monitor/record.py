"""The monitor: one call to say what happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType

from catchment.clock import SYSTEM, Clock
from catchment.monitor.event import FAILED, OK, SKIPPED, Event, tidy
from catchment.monitor.metrics import Metrics
from catchment.monitor.store import Store

__all__ = ["FAILED", "OK", "SKIPPED", "Event", "Monitor", "Work"]


@dataclass
class Work:
    """What a `timed` block says about itself while it runs."""

    outcome: str = OK
    numbers: dict[str, float] = field(default_factory=dict)
    note: str = ""


class Monitor:
    """Keeps what happened in the store and counts it for Prometheus. Safe to use from threads.

    Recording never stops the work: what cannot be stored is counted as dropped and the log says so, once.
    """

    def __init__(self, store: Store | None = None, metrics: Metrics | None = None, *, clock: Clock = SYSTEM) -> None:
        """Without a store nothing is kept on disk."""
        self.store = store
        self.metrics = metrics or Metrics()
        self._clock = clock

    def record(
        self,
        subject: str,
        kind: str,
        outcome: str,
        *,
        duration: float | None = None,
        numbers: Mapping[str, float] | None = None,
        note: str = "",
    ) -> None:
        """Say that this just happened. When it returns, a crash of this process does not lose it."""
        event = tidy(Event(self._clock.now(), subject, kind, outcome, duration, numbers or {}, note))
        self.metrics.observe(event)
        if self.store is not None and not self.store.append(event):
            self.metrics.dropped.inc()

    @contextmanager
    def timed(self, subject: str, kind: str) -> Iterator[Work]:
        """Record how the block went and how long it took: `ok`, or `failed` with the error, which is passed on.

        The block may set another outcome, numbers and a note on what it is given.
        """
        work = Work()
        start = self._clock.monotonic()
        try:
            yield work
        except BaseException as error:
            work.outcome = FAILED
            work.note = work.note or f"{type(error).__name__}: {error}"
            raise
        finally:
            taken = self._clock.monotonic() - start
            self.record(subject, kind, work.outcome, duration=taken, numbers=work.numbers, note=work.note)

    def declare(self, subject: str, kind: str) -> None:
        """Have the gauges of this subject from now on, with what the store knows of it from earlier runs.

        So that "never succeeded" can be told from "not watched".
        """
        known = self.store.totals_of(subject, kind) if self.store is not None else None
        self.metrics.declare(subject, kind, known)

    def close(self) -> None:
        """Let go of the store."""
        if self.store is not None:
            self.store.close()

    def __enter__(self) -> Monitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

"""One feed, polled on its grid: wait for the tick, ask, land what is new, tell what was done and why.

Deciding is pure (`schedule.py`, `conditions`, `is_news`); `Poller` acts. Requests of one feed never overlap, since one
task makes them all.

A download's time is when its request was sent, so a feed with a period of an hour has one in every hour, however long
its answers take.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol, TypeVar

from catchment.clock import SYSTEM, Clock
from catchment.config.feeds import Feed
from catchment.feeds.fetch import NO_VALIDATORS, Body, Failure, Result, Unchanged, Validators
from catchment.feeds.names import Download, Hour, body_hash
from catchment.feeds.schedule import Ticks, Turn, backoff, next_turn

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class Known:
    """The last body of a feed, and the hour in which it is stored."""

    hour: Hour
    hash: str
    validators: Validators = NO_VALIDATORS


@dataclass(frozen=True)
class Attempt:
    """One tick that was taken: what was asked, what came of it, and which ticks before it were not taken."""

    feed: str
    due: float  # monotonic, as are the others
    began: float  # when the request was sent, after waiting for the host's turn
    ended: float  # when the answer was whole
    landed: float  # when it was stored
    time: datetime
    result: Result
    stored: Download | None = None
    note: str = ""  # why it was stored, or was not
    errors: int = 0  # in a row, this one included
    missed: int = 0  # ticks before it that passed while a request was running or the process was held up
    held: int = 0  # ticks before it that were left out after errors
    paused: int = 0  # ticks before it that were left out while polling paused

    @property
    def failed(self) -> bool:
        return isinstance(self.result, Failure)


class Fetching(Protocol):
    """What a poller needs of a Fetcher."""

    def slot(self, feed: Feed) -> AbstractAsyncContextManager[None]:
        """Wait for the turn at the feed's host."""
        ...

    async def fetch(self, feed: Feed, validators: Validators = NO_VALIDATORS) -> Result:
        """Ask for the feed."""
        ...


class Landing(Protocol):
    """What a poller needs of Downloads."""

    def land(self, download: Download, body: bytes) -> object:
        """Store the body, whole or not at all."""
        ...

    def last(self, feed: str, hour: Hour) -> Download | None:
        """The newest of this hour."""
        ...


def conditions(known: Known | None, hour: Hour) -> Validators:
    """What to ask with. The first request of an hour is unconditional, because each hour stores its first body."""
    return known.validators if known is not None and known.hour == hour else NO_VALIDATORS


def is_news(known: Known | None, hour: Hour, hash: str) -> bool:
    """Whether a body is to be stored: the first of its hour, or another one than the one before."""
    return known is None or known.hour != hour or known.hash != hash


class Poller:
    """Polls one feed until it is cancelled. What was being stored at that moment is stored to the end."""

    def __init__(
        self,
        feed: Feed,
        ticks: Ticks,
        fetching: Fetching,
        landing: Landing,
        *,
        report: Callable[[Attempt], None],
        pool: Executor,
        paused: Callable[[], bool] = lambda: False,
        clock: Clock = SYSTEM,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`report` and the landing run in `pool`, since a disk may be slow; `wait` lets so many seconds pass."""
        self.feed = feed
        self.ticks = ticks
        self.sent: datetime | None = None  # when the request under way was sent; None if there is none
        self._fetching, self._landing, self._report = fetching, landing, report
        self._pool, self._paused, self._clock, self._wait, self._chance = pool, paused, clock, wait, chance
        self._known: Known | None = None
        self._errors = 0
        self._skipped = 0  # ticks that passed while polling paused, since the last attempt

    async def run(self) -> None:
        """Take one tick after the other, for ever."""
        turn = next_turn(self.ticks, -1, self._clock.monotonic())
        turn = replace(turn, missed=0)  # there is nothing to catch up with before the first
        while True:
            turn = await self._due(turn)
            not_before = float("-inf")
            if self._paused():
                self._skipped += 1 + turn.missed + turn.held
            else:
                try:
                    attempt = await self._attempt(turn)
                    asked = attempt.result.retry_after if isinstance(attempt.result, Failure) else None
                except Exception:
                    # A fault of ours in one round must not end the feed's collection.
                    log.exception("feed %s: a round failed unexpectedly; the next tick tries again", self.feed.id)
                    self._errors, asked = self._errors + 1, None
                stay_away = backoff(self._errors, self.ticks.period, self._chance(), asked=asked)
                not_before = self._clock.monotonic() + stay_away
            turn = next_turn(self.ticks, turn.tick, self._clock.monotonic(), not_before=not_before)

    async def _due(self, turn: Turn) -> Turn:
        """Wait for the tick. One that is noticed when the next is due already is missed."""
        while (left := self.ticks.at(turn.tick) - self._clock.monotonic()) > 0:
            await self._wait(left)
        late = self.ticks.current(self._clock.monotonic()) - turn.tick
        return replace(turn, tick=turn.tick + late, missed=turn.missed + late)

    async def _attempt(self, turn: Turn) -> Attempt:
        loop = asyncio.get_running_loop()
        try:
            async with self._fetching.slot(self.feed):
                began, time = self._clock.monotonic(), _millis(self._clock.now())
                self.sent = time
                if self._known is None:
                    self._known = await _finished(loop.run_in_executor(self._pool, self._remembered, Hour.of(time)))
                result = await self._fetching.fetch(self.feed, conditions(self._known, Hour.of(time)))
            ended = self._clock.monotonic()
            skipped, self._skipped = self._skipped, 0
            attempt = Attempt(
                feed=self.feed.id,
                due=self.ticks.at(turn.tick),
                began=began,
                ended=ended,
                landed=ended,
                time=time,
                result=result,
                missed=turn.missed,
                held=turn.held,
                paused=skipped,
            )
            return await _finished(loop.run_in_executor(self._pool, self._settle, attempt))
        finally:
            self.sent = None

    def _remembered(self, hour: Hour) -> Known | None:
        """After a restart: the last one on disk is the one before, though without validators."""
        try:
            last = self._landing.last(self.feed.id, hour)
        except OSError as error:
            log.warning("feed %s: what is stored of this hour cannot be read: %s", self.feed.id, error)
            return None
        return Known(hour, last.hash) if last is not None else None

    def _settle(self, attempt: Attempt) -> Attempt:
        """Store what is news, and report. In the pool; one at a time for each feed."""
        hour = Hour.of(attempt.time)
        match attempt.result:
            case Body(body, validators):
                hash = body_hash(body)
                download = Download(self.feed.id, attempt.time, hash, self.feed.postfix)
                if not is_news(self._known, hour, hash):
                    attempt = replace(attempt, note="not stored: equal to the one before")
                    self._known = Known(hour, hash, validators)
                else:
                    attempt = self._stored(attempt, download, body, validators)
            case Unchanged():
                attempt = replace(attempt, note="not stored: not modified, says the server")
            case Failure(reason):
                attempt = replace(attempt, note=reason)
        self._errors = self._errors + 1 if attempt.failed else 0
        attempt = replace(attempt, errors=self._errors)
        self._report(attempt)
        return attempt

    def _stored(self, attempt: Attempt, download: Download, body: bytes, validators: Validators) -> Attempt:
        first = self._known is None or self._known.hour != download.hour
        try:
            self._landing.land(download, body)
        except OSError as error:
            reason = f"the body could not be stored: {error.strerror or error}"
            return replace(attempt, result=Failure(reason), note=reason, landed=self._clock.monotonic())
        self._known = Known(download.hour, download.hash, validators)
        note = "stored: the first of its hour" if first else "stored: changed"
        return replace(attempt, stored=download, note=note, landed=self._clock.monotonic())


def _millis(moment: datetime) -> datetime:
    """To the millisecond, as names have it."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


async def _finished(work: asyncio.Future[T]) -> T:
    """What this work gives. Who is cancelled meanwhile waits for its end first: it writes to disk."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise

"""When a feed is fetched and when its hours are cut. All of it is pure: times in, decisions out.

A feed's ticks lie at `start + n * period` on the monotonic clock, for good: a slow answer or a late wake-up never
shifts the ones after it. A tick that passed while a request was still running, or that was noticed a whole period too
late, is skipped and counted; ticks are never made up for in a bunch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_BACKOFF = 60.0  # seconds; what a feed that came back may lose is bounded by it
LONGEST_REQUEST = 300.0  # seconds that a server may ask us to stay away (Retry-After)
SPREAD = 1.0  # seconds over which the first ticks of all feeds are spread
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Ticks:
    """The grid of one feed."""

    start: float  # monotonic
    period: float  # seconds

    def at(self, n: int) -> float:
        """When tick n is due."""
        return self.start + n * self.period

    def current(self, now: float) -> int:
        """The last tick that is due by now; negative before the first."""
        n = math.floor((now - self.start) / self.period)
        # Division rounds. Unless at(n) <= now < at(n + 1), a tick would be taken twice or waited for in vain.
        while self.at(n) > now:
            n -= 1
        while self.at(n + 1) <= now:
            n += 1
        return n


@dataclass(frozen=True)
class Turn:
    """The next tick to take, and those before it that are not."""

    tick: int
    missed: int = 0  # passed while a request was running or the process was held up
    held: int = 0  # left out on purpose: backing off after errors


def next_turn(ticks: Ticks, taken: int, now: float, *, not_before: float = -math.inf) -> Turn:
    """The first tick after `taken` that is still to come at `now` and not before `not_before`.

    A tick that is due at this very moment counts as still to come. What passed by `now` is missed, what is left out
    after that is held.
    """
    first = ticks.current(now)
    if ticks.at(first) < now:
        first += 1
    first = max(first, taken + 1)
    chosen = first
    if not_before > ticks.at(first):
        chosen = ticks.current(not_before)
        if ticks.at(chosen) < not_before:
            chosen += 1
    return Turn(chosen, missed=first - taken - 1, held=chosen - first)


def phase(index: int, period: float) -> float:
    """How long after the start the feed with this index has its first tick: spread evenly, for any number of feeds.

    So that two hundred feeds of one period do not ask all at once, for ever.
    """
    return (index * _GOLDEN % 1.0) * min(period, SPREAD)


def backoff(errors: int, period: float, chance: float, *, asked: float | None = None) -> float:
    """Seconds to stay away after so many errors in a row: none beyond the period after the first, then twice as long
    each time up to a minute; half of it fixed, half of it by `chance` in [0, 1). `asked` is what the server asked for.

    A feed that is slower than that is not slowed down further.
    """
    if errors <= 0:
        return 0.0
    full = min(LONGEST_BACKOFF, period * 2.0 ** min(errors - 1, 30))
    wait = full * (0.5 + chance / 2) if errors > 1 else 0.0
    return max(wait, min(asked or 0.0, LONGEST_REQUEST))


def last_cut(now: datetime, cut: timedelta) -> datetime:
    """The last moment at or before `now` at which hours are cut: a multiple of `cut` since 1970, in UTC.

    With the usual cut of one hour these are the hours' ends. A cut that divides an hour cuts each hour several times
    (one archive each, merged by reconciling) and always at its end as well.
    """
    if cut <= timedelta(0):
        raise ValueError(f"a cut of {cut} never comes; give a positive one")
    return EPOCH + (now - EPOCH) // cut * cut


GRACE = 30.0  # seconds that a cut waits for requests that were sent before it
RETRY = 30.0  # seconds after which a cycle with problems runs again; then twice as long each time
LONGEST_RETRY = 900.0


class Cuts:
    """When the cycle of archiving and uploading runs: at the start, at each cut, and again after one with problems."""

    def __init__(self, cut: timedelta) -> None:
        self._cut = cut
        self._done: datetime | None = None  # the last cut that was acted on
        self._noticed: float | None = None  # when another one was noticed, while requests from before it are under way
        self._again: float | None = None  # when to try again
        self._failures = 0

    def due(self, wall: datetime, now: float, under_way: Callable[[datetime], bool]) -> datetime | None:
        """The cut to act on now, or None. `under_way(cut)`: whether a request from before the cut may still land.

        Any other cut than the last is acted on, and not only a later one: a wall clock that was wrong may be set back.
        """
        cut = last_cut(wall, self._cut)
        if cut != self._done:
            self._noticed = now if self._noticed is None else self._noticed
            if self._done is not None and under_way(cut) and now - self._noticed < GRACE:
                return None
            self._failures = 0
        elif self._again is None or now < self._again:
            return None
        self._done, self._noticed, self._again = cut, None, None
        return cut

    def finished(self, now: float, *, well: bool) -> None:
        """The cycle of the last cut ended. With problems left, the same cut is due again after a while."""
        self._failures = 0 if well else self._failures + 1
        self._again = None if well else now + min(LONGEST_RETRY, RETRY * 2.0 ** min(self._failures - 1, 10))

"""When a range is due, and where it is cut. Pure: no clock, no Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from catchment.config.topics import Policy


@dataclass(frozen=True)
class Pending:
    """What one source has that is not claimed yet."""

    first: int
    end: int  # exclusive
    since: datetime  # it was caught up then, or later
    mean: float  # bytes of a message; 0: not known


@dataclass(frozen=True)
class AtBoundary:
    """Due by the clock: cut before the first message at or after this moment, which Kafka has to be asked for."""

    moment: datetime
    longest: int  # the greatest last offset that the other limits allow


def largest(policy: Policy, mean: float) -> int:
    """How many messages a range may have."""
    return max(1, min(policy.max_messages, int(policy.max_bytes / mean) if mean > 0 else policy.max_messages))


def cut(policy: Policy, pending: Pending, now: datetime, *, flush: bool = False) -> int | AtBoundary | None:
    """The last offset of the range that is due now; None if none is. `flush` leaves the age out of account."""
    waiting = pending.end - pending.first
    if waiting <= 0:
        return None
    most = largest(policy, pending.mean)
    if waiting >= most:
        return pending.first + most - 1
    if flush:
        return pending.end - 1
    if policy.align:
        moment = boundary(policy.max_age, now)
        return AtBoundary(moment, pending.end - 1) if pending.since < moment else None
    return pending.end - 1 if now - pending.since >= policy.max_age else None


def boundary(every: timedelta, now: datetime) -> datetime:
    """The last multiple of `every` since midnight UTC."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + (now - midnight) // every * every

"""One Kafka partition as an exporting process knows it, and what a step gathers about all of them.

Nothing here matters for safety: it saves requests, and keeps the trouble of one Kafka partition to itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from catchment.errors import BucketError, CatchmentError, ExportStopped
from catchment.topics.kafka import Part
from catchment.topics.manifest import Manifest
from catchment.topics.names import Place, Source
from catchment.topics.offsets import Known


@dataclass
class Track:
    """One source as this process knows it."""

    place: Place
    source: Source
    known: Known
    since: datetime  # it was caught up then, or later
    looked: float  # monotonic: when its hint was last read
    mean: float = 0.0  # bytes of a message, from a sample
    stopped: str = ""  # why it cannot go on until a person has acted
    tried: int = -1  # the first offset of the range that this process could not write: only once past it does it go on
    failed: int = 0  # how often in a row its range could not be written, for a reason that may pass

    @property
    def part(self) -> Part:
        return self.place.topic, self.source.partition


@dataclass(frozen=True)
class Due:
    """A range that is to be claimed now."""

    track: Track
    last: int
    watermark: str | None


@dataclass
class Seen:
    """What a step gathers."""

    problems: list[str] = field(default_factory=list)
    committed: list[Manifest] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    busy: int = 0
    again: bool = False


def passes(error: CatchmentError) -> bool:
    """Whether it is the bucket's own trouble, which passes. Else it is an object that cannot be understood."""
    return isinstance(error, BucketError) and not error.unreadable


@contextmanager
def apart(track: Track, seen: Seen) -> Iterator[None]:
    """What stands in the way of one source is a problem of its own, and does not stop the others."""
    try:
        yield
    except (ExportStopped, BucketError) as error:
        if passes(error):
            raise
        seen.problems.append(about(track, error))


@contextmanager
def once(track: Track) -> Iterator[None]:
    """What cannot be understood after a range was written must not make it be written again and again."""
    try:
        yield
    except (ExportStopped, BucketError) as error:
        if not passes(error):
            track.stopped, track.looked = about(track, error), float("-inf")  # until a look at it is no error
        raise


def about(track: Track, error: CatchmentError) -> str:
    """The error with the place that it is about."""
    return f"{track.place} Kafka partition {track.source}: {error}"

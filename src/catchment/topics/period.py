"""What `verify` looks at: which ranges of an export, by offsets or by time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from catchment.bucket.contract import Bucket
from catchment.topics import committed
from catchment.topics.committed import Name, Unreadable
from catchment.topics.manifest import Manifest
from catchment.topics.names import FileName, Place, Source


@dataclass(frozen=True)
class Period:
    """What is looked at. An offset window is of every source that is asked for; all of them if none is.

    start, end: ranges that hold a row whose event time is in [start, end), by the manifests' word for each file. Where
    there is no time split, and for ranges that have no such file, the time of their commit counts instead.
    """

    source: Source | None = None
    first: int | None = None
    last: int | None = None
    start: datetime | None = None
    end: datetime | None = None

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
        return self == Period()

    def holds(self, manifest: Manifest) -> bool:
        """Whether this range is in the period, by time."""
        if self.start is None and self.end is None:
            return True
        spans = [(file.oldest, file.newest) for file in manifest.files]
        if not spans or any(oldest is None for oldest, _ in spans):
            spans.append((manifest.committed or None, manifest.committed or None))
        return any(self._overlaps(oldest, newest) for oldest, newest in spans)

    def _overlaps(self, oldest: str | None, newest: str | None) -> bool:
        try:
            begin, end = (datetime.fromisoformat(text or "") for text in (oldest, newest))
        except ValueError:
            return False
        return (self.end is None or _aware(begin) < self.end) and (self.start is None or _aware(end) >= self.start)

    def concerns(self, name: FileName, ranges: Mapping[Source, Sequence[Manifest]]) -> bool:
        """Whether a file of this name belongs to what is looked at: its offsets, or for a time, those of its ranges."""
        if (self.source is not None and name.source != self.source) or (
            (self.first is not None and name.last < self.first) or (self.last is not None and name.first > self.last)
        ):
            return False
        if self.start is None and self.end is None:
            return True
        return any(one.first <= name.last and name.first <= one.last for one in ranges.get(name.source, ()))


@dataclass(frozen=True)
class Plan:
    """The ranges of a period, and what of the manifests cannot be read."""

    period: Period
    names: Mapping[Source, Sequence[int]]  # the first offsets of all manifests of each source, sorted
    known: tuple[Manifest, ...]  # the ranges that were read, in order
    ranges: tuple[Manifest, ...]  # those of them that are in the period
    unreadable: tuple[Unreadable, ...]
    ends: Mapping[Source, int]  # of each source: everything below is committed, at least


def plan(bucket: Bucket, place: Place, period: Period = Period(), *, workers: int = committed.WORKERS) -> Plan:  # noqa: B008
    """What is to be counted: one listing, and the manifests of the period. With a time, all manifests are read."""
    names: dict[Source, list[int]] = defaultdict(list)
    unreadable: list[Unreadable] = []
    for name in committed.names(bucket, place, period.source):
        if isinstance(name, Unreadable):
            unreadable.append(name)
        else:
            names[name[0]].append(name[1])
    every: list[Name] = [(source, first) for source, firsts in names.items() for first in firsts]
    known: list[Manifest] = []
    for found in committed.read_each(bucket, place, committed.window(every, period.first or 0, period.last), workers):
        if isinstance(found, Unreadable):
            unreadable.append(found)
        elif found.last >= (period.first or 0):
            known.append(found)
    ends = {source: firsts[-1] for source, firsts in names.items()}  # by their names; the window may leave out the last
    for one in known:
        ends[one.source] = max(ends[one.source], one.next)
    chosen = tuple(one for one in known if period.holds(one))
    return Plan(period, names, tuple(known), chosen, tuple(unreadable), ends)


def _aware(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment

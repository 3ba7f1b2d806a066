"""Which folders of an export end within a stretch of time: what a closing has to look at, and nothing else.

A day (or hour) is the unit that is closed: the finest such split of the export. Folders are walked from the top, by
listings that jump over the days before and after; files are listed only in folders that are wanted. Folders of earlier
definitions are found as well, whatever their order, as long as the split had the same name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from catchment.bucket.contract import Bucket, Entry, Folder
from catchment.config.decode import Split
from catchment.config.topics import Export
from catchment.topics.names import LATE, SUCCESS, Place, unescape, values_of
from catchment.topics.times import LATEST, end_of, value_at

_FINEST = ("hour", "day")
_SLACK = timedelta(days=2)  # more than clocks were ever set back or forward


@dataclass(frozen=True)
class Unit:
    """What is closed."""

    name: str  # of the split
    by: str
    zone: str
    wider: frozenset[str] = frozenset()  # splits by days of the same time, above its hours: they can be jumped over too

    def end(self, folder: str) -> datetime | None:
        """When a folder's day (or hour) ends; None if it is of none: it has no such level, or the default there."""
        value = values_of(folder).get(self.name)
        return None if value is None else _end(value, self.by, self.zone)


@dataclass(frozen=True)
class Leaf:
    """A folder with objects in it, of a unit that ends in the window."""

    folder: str  # type=a/day=2026-11-15
    keys: tuple[str, ...]  # of its files; not what begins with _
    published: bool  # whether _SUCCESS or _LATE was among the objects


def unit_of(export: Export) -> Unit:
    """The unit of an export that is finalised. ValueError if it has no days or hours."""
    for by in _FINEST:
        for name, split in export.split.items():
            if split.by == by:
                days = [(name, other) for name, other in export.split.items() if by == "hour" and other.by == "day"]
                return Unit(name, by, split.zone, frozenset(name for name, day in days if _same_time(day, split)))
    raise ValueError(f"export {export.group} is not split by day or hour; add such a split, or remove finalize")


def leaves(bucket: Bucket, place: Place, unit: Unit, after: datetime | None, until: datetime) -> Iterator[Leaf]:
    """Every folder whose unit ends after `after` (None: the beginning of time) and not after `until`, in order."""
    yield from _below(bucket, place, _Window(unit, after, until), "", inside=False)


class _Side(Enum):
    BEFORE = "it ended before the window"
    WITHIN = "it ends within the window, or something in it may"
    PAST = "it ends after the window, and so do all that follow"
    NEVER = "it is not a time"


@dataclass(frozen=True)
class _Window:
    unit: Unit
    after: datetime | None
    until: datetime

    def side(self, level: str, value: str) -> _Side:
        """Where a folder lies. A level that is not about the unit's time is always within."""
        by, zone, slack = self._level(level)
        if not by:
            return _Side.WITHIN
        end = _end(value, by, zone)
        if end is None:
            return _Side.NEVER
        if self.after is not None and end <= self.after:
            return _Side.BEFORE
        return _Side.PAST if end > self.until + slack else _Side.WITHIN

    def first(self, level: str) -> str:
        """A value before all those of the window, and not far before."""
        by, zone, _ = self._level(level)
        return "" if self.after is None else value_at(self.after - _SLACK, by, zone)

    def _level(self, level: str) -> tuple[str, str, timedelta]:
        if level == self.unit.name:
            return self.unit.by, self.unit.zone, timedelta(0)
        if level in self.unit.wider:  # a day that ends after the window may have hours that end within it
            return "day", self.unit.zone, _SLACK
        return "", "", timedelta(0)


def _below(bucket: Bucket, place: Place, window: _Window, folder: str, *, inside: bool) -> Iterator[Leaf]:
    """`inside`: the unit's level is above, and it was in the window."""
    prefix = f"{place.prefix}{folder}/" if folder else place.prefix
    keys: list[str] = []
    published = False
    for child in _children(bucket, prefix, window):
        name = child.key.removeprefix(prefix).removesuffix("/")
        if isinstance(child, Folder):
            deeper = f"{folder}/{name}" if folder else name
            within = inside or name.startswith(f"{window.unit.name}=")
            yield from _below(bucket, place, window, deeper, inside=within)
        elif name.startswith("_"):
            published = published or name in (SUCCESS, LATE)
        else:
            keys.append(child.key)
    if inside and keys:
        yield Leaf(folder, tuple(keys), published)


def _children(bucket: Bucket, prefix: str, window: _Window) -> Iterator[Entry | Folder]:
    """What is in a folder; of its folders those that may hold something. Times outside the window are jumped over."""
    after: str | None = ""
    while after is not None:
        start, after = after, None
        for child in bucket.children(prefix, after=start):
            level, equals, value = child.key.removeprefix(prefix).removesuffix("/").partition("=")
            if isinstance(child, Entry):
                yield child
            elif equals and not level.startswith("_"):
                side = window.side(level, unescape(value))
                if side is _Side.WITHIN:
                    yield child
                elif side is _Side.PAST:
                    after = f"{prefix}{level}>"  # the character after '=': beyond all folders of this level
                    break
                elif side is _Side.BEFORE and child.key < (first := f"{prefix}{level}={window.first(level)}"):
                    after = first
                    break


def _end(value: str, by: str, zone: str) -> datetime | None:
    try:
        end = end_of(value, by, zone)
    except ValueError:
        return None
    return None if end == LATEST else end


def _same_time(one: Split, other: Split) -> bool:
    return one.model_copy(update={"by": other.by, "default": other.default}) == other

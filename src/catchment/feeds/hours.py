"""What a bucket holds of a feed, hour by hour.

Keys sort by time, so a range of hours is one range of keys. It is read as one flat listing: of the hour, day, month or
year that first and last hour have in common, from the first hour on, and not past the last. A settled hour is one key,
so a page of a thousand keys is a thousand hours; going down folder by folder would take a request for each day.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from os.path import commonpath

from catchment.bucket.contract import Bucket, Entry, Folder
from catchment.errors import UsageError
from catchment.feeds.names import ROOT, TOMBSTONE, Archive, Hour


@dataclass(frozen=True)
class Stored:
    """One archive as a listing shows it."""

    key: str
    archive: Archive
    size: int
    etag: str | None  # None: not known without asking (a local directory)

    @property
    def primary(self) -> bool:
        return self.archive.hash is None

    @property
    def emptied(self) -> bool:
        """A key that was let go of without deleting it: all it held is elsewhere, and no bytes are left."""
        return self.size == 0


@dataclass(frozen=True)
class Listing:
    """One hour of one feed, as one listing shows it."""

    feed: str
    hour: Hour
    archives: tuple[Stored, ...] = ()  # by key
    deleted: bool = False  # it was deleted on purpose: there is a tombstone
    busy: tuple[str, ...] = ()  # archives that another program may still be writing: left for later
    others: tuple[str, ...] = ()  # keys that are not ours

    @property
    def live(self) -> tuple[Stored, ...]:
        """The archives that hold something."""
        return tuple(stored for stored in self.archives if not stored.emptied)


@dataclass(frozen=True)
class Span:
    """Hours from `first` up to and not including `end`. None: without a bound."""

    first: Hour | None = None
    end: Hour | None = None

    @classmethod
    def of(cls, start: datetime, end: datetime) -> Span:
        """The hours that a period touches: its start rounded down, its end rounded up."""
        for name, moment in (("start_time", start), ("end_time", end)):
            if moment.tzinfo is None:
                raise UsageError(f"{name} {moment.isoformat()} has no time zone", hint="write it as UTC, with a Z")
        if start >= end:
            raise UsageError(
                f"start_time {start.isoformat()} is not before end_time {end.isoformat()}",
                hint="give the earlier one as start_time; the end itself is not part of the period",
            )
        return cls(Hour.of(start), Hour.of(end + timedelta(hours=1) - timedelta(microseconds=1)))

    def __contains__(self, hour: Hour) -> bool:
        return (self.first is None or self.first <= hour) and (self.end is None or hour < self.end)

    def folder(self) -> str:
        """The folder below a feed's that all of these hours are in: of an hour, a day, a month, a year, or all."""
        if self.first is None or self.end is None:
            return ""
        last = Hour(self.end.start - timedelta(hours=1))
        shared = commonpath([self.first.folder, last.folder])
        return f"{shared}/" if shared else ""


def list_hour(bucket: Bucket, feed: str, hour: Hour) -> Listing:
    """What there is of one hour, in one listing."""
    return _listing(feed, hour, bucket.list(hour.prefix(feed)))


def list_hours(bucket: Bucket, feed: str, span: Span) -> Iterator[Listing]:
    """Every hour in the span that has at least one key, in order, read as it is asked for."""
    top = f"{ROOT}/{feed}/"
    after = span.first.prefix(feed) if span.first is not None else ""
    stop = span.end.prefix(feed) if span.end is not None else f"{top}:"  # ':' follows '9': years only

    def entries() -> Iterator[Entry]:
        for entry in bucket.list(top + span.folder(), after=after):
            if entry.key >= stop:
                return
            yield entry

    for hour, found in groupby(entries(), lambda entry: _hour_of(entry.key, top)):
        if hour is not None:
            yield _listing(feed, hour, found)


def list_feeds(bucket: Bucket) -> list[str]:
    """The feeds that a bucket has, or once had, something of."""
    found = bucket.children(f"{ROOT}/")
    return [item.key.split("/")[1] for item in found if isinstance(item, Folder)]


def _listing(feed: str, hour: Hour, entries: Iterator[Entry]) -> Listing:
    archives, busy, others, deleted = [], [], [], False
    for entry in entries:
        archive = Archive.parse(entry.key)
        if entry.key == hour.prefix(feed) + TOMBSTONE:
            deleted = True
        elif archive is None or archive.feed != feed or archive.hour != hour:
            others.append(entry.key)
        elif not entry.settled:
            busy.append(entry.key)
        else:
            archives.append(Stored(entry.key, archive, entry.size, entry.etag))
    return Listing(feed, hour, tuple(archives), deleted, tuple(busy), tuple(others))


def _hour_of(key: str, top: str) -> Hour | None:
    return Hour.parse_folder("/".join(key[len(top) :].split("/")[:4]))

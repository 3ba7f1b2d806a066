"""Reading hours as the union of whatever archives are there, so that one that is not reconciled yet counts once.

Archives of an hour are read side by side in the order of their names, which is the order of time, and each download is
given once, its body checked. Memory holds one body for each archive that is open.

An archive may vanish between looking and reading, because its downloads are in a greater one by then. So when one is
gone, or a connection breaks, the hour is looked at again and what was not given yet is given from there: reconciling
never takes a download away without having put it elsewhere first.

What cannot be read is a flaw. It is reported when the hour has been read, and all that is good in the hour has been
given by then.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import BinaryIO, NamedTuple

from catchment.bucket.contract import Bucket
from catchment.errors import Conflict, DamagedArchive, NotFound, Transient
from catchment.feeds.archive import Damage, Fault, Member, read
from catchment.feeds.hours import Listing, Span, Stored, list_hour, list_hours
from catchment.feeds.names import Archive, Hour, set_hash

LOOKS = 8  # every further look is needed only because a replica, or the network, was quicker


class View(NamedTuple):
    """One hour of one feed in one bucket."""

    bucket: Bucket
    listing: Listing


class Reading(NamedTuple):
    """One download, for whoever wants its body and no file."""

    time: datetime
    hash: str
    body: bytes


@dataclass(frozen=True)
class Flaw:
    """Something of an hour that could not be read, or is not what it should be."""

    feed: str
    hour: datetime | None  # None: the feed as a whole
    place: str  # the bucket and the key
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


OnFlaw = Callable[[Flaw], None]


def refuse(flaw: Flaw) -> None:
    """For readers to whom less than everything is nothing."""
    raise DamagedArchive(
        str(flaw),
        source=flaw.place,
        hint="see what else there is with 'catchment feeds audit'; --fix mends what can be",
    )


def span_over(start: datetime | None, end: datetime | None) -> Span:
    """The hours that a period touches; None is no bound. UsageError if it ends before it starts."""
    if start is not None and end is not None:
        return Span.of(start, end)
    return Span(
        Span.of(start, start + timedelta(hours=1)).first if start else None,
        Span.of(end - timedelta(hours=1), end).end if end else None,
    )


def hours(buckets: Sequence[Bucket], feed: str, span: Span) -> Iterator[tuple[Hour, tuple[View, ...]]]:
    """Every hour in the span of which a bucket has something, in order, and what each has of it."""

    def views(bucket: Bucket) -> Iterator[View]:
        return (View(bucket, listing) for listing in list_hours(bucket, feed, span))

    found = heapq.merge(*map(views, buckets), key=_hour_of)
    for hour, same in groupby(found, _hour_of):
        yield hour, tuple(same)


def read_span(
    buckets: Sequence[Bucket],
    feed: str,
    start: datetime | None = None,
    end: datetime | None = None,
    *,
    fold: bool = False,
    on_flaw: OnFlaw = refuse,
) -> Iterator[Reading]:
    """The downloads of a feed from start up to and not including end, in the order of time, each once."""
    for _, views in hours(buckets, feed, span_over(start, end)):
        for download, body in read_hour(views, fold=fold, on_flaw=on_flaw):
            if (start is None or start <= download.time) and (end is None or download.time < end):
                yield Reading(download.time, download.hash, body)


def read_hour(views: Sequence[View], *, fold: bool = False, on_flaw: OnFlaw = refuse) -> Iterator[Member]:
    """The downloads of an hour, in the order of time, each once, every body checked.

    fold: leave out a body that is equal to the one before it in this hour, as a single replica would have done.
    Flaws are reported at the end. What a bucket raises is raised when looking again has not helped.
    """
    seen: set[str] = set()
    last = ""
    for left in reversed(range(LOOKS)):
        flaws: list[Flaw] = []
        try:
            for member in _union(views, flaws):
                if member.download.name in seen:
                    continue
                seen.add(member.download.name)
                if not (fold and member.download.hash == last):
                    yield member
                last = member.download.hash
            break
        except (NotFound, Conflict, Transient):
            if not left:
                raise
        views = [View(bucket, list_hour(bucket, old.feed, old.hour)) for bucket, old in views]
    for flaw in flaws:
        on_flaw(flaw)


def check(bucket: Bucket, stored: Stored) -> tuple[list[Flaw], frozenset[str]]:
    """Read an archive whole: what is wrong with it, and the names of the downloads that it was proven to hold.

    NotFound or Conflict if it has changed meanwhile.
    """
    flaws: list[Flaw] = []
    with opened(bucket, stored) as stream:
        members = _proven(stream, stored.archive, place(bucket, stored.key), flaws)
        names = frozenset(member.download.name for member in members)
    return flaws, names


def check_stream(stream: BinaryIO, archive: Archive, where: str) -> list[Flaw]:
    """Read an archive whole, and say what is wrong with it."""
    flaws: list[Flaw] = []
    for _ in _proven(stream, archive, where, flaws):
        pass
    return flaws


def distinct(views: Iterable[View]) -> tuple[list[tuple[Bucket, Stored]], list[tuple[Bucket, Stored]]]:
    """The archives to read, and those that hold the same downloads as one of them, going by their names."""
    first: list[tuple[Bucket, Stored]] = []
    twins: list[tuple[Bucket, Stored]] = []
    hashes: set[str] = set()
    for bucket, listing in views:
        for stored in () if listing.deleted else listing.live:
            known = stored.archive.hash
            (twins if known in hashes else first).append((bucket, stored))
            if known is not None:
                hashes.add(known)
    return first, twins


def unsettled(views: Iterable[View]) -> list[Flaw]:
    """Archives that another program may still be writing."""
    return [
        Flaw(listing.feed, listing.hour.start, place(bucket, key), "may still be being written; try again in a moment")
        for bucket, listing in views
        if not listing.deleted
        for key in listing.busy
    ]


def place(bucket: Bucket, key: str) -> str:
    """Where an object is, for people."""
    return f"{bucket.name}/{key}"


def opened(bucket: Bucket, stored: Stored) -> AbstractContextManager[BinaryIO]:
    """The archive that was listed. NotFound or Conflict if it is another one by now, or its key was let go of."""
    etag = stored.etag
    if etag is None:
        stat = bucket.head(stored.key)
        if stat.size == 0:
            raise Conflict(f"{stored.key} was let go of", key=stored.key)
        etag = stat.etag
    return bucket.open(stored.key, etag=etag)


def _union(views: Sequence[View], flaws: list[Flaw]) -> Iterator[Member]:
    flaws += unsettled(views)
    first, twins = distinct(views)
    yield from _side_by_side(first, flaws)
    if flaws:
        yield from _side_by_side(twins, flaws)  # the same downloads, and perhaps whole here


def _side_by_side(archives: Sequence[tuple[Bucket, Stored]], flaws: list[Flaw]) -> Iterator[Member]:
    with ExitStack() as stack:
        streams = []
        for bucket, stored in archives:
            stream = stack.enter_context(opened(bucket, stored))
            members = _proven(stream, stored.archive, place(bucket, stored.key), flaws)
            streams.append(stack.enter_context(closing(members)))
        yield from heapq.merge(*streams, key=lambda member: member.download.name)


def _proven(stream: BinaryIO, archive: Archive, where: str, flaws: list[Flaw]) -> Generator[Member]:
    """The members that belong to this hour of this feed. Notes what else there is, and what its name says in vain."""
    names: set[str] = set()
    whole = True

    def note(reason: str) -> None:
        flaws.append(Flaw(archive.feed, archive.hour.start, where, reason))

    try:
        for each in read(stream, archive.compression, source=where):
            if isinstance(each, Damage):
                if each.fault is not Fault.STRAY:  # a manifest or a folder in an archive that others made does no harm
                    whole = False
                    note(f"{each.name}: {each.reason}")
            elif (each.download.feed, each.download.hour) != (archive.feed, archive.hour):
                whole = False
                note(f"{each.download.name}: belongs to another feed or hour")
            else:
                names.add(each.download.name)
                yield each
    except DamagedArchive as error:
        whole = False
        note(error.message.removeprefix(f"{where} "))
    if whole and archive.hash not in (None, set_hash(names)):
        note(f"holds {len(names)} downloads, and not the ones that its name stands for")


def _hour_of(view: View) -> Hour:
    return view.listing.hour

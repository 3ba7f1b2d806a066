"""Bringing hours to the storages that lack them.

Replicas upload to every storage, so this is for what that missed: a storage that was away, or that was added later.
A copy is an upload like any other: the union of what one storage has of the hour, checked body by body, put under the
name that is its content, and then reconciled. So replicating twice, or while others upload and reconcile, is harmless.

An hour with a tombstone is neither read from nor written to. If it is deleted while a copy is under way, reconciling
the target finds the tombstone and removes the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from catchment.bucket.contract import Body, Bucket
from catchment.errors import Conflict, NotFound
from catchment.feeds.hours import Listing, Span, Stored, list_hour, list_hours
from catchment.feeds.names import Archive, Hour, set_hash
from catchment.feeds.reconcile import Rules, settled
from catchment.feeds.settle import LOOKS, Codec, Codecs, Fetched, settle, union


@dataclass(frozen=True)
class Place:
    """One storage, as far as the archives of one feed go."""

    bucket: Bucket
    rules: Rules


@dataclass(frozen=True)
class Copy:
    """An hour of which the target lacks something that the source has."""

    feed: str
    hour: Hour
    source: str  # ids of storages
    target: str


def lacking(listings: Mapping[str, Listing]) -> list[Copy]:
    """What to copy, given one hour as every storage lists it.

    A storage lacks the hour if it has no archive of it. Two that have one each, both named by their content, lack
    something if the names differ. Hours that are still to be reconciled wait, and a primary archive's name says
    nothing: it counts as being there.
    """
    sources = {id: listing for id, listing in listings.items() if listing.live and not listing.deleted}
    found = []
    for target, listing in listings.items():
        if listing.deleted or listing.busy:
            continue
        if not listing.live:
            found += [Copy(listing.feed, listing.hour, source, target) for source in list(sources)[:1]]
        else:
            found += [
                Copy(listing.feed, listing.hour, source, target)
                for source, other in sources.items()
                if source != target and _differ(other, listing)
            ]
    return found


def plan_replicate(buckets: Mapping[str, Bucket], feed: str, span: Span) -> Iterator[Copy]:
    """What to copy of a feed so that every storage has every hour of the span that one of them has."""
    for listings in _by_hour(buckets, feed, span):
        yield from lacking(listings)


def replicate(
    places: Mapping[str, Place],
    feed: str,
    span: Span,
    codecs: Codecs,
    *,
    progress: Callable[[Copy], object] = lambda copy: None,
) -> list[Copy]:
    """Copy whatever is lacking. Which copies were made. Safe to repeat.

    An hour that is not settled is reconciled first: perhaps an earlier copy was cut off before its end.
    """
    made = []
    for listings in _by_hour({id: place.bucket for id, place in places.items()}, feed, span):
        for id, listing in listings.items():
            if not settled(listing, places[id].rules):
                settle(places[id].bucket, feed, listing.hour, places[id].rules, codecs)
                listings[id] = list_hour(places[id].bucket, feed, listing.hour)
        for copy in lacking(listings):
            if replicate_hour(places[copy.source].bucket, places[copy.target], feed, copy.hour, codecs):
                made.append(copy)
                progress(copy)
    return made


def _by_hour(buckets: Mapping[str, Bucket], feed: str, span: Span) -> Iterator[dict[str, Listing]]:
    """Each hour that one of the storages has something of, as all of them list it."""
    known = {id: {found.hour: found for found in list_hours(bucket, feed, span)} for id, bucket in buckets.items()}
    for hour in sorted({hour for listings in known.values() for hour in listings}):
        yield {id: listings.get(hour, Listing(feed, hour)) for id, listings in known.items()}


def replicate_hour(source: Bucket, target: Place, feed: str, hour: Hour, codecs: Codecs) -> bool:
    """Put the union of what the source has of an hour into the target, and reconcile it there. Whether it was put."""
    with codecs() as codec:
        fetched = _fetch_all(codec, source, feed, hour)
        names = frozenset[str]().union(*(one.names for one in fetched))
        there = list_hour(target.bucket, feed, hour)
        # An emptied archive does not count: its key says what it held, and it holds nothing any more.
        if not names or there.deleted or any(stored.archive.hash == set_hash(names) for stored in there.live):
            return False
        archive, body = _one(codec, fetched, Archive(feed, hour, set_hash(names), target.rules.compression))
        target.bucket.put(archive.key, body)
    # A tombstone that came meanwhile is found here, and the copy removed.
    settle(target.bucket, feed, hour, target.rules, codecs)
    return True


def _fetch_all(codec: Codec, source: Bucket, feed: str, hour: Hour) -> list[Fetched]:
    """All that the source has of an hour; nothing if it was deleted, or others are at work on it all the time."""
    for _ in range(LOOKS):
        listing = list_hour(source, feed, hour)
        if listing.deleted:
            return []
        with suppress(NotFound, Conflict):  # reconciled meanwhile: look again
            return [_fetch(codec, source, stored) for stored in listing.live]
    return []


def _fetch(codec: Codec, source: Bucket, stored: Stored) -> Fetched:
    etag = stored.etag if stored.etag is not None else source.head(stored.key).etag
    with source.open(stored.key, etag=etag) as stream:
        return codec.fetch(stored.archive, stream)


def _one(codec: Codec, fetched: Sequence[Fetched], wanted: Archive) -> tuple[Archive, Body]:
    """The archive to put. A single one whose name is its content goes as it is."""
    first = fetched[0]
    if len(fetched) == 1 and not first.damaged and first.archive.hash == wanted.hash:
        return first.archive, first.body
    return wanted, union(codec, fetched, wanted)


def _differ(one: Listing, other: Listing) -> bool:
    """Whether both have one archive that is named by its content, and the contents differ."""
    if len(one.live) != 1 or len(other.live) != 1:
        return False
    hashes = {one.live[0].archive.hash, other.live[0].archive.hash}
    return len(hashes) == 2 and None not in hashes

"""Deleting hours on purpose, so that they stay deleted.

For each hour, in this order:

    1  put a tombstone (`_deleted.json`) into the hour's folder
    2  remove what was set aside as damaged in that hour
    3  list the hour, and remove every archive, the primary one included

From step 1 on nobody replicates into the hour, and whoever reconciles it removes what a replica uploads late. Being
stopped anywhere is harmless: deleting again, or reconciling, goes on from there.

A tombstone counts for its own storage only: deleting from one storage leaves the others alone. To have an hour back,
remove the tombstone (`revive`): what arrives from then on is kept, and replication brings what another storage has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from catchment.bucket.contract import Bucket
from catchment.clock import SYSTEM, Clock
from catchment.feeds.hours import Span, list_hour, list_hours
from catchment.feeds.names import Hour
from catchment.feeds.settle import damaged_prefix


@dataclass(frozen=True)
class Doomed:
    """One hour that would be deleted."""

    feed: str
    hour: Hour
    archives: tuple[str, ...]  # their keys
    size: int  # bytes in all


@dataclass(frozen=True)
class Deletion:
    """What would go: hours that have archives here, or in another storage that replication could bring here. Deleting
    twice finds nothing the second time."""

    hours: tuple[Doomed, ...]

    @property
    def archives(self) -> int:
        return sum(len(doomed.archives) for doomed in self.hours)

    @property
    def size(self) -> int:
        return sum(doomed.size for doomed in self.hours)


def plan_delete(bucket: Bucket, feeds: Sequence[str], span: Span, *, elsewhere: Sequence[Bucket] = ()) -> Deletion:
    """What deleting these feeds' hours would remove. Changes nothing.

    elsewhere: the other storages. An hour that is only there gets its tombstone here as well, or it would be brought
    here after all.
    """
    found = []
    for feed in feeds:
        here = {listing.hour: listing for listing in list_hours(bucket, feed, span)}
        there = {listing.hour for other in elsewhere for listing in list_hours(other, feed, span) if listing.live}
        for hour in sorted(here.keys() | there):
            listing = here.get(hour)
            archives = listing.archives if listing else ()
            keys = tuple(stored.key for stored in archives) + (listing.busy if listing else ())
            if keys or (hour in there and not (listing and listing.deleted)):
                found.append(Doomed(feed, hour, keys, sum(stored.size for stored in archives)))
    return Deletion(tuple(found))


def delete(
    bucket: Bucket,
    hours: Iterable[Doomed],
    *,
    clock: Clock = SYSTEM,
    progress: Callable[[Doomed], object] = lambda doomed: None,
) -> int:
    """Delete these hours, with whatever they hold by now. How many objects were removed. Safe to repeat."""
    return sum(_delete_hour(bucket, doomed, clock, progress) for doomed in hours)


def revive(bucket: Bucket, feeds: Sequence[str], span: Span) -> list[tuple[str, Hour]]:
    """Let deleted hours be filled again: remove their tombstones. Which ones there were.

    A process that listed an hour before this may still remove what it saw there; what is uploaded or replicated
    under other keys, or after it has ended, stays.
    """
    found = [(feed, listing.hour) for feed in feeds for listing in list_hours(bucket, feed, span) if listing.deleted]
    for feed, hour in found:
        bucket.delete(hour.tombstone(feed))
    return found


def _delete_hour(bucket: Bucket, doomed: Doomed, clock: Clock, progress: Callable[[Doomed], object]) -> int:
    feed, hour = doomed.feed, doomed.hour
    # 1 tombstone
    record = {"deleted": clock.now().isoformat(), "archives": sorted(doomed.archives)}
    bucket.put(hour.tombstone(feed), json.dumps(record, sort_keys=True).encode())
    # 2 what was set aside; first, because while there are archives the hour is found again after a crash
    keys = [entry.key for entry in bucket.list(damaged_prefix(feed, hour))]
    # 3 archives, as they are now and not as they were planned
    listing = list_hour(bucket, feed, hour)
    keys += [stored.key for stored in listing.archives] + list(listing.busy)
    for key in keys:
        bucket.delete(key)
    progress(doomed)
    return len(keys)

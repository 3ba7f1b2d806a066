"""Status: how each feed fares. What is in the storages is the lake's; the rest is this workspace's.

Cheap on purpose: one short listing for each feed and storage, and no archive is read. `audit` looks at everything.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from catchment.bucket.contract import Bucket
from catchment.errors import CatchmentError
from catchment.feeds.downloads import Downloads
from catchment.feeds.hours import Span, list_hours
from catchment.feeds.names import ROOT, Archive, Hour
from catchment.monitor.history import History, Totals


@dataclass(frozen=True)
class Stock:
    """What one storage has of a feed in the hours looked at."""

    storage: str
    hours: int = 0  # that have an archive
    unmerged: int = 0  # of these, with more than one
    newest: datetime | None = None
    bytes: int = 0
    error: str = ""  # why it could not be looked at


@dataclass(frozen=True)
class Doing:
    """What this workspace's replica did of one kind, all-time."""

    count: int = 0
    failures: int = 0
    errors_in_a_row: int = 0
    last_success: datetime | None = None


@dataclass(frozen=True)
class Status:
    """One feed."""

    feed: str
    declared: bool
    stock: tuple[Stock, ...]
    download: Doing
    archive: Doing
    upload: Doing
    reconcile: Doing
    waiting_downloads: int  # in the workspace, not archived yet
    waiting_archives: int  # in the workspace, not in every storage yet

    @property
    def failing(self) -> bool:
        """Whether something has failed since it last worked, or a storage gives no answer."""
        doings = (self.download, self.archive, self.upload, self.reconcile)
        return any(doing.errors_in_a_row for doing in doings) or any(stock.error for stock in self.stock)


def status(
    feeds: Mapping[str, bool],
    buckets: Mapping[str, Bucket],
    workspace: Path,
    history: History,
    now: datetime,
    *,
    back: int = 24,
) -> list[Status]:
    """Each of these feeds (and whether it is declared), over the hours that ended last. Buckets by storage id."""
    current = Hour.of(now)
    span = Span(Hour.of(current.start - timedelta(hours=back)), current)
    try:
        totals = {(found.subject, found.kind): found for found in history.totals(subject=f"{ROOT}/")}
    except (sqlite3.Error, OSError):
        totals = {}  # no reason to hide what the storages have
    downloads = _counted((found.feed, len(found.files)) for found in Downloads(workspace).before())
    archives = _counted((archive.feed, 1) for archive in _archives(workspace / "archives"))

    def doing(feed: str, kind: str) -> Doing:
        return _doing(totals.get((f"{ROOT}/{feed}", kind)))

    return [
        Status(
            feed=feed,
            declared=declared,
            stock=tuple(_stock(id, bucket, feed, span) for id, bucket in buckets.items()),
            download=doing(feed, "download"),
            archive=doing(feed, "archive"),
            upload=doing(feed, "upload"),
            reconcile=doing(feed, "reconcile"),
            waiting_downloads=downloads.get(feed, 0),
            waiting_archives=archives.get(feed, 0),
        )
        for feed, declared in feeds.items()
    ]


def _stock(id: str, bucket: Bucket, feed: str, span: Span) -> Stock:
    try:
        found = [listing for listing in list_hours(bucket, feed, span) if listing.live and not listing.deleted]
    except CatchmentError as error:
        return Stock(id, error=str(error))
    return Stock(
        storage=id,
        hours=len(found),
        unmerged=sum(len(listing.live) > 1 for listing in found),
        newest=found[-1].hour.start if found else None,
        bytes=sum(stored.size for listing in found for stored in listing.live),
    )


def _doing(totals: Totals | None) -> Doing:
    if totals is None:
        return Doing()
    return Doing(totals.count, totals.failures, totals.errors_in_a_row, totals.last_success)


def _archives(folder: Path) -> Sequence[Archive]:
    found = (Archive.parse_name(path.name) for path in folder.rglob("*.tar.*"))
    return [archive for archive in found if archive is not None]


def _counted(found: Iterable[tuple[str, int]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for feed, number in found:
        counts[feed] = counts.get(feed, 0) + number
    return counts

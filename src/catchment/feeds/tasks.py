"""The work of a cycle that other modules do, as one value: so that a cycle can be run with other work in its place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from catchment.bucket.contract import Bucket, Stat, Support
from catchment.bucket.probe import probe
from catchment.config import Storage
from catchment.feeds.archive import Packed, pack
from catchment.feeds.hours import Span, list_hours
from catchment.feeds.names import Compression, Hour
from catchment.feeds.reconcile import Rules, rules, settled
from catchment.feeds.replicate import Place, replicate
from catchment.feeds.scratch import scratch
from catchment.feeds.settle import Codecs, Cycle, Piece, damaged_key, settle
from catchment.feeds.upload import upload


@dataclass(frozen=True)
class Step:
    """One look at an hour, and what was done about it."""

    note: str  # what, and why
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Reconciled:
    """What reconciling one hour came to."""

    settled: bool  # False: to be tried again
    steps: tuple[Step, ...]


class Packing(Protocol):
    """Make one archive out of these downloads, below `target`. Removes nothing. None: there was no good one."""

    def __call__(
        self, files: Iterable[Path], target: Path, *, feed: str, hour: Hour, compression: Compression
    ) -> Packed | None:
        """Whole or not at all."""


Places = Mapping[str, tuple[Storage, Bucket]]  # by the storage's id


@dataclass(frozen=True)
class Tasks:
    """What a cycle calls."""

    pack: Packing
    upload: Callable[[Bucket, Path], Stat]
    keep_damaged: Callable[[Bucket, str, Hour, Path], object]  # put a file among the damaged ones of a feed's hour
    unsettled: Callable[
        [Storage, Bucket, str, Span, Compression], Iterable[Hour]
    ]  # of a feed's hours, those left to do
    reconcile: Callable[[Storage, Bucket, str, Hour, Compression], Reconciled]
    replicate: Callable[[Places, str, Span, Compression], Sequence[str]]  # which hours were copied, and where to


def standard(folder: Path) -> Tasks:
    """The real work. `folder` is for archives while they are merged. What a storage supports is found out once."""
    reconciling = _Reconciling(scratch(folder))
    return Tasks(pack, upload, _keep_damaged, reconciling.unsettled, reconciling.reconcile, reconciling.replicate)


def _keep_damaged(bucket: Bucket, feed: str, hour: Hour, path: Path) -> Stat:
    return bucket.put(damaged_key(feed, hour, Piece(path.name, "", path)), path)


class _Reconciling:
    def __init__(self, codecs: Codecs) -> None:
        self._codecs = codecs
        self._supports: dict[str, Support] = {}
        self._lock = threading.Lock()

    def unsettled(
        self, storage: Storage, bucket: Bucket, feed: str, span: Span, compression: Compression
    ) -> list[Hour]:
        """One listing for the whole span."""
        given = self._rules(storage, bucket, compression)
        return [listing.hour for listing in list_hours(bucket, feed, span) if not settled(listing, given)]

    def reconcile(
        self, storage: Storage, bucket: Bucket, feed: str, hour: Hour, compression: Compression
    ) -> Reconciled:
        done = settle(bucket, feed, hour, self._rules(storage, bucket, compression), self._codecs)
        return Reconciled(done.settled, tuple(map(_step, done.cycles)))

    def replicate(self, places: Places, feed: str, span: Span, compression: Compression) -> list[str]:
        given = {
            id: Place(bucket, self._rules(storage, bucket, compression)) for id, (storage, bucket) in places.items()
        }
        made = replicate(given, feed, span, self._codecs)
        return [f"{copy.hour.text} from {copy.source} to {copy.target}" for copy in made]

    def _rules(self, storage: Storage, bucket: Bucket, compression: Compression) -> Rules:
        with self._lock:
            if storage.id not in self._supports:
                self._supports[storage.id] = probe(bucket)
            support = self._supports[storage.id]
        return rules(storage.reconciliation_algorithm, compression, support, place=storage.id)


def _step(cycle: Cycle) -> Step:
    numbers = {
        "listed": cycle.listed,
        "read": cycle.read,
        "put": int(bool(cycle.put)),
        "removed": len(cycle.removed),
        "damaged": len(cycle.aside),
    }
    return Step(cycle.why, numbers)

"""Closing days (or hours), and what is owed to those that are closed already.

`_finalized.json`, F from here on, holds two moments: everything that ended by `closed` is closed, and everything that
ended by `closing` is about to be. Neither ever goes back. To close up to a moment B, which the watermarks of all Kafka
partitions have passed by `lateness`:

1. **Announce**: F.closing = B, by compare-and-set.
2. **List** the folders whose unit ends after F.closed and not after B.
3. **Publish**: in each of them `_SUCCESS`, with the files that manifests list.
4. **Close**: F.closed = B.

Whoever commits a range *then* reads F, and sees to it that its files are listed in every folder that ends by F.closing
or F.closed (`after_commit`). Whoever finds a committed range that the hint does not know of does the same for it.

Why no committed file is missing. Take a file in a folder that ends by B. Its manifest was put either before step 1 took
effect, and then the listing and the manifests read in steps 2 and 3, which come later, have it; or after, and then its
committer, who reads F later still, finds B there. So at least one of the two adds it, maybe both; `publish` adds a file
once, and never loses what another added, since every write is of a list that contains the one that it replaces.

Why a crash does no harm. Every step may be done again, by anyone, at any time, side by side with whoever did not die
after all: steps 1 and 4 only go forward, step 3 only adds what is committed. A closing that was left standing is
completed by the next one who closes. A committer that dies after its manifest and before its duty has not moved the
hint; the next one who follows the chain from there does it.

Why nothing else is ever listed: a file is added only when a manifest that lists its key was read, and its ETag is the
manifest's. When `_SUCCESS` is first written its folder is complete, since while F says closing, whoever publishes
there, committers too, does step 3 for the whole folder.

The watermark is a clock's and not the events': one event dated 2099 closes nothing, and its own folder is closed when
2099 has passed. One dated 1970 is late from the first closing on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TypeVar

from catchment.bucket import swap
from catchment.bucket.contract import Bucket
from catchment.clock import isoformat
from catchment.config.topics import Export
from catchment.errors import BucketError, Conflict
from catchment.topics.closing import Leaf, Unit, leaves, unit_of
from catchment.topics.manifest import Manifest
from catchment.topics.names import Place
from catchment.topics.publish import Listed, Published, Ranges, publish, published_end
from catchment.topics.times import boundary

WORKERS = 8  # folders and manifests at a time: each is a few small requests
_BATCH = 64  # folders whose files are held in memory at a time
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class State:
    """F."""

    closed: datetime | None = None  # all that ends by then is closed
    closing: datetime | None = None  # all that ends by then is closed or about to be; None: nothing is about to

    @property
    def line(self) -> datetime | None:
        """Whatever ends by then is no longer open to anyone who does not look."""
        return max((moment for moment in (self.closed, self.closing) if moment is not None), default=None)

    @classmethod
    def parse(cls, document: swap.Document) -> State:
        """BucketError that names the key if it is not F."""
        try:
            closed, closing = (document.value.get(name) for name in ("closed", "closing"))
            return cls(*(None if text is None else _moment(text) for text in (closed, closing)))
        except (TypeError, ValueError) as error:
            raise BucketError(
                f"{document.key} does not say up to when days are closed ({error})",
                key=document.key,
                hint="restore the object's earlier version",
            ) from error

    def value(self) -> dict[str, str | None]:
        moments = {"closed": self.closed, "closing": self.closing}
        return {name: None if moment is None else isoformat(moment) for name, moment in moments.items()}


@dataclass(frozen=True)
class Closed:
    """What a closing did."""

    closed: datetime  # all that ended by then is closed
    published: tuple[Published, ...] = ()  # the folders that were published by this call


@dataclass(frozen=True)
class Late:
    """What was owed to closed folders, and was done."""

    published: tuple[Published, ...] = ()
    files: tuple[Listed, ...] = ()  # of the range, that this call listed as late

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def boundary_of(export: Export, watermark: datetime) -> datetime:
    """Up to when days (or hours) of this export may be closed, if all is committed up to the watermark. Pure."""
    assert export.finalize is not None
    unit = unit_of(export)
    return boundary(watermark, export.finalize.lateness, unit.by, unit.zone)


def state(bucket: Bucket, place: Place) -> State:
    """Up to when this export is closed. One request."""
    return State.parse(swap.read(bucket, place.finalized()))


def close(
    bucket: Bucket,
    place: Place,
    export: Export,
    watermark: datetime,
    *,
    nonce: Callable[[], str] = swap.fresh,
    workers: int = WORKERS,
) -> Closed:
    """Close what may be, given that all Kafka partitions are committed up to the watermark; nothing if nothing is due.

    Completes what another left unfinished. Safe to call anywhere, at any time, any number of times. One request if
    there is nothing to do. With one worker, everything happens in the caller's thread.
    """
    assert export.finalize is not None
    unit = unit_of(export)
    # 1 announce
    before = _announce(bucket, place, boundary_of(export, watermark), nonce)
    if before.closing is None:
        assert before.closed is not None
        return Closed(before.closed)
    # 2 list
    ranges = Ranges(bucket, place)
    found = leaves(bucket, place, unit, before.closed, before.closing)
    # 3 publish
    done: list[Published] = []
    with _pool(workers) as pool:
        while batch := list(islice(found, _BATCH)):
            ranges.load((key for leaf in batch if not leaf.published for key in leaf.keys), pool)
            for published in _map(pool, lambda leaf: _first(bucket, place, export, unit, leaf, ranges, nonce), batch):
                done += [published] if published.key else []
    # 4 close
    return Closed(_settle(bucket, place, before.closing, nonce), tuple(done))


def after_commit(
    bucket: Bucket,
    place: Place,
    export: Export,
    manifest: Manifest,
    *,
    nonce: Callable[[], str] = swap.fresh,
    workers: int = WORKERS,
) -> Late:
    """What whoever commits a range owes, *after* its manifest is there. One request, unless some of it is late.

    Safe to repeat: what is listed already is not listed again, and not counted again.
    """
    if not (manifest.earlier or (export.finalize and manifest.files)):
        return Late()
    now = state(bucket, place)
    if now.line is None:
        return Late()
    late = export.finalize.late if export.finalize else "republish"
    ends: list[tuple[str, datetime, bool]] = []
    if export.finalize:
        unit = unit_of(export)
        # Where a swapped range has no files any more, those that it had must go from the list.
        for folder in sorted({place.parse_file(file.key)[0] for file in manifest.files} | set(manifest.earlier)):
            if (end := unit.end(folder)) is not None and end <= now.line:
                ends.append((folder, end, now.closed is not None and end <= now.closed))
    # An earlier definition may have had other days, or other names for them: its lists say that they are closed.
    others = sorted({*manifest.earlier} - {folder for folder, _, _ in ends})

    def one(item: tuple[str, datetime, bool]) -> Published:
        folder, end, is_closed = item
        return publish(bucket, place, folder, end, late=late, closed=is_closed, own=manifest, nonce=nonce)

    if not (ends or others):
        return Late()
    with _pool(min(workers, len(ends) + len(others))) as pool:
        found = _map(pool, lambda folder: published_end(bucket, place, folder), others)
        ends += [(folder, end, True) for folder, end in zip(others, found, strict=True) if end is not None]
        done = tuple(published for published in _map(pool, one, ends) if published.key)
    mine = {file.key for file in manifest.files}
    return Late(done, tuple(file for one in done for file in one.added if file.late and file.key in mine))


def duty(
    bucket: Bucket, place: Place, export: Export | None, *, nonce: Callable[[], str] = swap.fresh
) -> Callable[[Manifest], object]:
    """`after_commit` for whoever follows a chain; nothing for an export that closes nothing, or is not declared."""
    if export is None or export.finalize is None:
        return lambda manifest: None
    return lambda manifest: after_commit(bucket, place, export, manifest, nonce=nonce)


def _announce(bucket: Bucket, place: Place, until: datetime, nonce: Callable[[], str]) -> State:
    """F, with a closing that is at least `until`; without one if all of that is closed."""
    while True:
        document = swap.read(bucket, place.finalized())
        now = State.parse(document)
        if now.line is not None and until <= now.line:
            return now if now.line != now.closed else State(now.closed)
        after = State(now.closed, until)
        try:
            swap.swap(bucket, document, after.value(), nonce=nonce)
            return after
        except Conflict:
            continue


def _settle(bucket: Bucket, place: Place, until: datetime, nonce: Callable[[], str]) -> datetime:
    """F, with all closed up to `until`; a closing that goes further stays announced. How far it is closed."""
    while True:
        document = swap.read(bucket, place.finalized())
        now = State.parse(document)
        if now.closed is not None and until <= now.closed:
            return now.closed
        closing = now.closing if now.closing is not None and now.closing > until else None
        try:
            swap.swap(bucket, document, State(until, closing).value(), nonce=nonce)
            return until
        except Conflict:
            continue


def _first(
    bucket: Bucket, place: Place, export: Export, unit: Unit, leaf: Leaf, ranges: Ranges, nonce: Callable[[], str]
) -> Published:
    end = unit.end(leaf.folder)
    assert export.finalize is not None
    assert end is not None
    late = export.finalize.late
    return publish(bucket, place, leaf.folder, end, late=late, closed=False, keys=leaf.keys, ranges=ranges, nonce=nonce)


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"{text!r} has no zone")
    return found


@contextmanager
def _pool(workers: int) -> Iterator[Executor | None]:
    if workers <= 1:
        yield None
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="finalize") as pool:
        yield pool


def _map(pool: Executor | None, one: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    return pool.map(one, items) if pool is not None else map(one, items)

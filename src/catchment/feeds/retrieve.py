"""Retrieve: from object storage to files on this machine (`target.py` says where they go).

Each hour is the union over whatever archives are there, in one bucket or in several, every body checked against its
hash. What cannot be had is reported, and everything else is done. A run that was cut off, or is repeated a day later,
fetches what is missing.

Names come out of archives that others may have written: they are judged (`scan.named`) and never followed.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from catchment.bucket.contract import Bucket
from catchment.errors import BucketError, CatchmentError, Conflict, NotFound, Transient
from catchment.feeds.archive import Fault, Source, merge
from catchment.feeds.hours import Span, Stored, list_hour, list_hours
from catchment.feeds.names import Archive, Hour
from catchment.feeds.target import Layout, Target, Unwritable
from catchment.feeds.union import LOOKS, Flaw, View, check_stream, distinct, opened, place, read_hour, unsettled

__all__ = ["Layout", "Progress", "Retrieved", "retrieve"]

WORKERS = 4  # hours at a time: one waits for the network while another is decompressed
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Progress:
    """How far it is."""

    hours: int
    hours_total: int
    bytes: int  # of archives
    bytes_total: int


@dataclass(frozen=True)
class Retrieved:
    """What there is now, and what could not be had."""

    target: Path
    hours: int  # of which all is in place now
    kept: int  # of these, the ones that were there already and were not fetched
    files: int  # that were written
    bytes: int
    problems: tuple[Flaw, ...] = ()


@dataclass(frozen=True)
class _Job:
    """One hour to retrieve."""

    feed: str
    hour: Hour
    views: tuple[View, ...]

    @property
    def size(self) -> int:
        return sum(stored.size for _, stored in distinct(self.views)[0])


def retrieve(
    buckets: Sequence[Bucket],
    feeds: Sequence[str],
    span: Span,
    layout: Layout,
    *,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    workers: int = WORKERS,
) -> Retrieved:
    """Bring the hours of these feeds to this machine, each download once.

    What cannot be had is a problem in the result. Raises if the target cannot be written. Safe to cut off anywhere, and
    to repeat: what is there whole is not fetched again.
    """
    target = Target(layout)
    with target.owned():
        flaws: list[Flaw] = []
        jobs = list(_jobs(buckets, feeds, span, flaws))
        work = _Work(target, flaws)
        _run(work, jobs, on_progress, workers)
    ordered = sorted(set(flaws), key=lambda flaw: (flaw.feed, str(flaw.hour), flaw.place, flaw.reason))
    return Retrieved(layout.target, work.hours, work.kept, target.files, target.bytes, tuple(ordered))


def _jobs(buckets: Sequence[Bucket], feeds: Sequence[str], span: Span, flaws: list[Flaw]) -> Iterator[_Job]:
    for feed in dict.fromkeys(feeds):
        found: dict[Hour, list[View]] = {}
        for bucket in buckets:
            # One by one, so that a bucket that gives no answer does not hide what the others have.
            try:
                listed = list(list_hours(bucket, feed, span))
            except BucketError as error:
                flaws.append(Flaw(feed, None, bucket.name, str(error)))
                continue
            for listing in listed:
                if not listing.deleted and (listing.live or listing.busy):
                    found.setdefault(listing.hour, []).append(View(bucket, listing))
        for hour, views in sorted(found.items()):
            yield _Job(feed, hour, tuple(views))


def _run(work: _Work, jobs: list[_Job], on_progress: Callable[[Progress], None], workers: int) -> None:
    done = size = 0
    total = sum(job.size for job in jobs)
    on_progress(Progress(0, len(jobs), 0, total))
    with ThreadPoolExecutor(workers, thread_name_prefix="retrieve") as pool:
        running: dict[Future[None], _Job] = {pool.submit(work.run, job): job for job in jobs}
        try:
            for future in as_completed(running):
                future.result()
                done, size = done + 1, size + running[future].size
                on_progress(Progress(done, len(jobs), size, total))
        except BaseException:
            pool.shutdown(cancel_futures=True)  # hours that have begun are brought to their end
            raise


class _Work:
    """One call of `retrieve`. Several threads call `run`."""

    def __init__(self, target: Target, flaws: list[Flaw]) -> None:
        self.hours = 0
        self.kept = 0
        self._target, self._flaws = target, flaws
        self._lock = threading.Lock()

    def run(self, job: _Job) -> None:
        """See to it that one hour is in place. Raises only if the target cannot be written."""
        flaws: list[Flaw] = []
        kept = False
        try:
            folder = self._target.folder(job.feed, job.hour)
            origin = _origin(job.views)
            kept = origin is not None and self._target.has(job.feed, job.hour, origin)
            if not kept:
                bring = self._extract if self._target.layout.extract else self._copy
                files = bring(job, folder, flaws)
                if origin is not None and not flaws:
                    self._target.note(job.feed, job.hour, origin, files)
        except Unwritable:
            raise
        except CatchmentError as error:
            where = ", ".join(dict.fromkeys(bucket.name for bucket, _ in job.views))
            flaws.append(Flaw(job.feed, job.hour.start, f"{where}/{job.hour.prefix(job.feed)}", str(error)))
        with self._lock:
            self._flaws += flaws
            self.hours += not flaws
            self.kept += kept

    def _extract(self, job: _Job, folder: Path, flaws: list[Flaw]) -> list[str]:
        names = []
        for download, body in read_hour(job.views, fold=self._target.layout.fold, on_flaw=flaws.append):
            self._target.land(folder / download.name, body)
            names.append(download.name)
        return names

    def _copy(self, job: _Job, folder: Path, flaws: list[Flaw]) -> list[str]:
        """The hour as one archive."""
        views: Sequence[View] = job.views
        for left in reversed(range(LOOKS)):
            found = unsettled(views)
            try:
                with self._target.aside() as aside:
                    path, archive = self._one_archive(views, aside, found)
                    self._target.move(path, folder / archive.name)
                flaws += found
                return [archive.name]
            except (NotFound, Conflict, Transient):
                if not left:
                    raise
            views = [View(bucket, list_hour(bucket, job.feed, job.hour)) for bucket, _ in views]
        raise AssertionError("unreachable")

    def _one_archive(self, views: Sequence[View], aside: Path, flaws: list[Flaw]) -> tuple[Path, Archive]:
        """A copy of the only archive; the union if there are several, or of what is good if something is not."""
        first, twins = distinct(views)
        if not first:
            raise NotFound("the hour was deleted, or is still being written", hint="retrieve it again in a moment")
        if len(first) == 1:
            bucket, stored = first[0]
            copy = aside / "copy"
            with opened(bucket, stored) as stream, self._target.writing(copy), copy.open("wb") as file:
                shutil.copyfileobj(stream, file, _CHUNK)
            with copy.open("rb") as stream:
                wrong = check_stream(stream, stored.archive, place(bucket, stored.key))
            if not wrong:
                return copy, stored.archive
            flaws += wrong
        archive = first[0][1].archive
        packed = merge(
            [_source(bucket, stored) for bucket, stored in [*first, *twins]],
            aside / "merged",
            feed=archive.feed,
            hour=archive.hour,
            compression=archive.compression,
        )
        known = {flaw.place for flaw in flaws}
        flaws += [
            Flaw(archive.feed, archive.hour.start, damage.source, f"{damage.name}: {damage.reason}")
            for damage in packed.damaged
            if damage.fault is not Fault.STRAY and damage.source not in known
        ]
        return packed.path, packed.archive


def _origin(views: Sequence[View]) -> dict[str, str] | None:
    """Exactly which archives these are; None if that cannot be said. A key that is its content needs no ETag."""
    found: dict[str, str] = {}
    for bucket, listing in views:
        if listing.busy:
            return None
        for stored in listing.live:
            found[place(bucket, stored.key)] = (stored.etag or bucket.head(stored.key).etag) if stored.primary else ""
    return found


def _source(bucket: Bucket, stored: Stored) -> Source:
    return place(bucket, stored.key), partial(opened, bucket, stored), stored.archive.compression

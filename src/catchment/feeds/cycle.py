"""From downloads on disk to settled hours in every object storage.

Each step does what is there to do, subject by subject; one that fails is recorded and told, and stops no other. All of
it can be cut off anywhere and run again, because nothing on disk is removed before what replaces it is in place:

1. archive: pack the downloads of an hour; then remove exactly the files that were packed.
2. upload: put each archive into every storage; then remove it.
3. reconcile: merge what the replicas uploaded for an hour.
4. replicate: bring hours to the storages that lack them.

What a check finds damaged is moved to `<workspace>/damaged/`, and uploaded to `feeds/<feed>/_damaged/` in every
storage: set aside, and never dropped.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from catchment.bucket.contract import Bucket
from catchment.clock import SYSTEM, Clock
from catchment.config import Config, Storage
from catchment.errors import BucketMissing, CatchmentError, Unreachable
from catchment.feeds.archive import UNFINISHED, Damage, Fault
from catchment.feeds.background import each
from catchment.feeds.downloads import Downloads, Found
from catchment.feeds.hours import Span
from catchment.feeds.names import ROOT, Archive, Compression, Download, Hour, body_hash
from catchment.feeds.tasks import Tasks, standard
from catchment.monitor.record import FAILED, OK, SKIPPED, Monitor, Work

log = logging.getLogger(__name__)

ARCHIVES = "archives"
SET_ASIDE = "damaged"
SCRATCH = "scratch"
WORKERS = 4  # subjects at once, where it is mostly waiting for a storage


@dataclass
class Report:
    """What one run did, and what it could not do."""

    archived: list[str] = field(default_factory=list)  # names of archives
    uploaded: list[str] = field(default_factory=list)  # names, and where to
    reconciled: list[str] = field(default_factory=list)  # hours, and where
    problems: list[str] = field(default_factory=list)  # each names its subject

    @property
    def well(self) -> bool:
        return not self.problems


class Cycle:
    """The three steps over one workspace and its storages. Not for use from several threads at once."""

    def __init__(
        self,
        config: Config,
        workspace: Path,
        buckets: Mapping[str, Bucket],
        monitor: Monitor,
        *,
        clock: Clock = SYSTEM,
        tasks: Tasks | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """`buckets` has one for each declared storage. `stopping` is asked before each hour that is reconciled."""
        self.config = config  # may be replaced between runs
        self._root = workspace / ARCHIVES
        self._aside = workspace / SET_ASIDE
        self._scratch = workspace / SCRATCH
        self._downloads = Downloads(workspace)
        self._buckets = buckets
        self._monitor = monitor
        self._clock = clock
        self._tasks = tasks or standard(self._scratch)
        self.stopping = stopping
        self._has: dict[str, set[str]] = {}  # archive's name → storages that have it, while not all do
        self._owed: set[tuple[str, str, Hour]] = set()  # storage, feed, hour: still to be reconciled
        self._down: dict[str, str] = {}  # storages that gave no answer in this run, and why

    def run_once(
        self,
        before: datetime | None = None,
        *,
        look_back: int = 0,
        pause: Callable[[], object] = lambda: None,
        packers: int = 1,
    ) -> Report:
        """Archive what was fetched before this moment (None: everything), upload, reconcile what was uploaded, what is
        owed from earlier runs, and the last `look_back` hours of every feed: another replica may have died half-way.

        `pause` is called before reconciling. Replicas that wait for different times seldom merge the same hour twice.
        `packers` is how many hours are packed at once: one leaves most of the processor to polling.
        """
        report = Report()
        self._down = {}
        self.archive(before, report, workers=packers)
        self.upload(report)
        pause()
        if look_back:
            self._look_back(look_back, report)
        self.reconcile(report)
        if look_back:
            self._replicate(look_back, report)
        return report

    def archive(self, before: datetime | None, report: Report, *, workers: int = 1) -> None:
        """Step 1, for every hour of every feed that has something to pack."""

        def one(found: Found) -> None:
            self._try(found.feed, "archive", lambda work: self._pack(found, work, report), report)

        each(self._downloads.before(before), one, workers=workers)

    def upload(self, report: Report) -> None:
        """Step 2, for every archive on disk: this process's and what an earlier one left."""
        each(self._archives(), lambda found: self._upload(*found, report), workers=WORKERS)
        each(list(_files(self._aside)), lambda path: self._upload_damaged(path, report), workers=1)

    def reconcile(self, report: Report) -> None:
        """Step 3, for every hour that is owed. One that could not be settled stays so."""
        each(sorted(self._owed), lambda owed: self._reconcile(*owed, report), workers=WORKERS)

    def left(self) -> list[Path]:
        """What is still confined to this workspace."""
        downloads = [path for found in self._downloads.before() for path in found.files]
        return downloads + [path for path, _ in self._archives()] + list(_files(self._aside))

    def sweep(self) -> int:
        """Remove what an earlier process was writing when it was killed; how many files. Only for the owner."""
        swept = self._downloads.sweep()
        for path in list(_files(self._root)):
            if path.name.endswith(UNFINISHED):
                path.unlink(missing_ok=True)
                swept += 1
        swept += sum(1 for _ in _files(self._scratch))
        shutil.rmtree(self._scratch, ignore_errors=True)
        return swept

    def _pack(self, found: Found, work: Work, report: Report) -> None:
        work.note = found.hour.text
        packed = self._tasks.pack(
            found.files, self._root, feed=found.feed, hour=found.hour, compression=self._compression(found.feed)
        )
        members: frozenset[str] = frozenset(packed.members) if packed is not None else frozenset()
        damaged = packed.damaged if packed is not None else tuple(filter(None, map(_damage, found.files)))
        # 1 what is bad goes aside
        for damage in damaged:
            self._set_aside(found, damage, report)
        # 2 what is packed goes: exactly these files, since others may have landed meanwhile
        for path in found.files:
            if path.name in members:
                path.unlink(missing_ok=True)
        self._downloads.forget_empty(found.feed, found.hour)
        work.numbers.update(downloads=len(members), damaged=len(damaged))
        if packed is None:
            work.outcome, work.note = SKIPPED, f"{found.hour.text}: no good download to pack"
        else:
            work.note = f"{packed.archive.name}: {len(members)} downloads"
            work.numbers["bytes"] = packed.path.stat().st_size
            report.archived.append(packed.archive.name)

    def _upload(self, path: Path, archive: Archive, report: Report) -> None:
        has = self._has.setdefault(archive.name, set())
        for storage in self.config.object_storage:
            note = f"{archive.name} to {storage.id}"

            def put(work: Work, storage: Storage = storage, note: str = note) -> None:
                work.note = note
                work.numbers["bytes"] = self._tasks.upload(self._buckets[storage.id], path).size

            if storage.id not in has and self._try(archive.feed, "upload", put, report, storage):
                has.add(storage.id)
                self._owed.add((storage.id, archive.feed, archive.hour))
                report.uploaded.append(note)
        if all(storage.id in has for storage in self.config.object_storage):
            path.unlink(missing_ok=True)
            del self._has[archive.name]
            _remove_empty(path.parent, self._root)

    def _reconcile(self, id: str, feed: str, hour: Hour, report: Report) -> None:
        storage = self.config.storage(id)
        if storage is None:
            self._owed.discard((id, feed, hour))
        if storage is None or self.stopping():
            return
        where = f"{hour.text} in {id}"

        def settle(work: Work) -> None:
            work.note = where
            done = self._tasks.reconcile(storage, self._buckets[id], feed, hour, self._compression(feed))
            *before, last = done.steps
            for step in before:
                self._record(feed, "reconcile", OK, f"{where}: {step.note}", step.numbers)
            work.note = f"{where}: {last.note}"
            work.numbers.update(last.numbers)
            if done.settled:
                self._owed.discard((id, feed, hour))
                report.reconciled.append(f"{feed} {where}")
            else:
                report.problems.append(f"{feed} {work.note}: not settled yet")

        self._try(feed, "reconcile", settle, report, storage)

    def _set_aside(self, found: Found, damage: Damage, report: Report) -> None:
        """Move a bad file out of the way. One that cannot be read now may be good, and is tried again next time."""
        if damage.fault is Fault.GONE:
            return
        note = f"{damage.name}: {damage.reason}"
        if damage.fault is not Fault.UNREADABLE:
            target = self._aside / found.feed / found.hour.folder / damage.name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(self._downloads.root / found.feed / found.hour.folder / damage.name, target)
            note += "; it is set aside, and not lost"
        self._record(found.feed, "damaged", FAILED, note)
        log.error("feed %s: %s", found.feed, note)
        report.problems.append(f"{found.feed}: {note}")

    def _upload_damaged(self, path: Path, report: Report) -> None:
        feed, *folders = path.relative_to(self._aside).parent.parts
        hour = Hour.parse_folder("/".join(folders))
        if hour is None:
            return  # not put there by us
        sent = 0
        for storage in self.config.object_storage:

            def put(work: Work, storage: Storage = storage) -> None:
                work.note = f"{path.name} to {storage.id}"
                self._tasks.keep_damaged(self._buckets[storage.id], feed, hour, path)

            sent += self._try(feed, "set aside", put, report, storage)
        if sent == len(self.config.object_storage):
            path.unlink(missing_ok=True)
            _remove_empty(path.parent, self._aside)

    def _archives(self) -> Iterator[tuple[Path, Archive]]:
        for path in list(_files(self._root)):
            archive = Archive.parse_name(path.name)
            if archive is not None and archive.hash is not None and path == self._root / archive.path:
                yield path, archive

    def _look_back(self, hours: int, report: Report) -> None:
        """Owe what other replicas left undone in the last hours: one listing for each feed and storage."""
        now = Hour.of(self._clock.now())
        span = Span(Hour.of(now.start - timedelta(hours=hours)), now.next)
        for storage in self.config.object_storage:
            for feed in self.config.feeds:
                if self.stopping() or storage.id in self._down:
                    break
                try:
                    found = self._tasks.unsettled(
                        storage, self._buckets[storage.id], feed.id, span, self._compression(feed.id)
                    )
                    self._owed |= {(storage.id, feed.id, hour) for hour in found}
                except (CatchmentError, OSError) as error:
                    self._failed(f"{feed.id}: looking back", error, report, storage)
                    self._record(feed.id, "reconcile", FAILED, f"looking back {hours} hours in {storage.id}: {error}")

    def _replicate(self, hours: int, report: Report) -> None:
        """Bring hours that have ended to the storages that lack them: one that was away, or was added later."""
        places = {storage.id: (storage, self._buckets[storage.id]) for storage in self.config.object_storage}
        if len(places) < 2 or self._down:
            return
        now = Hour.of(self._clock.now())
        span = Span(Hour.of(now.start - timedelta(hours=hours)), now)
        for feed in self.config.feeds:
            if self.stopping():
                return
            try:
                made = self._tasks.replicate(places, feed.id, span, self._compression(feed.id))
            except (CatchmentError, OSError) as error:
                self._failed(f"{feed.id}: replicating", error, report, None)
                self._record(feed.id, "replicate", FAILED, str(error))
            else:
                for note in made:
                    self._record(feed.id, "replicate", OK, note)

    def _compression(self, feed: str) -> Compression:
        declared = next((one.compression for one in self.config.feeds if one.id == feed), None)
        return Compression(declared) if declared else Compression.GZIP  # a feed that is no longer declared

    def _record(
        self, feed: str, kind: str, outcome: str, note: str, numbers: Mapping[str, float] | None = None
    ) -> None:
        self._monitor.record(f"{ROOT}/{feed}", kind, outcome, note=note, numbers=numbers)

    def _try(
        self, feed: str, kind: str, act: Callable[[Work], None], report: Report, storage: Storage | None = None
    ) -> bool:
        """Do one thing to one subject; whether it worked. What it raises is recorded and told, and ends there.

        A storage that gives no answer at all is left alone for the rest of the run: waiting for it once more for each
        of hundreds of feeds would hold up the storages that answer.
        """
        what = f"{feed}: {kind}" + (f" ({storage.id})" if storage else "")
        if storage is not None and storage.id in self._down:
            report.problems.append(f"{what}: put off, since the storage gave no answer before")
            self._record(feed, kind, SKIPPED, f"{storage.id} gave no answer before: {self._down[storage.id]}")
            return False
        try:
            with self._monitor.timed(f"{ROOT}/{feed}", kind) as work:
                try:
                    act(work)
                except Exception as error:
                    work.note = f"{work.note}: {error}" if work.note else str(error)
                    raise
            return True
        except (CatchmentError, OSError) as error:
            self._failed(what, error, report, storage)
        except Exception as error:
            # One feed's odd file must not keep the others from being archived.
            report.problems.append(f"{what}: {error!r}")
            log.exception("%s failed unexpectedly", what)
        return False

    def _failed(self, what: str, error: Exception, report: Report, storage: Storage | None) -> None:
        if storage is not None and isinstance(error, Unreachable | BucketMissing):
            self._down[storage.id] = str(error)
        report.problems.append(f"{what}: {error}")
        log.error("%s failed: %s", what, error)


def _damage(path: Path) -> Damage | None:
    """What is wrong with a download that could not be packed."""
    download = Download.parse(path.name)
    try:
        good = download is not None and body_hash(path.read_bytes()) == download.hash
    except FileNotFoundError:
        return None
    except OSError as error:
        return Damage(path.name, f"it cannot be read ({error.strerror})", path, fault=Fault.UNREADABLE)
    return None if good else Damage(path.name, "its body does not match its hash", path)


def _files(root: Path) -> Iterator[Path]:
    """Every file below a folder, in order."""
    for folder, folders, names in os.walk(root):
        folders.sort()
        yield from (Path(folder) / name for name in sorted(names))


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove a folder and those above it up to the root, as far as they are empty."""
    while folder != root:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent

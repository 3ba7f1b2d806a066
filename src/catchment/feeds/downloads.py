"""Downloads on disk: each lands whole under its final name, or not at all.

    <workspace>/partial/                                   what is being written; swept at start
    <workspace>/downloads/<feed>/<year>/<month>/<day>/<hour>/<name>

A body is written aside, synced, and renamed. A killed process leaves a whole download or a partial file that nobody
reads. The folder itself is not synced for each download, because that would double the cost of all of this: a machine
that loses power may lose the names of the last seconds, and never keeps half a body under a download's name.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from io import FileIO
from pathlib import Path

from catchment.errors import UsageError
from catchment.feeds.names import Download, Hour

log = logging.getLogger(__name__)

FOLDER = "downloads"
PARTIAL = "partial"


@dataclass(frozen=True)
class Found:
    """The downloads of one hour of one feed that are on disk, oldest first."""

    feed: str
    hour: Hour
    files: tuple[Path, ...]


class Downloads:
    """The downloads of one workspace. Any thread may land; one process at a time owns a workspace (`owned`)."""

    def __init__(self, workspace: Path, *, sync: Callable[[int], None] = os.fsync) -> None:
        """`sync` brings an open file to disk."""
        self.root = workspace / FOLDER
        self._partial = workspace / PARTIAL
        self._sync = sync

    def land(self, download: Download, body: bytes) -> Path:
        """Store the body under the download's name. Whole or not at all; repeating it does no harm."""
        target = self.root / download.path
        # Names are of one feed and one moment, so no other thread writes this very file.
        aside = self._partial / target.name
        try:
            with _opened(aside) as out:
                _write(out, body)
                self._sync(out.fileno())
            _rename(aside, target)
        except BaseException:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
            raise
        return target

    def last(self, feed: str, hour: Hour) -> Download | None:
        """The newest download of this hour on disk: what the next body is compared with after a restart."""
        return max(self._of(feed, hour), default=None)

    def before(self, moment: datetime | None = None) -> Iterator[Found]:
        """What is on disk and was fetched before this moment (None: all of it), by feed and hour."""
        for feed in _names(self.root):
            for hour in _hours(self.root / feed):
                folder = self.root / feed / hour.folder
                try:
                    found = sorted(self._of(feed, hour))
                except OSError as error:  # one folder that cannot be read stops no other
                    log.error("%s cannot be read and is left for later: %s", folder, error)
                    continue
                files = tuple(folder / one.name for one in found if moment is None or one.time < moment)
                if files:
                    yield Found(feed, hour, files)

    def strangers(self) -> list[Path]:
        """Files below downloads/ that are no download of their folder. Nobody touches them."""
        found = []
        for folder, _, names in os.walk(self.root):
            for name in sorted(names):
                download = Download.parse(name)
                if download is None or self.root / download.path != Path(folder) / name:
                    found.append(Path(folder) / name)
        return sorted(found)

    def forget_empty(self, feed: str, hour: Hour) -> None:
        """Remove the folders of an hour with nothing left in it. A download that lands meanwhile makes them anew."""
        folder = self.root / feed / hour.folder
        while folder != self.root:
            try:
                folder.rmdir()
            except OSError:
                return  # not empty, or gone already
            folder = folder.parent

    def sweep(self) -> int:
        """Remove what an earlier process was writing when it was killed; how many files. Only for the owner."""
        swept = 0
        for name in _names(self._partial):
            (self._partial / name).unlink(missing_ok=True)
            swept += 1
        return swept

    def _of(self, feed: str, hour: Hour) -> Iterator[Download]:
        for name in _names(self.root / feed / hour.folder):
            download = Download.parse(name)
            if download is not None and download.feed == feed and download.hour == hour:
                yield download


@contextmanager
def owned(workspace: Path) -> Iterator[None]:
    """Be the only process that collects in this workspace, or cleans it. UsageError if another one does."""
    workspace.mkdir(parents=True, exist_ok=True)
    handle = os.open(workspace / "collect.lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another process collects in {workspace}",
                hint="end it first, or give this one a workspace of its own with --workspace",
            ) from None
        yield
    finally:
        os.close(handle)  # and with it the lock, also when the process is killed


def _opened(path: Path) -> FileIO:
    try:
        return open(path, "wb", buffering=0)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "wb", buffering=0)


def _write(out: FileIO, body: bytes) -> None:
    left = memoryview(body)
    while left:
        left = left[out.write(left) :]


def _rename(source: Path, target: Path) -> None:
    for last in (False, False, True):
        try:
            os.rename(source, target)
            return
        except FileNotFoundError:
            # The hour has no folder yet, or it was just removed because it was empty.
            if last:
                raise
            target.parent.mkdir(parents=True, exist_ok=True)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _hours(folder: Path) -> Iterator[Hour]:
    for year in _names(folder):
        for month in _names(folder / year):
            for day in _names(folder / year / month):
                for name in _names(folder / year / month / day):
                    hour = Hour.parse_folder(f"{year}/{month}/{day}/{name}")
                    if hour is not None:
                        yield hour

"""The directory that feeds are retrieved into.

    <target>/<feed>/<year>/<month>/<day>/<hour>/<download>     as it is
    <target>/<year>/<month>/<day>/<hour>/<download>            collapse_feeds
    <target>/<feed>/<download>                                 collapse_time
    <target>/<download>                                        both
    <target>/.retrieved/                                       what is whole already, and what is half-written

A file lands whole, by a rename. An hour that was retrieved without a flaw is noted with the archives it came from, so
that it is not fetched again while those are still the ones and its files are whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catchment.errors import CatchmentError, UsageError
from catchment.feeds.names import Archive, Hour, body_hash
from catchment.feeds.scan import named
from catchment.feeds.union import check_stream

NOTES = ".retrieved"


class Unwritable(CatchmentError):
    """The target cannot be written, so that there is no use in going on."""


@dataclass(frozen=True)
class Layout:
    """How what is retrieved is laid out."""

    target: Path
    collapse_feeds: bool = False  # feeds share a folder for the same hour
    collapse_time: bool = False  # hours share a folder
    extract: bool = True  # False: the archives as they are, one for each hour
    fold: bool = False  # leave out a body that is equal to the one before it in its hour

    def __post_init__(self) -> None:
        if self.fold and not self.extract:
            raise UsageError(
                "fold and no_extract cannot be had together: archives are kept as they are", hint="give one of them"
            )

    def folder(self, feed: str, hour: Hour) -> str:
        """Where the files of an hour go, below the target."""
        parts = ([] if self.collapse_feeds else [feed]) + ([] if self.collapse_time else [hour.folder])
        return "/".join(parts)


class Target:
    """A target directory while one process retrieves into it. Any thread may call."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.files = 0  # that were written
        self.bytes = 0
        self._notes = layout.target / NOTES
        self._partial = self._notes / "partial"
        self._lock = threading.Lock()
        self._made = 0

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Make the directory if it is not there, and be the only process that retrieves into it."""
        root = self.layout.target
        try:
            self._partial.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._notes / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise UsageError(
                f"{root} cannot be written: {error.strerror}", hint="choose another target_directory"
            ) from None
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(
                    f"another process retrieves into {root}", hint="wait for it, or choose another target_directory"
                ) from None
            shutil.rmtree(self._partial)  # what a process that was killed had half-written
            self._partial.mkdir()
            yield
        finally:
            os.close(handle)  # and with it the lock, also when the process is killed

    def folder(self, feed: str, hour: Hour) -> Path:
        """The folder for the files of an hour, made if it is not there. One that leads out of the target is refused."""
        folder = self.layout.target / self.layout.folder(feed, hour)
        with self.writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        if not folder.resolve().is_relative_to(self.layout.target.resolve()):
            raise Unwritable(
                f"{folder} leads out of {self.layout.target}", hint="remove that link, or choose another target"
            )
        return folder

    def land(self, path: Path, body: bytes) -> None:
        """Store a body whole. One that is there already is left as it is."""
        if _holds(path, body):
            return
        aside = self._new()
        try:
            with self.writing(path):
                aside.write_bytes(body)
            self.move(aside, path)
        finally:
            aside.unlink(missing_ok=True)

    @contextmanager
    def aside(self) -> Iterator[Path]:
        """A folder on the same disk for what is not whole yet. It is gone afterwards."""
        folder = self._new()
        with self.writing(folder):
            folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def move(self, source: Path, path: Path) -> None:
        """Put a finished file under its name."""
        with self.writing(path):
            size = source.stat().st_size
            os.replace(source, path)
        with self._lock:
            self.files += 1
            self.bytes += size

    @contextmanager
    def writing(self, path: Path) -> Iterator[None]:
        """What the disk says no to is Unwritable: none of the hours that follow would fare better."""
        try:
            yield
        except OSError as error:
            raise Unwritable(
                f"{path} cannot be written: {error.strerror or error}",
                hint="make room there, or choose another target_directory; what is in place stays",
            ) from error

    def has(self, feed: str, hour: Hour, origin: Mapping[str, str]) -> bool:
        """Whether all of an hour was retrieved before, in the same way and from the same archives, and is whole."""
        try:
            note = json.loads(self._note(feed, hour).read_bytes())
            files = note["files"]
        except (OSError, ValueError, KeyError, TypeError):
            return False
        if note != self._noted(feed, hour, origin, files):
            return False
        folder = self.layout.target / self.layout.folder(feed, hour)
        return all(_whole(folder / name) for name in files)

    def note(self, feed: str, hour: Hour, origin: Mapping[str, str], files: Sequence[str]) -> None:
        """All of an hour is in place: these files, from these archives. An archive that they replace goes."""
        path = self._note(feed, hour)
        # Before the note is written, which alone knows of them: whoever is cut off in between does it again.
        for old in self._replaced(feed, hour, files):
            with self.writing(old):
                old.unlink(missing_ok=True)
        with self.aside() as folder, self.writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            (folder / "note").write_text(json.dumps(self._noted(feed, hour, origin, files)))
            os.replace(folder / "note", path)

    def _replaced(self, feed: str, hour: Hour, files: Sequence[str]) -> list[Path]:
        """The archives of an hour that were noted here before, and are not among these files."""
        if self.layout.extract:
            return []  # downloads never change, and the archive may be wanted next to them
        folder = self.layout.folder(feed, hour)
        try:
            note = json.loads(self._note(feed, hour).read_bytes())
            before = [str(name) for name in note["files"]] if note["folder"] == folder else []
        except (OSError, ValueError, KeyError, TypeError):
            return []
        gone = [name for name in before if name not in files and _is_of(name, feed, hour)]
        return [path for name in gone if (path := self.layout.target / folder / name).is_file()]

    def _new(self) -> Path:
        with self._lock:
            self._made += 1
            return self._partial / str(self._made)

    def _note(self, feed: str, hour: Hour) -> Path:
        return self._notes / "hours" / feed / f"{hour.text}.json"

    def _noted(self, feed: str, hour: Hour, origin: Mapping[str, str], files: Sequence[str]) -> dict[str, Any]:
        folder = self.layout.folder(feed, hour)
        how = {"folder": folder, "fold": self.layout.fold, "extract": self.layout.extract}
        return {"archives": dict(origin), **how, "files": list(files)}


def _holds(path: Path, body: bytes) -> bool:
    """Whether a plain file with exactly this body is there."""
    try:
        return not path.is_symlink() and path.stat().st_size == len(body) and path.read_bytes() == body
    except OSError:
        return False


def _is_of(name: str, feed: str, hour: Hour) -> bool:
    """Whether this is the name of an archive of this hour."""
    archive = Archive.parse_name(name)
    return archive is not None and (archive.feed, archive.hour) == (feed, hour)


def _whole(path: Path) -> bool:
    """Whether a file that was retrieved before is what its name says."""
    try:
        if path.is_symlink() or not path.is_file():
            return False
        if (download := named(path.name)) is not None:
            return body_hash(path.read_bytes()) == download.hash
        archive = Archive.parse_name(path.name)
        with path.open("rb") as stream:
            return archive is not None and not check_stream(stream, archive, str(path))
    except OSError:
        return False

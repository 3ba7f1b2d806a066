"""Write one archive: whole or not at all, and the same bytes for the same downloads."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from catchment.bucket.files import sync_folder
from catchment.feeds import tar
from catchment.feeds.codec import Outflow, outflow
from catchment.feeds.disk import writing
from catchment.feeds.names import Archive, Compression, Download, Hour, set_hash
from catchment.feeds.scan import head

UNFINISHED = (
    ".unfinished"  # how the name of a file ends that is still being written; left behind by a process that died
)


class Building:
    """An archive that grows by one download at a time, in the order of their names.

    Nothing is made before the first one, and nothing is seen under the archive's name before `finish`. Used with
    `with`: what is not finished then is removed.
    """

    def __init__(self, target: Path, feed: str, hour: Hour, compression: Compression) -> None:
        self.feed, self.hour = feed, hour
        self._target = target
        self._blank = Archive(feed, hour, "", compression)
        self._aside: Path | None = None
        self._file: BinaryIO | None = None
        self._flow: Outflow | None = None
        self._size = 0
        self._first: dict[str, str] = {}  # hash → the member that has the body
        self._names: list[str] = []

    def __enter__(self) -> Building:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with suppress(OSError):  # a full disk may say so once more; the file goes either way
                self._file.close()
        if self._aside is not None:
            with suppress(OSError):
                self._aside.unlink(missing_ok=True)

    @property
    def last(self) -> str:
        """The name that was added last; empty at first."""
        return self._names[-1] if self._names else ""

    def add(self, name: str, download: Download, body: bytes | None, segment: bytes | None = None) -> None:
        """The next download. A body that is there already becomes a link, so it may be None; a new one may not."""
        if name <= self.last:
            raise ValueError(f"{name} comes after {self.last}")
        target = self._first.setdefault(download.hash, name)
        if target is not name:
            entry, segment = [head(name, download, 0, target)], None
        elif body is None:
            raise ValueError(f"{name} is the first with its hash, and has no body")
        else:
            entry = [head(name, download, len(body)), body, tar.padding(len(body))]
        with writing(self._target):
            (self._flow or self._start()).add(entry, segment)
        self._size += sum(map(len, entry))
        self._names.append(name)

    def finish(self) -> tuple[Archive, Path, tuple[str, ...]] | None:
        """Put the archive under its name, on disk for good. None if nothing was added."""
        if self._flow is None or self._file is None or self._aside is None:
            return None
        names = tuple(self._names)
        archive = Archive(self._blank.feed, self._blank.hour, set_hash(names), self._blank.compression)
        path = self._target / archive.path
        with writing(self._target):
            self._flow.finish(tar.ending(self._size))
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._aside.rename(path)
            self._aside = None
            sync_folder(path.parent)
        return archive, path, names

    def _start(self) -> Outflow:
        place = self._target / self._blank.path
        place.parent.mkdir(parents=True, exist_ok=True)
        aside = place.with_name(f".{self._blank.feed}_{self._blank.hour.text}_{secrets.token_hex(8)}{UNFINISHED}")
        self._file = open(aside, "xb", buffering=1 << 18)  # noqa: SIM115 — closed by finish or __exit__
        self._aside = aside
        self._flow = outflow(self._file, self._blank.compression)
        return self._flow

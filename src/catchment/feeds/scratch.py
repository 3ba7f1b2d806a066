"""The real codec of `settle.py`: archives as files in a folder of their own, for as long as an hour is worked on.

An archive is first copied whole and then read from the copy. So a connection that breaks is an error and never looks
like an archive that ends early, the bytes that were checked are the bytes that are merged, and nothing is fetched
twice.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from catchment.errors import DamagedArchive
from catchment.feeds.archive import Damage, Fault, Source, merge, opener
from catchment.feeds.disk import writing
from catchment.feeds.names import Archive
from catchment.feeds.scan import scan
from catchment.feeds.settle import Codecs, Fetched, Merged, Piece

_CHUNK = 1 << 20
_STALE_S = 24 * 3600


def scratch(folder: Path) -> Codecs:
    """Codecs that work in this folder, which is made if it is not there. What a killed process left may be removed."""

    @contextmanager
    def opened() -> Iterator[Scratch]:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for left in folder.glob("reconcile-*"):  # by a process that was killed
                if time.time() - left.stat().st_mtime > _STALE_S:
                    shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="reconcile-", dir=folder) as place:
            yield Scratch(Path(place))

    return opened


class Scratch:
    """Archives in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0

    def fetch(self, archive: Archive, stream: BinaryIO) -> Fetched:
        """Copy it, then read the copy whole, every body checked."""
        path = self._path()
        with writing(self._folder), path.open("wb") as file:
            shutil.copyfileobj(stream, file, _CHUNK)
        names: set[str] = set()
        damaged: list[Piece] = []
        whole = ""  # why all of the archive is set aside, if it is
        try:
            with path.open("rb") as copy:
                for found in scan(copy, archive.compression, archive.key):
                    if isinstance(found, Damage):
                        if found.body is not None:
                            damaged.append(self._piece(found.name, found.reason, found.body))
                        elif found.fault is not Fault.STRAY:  # a stray thing without a body is a folder or the like
                            whole = f"{found.name}: {found.reason}"
                    elif (found.download.feed, found.download.hour) == (archive.feed, archive.hour):
                        names.add(found.name)
                    elif found.body is not None:
                        damaged.append(self._piece(found.name, "belongs to another feed or hour", found.body))
                    else:
                        whole = f"{found.name}: belongs to another feed or hour"
        except DamagedArchive as error:
            whole = error.message
        if whole:
            damaged.append(Piece(archive.name, whole, path))
        return Fetched(archive, path, frozenset(names), tuple(damaged))

    def merge(self, sources: Sequence[Fetched], target: Archive) -> Merged:
        """One archive with the good members of all."""
        usable: list[Source] = [
            (fetched.archive.key, opener(fetched.body), fetched.archive.compression)
            for fetched in sources
            if fetched.names and isinstance(fetched.body, Path)
        ]
        self._made += 1
        packed = merge(
            usable,
            self._folder / f"merged-{self._made}",
            feed=target.feed,
            hour=target.hour,
            compression=target.compression,
        )
        return Merged(packed.path, frozenset(packed.members))

    def _piece(self, name: str, reason: str, body: bytes) -> Piece:
        path = self._path()
        with writing(self._folder):
            path.write_bytes(body)
        return Piece(name, reason, path)

    def _path(self) -> Path:
        self._made += 1
        return self._folder / str(self._made)

"""Read one archive: what is in it that is proven, and what is not.

A body counts when its hash is the one in its name. A hard link counts when it leads to an earlier member of the same
archive that counts and has the same hash in its name; its body is then known to be right without looking at it again.
Paths in a tar are never followed: a member is a download's bare name (with `./` before it, as some write), or it is
reported and passed over.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, NamedTuple

from catchment.errors import DamagedArchive
from catchment.feeds import tar
from catchment.feeds.codec import Corrupt, inflow
from catchment.feeds.disk import writing
from catchment.feeds.names import Compression, Download, body_hash

_IN_MEMORY = 16_000_000  # bytes of bodies that later links may ask for; more than that goes to a file


class Fault(StrEnum):
    """What kind of damage."""

    MISMATCH = "mismatch"  # a download's name, and a body that is not the one it names, or none
    UNREADABLE = "unreadable"  # a file that could not be read now; it may be good
    GONE = "gone"  # a file that vanished meanwhile
    MISPLACED = "misplaced"  # a download, but of another feed or hour
    STRAY = "stray"  # not a download at all: a folder, a manifest, a file of somebody else
    CUT = "cut"  # the archive itself cannot be read to its end


@dataclass(frozen=True)
class Damage:
    """Something that did not go into an archive, or did not come out of one."""

    name: str  # of the file or member; of the archive if the fault is CUT
    reason: str
    path: Path | None = None  # where it lies, when packing
    body: bytes | None = None  # what was found instead; None if nothing was, or too much to hold: the source has it
    source: str = ""  # the archive it was found in; empty when packing
    fault: Fault = Fault.MISMATCH


class Entry(NamedTuple):
    """One proven member, as it stands in the archive."""

    name: str
    download: Download
    body: bytes | None  # None: it is equal to an earlier entry with the same hash
    segment: bytes | None  # the compressed form of exactly the entry that we would write, if it stands alone


def scan(stream: BinaryIO, compression: Compression, source: str) -> Iterator[Entry | Damage]:
    """All members in their order. DamagedArchive, after all that is good, if the rest cannot be read.

    What the stream itself raises comes through as it is: a broken connection is no damage.
    """
    hashes: dict[str, str] = {}  # of the entries that count
    try:
        reader = tar.Reader(inflow(stream, compression))
        while (item := reader.next()) is not None:
            found = _judge(reader, item, hashes, source)
            if isinstance(found, Entry):
                hashes[found.name] = found.download.hash
            yield found
    except Corrupt as error:
        raise DamagedArchive(
            f"{source} {error}, after {len(hashes)} good downloads",
            source=source,
            hint="the downloads before that are safe; keep the archive until they are in another one",
        ) from error


def _judge(reader: tar.Reader, item: tar.Item, hashes: dict[str, str], source: str) -> Entry | Damage:
    name = _bare(item.path)
    download = named(name)
    if download is None:
        what = "is not the name of a download" if item.is_file or item.kind == tar.LINK else f"is {item.what}"
        content = reader.body(item)[0] if item.is_file else None
        if content is None:
            reader.skip(item)
        return Damage(_shown(item.path), what, body=content, source=source, fault=Fault.STRAY)
    if item.is_file:
        body, segment = reader.body(item)
        if (found := body_hash(body)) != download.hash:
            return Damage(name, f"its body has the hash {found}", body=body, source=source)
        if segment is not None and item.head != head(name, download, len(body)):
            segment = None
        return Entry(name, download, body, segment)
    reader.skip(item)
    if item.kind != tar.LINK:
        return Damage(name, f"it is {item.what}", source=source)
    target = _bare(item.target)
    if hashes.get(target) != download.hash:
        return Damage(name, f"it is a link to {_shown(item.target)}, which has no such body here", source=source)
    return Entry(name, download, None, None)


def head(name: str, download: Download, size: int, target: str | None = None) -> bytes:
    """The tar header that we write for a download (whose name is handed along, since making it takes time)."""
    return tar.head(name, size=size, seconds=int(download.time.timestamp()), target=target)


def named(name: str) -> Download | None:
    """The download of this name, if it is one that can stand in an archive."""
    # One part of a path, and printable: so it is UTF-8, and no path or terminal is led astray by it.
    return Download.parse(name) if "/" not in name and name.isprintable() else None


def _bare(path: str) -> str:
    while path.startswith("./"):
        path = path[2:].lstrip("/")
    return path


def _shown(path: str) -> str:
    return path if path.isprintable() else ascii(path)


class Spool:
    """Bodies by their hash: in memory while they are few, in a file without a name after that."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 — closed by __exit__
        self._places: dict[str, tuple[int, int]] = {}
        self._end = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def keep(self, key: str, body: bytes) -> None:
        """Remember a body. The second of the same hash is the first."""
        if key not in self._places:
            with writing(tempfile.gettempdir()):
                self._file.seek(self._end)
                self._file.write(body)
            self._places[key] = (self._end, len(body))
            self._end += len(body)

    def get(self, key: str) -> bytes:
        """A body that was kept."""
        start, size = self._places[key]
        self._file.seek(start)
        return self._file.read(size)

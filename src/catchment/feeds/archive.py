"""Archives: one hour of one feed, as a compressed tar that any tar reads.

    pack     files of one hour → one archive
    read     one archive → its downloads, each body checked against its hash
    merge    archives of one hour → one archive with the union of their downloads

Members stand in the order of their names, which is the order of time. A body that is equal to an earlier one is a hard
link to the first member that has it. Owner, mode and times are fixed or follow from the names. So an archive is a pure
function of its set of downloads (and the compression), and its name tells the set.

**Why a merge never lacks a body.** Merging streams: it sees each source once, in the order of names, and does not go
back. A link in a source has no body of its own, so the union needs: *the first good member of the union with a given
hash has its body in every source that holds it.* Let n be that member, held by source S, and say that n is a link in S.
A link counts only if it leads to a good member m of S with the same hash that stands earlier in S. S is in order, so m
comes before n. But m is in the union too, so n was not the first. Hence n is no link. (What merging writes has this
form again, so it holds for whatever is merged with whatever. A source that is not in order, which only others write, is
put in order first.)

So merge is union: commutative, associative, idempotent, and `merge(pack(A), pack(B))` is `pack(A ∪ B)` byte for byte.
"""

from __future__ import annotations

import heapq
import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, NamedTuple

from catchment.errors import DamagedArchive
from catchment.feeds.build import UNFINISHED, Building
from catchment.feeds.disk import writing
from catchment.feeds.names import Archive, Compression, Download, Hour, body_hash, set_hash
from catchment.feeds.scan import Damage, Entry, Fault, Spool, named, scan

__all__ = ["UNFINISHED", "Damage", "Fault", "Member", "Origin", "Packed", "Source", "merge", "pack", "read"]

# What it is called in reports, how to open it (perhaps more than once), and how it is compressed.
Source = tuple[str, Callable[[], AbstractContextManager[BinaryIO]], Compression]

_AT_ONCE = 4  # sources; a decompressor of zstd may take 8 MB
_HELD = 16_000_000  # bytes of damaged bodies that a merge hands out


class Member(NamedTuple):
    """One download, whole and checked."""

    download: Download
    body: bytes


@dataclass(frozen=True)
class Origin:
    """What a merge found in one source."""

    source: str
    hash: str  # of the set of downloads that were proven in this pass, as in an archive's name
    members: int  # how many they are
    whole: bool  # it was read to its end and every download in it was good: all that it holds is in the result


@dataclass(frozen=True)
class Packed:
    """An archive that was written, and what did not get into it."""

    archive: Archive
    path: Path
    members: tuple[str, ...]  # sorted
    damaged: tuple[Damage, ...] = ()
    origins: tuple[Origin, ...] = ()  # of a merge, one for each source, in their order


def pack(
    files: Iterable[Path],
    target: Path,
    *,
    feed: str,
    hour: Hour,
    compression: Compression,
    report: Callable[[Damage], object] | None = None,
) -> Packed | None:
    """Write the downloads of one hour to `target / archive.path`, whole or not at all. None if none of them is good.

    A file that is not a good download of this hour is left out and reported, and the rest goes on: in `damaged`, and to
    `report`, which hears of it even when there is no archive in the end. Deletes nothing: exactly `members` are safe to
    remove. StorageFull, or another CatchmentError, if the target cannot be written; then nothing is left there.
    """
    damaged = []
    with Building(target, feed, hour, compression) as building:
        for path in sorted(files, key=attrgetter("name")):
            if path.name == building.last:
                continue  # the same download in two folders
            found = _load(path, feed, hour)
            if isinstance(found, Damage):
                damaged.append(found)
                if report is not None:
                    report(found)
            else:
                building.add(path.name, *found)
        done = building.finish()
    return Packed(*done, damaged=tuple(damaged)) if done is not None else None


def read(stream: BinaryIO, compression: Compression, *, source: str = "the archive") -> Iterator[Member | Damage]:
    """All downloads of an archive in their order, every body checked, one in memory at a time.

    What is not good is yielded as Damage. DamagedArchive, after all that is good, if the rest cannot be read.
    """
    # A link may lead to any body before it, and the stream does not go back.
    with Spool() as spool:
        for found in scan(stream, compression, source):
            if isinstance(found, Damage):
                yield found
            elif found.body is None:
                yield Member(found.download, spool.get(found.download.hash))
            else:
                spool.keep(found.download.hash, found.body)
                yield Member(found.download, found.body)


def merge(sources: Sequence[Source], target: Path, *, feed: str, hour: Hour, compression: Compression) -> Packed:
    """Write the union of some archives to `target / archive.path`, whole or not at all.

    Memory holds a body and a decompressor for each of a few sources; more of them are merged in rounds. A source that
    is damaged gives what is good in it; `origins` says of which sources all is in the result, and no other may be
    deleted. DamagedArchive if there is nothing good in any of them. What opening or reading a source raises otherwise
    (a bucket's errors) ends the merge, and nothing is written.
    """
    done, damaged, origins = _union(sources, target, feed, hour, compression)
    if done is None:
        places = ", ".join(origin.source for origin in origins) or "no archives"
        raise DamagedArchive(
            f"no good download of {feed} at {hour.text} in {places}",
            source=origins[0].source if origins else "",
            hint=f"{len(damaged)} members are damaged; keep what is there and look at it by hand",
        )
    return Packed(*done, damaged=tuple(damaged), origins=tuple(origins))


_Union = tuple[tuple[Archive, Path, tuple[str, ...]] | None, list[Damage], list[Origin]]


def _union(sources: Sequence[Source], target: Path, feed: str, hour: Hour, compression: Compression) -> _Union:
    if len(sources) > _AT_ONCE:
        return _in_rounds(sources, target, feed, hour, compression)
    unordered: set[int] = set()
    while True:
        try:
            with Building(target, feed, hour, compression) as building:
                return _merge(sources, unordered, building)
        except _OutOfOrder as found:
            unordered.add(found.number)


def _in_rounds(sources: Sequence[Source], target: Path, feed: str, hour: Hour, compression: Compression) -> _Union:
    """A few at a time into archives of our own, then those: union does not mind."""
    damaged: list[Damage] = []
    origins: list[Origin] = []
    partial: list[Source] = []
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
        place = TemporaryDirectory(prefix=".", suffix=UNFINISHED, dir=target)
    with place as scratch:
        for start in range(0, len(sources), _AT_ONCE):
            done, bad, read = _union(sources[start : start + _AT_ONCE], Path(scratch), feed, hour, compression)
            damaged += bad
            origins += read
            if done is not None:
                partial.append((done[0].name, opener(done[1]), compression))
        done, _, _ = _union(partial, target, feed, hour, compression)
    return done, damaged, origins


def opener(path: Path) -> Callable[[], AbstractContextManager[BinaryIO]]:
    """Opens a file, each time it is called."""
    return lambda: path.open("rb")


class _OutOfOrder(Exception):
    def __init__(self, number: int) -> None:
        self.number = number


@dataclass
class _Track:
    """One source while it is merged."""

    number: int
    source: str
    names: set[str] = field(default_factory=set)
    whole: bool = True


def _merge(sources: Sequence[Source], unordered: set[int], building: Building) -> _Union:
    tracks = [_Track(number, label) for number, (label, _, _) in enumerate(sources)]
    damaged = _Damages()
    with ExitStack() as stack:
        entries = []
        for track, (label, opener, compression) in zip(tracks, sources, strict=True):
            stream = stack.enter_context(opener())
            good = _good(scan(stream, compression, label), track, damaged, building.feed, building.hour)
            order = _put_in_order(good) if track.number in unordered else _in_order(good, track.number)
            entries.append(stack.enter_context(closing(order)))
        for entry in heapq.merge(*entries, key=_NAME):
            if entry.name != building.last:
                building.add(*entry)
    origins = [Origin(track.source, set_hash(track.names), len(track.names), track.whole) for track in tracks]
    return building.finish(), damaged.found, origins


_NAME = attrgetter("name")


class _Damages:
    """Collects damage, with bodies as long as they do not fill the memory."""

    def __init__(self) -> None:
        self.found: list[Damage] = []
        self._held = 0

    def add(self, damage: Damage) -> None:
        self._held += len(damage.body or b"")
        self.found.append(damage if self._held <= _HELD else replace(damage, body=None))


def _good(found: Iterator[Entry | Damage], track: _Track, damaged: _Damages, feed: str, hour: Hour) -> Iterator[Entry]:
    """The entries of a source that may go into the union. The rest is noted."""
    try:
        for each in found:
            if isinstance(each, Damage):
                track.whole = track.whole and each.fault is Fault.STRAY
                damaged.add(each)
            elif (reason := _misplaced(each.download, feed, hour)) is not None:
                track.whole = False
                damaged.add(Damage(each.name, reason, None, each.body, track.source, Fault.MISPLACED))
            else:
                track.names.add(each.name)
                yield each
    except DamagedArchive as error:
        track.whole = False
        damaged.add(Damage(track.source, error.message, source=track.source, fault=Fault.CUT))


def _in_order(entries: Iterator[Entry], number: int) -> Generator[Entry, None, None]:
    last = ""
    for entry in entries:
        if entry.name < last:
            raise _OutOfOrder(number)
        last = entry.name
        yield entry


def _put_in_order(entries: Iterator[Entry]) -> Generator[Entry, None, None]:
    """A source that others wrote, sorted by way of a file: each hash has its body where it comes first."""
    with Spool() as spool:
        downloads: dict[str, Download] = {}
        for entry in entries:
            downloads[entry.name] = entry.download
            if entry.body is not None:
                spool.keep(entry.download.hash, entry.body)
        seen = set()
        for name, download in sorted(downloads.items()):
            body = spool.get(download.hash) if download.hash not in seen else None
            seen.add(download.hash)
            yield Entry(name, download, body, None)


def _load(path: Path, feed: str, hour: Hour) -> tuple[Download, bytes] | Damage:
    """The download in a file, checked."""

    def damage(reason: str, fault: Fault) -> Damage:
        return Damage(path.name, reason, path, fault=fault)

    download = named(path.name)
    if download is None:
        return damage("is not the name of a download", Fault.STRAY)
    if (reason := _misplaced(download, feed, hour)) is not None:
        return damage(reason, Fault.MISPLACED)
    try:
        body = _content(path)
    except FileNotFoundError:
        return damage("it vanished before it was read", Fault.GONE)
    except (OSError, MemoryError) as error:
        return damage(f"it cannot be read ({error})", Fault.UNREADABLE)
    if body is None:
        return damage("it is not a plain file", Fault.STRAY)
    if (found := body_hash(body)) != download.hash:
        return damage(f"its body has the hash {found}", Fault.MISMATCH)
    return download, body


def _content(path: Path) -> bytes | None:
    """All of a file; None if it is a folder, a pipe or the like, which must not be waited for."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        seen = os.fstat(handle)
        if not stat.S_ISREG(seen.st_mode):
            return None
        parts: list[bytes] = []
        while part := os.read(handle, max(seen.st_size + 1 - sum(map(len, parts)), 1 << 16)):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(handle)


def _misplaced(download: Download, feed: str, hour: Hour) -> str | None:
    if download.feed != feed:
        return f"it belongs to the feed {download.feed}, not to {feed}"
    return f"it belongs to the hour {download.hour.text}, not to {hour.text}" if download.hour != hour else None

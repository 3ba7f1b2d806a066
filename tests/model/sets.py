"""Archives that are small sets: the same reconciling code, without tar and compression."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import BinaryIO

from catchment.bucket.memory import MemoryBucket
from catchment.feeds.names import Archive, Compression, Hour, set_hash
from catchment.feeds.settle import Codec, Fetched, Merged, Piece

FEED = "f"
HOUR = Hour(datetime(2026, 1, 1, 8, tzinfo=UTC))
GZIP, ZSTD = Compression.GZIP, Compression.ZSTD


class Sets:
    """Reads and writes archives as JSON: the compression, the members, and the members whose bodies are wrong."""

    def fetch(self, archive: Archive, stream: BinaryIO) -> Fetched:
        body = stream.read()
        try:
            found = json.loads(body)
        except ValueError:
            return Fetched(archive, body, frozenset(), (Piece(archive.name, "cut short", body),))
        assert found["ext"] == archive.compression.extension
        bad = tuple(Piece(name, "wrong body", f"bad {name}".encode()) for name in found["bad"])
        return Fetched(archive, body, frozenset(found["names"]), bad)

    def merge(self, sources: Sequence[Fetched], target: Archive) -> Merged:
        names = frozenset[str]().union(*(fetched.names for fetched in sources))
        return Merged(encode(names, target.compression), names)


@contextmanager
def sets() -> Iterator[Codec]:
    yield Sets()


def encode(names: Iterable[str], compression: Compression, bad: Iterable[str] = ()) -> bytes:
    return json.dumps({"ext": compression.extension, "names": sorted(names), "bad": sorted(bad)}).encode()


def archive_of(names: str, compression: Compression) -> Archive:
    """The archive of these downloads, each a letter."""
    return Archive(FEED, HOUR, set_hash(names), compression)


def upload_of(names: str, compression: Compression = GZIP) -> tuple[str, bytes]:
    """Key and body of what a replica uploads."""
    return archive_of(names, compression).key, encode(names, compression)


def held(bucket: MemoryBucket) -> dict[str, frozenset[str]]:
    """The good downloads in each archive of the hour, by key."""
    found = {}
    for entry in bucket.list(HOUR.prefix(FEED)):
        if Archive.parse(entry.key) is not None and entry.size:
            content = bucket.get(entry.key)
            found[entry.key] = frozenset(json.loads(content)["names"]) if content.startswith(b"{") else frozenset()
    return found


def kept(bucket: MemoryBucket) -> frozenset[str]:
    """All that must never shrink: good downloads, and damaged pieces, be they in an archive or set aside."""
    return _kept(bucket.state())


@lru_cache(maxsize=100_000)
def _kept(state: tuple[tuple[str, bytes, object], ...]) -> frozenset[str]:
    found: set[str] = set()
    for key, content, _ in state:
        if content.startswith(b"{") and Archive.parse(key) is not None:
            archive = json.loads(content)
            found.update(archive["names"], (f"bad {name}" for name in archive["bad"]))
        else:
            found.add(content.decode())  # a piece that was set aside, or an archive that is cut short
    return frozenset(found)


def nothing_is_lost(before: MemoryBucket, after: MemoryBucket) -> None:
    now = kept(after)
    gone = kept(before) - now - {""}  # the empty one is a primary key that was let go of
    gone -= {f"bad {name}" for name in now}  # a wrong body whose right one is there needs no keeping
    assert not gone, f"lost {sorted(gone)}"


def ends_in(names: str, *, key: str | None = None) -> Callable[[MemoryBucket], None]:
    """At the end there is one archive, and it is the union."""

    def check(bucket: MemoryBucket) -> None:
        left = held(bucket)
        assert list(left.values()) == [frozenset(names)], f"ended with {left}"
        assert key is None or list(left) == [key], f"ended with {list(left)}"

    return check

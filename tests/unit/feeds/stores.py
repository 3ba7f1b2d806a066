"""What the tests of reading share: archives in buckets."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from catchment.bucket.contract import Bucket
from catchment.bucket.wrap import Wrapper
from catchment.feeds.archive import pack
from catchment.feeds.names import Archive, Compression, Download, Hour, body_hash

FEED = "subway"
HOUR = Hour(datetime(2026, 11, 15, 8, tzinfo=UTC))


def hours_later(count: int) -> Hour:
    return Hour(HOUR.start + timedelta(hours=count))


def download(second: float, body: bytes, *, feed: str = FEED, hour: Hour = HOUR) -> Download:
    return Download(feed, hour.start + timedelta(milliseconds=round(second * 1000)), body_hash(body), ".json")


def store(
    bucket: Bucket,
    bodies: Mapping[int, bytes],
    *,
    feed: str = FEED,
    hour: Hour = HOUR,
    compression: Compression = Compression.GZIP,
    primary: bool = False,
) -> Archive:
    """Put an archive with these bodies, by the second of the hour at which they were fetched."""
    archive, content = packed(bodies, feed=feed, hour=hour, compression=compression)
    if primary:
        archive = Archive(feed, hour, None, compression)
    bucket.put(archive.key, content)
    return archive


def packed(
    bodies: Mapping[int, bytes], *, feed: str = FEED, hour: Hour = HOUR, compression: Compression = Compression.GZIP
) -> tuple[Archive, bytes]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files = []
        for second, body in bodies.items():
            path = folder / download(second, body, feed=feed, hour=hour).name
            path.write_bytes(body)
            files.append(path)
        done = pack(files, folder / "packed", feed=feed, hour=hour, compression=compression)
        assert done is not None and not done.damaged
        return done.archive, done.path.read_bytes()


def cut_short(bucket: Bucket, archive: Archive, *, keep: float = 0.6) -> None:
    """Damage an archive as a broken disk would."""
    whole = bucket.get(archive.key)
    bucket.put(archive.key, whole[: int(len(whole) * keep)])


def noise(size: int, seed: int) -> bytes:
    """A body that does not compress, so that cutting an archive cuts bodies."""
    return b"".join(body_hash(f"{seed}:{part}".encode()).encode() for part in range(size // 20 + 1))[:size]


class Meddling(Wrapper):
    """Does something once, just before the first archive is opened: what another replica does meanwhile."""

    def __init__(self, inner: Bucket, meddle: Callable[[Bucket], object]) -> None:
        super().__init__(inner)
        self._meddle: Callable[[Bucket], object] | None = meddle

    @contextmanager
    def open(self, key: str, *, version: str | None = None, etag: str | None = None) -> Iterator[BinaryIO]:
        meddle, self._meddle = self._meddle, None
        if meddle is not None:
            meddle(self.inner)
        with self.inner.open(key, version=version, etag=etag) as stream:
            yield stream

"""What the tests of archives share: downloads of one hour, as files and as archives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from catchment.feeds.archive import Member, Packed, Source, merge, pack, read
from catchment.feeds.names import Compression, Download, Hour, body_hash

FEED = "subway"
HOUR = Hour(datetime(2026, 11, 15, 8, tzinfo=UTC))
ALL = tuple(Compression)


def download(second: float, body: bytes, postfix: str = ".json", feed: str = FEED) -> Download:
    return Download(feed, HOUR.start + timedelta(milliseconds=round(second * 1000)), body_hash(body), postfix)


def hour_of(bodies: Mapping[int, bytes] | Mapping[float, bytes]) -> dict[str, bytes]:
    """Names and bodies of downloads at these seconds of the hour."""
    return {download(second, body).name: body for second, body in bodies.items()}


def spread(folder: Path, downloads: Mapping[str, bytes]) -> list[Path]:
    """The downloads as files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in downloads.items():
        (folder / name).write_bytes(body)
    return [folder / name for name in downloads]


def packed(folder: Path, downloads: Mapping[str, bytes], compression: Compression = Compression.ZSTD) -> Packed:
    done = pack(spread(folder / "files", downloads), folder / "packed", feed=FEED, hour=HOUR, compression=compression)
    assert done is not None and not done.damaged
    return done


def merged(folder: Path, sources: Sequence[Packed | Source], compression: Compression = Compression.ZSTD) -> Packed:
    given = [source_of(each) if isinstance(each, Packed) else each for each in sources]
    return merge(given, folder / "merged", feed=FEED, hour=HOUR, compression=compression)


def source_of(archive: Packed) -> Source:
    return archive.archive.key, lambda: archive.path.open("rb"), archive.archive.compression


def bytes_source(label: str, content: bytes, compression: Compression) -> Source:
    opener: Callable[[], AbstractContextManager[BinaryIO]] = lambda: BytesIO(content)  # noqa: E731
    return label, opener, compression


def contents(archive: Packed) -> dict[str, bytes]:
    """All that can be read from an archive, which must be good."""
    with archive.path.open("rb") as stream:
        found = list(read(stream, archive.archive.compression))
    members = [each for each in found if isinstance(each, Member)]
    assert len(members) == len(found)
    assert [each.download.name for each in members] == list(archive.members)
    return {each.download.name: each.body for each in members}


def noise(size: int) -> bytes:
    """Bytes that cannot be compressed, and are always the same."""
    state, out = 1, bytearray()
    while len(out) < size:
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        out += (state >> 32).to_bytes(4, "big")
    return bytes(out[:size])

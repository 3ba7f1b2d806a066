"""What downloads and archives are called. A name is its value, and parsing proves it: `str(parse(text)) == text`.

    download   <feed>_<YYYYMMDD>T<HHMMSS>.<mmm>_<hash><postfix>
               under <feed>/<year>/<month>/<day>/<hour>/ of the workspace's downloads/
    archive    feeds/<feed>/<year>/<month>/<day>/<hour>/<feed>_<YYYYMMDD>T<HH>_<hash>.tar.<ext>
    primary    the same without _<hash>: one stable key for the hour
    tombstone  feeds/<feed>/<year>/<month>/<day>/<hour>/_deleted.json: the hour was deleted on purpose

All times are UTC. A hash is the first 20 characters of the URL-safe base64 of a SHA-256: of the body for a download, of
the sorted names of its members for an archive. So two replicas that hold the same downloads make the same archive name,
whatever their compression level, library or clock.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

HASH_LENGTH = 20
ROOT = "feeds"
TOMBSTONE = "_deleted.json"
DAMAGED = "_damaged"  # feeds/<feed>/_damaged/…: what did not match its hash, set aside

_HASH = rf"[A-Za-z0-9_-]{{{HASH_LENGTH}}}"
_DOWNLOAD = re.compile(rf"(?P<feed>.+)_(?P<time>\d{{8}}T\d{{6}}\.\d{{3}})_(?P<hash>{_HASH})(?P<postfix>.*)")
_ARCHIVE = re.compile(rf"(?P<feed>.+)_(?P<hour>\d{{8}}T\d{{2}})(?:_(?P<hash>{_HASH}))?\.tar\.(?P<ext>[a-z0-9]+)")


def hash_of(digest: bytes) -> str:
    """The 20 characters that stand for a SHA-256 digest."""
    return base64.urlsafe_b64encode(digest).decode()[:HASH_LENGTH]


def body_hash(body: bytes) -> str:
    """The hash of a download's body."""
    return hash_of(hashlib.sha256(body).digest())


def set_hash(names: Iterable[str]) -> str:
    """The hash of an archive that holds these members, in whatever order they are given."""
    state = hashlib.sha256()
    for name in sorted(names):
        state.update(name.encode() + b"\n")
    return hash_of(state.digest())


class Compression(StrEnum):
    """How an archive is compressed, as the configuration spells it."""

    GZIP = "gzip"
    ZSTD = "zstd"
    BZIP2 = "bzip2"
    XZ = "xz"

    @property
    def extension(self) -> str:
        return _EXTENSIONS[self]


_EXTENSIONS = {Compression.GZIP: "gz", Compression.ZSTD: "zst", Compression.BZIP2: "bz2", Compression.XZ: "xz"}
_BY_EXTENSION = {extension: compression for compression, extension in _EXTENSIONS.items()}


@dataclass(frozen=True, order=True)
class Hour:
    """One hour of UTC, by its start."""

    start: datetime

    def __post_init__(self) -> None:
        if self.start.utcoffset() != timedelta(0) or self.start != _floor(self.start):
            raise ValueError(f"{self.start} is not the start of an hour in UTC")

    @classmethod
    def of(cls, moment: datetime) -> Hour:
        """The hour that a moment lies in."""
        return cls(_floor(moment.astimezone(UTC)))

    @property
    def folder(self) -> str:
        """2026/11/15/08"""
        return self.start.strftime("%Y/%m/%d/%H")

    @property
    def text(self) -> str:
        """20261115T08"""
        return self.start.strftime("%Y%m%dT%H")

    @classmethod
    def parse_text(cls, text: str) -> Hour | None:
        """From 20261115T08; None if it is not one."""
        found = _hour(text, "%Y%m%dT%H")
        return found if found is not None and found.text == text else None

    @classmethod
    def parse_folder(cls, text: str) -> Hour | None:
        """From 2026/11/15/08; None if it is not one."""
        found = _hour(text, "%Y/%m/%d/%H")
        return found if found is not None and found.folder == text else None

    @property
    def next(self) -> Hour:
        return Hour(self.start + timedelta(hours=1))

    def prefix(self, feed: str) -> str:
        """Where a bucket has all that belongs to this hour of a feed."""
        return f"{ROOT}/{feed}/{self.folder}/"

    def tombstone(self, feed: str) -> str:
        """The key that says that this hour was deleted on purpose."""
        return self.prefix(feed) + TOMBSTONE


@dataclass(frozen=True, order=True)
class Download:
    """One body of one feed. Sorts by feed, then by time."""

    feed: str
    time: datetime  # to the millisecond
    hash: str
    postfix: str = ""

    @property
    def name(self) -> str:
        at = self.time  # formatted by hand: strftime takes a noticeable part of a merge
        day, clock = f"{at.year:04d}{at.month:02d}{at.day:02d}", f"{at.hour:02d}{at.minute:02d}{at.second:02d}"
        return f"{self.feed}_{day}T{clock}.{at.microsecond // 1000:03d}_{self.hash}{self.postfix}"

    @property
    def hour(self) -> Hour:
        return Hour.of(self.time)

    @property
    def path(self) -> str:
        """Its place below the workspace's downloads/."""
        return f"{self.feed}/{self.hour.folder}/{self.name}"

    @classmethod
    def parse(cls, name: str) -> Download | None:
        """From a file's name; None if it is not one."""
        match = _DOWNLOAD.fullmatch(name)
        if match is None:
            return None
        text = match["time"]
        parts = (text[:4], text[4:6], text[6:8], text[9:11], text[11:13], text[13:15], text[16:19] + "000")
        try:
            time = datetime(*map(int, parts), tzinfo=UTC)  # type: ignore[arg-type, misc]
        except ValueError:
            return None
        found = cls(match["feed"], time, match["hash"], match["postfix"])
        return found if found.name == name else None


@dataclass(frozen=True, order=True)
class Archive:
    """One archive in a bucket: downloads of one hour of one feed."""

    feed: str
    hour: Hour
    hash: str | None  # None: the primary archive of the hour
    compression: Compression

    @property
    def name(self) -> str:
        part = f"_{self.hash}" if self.hash is not None else ""
        return f"{self.feed}_{self.hour.text}{part}.tar.{self.compression.extension}"

    @property
    def key(self) -> str:
        return self.hour.prefix(self.feed) + self.name

    @property
    def path(self) -> str:
        """Its place below the workspace's archives/."""
        return f"{self.feed}/{self.hour.start.strftime('%Y/%m/%d')}/{self.name}"

    @classmethod
    def parse_name(cls, name: str) -> Archive | None:
        """From a file's name; None if it is not one."""
        match = _ARCHIVE.fullmatch(name)
        hour = Hour.parse_text(match["hour"]) if match else None
        if match is None or hour is None or match["ext"] not in _BY_EXTENSION:
            return None
        found = cls(match["feed"], hour, match["hash"], _BY_EXTENSION[match["ext"]])
        return found if found.name == name else None

    @classmethod
    def parse(cls, key: str) -> Archive | None:
        """From a bucket's key; None if it is not one, or lies in another hour's or feed's folder."""
        found = cls.parse_name(key.rpartition("/")[2])
        return found if found is not None and found.key == key else None


def _floor(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


def _hour(text: str, pattern: str) -> Hour | None:
    try:
        return Hour(datetime.strptime(text, pattern).replace(tzinfo=UTC))
    except ValueError:
        return None

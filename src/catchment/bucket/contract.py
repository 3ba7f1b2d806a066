"""What a bucket promises, whatever is behind it.

Six promises hold for every bucket (tests/contract checks them on each):

- A write is whole or not at all, and once it has returned every reader sees it.
- A precondition is judged and the write done as one step: of any number of writers with the same one, one wins.
- What fails raises. NotFound means the key is not there; a listing that could not be read to its end is never
  a shorter listing.
- Listings are in the order of the keys' UTF-8 bytes.
- Repeating a call with no precondition does no harm.
- Nothing here retries, caches or counts: wrappers do (`wrap.py`).

A key is `part/part/part`: no empty part, no `.` or `..`, no control character, at most 1024 bytes. Keys that end in
`/` are folder marks that some tools leave in S3; they are not objects and are not listed.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from catchment.errors import BadKey, Conflict

Body = bytes | Path  # bytes in memory, or a file that is streamed
Tags = Mapping[str, str]


@dataclass(frozen=True)
class Precondition:
    """What must hold for a put to happen. Use ANY, ABSENT or matches(etag)."""

    absent: bool = False
    etag: str | None = None

    def check(self, key: str, current: str | None) -> None:
        """Conflict unless an object with this ETag (None: no object) may be written over."""
        if self.absent and current is not None:
            raise Conflict(f"{key} is there already", key=key)
        if self.etag is not None and current != self.etag:
            found = "it is gone" if current is None else f"it has ETag {current}"
            raise Conflict(f"{key} should have ETag {self.etag} but {found}", key=key)


ANY = Precondition()
ABSENT = Precondition(absent=True)


def matches(etag: str) -> Precondition:
    """The object must be there and have this ETag."""
    return Precondition(etag=etag)


@dataclass(frozen=True)
class Stat:
    """One object as it was when asked."""

    key: str
    size: int
    etag: str  # says which content; equal content may have different ETags, different content never equal ones
    modified: datetime
    version: str | None  # None where the store keeps no versions


@dataclass(frozen=True)
class Object:
    """A small object, whole: what it holds and which one it is, from one look."""

    stat: Stat
    body: bytes


class Entry(NamedTuple):  # and not a dataclass, because listings make hundreds of thousands of them
    """One object in a listing."""

    key: str
    size: int
    modified: datetime
    etag: str | None  # None: not known without reading the object (a local directory); `head` tells
    settled: bool = True  # False: may still be being written by another program; leave it for later


@dataclass(frozen=True)
class Folder:
    """A common prefix in `children`: all keys that start with it. Ends in `/`."""

    key: str


@dataclass(frozen=True)
class Version:
    """One version of a key."""

    key: str
    version: str
    size: int
    etag: str
    modified: datetime
    latest: bool
    deleted: bool = False  # a mark that says the key was deleted here; there is nothing to read


@dataclass(frozen=True)
class Support:
    """What a store was seen to do when it was probed."""

    absent: bool  # put-if-absent is honoured
    matches: bool  # put-if-match is honoured
    tags: bool
    versions: bool

    @property
    def compare_and_set(self) -> bool:
        """Whether leases, claims, commits and `primary` archives can work here."""
        return self.absent and self.matches


class Bucket(ABC):
    """The contract. All methods may raise the BucketErrors that `errors.py` lists, and any thread may call them."""

    name: str  # for people: s3://my-lake/prod, /data/lake

    @abstractmethod
    def put(self, key: str, body: Body, *, when: Precondition = ANY, tags: Tags | None = None) -> Stat:
        """Store all of body, with its tags, or nothing. Conflict if `when` does not hold. No tags means none."""

    @abstractmethod
    def open(
        self, key: str, *, version: str | None = None, etag: str | None = None
    ) -> AbstractContextManager[BinaryIO]:
        """Stream the object. NotFound if it is absent, Conflict if `etag` is given and it is no longer that one.

        What is read is one version of the object, whatever is put meanwhile; where that cannot be kept, reading raises.
        """

    @abstractmethod
    def read(self, key: str, *, version: str | None = None) -> Object:
        """The whole object in memory with its stat, both of the same version. NotFound if nothing is there."""

    @abstractmethod
    def head(self, key: str, *, version: str | None = None) -> Stat:
        """What is there now. NotFound if nothing is."""

    @abstractmethod
    def list(self, prefix: str = "", *, after: str = "") -> Iterator[Entry]:
        """Every object whose key starts with prefix and is greater than `after`, in order, read page by page.

        A put or delete that happens meanwhile may or may not be seen; everything else is, exactly once.
        """

    @abstractmethod
    def children(self, prefix: str = "", *, after: str = "") -> Iterator[Entry | Folder]:
        """As `list`, but keys with a `/` after the prefix are folded into one Folder each.

        A folder whose last object was deleted may still be given by some servers: only `list` tells what is there.
        """

    @abstractmethod
    def delete(self, key: str, *, version: str | None = None) -> None:
        """Remove the object, or one version for good. An absent key is no error. Never for a compare-and-set key."""

    @abstractmethod
    def copy(self, source: str, target: str, *, version: str | None = None, tags: Tags | None = None) -> Stat:
        """Put the source's content at target, with these tags (None: the source's). Never onto a compare-and-set."""

    @abstractmethod
    def tags(self, key: str, *, version: str | None = None) -> dict[str, str]:
        """The object's tags."""

    @abstractmethod
    def tag(self, key: str, tags: Tags, *, version: str | None = None) -> None:
        """Replace the whole set of tags. The content, its ETag and its version stay."""

    @abstractmethod
    def versions(self, key: str) -> Sequence[Version]:
        """All versions of one key, newest first. Empty if there never was one. Unsupported where none are kept."""

    @abstractmethod
    def check(self) -> None:
        """Raise unless the bucket is there and can be listed. The clear error for a wrong endpoint, name or key."""

    def get(self, key: str, *, version: str | None = None, etag: str | None = None) -> bytes:
        """The whole object in memory: for small ones."""
        with self.open(key, version=version, etag=etag) as stream:
            return stream.read()

    def restore(self, key: str, version: str) -> Stat:
        """Make an old version the current one again, with its tags. It gets a new version id."""
        return self.copy(key, key, version=version)

    def close(self) -> None:  # noqa: B027 (nothing to let go of is a fine answer)
        """Let go of connections and files. Calling it twice is fine."""


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
MAX_KEY_BYTES = 1024
RESERVED = ".catchment"  # a local directory keeps its tags, versions and locks under it


def check_key(key: str) -> str:
    """The key itself, if every bucket can hold it; otherwise BadKey says why. A key cannot leave its root."""

    def bad(why: str) -> BadKey:
        return BadKey(f"key {key[:200]!r} {why}", key=key, hint="use a key of the form part/part/part")

    if not key:
        raise bad("is empty")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise bad("is not valid Unicode") from None
    if size > MAX_KEY_BYTES:
        raise bad(f"is {size} bytes long; the limit is {MAX_KEY_BYTES}")
    if _CONTROL.search(key):
        raise bad("has a control character in it")
    parts = key.split("/")
    if "" in parts:
        raise bad("has an empty part (a slash at an end, or two in a row)")
    if "." in parts or ".." in parts:
        raise bad("has '.' or '..' as a part, which could leave its folder")
    if parts[0] == RESERVED:
        raise bad(f"is under {RESERVED}/, which a local directory keeps for itself")
    return key


def fold(entries: Iterable[Entry], prefix: str, after: str) -> Iterator[Entry | Folder]:
    """An ordered listing of `prefix` as `children` wants it: one Folder for all keys that share the next part."""
    last = ""
    for entry in entries:
        name, slash, _ = entry.key[len(prefix) :].partition("/")
        if not slash:
            if entry.key > after:
                yield entry
        elif (folder := f"{prefix}{name}/") != last:
            last = folder
            if folder > after:
                yield Folder(folder)


# S3's limits, which all buckets keep so that what works on a laptop works there.
MAX_TAGS = 10
MAX_TAG_KEY = 128
MAX_TAG_VALUE = 256
_TAG_TEXT = re.compile(r"[\w \-.:/=+@]*")


def check_tags(tags: Tags | None) -> dict[str, str]:
    """The tags as a dict, if S3 would take them; otherwise BadKey names the tag and the limit. Nothing was sent."""
    found = dict(tags or {})
    hint = "shorten it, or keep the rest in an object of its own"
    if len(found) > MAX_TAGS:
        raise BadKey(f"{len(found)} tags; the limit is {MAX_TAGS}", hint=hint)
    for name, value in found.items():
        if not name or len(name) > MAX_TAG_KEY:
            raise BadKey(f"tag {name!r}: its name must have 1 to {MAX_TAG_KEY} characters, not {len(name)}", hint=hint)
        if len(value) > MAX_TAG_VALUE:
            raise BadKey(
                f"tag {name!r}: its value has {len(value)} characters; the limit is {MAX_TAG_VALUE}", hint=hint
            )
        if not _TAG_TEXT.fullmatch(name) or not _TAG_TEXT.fullmatch(value):
            raise BadKey(
                f"tag {name!r}={value!r}: only letters, digits, spaces and _ . : / = + - @ are allowed",
                hint="encode other characters, for example as in URLs with '=' for '%'",
            )
        if name.lower().startswith("aws:"):
            raise BadKey(f"tag {name!r}: names that start with aws: are reserved", hint="use another name")
    return found

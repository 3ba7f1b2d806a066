"""Reconciling an hour: look, decide (`reconcile.py`), act, and look again until nothing is left to do.

One cycle, numbered as in the code:

    1  list the hour; a settled one ends here, after one request
    2  read every archive whole, each body checked
    3  set aside, under _damaged/, what does not match its name
    4  put the union, if no archive that was read holds it
    5  let go of a second primary archive
    6  remove what the kept archive holds

Whatever happens between two of these, nothing is lost and the next cycle, of any process, goes on from there. Somebody
else being first (a key that is gone, a precondition that does not hold) means to look again, and is no error.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Protocol

from catchment.bucket.contract import ABSENT, Body, Bucket, matches
from catchment.errors import BucketError, CatchmentError, Conflict, NotFound
from catchment.feeds.hours import Listing, Stored, list_hour
from catchment.feeds.names import DAMAGED, ROOT, Archive, Hour, hash_of
from catchment.feeds.reconcile import Content, Plan, Rules, plan, settled, to_read

LOOKS = 20  # every further look is needed only because another replica was at work on the same hour


@dataclass(frozen=True)
class Piece:
    """Something in an archive that is not what it should be: a member, or the archive as a whole."""

    name: str
    reason: str
    body: Body


@dataclass(frozen=True)
class Fetched:
    """An archive that was read whole, and is at hand for merging."""

    archive: Archive
    body: Body  # the archive itself
    names: frozenset[str]  # of the members whose bodies match their names
    damaged: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class Merged:
    """The union of some archives' good members, as one archive."""

    body: Body
    names: frozenset[str]


class Codec(Protocol):
    """How archives are read and written. The model has one in which they are small sets."""

    def fetch(self, archive: Archive, stream: BinaryIO) -> Fetched:
        """Read all of it, checking each body. What is wrong in it is reported; a stream that breaks raises."""

    def merge(self, sources: Sequence[Fetched], target: Archive) -> Merged:
        """One archive with the good members of all, compressed as the target's name says."""


Codecs = Callable[[], AbstractContextManager[Codec]]  # what it holds on disk goes when it is left


@dataclass(frozen=True)
class Cycle:
    """What one cycle found and did."""

    listed: int = 0
    read: int = 0
    put: str = ""  # the key that was written
    removed: tuple[str, ...] = ()
    emptied: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Settled:
    """How reconciling an hour ended."""

    settled: bool  # False: others were at work on it all the time, or are still writing; try again later
    cycles: tuple[Cycle, ...]  # the last one only looked, unless it was given up

    @property
    def note(self) -> str:
        """What was done and why, for people."""
        return "; then ".join(cycle.why for cycle in self.cycles)


def settle(
    bucket: Bucket,
    feed: str,
    hour: Hour,
    given: Rules,
    codecs: Codecs,
    *,
    thorough: bool = False,
    looks: int = LOOKS,
) -> Settled:
    """Make the hour's archives one. Safe to repeat, to stop anywhere and to run in any number of processes at once.

    thorough: also read a single archive, and mend it if it is damaged.
    """
    return _Work(bucket, feed, hour, given, codecs).run(looks, thorough=thorough)


class _Work:
    """One call of `settle`."""

    def __init__(self, bucket: Bucket, feed: str, hour: Hour, given: Rules, codecs: Codecs) -> None:
        self._bucket, self._feed, self._hour, self._given, self._codecs = bucket, feed, hour, given, codecs
        self._fetched: dict[tuple[str, str], Fetched] = {}  # by key and ETag: what is still that is not read again
        self._refused = 0  # times that a primary archive could not be made though there was none
        self._cycles: list[Cycle] = []
        self._cycle = Cycle()

    def run(self, looks: int, *, thorough: bool) -> Settled:
        listing = self._look()  # 1
        if settled(listing, self._given) and not (thorough and listing.live and not listing.deleted):
            self._end("settled")
            return Settled(True, tuple(self._cycles))
        with self._codecs() as codec:
            for left in reversed(range(looks)):
                if not self._act(codec, listing, thorough=thorough):
                    return Settled(settled(listing, self._given), tuple(self._cycles))
                thorough = False
                if not left:
                    break
                listing = self._look()  # 1
                if settled(listing, self._given):
                    self._end("settled")
                    return Settled(True, tuple(self._cycles))
        return Settled(False, tuple(self._cycles))

    def _look(self) -> Listing:
        listing = list_hour(self._bucket, self._feed, self._hour)
        self._cycle = Cycle(listed=len(listing.archives))
        return listing

    def _end(self, why: str) -> None:
        self._cycles.append(replace(self._cycle, why=why))
        self._cycle = Cycle()

    def _act(self, codec: Codec, listing: Listing, *, thorough: bool) -> bool:
        """Steps 2 to 6. Whether there is a reason to look again."""
        try:
            listing, contents = self._read(codec, listing, thorough=thorough)  # 2
        except (NotFound, Conflict) as error:
            self._end(f"looking again: {error.key} changed meanwhile")
            return True
        todo = plan(listing, contents, self._given)
        sources = [self._fetched[key, content.etag] for key, content in contents.items()]
        self._set_aside(sources)  # 3
        if todo.done:
            self._end("nothing can be done yet: another program is still writing" if listing.busy else "sound")
            return False
        try:
            self._put(codec, sources, todo)  # 4
            self._empty(todo)  # 5
        except Conflict as error:
            self._end(f"looking again: {error.key} changed meanwhile")
            return True
        self._remove(todo)  # 6
        self._end(_why(listing, todo))
        return True

    def _read(self, codec: Codec, listing: Listing, *, thorough: bool) -> tuple[Listing, dict[str, Content]]:
        """The listing with every ETag known, and what is in the archives. NotFound or Conflict if one has changed."""
        wanted = to_read(listing, self._given, thorough=thorough)
        if not wanted:
            return listing, {}
        pinned = {stored.key: self._pin(stored) for stored in listing.archives}
        contents = {stored.key: self._content(codec, pinned[stored.key]) for stored in wanted}
        self._cycle = replace(self._cycle, read=len(contents))
        return replace(listing, archives=tuple(pinned.values())), contents

    def _pin(self, stored: Stored) -> Stored:
        return stored if stored.etag is not None else replace(stored, etag=self._bucket.head(stored.key).etag)

    def _content(self, codec: Codec, stored: Stored) -> Content:
        etag = stored.etag or ""
        fetched = self._fetched.get((stored.key, etag))
        if fetched is None:
            with self._bucket.open(stored.key, etag=etag) as stream:
                fetched = codec.fetch(stored.archive, stream)
            self._fetched[stored.key, etag] = fetched
        return Content(stored, etag, fetched.names, bool(fetched.damaged))

    def _set_aside(self, sources: Sequence[Fetched]) -> None:
        """Keep what is damaged under a name that says where it is from and what it is. Repeating writes the same."""
        for fetched in sources:
            for piece in fetched.damaged:
                key = damaged_key(self._feed, self._hour, piece)
                self._bucket.put(key, piece.body)
                self._cycle = replace(self._cycle, aside=(*self._cycle.aside, key))

    def _put(self, codec: Codec, sources: Sequence[Fetched], todo: Plan) -> None:
        if todo.put is None:
            return
        body = union(codec, sources, todo.put.archive)
        key = todo.put.archive.key
        try:
            self._bucket.put(key, body, when=todo.put.when)
        except Conflict:
            self._refused = self._refused + 1 if todo.put.when == ABSENT else 0
            if self._refused > 2:
                raise BucketError(
                    f"{self._bucket.name} says that {key} is there already, and does not list it",
                    key=key,
                    hint="some servers do so after a delete: remove the old versions of that key, "
                    "or write reconciliation_algorithm: hashed",
                ) from None
            raise
        self._cycle = replace(self._cycle, put=key)

    def _empty(self, todo: Plan) -> None:
        for step in todo.empty:
            self._bucket.put(step.key, b"", when=matches(step.etag))
            self._cycle = replace(self._cycle, emptied=(*self._cycle.emptied, step.key))

    def _remove(self, todo: Plan) -> None:
        for step in todo.remove:
            if step.etag is None:
                self._bucket.delete(step.key)
            elif not self._remove_exactly(step.key, step.etag):
                continue
            self._cycle = replace(self._cycle, removed=(*self._cycle.removed, step.key))

    def _remove_exactly(self, key: str, etag: str) -> bool:
        """Remove what was read, and never a good archive that takes its place at this moment.

        A version can be deleted by its id. Without versions, and with conditional writes, the key is emptied instead.
        A store that has neither gets a last look and a plain delete, which leaves an instant open.
        """
        try:
            stat = self._bucket.head(key)
            if stat.etag != etag:
                return False
            if stat.version not in (None, "null"):  # S3 says null where versioning was switched off again
                self._bucket.delete(key, version=stat.version)
            elif self._given.conditional:
                self._bucket.put(key, b"", when=matches(etag))
            else:
                self._bucket.delete(key)
        except (NotFound, Conflict):
            return False
        return True


def union(codec: Codec, sources: Sequence[Fetched], target: Archive) -> Body:
    """All good members of the sources as one archive. Raises rather than leave one out."""
    merged = codec.merge(sources, target)
    wanted = frozenset[str]().union(*(fetched.names for fetched in sources))
    if merged.names != wanted:
        raise CatchmentError(
            f"merging {target.name} gave {len(merged.names)} downloads instead of {len(wanted)}",
            hint="nothing was changed in the bucket; check the disk that the workspace is on",
        )
    return merged.body


_UNSAFE = re.compile(r"[^A-Za-z0-9._=+-]")


def damaged_prefix(feed: str, hour: Hour) -> str:
    """Where what was damaged in an hour is kept."""
    return f"{ROOT}/{feed}/{DAMAGED}/{hour.folder}/"


def damaged_key(feed: str, hour: Hour, piece: Piece) -> str:
    """The piece's own name and the hash of what it holds, so that no two damages share a key."""
    state = hashlib.sha256()
    if isinstance(piece.body, Path):
        with piece.body.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                state.update(chunk)
    else:
        state.update(piece.body)
    return f"{damaged_prefix(feed, hour)}{_UNSAFE.sub('_', piece.name)[-200:]}.{hash_of(state.digest())}"


def _why(listing: Listing, todo: Plan) -> str:
    if listing.deleted:
        return f"the hour was deleted on purpose; removed {len(todo.remove)} that came later"
    parts = []
    if todo.put is not None:
        parts.append(f"wrote the union as {todo.put.archive.name}")
    if todo.empty:
        parts.append(f"let go of {len(todo.empty)} primary archives that another one holds")
    if todo.remove:
        parts.append(f"removed {len(todo.remove)} that it holds")
    return "; ".join(parts)

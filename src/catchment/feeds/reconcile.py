"""Deciding how an hour becomes one archive. No I/O here: `settle.py` acts on what this module says.

Replicas upload what they have, each under a name that is its content. Merging is a set union of downloads, so whoever
merges, in whatever order and however often, comes to the same archive. What remains is when an archive may go:

    Archive a is below archive b when b holds all of a's downloads and more, or the same downloads under a smaller key.
    An archive goes only when one above it was read whole, every body checked, in this pass.

That is a strict order. So take the greatest archive ever stored above a given one: nobody can have removed it, because
nothing above it was ever there to be read. Its downloads include the given one's. Hence no run of any number of
processes, stopped, repeated or paused anywhere, loses a download (docs/feeds-reconcile.md; tests/model runs them all).

The primary archive is above everything that was put into it. Its key says nothing about its content, so it is only ever
changed by a put that matches the ETag that was read, each time to a greater set; it is never removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from catchment.bucket.contract import ABSENT, ANY, Precondition, Support, matches
from catchment.errors import Unsupported
from catchment.feeds.hours import Listing, Stored
from catchment.feeds.names import Archive, Compression, set_hash

Algorithm = Literal["hashed", "primary"]


@dataclass(frozen=True)
class Rules:
    """How the archives of one feed are reconciled in one storage. Made by `rules`, which refuses what cannot work."""

    compression: Compression  # of what is written: a merged archive, or the primary one
    algorithm: Algorithm = "hashed"
    conditional: bool = True  # whether the store honours conditional writes


def rules(algorithm: Algorithm, compression: Compression, support: Support, *, place: str) -> Rules:
    """The rules for a storage, given what it was seen to support. Unsupported if `primary` cannot work there."""
    if algorithm == "primary" and not support.compare_and_set:
        raise Unsupported(
            f"{place} does not honour conditional writes, which reconciliation_algorithm: primary rests on",
            hint="write reconciliation_algorithm: hashed, which works on every store",
        )
    return Rules(compression, algorithm, support.compare_and_set)


@dataclass(frozen=True)
class Content:
    """What an archive was found to hold when it was read whole."""

    stored: Stored
    etag: str  # of what was read
    names: frozenset[str]  # of the members whose bodies match their names
    damaged: bool  # whether there was anything else in it, or it ended early

    @property
    def sound(self) -> bool:
        """Whether its name says what it holds, so that its key can never stand for anything else."""
        return not self.damaged and self.stored.archive.hash == set_hash(self.names)


@dataclass(frozen=True)
class Put:
    """Write the union of what was read."""

    archive: Archive
    when: Precondition = ANY  # a key that is its content can be written by anyone at any time


@dataclass(frozen=True)
class Remove:
    """Remove an archive whose downloads are in another one."""

    key: str
    etag: str | None = None  # given: its name does not say what it holds, so only if it is still what was read


@dataclass(frozen=True)
class Empty:
    """Let go of a primary archive whose downloads are in another one: put nothing there, if it is what was read."""

    key: str
    etag: str


@dataclass(frozen=True)
class Plan:
    """What to do, in this order: set damage aside, put, empty, remove."""

    put: Put | None = None
    empty: tuple[Empty, ...] = ()
    remove: tuple[Remove, ...] = ()

    @property
    def done(self) -> bool:
        return self == Plan()


def settled(listing: Listing, given: Rules) -> bool:
    """Whether the listing alone says that nothing is left to do."""
    if listing.deleted:
        return not listing.archives
    waiting = given.algorithm == "primary" and any(not stored.primary for stored in listing.live)
    return len(listing.live) <= 1 and not waiting and not listing.busy


def to_read(listing: Listing, given: Rules, *, thorough: bool = False) -> tuple[Stored, ...]:
    """The archives that must be read before anything can be decided; none if the hour is settled.

    thorough: read a single archive as well, to mend it if it is damaged.
    """
    if listing.deleted or (settled(listing, given) and not thorough):
        return ()
    return listing.live


def plan(listing: Listing, contents: Mapping[str, Content], given: Rules) -> Plan:
    """What to do about an hour as it is listed. `contents` has, by key, each archive that `to_read` names."""
    if listing.deleted:
        # What arrives after an hour was deleted is not wanted either. See delete.py.
        return Plan(remove=tuple(Remove(stored.key) for stored in listing.archives))
    read = [contents[stored.key] for stored in listing.live if stored.key in contents]
    if not read:
        return Plan()
    # An hour that has a primary archive keeps it, whatever the configuration says now: others may link to it.
    if given.conditional and (given.algorithm == "primary" or any(content.stored.primary for content in read)):
        return _into_primary(listing, read, given)
    return _into_hashed(listing, read, given)


def _into_hashed(listing: Listing, read: list[Content], given: Rules) -> Plan:
    """One archive, named by its content."""
    union = frozenset[str]().union(*(content.names for content in read))
    whole = [content for content in read if content.sound and content.names == union]
    if whole:
        keep, put = min(content.stored.key for content in whole), None
    elif union:
        archive = Archive(listing.feed, listing.hour, set_hash(union), given.compression)
        keep, put = archive.key, Put(archive)
    else:
        keep, put = None, None  # nothing good in any of them: all of it is set aside
    gone = tuple(_removal(c) for c in read if c.stored.key != keep and _below(c, union, keep))
    return Plan(put=put, remove=gone)


def _into_primary(listing: Listing, read: list[Content], given: Rules) -> Plan:
    """One archive under the stable key. Where replicas made two (with two compressions), the smaller key stays."""
    union = frozenset[str]().union(*(content.names for content in read))
    primaries = [content for content in read if content.stored.primary]
    put, spare = None, primaries[1:]
    if primaries:
        target = primaries[0]
        if not union:
            spare = primaries  # nothing good in any of them: all of it is set aside
        elif target.damaged or target.names != union:
            put = Put(target.stored.archive, matches(target.etag))
    elif union:
        archive = Archive(listing.feed, listing.hour, None, given.compression)
        emptied = next((s for s in listing.archives if s.emptied and s.archive == archive), None)
        put = Put(archive, ABSENT if emptied is None else matches(emptied.etag or ""))
    return Plan(
        put=put,
        empty=tuple(Empty(content.stored.key, content.etag) for content in spare),
        remove=tuple(_removal(content) for content in read if not content.stored.primary),
    )


def _below(content: Content, union: frozenset[str], keep: str | None) -> bool:
    """Whether an archive may go in favour of the one that holds the union under the key `keep`."""
    if not content.sound:
        return True  # what it holds beyond its good members has been set aside
    return content.names < union or (content.names == union and keep is not None and keep < content.stored.key)


def _removal(content: Content) -> Remove:
    return Remove(content.stored.key, None if content.sound else content.etag)

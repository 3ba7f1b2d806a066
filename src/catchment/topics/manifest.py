"""The manifest of one range: what was read, what was written, and that nothing is missing in between.

It is put if absent, and that put is the commit. A backfill may swap it for another of the same bounds. **`read + gaps =
last - first + 1` and `read = written + dead + filtered`, or there is no manifest**: none can be made otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from types import NoneType
from typing import Any, TypeVar

from catchment.errors import BucketError, CatchmentError
from catchment.topics.names import Source

VERSION = 1
MAX_HOLES = 1000  # so many stretches of missing offsets are named; beyond that only their number of offsets is kept


class Unbalanced(CatchmentError):
    """What was read, written, dead, filtered and missing does not add up. The range is not committed."""


@dataclass(frozen=True)
class File:
    """One object that a range wrote."""

    key: str
    etag: str
    size: int
    rows: int
    first: int  # the file's own smallest offset
    last: int  # and its greatest
    oldest: str | None = None  # the event times it spans, as isoformat; None if the split has no time
    newest: str | None = None


@dataclass(frozen=True)
class Counts:
    """Where the offsets of a range went."""

    read: int
    gaps: int  # offsets with no message: transaction marks, aborted or compacted messages
    written: int
    dead: int
    filtered: int

    def check(self, first: int, last: int) -> None:
        """Unbalanced unless both equations hold."""
        if min(self.read, self.gaps, self.written, self.dead, self.filtered) < 0 or (
            self.read + self.gaps != last - first + 1
        ):
            raise Unbalanced(
                f"{self.read} messages read and {self.gaps} missing are not the {last - first + 1} offsets"
                f" from {first} to {last}",
                hint="nothing was committed; it is tried again",
            )
        if self.read != self.written + self.dead + self.filtered:
            raise Unbalanced(
                f"of {self.read} messages read, {self.written} were written, {self.dead} set aside as dead letters and"
                f" {self.filtered} filtered out",
                hint="nothing was committed; it is tried again",
            )


@dataclass(frozen=True)
class Manifest:
    """One committed range of one source."""

    topic: str
    topic_id: str
    source: Source
    first: int
    last: int
    generation: int
    fingerprint: str  # of the definition; each file's name carries its own, with the schema
    counts: Counts
    files: tuple[File, ...] = ()
    dead: tuple[File, ...] = ()  # under _dead/
    holes: tuple[tuple[int, int], ...] | None = ()  # the stretches without messages; None: too many to name
    raw_bytes: int = 0  # of keys and values read
    owner: str = ""  # who committed it, for people
    committed: str = ""  # when, on its clock, for people
    skipped: str = ""  # why these offsets were gone over, if they were: Kafka no longer had them
    earlier: tuple[str, ...] = ()  # folders it had files in before it was swapped, or else its own; empty: it never was
    extra: Mapping[str, Any] = field(default_factory=dict)  # what a later version added

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last:
            raise ValueError(f"a range cannot go from {self.first} to {self.last}")
        self.counts.check(self.first, self.last)
        rows, dead = sum(one.rows for one in self.files), sum(one.rows for one in self.dead)
        if rows != self.counts.written or dead != self.counts.dead:
            raise Unbalanced(
                f"the files hold {rows} rows and {dead} dead letters, but {self.counts.written} and"
                f" {self.counts.dead} were counted"
            )
        if self.holes is not None:
            self._check_holes(self.holes)

    def _check_holes(self, holes: tuple[tuple[int, int], ...]) -> None:
        if sum(end - start + 1 for start, end in holes) != self.counts.gaps:
            raise Unbalanced(f"the holes {holes[:5]} are not {self.counts.gaps} offsets")
        before = self.first - 1
        for start, end in holes:
            if not before < start <= end <= self.last:
                raise Unbalanced(f"the hole from {start} to {end} is outside its range, or not in order")
            before = end

    @property
    def next(self) -> int:
        """Where the next range begins."""
        return self.last + 1

    def body(self, nonce: str) -> bytes:
        """As it is put. The nonce tells a writer whose reply was lost that it was itself who won."""
        found = asdict(replace(self, extra={})) | {"source": str(self.source), "version": VERSION, "nonce": nonce}
        del found["extra"]
        return json.dumps({**self.extra, **found}, sort_keys=True, indent=1).encode()

    @classmethod
    def parse(cls, key: str, body: bytes) -> Manifest:
        """BucketError that names the key if it is not a manifest.

        What a later version added is kept in `extra`; within counts and files it is passed over.
        """
        try:
            found: dict[str, Any] = json.loads(body)
            holes = found.pop("holes")
            version = found.pop("version")
            if version != VERSION:
                raise ValueError(f"it is of version {version}, and this program knows {VERSION}")
            found.pop("nonce", None)
            known = {name: found.pop(name) for name in cls.__dataclass_fields__ if name in found and name != "extra"}
            _check_types(cls, known)
            return cls(
                **known
                | {
                    "source": Source.parse(known["source"]),
                    "counts": _made(Counts, known["counts"]),
                    "files": tuple(_made(File, one) for one in known["files"]),
                    "dead": tuple(_made(File, one) for one in known["dead"]),
                    "earlier": tuple(str(one) for one in known.get("earlier", ())),
                    "holes": None if holes is None else tuple((start, end) for start, end in holes),
                    "extra": found,
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Unbalanced) as error:
            raise BucketError(
                f"{key} is not a manifest that can be read ({error})",
                key=key,
                hint="restore the object's earlier version, or move it away by hand and export its range again",
            ) from error


T = TypeVar("T", Counts, File)
_TYPES: dict[object, tuple[type, ...]] = {"int": (int,), "str": (str,), "str | None": (str, NoneType)}


def _check_types(kind: type[Any], found: Mapping[str, Any]) -> None:
    """TypeError unless numbers are whole numbers and texts are texts: JSON would let anything through."""
    for name, value in found.items():
        allowed = _TYPES.get(kind.__dataclass_fields__[name].type)
        if allowed and (not isinstance(value, allowed) or isinstance(value, bool)):
            raise TypeError(f"its {name} cannot be {value!r:.60}")


def _made(kind: type[T], found: Mapping[str, Any]) -> T:
    known = {one.name: found[one.name] for one in fields(kind) if one.name in found}
    _check_types(kind, known)
    return kind(**known)

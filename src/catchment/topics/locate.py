"""Locate: which file of an export holds one offset of one Kafka partition, from names and manifests alone.

A manifest is named by the first offset of its range, and names sort as numbers do: so the range of an offset is the
last name at or below it. A bucket lists forward only; the name is found by looking back from the offset in growing
steps. Then one manifest is read, and no file is opened.

What a manifest says of its files are their bounds. A decoded range has a file for each type and folder, and the bounds
of several may reach around an offset: then these are the candidates, and `show` opens them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from catchment.bucket.contract import Bucket, Folder
from catchment.errors import BadKey, BucketError, ExportStopped
from catchment.topics import committed, identity, offsets
from catchment.topics.identity import Identity
from catchment.topics.manifest import File, Manifest
from catchment.topics.names import ROOT, Place, Source

PAGE = 1000  # names that a bucket gives at a time
STEP = 1 << 20  # offsets: a range has so many at most, unless its policy says otherwise
GROWTH = 16


class State(StrEnum):
    """What became of an offset."""

    WRITTEN = "written"  # it is in one of the files, or (if that is not certain) was filtered out
    HOLE = "hole"  # Kafka had no message there: a transaction's mark, an aborted or a compacted message
    FILTERED = "filtered"  # read, and left out by the export's filter
    UNTOLD = "untold"  # filtered or a hole: its range has too many holes to name them
    SKIPPED = "skipped"  # gone over by hand, or because Kafka no longer had it
    AWAITED = "awaited"  # not committed yet
    BEFORE = "before"  # the export began after it
    LOST = "lost"  # later ranges are committed, but none that holds it
    UNREADABLE = "unreadable"  # the manifest that may hold it cannot be read


@dataclass(frozen=True)
class Candidate:
    """A file whose own bounds reach around the offset."""

    key: str
    first: int  # of the file
    last: int
    rows: int
    size: int
    dead: bool  # a file of dead letters


@dataclass(frozen=True)
class Located:
    """What one group has of one offset."""

    group: str
    topic: str
    kafka_partition: int
    life: int  # of the topic; 0 unless it was made again
    offset: int
    state: State
    why: str  # for people
    certain: bool = True  # False: one of `files` holds it, or none because it was filtered out (or is a hole)
    manifest: str | None = None  # the key of its range's
    first: int | None = None  # of the range
    last: int | None = None
    generation: int | None = None
    files: tuple[Candidate, ...] = ()
    next: int | None = None  # where the export goes on, if it has not come to the offset yet

    @property
    def found(self) -> bool:
        """Whether there is a file to look into."""
        return self.state == State.WRITTEN


def places(bucket: Bucket, topic: str) -> Iterator[Place]:
    """Every export of a topic, sorted. One listing, and a read or two for each group."""
    for group in bucket.children(f"{ROOT}/"):
        if isinstance(group, Folder):
            place = Place(group.key.removesuffix("/").rpartition("/")[2], topic)
            if next(bucket.list(place.commits()), None) or recorded(bucket, place):
                yield place


def locate(bucket: Bucket, place: Place, kafka_partition: int, offset: int, *, life: int | None = None) -> Located:
    """Where the offset is. `life` is meant as it is in the names of sources; None: the newest.

    Without an `_export.json` that can be read, the manifests have to do. Raises what the bucket itself raises.
    """
    known = recorded(bucket, place)
    newest = known.life if known else _newest_life(bucket, place, kafka_partition)
    source = Source(kafka_partition, newest if life is None else life)
    found = _Seeker(bucket, place, source, known, offset).judge(*neighbours(bucket, place, source, offset))
    if life is None and newest and not found.found:
        why = f"{found.why}; the topic was made again, and offsets of before are asked for with --life {newest - 1}"
        return replace(found, why=why)
    return found


def neighbours(
    bucket: Bucket, place: Place, source: Source, offset: int, *, page: int = PAGE, step: int = STEP
) -> tuple[int | None, int | None]:
    """The first offsets of two ranges of a source: the last that begins at or before the offset, and the one after it.

    A listing for each step back, and where ranges are tiny, some to come closer again.
    """
    low, high = -1, offset  # a range begins at `low`, unless it is -1; and none in (high, offset]
    at = max(-1, offset - step)
    while True:
        firsts, to_the_end = _names_after(bucket, place, source, at, page)
        before = [first for first in firsts if first <= offset]
        after = firsts[len(before)] if len(before) < len(firsts) else None
        if before and (after is not None or to_the_end):
            return before[-1], after
        if before:
            low = before[-1]
        elif at <= low:
            return (None if low < 0 else low), after
        else:
            high = at
        if low < 0:
            step *= GROWTH
            at = max(-1, offset - step)
        else:
            at = (low + high) // 2


def _names_after(bucket: Bucket, place: Place, source: Source, at: int, page: int) -> tuple[list[int], bool]:
    """So many first offsets of ranges that begin after an offset, and whether these are all."""
    after = place.commit(source, at) if at >= 0 else ""
    found: list[int] = []
    for entry in bucket.list(place.commits(source), after=after):
        try:
            found.append(place.parse_commit(entry.key)[1])
        except BadKey:
            continue
        if len(found) == page:
            return found, False
    return found, True


def recorded(bucket: Bucket, place: Place) -> Identity | None:
    """What `_export.json` says; None also if it cannot be read. Other tools say what is wrong with it."""
    try:
        return identity.read(bucket, place)
    except BucketError as error:
        if not error.unreadable:
            raise
        return None


def _newest_life(bucket: Bucket, place: Place, partition: int) -> int:
    lives = [source.life for source in committed.sources(bucket, place) if source.partition == partition]
    return max(lives, default=0)


@dataclass(frozen=True)
class _Seeker:
    bucket: Bucket
    place: Place
    source: Source
    known: Identity | None
    offset: int

    def judge(self, before: int | None, after: int | None) -> Located:
        """By the names of the ranges around the offset, and by the manifest of the one before it."""
        if before is None:
            return self._without(after)
        key = self.place.commit(self.source, before)
        try:
            manifest = committed.read(self.bucket, self.place, self.source, before)
        except BucketError as error:
            if not error.unreadable:
                raise
            why = f"{error.message}: whether its range reaches to this offset is not known"
            return self._told(State.UNREADABLE, why, manifest=key, certain=False)
        if manifest.last >= self.offset:
            return self._in(manifest, key)
        return self._beyond(manifest.next, after)

    def _told(self, state: State, why: str, **more: object) -> Located:
        about = (self.place.group, self.place.topic, self.source.partition, self.source.life)
        return Located(*about, self.offset, state, why, **more)  # type: ignore[arg-type]

    def _in(self, manifest: Manifest, key: str) -> Located:
        """The offset is in this range."""
        found = judge(manifest, self.offset)
        return self._told(
            found.state,
            found.why,
            certain=found.certain,
            manifest=key,
            first=manifest.first,
            last=manifest.last,
            generation=manifest.generation,
            files=found.files,
        )

    def _without(self, after: int | None) -> Located:
        """No range begins at or before the offset."""
        current = self.known is not None and self.known.life == self.source.life
        start = self.known.start(self.source.partition) if self.known is not None and current else after
        if start is not None and after is not None:
            start = min(start, after)  # what lies before the start was added
        if start is None:
            return self._told(State.BEFORE, "nothing of this Kafka partition was exported in that life of the topic")
        if self.offset < start:
            return self._told(State.BEFORE, f"the export of this Kafka partition began at offset {start}")
        return self._beyond(start, after)

    def _beyond(self, end: int, after: int | None) -> Located:
        """Everything below `end` is committed, and the offset is not below."""
        if after is not None:
            why = f"no manifest holds the offsets from {end} to {after - 1}, and later ones are committed; run: "
            return self._told(State.LOST, why + f"catchment topics verify --group {self.place.group}")
        if self.known is not None and self.source.life < self.known.life:
            return self._told(State.AWAITED, f"in that life of the topic, offsets below {end} were exported", next=end)
        return self._told(State.AWAITED, self._awaited(end), next=end)

    def _awaited(self, end: int) -> str:
        try:
            claim = offsets.read_hint(self.bucket, self.place, self.source, end).hint.claim
        except ExportStopped:
            claim = None
        text = f"not committed yet; the export goes on at offset {end}"
        if claim is None or not claim.first <= self.offset <= claim.last:
            return text
        who = f"claimed by {claim.owner}" if claim.owner else "claimed, and waits for a process that takes it over"
        why = f" ({claim.error})" if claim.error else ""
        return f"{text}; its range [{claim.first}, {claim.last}] is {who}{why}"


@dataclass(frozen=True)
class Judgement:
    """What a manifest says of one of its offsets."""

    state: State
    why: str
    certain: bool = True
    files: tuple[Candidate, ...] = ()


def judge(manifest: Manifest, offset: int) -> Judgement:
    """Where an offset of this range is. Pure.

    It is certain that a file holds it if the file has every offset between its bounds, if the offset is one of these
    bounds, or if it can be nowhere else.
    """
    if manifest.skipped:
        return Judgement(State.SKIPPED, manifest.skipped)
    if any(start <= offset <= end for start, end in manifest.holes or ()):
        return Judgement(State.HOLE, "Kafka had no message there")
    around = [
        (file, dead)
        for files, dead in ((manifest.files, False), (manifest.dead, True))
        for file in files
        if file.first <= offset <= file.last
    ]
    surely = [one for one in around if offset in (one[0].first, one[0].last) or _dense(one[0])]
    unnamed = manifest.holes is None and manifest.counts.gaps > 0
    elsewhere = manifest.counts.filtered > 0 or unnamed
    if surely or (len(around) == 1 and not elsewhere):
        file, dead = (surely or around)[0]
        return Judgement(State.WRITTEN, "a dead letter" if dead else "", True, (_candidate(file, dead=dead),))
    if around:
        why = "in one of these files" + (", or in none: " + _absence(manifest) if elsewhere else "")
        if len(around) == 1:
            why = "in this file, or in none: " + _absence(manifest)
        return Judgement(State.WRITTEN, why, False, tuple(_candidate(file, dead=dead) for file, dead in around))
    if manifest.counts.filtered and not unnamed:
        return Judgement(State.FILTERED, "left out by the export's filter")
    if unnamed and not manifest.counts.filtered:
        return Judgement(State.HOLE, "Kafka had no message there")
    if unnamed:
        return Judgement(State.UNTOLD, _absence(manifest), certain=False)
    return Judgement(State.LOST, "its manifest lists no file that can hold it; run: catchment topics verify")


def _absence(manifest: Manifest) -> str:
    """Why a message of this range can be in no file."""
    causes = []
    if manifest.counts.filtered:
        causes.append(f"the filter left {manifest.counts.filtered} of its range out")
    if manifest.holes is None and manifest.counts.gaps:
        causes.append(f"Kafka had none at {manifest.counts.gaps} offsets of its range")
    return ", and ".join(causes)


def _dense(file: File) -> bool:
    return file.rows == file.last - file.first + 1


def _candidate(file: File, *, dead: bool) -> Candidate:
    return Candidate(file.key, file.first, file.last, file.rows, file.size, dead)

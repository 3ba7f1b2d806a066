"""Messages from a backup: which of its files hold a range, and reading them in the order of their offsets.

A backup's files and its dead letters together hold every message that it read, so both are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from catchment.bucket.contract import Bucket
from catchment.config.decode import Format
from catchment.errors import UsageError
from catchment.topics import committed, identity
from catchment.topics.backfill.plan import Read
from catchment.topics.committed import Span
from catchment.topics.decode.decoder import needs_headers
from catchment.topics.files.format import file_format, format_of
from catchment.topics.files.read import records
from catchment.topics.identity import Identity
from catchment.topics.manifest import File, Manifest
from catchment.topics.messages import merged
from catchment.topics.names import Place, Source
from catchment.topics.period import Period
from catchment.topics.work import Work


@dataclass(frozen=True)
class Piece:
    """One range of the backup. Plain values that can be pickled."""

    manifest: Manifest
    format: Format


class Backup:
    """The backup of one topic. Manifests are read once for each Kafka partition that is asked for."""

    def __init__(self, bucket: Bucket, place: Place, target: Identity) -> None:
        """`target`: what the export is that is written; its topic's lives are found in the backup by their ids."""
        self.place, self._bucket = place, bucket
        found = identity.read(bucket, place)
        if found is None:
            raise UsageError(f"there is no export {place}", hint="name a backup of this topic with --from")
        decoded = [number for number, what in found.generations.items() if what.get("decode") is not None]
        if decoded:
            raise UsageError(
                f"{place} is no backup: its generation {decoded[0]} decodes messages",
                hint="name an export without decode with --from, or use --from-kafka",
            )
        self._identity, self._target = found, target
        self._known: dict[Source, list[Manifest]] = {}

    def lacks(self) -> frozenset[str]:
        """What some of its files do not keep of a message: key, timestamp, headers."""
        formats = [file_format(format_of(self._identity, number)) for number in self._identity.generations]
        return frozenset(
            name for name in ("key", "timestamp", "headers") if any(name not in one.keeps for one in formats)
        )

    def reads(self, source: Source, first: int, last: int) -> tuple[Read, ...] | str:
        found = self.pieces(source, first, last)
        if isinstance(found, str):
            return found
        return tuple(Read(file.key, file.rows) for piece in found for file in _overlapping(piece.manifest, first, last))

    def before(self, source: Source, end: int, period: Period) -> Sequence[Span]:
        low = period.first or 0
        found = []
        for one in self._ranges(source):
            first, last = max(one.first, low), min(one.last, end - 1)
            if first <= last and not one.skipped and period.holds(one):
                found.append(Span(source, first, last))
        return found

    def pieces(self, source: Source, first: int, last: int) -> tuple[Piece, ...] | str:
        """The backup's ranges that hold these offsets, all of them; or why there are none."""
        next = first
        found = []
        for one in self._ranges(source):
            if one.last < next or one.first > last:
                continue
            if one.first > next:
                break
            if one.skipped:
                return f"{self.place} went over the offsets {one.first} to {one.last} ({one.skipped})"
            found.append(Piece(one, format_of(self._identity, one.generation)))
            next = one.last + 1
        if next <= last:
            return f"{self.place} does not have the offsets from {next} to {last}"
        return tuple(found)

    def _ranges(self, source: Source) -> list[Manifest]:
        if source not in self._known:
            theirs = self._theirs(source)
            ranges = committed.manifests(self._bucket, self.place, theirs) if theirs else ()
            self._known[source] = list(ranges)
        return self._known[source]

    def _theirs(self, source: Source) -> Source | None:
        """The same life of the topic, as the backup counts it."""
        lives = [*self._target.past, self._target.topic_id]
        theirs = [*self._identity.past, self._identity.topic_id]
        wanted = lives[source.life]
        return Source(source.partition, theirs.index(wanted)) if wanted in theirs else None


@dataclass(frozen=True)
class Replayed:
    """A range, and the pieces of the backup that it is read from. Plain values that can be pickled."""

    work: Work
    place: Place  # of the backup
    pieces: tuple[Piece, ...]

    def batches(self, bucket: Bucket, scratch: Path) -> Iterator[pa.RecordBatch]:
        """The records of the range, with the columns that its export looks at, as a Kafka source gives them."""
        wanted = ["offset", "timestamp", "key", "value"]
        export = self.work.export
        if needs_headers(export.decode) or any(split.header is not None for split in export.split.values()):
            wanted.append("headers")
        if export.decode is None:
            wanted.append("timestamp_type")
        for piece in self.pieces:
            for table in self._piece(bucket, piece, scratch):
                yield from table.select(wanted).combine_chunks().to_batches()

    def _piece(self, bucket: Bucket, piece: Piece, scratch: Path) -> Iterator[pa.Table]:
        manifest, first, last = piece.manifest, self.work.first, self.work.last

        def read(file: File) -> Iterator[pa.Table]:
            return records(bucket, self.place, manifest, file, piece.format, scratch, first=first, last=last)

        return merged([(file.first, partial(read, file)) for file in _overlapping(manifest, first, last)])


def _overlapping(manifest: Manifest, first: int, last: int) -> list[File]:
    return [file for file in (*manifest.files, *manifest.dead) if file.first <= last and file.last >= first]

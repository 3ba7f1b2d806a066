"""Messages from a backup: which of its files hold a range, and reading them in the order of their offsets.

A backup's files and its dead letters together hold every message that it read, so both are read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import pyarrow as pa

from catchment.bucket.contract import Bucket
from catchment.config.decode import Format
from catchment.errors import BucketError, UsageError
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
        self._hidden: dict[tuple[Source, int], str] = {}  # manifests that cannot be read, and why, by their names

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
            if period.last is not None and one.first > period.last:
                break
            first, last = max(one.first, low), min(one.last, end - 1)
            if first <= last and not one.skipped and period.holds(one):
                found.append(Span(source, first, last))
        return found

    def pieces(self, source: Source, first: int, last: int) -> tuple[Piece, ...] | str:
        """The backup's ranges that hold these offsets, all of them; or why there are none."""
        next = first
        found = []
        ranges = self._ranges(source)
        at = bisect_right(ranges, first, key=lambda one: one.first) - 1
        for one in islice(ranges, max(at, 0), None):
            if one.last < next:
                continue
            if one.first > min(next, last):
                break
            if one.skipped:
                return f"{self.place} went over the offsets {one.first} to {one.last} ({one.skipped})"
            found.append(Piece(one, format_of(self._identity, one.generation)))
            next = one.last + 1
        if next <= last:
            begin = found[-1].manifest.first if found else ranges[at].first if at >= 0 else -1
            hidden = [name for of, name in self._hidden if of == source and begin < name <= next]
            if hidden:
                return self._hidden[source, max(hidden)]
            return f"{self.place} does not have the offsets from {next} to {last}"
        return tuple(found)

    def _ranges(self, source: Source) -> list[Manifest]:
        if source not in self._known:
            theirs = self._theirs(source)
            ranges: list[Manifest] = []
            for one in committed.each(self._bucket, self.place, theirs) if theirs else ():
                if isinstance(one, Manifest):
                    ranges.append(one)
                elif one.name:
                    self._hidden[source, one.name[1]] = one.why
            self._known[source] = ranges
        return self._known[source]

    def _theirs(self, source: Source) -> Source | None:
        """The same life of the topic, as the backup counts it."""
        lives = [*self._target.past, self._target.topic_id]
        theirs = [*self._identity.past, self._identity.topic_id]
        if source.life >= len(lives):  # begun since the export was looked at
            return None
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
            count = 0
            for table in self._piece(bucket, piece, scratch):
                count += table.num_rows
                yield from table.select(wanted).combine_chunks().to_batches()

            if (missing := self._messages(piece.manifest) - count) > 0:
                key = self.place.commit(piece.manifest.source, piece.manifest.first)
                raise BucketError(
                    f"{missing} of the messages that {key} counts are not in its files",
                    key=key,
                    hint=f"run: catchment topics verify --group {self.place.group}",
                )

    def _messages(self, manifest: Manifest) -> int:
        """So many at least are of the range, by the holes that are known."""
        first, last = max(self.work.first, manifest.first), min(self.work.last, manifest.last)
        if (first, last) == (manifest.first, manifest.last):
            return manifest.counts.read
        if manifest.holes is None:
            return max(0, last - first + 1 - manifest.counts.gaps)
        inside = sum(max(0, min(end, last) - max(start, first) + 1) for start, end in manifest.holes)
        return last - first + 1 - inside

    def _piece(self, bucket: Bucket, piece: Piece, scratch: Path) -> Iterator[pa.Table]:
        manifest, first, last = piece.manifest, self.work.first, self.work.last

        def read(file: File) -> Iterator[pa.Table]:
            return records(bucket, self.place, manifest, file, piece.format, scratch, first=first, last=last)

        return merged([(file.first, partial(read, file)) for file in _overlapping(manifest, first, last)])


def _overlapping(manifest: Manifest, first: int, last: int) -> list[File]:
    return [file for file in (*manifest.files, *manifest.dead) if file.first <= last and file.last >= first]

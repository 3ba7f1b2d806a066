"""The messages of a backup, in the order of their offsets, from its committed files: in pieces of bounded size."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.bucket.contract import Bucket
from catchment.errors import BucketError, ExportStopped, UsageError
from catchment.topics import committed
from catchment.topics.files import read
from catchment.topics.files.format import file_format, format_of
from catchment.topics.identity import Identity
from catchment.topics.manifest import File, Manifest
from catchment.topics.names import Place, Source
from catchment.topics.records import BACKED

BYTES = 16_000_000  # of one piece, about
LOOKS = 20  # so many times as many messages are looked at before a piece is given that has none
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE = frozenset({"timestamp", "key", "value", "headers"})
_NONE = BACKED.empty_table()


@dataclass(frozen=True)
class Window:
    """Which messages: all, or those with offsets in [first, last] and Kafka's timestamp in [start, end)."""

    first: int | None = None
    last: int | None = None
    start: datetime | None = None
    end: datetime | None = None

    @property
    def timed(self) -> bool:
        return self.start is not None or self.end is not None

    def chosen(self, messages: pa.Table) -> pa.Table:
        """Those of them that are in it, by time."""
        for moment, compare in ((self.start, pc.greater_equal), (self.end, pc.less)):
            if moment is not None:
                messages = messages.filter(compare(messages["timestamp"], millis(moment)))
        return messages

    def plain(self) -> list[int | None]:
        return [
            self.first,
            self.last,
            None if self.start is None else millis(self.start),
            None if self.end is None else millis(self.end),
        ]


@dataclass(frozen=True)
class Batch:
    """Some messages, in order, and the offset after all that was looked at for them."""

    messages: pa.Table
    next: int
    skipped: int = 0


@dataclass(frozen=True)
class Messages:
    """What a backup has of a window, in the newest life of its topic."""

    bucket: Bucket
    place: Place
    known: Identity
    window: Window
    scratch: Path  # where large files are kept meanwhile
    also_incomplete: bool = False  # also of formats that keep no timestamps or headers

    def sources(self, kafka_partition: int | None) -> list[Source]:
        """Those with messages, or the one that is meant. UsageError if it has none."""
        found = [one for one in committed.sources(self.bucket, self.place) if one.life == self.known.life]
        if kafka_partition is None:
            return found
        if Source(kafka_partition, self.known.life) not in found:
            raise UsageError(
                f"{self.place} has nothing of Kafka partition {kafka_partition}",
                hint=f"it has of: {', '.join(str(one.partition) for one in found) or 'none'}",
            )
        return [Source(kafka_partition, self.known.life)]

    def committed(self, source: Source) -> tuple[Source, int, int] | None:
        """The committed offsets of the window, by names and the last manifest; None if there are none."""
        names = [
            one for one in committed.names(self.bucket, self.place, source) if not isinstance(one, committed.Unreadable)
        ]
        inside = committed.window(names, self.window.first or 0, self.window.last)
        if not inside:
            return None
        end = committed.read(self.bucket, self.place, *inside[-1]).last
        first = max(inside[0][1], self.window.first or 0)
        last = end if self.window.last is None else min(end, self.window.last)
        return (source, first, last) if first <= last else None

    def batches(self, source: Source, at: int, last: int, most: int) -> Iterator[Batch]:
        """Everything from an offset on, in order, in pieces for one transaction each. There may be empty ones."""
        if at > last:
            return
        held: list[pa.Table] = []
        looked = skipped = 0
        start = at
        for manifest in committed.manifests(self.bucket, self.place, source, first=at, last=last):
            if not manifest.first <= at <= manifest.last or (at > start and manifest.first < at):
                raise _broken(self, source, at, manifest)
            end = min(manifest.last, last)
            if manifest.skipped:
                skipped += end - at + 1
            else:
                _complete(self, manifest)
                for table in _messages(self, manifest, at, end):
                    for some in _cut(table, most):
                        if (held and _too_many([*held, some], most)) or looked >= LOOKS * most:
                            yield Batch(pa.concat_tables([*held, _NONE]), some["offset"][0].as_py(), skipped)
                            held, looked, skipped = [], 0, 0
                        chosen = self.window.chosen(some)
                        held += [chosen] if chosen.num_rows else []
                        looked += some.num_rows
            at = end + 1
        yield Batch(pa.concat_tables([*held, _NONE]), at, skipped)


def _complete(of: Messages, manifest: Manifest) -> None:
    """UsageError if this range does not hold messages, or not all of them that matter."""
    definition = of.known.generations.get(manifest.generation, {})
    where = f"the range [{manifest.first}, {manifest.last}] of Kafka partition {manifest.source} of {of.place}"
    if definition.get("decode") is not None:
        raise UsageError(
            f"{where} holds decoded rows, and not the messages that they were made of",
            hint="replay a backup: an export without decode",
        )
    keeps = file_format(format_of(of.known, manifest.generation)).keeps
    if lost := sorted(_WHOLE - keeps):
        text = f"{where} is {format_of(of.known, manifest.generation).name}, which keeps no {' and no '.join(lost)}"
        if of.window.timed:
            raise UsageError(f"{text}: what was when cannot be told", hint="replay it by offsets")
        if not of.also_incomplete:
            raise UsageError(
                text, hint="add --also-incomplete to replay what it does keep; timestamps are those of the replay then"
            )


def _too_many(tables: Sequence[pa.Table], most: int) -> bool:
    rows, size = sum(one.num_rows for one in tables), sum(one.nbytes for one in tables)
    return bool(rows > most or size > BYTES)


def _broken(of: Messages, source: Source, at: int, manifest: Manifest) -> ExportStopped:
    bounds = f"from {min(at, manifest.first)} to {max(at, manifest.first) - 1}"
    how = "no manifest holds" if manifest.first > at else "two manifests hold"
    return ExportStopped(
        f"{of.place} Kafka partition {source}: {how} the offsets {bounds}",
        hint=f"run: catchment topics verify --group {of.place.group}; to leave them out, replay up to"
        f" --last-offset {at - 1}, and then from --first-offset {max(manifest.first, at)} on",
    )


def _messages(of: Messages, manifest: Manifest, first: int, last: int) -> Iterator[pa.Table]:
    """The messages of one range with offsets in [first, last], in order. BucketError if one is there twice."""
    files = [
        (file.first, lambda file=file: _records(of, manifest, file, first, last))
        for file in (*manifest.files, *manifest.dead)
        if file.first <= last and file.last >= first
    ]
    before, count = first - 1, 0
    for table in merged(files):
        offsets = table["offset"].to_numpy()
        if offsets[0] <= before or (np.diff(offsets) <= 0).any():
            key = of.place.commit(manifest.source, manifest.first)
            raise BucketError(
                f"{key} lists files that hold an offset more than once", key=key, hint="run: catchment topics verify"
            )
        before, count = int(offsets[-1]), count + len(offsets)
        yield table
    if (first, last) == (manifest.first, manifest.last) and count != manifest.counts.read:
        key = of.place.commit(manifest.source, manifest.first)
        raise BucketError(
            f"{key} lists files that hold {count} messages, and {manifest.counts.read} were read",
            key=key,
            hint="run: catchment topics verify",
        )


def _records(of: Messages, manifest: Manifest, file: File, first: int, last: int) -> Iterator[pa.Table]:
    format = format_of(of.known, manifest.generation)
    for table in read.records(of.bucket, of.place, manifest, file, format, of.scratch, first=first, last=last):
        # Earlier releases kept dead letters without headers.
        if file in manifest.dead and table["timestamp_type"].null_count and not of.also_incomplete:
            raise UsageError(
                f"{file.key} holds messages without their headers",
                hint="add --also-incomplete to replay what it does hold",
            )
        yield table


def merged(files: Sequence[tuple[int, Callable[[], Iterator[pa.Table]]]]) -> Iterator[pa.Table]:
    """Tables that are each in the order of their offsets, as one sequence of tables in that order.

    files: the first offset of each, and what reads it. Each is read when its turn comes, a table at a time.
    """
    waiting = deque(sorted(files, key=lambda one: one[0]))
    held: list[tuple[pa.Table, Iterator[pa.Table]]] = []
    while waiting or held:
        if not held:
            held += _opened(waiting.popleft()[1]())
            continue
        bound = min(table["offset"][-1].as_py() for table, _ in held)
        if waiting and waiting[0][0] <= bound:
            held += _opened(waiting.popleft()[1]())
            continue
        ready: list[pa.Table] = []
        rest: list[tuple[pa.Table, Iterator[pa.Table]]] = []
        for table, more in held:
            cut = int(np.searchsorted(table["offset"].to_numpy(), bound, side="right"))
            ready += [table.slice(0, cut)] if cut else []
            rest += [(table.slice(cut), more)] if cut < table.num_rows else _opened(more)
        held = rest
        yield ready[0] if len(ready) == 1 else pa.concat_tables(ready).sort_by("offset")


def _opened(tables: Iterator[pa.Table]) -> list[tuple[pa.Table, Iterator[pa.Table]]]:
    """The next table that has rows, and what gives those after it; empty if there is none."""
    return next(([(table, tables)] for table in tables if table.num_rows), [])


def _cut(table: pa.Table, most: int) -> Iterator[pa.Table]:
    """Pieces of at most so many rows, and about so many bytes."""
    rows = max(1, min(most, BYTES * table.num_rows // max(table.nbytes, 1)))
    for at in range(0, table.num_rows, rows):
        yield table.slice(at, rows)


def millis(moment: datetime) -> int:
    """Since 1970, rounded up: what is not before it is not before the moment."""
    return -((EPOCH - moment) // timedelta(milliseconds=1))

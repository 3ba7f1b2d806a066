"""Show: the messages of one file of an export, or of one offset, in any format. No Spark and no JVM takes part.

A backup's file gives messages: offset, timestamp, key, value, headers. One of dead letters gives these and the reason
of each. A decoded file gives its rows as they are, field by field. What a format does not keep is left out.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catchment.bucket.contract import Bucket
from catchment.config.decode import Format
from catchment.errors import BucketError, NotFound, UsageError
from catchment.topics import committed
from catchment.topics.files import read
from catchment.topics.files.format import format_of
from catchment.topics.identity import Identity
from catchment.topics.locate import Candidate, Located, neighbours, recorded
from catchment.topics.manifest import File, Manifest
from catchment.topics.names import DEAD, ROOT, FileName, Place
from catchment.topics.records import OFFSET

LIMIT = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES = {0: "CreateTime", 1: "LogAppendTime"}


@dataclass(frozen=True)
class Shown:
    """Messages of one file; or, where there is no key, why there are none."""

    group: str
    topic: str
    kafka_partition: int
    life: int
    key: str | None
    note: str = ""  # what one should know about the file
    first: int | None = None  # of its range
    last: int | None = None
    generation: int | None = None
    dead: bool = False  # a file of dead letters
    messages: tuple[Mapping[str, Any], ...] = ()  # in order: bytes, text, numbers, times, lists and mappings
    more: bool = False  # there are more than were asked for


def show_file(
    bucket: Bucket, key: str, scratch: Path, *, limit: int = LIMIT, first: int | None = None, last: int | None = None
) -> Shown:
    """The first messages of a file with offsets in [first, last], also of one that no manifest lists.

    UsageError if the key is no export file's, or offsets are asked for and the file has none. NotFound if there is no
    such object; BucketError if it cannot be read.
    """
    place, name = _parsed(key)
    try:
        stat = bucket.head(key)
    except NotFound:
        raise NotFound(
            f"there is no object {key}", key=key, hint="catchment topics locate names the file of an offset"
        ) from None
    manifest, file, note = _listed(bucket, place, key, name)
    reader = _Reader(
        bucket,
        place,
        manifest,
        file or File(key, stat.etag, stat.size, 0, name.first, name.last),
        _format(recorded(bucket, place), name),
        scratch,
        first,
        last,
    )
    messages, more = reader.some(limit)
    return Shown(
        place.group,
        place.topic,
        name.source.partition,
        name.source.life,
        key,
        "; ".join(one for one in (note, reader.note) if one),
        name.first,
        name.last,
        name.generation,
        f"/{DEAD}/" in key,
        messages,
        more,
    )


def show_offset(bucket: Bucket, located: Located, scratch: Path) -> Shown:
    """The message of an offset: the candidates are read one after the other, the likeliest first, until one has it."""
    for file in sorted(located.files, key=_density, reverse=True):
        found = show_file(bucket, file.key, scratch, limit=1, first=located.offset, last=located.offset)
        if found.messages:
            return found
    about = (located.group, located.topic, located.kafka_partition, located.life)
    why = f"none of its {len(located.files)} files holds it: " if located.files else ""
    return Shown(*about, None, f"{why}{located.why}", located.first, located.last, located.generation)


def _density(file: Candidate) -> float:
    """How many of the offsets between its bounds a file has."""
    return file.rows / (file.last - file.first + 1)


def _parsed(key: str) -> tuple[Place, FileName]:
    """UsageError if it is not the key of an export's file."""
    parts = key.split("/")
    if len(parts) > 3 and parts[0] == ROOT:
        place = Place(parts[1], parts[2])
        try:
            return place, place.parse_file(key)[1]
        except ValueError:
            pass
    raise UsageError(
        f"{key[:200]} is not the key of an export's file",
        hint=f"one looks like {ROOT}/<group>/<topic>/…/1_3_<first>-<last>_<fingerprint>.parquet;"
        " catchment topics locate names the file of an offset",
    )


def _listed(bucket: Bucket, place: Place, key: str, name: FileName) -> tuple[Manifest | None, File | None, str]:
    """The manifest that lists the file and what it says of it; or else why none does."""
    before, _ = neighbours(bucket, place, name.source, name.first)
    if before is None:
        return None, None, "no manifest lists this file: its range is not committed"
    try:
        found = committed.read(bucket, place, name.source, before)
    except BucketError as error:
        if not error.unreadable:
            raise
        return None, None, f"the manifest of its range cannot be read: {error.message}"
    for file in (*found.files, *found.dead):
        if file.key == key:
            return found, file, ""
    if found.last < name.first:
        return None, None, "no manifest lists this file: its range is not committed"
    other = f"[{found.first}, {found.last}] is committed with other files, of generation {found.generation}"
    return None, None, f"no manifest lists this file: {other}"


def _format(known: Identity | None, name: FileName) -> Format:
    """As `_export.json` recorded it. Without a record, Parquet can still be read: it says itself what it holds."""
    if name.ext == "parquet" and (known is None or name.generation not in known.generations):
        return Format()
    if known is None:
        raise UsageError(f"nothing says how the file {name} was written", hint="restore the _export.json of its export")
    return format_of(known, name.generation)


@dataclass
class _Reader:
    """Reads one file as far as it is asked for."""

    bucket: Bucket
    place: Place
    manifest: Manifest | None
    file: File
    format: Format
    scratch: Path
    first: int | None
    last: int | None
    note: str = ""

    def some(self, limit: int) -> tuple[tuple[Mapping[str, Any], ...], bool]:
        """At most so many messages, and whether there are more."""
        found: list[Mapping[str, Any]] = []
        with closing(self._tables()) as tables:
            for table in tables:
                inside = self._inside(table)
                found += _messages(inside.slice(0, limit + 1 - len(found)))
                if len(found) > limit:
                    return tuple(found[:limit]), True
        return tuple(found), False

    def _tables(self) -> Generator[pa.Table]:
        """As the file has them if it has offsets of its own; else with those that its manifest tells, if it does."""
        reads = read.format_for(self.file.key, self.format)
        if "offset" in reads.keeps:
            parts = read.rows(self.bucket, self.file, self.format, self.scratch, first=self.first, last=self.last)
            for table in parts:
                plain = reads.typed and (OFFSET in table.column_names or "reason" in table.column_names)
                yield table if plain else reads.kept(table)
            return
        if self.manifest is not None:
            about = (self.bucket, self.place, self.manifest, self.file, self.format, self.scratch)
            try:
                yield from read.records(*about, first=self.first, last=self.last)
            except UsageError as error:
                self.note = error.message
            else:
                return
        if self.first is not None or self.last is not None:
            raise UsageError(
                self.note or f"{self.file.key} holds no offsets, and no manifest tells them",
                hint="leave out the offsets, and raise --limit",
            )
        self.note = self.note or "its offsets cannot be told"
        for table in read.rows(self.bucket, self.file, self.format, self.scratch):
            yield reads.kept(table)

    def _inside(self, table: pa.Table) -> pa.Table:
        offsets = table[OFFSET if OFFSET in table.column_names else "offset"]
        if self.first is not None:
            table = table.filter(pc.greater_equal(offsets, self.first))
            offsets = table[OFFSET if OFFSET in table.column_names else "offset"]
        return table if self.last is None else table.filter(pc.less_equal(offsets, self.last))


def _messages(table: pa.Table) -> list[Mapping[str, Any]]:
    """Rows as Python's own values. Messages have their columns in one order, and only those that are known."""
    columns = {name: _values(table[name]) for name in table.column_names}
    if OFFSET in columns:
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    found: list[Mapping[str, Any]] = []
    for row in zip(*columns.values(), strict=True):
        held = dict(zip(columns, row, strict=True))
        kind = held.pop("timestamp_type", None)
        timestamp, headers = held.get("timestamp"), held.get("headers")
        found.append(
            {
                **({"reason": held["reason"]} if "reason" in held else {}),
                "offset": held.get("offset"),
                "timestamp": _moment(timestamp) if isinstance(timestamp, int) else timestamp,
                "timestamp_type": kind if isinstance(kind, str) else _TYPES.get(kind) if kind is not None else None,
                "key": held.get("key"),
                "value": held.get("value"),
                "headers": [(one["key"], one["value"]) for one in headers] if headers else [],
            }
        )
    return found


def _values(column: pa.ChunkedArray) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError, pa.ArrowException):  # a time that Python has none for
        return [_value(one) for one in column]


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, pa.ArrowException):
        return str(scalar.cast(pa.int64()).as_py()) if pa.types.is_timestamp(scalar.type) else f"a {scalar.type}"


def _moment(millis: int) -> datetime | int:
    try:
        return _EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        return millis

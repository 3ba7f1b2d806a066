"""One range, counted again from its files: is every offset where its manifest says, once, and in the right folder?

Nothing that the manifest says of its files is believed: each is opened, and its offsets are read. What remains of the
range when these, the dead letters and the holes are taken away are the filtered messages, whose offsets nobody keeps:
so they can be counted and not named. Files are fetched one at a time and read a part at a time, of Parquet only the
columns that are needed; what is kept of a range is eight bytes for each of its rows.

A text file has no offsets. Its messages are counted, and together with the rest must fill the range; that each of them
is there once, and is this one, cannot be told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from catchment.bucket.contract import Bucket
from catchment.config.decode import Format, Split
from catchment.errors import BadKey, NotFound
from catchment.topics import committed
from catchment.topics.files.fetch import fetched
from catchment.topics.files.format import Damaged, FileFormat
from catchment.topics.files.parquet import offset_column
from catchment.topics.files.read import format_for
from catchment.topics.manifest import File, Manifest
from catchment.topics.names import Place, Source, folder_of, values_of
from catchment.topics.records import OFFSET, TIMESTAMP
from catchment.topics.split import RECORD_HEADERS, RECORD_KEY, Splitter

ROWS = 131_072  # at a time
NAMED = 5  # so many stretches or keys are named in a message
Offsets = np.ndarray[Any, np.dtype[np.int64]]
Splits = Mapping[int, Mapping[str, Split]]  # by generation
Formats = Mapping[int, Format]  # likewise


class Kind(StrEnum):
    """What can be wrong."""

    MISSING = "missing"  # offsets that are in no file, and should be
    TWICE = "twice"  # offsets that are there more than once
    MISPLACED = "misplaced"  # rows in a folder that is not theirs, or offsets in a range that is not theirs
    UNLISTED = "unlisted"  # an object that no manifest lists
    UNCOMMITTED = "uncommitted"  # offsets between two ranges, without a manifest
    ABSENT = "absent"  # a listed object that is not there
    CHANGED = "changed"  # a listed object that is not what the manifest says
    UNREADABLE = "unreadable"  # a manifest, or a listed object, that cannot be read
    CLOSED = "closed"  # a _SUCCESS that does not list what is committed


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or worth knowing."""

    kind: Kind
    key: str  # the object in question
    message: str  # what is wrong with it, and what to do where something can be done
    offsets: int = 0  # how many offsets (or rows) are concerned
    note: bool = False  # True: nothing is wrong with the data

    def __str__(self) -> str:
        return f"{self.kind}: {self.key}: {self.message}"


@dataclass(frozen=True)
class Recount:
    """One range, as its files have it."""

    source: Source
    first: int
    last: int
    files: int = 0  # objects read, dead letters too
    rows: int = 0  # found in files
    dead: int = 0  # found in files of dead letters
    filtered: int = 0  # as the manifest says
    gaps: int = 0
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Recounter:
    """Counts ranges again. Plain values but for the bucket, so that it can be sent to where another one is opened."""

    place: Place
    splits: Splits  # a generation that is not among them: folders are not checked
    bucket: Bucket | None = None
    formats: Formats = field(default_factory=dict)  # of one that is not among them: Parquet

    def __call__(self, manifest: Manifest) -> Recount:
        """If something is found and the manifest has been replaced meanwhile (a backfill), the new one is counted."""
        if self.bucket is None:
            raise ValueError("a Recounter needs its bucket before it can count")
        found = self._count(self.bucket, manifest)
        while found.findings:
            now = committed.read(self.bucket, self.place, manifest.source, manifest.first)
            if now == manifest:
                break
            manifest = now
            found = self._count(self.bucket, manifest)
        return found

    def _count(self, bucket: Bucket, manifest: Manifest) -> Recount:
        generation = manifest.generation
        return recount(bucket, self.place, manifest, self.splits.get(generation), self.formats.get(generation))


def recount(
    bucket: Bucket, place: Place, manifest: Manifest, split: Mapping[str, Split] | None, format: Format | None = None
) -> Recount:
    """What is wrong with one range. Split and format are its generation's; without a split folders are not checked."""
    format = format or Format()
    seen = _Seen(place, manifest, place.commit(manifest.source, manifest.first))
    for file in manifest.files:
        seen.take(file, _look(bucket, seen, file, split or {}, format), dead=False)
    for file in manifest.dead:
        seen.take(file, _look(bucket, seen, file, {}, format), dead=True)
    seen.judge()
    return Recount(
        manifest.source,
        manifest.first,
        manifest.last,
        files=len(manifest.files) + len(manifest.dead),
        rows=sum(len(one) for one in seen.written.values()) + seen.unnumbered,
        dead=sum(len(one) for one in seen.dead.values()),
        filtered=manifest.counts.filtered,
        gaps=manifest.counts.gaps,
        findings=tuple(seen.findings),
    )


@dataclass
class _Seen:
    """What was found of one range."""

    place: Place
    manifest: Manifest
    key: str  # of the manifest
    written: dict[str, Offsets] = field(default_factory=dict)  # by the file's key, sorted
    dead: dict[str, Offsets] = field(default_factory=dict)
    unnumbered: int = 0  # rows of files that have no offsets
    lost: int = 0  # rows of files that could not be read
    findings: list[Finding] = field(default_factory=list)

    def add(self, kind: Kind, key: str, message: str, offsets: int = 0, *, note: bool = False) -> None:
        self.findings.append(Finding(kind, key, message, offsets, note))

    def take(self, file: File, content: _Content | None, *, dead: bool) -> None:
        """Note the offsets of one object; None if it could not be read."""
        if content is None:
            self.lost += file.rows
            return
        self.unnumbered += content.unnumbered
        found = content.offsets
        into = self.dead if dead else self.written
        into[file.key] = np.sort(np.concatenate([into[file.key], found])) if file.key in into else found

    def judge(self) -> None:
        """What all files together say of the range."""
        manifest, every = self.manifest, [*self.written.values(), *self.dead.values()]
        offsets = np.sort(np.concatenate([np.empty(0, np.int64), *every]))
        again = np.unique(offsets[1:][offsets[1:] == offsets[:-1]])
        if again.size:
            extra = len(offsets) - len(np.unique(offsets))
            where = [key for key, held in (self.written | self.dead).items() if np.isin(again, held).any()]
            text = f"its files hold {_offsets(*stretches(again))} more than once: {_some(sorted(where))}"
            self.add(Kind.TWICE, self.key, text, extra)
        inside = offsets[(offsets >= manifest.first) & (offsets <= manifest.last)]
        if len(inside) < len(offsets):
            strange = np.unique(offsets[(offsets < manifest.first) | (offsets > manifest.last)])
            text = f"its files hold {_offsets(*stretches(strange))}, outside its range"
            self.add(Kind.MISPLACED, self.key, text, len(strange))
        distinct = np.unique(inside)
        if manifest.holes:
            self._judge_holes(distinct, manifest.holes)
        self._judge_missing(distinct)

    def _judge_holes(self, distinct: Offsets, holes: Sequence[tuple[int, int]]) -> None:
        starts, ends = (np.array(one, np.int64) for one in zip(*holes, strict=True))
        at = np.searchsorted(starts, distinct, side="right") - 1
        in_hole = distinct[(at >= 0) & (distinct <= ends[at])]
        if in_hole.size:
            text = f"its files hold {_offsets(*stretches(in_hole))}, and it says that Kafka had none there"
            self.add(Kind.CHANGED, self.key, text, len(in_hole))

    def _judge_missing(self, distinct: Offsets) -> None:
        manifest = self.manifest
        holes = manifest.holes or ()
        starts, ends = missing_between(distinct, holes, manifest.first, manifest.last)
        unseen = int((ends - starts + 1).sum())  # filtered, missing, or (if the holes are not named) gaps
        explained = manifest.counts.filtered + self.lost + self.unnumbered
        explained += manifest.counts.gaps if manifest.holes is None else 0
        if unseen > explained:
            how_many = unseen - explained
            what = f"{how_many} of its offsets" if explained else _offsets(starts, ends)
            self.add(Kind.MISSING, self.key, f"none of its files holds {what}", how_many)


def _look(bucket: Bucket, seen: _Seen, file: File, split: Mapping[str, Split], format: Format) -> _Content | None:
    """What one object holds; None if it is not there or cannot be read. Whatever is wrong is noted."""
    try:
        stat = bucket.head(file.key)
        with fetched(bucket, file.key) as local:
            content = _content(local, seen.place, file, split, format_for(file.key, format))
    except BadKey:
        seen.add(Kind.ABSENT, file.key, f"can be no object's name; {seen.key} lists it", file.rows)
        return None
    except NotFound:
        own = f"offsets {file.first} to {file.last}"
        seen.add(Kind.ABSENT, file.key, f"is not there; {seen.key} lists it with {file.rows} rows, {own}", file.rows)
        return None
    except Damaged as error:
        seen.add(Kind.UNREADABLE, file.key, str(error), file.rows)
        return None
    differs = _differences(file, content, seen.place, seen.manifest)
    if differs:
        seen.add(Kind.CHANGED, file.key, f"is not as {seen.key} lists it: {'; '.join(differs)}")
    elif stat.etag != file.etag:
        same = "its rows are as many as listed" if content.unnumbered else "rows and offsets are as listed"
        seen.add(Kind.CHANGED, file.key, f"was put again (its ETag is another); {same}", note=stat.size == file.size)
    if content.misplaced:
        text = f"{content.misplaced} of its rows belong elsewhere, for example in {content.example}"
        seen.add(Kind.MISPLACED, file.key, text, content.misplaced)
    return content


def _differences(file: File, content: _Content, place: Place, manifest: Manifest) -> list[str]:
    found, offsets = [], content.offsets
    try:
        _, name = place.parse_file(file.key)
    except ValueError:
        found.append("its name is none of this export's")
    else:
        mine = (manifest.generation, manifest.source, manifest.first, manifest.last)
        if (name.generation, name.source, name.first, name.last) != mine:
            found.append("its name is that of another range")
    if (rows := len(offsets) + content.unnumbered) != file.rows:
        found.append(f"{rows} rows and not {file.rows}")
    if len(offsets) and (offsets[0], offsets[-1]) != (file.first, file.last):
        found.append(f"offsets from {offsets[0]} to {offsets[-1]} and not from {file.first} to {file.last}")
    return found


@dataclass(frozen=True)
class _Content:
    """What one object holds."""

    offsets: Offsets  # sorted
    unnumbered: int = 0  # rows that have none
    misplaced: int = 0
    example: str = ""


def _content(local: IO[bytes], place: Place, file: File, split: Mapping[str, Split], format: FileFormat) -> _Content:
    folder = file.key.removeprefix(place.prefix).rpartition("/")[0]
    found: list[Offsets] = []
    unnumbered, misplaced, example = 0, 0, ""
    looks = _typed(local, folder, split) if format.typed else _messages(local, folder, split, format)
    for column, batch, check in looks:
        if not column:
            unnumbered += batch.num_rows
            continue
        offsets = batch.column(column)
        if offsets.null_count:
            raise Damaged("has rows without an offset")
        found.append(offsets.to_numpy())
        wrong, where = check.wrong(batch)
        misplaced += wrong
        example = example or where
    return _Content(np.sort(np.concatenate([np.empty(0, np.int64), *found])), unnumbered, misplaced, example)


# What is looked at: which column has the offsets (empty: none), rows, and how to check their folder.
_Look = tuple[str, pa.RecordBatch, "_FolderCheck"]


def _typed(local: IO[bytes], folder: str, split: Mapping[str, Split]) -> Iterator[_Look]:
    """A Parquet file, only the columns that are needed."""
    try:
        with pq.ParquetFile(local) as parquet:
            schema = parquet.schema_arrow
            column = offset_column(schema)
            check = _folder_check(schema, folder, split)
            for batch in parquet.iter_batches(ROWS, columns=[column, *check.columns]):
                yield column, batch, check
    except (pa.ArrowException, OSError) as error:  # Arrow says OSError of a damaged page
        raise Damaged(f"is no Parquet file that can be read ({error})") from error


def _messages(local: IO[bytes], folder: str, split: Mapping[str, Split], format: FileFormat) -> Iterator[_Look]:
    """A file of messages."""
    for table in format.read(local):
        check = _folder_check(table.schema, folder, split)
        for batch in table.to_batches():
            yield ("offset" if "offset" in table.column_names else ""), batch, check


@dataclass(frozen=True)
class _FolderCheck:
    """Whether rows are in the folder that their own values say."""

    columns: tuple[str, ...]  # what it needs to see
    splits: Mapping[str, Split]
    expected: str
    renamed: Mapping[str, str]

    def wrong(self, batch: pa.RecordBatch) -> tuple[int, str]:
        """How many are not, and where one of them belongs."""
        if not self.splits:
            return 0, ""
        table = pa.Table.from_batches([batch])
        table = table.rename_columns([self.renamed.get(name, name) for name in table.column_names])
        folders = Splitter(self.splits).folders(table)
        counts = np.bincount(folders.codes.drop_null().to_numpy(), minlength=len(folders.names))
        right = sum(int(count) for name, count in zip(folders.names, counts, strict=True) if name == self.expected)
        elsewhere = [name for name in folders.names if name != self.expected]
        return batch.num_rows - right, elsewhere[0] if elsewhere else "no folder at all"


def _folder_check(schema: pa.Schema, folder: str, splits: Mapping[str, Split]) -> _FolderCheck:
    """What can be checked of a folder. Levels that are named by what the file does not hold (a key) are passed over."""
    backup = OFFSET not in schema.names
    renamed = {"timestamp": TIMESTAMP, "key": RECORD_KEY, "headers": RECORD_HEADERS} if backup else {}
    checked: dict[str, Split] = {}
    columns: list[str] = []
    for name, split in splits.items():
        if split.timestamp:
            needed = "timestamp" if backup else TIMESTAMP
        elif split.key or split.header is not None:
            needed = ("key" if split.key else "headers") if backup else ""
        elif backup:  # or messages of a decoded export: a field is not looked for in them
            needed = ""
        else:
            needed = split.field or ""
            if needed not in schema.names:
                needed = needed.split(".")[0]
        if needed in schema.names:
            checked[name] = split
            columns.append(needed)
    try:
        values = values_of(folder)
    except ValueError:
        values = {}
    expected = folder_of((name, values.get(name, "")) for name in checked)
    return _FolderCheck(tuple(dict.fromkeys(columns)), checked, expected, renamed)


def missing_between(
    offsets: Offsets, holes: Sequence[tuple[int, int]], first: int, last: int
) -> tuple[Offsets, Offsets]:
    """The stretches of [first, last] that hold none of the sorted offsets and lie in no hole: their ends."""
    starts = np.concatenate([[first - 1], offsets, [start for start, _ in holes], [last + 1]]).astype(np.int64)
    ends = np.concatenate([[first - 1], offsets, [end for _, end in holes], [last + 1]]).astype(np.int64)
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    at = np.flatnonzero(starts[1:] > reach[:-1] + 1)
    return reach[at] + 1, starts[at + 1] - 1


def stretches(offsets: Offsets) -> tuple[Offsets, Offsets]:
    """Sorted, distinct offsets as stretches: their ends."""
    cuts = np.flatnonzero(np.diff(offsets) != 1)
    return offsets[np.concatenate([[0], cuts + 1])], offsets[np.concatenate([cuts, [len(offsets) - 1]])]


def _offsets(starts: Offsets, ends: Offsets) -> str:
    """For people: offset 5; 6 offsets (3 to 7, 9); 90 offsets (1, 3, 5, 7, 9 and 85 more stretches)."""
    count = int((ends - starts + 1).sum())
    named = [f"{a}" if a == b else f"{a} to {b}" for a, b in zip(starts[:NAMED], ends[:NAMED], strict=True)]
    more = f" and {len(starts) - NAMED} more stretches" if len(starts) > NAMED else ""
    return f"offset {named[0]}" if count == 1 else f"{count} offsets ({', '.join(named)}{more})"


def _some(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return ", ".join(keys[:NAMED]) + more

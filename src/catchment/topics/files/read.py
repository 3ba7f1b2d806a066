"""Messages and rows back from committed files, of any format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.bucket.contract import Bucket
from catchment.config.decode import Format
from catchment.errors import BucketError, UsageError
from catchment.topics.files.fetch import fetched
from catchment.topics.files.format import Damaged, FileFormat, file_format
from catchment.topics.files.parquet import Parquet
from catchment.topics.manifest import File, Manifest
from catchment.topics.names import DEAD, Place
from catchment.topics.records import BACKED, OFFSET

ROWS = 1 << 16  # of a table that is given back, at most

Offsets = np.ndarray[Any, np.dtype[np.int64]]


def format_for(key: str, format: Format) -> FileFormat:
    """What reads this object of an export with that format: dead letters are Parquet, whatever the export writes."""
    return Parquet() if f"/{DEAD}/" in key else file_format(format)


def rows(
    bucket: Bucket,
    file: File | str,
    format: Format,
    scratch: Path,
    *,
    first: int | None = None,
    last: int | None = None,
) -> Iterator[pa.Table]:
    """The rows of a committed file (or what has its key) as it has them, in order, a part at a time.

    BucketError that names the key if it cannot be read to its end. scratch: where a large object is kept meanwhile.
    first, last: parts of the file that have no offset in [first, last] may be left out.
    """
    key = file if isinstance(file, str) else file.key
    with fetched(bucket, key, scratch) as local:
        try:
            yield from format_for(key, format).read(local, first=first, last=last)
        except Damaged as error:
            raise unreadable(key, error.message) from error


def records(
    bucket: Bucket,
    place: Place,
    manifest: Manifest,
    file: File,
    format: Format,
    scratch: Path,
    *,
    first: int | None = None,
    last: int | None = None,
) -> Iterator[pa.Table]:
    """The messages of one committed file, or of its range's dead letters, by offset: only those in [first, last].

    Columns are those of `records.BACKED`; what the format does not keep is null (`FileFormat.keeps` says what it does).
    UsageError if the file holds decoded rows and not messages, or if its offsets cannot be told. BucketError if it
    cannot be read, or has not as many messages as its manifest says.
    """
    found = format_for(file.key, format)
    low, high = manifest.first if first is None else first, manifest.last if last is None else last
    numbers = None if "offset" in found.keeps else deduced(bucket, place, manifest, file, scratch)
    seen = 0
    whole = numbers is not None or (first is None and last is None)
    for table in rows(bucket, file, format, scratch, first=first, last=last):
        if found.typed and (OFFSET in table.column_names or "value" not in table.column_names):
            raise UsageError(
                f"{file.key} holds decoded rows, and not the messages that they were made of",
                hint="use a backup of the topic (an export without decode), or Kafka",
            )
        messages = found.kept(table)
        if numbers is not None:
            mine = numbers[seen : seen + table.num_rows]
            if len(mine) == table.num_rows:
                messages = messages.set_column(0, BACKED.field("offset"), pa.array(mine))
        seen += table.num_rows
        if seen > file.rows:
            break
        offsets = messages["offset"]
        inside = pc.and_(pc.greater_equal(offsets, low), pc.less_equal(offsets, high))
        if not pc.all(inside).as_py():
            messages = messages.filter(inside)
        for at in range(0, messages.num_rows, ROWS):
            yield messages.slice(at, ROWS)
    if seen > file.rows or (whole and seen != file.rows):
        more = "more" if seen > file.rows else f"{seen}"
        raise unreadable(file.key, f"holds {more} messages and not {file.rows}, as its manifest says")


def deduced(bucket: Bucket, place: Place, manifest: Manifest, file: File, scratch: Path) -> Offsets:
    """The offsets of a file that has none of its own: all of its range but holes and dead letters.

    UsageError where that is not certain.
    """
    missing = _uncertain(manifest)
    if missing:
        raise UsageError(
            f"{file.key} is text and has no offsets, and they cannot be told from its manifest: {missing}",
            hint="use a backup whose format is parquet or sequence, or Kafka",
        )
    gone = [np.arange(start, end + 1, dtype=np.int64) for start, end in manifest.holes or ()]
    for letters in manifest.dead:
        for table in rows(bucket, letters, Format(), scratch):
            gone.append(table["offset"].to_numpy())
    every = np.arange(manifest.first, manifest.last + 1, dtype=np.int64)
    found: Offsets = np.setdiff1d(every, np.concatenate([np.empty(0, np.int64), *gone]), assume_unique=True)
    if len(found) != file.rows or (len(found) and (found[0], found[-1]) != (file.first, file.last)):
        raise unreadable(
            place.commit(manifest.source, manifest.first),
            f"leaves {len(found)} offsets to {file.key}, and says that it has {file.rows}"
            f" from {file.first} to {file.last}",
        )
    return found


def _uncertain(manifest: Manifest) -> str:
    """Why the offsets of a range's text file cannot be told; empty if they can."""
    if len(manifest.files) != 1:
        return f"its range has {len(manifest.files)} files, and nothing says which message went to which"
    if manifest.counts.filtered:
        return f"{manifest.counts.filtered} messages of its range were filtered out, and nothing says which"
    if manifest.holes is None:
        return "its range has too many holes to name"
    return ""


def unreadable(key: str, why: str) -> BucketError:
    """The error for an object that is not what it should be."""
    return BucketError(f"{key} {why}", key=key, hint="run 'catchment topics verify'; restore its earlier version")

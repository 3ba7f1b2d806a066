"""Ranges of made-up messages, written to a bucket in memory."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from catchment.bucket.contract import Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.config.topics import Export
from catchment.testing.clock import FakeClock
from catchment.topics.definition import fingerprint
from catchment.topics.names import Source
from catchment.topics.records import HEADERS
from catchment.topics.work import Refused, Work, Written
from catchment.topics.write.range import write_range

SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("timestamp_type", pa.int32()),
    ]
)
DAY = 86_400_000
BEGIN = 20_000 * DAY  # 2024-10-04
LARGE = 256_000_000

BY_TYPE_AND_DAY = {"type": {"field": "type"}, "day": {"field": "at", "unit": "ms", "by": "day"}}


@dataclass(frozen=True)
class Message:
    offset: int
    value: bytes | None
    key: bytes | None = b"k"
    timestamp: int = BEGIN
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_type: int = 0


def event(offset: int, kind: str = "a", day: int = 0, **more: Any) -> Message:
    return Message(offset, json.dumps({"type": kind, "at": BEGIN + day * DAY + offset, **more}).encode())


def events(number: int) -> list[Message]:
    """Three types, four days, out of order."""
    return [event(n, "abc"[n % 3], n * 7 % 4, n=n, text=f"message {n}") for n in range(number)]


def batches(messages: Sequence[Message], rows: int = 1000) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(messages), rows):
        some = messages[start : start + rows]
        yield pa.RecordBatch.from_pydict(
            {
                "offset": [one.offset for one in some],
                "timestamp": [one.timestamp for one in some],
                "key": [one.key for one in some],
                "value": [one.value for one in some],
                "headers": [[{"key": name, "value": text} for name, text in one.headers] for one in some],
                "timestamp_type": [one.timestamp_type for one in some],
            },
            schema=SCHEMA,
        )


def json_export(**values: Any) -> Export:
    return Export.model_validate({"group": "events", "decode": "json", "split": BY_TYPE_AND_DAY, **values})


BACKUP = Export.model_validate({"group": "backup"})


def work(export: Export, last: int, first: int = 0) -> Work:
    return Work(export, "clicks", Source(3), first, last, fingerprint(export))


def memory() -> MemoryBucket:
    return MemoryBucket(clock=FakeClock(), versions=False)


def write(
    bucket: Bucket,
    scratch: Path,
    export: Export,
    messages: Sequence[Message],
    *,
    last: int | None = None,
    first: int = 0,
    rows: int = 1000,
    budget: int = LARGE,
) -> Written | Refused:
    scratch.mkdir(parents=True, exist_ok=True)
    end = messages[-1].offset if last is None else last
    return write_range(work(export, end, first), batches(messages, rows), bucket, scratch, budget)


def written(found: Written | Refused) -> Written:
    assert isinstance(found, Written), found
    return found


def refused(found: Written | Refused) -> Refused:
    assert isinstance(found, Refused), found
    return found


def objects(bucket: Bucket) -> dict[str, bytes]:
    """All that is in the bucket, without what differs from run to run: the nonces of schemas."""
    found = {}
    for entry in bucket.list():
        body = bucket.get(entry.key)
        if entry.key.endswith(".json"):
            body = json.dumps({name: value for name, value in json.loads(body).items() if name != "nonce"}).encode()
        found[entry.key] = body
    return found


def rows_of(bucket: Bucket, key: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.ParquetFile(io.BytesIO(bucket.get(key))).read().to_pylist()
    return rows


def all_rows(bucket: Bucket, found: Written) -> dict[str, list[dict[str, Any]]]:
    """Rows by folder."""
    return {file.key.rpartition("/")[0]: rows_of(bucket, file.key) for file in found.files}

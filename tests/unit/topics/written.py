"""Small exports in memory, with real Parquet files, made as exporters make them; and damaged by hand."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from catchment.bucket.contract import Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.clock import isoformat
from catchment.config.topics import Export
from catchment.testing.clock import FakeClock
from catchment.topics import identity, offsets
from catchment.topics.definition import fingerprint, with_schema
from catchment.topics.manifest import Counts, File, Manifest
from catchment.topics.names import FileName, Place, Source, folder_of
from catchment.topics.offsets import Hint
from catchment.topics.records import DEAD, RECORDS

NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)
DAY = datetime(2026, 11, 15, tzinfo=UTC)
EXPORT = Export.model_validate(
    {
        "group": "events",
        "decode": "json",
        "split": {"type": {"field": "type"}, "day": {"field": "ts", "unit": "ms", "by": "day"}},
    }
)
BACKUP = Export.model_validate({"group": "backup"})
PLACE = Place("events", "clicks")
ONE = Source(0)
TWO = Source(1)


def folder_at(offset: int) -> tuple[str, datetime]:
    """Where the message at an offset goes: two types in turn, a day for every ten offsets."""
    time = DAY + timedelta(days=offset // 10, minutes=offset % 10)
    return folder_of([("type", "ab"[offset % 2]), ("day", time.date().isoformat())]), time


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=4)
    return sink.getvalue()


def decoded(rows: Sequence[int]) -> pa.Table:
    """Rows of the messages at these offsets."""
    times = [folder_at(offset)[1] for offset in rows]
    return pa.table(
        {
            "type": pa.array(["ab"[offset % 2] for offset in rows], pa.string()),
            "ts": pa.array([int(time.timestamp() * 1000) for time in times], pa.int64()),
            "user": pa.array([{"name": f"u{offset}"} for offset in rows], pa.struct([("name", pa.string())])),
            "_offset": pa.array(rows, pa.int64()),
            "_timestamp": pa.array(times, pa.timestamp("ms", "UTC")),
        }
    )


def records(rows: Sequence[int], schema: pa.Schema = RECORDS) -> pa.Table:
    columns: dict[str, Any] = {
        "offset": rows,
        "timestamp": [1000 * offset for offset in rows],
        "key": [b"k"] * len(rows),
        "value": [b"{"] * len(rows),
        "reason": ["not JSON"] * len(rows),
    }
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def nonces() -> Any:
    """The same ones in each run."""
    made = iter(range(10**9))
    return lambda: f"n{next(made)}"


@dataclass
class Lake:
    """One export that grows by `commit`."""

    bucket: Bucket = field(default_factory=lambda: MemoryBucket(clock=FakeClock(), versions=False))
    place: Place = PLACE
    export: Export = EXPORT
    nonce: Any = field(default_factory=nonces)

    def begin(self, starts: Mapping[int, int] | None = None) -> Lake:
        identity.register(
            self.bucket, self.place, "id", self.export, lambda: dict(starts or {0: 0, 1: 0}), nonce=self.nonce
        )
        return self

    def name(self, first: int, last: int, source: Source = ONE, generation: int = 1, schema: str = "s") -> FileName:
        return FileName(generation, source, first, last, with_schema(fingerprint(self.export), schema), "parquet")

    def put(self, key: str, table: pa.Table, column: str = "_offset") -> File:
        """An object, and what a manifest says of it."""
        stat = self.bucket.put(key, parquet(table))
        held = sorted(table[column].to_pylist())
        timed = column == "_offset"
        return File(
            key,
            stat.etag,
            stat.size,
            len(held),
            held[0],
            held[-1],
            isoformat(folder_at(held[0])[1]) if timed else None,
            isoformat(folder_at(held[-1])[1]) if timed else None,
        )

    def write(
        self,
        first: int,
        last: int,
        source: Source = ONE,
        *,
        dead: Sequence[int] = (),
        filtered: Sequence[int] = (),
        gaps: Sequence[int] = (),
        generation: int = 1,
    ) -> Manifest:
        """Every file of one range, and the manifest that would commit it."""
        name = self.name(first, last, source, generation)
        rows = [one for one in range(first, last + 1) if one not in {*dead, *filtered, *gaps}]
        files = []
        if self.export.decode is None:
            if rows:
                files.append(self.put(self.place.file("", name), records(rows), "offset"))
        else:
            by_folder: dict[str, list[int]] = defaultdict(list)
            for one in rows:
                by_folder[folder_at(one)[0]].append(one)
            for folder, held in sorted(by_folder.items()):
                files.append(self.put(self.place.file(folder, name), decoded(held)))
        letters = [self.put(self.place.dead(name), records(dead, DEAD), "offset")] if dead else []
        return Manifest(
            topic=self.place.topic,
            topic_id="id",
            source=source,
            first=first,
            last=last,
            generation=generation,
            fingerprint=fingerprint(self.export),
            counts=Counts(last - first + 1 - len(gaps), len(gaps), len(rows), len(dead), len(filtered)),
            files=tuple(files),
            dead=tuple(letters),
            holes=tuple((one, one) for one in sorted(gaps)),
            raw_bytes=100,
            owner="r1",
            committed=isoformat(NOW + timedelta(minutes=first)),
        )

    def publish(self, manifest: Manifest) -> Manifest:
        """Put the manifest as it is."""
        self.bucket.put(self.place.commit(manifest.source, manifest.first), manifest.body(self.nonce()))
        return manifest

    def hint(self, source: Source, next: int, **more: Any) -> None:
        known = offsets.read_hint(self.bucket, self.place, source, 0)
        offsets.write_hint(self.bucket, known, Hint(next, **more), NOW, self.nonce)

    def commit(self, first: int, last: int, source: Source = ONE, **how: Any) -> Manifest:
        """Write, commit and advance the hint."""
        manifest = self.publish(self.write(first, last, source, **how))
        known = offsets.read_hint(self.bucket, self.place, source, first)
        offsets.advance(self.bucket, self.place, source, known, manifest, NOW, nonce=self.nonce)
        return manifest

    def held(self) -> set[str]:
        return {entry.key for entry in self.bucket.list()}


def healthy() -> Lake:
    """Two Kafka partitions, three ranges each, with dead letters, filtered messages and gaps."""
    lake = Lake().begin()
    for source in (ONE, TWO):
        lake.commit(0, 9, source)
        lake.commit(10, 24, source, dead=[12, 13], filtered=[15], gaps=[20, 21])
        lake.commit(25, 31, source, gaps=[25, 31])
    return lake


def changed(manifest: Manifest, at: int, **fields: Any) -> Manifest:
    """With another word about one of its files."""
    files = list(manifest.files)
    files[at] = replace(files[at], **fields)
    return replace(manifest, files=tuple(files))

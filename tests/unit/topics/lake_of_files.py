"""Exports of a Kafka in memory with the real write path: Parquet files in a bucket in memory, without Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from catchment.bucket.contract import Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.config.topics import Export
from catchment.testing.clock import FakeClock
from catchment.testing.topics import FakeKafka
from catchment.topics import committed, identity
from catchment.topics.backfill.backup import Backup
from catchment.topics.backfill.rewrite import FromBackup, FromKafka, in_process
from catchment.topics.backfill.run import Backfilled, backfill
from catchment.topics.files.format import format_of
from catchment.topics.files.read import rows
from catchment.topics.names import Place
from catchment.topics.period import Period
from catchment.topics.records import BACKED
from catchment.topics.work import Reading, Refused, Work, Written
from catchment.topics.write.range import all_gaps, write_range
from tests.unit.topics.lakes import exporter, run, topic

TOPIC = "events"
NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)
MEMORY = 64_000_000
BACKUP = Export.model_validate({"group": "backup"})


@dataclass
class RangeWriter:
    """Writes ranges as tasks do, in this process."""

    bucket: Bucket
    kafka: FakeKafka
    parallelism: int = 8

    def write(self, reading: Reading, works: Sequence[Work]) -> list[Written | Refused]:
        return [self._write(work) for work in works]

    def _write(self, work: Work) -> Written | Refused:
        found = list(self.kafka.read((work.topic, work.source.partition), work.first, work.last))
        if not found:
            return all_gaps(work)
        table = pa.Table.from_pylist(
            [
                {
                    "offset": offset,
                    "timestamp": one.timestamp,
                    "key": one.key,
                    "value": one.value,
                    "headers": [],
                    "timestamp_type": 0,
                }
                for offset, one in found
            ],
            schema=BACKED,
        )
        with tempfile.TemporaryDirectory() as scratch:
            return write_range(work, table.to_batches(max_chunksize=100), self.bucket, Path(scratch), MEMORY)


@dataclass
class Files:
    """A lake with exports of one topic."""

    kafka: FakeKafka = field(default_factory=FakeKafka)
    bucket: Bucket = field(default_factory=lambda: MemoryBucket(clock=FakeClock(), versions=False))

    def export(self, export: Export, **config: Any) -> None:
        """Export all that is in Kafka, and end."""
        one = exporter(
            self.bucket, self.kafka, made=export, config=topic(**config), writer=RangeWriter(self.bucket, self.kafka)
        )
        for step in run(one):
            assert not step.problems, step.problems
        one.let_go()

    def backfill(
        self,
        export: Export,
        period: Period = Period(),  # noqa: B008
        *,
        source: str | None = "backup",
        bucket: Bucket | None = None,
        **how: Any,
    ) -> Backfilled:
        """From the backup, or with `source=None` from Kafka."""
        there = bucket or self.bucket
        place = Place(export.group, TOPIC)
        known = identity.read(there, place)
        assert known is not None
        known = identity.register(there, place, known.topic_id, export, dict)
        messages = (
            FromBackup(Backup(there, Place(source, TOPIC), known), in_process(there, MEMORY))
            if source
            else FromKafka(self.kafka, TOPIC, known, lambda: RangeWriter(there, self.kafka), Reading("", {}))
        )
        values = {"replace": True, "owner": "b", "now": lambda: NOW, **how}
        return backfill(there, place, export, known, period, messages, **values)

    def rows(self, group: str, topic: str = TOPIC, bucket: Bucket | None = None) -> list[dict[str, Any]]:
        """Every committed row, by what manifests list, sorted by offset, with its folder."""
        return sorted(self._rows(Place(group, topic), bucket or self.bucket), key=lambda row: row.get("_offset", 0))

    def _rows(self, place: Place, bucket: Bucket) -> Iterator[dict[str, Any]]:
        known = identity.read(bucket, place)
        assert known is not None
        for manifest in committed.manifests(bucket, place, workers=1):
            for file in manifest.files:
                folder = place.parse_file(file.key)[0]
                with tempfile.TemporaryDirectory() as scratch:
                    for table in rows(bucket, file, format_of(known, manifest.generation), Path(scratch)):
                        yield from ({**row, "folder": folder} for row in table.to_pylist())

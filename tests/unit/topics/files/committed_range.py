"""One committed range of an export, in a bucket in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catchment.bucket.contract import Bucket
from catchment.config.topics import Export
from catchment.topics.definition import fingerprint
from catchment.topics.files.read import records
from catchment.topics.manifest import File, Manifest
from catchment.topics.names import Place
from tests.unit.topics.write.ranges import LARGE, Message, memory, write, written


@dataclass(frozen=True)
class Committed:
    bucket: Bucket
    export: Export
    manifest: Manifest
    scratch: Path

    @property
    def place(self) -> Place:
        return Place(self.export.group, self.manifest.topic)

    def messages(self, file: File, first: int | None = None, last: int | None = None) -> list[dict[str, Any]]:
        found = records(
            self.bucket, self.place, self.manifest, file, self.export.format, self.scratch, first=first, last=last
        )
        return [row for table in found for row in table.to_pylist()]


def commit(
    scratch: Path, given: Sequence[Message], *, last: int | None = None, budget: int = LARGE, **values: Any
) -> Committed:
    """Write these messages; the manifest is what an exporter would put."""
    export = Export.model_validate({"group": "backup", "dead_letters": {"stop_above": "100%"}, **values})
    bucket = memory()
    found = written(write(bucket, scratch, export, given, last=last, budget=budget))
    manifest = Manifest(
        found.topic,
        "id",
        found.source,
        found.first,
        found.last,
        export.generation,
        fingerprint(export),
        found.counts,
        found.files,
        found.dead,
        found.holes,
    )
    return Committed(bucket, export, manifest, scratch)

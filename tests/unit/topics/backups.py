"""Exports whose ranges are written by the real writer, from made-up messages, without Kafka and without Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from catchment.bucket.contract import Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.config.topics import Export
from catchment.testing.clock import FakeClock
from catchment.topics import identity
from catchment.topics.definition import fingerprint
from catchment.topics.manifest import Manifest
from catchment.topics.names import Place, Source
from catchment.topics.work import Work, Written
from catchment.topics.write.range import write_range
from tests.unit.topics.write.ranges import Message, batches

__all__ = ["Backup", "Message"]


def memory() -> MemoryBucket:
    return MemoryBucket(clock=FakeClock(), versions=False)


@dataclass
class Backup:
    """One export that grows by `commit`; a backup unless `values` say otherwise."""

    bucket: Bucket = field(default_factory=memory)
    topic: str = "clicks"
    values: dict[str, Any] = field(default_factory=dict)
    topic_id: str = "id"

    @property
    def export(self) -> Export:
        return Export.model_validate({"group": "backup", **self.values})

    @property
    def place(self) -> Place:
        return Place(self.export.group, self.topic)

    def begin(self, starts: dict[int, int] | None = None) -> Backup:
        identity.register(self.bucket, self.place, self.topic_id, self.export, lambda: starts or {})
        return self

    def write(self, first: int, last: int, messages: Sequence[Message], source: Source = Source(0)) -> Manifest:  # noqa: B008
        """Every file of one range, and the manifest that would commit it. What has no message is a hole."""
        export = self.export
        work = Work(export, self.topic, source, first, last, fingerprint(export))
        inside = [one for one in messages if first <= one.offset <= last]
        with tempfile.TemporaryDirectory() as scratch:
            done = write_range(work, batches(inside), self.bucket, Path(scratch), 256_000_000)
        assert isinstance(done, Written), done
        return Manifest(
            self.topic,
            self.topic_id,
            source,
            first,
            last,
            export.generation,
            work.fingerprint,
            done.counts,
            done.files,
            done.dead,
            done.holes,
            done.raw_bytes,
        )

    def commit(self, first: int, last: int, messages: Sequence[Message], source: Source = Source(0)) -> Manifest:  # noqa: B008
        """Write and commit one range."""
        made = self.write(first, last, messages, source)
        self.bucket.put(self.place.commit(source, first), made.body("n"))
        return made

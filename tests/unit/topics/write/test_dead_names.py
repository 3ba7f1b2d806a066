"""Which records are dead letters depends on the schema, so the name of their file does too."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from catchment.bucket.contract import Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.config.topics import Export
from catchment.testing.dying import Died, DyingBucket
from catchment.topics.definition import fingerprint
from catchment.topics.names import Source
from catchment.topics.records import RECORDS
from catchment.topics.work import Refused, Work, Written
from catchment.topics.write.range import write_range

EXPORT = Export.model_validate(
    {"group": "g", "decode": "json", "split": {"type": {"field": "type"}}, "dead_letters": {"stop_above": "100%"}}
)


def written(bucket: Bucket, values: list[bytes], scratch: Path, partition: int = 0) -> Written | Refused:
    work = Work(EXPORT, "events", Source(partition), 0, len(values) - 1, fingerprint(EXPORT))
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(range(len(values)), pa.int64()),
            pa.array([0] * len(values), pa.int64()),
            pa.nulls(len(values), pa.binary()),
            pa.array(values, pa.binary()),
        ],
        schema=RECORDS,
    )
    return write_range(work, [batch], bucket, scratch, 1 << 24)


def test_an_attempt_with_another_schema_keeps_its_own_dead_letters(tmp_path: Path) -> None:
    values = [b'{"type": "a", "x": 1}', b'{"type": "b", "y": "text"}', b"bad"]
    bucket = MemoryBucket()
    # The first attempt dies after its puts, before it is committed: it took y for text.
    first = written(bucket, values, tmp_path)
    assert isinstance(first, Written)
    assert first.counts.dead == 1
    clean = MemoryBucket()
    # Elsewhere the schema of b was recorded first with numbers: then its record is dead too.
    assert isinstance(written(clean, [b'{"type": "b", "y": 5}'], tmp_path, partition=1), Written)
    for entry in list(clean.list("topics/g/events/_schemas/")):
        bucket.put(entry.key, clean.get(entry.key))
    second = written(bucket, values, tmp_path)
    assert isinstance(second, Written)
    assert second.counts.dead == 2
    assert second.dead[0].key != first.dead[0].key
    assert bucket.head(first.dead[0].key).etag == first.dead[0].etag


def test_a_second_attempt_with_the_same_schemas_finds_its_dead_letters_there(tmp_path: Path) -> None:
    values = [b'{"type": "a", "x": 1}', b"bad"]
    bucket = MemoryBucket()
    dying = DyingBucket(bucket, at=100)
    first = written(dying, values, tmp_path)
    assert isinstance(first, Written)
    last = dying.calls
    for at in range(1, last + 1):
        bucket = MemoryBucket()
        try:
            written(DyingBucket(bucket, at=at, when="after"), values, tmp_path)
        except Died:
            pass
        again = written(bucket, values, tmp_path)
        assert isinstance(again, Written)
        assert [file.key for file in again.dead] == [file.key for file in first.dead]
        assert len(list(bucket.list("topics/g/events/_dead/"))) == 1

"""Ranges as text and SequenceFiles: what is kept, what is a dead letter, and that nothing else matters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from catchment.config.topics import Export
from catchment.errors import BucketError
from catchment.topics.files import fetch
from catchment.topics.names import FileName
from catchment.topics.records import DEAD, DEAD_BACKED
from catchment.topics.write import range as range_module
from tests.unit.topics.files.committed_range import commit
from tests.unit.topics.write.ranges import (
    LARGE,
    Message,
    event,
    events,
    memory,
    objects,
    refused,
    rows_of,
    write,
    written,
)

TEXT = {"name": "text", "compression": "gzip"}
SEQUENCE = {"name": "sequence", "key": "msgpack", "compression": "block"}
FORMATS: list[dict[str, Any]] = [
    {"name": "text"},
    TEXT,
    {"name": "text", "compression": "zstd"},
    {"name": "sequence"},
    {"name": "sequence", "compression": "record"},
    SEQUENCE,
]


def export(format: dict[str, Any], **values: Any) -> Export:
    return Export.model_validate({"group": "g", "format": format, "dead_letters": {"stop_above": "100%"}, **values})


@pytest.mark.parametrize("format", FORMATS, ids=lambda one: "-".join(one.values()))
@pytest.mark.parametrize("decode", [None, "json"])
def test_batches_and_memory_make_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: dict[str, Any], decode: str | None
) -> None:
    split: dict[str, Any] = {"type": {"field": "type"}} if decode else {}
    wanted = export(format, decode=decode, split=split)
    given = [*events(500), Message(500, None), Message(501, b"{\n}"), event(510)]
    found = []
    for at, (rows, budget, in_memory) in enumerate([(1000, LARGE, LARGE), (7, LARGE, 0), (64, 10_000, 0)]):
        monkeypatch.setattr(range_module, "IN_MEMORY", in_memory)
        bucket = memory()
        written(write(bucket, tmp_path / str(at), wanted, given, rows=rows, budget=budget))
        found.append(objects(bucket))
    assert found[0] == found[1] == found[2]


def test_names_end_as_the_format_says_and_dead_letters_are_parquet(tmp_path: Path) -> None:
    for format, ext in ((TEXT, "txt.gz"), (SEQUENCE, "seq")):
        done = written(write(memory(), tmp_path, export(format), [Message(0, b"a"), Message(1, None)]))
        assert [FileName.parse(one.key.rpartition("/")[2]).ext for one in done.files] == [ext]
        assert [FileName.parse(one.key.rpartition("/")[2]).ext for one in done.dead] == ["parquet"]


def test_a_decoded_export_keeps_messages_as_they_were(tmp_path: Path) -> None:
    odd = b'{ "n": 1.50,"type":"a" ,"n2":[ ] }'
    given = [
        Message(0, odd, b"k0"),
        Message(1, b'{"type": "b"}'),
        Message(2, b'{"type": "a", "n": 9}'),
        Message(3, b"not JSON"),
        Message(4, b'{"type": "a",\n "n": 2}'),
        Message(6, b'{"type": "a", "n": "text"}'),
    ]
    how: dict[str, Any] = {
        "decode": {"name": "json", "schemas": {"a": "n DOUBLE"}},
        "filter": "coalesce(n, 0) < 5",
        "split": {"type": {"field": "type"}},
    }
    found = commit(tmp_path, given, format=SEQUENCE, **how)
    a, b = found.manifest.files
    assert "/type=a/" in a.key and "/type=b/" in b.key
    assert [(row["offset"], row["key"], row["value"]) for row in found.messages(a)] == [
        (0, b"k0", odd),
        (4, b"k", given[4].value),
    ]
    assert found.manifest.counts.filtered == 1
    (dead,) = found.manifest.dead
    assert [row["offset"] for row in rows_of(found.bucket, dead.key)] == [3, 6]
    assert list(rows_of(found.bucket, dead.key)[0]) == DEAD.names
    # The same as text: one more cannot be kept, but a filtered message may hold what it likes.
    given[2] = Message(2, b'{"type": "a",\n "n": 9}')
    text = commit(tmp_path, given, format="text", **how)
    assert [text.bucket.get(one.key) for one in text.manifest.files] == [odd + b"\n", b'{"type": "b"}\n']
    assert text.manifest.counts.filtered == 1
    (dead,) = text.manifest.dead
    assert [row["offset"] for row in rows_of(text.bucket, dead.key)] == [3, 4, 6]


def test_schemas_are_recorded_and_name_the_files_as_for_parquet(tmp_path: Path) -> None:
    given = [event(0, "a", n=1), event(1, "b", m=True)]
    how: dict[str, Any] = {"decode": "json", "split": {"type": {"field": "type"}}}
    found = {name: commit(tmp_path, given, format=name, **how) for name in ("parquet", "text")}
    schemas = {}
    for name, one in found.items():
        keys = [entry.key for entry in one.bucket.list(one.place.schemas())]
        bodies = [json.loads(one.bucket.get(key)) for key in keys]
        schemas[name] = [{key: value for key, value in body.items() if key != "nonce"} for body in bodies]
    assert schemas["text"] == schemas["parquet"]
    names = {file.key.rpartition("_")[2] for one in found.values() for file in one.manifest.files}
    assert len(names) == 4  # by type and by format


def test_dead_letters_of_a_backup_are_whole(tmp_path: Path) -> None:
    given = [Message(0, None, b"k", 77, (("a", b"1"), ("a", b"\xff")), 1)]
    found = commit(tmp_path, given, format="text")
    (dead,) = found.manifest.dead
    (row,) = rows_of(found.bucket, dead.key)
    assert list(row) == DEAD_BACKED.names
    reason = row.pop("reason")
    assert reason.startswith("the message has no value")
    assert row == {
        "offset": 0,
        "timestamp": 77,
        "key": b"k",
        "value": None,
        "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": b"\xff"}],
        "timestamp_type": 1,
    }


def test_too_many_that_a_format_cannot_hold_stop_the_export(tmp_path: Path) -> None:
    bucket = memory()
    wanted = Export.model_validate({"group": "g", "format": "text"})
    why = refused(write(bucket, tmp_path, wanted, [Message(n, b"a\nb") for n in range(20)]))
    assert "the delimiter '\\n' is in the message" in why.reason
    assert objects(bucket) == {}


@pytest.mark.parametrize("format", [TEXT, SEQUENCE], ids=["text", "sequence"])
@pytest.mark.parametrize("other", [b"a", b"a longer one that is packed otherwise"])
def test_what_is_there_already_must_have_as_many_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: dict[str, Any], other: bytes
) -> None:
    monkeypatch.setattr(fetch, "IN_MEMORY", 10)
    given = [Message(n, b"%d" % n * 9) for n in range(3)]
    bucket, strange = memory(), memory()
    (file,) = written(write(bucket, tmp_path / "a", export(format), given)).files
    (same,) = written(write(strange, tmp_path / "b", export(format), [Message(n, other) for n in range(3)])).files
    (fewer,) = written(write(memory(), tmp_path / "c", export(format), given[:2], last=2)).files
    assert file.key == same.key == fewer.key
    bucket.put(file.key, strange.get(same.key))
    (kept,) = written(write(bucket, tmp_path / "d", export(format), given)).files
    assert kept.etag == bucket.head(file.key).etag  # as many rows: another release may have put it
    with pytest.raises(BucketError, match="is there with 3 rows, and this attempt at the same range has 2"):
        write(bucket, tmp_path / "e", export(format), given[:2], last=2)
    bucket.put(file.key, b"something else")
    with pytest.raises(BucketError, match="is there and cannot be read"):
        write(bucket, tmp_path / "f", export(format), given)


PROGRAM = """
import json, sys, tempfile
from pathlib import Path
import numpy as np
import pyarrow as pa
from catchment.bucket.local import LocalBucket
from catchment.config.topics import Export
from catchment.topics.definition import fingerprint
from catchment.topics.files.read import rows
from catchment.topics.names import Source
from catchment.topics.records import BACKED, HEADERS
from catchment.topics.work import Work, Written
from catchment.topics.write.range import write_range
from tests.unit.topics.write.peak import peak

ROWS, BATCH, SIZE = 300_000, 20_000, 1000
export = Export.model_validate({"group": "g", "format": json.loads(sys.argv[1])})

def batches():
    some = np.random.default_rng(1)
    for first in range(0, ROWS, BATCH):
        data = some.integers(32, 127, BATCH * SIZE, np.uint8)
        edges = np.arange(0, BATCH * SIZE + 1, SIZE, dtype=np.int32)
        values = pa.Array.from_buffers(pa.binary(), BATCH, [None, pa.py_buffer(edges), pa.py_buffer(data)])
        offsets = pa.array(range(first, first + BATCH), pa.int64())
        headers, kinds = pa.array([[]] * BATCH, HEADERS), pa.array([0] * BATCH, pa.int32())
        columns = [offsets, offsets, pa.nulls(BATCH, pa.binary()), values, headers, kinds]
        yield pa.RecordBatch.from_arrays(columns, schema=BACKED)

with tempfile.TemporaryDirectory() as folder:
    scratch, lake = Path(folder) / "scratch", Path(folder) / "lake"
    scratch.mkdir()
    lake.mkdir()
    bucket = LocalBucket(lake, durable=False)
    work = Work(export, "events", Source(0), 0, ROWS - 1, fingerprint(export))
    done = write_range(work, batches(), bucket, scratch, 64_000_000)
    assert isinstance(done, Written), done
    count = sum(table.num_rows for table in rows(bucket, done.files[0], export.format, scratch))
    print(count, peak())
"""


@pytest.mark.parametrize(
    "format",
    [
        {"name": "text", "compression": "zstd"},
        pytest.param({"name": "sequence"}, marks=pytest.mark.soak),
        {"name": "sequence", "compression": "block", "codec": "zstd"},
    ],
    ids=lambda one: "-".join(one.values()),
)
def test_memory_is_bounded_by_pieces(format: dict[str, str]) -> None:
    """A file of 300 MB takes what its pieces take: the rows that are kept before they spill, and a few pieces."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(format)], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    rows, most = map(int, done.stdout.split())
    print(f"{rows} rows, {most / 1e6:.0f} MB at the most")
    assert rows == 300_000
    assert most < 400_000_000

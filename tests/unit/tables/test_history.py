"""The log of a Delta table, read without Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest

from catchment.bucket.memory import MemoryBucket
from catchment.errors import BucketError
from catchment.tables.history import Commit, Note, commit, history
from catchment.tables.names import Table

ORDERS = Table("sales", "orders")
LOG = f"{ORDERS.warehouse}/_delta_log/"


def put(bucket: MemoryBucket, version: int, *actions: dict[str, Any]) -> None:
    body = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    bucket.put(f"{LOG}{version:020}.json", body.encode())


def info(operation: str, note: Note | None = None, **metrics: Any) -> dict[str, Any]:
    said = {
        "timestamp": 1_700_000_002_500,
        "operation": operation,
        "operationMetrics": {k: str(v) for k, v in metrics.items()},
    }
    return {"commitInfo": said | ({"userMetadata": note.text()} if note else {})}


def test_newest_first_with_what_each_commit_says() -> None:
    bucket = MemoryBucket()
    put(bucket, 9, info("CREATE TABLE"))
    note = Note("day=1", "p", "try", 1_700_000_000_000)
    put(bucket, 10, info("WRITE", note, numOutputRows=5), {"add": {"path": "x"}}, {"txn": {"appId": "a", "version": 1}})
    for other in (f"{10:020}.crc", f"{10:020}.checkpoint.parquet", "_last_checkpoint", f"{8:020}.tmp.json"):
        bucket.put(LOG + other, b"")
    newest, oldest = history(bucket, ORDERS)
    assert (newest.version, newest.note, newest.rows, newest.seconds) == (10, note, 5, 2.5)
    assert newest.transactions == {"a": 1}
    assert (oldest.version, oldest.operation, oldest.note, oldest.rows) == (9, "CREATE TABLE", None, None)
    assert commit(bucket, ORDERS, 11) is None
    assert list(history(bucket, Table("no", "table"))) == []


@pytest.mark.parametrize(
    ("metrics", "rows"),
    [
        ({"numTargetRowsInserted": 1, "numTargetRowsUpdated": 2, "numTargetRowsDeleted": 3, "numOutputRows": 99}, 6),
        ({"numUpdatedRows": 4, "numCopiedRows": 50}, 4),
        ({"numDeletedRows": 5, "numCopiedRows": 50}, 5),
        ({"numOutputRows": 7, "numCopiedRows": 4, "numDeletedRows": 1}, 3),
        ({}, None),
    ],
)
def test_rows_are_those_that_changed_and_not_those_that_moved(metrics: dict[str, Any], rows: int | None) -> None:
    bucket = MemoryBucket()
    put(bucket, 0, info("ANY", **metrics))
    found = commit(bucket, ORDERS, 0)
    assert found is not None and found.rows == rows


def test_which_commits_count() -> None:
    bucket = MemoryBucket()

    def counts(note: Note | None, **metrics: int) -> bool:
        put(bucket, 0, info("ANY", note, **metrics))
        found = commit(bucket, ORDERS, 0)
        assert isinstance(found, Commit)
        return found.counts

    note = Note("1", "p")
    assert counts(note, numOutputRows=1)
    assert not counts(note, numOutputRows=0)
    assert counts(note, numOutputRows=0, numRemovedFiles=2)  # everything was overwritten by nothing
    assert counts(Note("1", "p", zero=True), numOutputRows=0)
    assert not counts(Note("1", "p", why="void", zero=True))
    assert not counts(Note("1", "p", why="skipped"))


@pytest.mark.parametrize("text", [None, "", "free text", "[1]", '{"batch": 1, "other": 2}'])
def test_what_is_no_note_of_ours_is_none(text: object) -> None:
    assert Note.parse(text) is None


def test_a_damaged_log_is_named() -> None:
    bucket = MemoryBucket()
    bucket.put(f"{LOG}{0:020}.json", b'{"commitInfo":')
    with pytest.raises(BucketError, match=r"0\.json cannot be understood"):
        commit(bucket, ORDERS, 0)

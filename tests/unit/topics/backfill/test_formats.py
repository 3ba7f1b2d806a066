"""Backups of every format, and exports of every format written from them."""

from __future__ import annotations

from typing import Any

import pytest

from catchment.topics.backfill.run import Outcome
from catchment.topics.names import Place
from catchment.topics.verify import verify
from tests.unit.topics.backfill.test_backfill import RIGHT, WRONG, made, message
from tests.unit.topics.lake_of_files import TOPIC, Files

FORMATS: list[Any] = [
    "parquet",
    "text",
    {"name": "text", "compression": "zstd", "delimiter": "\n\n"},
    "sequence",
    {"name": "sequence", "key": "msgpack", "compression": "block", "codec": "zstd"},
    {"name": "sequence", "compression": "record"},
]


def lake_of(backup: Any, wrong: dict[str, Any]) -> Files:
    """With a hole, and with a message that text cannot keep: it is among the backup's dead letters."""
    lake = Files()
    lake.kafka.create(TOPIC)
    lake.kafka.append(TOPIC, 0, *(message(n) for n in range(8)), None)
    spaced = message(9).value.replace(b'"kind": ', b'"kind":\n\n ')
    lake.kafka.append(TOPIC, 0, spaced, *(message(n) for n in range(10, 25)))
    lake.export(made({"group": "backup", "format": backup, "policy": {"max_messages": 7}}))
    lake.export(made(wrong))
    return lake


@pytest.mark.parametrize("backup", FORMATS, ids=str)
def test_any_backup_will_do(backup: Any) -> None:
    lake = lake_of(backup, WRONG)
    before = {row["_offset"]: row["n"] for row in lake.rows("events")}
    done = lake.backfill(made(RIGHT))
    assert not done.problems
    assert {one.outcome for one in done.ranges} == {Outcome.SWAPPED}
    rows = lake.rows("events")
    assert {row["_offset"]: row["n"] for row in rows} == before
    assert all(row["folder"].startswith(f"type={row['kind']}/") for row in rows)
    kept = backup == "parquet"
    assert all((row["_timestamp"] is not None) == kept or row["_offset"] == 9 for row in rows)
    assert not verify(lake.bucket, Place("events", TOPIC)).problems


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_any_format_may_be_written_anew(format: Any) -> None:
    new = {**RIGHT, "format": format, "dead_letters": {"stop_above": "50%"}}
    lake, other = lake_of("parquet", WRONG), lake_of("parquet", WRONG)
    assert not lake.backfill(made(new)).problems
    assert not other.backfill(made(new), source=None).problems
    assert lake.rows("events") == other.rows("events")
    assert len(lake.rows("events")) + dead(lake) == 24
    assert not verify(lake.bucket, Place("events", TOPIC)).problems


def dead(lake: Files) -> int:
    found = verify(lake.bucket, Place("events", TOPIC))
    return found.dead

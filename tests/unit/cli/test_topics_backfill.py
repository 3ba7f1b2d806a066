"""`catchment topics backfill` as a person and as a program meet it, as far as neither Spark nor a broker is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catchment.bucket.local import LocalBucket
from catchment.cli.app import run
from catchment.config.topics import Export
from tests.unit.topics.backfill.test_backfill import WRONG, message
from tests.unit.topics.lake_of_files import TOPIC, Files

CONFIG = """
object_storage: [{id: main, path: ./lake}]
topics:
  - match: events
    brokers: 127.0.0.1:1
    exports:
      - {group: backup}
      - {group: sparse, format: sequence}
      - group: events
        generation: GENERATION
        decode: json
        split: {type: {field: FIELD}, day: {field: ts, unit: ms, by: day}}
"""
EVENTS = ("backfill", "--group", "events", "--topic", TOPIC)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """25 messages, exported by an earlier definition and to a backup."""
    monkeypatch.chdir(tmp_path)
    configure(tmp_path, 2, "kind")
    files = Files(bucket=LocalBucket(tmp_path / "lake", create_below=tmp_path))
    files.kafka.create(TOPIC)
    files.kafka.append(TOPIC, 0, *(message(n) for n in range(25)))
    files.export(Export.model_validate({"group": "backup"}))
    files.export(Export.model_validate({**WRONG, "finalize": None, "policy": {"max_messages": 10}}))
    return files


def configure(folder: Path, generation: int, field: str) -> None:
    text = CONFIG.replace("GENERATION", str(generation)).replace("FIELD", field)
    (folder / "catchment.yaml").write_text(text)


def test_a_dry_run_names_files_and_rows(lake: Files, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", *EVENTS, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "Kafka partition 0 [0, 9]: planned, 10 rows, 0 dead" in out
    assert "in place of topics/events/events/type=x/day=2026-11-10/1_0_" in out
    assert "from topics/backup/events/1_0_" in out and "(25 messages)" in out
    assert "events/events: 3 ranges planned" in out
    assert run(["topics", *EVENTS, "--dry-run", "--json", "--last-offset", "5"]) == 0
    told = json.loads(capsys.readouterr().out)
    [one] = told["ranges"]
    assert one["outcome"] == "planned"
    assert [file["rows"] for file in one["todo"]["before"]["files"]] == [10]
    assert one["todo"]["reads"] == [{"what": one["todo"]["reads"][0]["what"], "rows": 25}]


def test_a_definition_without_a_new_generation_is_refused(
    lake: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(tmp_path, 1, "kind")
    assert run(["topics", *EVENTS, "--dry-run"]) == 1
    assert "set generation: 2" in capsys.readouterr().err


def test_a_range_that_cannot_be_read_is_exit_status_1(lake: Files, capsys: pytest.CaptureFixture[str]) -> None:
    for entry in list(lake.bucket.list("topics/backup/events/_commits/")):
        lake.bucket.delete(entry.key)
    assert run(["topics", *EVENTS, "--dry-run"]) == 1
    assert "backup/events does not have the offsets from 0 to 9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*EVENTS, "--from", "backup", "--from-kafka"), "do not go together"),
        ((*EVENTS, "--from", "nowhere"), "there is no export nowhere/events"),
        ((*EVENTS, "--from", "events"), "is no backup"),
        (("backfill", "--group", "sparse", "--topic", TOPIC), "was never exported"),
        (("backfill", "--group", "other", "--topic", TOPIC), "no export has the group 'other'"),
        ((*EVENTS, "--by-key"), "go with --to-topic"),
        ((*EVENTS, "--to-topic", "x", "--replace"), "--replace does not go with --to-topic"),
        ((*EVENTS, "--to-topic", "x", "--from", "backup"), "--from does not go with --to-topic"),
    ],
)
def test_wrong_usage_is_exit_status_2_with_a_next_step(
    lake: Files, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert run(["topics", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_several_backups_have_to_be_told_apart(lake: Files, capsys: pytest.CaptureFixture[str]) -> None:
    lake.export(Export.model_validate({"group": "sparse", "format": "sequence"}))
    assert run(["topics", *EVENTS, "--dry-run"]) == 2
    assert "has several backups: backup, sparse" in capsys.readouterr().err
    assert run(["topics", *EVENTS, "--dry-run", "--from", "sparse"]) == 0
    assert "from topics/sparse/events/1_0_" in capsys.readouterr().out


def test_a_backup_that_lacks_what_the_export_is_split_by_is_refused(
    lake: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.export(Export.model_validate({"group": "sparse", "format": "sequence"}))
    text = (
        (tmp_path / "catchment.yaml")
        .read_text()
        .replace("{field: ts, unit: ms, by: day}", "{timestamp: true, by: day}")
    )
    (tmp_path / "catchment.yaml").write_text(text)
    assert run(["topics", *EVENTS, "--dry-run", "--from", "sparse"]) == 2
    assert "does not keep what events is made of (timestamp of messages)" in capsys.readouterr().err
    assert run(["topics", *EVENTS, "--dry-run", "--from", "backup"]) == 0


def test_a_dry_run_writes_nothing_at_all(lake: Files, tmp_path: Path) -> None:
    def there() -> dict[Path, int]:
        root = tmp_path / "lake"
        return {path: path.stat().st_mtime_ns for path in (root, *root.rglob("*"))}

    before = there()
    assert run(["topics", *EVENTS, "--dry-run"]) == 0
    assert there() == before

"""`catchment topics …` as a person and as a program meet it, as far as neither Spark nor a broker is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catchment.bucket.local import LocalBucket
from catchment.cli.app import run
from catchment.cli.main import TOPICS
from catchment.cli.topics import _line
from catchment.testing.topics import FakeKafka
from catchment.topics.names import FileName, Place, Source
from catchment.topics.service import Progress
from tests.unit.topics.lakes import exporter, messages
from tests.unit.topics.lakes import run as exported

CONFIG = """
object_storage: [{id: main, path: ./lake}]
topics:
  - match: events
    brokers: 127.0.0.1:1
    exports: [{group: g}]
"""
PLACE = Place("g", "events")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "catchment.yaml").write_text(CONFIG)
    return tmp_path


@pytest.fixture
def bucket(folder: Path) -> LocalBucket:
    """A lake with one export of one topic."""
    found = LocalBucket(folder / "lake", create_below=folder)
    kafka = FakeKafka()
    kafka.create("events")
    kafka.append("events", 0, *messages(5))
    exported(exporter(found, kafka))
    return found


@pytest.mark.parametrize("name", TOPICS)
def test_every_command_has_help_that_names_its_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", name, "--help"]) == 0
    out = capsys.readouterr().out
    assert all(option in out for option in ("--config", "--workspace", "--json", "--group", "--topic"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("export", "--once", "--until-caught-up"), "do not go together"),
        (("skip", "--group", "g", "--topic", "events", "--recreated", "--to", "5"), "about the whole topic"),
        (("skip", "--topic", "events"), "--group"),
        (("status", "--group", "other"), "no export has the group 'other'"),
        (("status", "--topic", "other"), "no export takes the topic 'other'"),
        (("verify", "--start-time", "yesterday"), "is not a time"),
        (("repair", "--group", "other"), "the lake has no such export"),
    ],
)
def test_wrong_usage_is_exit_status_2_with_a_next_step(
    bucket: LocalBucket, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert run(["topics", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_without_topics_there_is_nothing_to_export(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "catchment.yaml").write_text("object_storage: [{id: main, path: ./lake}]\n")
    assert run(["topics", "export", "--once"]) == 2
    assert "add some under 'topics:'" in capsys.readouterr().err


def test_repair_says_what_it_did_and_what_it_would_do(bucket: LocalBucket, capsys: pytest.CaptureFixture[str]) -> None:
    left = PLACE.file("type=a", FileName(1, Source(0), 0, 3, "0123456789ab", "parquet"))
    bucket.put(left, b"left by an attempt with another cut")
    bucket.put(PLACE.hint(Source(0)), b"not json")
    assert run(["topics", "repair", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert f"{left}: would be removed" in out
    assert "g/events: 1 hint would be rebuilt, 1 file would be removed (35 bytes), 0 unlisted files kept" in out
    assert run(["topics", "repair", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)["g/events"]
    assert (done["removed"], done["hints"][0]["after"], done["dry_run"]) == ([left], 5, False)
    assert run(["topics", "repair"]) == 0
    assert "g/events: 0 hints rebuilt, 0 files removed (0 bytes)" in capsys.readouterr().out


def test_a_lake_without_exports_has_nothing_to_repair(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "repair"]) == 0
    assert "The lake has no exports." in capsys.readouterr().err


def test_a_run_is_summed_up_in_one_line() -> None:
    done = Progress("g", "events", ranges=2, messages=1500, rows=1498, dead=1, filtered=1, files=1, bytes=10)
    done.closed.append("day=2026-11-15")
    assert _line(done) == (
        "g (events): 2 ranges, 1,500 messages, 1,498 rows in 1 file, 10 bytes, 1 dead letter, 1 filtered out,"
        " 1 folder closed"
    )

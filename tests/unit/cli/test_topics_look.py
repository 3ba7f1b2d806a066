"""`catchment topics locate` and `show`, as a person and as a program meet them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from catchment.bucket.local import LocalBucket
from catchment.cli.app import run
from catchment.cli.topics_look import _json, _shown
from catchment.topics.names import Place, Source
from tests.unit.topics.backups import Backup, Message
from tests.unit.topics.write.ranges import BEGIN

CONFIG = "object_storage: [{id: main, path: ./lake}]\n"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A backup and a decoded export of one topic."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "catchment.yaml").write_text(CONFIG)
    bucket = LocalBucket(tmp_path / "lake", create_below=tmp_path)
    made = [
        Message(n, json.dumps({"type": "ab"[n % 2], "n": n}).encode(), b"k%d" % n, BEGIN, (("h", b"\xff\x00"),))
        for n in range(20)
    ]
    made[7] = Message(7, b"\x1b[2Jnot json", None, BEGIN)
    decoded: dict[str, Any] = {
        "decode": "json",
        "split": {"type": {"field": "type"}},
        "dead_letters": {"stop_above": "100%"},
    }
    for values in ({}, {"group": "events", **decoded}):
        Backup(bucket, values=values).begin().commit(0, 19, made, Source(2))
    return tmp_path


AT = ("--topic", "clicks", "--kafka-partition", "2", "--offset")


def test_locate_names_the_file_in_every_group(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "locate", *AT, "4"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "backup/clicks Kafka partition 2 offset 4 in [0, 19], generation 1"
    assert out[1].startswith("  topics/backup/clicks/1_2_00000000000000000000-00000000000000000019_")
    assert "(20 rows from 0 to 19, " in out[1]
    assert out[2] == "events/clicks Kafka partition 2 offset 4 in [0, 19], generation 1: in one of these files"
    assert [line.split("/")[3] for line in out[3:]] == ["type=a", "type=b"]


def test_locate_as_json(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "locate", *AT, "7", "--group", "events", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    (file,) = found.pop("files")
    assert "/_dead/" in file["key"]
    assert (file["dead"], file["first"], file["last"], file["rows"]) == (True, 7, 7, 1)
    assert found == {
        "group": "events",
        "topic": "clicks",
        "kafka_partition": 2,
        "life": 0,
        "offset": 7,
        "state": "written",
        "why": "a dead letter",
        "certain": True,
        "manifest": Place("events", "clicks").commit(Source(2), 0),
        "first": 0,
        "last": 19,
        "generation": 1,
        "next": None,
    }


def test_what_no_group_has_is_exit_status_1(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "locate", *AT, "20"]) == 1
    assert "backup/clicks Kafka partition 2 offset 20: awaited not committed yet" in capsys.readouterr().out
    assert run(["topics", "show", *AT, "20"]) == 1
    assert "events/clicks Kafka partition 2: not committed yet; the export goes on at offset 20" in (
        capsys.readouterr().err
    )


def test_show_an_offset_in_every_group(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "show", *AT, "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("topics/backup/clicks/1_2_")
    shown = [line.split(maxsplit=1) for line in lines[2:]]
    assert lines[2] == "offset 4"
    assert ["value", '{"type": "a", "n": 4}'] in shown
    assert ["key", "k4"] in shown
    assert ["timestamp", "2024-10-04T00:00:00Z"] in shown
    assert ["header", "h: 0xff00 (2 bytes)"] in shown
    assert ["n", "4"] in shown  # of the decoded one
    assert lines.count("offset 4") == 2


def test_show_hides_what_would_move_the_cursor(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "show", *AT, "7"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "0x1b5b324a6e6f74206a736f6e (12 bytes)" in out
    assert "reason" in out


def test_show_as_json_keeps_every_byte(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "show", *AT, "7", "--group", "backup", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["messages"] == [
        {
            "offset": 7,
            "timestamp": "2024-10-04T00:00:00Z",
            "timestamp_type": "CreateTime",
            "key": None,
            "value": "\x1b[2Jnot json",
            "headers": [],
        }
    ]
    assert run(["topics", "show", *AT, "4", "--group", "backup", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["messages"][0]["headers"] == [["h", {"base64": "/wA="}]]


def test_show_a_file_by_its_key(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (key,) = [str(one.relative_to(lake / "lake")) for one in (lake / "lake/topics/backup/clicks").glob("1_*")]
    assert run(["topics", "show", key, "--limit", "3"]) == 0
    shown = capsys.readouterr()
    assert [line for line in shown.out.splitlines() if line.startswith("offset")] == [
        "offset 0",
        "offset 1",
        "offset 2",
    ]
    assert "There are more" in shown.err
    assert run(["topics", "show", key, "--first-offset", "18", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert ([one["offset"] for one in found["messages"]], found["more"], found["key"]) == ([18, 19], False, key)
    assert run(["topics", "show", key, "--first-offset", "90"]) == 1
    assert "It holds no such message." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("locate", "--topic", "clicks", "--offset", "4"), 2, "give all three"),
        (
            ("locate", "--topic", "views", "--kafka-partition", "0", "--offset", "4"),
            2,
            "no export of the topic 'views'",
        ),
        (("locate", *AT, "4", "--group", "other"), 2, "no export of the topic 'clicks' in other"),
        (("show",), 2, "give all three"),
        (("show", "topics/backup/clicks/x", *AT, "4"), 2, "a KEY says it all"),
        (("show", *AT, "4", "--first-offset", "3"), 2, "use --offset"),
        (("show", "feeds/x"), 2, "is not the key of an export's file"),
        (("show", "topics/g/t/1_0_00000000000000000000-00000000000000000019_0123456789ab.parquet"), 1, "there is no"),
    ],
)
def test_errors_say_what_to_do(
    lake: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], status: int, said: str
) -> None:
    assert run(["topics", *arguments]) == status
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "people", "programs"),
    [
        (None, "(null)", None),
        (b"", "(empty)", ""),
        (b"two\nlines", "two\nlines", "two\nlines"),
        ("ä".encode(), "ä", "ä"),
        (b"\xff" * 100, f"0x{'ff' * 32}… (100 bytes)", {"base64": "/" * 133 + "w=="}),
        ("\u202eright to left".encode(), "0xe280ae" + b"right to left".hex() + " (16 bytes)", "\u202eright to left"),
        (b"x" * 3000, "x" * 2000 + "… (3,000 bytes)", "x" * 3000),
        ({"a": [1, b"\xff"]}, '{"a": [1, {"base64": "/w=="}]}', {"a": [1, {"base64": "/w=="}]}),
        ("a\x07b", "a\\x07b", "a\x07b"),
        (float("nan"), "nan", "nan"),
        (Decimal("1.50"), "1.50", "1.50"),
        (True, "True", True),
        (datetime(2026, 11, 15, 8, tzinfo=UTC), "2026-11-15T08:00:00Z", "2026-11-15T08:00:00Z"),
        (date(2026, 11, 15), "2026-11-15", "2026-11-15"),
    ],
)
def test_values_for_people_and_for_programs(value: object, people: str, programs: object) -> None:
    assert _shown(value) == people
    assert _json(value) == programs

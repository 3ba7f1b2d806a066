"""`catchment tables …` as a person and as a program meet it, as far as no Spark is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catchment.bucket.local import LocalBucket
from catchment.cli.app import run
from catchment.cli.main import TABLES
from tests.unit.tables.lines import ORDERED, TABLE, Line

CONFIG = """
object_storage: [{id: main, path: ./lake}]
tables: {order_per_table: true}
"""


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Line:
    """Three batches; the second one cannot be applied."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "catchment.yaml").write_text(CONFIG)
    bucket = LocalBucket(tmp_path / "lake", create_below=tmp_path)
    found = Line(dict(ORDERED), bucket=bucket, fail=frozenset({"d/9"}))
    for path in ("d/10", "d/8", "d/9"):
        found.land(path)
    found.apply("gone")
    return found


@pytest.mark.parametrize("name", TABLES)
def test_every_command_has_help_that_names_its_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tables", name, "--help"]) == 0
    out = capsys.readouterr().out
    assert all(option in out for option in ("--config", "--workspace", "--json"))


def test_status_says_why_the_line_stands(line: Line, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tables", "status"]) == 1
    out, err = capsys.readouterr()
    assert "stands" in out and "sales/orders" in out and "d/9" in out
    assert "sales/orders/d/9 is bad; mend it; then: catchment tables retry sales/orders" in err
    assert "suspicious order: d/10 before d/8" in err
    assert run(["tables", "status", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["well"] is False
    [one] = told["tables"]
    assert (one["state"], one["batch"], one["backlog"], one["last"]) == ("failed", "d/9", 1, "d/8")


def test_retry_frees_the_lock_and_keeps_the_pointer(line: Line, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tables", "retry", "sales/orders"]) == 0
    assert capsys.readouterr().out == "sales/orders/d/9 is tried again\n"
    assert line.backlog() == ["d/9"]
    line.fail = frozenset()
    line.apply()
    assert line.applied() == ["d/10", "d/8", "d/9"]
    assert run(["tables", "retry", "sales/orders"]) == 2
    assert "nothing of sales/orders has failed" in capsys.readouterr().err


def test_resume_after_the_lock_was_removed(line: Line, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tables", "resume", "sales/orders"]) == 2
    assert "stands at sales/orders/d/9" in capsys.readouterr().err
    line.bucket.delete(TABLE.lock)
    line.bucket.delete(TABLE.pointer("d/9"))
    assert run(["tables", "resume", "sales/orders"]) == 0
    assert capsys.readouterr().out == "sales/orders goes on\n"
    line.land("e")
    line.apply()
    assert line.applied() == ["d/10", "d/8", "e"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("retry", "orders"), "is not the name of a table"),
        (("retry", "sales/other"), "the lake has no table sales/other"),
        (("retry", "sales/orders", "--batch", "nowhere"), "has no closed batch 'nowhere'"),
        (("status", "--table", "x"), "is not the name of a table"),
    ],
)
def test_wrong_usage_is_exit_status_2_with_a_next_step(
    line: Line, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert run(["tables", *arguments]) == 2
    assert said in capsys.readouterr().err

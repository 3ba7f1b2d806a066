"""Folders of tasks on their machine's disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from catchment.topics.write.scratch import scratch_folder


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    return tmp_path


def test_it_lies_where_spark_has_its_own_and_goes_with_its_block(place: Path) -> None:
    with scratch_folder() as one, scratch_folder() as other:
        assert one != other and {one.parent, other.parent} == {place}
        (one / "file").write_text("x")
    assert list(place.iterdir()) == []


def test_it_goes_when_the_block_fails(place: Path) -> None:
    with pytest.raises(OSError, match="full"), scratch_folder() as folder:
        (folder / "file").write_text("x")
        raise OSError("full")
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_what_a_running_one_has_is_not(place: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = place / f"catchment-range-{ended.pid}-abc"
    (left / "deep").mkdir(parents=True)
    runs = place / f"catchment-range-{os.getppid()}-abc"
    runs.mkdir()
    other = place / "catchment-range-of-somebody"
    other.mkdir()
    with scratch_folder():
        assert not left.exists() and runs.exists() and other.exists()


def test_outside_of_spark_it_is_a_temporary_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    with scratch_folder() as folder:
        assert folder.is_dir() and folder.parent != place
    assert not folder.exists()

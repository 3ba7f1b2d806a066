"""From a configuration to wired objects."""

from __future__ import annotations

from pathlib import Path

import pytest

import catchment
from catchment.bucket.open import open_bucket
from catchment.config import Storage
from catchment.errors import BucketMissing, ConfigError, UsageError

TWO = """
object_storage:
  - {id: near, path: ./near, state: true}
  - {id: far, path: ./far, prefix: some/prefix, versions: 0}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "catchment.yaml").write_text(TWO)
    return tmp_path


def test_two_object_storages_in_one_config(folder: Path) -> None:
    with catchment.open() as lake:
        lake.storage("near").put("k", b"1")
        lake.storage("far").put("k", b"2")
        assert lake.bucket is lake.storage("near")
        assert lake.storage("far").get("k") == b"2"
        assert lake.storage("far").counts.sent == 1
    assert (folder / "near" / "k").read_bytes() == b"1"
    assert (folder / "far" / "some" / "prefix" / "k").read_bytes() == b"2"


def test_opening_creates_nothing(folder: Path) -> None:
    catchment.open("catchment.yaml").close()
    assert [path.name for path in folder.iterdir()] == ["catchment.yaml"]


def test_a_storage_that_is_not_declared_names_those_that_are(folder: Path) -> None:
    del folder
    with catchment.open() as lake, pytest.raises(UsageError) as caught:
        lake.storage("other")
    assert "other" in str(caught.value)
    assert "near, far" in caught.value.hint


def test_the_monitor_lives_in_the_workspace(folder: Path) -> None:
    with catchment.open(workspace="elsewhere") as lake:
        lake.monitor.record("feeds/a", "download", "ok", duration=0.1)
    assert (folder / "elsewhere" / "logs" / "monitor.sqlite").exists()
    with catchment.open(workspace="elsewhere") as lake:
        assert lake.monitor.store is not None
        totals = lake.monitor.store.totals_of("feeds/a", "download")
        assert totals is not None
        assert totals.count == 1


def test_a_wrong_config_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("feds: []")
    with pytest.raises(ConfigError, match="feds"):
        catchment.open(str(tmp_path / "c.yaml"))


def test_a_local_storage_whose_parent_is_missing_is_not_made_up(tmp_path: Path) -> None:
    storage = Storage.model_validate({"id": "x", "path": str(tmp_path / "not" / "mounted")})
    with pytest.raises(BucketMissing):
        list(open_bucket(storage).list())
    assert list(tmp_path.iterdir()) == []

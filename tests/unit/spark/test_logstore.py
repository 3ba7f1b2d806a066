from __future__ import annotations

from pathlib import Path

import pytest

from catchment.errors import SetupError
from catchment.spark import logstore
from catchment.spark.settings import settings


def test_delta_is_told_of_them_for_local_directories_and_s3_alone() -> None:
    found = settings("local[1]", {}, (), (), memory=1 << 30)
    told = {name: value for name, value in found.items() if "logStore" in name}
    assert told == {
        "spark.delta.logStore.file.impl": "catchment.delta.LinkLogStore",
        "spark.delta.logStore.s3a.impl": "catchment.delta.PutIfAbsentLogStore",
        "spark.delta.logStore.s3.impl": "catchment.delta.PutIfAbsentLogStore",
    }


def test_a_users_own_choice_wins() -> None:
    found = settings("local[1]", {"spark.delta.logStore.s3a.impl": "mine.Store"}, (), (), memory=1 << 30)
    assert found["spark.delta.logStore.s3a.impl"] == "mine.Store"
    assert found["spark.delta.logStore.file.impl"] == "catchment.delta.LinkLogStore"


def test_one_class_for_all_of_the_users_leaves_none_of_ours() -> None:
    found = settings("local[1]", {"spark.delta.logStore.class": "mine.Store"}, (), (), memory=1 << 30)
    assert [name for name in found if "logStore" in name] == ["spark.delta.logStore.class"]


def test_a_jar_that_was_not_built_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logstore, "JAR", tmp_path / "logstore.jar")
    with pytest.raises(SetupError, match="two drivers") as caught:
        logstore.jar()
    assert "make setup" in caught.value.hint

"""Files of which only the content counts: read once, and taken along to where they are not."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from catchment.config.decode import Decode
from catchment.config.file import MOST, LocalFile
from catchment.config.topics import Export
from catchment.errors import UsageError
from catchment.topics.definition import definition, fingerprint

SCHEMA = '{"type": "record", "name": "R", "fields": []}'


def export(path: Path) -> Export:
    return Export.model_validate({"group": "g", "decode": {"name": "avro", "schema_file": str(path)}})


def test_the_content_goes_along_when_the_file_does_not(tmp_path: Path) -> None:
    path = tmp_path / "r.avsc"
    path.write_text(SCHEMA)
    sent = pickle.dumps(export(path))
    path.unlink()
    there: Export = pickle.loads(sent)
    assert there.decode is not None and there.decode.schema_file is not None
    assert there.decode.schema_file.read_text() == SCHEMA
    assert there == export(path)


def test_what_was_read_stays_whatever_becomes_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "r.avsc"
    path.write_text(SCHEMA)
    before = export(path)
    first = fingerprint(before)
    path.write_text(SCHEMA + " ")
    assert fingerprint(before) == first
    assert fingerprint(export(path)) != first


def test_the_definition_has_the_content_and_not_the_place(tmp_path: Path) -> None:
    here, there = tmp_path / "a.avsc", tmp_path / "b.avsc"
    here.write_text(SCHEMA)
    there.write_text(SCHEMA)
    assert definition(export(here)) == definition(export(there))
    assert str(tmp_path) not in str(definition(export(here)))
    assert export(here).model_dump(mode="json")["decode"]["schema_file"] == str(here)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.avsc cannot be read \(No such file or directory\)"):
        fingerprint(export(tmp_path / "none.avsc"))
    with pytest.raises(UsageError, match="cannot be read"):
        LocalFile(tmp_path).read_bytes()
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(UsageError, match="is not text"):
        LocalFile(tmp_path / "binary").read_text()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MOST + 1)
    with pytest.raises(UsageError, match="is it the right file"):
        LocalFile(tmp_path / "large").read_bytes()


def test_a_path_is_checked_as_any_other(tmp_path: Path) -> None:
    given = {"name": "avro", "schema_file": "r.avsc"}
    found = Decode.model_validate(given, context={"base": tmp_path})
    assert found.schema_file == LocalFile(tmp_path / "r.avsc")
    assert repr(found.schema_file) == f"LocalFile('{tmp_path}/r.avsc')"
    with pytest.raises(ValueError, match="is a URL"):
        Decode.model_validate({"name": "avro", "schema_file": "s3://b/r.avsc"})

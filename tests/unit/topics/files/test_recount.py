"""Ranges of text and SequenceFiles, counted again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catchment.topics import identity
from catchment.topics.recount import Kind, Recount, recount
from catchment.topics.verify import verify
from tests.unit.topics.files.committed_range import Committed, commit
from tests.unit.topics.write.ranges import Message, event

FORMATS: dict[str, dict[str, Any]] = {
    "text": {"name": "text", "compression": "zstd", "delimiter": "||"},
    "sequence": {"name": "sequence", "compression": "record"},
    "msgpack": {"name": "sequence", "key": "msgpack", "compression": "block", "codec": "zstd"},
}
GIVEN = [Message(n, None if n == 7 else b"%d" % n, b"ab"[n % 2 : n % 2 + 1]) for n in range(12) if n not in (3, 4)]


def counted(found: Committed) -> Recount:
    return recount(found.bucket, found.place, found.manifest, found.export.split, found.export.format)


def kinds(found: Recount) -> set[Kind]:
    return {one.kind for one in found.findings if not one.note}


def replaced(tmp_path: Path, found: Committed, given: list[Message], **values: Any) -> None:
    """Another file in the place of the first one, made of these messages."""
    other = commit(tmp_path / "other", given, last=found.manifest.last, format=found.export.format, **values)
    found.bucket.put(found.manifest.files[0].key, other.bucket.get(other.manifest.files[0].key))


@pytest.mark.parametrize("name", FORMATS)
def test_a_range_that_was_written_well(tmp_path: Path, name: str) -> None:
    found = counted(commit(tmp_path, GIVEN, last=14, format=FORMATS[name]))
    assert found.findings == ()
    assert (found.files, found.rows, found.dead, found.gaps) == (2, 9, 1, 5)


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_with_fewer_messages(tmp_path: Path, name: str) -> None:
    found = commit(tmp_path / "a", GIVEN, last=14, format=FORMATS[name])
    replaced(tmp_path, found, GIVEN[:-2])
    assert kinds(counted(found)) == {Kind.CHANGED, Kind.MISSING}
    missing = next(one for one in counted(found).findings if one.kind is Kind.MISSING)
    assert missing.offsets == 2


@pytest.mark.parametrize("name", FORMATS)
def test_a_manifest_that_says_more_than_there_is(tmp_path: Path, name: str) -> None:
    found = commit(tmp_path / "a", GIVEN, last=14, format=FORMATS[name])
    (file,) = found.manifest.files
    counts = replace(found.manifest.counts, read=11, gaps=4, written=10)
    holes = ((3, 4), (13, 14))
    lying = replace(found.manifest, counts=counts, holes=holes, files=(replace(file, rows=10),))
    assert kinds(counted(replace(found, manifest=lying))) == {Kind.CHANGED, Kind.MISSING}


def test_offsets_of_sequence_files_are_looked_at(tmp_path: Path) -> None:
    found = commit(tmp_path / "a", GIVEN, last=14, format=FORMATS["sequence"])
    moved = [replace(one, offset=3) if one.offset == 2 else one for one in GIVEN]
    replaced(tmp_path, found, moved)
    assert kinds(counted(found)) == {Kind.CHANGED, Kind.MISSING}  # Kafka had nothing at 3, and 2 is gone


def test_as_many_other_messages_in_a_text_file_are_not_noticed_but_for_the_etag(tmp_path: Path) -> None:
    """What cannot be told: docs/topics-formats.md says so."""
    found = commit(tmp_path / "a", GIVEN, last=14, format=FORMATS["text"])
    replaced(tmp_path, found, [replace(one, value=one.value and b"another") for one in GIVEN])
    (finding,) = counted(found).findings
    assert finding.kind is Kind.CHANGED
    assert "was put again" in finding.message


@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_file(tmp_path: Path, name: str) -> None:
    found = commit(tmp_path, GIVEN, last=14, format=FORMATS[name])
    (file,) = found.manifest.files
    found.bucket.put(file.key, found.bucket.get(file.key)[:-1])
    (finding,) = counted(found).findings
    assert (finding.kind, finding.offsets) == (Kind.UNREADABLE, 9)


def test_keys_in_sequence_files_say_where_rows_belong(tmp_path: Path) -> None:
    found = commit(tmp_path, GIVEN, format=FORMATS["msgpack"], split={"who": {"key": True}})
    assert counted(found).findings == ()
    a, b = found.manifest.files
    body = found.bucket.get(a.key)
    found.bucket.put(a.key, found.bucket.get(b.key))
    found.bucket.put(b.key, body)
    assert Kind.MISPLACED in kinds(counted(found))


def test_fields_of_a_decoded_export_are_not_looked_for_in_its_messages(tmp_path: Path) -> None:
    given = [event(n, value="ab"[n % 2]) for n in range(4)]
    split = {"value": {"field": "value"}}  # called like a column of the file
    found = commit(tmp_path, given, format=FORMATS["msgpack"], split=split, decode="json")
    assert len(found.manifest.files) == 2
    assert counted(found).findings == ()


@pytest.mark.parametrize("name", FORMATS)
def test_verify_knows_the_format_from_what_the_export_recorded(tmp_path: Path, name: str) -> None:
    found = commit(tmp_path, GIVEN, format=FORMATS[name])
    identity.register(found.bucket, found.place, "id", found.export, lambda: {3: 0})
    found.bucket.put(found.place.commit(found.manifest.source, 0), found.manifest.body("n"))
    done = verify(found.bucket, found.place)
    assert done.findings == ()
    assert (done.rows, done.dead) == (9, 1)

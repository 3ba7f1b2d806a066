"""Messages back from committed files, whatever their format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catchment.config.decode import Format
from catchment.errors import BucketError, UsageError
from catchment.topics.files import fetch, parquet
from catchment.topics.files.format import format_of
from catchment.topics.files.read import rows
from catchment.topics.identity import Identity
from catchment.topics.records import BACKED
from tests.unit.topics.files.committed_range import commit
from tests.unit.topics.write.ranges import BEGIN, DAY, Message, event

GIVEN = [
    Message(0, b"zero", b"a", headers=(("h", b"1"), ("h", b"2"))),
    Message(1, b"one\n", None, BEGIN + 1, timestamp_type=1),
    Message(4, None, b"b", -1, timestamp_type=-1),
    Message(5, b"five", b"", BEGIN + 5),
    Message(6, b"", b"c"),
]
KEEPS = {
    "parquet": BACKED.names,
    "text": ["offset", "value"],  # the offset from the manifest
    "sequence": ["offset", "value"],
    "msgpack": ["offset", "key", "value"],
}
FORMATS: dict[str, dict[str, Any]] = {
    "parquet": {"name": "parquet"},
    "text": {"name": "text", "compression": "gzip"},
    "sequence": {"name": "sequence", "compression": "block"},
    "msgpack": {"name": "sequence", "key": "msgpack"},
}


def whole(one: Message) -> dict[str, Any]:
    headers = [{"key": name, "value": value} for name, value in one.headers]
    return {
        "offset": one.offset,
        "timestamp": one.timestamp,
        "key": one.key,
        "value": one.value,
        "headers": headers,
        "timestamp_type": one.timestamp_type,
    }


def kept(one: Message, columns: list[str]) -> dict[str, Any]:
    return {name: value if name in columns else None for name, value in whole(one).items()}


@pytest.mark.parametrize("name", FORMATS)
def test_files_and_dead_letters_hold_every_message(tmp_path: Path, name: str) -> None:
    found = commit(tmp_path, GIVEN, last=8, format=FORMATS[name])
    (file,) = found.manifest.files
    messages = found.messages(file)
    dead = [row for letters in found.manifest.dead for row in found.messages(letters)]
    lost = {"parquet": [], "text": [1, 4], "sequence": [4], "msgpack": [4]}[name]
    assert messages == [kept(one, KEEPS[name]) for one in GIVEN if one.offset not in lost]
    assert dead == [whole(one) for one in GIVEN if one.offset in lost]  # all of them, whatever the format keeps


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("first", "last"), [(0, 0), (2, 5), (None, 4), (6, None), (7, 8), (-5, 100)])
def test_only_what_is_asked_for(tmp_path: Path, name: str, first: int | None, last: int | None) -> None:
    found = commit(tmp_path, GIVEN, last=8, format=FORMATS[name])
    files = (*found.manifest.files, *found.manifest.dead)
    offsets = sorted(row["offset"] for file in files for row in found.messages(file, first, last))
    low, high = -1 if first is None else first, 100 if last is None else last
    assert offsets == [one.offset for one in GIVEN if low <= one.offset <= high]


@pytest.mark.parametrize("name", ["parquet", "sequence"])
def test_large_objects_go_to_the_scratch_folder_and_are_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(fetch, "IN_MEMORY", 100)
    found = commit(tmp_path / "a", [Message(n, b"%d" % n * 50) for n in range(200)], format=FORMATS[name])
    scratch = tmp_path / "b"
    found = replace(found, scratch=scratch)
    assert [row["offset"] for row in found.messages(found.manifest.files[0])] == list(range(200))
    assert list(scratch.iterdir()) == []


def test_row_groups_without_a_wanted_offset_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 16)
    found = commit(tmp_path, [Message(n, b"%d" % n) for n in range(100)])
    (file,) = found.manifest.files
    read = rows(found.bucket, file, found.export.format, tmp_path, first=40, last=50)
    assert [row["offset"] for table in read for row in table.to_pylist()] == list(range(32, 64))
    assert [row["offset"] for row in found.messages(file, 40, 50)] == list(range(40, 51))
    assert found.messages(file, 200, 300) == []


def test_several_text_files_of_one_range_have_no_offsets(tmp_path: Path) -> None:
    given = [Message(n, b"%d" % n, timestamp=BEGIN + n * DAY) for n in range(2)]
    found = commit(tmp_path, given, format="text", split={"day": {"timestamp": True, "by": "day"}})
    with pytest.raises(UsageError, match=r"its range has 2 files.*parquet or sequence, or Kafka"):
        found.messages(found.manifest.files[0])


def test_text_of_a_range_with_filtered_messages_has_no_offsets(tmp_path: Path) -> None:
    found = commit(tmp_path, [event(0), event(1, "b")], format="text", decode="json", filter="type = 'a'")
    with pytest.raises(UsageError, match="1 messages of its range were filtered out"):
        found.messages(found.manifest.files[0])


def test_text_of_a_range_with_too_many_holes_has_no_offsets(tmp_path: Path) -> None:
    found = commit(tmp_path, [Message(2 * n, b"x") for n in range(1100)], format="text")
    assert found.manifest.holes is None
    with pytest.raises(UsageError, match="too many holes"):
        found.messages(found.manifest.files[0])


def test_decoded_rows_are_no_messages(tmp_path: Path) -> None:
    found = commit(tmp_path, [event(0)], decode="json")
    with pytest.raises(UsageError, match=r"holds decoded rows.*use a backup"):
        found.messages(found.manifest.files[0])


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("first", [None, 0])
def test_a_file_with_other_rows_than_its_manifest_says(tmp_path: Path, name: str, first: int | None) -> None:
    found = commit(tmp_path / "a", GIVEN[:1], format=FORMATS[name])
    more = commit(tmp_path / "b", [Message(0, b"0"), Message(1, b"1")], format=FORMATS[name])
    (file,) = found.manifest.files
    found.bucket.put(file.key, more.bucket.get(more.manifest.files[0].key))
    with pytest.raises(BucketError, match="messages and not 1"):
        found.messages(file, first)


@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    found = commit(tmp_path, GIVEN, format=FORMATS[name])
    (file,) = found.manifest.files
    found.bucket.put(file.key, found.bucket.get(file.key)[:-3])
    with pytest.raises(BucketError, match="catchment topics verify") as caught:
        found.messages(file)
    assert caught.value.key == file.key
    assert caught.value.unreadable


def test_the_format_of_a_generation() -> None:
    known = Identity("id", 0, {}, {1: {"format": {}}, 2: {"format": {"name": "text", "delimiter": "|"}}, 3: {}})
    assert format_of(known, 1) == Format()
    assert format_of(known, 2) == Format(name="text", delimiter="|")
    with pytest.raises(UsageError, match="generation 4 is not recorded"):
        format_of(known, 4)
    with pytest.raises(UsageError, match="generation 3 cannot be understood"):
        format_of(known, 3)

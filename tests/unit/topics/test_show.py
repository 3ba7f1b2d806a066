"""Show: what comes out of a file is what was written to it, in every format."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catchment.errors import BucketError, NotFound, UsageError
from catchment.topics.locate import locate
from catchment.topics.names import Source
from catchment.topics.show import Shown, show_file, show_offset
from tests.unit.topics.backups import Backup, Message
from tests.unit.topics.write.ranges import BEGIN
from tests.unit.topics.written import ONE, PLACE, Lake, parquet

ODD = [
    Message(0, b"plain", b"k", BEGIN),
    Message(1, None, None, BEGIN + 1),
    Message(2, b"", b"", BEGIN + 2, (("a", b"1"), ("a", b"2"), ("b", b"\xff"))),
    Message(4, b"\x00\xff", b"k", BEGIN + 4, timestamp_type=1),
]


def only_file(backup: Backup, first: int = 0) -> str:
    (key,) = [one.key for one in backup.bucket.list(backup.place.prefix) if f"_{first:020d}-" in one.key]
    return key


def as_shown(one: Message) -> dict[str, Any]:
    return {
        "offset": one.offset,
        "timestamp": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=one.timestamp),
        "timestamp_type": ["CreateTime", "LogAppendTime"][one.timestamp_type],
        "key": one.key,
        "value": one.value,
        "headers": list(one.headers),
    }


def show(backup: Backup, key: str, scratch: Path, **how: Any) -> Shown:
    return show_file(backup.bucket, key, scratch, **how)


# Backups


def test_a_backup_gives_messages_as_they_were(tmp_path: Path) -> None:
    backup = Backup().begin()
    backup.commit(0, 5, ODD)
    found = show(backup, only_file(backup), tmp_path)
    assert list(found.messages) == [as_shown(one) for one in ODD]
    assert (found.group, found.topic, found.kafka_partition, found.life) == ("backup", "clicks", 0, 0)
    assert (found.first, found.last, found.generation, found.note, found.more) == (0, 5, 1, "", False)


def test_no_more_than_asked_for_and_only_offsets_that_are_asked_for(tmp_path: Path) -> None:
    made = [Message(offset, b"v%d" % offset) for offset in range(300)]
    backup = Backup().begin()
    backup.commit(0, 299, made)
    key = only_file(backup)

    def offsets(**how: Any) -> tuple[list[int], bool]:
        found = show(backup, key, tmp_path, **how)
        return [one["offset"] for one in found.messages], found.more

    assert offsets() == (list(range(10)), True)
    assert offsets(limit=300) == (list(range(300)), False)
    assert offsets(first=290) == (list(range(290, 300)), False)
    assert offsets(first=289) == (list(range(289, 299)), True)
    assert offsets(first=7, last=8) == ([7, 8], False)
    assert offsets(first=300) == ([], False)


@pytest.mark.parametrize(
    "format",
    [
        {"name": "sequence"},
        {"name": "sequence", "compression": "block", "codec": "zstd", "key": "msgpack"},
        {"name": "text"},
        {"name": "text", "compression": "gzip"},
    ],
)
def test_other_formats_give_what_they_keep(tmp_path: Path, format: dict[str, str]) -> None:
    made = [Message(offset, b"v%d" % offset, b"k") for offset in (0, 1, 3, 4)]
    backup = Backup(values={"format": format}).begin()
    backup.commit(0, 5, made)
    found = show(backup, only_file(backup), tmp_path, first=1, last=4)
    assert [(one["offset"], one["value"]) for one in found.messages] == [(1, b"v1"), (3, b"v3"), (4, b"v4")]
    assert {one["timestamp"] for one in found.messages} == {None}
    assert found.messages[0]["key"] == (b"k" if format.get("key") == "msgpack" else None)


def test_text_whose_offsets_nobody_knows_is_shown_without(tmp_path: Path) -> None:
    values = {"format": {"name": "text"}, "split": {"who": {"key": True}}}
    backup = Backup(values=values).begin()
    made = backup.commit(0, 3, [Message(offset, b"v%d" % offset, b"ab"[offset % 2 :][:1]) for offset in range(4)])
    found = show(backup, made.files[0].key, tmp_path)
    assert [(one["offset"], one["value"]) for one in found.messages] == [(None, b"v0"), (None, b"v2")]
    assert "offsets" in found.note
    with pytest.raises(UsageError, match="cannot be told"):
        show(backup, made.files[0].key, tmp_path, first=2)


def test_a_time_that_python_does_not_have_is_a_number(tmp_path: Path) -> None:
    backup = Backup().begin()
    backup.commit(0, 0, [Message(0, b"v", timestamp=1 << 60)])
    assert show(backup, only_file(backup), tmp_path).messages[0]["timestamp"] == 1 << 60


# Decoded exports


def decoded() -> Backup:
    values = {
        "group": "events",
        "decode": "json",
        "split": {"type": {"field": "type"}},
        "filter": "n <> 5",
        "dead_letters": {"stop_above": "100%"},
    }
    export = Backup(values=values).begin()
    made = [Message(n, json.dumps({"type": "ab"[n % 2], "n": n, "in": {"x": n / 2}}).encode()) for n in range(10)]
    made[3] = Message(3, b"not json", b"k")
    export.commit(0, 9, made)
    return export


def test_decoded_rows_are_shown_field_by_field(tmp_path: Path) -> None:
    export = decoded()
    (key,) = [one.key for one in export.bucket.list() if "/type=a/" in one.key]
    found = show(export, key, tmp_path, first=2, last=4)
    at = datetime.fromtimestamp(BEGIN / 1000, UTC)
    assert [dict(one) for one in found.messages] == [
        {"type": "a", "n": n, "in": {"x": n / 2}, "_offset": n, "_timestamp": at} for n in (2, 4)
    ]


def test_a_dead_letter_comes_with_its_reason(tmp_path: Path) -> None:
    export = decoded()
    (key,) = [one.key for one in export.bucket.list() if "/_dead/" in one.key]
    found = show(export, key, tmp_path)
    (letter,) = found.messages
    assert found.dead
    assert (letter["offset"], letter["key"], letter["value"]) == (3, b"k", b"not json")
    assert next(iter(letter)) == "reason"
    assert letter["reason"]


def test_an_offset_is_found_in_the_file_that_has_it(tmp_path: Path) -> None:
    export = decoded()

    def at(offset: int) -> Shown:
        return show_offset(export.bucket, locate(export.bucket, export.place, 0, offset), tmp_path)

    for offset in (0, 1, 2, 4, 6, 7, 8, 9):
        found = at(offset)
        assert found.key is not None
        assert f"type={'ab'[offset % 2]}/" in found.key
        assert [one["_offset"] for one in found.messages] == [offset]
    assert at(3).dead
    assert at(3).messages[0]["offset"] == 3
    for offset, why in ((5, "the filter left 1 of its range out"), (10, "not committed yet")):
        assert (at(offset).key, at(offset).messages) == (None, ())
        assert why in at(offset).note


# Files that no manifest lists, and what is none


def test_an_unlisted_file_is_shown_with_a_note(tmp_path: Path) -> None:
    backup = Backup().begin()
    backup.write(0, 9, ODD)
    found = show(backup, only_file(backup), tmp_path)
    assert len(found.messages) == 4
    assert "its range is not committed" in found.note
    other = backup.write(0, 5, ODD)
    backup.bucket.put(backup.place.commit(Source(0), 0), other.body("n"))
    long = next(one.key for one in backup.bucket.list() if f"-{9:020d}_" in one.key)
    assert "[0, 5] is committed with other files, of generation 1" in show(backup, long, tmp_path).note
    backup.bucket.put(backup.place.commit(Source(0), 0), b"{}")
    assert "cannot be read" in show(backup, long, tmp_path).note


def test_parquet_needs_no_record_of_its_export(tmp_path: Path) -> None:
    backup = Backup().begin()
    backup.commit(0, 5, ODD)
    key = only_file(backup)
    backup.bucket.delete(backup.place.export())
    assert len(show(backup, key, tmp_path).messages) == 4
    text = Backup(backup.bucket, "views", {"format": "text"}).begin()
    made = text.commit(0, 5, [Message(0, b"v")])
    text.bucket.delete(text.place.export())
    with pytest.raises(UsageError, match="nothing says how"):
        show(text, made.files[0].key, tmp_path)


@pytest.mark.parametrize(
    "key",
    [
        "feeds/subway/2026/11/15/08/x.tar",
        "topics",
        "topics/events/clicks",
        PLACE.commit(ONE, 0),
        PLACE.export(),
        f"{PLACE.prefix}_schemas/a.json",
    ],
)
def test_what_is_no_file_of_an_export_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(UsageError, match="is not the key of an export's file") as caught:
        show_file(Lake().begin().bucket, key, tmp_path)
    assert "locate" in caught.value.hint


def test_a_file_that_is_not_there_and_one_that_is_damaged(tmp_path: Path) -> None:
    lake = Lake().begin()
    key = PLACE.file("type=a", lake.name(0, 9))
    with pytest.raises(NotFound, match="there is no object") as caught:
        show_file(lake.bucket, key, tmp_path)
    assert caught.value.hint
    lake.bucket.put(key, b"not parquet")
    with pytest.raises(BucketError, match="is no Parquet file"):
        show_file(lake.bucket, key, tmp_path)


def test_values_that_python_cannot_hold_do_not_stop_it(tmp_path: Path) -> None:
    lake = Lake().begin()
    far = pa.array([1 << 62, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    key = PLACE.file("type=a", lake.name(0, 9))
    lake.bucket.put(key, parquet(pa.table({"far": far, "_offset": pa.array([0, 1], pa.int64())})))
    far_one, usual = show_file(lake.bucket, key, tmp_path).messages
    assert far_one["far"] == str(1 << 62)
    assert usual["far"] == datetime(1970, 1, 1, tzinfo=UTC)


def test_a_replaced_manifest_shows_the_file_as_no_longer_listed(tmp_path: Path) -> None:
    lake = Lake().begin()
    before = lake.commit(0, 9)
    after = replace(lake.write(0, 9, generation=2), generation=2)
    lake.publish(after)
    assert "of generation 2" in show_file(lake.bucket, before.files[0].key, tmp_path).note
    assert show_file(lake.bucket, after.files[0].key, tmp_path).note == ""

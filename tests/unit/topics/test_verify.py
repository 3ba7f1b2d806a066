"""Each kind of damage is named, exactly it and nothing else; a healthy lake has none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from pickle import dumps, loads

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.bucket.contract import Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Wrapper
from catchment.config.storage import Storage
from catchment.config.topics import Export
from catchment.errors import Unreachable
from catchment.testing.clock import FakeClock
from catchment.testing.dying import DyingBucket, lost_reply
from catchment.topics import finalize
from catchment.topics.manifest import Counts, Manifest
from catchment.topics.names import Place, Source
from catchment.topics.period import Period, plan
from catchment.topics.records import DEAD, HEADERS
from catchment.topics.recount import Kind, Recount, Recounter, missing_between, recount, stretches
from catchment.topics.verify import Progress, Task, Verified, verify
from tests.unit.topics.written import (
    BACKUP,
    DAY,
    EXPORT,
    NOW,
    ONE,
    PLACE,
    TWO,
    Lake,
    changed,
    decoded,
    healthy,
    parquet,
    records,
)

FOLDER = "type=a/day=2026-11-15"


def kinds(found: Verified) -> list[tuple[str, str]]:
    return [(str(one.kind), one.key) for one in found.problems]


def only(found: Verified, kind: Kind, key: str) -> str:
    """The message of the one thing that is wrong."""
    assert [(one.kind, one.key) for one in found.findings] == [(kind, key)]
    return found.findings[0].message


def test_a_healthy_lake() -> None:
    lake = healthy()
    found = verify(lake.bucket, PLACE)
    assert found.findings == ()
    assert found.good and found.missing == found.twice == 0
    assert (found.ranges, found.rows, found.dead, found.filtered, found.gaps) == (6, 50, 4, 2, 8)
    assert found.files == len([key for key in lake.held() if key.endswith(".parquet")])


def test_an_export_that_has_nothing_yet() -> None:
    assert verify(MemoryBucket(), PLACE) == Verified()
    assert verify(Lake().begin().bucket, PLACE) == Verified()


def test_a_backup_and_a_range_that_was_skipped() -> None:
    lake = Lake(place=Place("backup", "clicks"), export=BACKUP).begin()
    lake.commit(0, 9, gaps=[3])
    lake.publish(
        Manifest("clicks", "id", ONE, 10, 10**6, 1, "f", Counts(0, 10**6 - 9, 0, 0, 0), holes=None, skipped="gone")
    )
    lake.commit(10**6 + 1, 10**6 + 9)
    found = verify(lake.bucket, lake.place)
    assert found.findings == ()
    assert (found.rows, found.gaps) == (18, 10**6 - 8)


# -- what the files of a range hold


@pytest.fixture
def lake() -> Lake:
    return healthy()


def first_range(lake: Lake) -> Manifest:
    """[0, 9] of Kafka partition 0: even offsets in its first file, odd ones in its second."""
    return Manifest.parse("k", lake.bucket.get(PLACE.commit(ONE, 0)))


def rewritten(lake: Lake, table: pa.Table, **fields: object) -> str:
    """As if a faulty program had written another first file than it counted. Its key."""
    manifest = first_range(lake)
    file = lake.put(manifest.files[0].key, table)
    lake.publish(changed(manifest, 0, etag=file.etag, size=file.size, **fields))
    return file.key


COMMIT = PLACE.commit(ONE, 0)


def test_a_row_that_is_missing_is_named(lake: Lake) -> None:
    key = rewritten(lake, decoded([0, 2, 6, 8]))
    found = verify(lake.bucket, PLACE)
    assert kinds(found) == [("changed", key), ("missing", COMMIT)]
    assert found.findings[0].message == f"is not as {COMMIT} lists it: 4 rows and not 5"
    assert found.findings[1].message == "none of its files holds offset 4"
    assert (found.missing, found.twice, found.rows) == (1, 0, 49)


def test_rows_that_are_missing_are_named_as_stretches(lake: Lake) -> None:
    manifest = lake.write(32, 51, TWO)
    for at, file in enumerate(manifest.files):
        held = [one for one in range(file.first, file.last + 1, 2) if one not in (34, 35, 36, 44, 47)]
        there = lake.put(file.key, decoded(held))
        manifest = changed(manifest, at, etag=there.etag, size=there.size, first=there.first, last=there.last)
    lake.publish(manifest)
    found = verify(lake.bucket, PLACE)
    [missing] = [one for one in found.findings if one.kind is Kind.MISSING]
    assert missing.message == "none of its files holds 5 offsets (34 to 36, 44, 47)"
    assert found.missing == 5


def test_among_filtered_messages_what_is_missing_is_counted(lake: Lake) -> None:
    manifest = Manifest.parse("k", lake.bucket.get(PLACE.commit(ONE, 10)))
    file = manifest.files[0]
    there = lake.put(file.key, decoded([14, 16, 18]))  # and not 10
    lake.publish(changed(manifest, 0, etag=there.etag, size=there.size))
    found = verify(lake.bucket, PLACE)
    assert {one.kind for one in found.findings} == {Kind.CHANGED, Kind.MISSING}
    assert found.findings[-1].message == f"none of its files holds {file.rows - there.rows} of its offsets"
    assert found.missing == file.rows - there.rows > 0


def test_a_row_that_is_there_twice_in_one_file(lake: Lake) -> None:
    key = rewritten(lake, decoded([0, 2, 4, 6, 8, 8]))
    found = verify(lake.bucket, PLACE)
    assert kinds(found) == [("changed", key), ("twice", COMMIT)]
    assert found.findings[1].message == f"its files hold offset 8 more than once: {key}"
    assert (found.missing, found.twice) == (0, 1)


def test_a_row_that_is_there_twice_in_two_files(lake: Lake) -> None:
    name = lake.name(0, 9)
    table = decoded([0, 2, 4, 6, 8])
    other = lake.put(PLACE.file("type=a/day=2026-11-16", name), table.slice(0, 1))
    manifest = first_range(lake)
    files = (replace(manifest.files[0], rows=4), manifest.files[1], other)
    lake.publish(replace(manifest, files=files))
    found = verify(lake.bucket, PLACE)
    assert {one.kind for one in found.findings} == {Kind.CHANGED, Kind.MISPLACED, Kind.TWICE}
    assert found.twice == 1


def test_a_message_that_is_a_dead_letter_and_a_row_too(lake: Lake) -> None:
    manifest = Manifest.parse("k", lake.bucket.get(PLACE.commit(ONE, 10)))
    file = lake.put(manifest.dead[0].key, records([12, 14], DEAD), "offset")
    lake.publish(replace(manifest, dead=(replace(file, oldest=None, newest=None),)))
    found = verify(lake.bucket, PLACE)
    assert kinds(found) == [("twice", PLACE.commit(ONE, 10)), ("missing", PLACE.commit(ONE, 10))]


def test_rows_in_a_folder_that_is_not_theirs(lake: Lake) -> None:
    table = decoded([0, 2, 4, 6, 8])
    types = pa.array(["a", "b", "a", "a", "x/y"])
    key = rewritten(lake, table.set_column(0, "type", types))
    message = only(verify(lake.bucket, PLACE), Kind.MISPLACED, key)
    assert message == "2 of its rows belong elsewhere, for example in type=b/day=2026-11-15"


def test_rows_of_another_day(lake: Lake) -> None:
    table = decoded([0, 2, 4, 6, 8])
    later = pa.array([value + 86_400_000 for value in table["ts"].to_pylist()])
    key = rewritten(lake, table.set_column(1, "ts", later))
    found = verify(lake.bucket, PLACE)
    assert "type=a/day=2026-11-16" in only(found, Kind.MISPLACED, key)
    assert found.findings[0].offsets == 5


def test_rows_that_have_no_folder_at_all(lake: Lake) -> None:
    table = decoded([0, 2, 4, 6, 8])
    key = rewritten(lake, table.set_column(0, "type", pa.nulls(5, pa.string())))
    assert "no folder at all" in only(verify(lake.bucket, PLACE), Kind.MISPLACED, key)


def test_folders_are_those_of_their_generation(lake: Lake) -> None:
    """An export that was once split otherwise has old files in other folders, and they are right."""
    new = Export.model_validate(
        {"group": "events", "generation": 2, "decode": "json", "split": {"kind": {"field": "type"}}}
    )
    lake.export = new
    lake.begin()
    name = lake.name(32, 33, generation=2)
    files = tuple(lake.put(PLACE.file(f"kind={'ab'[one % 2]}", name), decoded([one])) for one in (32, 33))
    manifest = Manifest("clicks", "id", ONE, 32, 33, 2, "f", Counts(2, 0, 2, 0, 0), files)
    lake.publish(manifest)
    assert verify(lake.bucket, PLACE).findings == ()
    swapped = tuple(replace(one, key=other.key, etag=other.etag) for one, other in zip(files, files[::-1], strict=True))
    lake.put(files[0].key, decoded([33]))
    lake.put(files[1].key, decoded([32]))
    lake.publish(replace(manifest, files=swapped))
    found = verify(lake.bucket, PLACE)
    assert [one.kind for one in found.problems] == [Kind.MISPLACED, Kind.MISPLACED]


@pytest.mark.parametrize("nested", [True, False])
def test_folders_by_a_nested_field_and_by_what_the_file_does_not_hold(nested: bool) -> None:
    split = {"user": {"field": "user.name" if nested else "user.gone"}, "key": {"key": True}}
    lake = Lake(export=Export.model_validate({"group": "events", "decode": "json", "split": split})).begin()
    name = lake.name(0, 1)
    files = tuple(lake.put(PLACE.file(f"user=u{one}/key=whatever", name), decoded([one])) for one in (0, 1))
    lake.publish(Manifest("clicks", "id", ONE, 0, 1, 1, "f", Counts(2, 0, 2, 0, 0), files))
    found = verify(lake.bucket, PLACE)
    assert [one.kind for one in found.findings] == ([] if nested else [Kind.MISPLACED] * 2)


def test_folders_of_a_backup_by_key_header_and_timestamp() -> None:
    split = {"key": {"key": True}, "from": {"header": "from"}, "day": {"timestamp": True, "by": "day"}}
    place = Place("backup", "clicks")
    lake = Lake(place=place, export=Export.model_validate({"group": "backup", "split": split})).begin()
    table = records([0, 1]).append_column("headers", pa.array([[("from", b"x")], [("from", b"y")]], HEADERS))
    file = lake.put(place.file("key=k/from=x/day=1970-01-01", lake.name(0, 1)), table, "offset")
    lake.publish(Manifest("clicks", "id", ONE, 0, 1, 1, "f", Counts(2, 0, 2, 0, 0), (file,)))
    message = only(verify(lake.bucket, place), Kind.MISPLACED, file.key)
    assert message == "1 of its rows belong elsewhere, for example in key=k/from=y/day=1970-01-01"


def test_offsets_outside_their_range(lake: Lake) -> None:
    manifest = lake.write(32, 33)
    file = lake.put(manifest.files[0].key, decoded([32, 34]))
    other = manifest.files[1]
    wrong = replace(manifest, files=(replace(file, rows=1, last=34), other))
    lake.publish(wrong)
    found = verify(lake.bucket, PLACE)
    assert [one.kind for one in found.findings] == [Kind.CHANGED, Kind.MISPLACED]
    assert "offset 34, outside its range" in found.findings[1].message


def test_a_row_where_the_manifest_says_that_kafka_had_none(lake: Lake) -> None:
    manifest = lake.write(32, 35, gaps=[33])
    file = lake.put(manifest.files[1].key, decoded([33, 35]))
    lake.publish(changed(manifest, 1, etag=file.etag, size=file.size, first=33))
    found = verify(lake.bucket, PLACE)
    assert kinds(found) == [("changed", file.key), ("changed", PLACE.commit(ONE, 32))]
    assert "offset 33, and it says that Kafka had none there" in found.findings[1].message


def test_gaps_that_are_too_many_to_name_are_counted() -> None:
    lake = Lake().begin()
    lake.publish(replace(lake.write(0, 9, gaps=[3, 5]), holes=None))
    lake.hint(ONE, 10)
    assert verify(lake.bucket, PLACE).findings == ()


# -- objects


def test_a_file_that_is_not_there(lake: Lake) -> None:
    key = first_range(lake).files[0].key
    lake.bucket.delete(key)
    found = verify(lake.bucket, PLACE)
    assert only(found, Kind.ABSENT, key) == f"is not there; {COMMIT} lists it with 5 rows, offsets 0 to 8"
    assert (found.missing, found.rows) == (5, 45)


def test_a_file_that_was_put_again_as_it_was_is_a_note(lake: Lake) -> None:
    manifest = first_range(lake)
    lake.publish(changed(manifest, 0, etag="another"))
    found = verify(lake.bucket, PLACE)
    assert "put again" in only(found, Kind.CHANGED, manifest.files[0].key)
    assert found.good


def test_a_file_that_was_put_again_with_the_same_rows_and_another_size(lake: Lake) -> None:
    key = first_range(lake).files[0].key
    lake.bucket.put(key, parquet(decoded([0, 2, 4, 6, 8]).append_column("new", pa.array(["x" * 50] * 5))))
    found = verify(lake.bucket, PLACE)
    only(found, Kind.CHANGED, key)
    assert not found.good


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not parquet at all",
        parquet(pa.table({"x": [1]})),
        parquet(pa.table({"_offset": ["0"]})),
        parquet(pa.table({"_offset": pa.array([0, None], pa.int64())})),
        parquet(decoded(range(0, 10, 2)))[:-20],
    ],
)
def test_a_file_that_cannot_be_read(lake: Lake, body: bytes) -> None:
    key = first_range(lake).files[0].key
    lake.bucket.put(key, body)
    found = verify(lake.bucket, PLACE)
    only(found, Kind.UNREADABLE, key)
    assert found.missing == 5


def test_a_damaged_page(lake: Lake) -> None:
    key = first_range(lake).files[0].key
    body = bytearray(lake.bucket.get(key))
    body[4:200] = bytes(196)
    lake.bucket.put(key, bytes(body))
    only(verify(lake.bucket, PLACE), Kind.UNREADABLE, key)


def test_a_manifest_that_lists_another_ranges_file(lake: Lake) -> None:
    lake.commit(32, 39)
    manifest = lake.write(40, 48)
    other = Manifest.parse("k", lake.bucket.get(PLACE.commit(ONE, 0)))
    lake.publish(replace(manifest, files=(other.files[0], *manifest.files[1:])))
    found = verify(lake.bucket, PLACE)
    assert {one.kind for one in found.problems} == {Kind.CHANGED, Kind.MISPLACED, Kind.MISSING, Kind.UNLISTED}
    assert "its name is that of another range" in found.problems[0].message


def test_a_manifest_that_lists_what_no_bucket_can_hold(lake: Lake) -> None:
    lake.publish(changed(first_range(lake), 0, key="topics/../secrets"))
    found = verify(lake.bucket, PLACE)
    assert [(one.kind, one.key) for one in found.findings if one.kind is not Kind.UNLISTED] == [
        (Kind.ABSENT, "topics/../secrets")
    ]


# -- manifests


def test_a_manifest_that_is_missing_between_two(lake: Lake) -> None:
    key = PLACE.commit(ONE, 10)
    files = Manifest.parse("k", lake.bucket.get(key)).files
    lake.bucket.delete(key)
    found = verify(lake.bucket, PLACE)
    [problem] = found.problems
    assert (problem.kind, problem.key, problem.offsets) == (Kind.UNCOMMITTED, key, 15)
    assert "Kafka partition 0: the offsets from 10 to 24 are in no manifest" in problem.message
    notes = [one for one in found.findings if one.note]
    assert {one.kind for one in notes} == {Kind.UNLISTED}
    assert {one.key for one in notes} >= {
        file.key for file in files
    }  # they may be what is missing: nothing removes them
    assert found.missing == 15


def test_the_first_manifest_is_missing(lake: Lake) -> None:
    lake.bucket.delete(COMMIT)
    [problem] = verify(lake.bucket, PLACE).problems
    assert (problem.kind, problem.key, problem.offsets) == (Kind.UNCOMMITTED, COMMIT, 10)


def test_the_last_manifest_is_missing(lake: Lake) -> None:
    key = PLACE.commit(ONE, 25)
    lake.bucket.delete(key)
    [problem] = verify(lake.bucket, PLACE).problems
    assert (problem.kind, problem.key, problem.offsets) == (Kind.UNCOMMITTED, key, 7)
    assert f"{PLACE.hint(ONE)} says that everything below 32 is committed" in problem.message


def test_two_manifests_that_overlap(lake: Lake) -> None:
    lake.publish(lake.write(30, 35))
    found = verify(lake.bucket, PLACE)
    assert "offsets from 30 to 31 are in two manifests" in only(found, Kind.TWICE, PLACE.commit(ONE, 30))
    assert found.twice == 2


@pytest.mark.parametrize("body", [b"", b"{}", b"[]"])
def test_a_manifest_that_cannot_be_read(lake: Lake, body: bytes) -> None:
    key = PLACE.commit(ONE, 10)
    lake.bucket.put(key, body)
    found = verify(lake.bucket, PLACE)
    [problem] = found.problems
    assert (problem.kind, problem.key, problem.offsets) == (Kind.UNREADABLE, key, 15)
    assert found.missing == 15


def test_a_manifest_that_does_not_add_up(lake: Lake) -> None:
    key = PLACE.commit(TWO, 25)
    value = json.loads(lake.bucket.get(key))
    value["counts"]["written"] += 1
    lake.bucket.put(key, json.dumps(value).encode())
    [problem] = verify(lake.bucket, PLACE).problems
    assert (problem.kind, problem.key) == (Kind.UNREADABLE, key)
    assert "were written" in problem.message


def test_something_else_among_the_manifests(lake: Lake) -> None:
    key = f"{PLACE.commits()}0/copy of 1.json"
    lake.bucket.put(key, b"{}")
    only(verify(lake.bucket, PLACE), Kind.UNREADABLE, key)


@pytest.mark.parametrize("key", [PLACE.hint(ONE), PLACE.export(), PLACE.finalized()])
def test_the_documents_of_an_export(lake: Lake, key: str) -> None:
    lake.bucket.put(key, b'{"next": "x", "closed": "x"}')
    only(verify(lake.bucket, PLACE), Kind.UNREADABLE, key)


# -- what no manifest lists


def test_a_file_left_by_an_abandoned_attempt(lake: Lake) -> None:
    key = PLACE.file(FOLDER, lake.name(0, 19))  # another cut
    lake.put(key, decoded([0, 2]))
    found = verify(lake.bucket, PLACE)
    assert "'catchment topics repair' removes it" in only(found, Kind.UNLISTED, key)
    assert not found.good


def test_dead_letters_left_by_an_abandoned_attempt(lake: Lake) -> None:
    key = PLACE.dead(lake.name(0, 9))
    lake.bucket.put(key, b"x")
    assert "repair" in only(verify(lake.bucket, PLACE), Kind.UNLISTED, key)


@pytest.mark.parametrize("bounds", [(32, 40), (30, 40)])
def test_a_file_above_the_committed_offset_may_be_in_progress(lake: Lake, bounds: tuple[int, int]) -> None:
    key = PLACE.file(FOLDER, lake.name(*bounds))
    lake.put(key, decoded([bounds[0]]))
    found = verify(lake.bucket, PLACE)
    assert "above the committed offset: may be in progress" in only(found, Kind.UNLISTED, key)
    assert found.good


def test_a_file_of_a_kafka_partition_without_manifests_may_be_in_progress(lake: Lake) -> None:
    key = PLACE.file(FOLDER, lake.name(0, 9, Source(7)))
    lake.put(key, decoded([0]))
    assert "may be in progress" in only(verify(lake.bucket, PLACE), Kind.UNLISTED, key)


def test_a_file_of_a_newer_generation_may_be_a_backfills(lake: Lake) -> None:
    key = PLACE.file(FOLDER, lake.name(0, 9, generation=2))
    lake.put(key, decoded([0]))
    found = verify(lake.bucket, PLACE)
    assert "a backfill may be about to commit it" in only(found, Kind.UNLISTED, key)
    assert found.good


def test_a_file_of_an_older_generation_is_left_over(lake: Lake) -> None:
    before = first_range(lake)
    lake.publish(lake.write(0, 9, generation=2))
    found = verify(lake.bucket, PLACE, splits={1: EXPORT.split, 2: EXPORT.split})
    assert found.good
    assert [(one.kind, one.key) for one in found.findings] == [("unlisted", file.key) for file in before.files]
    assert all("generation 2 is in its place" in one.message for one in found.findings)


def test_a_file_that_somebody_else_put_into_a_folder(lake: Lake) -> None:
    key = f"{PLACE.prefix}{FOLDER}/part-0000.parquet"
    lake.bucket.put(key, b"x")
    lake.bucket.put(f"{PLACE.prefix}{FOLDER}/.part-0000.parquet.crc", b"hidden from whoever reads a folder")
    assert "none of Catchment's" in only(verify(lake.bucket, PLACE), Kind.UNLISTED, key)


# -- closed folders


def close(lake: Lake) -> None:
    """Close the first two days."""
    given = {
        "group": "events",
        "decode": "json",
        "split": EXPORT.model_dump(exclude_defaults=True)["split"],
        "finalize": {"lateness": "1h"},
    }
    export = Export.model_validate(given)
    finalize.close(lake.bucket, PLACE, export, DAY + timedelta(days=2, hours=2), workers=1)


def test_days_that_are_closed_as_they_should_be(lake: Lake) -> None:
    close(lake)
    assert PLACE.success(FOLDER) in lake.held()
    assert verify(lake.bucket, PLACE).findings == ()


def test_a_success_that_lists_what_is_not_committed(lake: Lake) -> None:
    close(lake)
    key = PLACE.success(FOLDER)
    value = json.loads(lake.bucket.get(key))
    stranger = PLACE.file(FOLDER, lake.name(0, 9, schema="other"))
    value["files"].append({**value["files"][0], "key": stranger})
    lake.bucket.put(key, json.dumps(value).encode())
    assert only(verify(lake.bucket, PLACE), Kind.CLOSED, key) == f"lists {stranger}, which is not committed"


def test_a_success_that_lacks_a_committed_file(lake: Lake) -> None:
    close(lake)
    key = PLACE.success(FOLDER)
    value = json.loads(lake.bucket.get(key))
    lost = value["files"].pop()["key"]
    lake.bucket.put(key, json.dumps(value).encode())
    assert only(verify(lake.bucket, PLACE), Kind.CLOSED, key) == f"does not list {lost}, which is committed"


def test_a_closed_day_without_its_success(lake: Lake) -> None:
    close(lake)
    lake.bucket.delete(PLACE.success(FOLDER))
    found = verify(lake.bucket, PLACE)
    assert kinds(found) == [("closed", PLACE.success(FOLDER))] * 2  # one file of each Kafka partition


def test_days_of_one_generation_and_none_of_another(lake: Lake) -> None:
    plain = Export.model_validate({"group": "events", "generation": 2, "decode": "json"})
    lake.export = plain
    lake.begin()
    file = lake.put(PLACE.file("", lake.name(32, 33, generation=2)), decoded([32, 33]))
    lake.publish(Manifest("clicks", "id", ONE, 32, 33, 2, "f", Counts(2, 0, 2, 0, 0), (file,)))
    close(lake)
    assert verify(lake.bucket, PLACE).findings == ()


def test_a_success_that_cannot_be_read(lake: Lake) -> None:
    close(lake)
    lake.bucket.put(PLACE.success(FOLDER), b"")
    found = verify(lake.bucket, PLACE)
    assert {one.key for one in found.problems} == {PLACE.success(FOLDER)}
    assert "cannot be read" in found.problems[0].message


def test_late_files_that_are_counted_beside_the_success_are_no_problem(lake: Lake) -> None:
    close(lake)
    key = PLACE.success(FOLDER)
    value = json.loads(lake.bucket.get(key))
    late = [value["files"].pop()]
    lake.bucket.put(key, json.dumps(value).encode())
    lake.bucket.put(PLACE.late(FOLDER), json.dumps({**value, "files": late}).encode())
    assert verify(lake.bucket, PLACE).findings == ()


def test_a_late_file_whose_committer_may_still_publish_it_is_a_note(lake: Lake) -> None:
    close(lake)
    manifest = lake.write(32, 33)
    late = lake.put(
        PLACE.file(FOLDER, lake.name(32, 33)), decoded([32, 33]).set_column(0, "type", pa.array(["a", "a"]))
    )
    lake.publish(replace(manifest, files=(late,)))
    found = verify(lake.bucket, PLACE, splits={})
    notes = [one for one in found.findings if one.kind is Kind.CLOSED]
    assert [one.note for one in notes] == [True]
    lake.hint(ONE, 34)  # whoever moves the hint has published before
    found = verify(lake.bucket, PLACE, splits={})
    assert [one.note for one in found.findings if one.kind is Kind.CLOSED] == [False]


# -- periods


def test_a_period_of_offsets(lake: Lake) -> None:
    lake.bucket.delete(PLACE.file("type=a/day=2026-11-17", lake.name(25, 31)))  # outside of it
    lake.put(PLACE.file(FOLDER, lake.name(26, 27, schema="other")), decoded([26]))
    found = verify(lake.bucket, PLACE, Period(ONE, 3, 12))
    assert (found.ranges, found.rows, found.findings) == (2, 20, ())
    found = verify(lake.bucket, PLACE, Period(ONE, 26, 26))
    assert {one.kind for one in found.findings} == {Kind.ABSENT, Kind.UNLISTED}
    assert verify(lake.bucket, PLACE, Period(TWO)).findings == ()
    assert verify(lake.bucket, PLACE, Period(ONE, 100)).ranges == 0


def test_a_period_of_offsets_knows_how_far_the_rest_is(lake: Lake) -> None:
    key = PLACE.file(FOLDER, lake.name(5, 12))
    lake.put(key, decoded([6]))
    assert "repair" in only(verify(lake.bucket, PLACE, Period(ONE, 0, 9)), Kind.UNLISTED, key)


def test_a_period_of_event_times(lake: Lake) -> None:
    """Offsets 0 to 9 are of the 15th, 10 to 19 of the 16th, and so on."""

    def ranges(start: datetime | None, end: datetime | None) -> set[int]:
        return {one.first for one in plan(lake.bucket, PLACE, Period(start=start, end=end)).ranges}

    day = timedelta(days=1)
    assert ranges(None, None) == {0, 10, 25}
    assert ranges(DAY, DAY + day) == {0}
    assert ranges(DAY + day, DAY + 2 * day) == {10}
    assert ranges(DAY + 2 * day, DAY + 3 * day) == {10, 25}
    assert ranges(DAY + 3 * day, None) == {25}
    assert ranges(None, DAY) == set()
    lake.put(PLACE.file(FOLDER, lake.name(0, 3)), decoded([0]))  # not in the period, and so not looked at
    assert verify(lake.bucket, PLACE, Period(start=DAY + day, end=DAY + 2 * day)).findings == ()
    assert len(verify(lake.bucket, PLACE, Period(start=DAY, end=DAY + day)).findings) == 1


def test_without_event_times_the_time_of_the_commit_counts() -> None:
    lake = Lake(place=Place("backup", "clicks"), export=BACKUP).begin()
    lake.commit(0, 9)
    lake.commit(10, 19)
    found = plan(lake.bucket, lake.place, Period(start=NOW + timedelta(minutes=5), end=NOW + timedelta(hours=1)))
    assert [one.first for one in found.ranges] == [10]


# -- next to others


class Meanwhile(Wrapper):
    """Does something before a chosen call."""

    def __init__(self, inner: Bucket, call: str, do: Callable[[], object]) -> None:
        super().__init__(inner)
        self._when, self._do = call, do

    def _call(self, operation: str, key: str, do: Callable[[], object]) -> object:  # type: ignore[override]
        if f"{operation} {key}" == self._when:
            self._when = ""
            self._do()
        return do()


def test_what_is_committed_meanwhile_is_not_mistaken_for_damage(lake: Lake) -> None:
    bucket = Meanwhile(lake.bucket, f"list {PLACE.prefix}", lambda: lake.commit(32, 40))
    assert verify(bucket, PLACE).findings == ()


def test_what_is_replaced_meanwhile_is_counted_anew(lake: Lake) -> None:
    old = first_range(lake)

    def backfill() -> None:
        lake.publish(lake.write(0, 9, generation=2))
        for file in old.files:
            lake.bucket.delete(file.key)

    bucket = Meanwhile(lake.bucket, f"head {old.files[0].key}", backfill)
    found = verify(bucket, PLACE)
    assert (found.findings, found.rows) == ((), 50)


def test_trouble_with_the_bucket_is_raised(lake: Lake) -> None:
    calls = DyingBucket(lake.bucket, at=10**9)
    verify(calls, PLACE, mapper=map, workers=1)
    for at in range(1, calls.calls + 1):
        with pytest.raises(Unreachable):
            verify(DyingBucket(lake.bucket, at=at, error=lost_reply()), PLACE, mapper=map, workers=1)


def test_it_changes_nothing(lake: Lake) -> None:
    assert isinstance(lake.bucket, MemoryBucket)
    lake.bucket.delete(first_range(lake).files[0].key)
    before = lake.bucket.state()
    verify(lake.bucket, PLACE)
    assert lake.bucket.state() == before


def test_progress(lake: Lake) -> None:
    told: list[Progress] = []
    verify(lake.bucket, PLACE, on_progress=told.append)
    assert [one.done for one in told] == [1, 2, 3, 4, 5, 6]
    assert told[-1] == Progress(6, 6, 50)


def test_another_way_to_run_it(lake: Lake) -> None:
    def backwards(recounter: Recounter, manifests: Sequence[Manifest]) -> Iterator[Recount]:
        for manifest in reversed(manifests):
            yield recounter(manifest)

    assert verify(lake.bucket, PLACE, mapper=backwards) == verify(lake.bucket, PLACE)


def test_a_task_is_plain_values_and_opens_the_bucket_by_itself(tmp_path: Path) -> None:
    from catchment.bucket.local import LocalBucket

    lake = Lake(bucket=LocalBucket(tmp_path / "lake", create_below=tmp_path)).begin()
    manifest = lake.commit(0, 9)
    storage = Storage.model_validate({"id": "main", "path": str(tmp_path / "lake")})
    task = loads(dumps(Task(Recounter(PLACE, {1: EXPORT.split}), storage)))
    counted = loads(dumps(task(loads(dumps(manifest)))))
    assert (counted.rows, counted.findings) == (10, ())


def test_a_recounter_without_a_bucket_says_so(lake: Lake) -> None:
    with pytest.raises(ValueError, match="bucket"):
        Recounter(PLACE, {})(first_range(lake))


# -- the arithmetic


@given(st.sets(st.integers(10, 40)), st.sets(st.integers(10, 40)))
def test_what_is_missing_is_exactly_what_is_nowhere(offsets: set[int], gaps: set[int]) -> None:
    holes = [(start, end) for start, end in zip(*_stretched(gaps - offsets), strict=True)]
    starts, ends = missing_between(np.array(sorted(offsets), np.int64), holes, 10, 40)
    found = {offset for start, end in zip(starts, ends, strict=True) for offset in range(start, end + 1)}
    assert found == set(range(10, 41)) - offsets - gaps
    assert all(end + 1 < start for end, start in zip(ends, starts[1:], strict=False))  # as few stretches as can be


@given(st.sets(st.integers(0, 60), min_size=1))
def test_stretches_are_what_they_were_made_of(offsets: set[int]) -> None:
    starts, ends = _stretched(offsets)
    assert {offset for start, end in zip(starts, ends, strict=True) for offset in range(start, end + 1)} == offsets


def _stretched(offsets: set[int]) -> tuple[list[int], list[int]]:
    if not offsets:
        return [], []
    starts, ends = stretches(np.array(sorted(offsets), np.int64))
    return starts.tolist(), ends.tolist()


@given(st.lists(st.sampled_from("wdfg"), min_size=1, max_size=30))
def test_whatever_the_mix_a_range_that_was_written_well_recounts(fates: list[str]) -> None:
    lake = Lake(bucket=MemoryBucket(clock=FakeClock(datetime(2026, 1, 1, tzinfo=UTC)), versions=False))
    mix = {fate: [at for at, one in enumerate(fates, 5) if one == fate] for fate in "dfg"}
    manifest = lake.write(5, 4 + len(fates), dead=mix["d"], filtered=mix["f"], gaps=mix["g"])
    found = recount(lake.bucket, PLACE, manifest, EXPORT.split)
    assert found.findings == ()
    assert (found.rows, found.dead, found.filtered, found.gaps) == tuple(fates.count(one) for one in "wdfg")

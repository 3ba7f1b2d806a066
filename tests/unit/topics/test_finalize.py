"""Closing days and hours, and what happens to what comes later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from catchment.bucket.contract import ABSENT, Bucket
from catchment.bucket.local import LocalBucket
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Counting
from catchment.config.decode import Split
from catchment.config.topics import Export, Finalize
from catchment.errors import BucketError
from catchment.testing.dying import Died, DyingBucket
from catchment.topics import finalize
from catchment.topics.manifest import Counts, File, Manifest
from catchment.topics.names import FileName, Place, Source
from catchment.topics.publish import Publication

PLACE = Place("events", "orders")
DAY = {"type": Split(field="type"), "day": Split(field="ts", by="day")}


def export(split: Mapping[str, Split] = DAY, **given: Any) -> Export:
    return Export(group="events", decode={"name": "json"}, split=split, finalize=Finalize(**given))  # type: ignore[arg-type]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def commit(
    bucket: Bucket, folders: Mapping[str, int], *, partition: int = 0, first: int = 0, fingerprint: str = "0" * 12
) -> Manifest:
    """Write files with so many rows each, and the manifest; nothing is done about closed days."""
    rows = sum(folders.values())
    name = FileName(1, Source(partition), first, first + rows - 1, fingerprint, "parquet")
    files, offset = [], first
    for folder, size in folders.items():
        stat = bucket.put(PLACE.file(folder, name), b"x" * size)
        files.append(File(stat.key, stat.etag, stat.size, size, offset, offset + size - 1))
        offset += size
    counts = Counts(rows, 0, rows, 0, 0)
    manifest = Manifest("orders", "id", Source(partition), first, first + rows - 1, 1, "", counts, tuple(files))
    bucket.put(PLACE.commit(manifest.source, first), manifest.body("n"))
    return manifest


def listed(bucket: Bucket, key: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bucket.get(key))
    return found


def success(bucket: Bucket, folder: str) -> dict[str, Any]:
    return listed(bucket, PLACE.success(folder))


def marks(bucket: Bucket) -> list[str]:
    """Folders that have _SUCCESS or _LATE."""
    keys = [entry.key.removeprefix(PLACE.prefix) for entry in bucket.list(PLACE.prefix)]
    return [key for key in keys if key.endswith(("_SUCCESS", "_LATE"))]


def test_a_day_is_closed_when_the_watermark_has_passed_its_end_and_lateness() -> None:
    bucket = MemoryBucket()
    manifest = commit(bucket, {"type=a/day=2026-11-15": 3, "type=b/day=2026-11-15": 2, "type=a/day=2026-11-16": 1})
    early = finalize.close(bucket, PLACE, export(), at("2026-11-16T01:59:59"))
    assert early.closed == at("2026-11-15T00:00:00")
    assert marks(bucket) == []
    done = finalize.close(bucket, PLACE, export(), at("2026-11-16T02:00:00"))
    assert done.closed == at("2026-11-16T00:00:00")
    assert [one.folder for one in done.published] == ["type=a/day=2026-11-15", "type=b/day=2026-11-15"]
    assert marks(bucket) == ["type=a/day=2026-11-15/_SUCCESS", "type=b/day=2026-11-15/_SUCCESS"]
    file = manifest.files[0]
    found = success(bucket, "type=a/day=2026-11-15")
    del found["nonce"]
    assert found == {
        "folder": "type=a/day=2026-11-15",
        "end": "2026-11-16T00:00:00.000Z",
        "published": 1,
        "files": [
            {
                "key": file.key,
                "etag": file.etag,
                "size": 3,
                "rows": 3,
                "first": 0,
                "last": 2,
                "source": "0",
                "late": False,
            }
        ],
        "rows": 3,
        "late_files": 0,
        "late_rows": 0,
    }
    assert finalize.state(bucket, PLACE) == finalize.State(at("2026-11-16T00:00:00"))


def test_closing_again_changes_nothing_and_costs_one_request() -> None:
    bucket = MemoryBucket()
    commit(bucket, {"type=a/day=2026-11-15": 3})
    finalize.close(bucket, PLACE, export(), at("2026-11-16T03:00:00"))
    before = bucket.history()
    counting = Counting(bucket)
    again = finalize.close(counting, PLACE, export(), at("2026-11-16T05:00:00"))
    assert again == finalize.Closed(at("2026-11-16T00:00:00"))
    assert counting.counts.total == 1
    assert finalize.close(bucket, PLACE, export(), at("2026-11-14T05:00:00")).closed == at("2026-11-16T00:00:00")
    assert bucket.history() == before


def test_only_what_is_committed_is_listed() -> None:
    bucket = MemoryBucket()
    folder = "type=a/day=2026-11-15"
    mine = commit(bucket, {folder: 3})
    attempts = [
        FileName(1, Source(0), 0, 2, "f" * 12, "parquet"),  # the same range, another definition
        FileName(1, Source(0), 1, 5, "0" * 12, "parquet"),  # bounds that nobody committed
        FileName(1, Source(9), 0, 5, "0" * 12, "parquet"),
    ]
    for name in attempts:
        bucket.put(PLACE.file(folder, name), b"rows")
        bucket.put(PLACE.file("type=c/day=2026-11-15", name), b"rows")
    bucket.put(f"{PLACE.prefix}{folder}/notes.txt", b"somebody's")
    finalize.close(bucket, PLACE, export(), at("2026-11-17T00:00:00"))
    assert [file["key"] for file in success(bucket, folder)["files"]] == [mine.files[0].key]
    assert marks(bucket) == [f"{folder}/_SUCCESS"]


def test_a_manifest_that_cannot_be_read_stops_the_closing_and_says_which() -> None:
    bucket = MemoryBucket()
    manifest = commit(bucket, {"type=a/day=2026-11-15": 3})
    key = PLACE.commit(manifest.source, 0)
    bucket.put(key, b"{}")
    with pytest.raises(BucketError, match=key):
        finalize.close(bucket, PLACE, export(), at("2026-11-17T00:00:00"))
    assert finalize.state(bucket, PLACE).closed is None


def test_late_files_are_published_again() -> None:
    bucket = MemoryBucket()
    folder = "type=a/day=2026-11-15"
    first = commit(bucket, {folder: 3})
    finalize.close(bucket, PLACE, export(), at("2026-11-17T00:00:00"))
    late = commit(bucket, {folder: 2, "type=a/day=2026-11-17": 4, "type=new/day=2026-11-14": 1}, first=3)
    done = finalize.after_commit(bucket, PLACE, export(), late)
    assert (len(done.files), done.rows) == (2, 3)
    found = success(bucket, folder)
    assert (found["published"], found["rows"], found["late_files"], found["late_rows"]) == (2, 5, 1, 2)
    assert [(file["key"], file["late"]) for file in found["files"]] == [
        (first.files[0].key, False), (late.files[0].key, True)
    ]  # fmt: skip
    new = success(bucket, "type=new/day=2026-11-14")  # a type that was first seen late
    assert (new["published"], new["late_rows"], new["end"]) == (1, 1, "2026-11-15T00:00:00.000Z")
    assert len(marks(bucket)) == 2
    before = bucket.history()
    assert finalize.after_commit(bucket, PLACE, export(), late) == finalize.Late()  # and again
    finalize.close(bucket, PLACE, export(), at("2026-11-17T01:00:00"))
    assert bucket.history() == before


def test_late_files_are_counted_beside_the_first_publication() -> None:
    bucket = MemoryBucket()
    folder, counted = "type=a/day=2026-11-15", export(late="count")
    commit(bucket, {folder: 3})
    finalize.close(bucket, PLACE, counted, at("2026-11-17T00:00:00"))
    before = bucket.read(PLACE.success(folder))
    for first, rows in ((3, 2), (5, 7)):
        late = commit(bucket, {folder: rows, "type=new/day=2026-11-15": 1}, first=first * 10)
        done = finalize.after_commit(bucket, PLACE, counted, late)
        assert (len(done.files), done.rows) == (2, rows + 1)
        assert finalize.after_commit(bucket, PLACE, counted, late) == finalize.Late()
    assert bucket.read(PLACE.success(folder)) == before
    found = listed(bucket, PLACE.late(folder))
    assert (found["published"], found["rows"], found["late_files"], found["late_rows"]) == (2, 9, 2, 9)
    assert marks(bucket) == [f"{folder}/_LATE", f"{folder}/_SUCCESS", "type=new/day=2026-11-15/_LATE"]


def test_whoever_commits_in_time_makes_one_request() -> None:
    bucket = MemoryBucket()
    manifest = commit(bucket, {"type=a/day=2026-11-16": 3, "type=a/day=2099-01-01": 1})
    counting = Counting(bucket)
    assert finalize.after_commit(counting, PLACE, export(), manifest) == finalize.Late()  # nothing was ever closed
    finalize.close(bucket, PLACE, export(), at("2026-11-16T03:00:00"))
    assert finalize.after_commit(counting, PLACE, export(), manifest) == finalize.Late()
    assert counting.counts.total == 2
    assert finalize.after_commit(counting, PLACE, Export(group="events"), manifest) == finalize.Late()
    assert counting.counts.total == 2  # an export that closes nothing does not even look


def test_a_late_file_costs_no_listing() -> None:
    bucket = MemoryBucket()
    commit(bucket, {"type=a/day=2026-11-15": 3})
    finalize.close(bucket, PLACE, export(), at("2026-11-17T00:00:00"))
    late = commit(bucket, {"type=a/day=2026-11-15": 2}, first=3)
    counting = Counting(bucket)
    finalize.after_commit(counting, PLACE, export(), late)
    assert counting.counts.requests == {"read": 2, "put": 1}


def test_odd_times_close_nothing() -> None:
    bucket = MemoryBucket()
    odd = ["type=a/day=2099-01-01", "type=a/day=9999-12-31", "type=a/day=none", "type=a/day=1970-01-01"]
    commit(bucket, dict.fromkeys(odd, 1))
    done = finalize.close(bucket, PLACE, export(), at("2026-11-17T00:00:00"))
    assert [one.folder for one in done.published] == ["type=a/day=1970-01-01"]
    late = commit(bucket, dict.fromkeys(odd, 1), first=10)
    assert finalize.after_commit(bucket, PLACE, export(), late).rows == 1
    assert marks(bucket) == ["type=a/day=1970-01-01/_SUCCESS"]


def test_folders_outside_the_window_are_not_listed() -> None:
    bucket = MemoryBucket()
    days = [f"2026-{month:02d}-{day:02d}" for month in range(1, 12) for day in range(1, 29)]
    commit(bucket, {f"type={kind}/day={day}": 1 for kind in "ab" for day in [*days, "none", "-"]})
    finalize.close(bucket, PLACE, export(), at("2026-11-10T12:00:00"))
    bare = DyingBucket(bucket, at=10**9)
    done = finalize.close(bare, PLACE, export(), at("2026-11-11T12:00:00"), workers=1)
    assert [one.folder for one in done.published] == ["type=a/day=2026-11-10", "type=b/day=2026-11-10"]
    lists = [call for call in bare.log if call.startswith(("children", "list"))]
    assert {call for call in lists if "day=" in call} == {
        f"children {PLACE.prefix}type={kind}/day=2026-11-10/" for kind in "ab"
    }
    assert (
        len(lists) == 9
    )  # the top; then for each type: up to the first day, from the window on, after it, and the day


def test_hours_in_days_with_minutes_below() -> None:
    split = {
        "day": Split(field="ts", by="day", zone="Europe/Berlin"),
        "hour": Split(field="ts", by="hour", zone="Europe/Berlin"),
        "minute": Split(field="ts", by="minute", zone="Europe/Berlin"),
    }

    def folder(hour: str, minute: str) -> str:
        return f"day={hour[:10]}/hour={hour}/minute={hour}-{minute}"

    bucket = MemoryBucket()
    closed = [folder("2026-11-15T23", "59"), folder("2026-11-16T00", "00"), folder("2026-11-16T00", "30")]
    still = [folder("2026-11-16T01", "00"), folder("2026-11-17T00", "00")]
    commit(bucket, dict.fromkeys([*closed, *still], 1))
    hours = export(split, lateness=timedelta(minutes=5))
    done = finalize.close(bucket, PLACE, hours, at("2026-11-16T00:05:00"))  # 01:05 in Berlin
    assert done.closed == at("2026-11-16T00:00:00")
    assert [one.folder for one in done.published] == closed
    later = finalize.close(bucket, PLACE, hours, at("2026-11-16T01:10:00"))
    assert [one.folder for one in later.published] == still[:1]


def test_a_day_of_another_time_does_not_hide_hours() -> None:
    """The day is Kafka's and the hour the event's: one says nothing about the other."""
    split = {"seen": Split(timestamp=True, by="day"), "hour": Split(field="ts", by="hour")}
    bucket = MemoryBucket()
    commit(bucket, {"seen=2026-11-20/hour=2026-11-15T08": 1, "seen=2020-01-01/hour=2026-11-15T08": 1})
    finalize.close(bucket, PLACE, export(split), at("2026-11-15T09:00:00"))
    done = finalize.close(bucket, PLACE, export(split), at("2026-11-15T12:00:00"))
    assert len(done.published) == 2


def test_folders_of_an_earlier_definition_are_closed_too() -> None:
    bucket = MemoryBucket()
    commit(
        bucket, {"day=2026-11-15": 1, "day=2026-11-15/kind=b": 1, "type=a/day=2026-11-15": 1, "type=a": 1, "old=x": 1}
    )
    done = finalize.close(bucket, PLACE, export(), at("2026-11-17T00:00:00"))
    assert sorted(one.folder for one in done.published) == [
        "day=2026-11-15", "day=2026-11-15/kind=b", "type=a/day=2026-11-15"
    ]  # fmt: skip


def test_a_closing_that_somebody_left_is_completed() -> None:
    bucket = MemoryBucket()
    commit(bucket, {"type=a/day=2026-11-15": 1, "type=a/day=2026-11-16": 1})
    left = finalize.State(at("2026-11-15T00:00:00"), at("2026-11-17T00:00:00"))
    bucket.put(PLACE.finalized(), json.dumps(left.value()).encode())
    # Its own watermark is not as far; whoever announced it knew of a later one.
    done = finalize.close(bucket, PLACE, export(), at("2026-11-16T12:00:00"))
    assert done.closed == at("2026-11-17T00:00:00")
    assert len(done.published) == 2


def test_while_a_day_is_being_closed_a_committer_publishes_all_of_its_folder() -> None:
    bucket = MemoryBucket()
    folder = "type=a/day=2026-11-15"
    commit(bucket, {folder: 3})
    closing = finalize.State(None, at("2026-11-16T00:00:00"))
    bucket.put(PLACE.finalized(), json.dumps(closing.value()).encode())
    finalize.after_commit(bucket, PLACE, export(), commit(bucket, {folder: 2}, first=3))
    found = success(bucket, folder)
    assert (found["published"], found["rows"], found["late_rows"]) == (1, 5, 0)


def test_a_range_that_is_replaced_takes_its_files_out_of_the_list() -> None:
    bucket = MemoryBucket()
    folder = "type=a/day=2026-11-15"
    commit(bucket, {folder: 3})
    kept = commit(bucket, {folder: 2}, partition=1)
    finalize.close(bucket, PLACE, export(), at("2026-11-17T00:00:00"))
    new = commit(bucket, {folder: 3}, fingerprint="1" * 12)
    finalize.after_commit(bucket, PLACE, export(), new)
    found = success(bucket, folder)
    assert [file["key"] for file in found["files"]] == sorted([kept.files[0].key, new.files[0].key])
    assert found["published"] == 2


@pytest.mark.parametrize("late", ["republish", "count"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_dying_at_any_call_ends_as_a_clean_run_does(late: str, when: str) -> None:
    def prepare() -> tuple[MemoryBucket, Manifest]:
        bucket = MemoryBucket()
        commit(bucket, {"type=a/day=2026-11-15": 3, "type=b/day=2026-11-15": 1})
        return bucket, commit(bucket, {"type=a/day=2026-11-15": 2, "type=c/day=2026-11-14": 1}, partition=1)

    def run(bucket: Bucket, manifest: Manifest) -> None:
        finalize.close(bucket, PLACE, export(late=late), at("2026-11-17T00:00:00"), workers=1)
        finalize.after_commit(bucket, PLACE, export(late=late), manifest, workers=1)

    def outcome(bucket: Bucket) -> dict[str, Any]:
        found = {key: listed(bucket, PLACE.prefix + key) for key in marks(bucket)}
        return {key: [file["key"] for file in value["files"]] for key, value in found.items()}

    clean, manifest = prepare()
    run(clean, manifest)
    for number in count(1):
        bucket, manifest = prepare()
        dying = DyingBucket(bucket, at=number, when=when)
        with suppress(Died):
            run(dying, manifest)
        run(bucket, manifest)
        assert outcome(bucket) == outcome(clean)
        assert finalize.state(bucket, PLACE) == finalize.state(clean, PLACE)
        if dying.calls < number:
            break
    assert number > 10


def test_in_a_local_directory_the_etags_are_the_manifests(tmp_path: Path) -> None:
    bucket = LocalBucket(tmp_path)
    manifests = [commit(bucket, {f"type={kind}/day=2026-11-15": 3 for kind in "abc"}, partition=n) for n in range(20)]
    done = finalize.close(bucket, PLACE, export(), at("2026-11-17T00:00:00"))
    assert len(done.published) == 3
    found = Publication.parse("k", success(bucket, "type=b/day=2026-11-15"))
    etags = {file.key: file.etag for manifest in manifests for file in manifest.files}
    assert len(found.files) == 20
    assert all(file.etag == etags[file.key] for file in found.files)
    late = commit(bucket, {"type=b/day=2026-11-15": 3}, partition=20)
    assert finalize.after_commit(bucket, PLACE, export(), late).rows == 3


@pytest.mark.parametrize("body", [b'{"closed": 5}', b'{"closed": "soon"}', b'{"closing": "2026-11-15T00:00:00"}'])
def test_a_record_that_is_not_ours_is_named(body: bytes) -> None:
    bucket = MemoryBucket()
    bucket.put(PLACE.finalized(), body, when=ABSENT)
    with pytest.raises(BucketError, match=r"_finalized\.json"):
        finalize.close(bucket, PLACE, export(), at("2026-11-17T00:00:00"))


def test_a_list_that_is_not_ours_is_named() -> None:
    bucket = MemoryBucket()
    commit(bucket, {"type=a/day=2026-11-15": 3})
    bucket.put(PLACE.success("type=a/day=2026-11-15"), b"{}")
    with pytest.raises(BucketError, match="type=a/day=2026-11-15/_SUCCESS"):
        finalize.close(bucket, PLACE, export(), at("2026-11-17T00:00:00"))

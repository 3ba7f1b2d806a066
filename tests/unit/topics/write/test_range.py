"""One range from batches to objects."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catchment.bucket.contract import ANY, Body, Precondition, Stat, Tags
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Wrapper
from catchment.errors import BucketError, NotFound, Unreachable
from catchment.testing.dying import Died, DyingBucket, lost_reply
from catchment.topics.files import parquet
from catchment.topics.manifest import MAX_HOLES, Manifest
from catchment.topics.work import Written
from catchment.topics.write import range as range_module
from catchment.topics.write.range import all_gaps
from catchment.topics.write.tally import Misread
from tests.unit.topics.write.ranges import (
    BACKUP,
    BEGIN,
    DAY,
    LARGE,
    Message,
    all_rows,
    event,
    events,
    json_export,
    memory,
    objects,
    refused,
    rows_of,
    work,
    write,
    written,
)

PREFIX = "topics/events/clicks/"


def manifest(found: Written) -> Manifest:
    """As the exporter would commit it: it cannot be made if something does not add up."""
    bounds = (found.first, found.last)
    return Manifest(
        found.topic, "id", found.source, *bounds, 1, "f", found.counts, found.files, found.dead, found.holes
    )


def test_a_backup_is_verbatim(tmp_path: Path) -> None:
    bucket = memory()
    given = [
        Message(5, b"\x00\xff", key=None, headers=(("h", b"1"), ("h", b"2")), timestamp=BEGIN + 7),
        Message(6, None, key=b"", timestamp_type=1),
        Message(7, b"", key=b"k", timestamp=-1, timestamp_type=-1),
    ]
    found = written(write(bucket, tmp_path, BACKUP, given, first=5))
    (file,) = found.files
    assert file.key.startswith("topics/backup/clicks/1_3_00000000000000000005-00000000000000000007_")
    table = pq.ParquetFile(io.BytesIO(bucket.get(file.key))).read()
    assert table.schema.names == ["key", "value", "headers", "timestamp", "timestamp_type", "offset"]
    assert table.schema.field("timestamp").type == pa.timestamp("ms", "UTC")
    assert table["key"].to_pylist() == [None, b"", b"k"]
    assert table["value"].to_pylist() == [b"\x00\xff", None, b""]
    assert table["headers"].to_pylist() == [[{"key": "h", "value": b"1"}, {"key": "h", "value": b"2"}], [], []]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [BEGIN + 7, BEGIN, -1]
    assert table["timestamp_type"].to_pylist() == ["CreateTime", "LogAppendTime", "NoTimestampType"]
    assert table["offset"].to_pylist() == [5, 6, 7]
    assert found.raw_bytes == 2 + 0 + 1
    assert (file.rows, file.first, file.last, file.oldest) == (3, 5, 7, None)
    manifest(found)


def test_a_file_says_what_it_is_of(tmp_path: Path) -> None:
    bucket = memory()
    (file,) = written(write(bucket, tmp_path, BACKUP, [Message(0, b"a")], last=4)).files
    about = json.loads(pq.ParquetFile(io.BytesIO(bucket.get(file.key))).metadata.metadata[b"catchment"])
    assert about == {"topic": "clicks", "kafka_partition": "3", "first": 0, "last": 4, "generation": 1}


def test_a_backup_by_key_header_and_time(tmp_path: Path) -> None:
    bucket = memory()
    split = {
        "key": {"key": True},
        "kind": {"header": "kind", "default": "none"},
        "day": {"timestamp": True, "by": "day"},
    }
    export = BACKUP.model_validate({"group": "backup", "split": split})
    given = [
        Message(0, b"0", key=b"x", headers=(("kind", b"a"),)),
        Message(1, b"1", key=b"y", timestamp=BEGIN + DAY),
        Message(2, b"2", key=None),
        Message(3, b"3", key=b"x", headers=(("kind", b"a"),), timestamp=BEGIN + 5),
    ]
    found = written(write(bucket, tmp_path, export, given))
    rows = {folder.removeprefix("topics/backup/clicks/"): rows for folder, rows in all_rows(bucket, found).items()}
    assert {folder: [row["offset"] for row in some] for folder, some in rows.items()} == {
        "key=x/kind=a/day=2024-10-04": [0, 3],
        "key=y/kind=none/day=2024-10-05": [1],
    }
    (dead,) = found.dead
    letter: dict[str, Any] = {
        "offset": 2,
        "timestamp": BEGIN,
        "key": None,
        "value": b"2",
        "headers": [],
        "timestamp_type": 0,
    }
    assert rows_of(bucket, dead.key) == [letter | {"reason": "key: the message has no key"}]
    assert found.files[0].oldest == "2024-10-04T00:00:00+00:00"
    assert found.files[0].newest == "2024-10-04T00:00:00.005000+00:00"
    manifest(found)


def test_json_by_type_and_day(tmp_path: Path) -> None:
    bucket = memory()
    given = events(100)
    found = written(write(bucket, tmp_path, json_export(), given, rows=30))
    assert (found.counts.read, found.counts.written) == (100, 100)
    expected: dict[str, list[int]] = {}
    for one in given:
        value = json.loads(one.value or b"")
        day = (value["at"] - BEGIN) // DAY
        expected.setdefault(f"{PREFIX}type={value['type']}/day=2024-10-{4 + day:02d}", []).append(one.offset)
    got = all_rows(bucket, found)
    assert {folder: [row["_offset"] for row in rows] for folder, rows in got.items()} == expected
    for rows in got.values():
        for row in rows:
            assert {name: row[name] for name in ("type", "at", "n", "text")} == json.loads(
                given[row["_offset"]].value or b""
            )
    assert {key for key in objects(bucket) if "_schemas" in key} == {f"{PREFIX}_schemas/{kind}.json" for kind in "abc"}
    manifest(found)


def test_what_a_filter_leaves_out_is_counted(tmp_path: Path) -> None:
    found = written(write(memory(), tmp_path, json_export(filter="n % 10 <> 3"), events(100)))
    assert (found.counts.written, found.counts.filtered) == (90, 10)
    manifest(found)


def test_a_filter_that_leaves_nothing_makes_no_files_and_no_schemas(tmp_path: Path) -> None:
    bucket = memory()
    found = written(write(bucket, tmp_path, json_export(filter="n < 0"), events(20)))
    assert found.files == () and found.counts.filtered == 20
    assert objects(bucket) == {}


def test_dead_letters_come_with_their_reasons_by_offset(tmp_path: Path) -> None:
    bucket = memory()
    given = events(40)
    given[7] = Message(7, b"{", key=b"seven")
    given[20] = Message(20, None)
    given[21] = event(21, "")
    given[30] = Message(30, json.dumps({"type": "a", "at": "yesterday"}).encode())
    given[31] = Message(31, b'{"type": "b"}')
    found = written(write(bucket, tmp_path, json_export(), given, rows=8))
    assert (found.counts.dead, found.counts.written) == (5, 35)
    (file,) = found.dead
    assert file.key.startswith(f"{PREFIX}_dead/1_3_")
    rows = rows_of(bucket, file.key)
    assert [row["offset"] for row in rows] == [7, 20, 21, 30, 31]
    assert rows[0] == {
        "offset": 7, "timestamp": BEGIN, "key": b"seven", "value": b"{", "reason": "not valid JSON",
    }  # fmt: skip
    assert rows[1]["value"] is None
    assert "no field 'type'" in rows[2]["reason"] and "is not a time" in rows[3]["reason"]
    assert rows[3]["value"] == given[30].value and rows[4]["value"] == given[31].value
    assert sum(number for _, number in found.reasons) == 5
    manifest(found)


@pytest.mark.parametrize(("share", "stops"), [(0.0, True), (0.002, True), (0.003, False), (1.0, False)])
def test_too_many_dead_letters_stop_the_export_and_put_nothing(tmp_path: Path, share: float, stops: bool) -> None:
    bucket = memory()
    given = [*events(1000)]
    for at in (5, 6, 7):
        given[at] = Message(at, b"nonsense")
    found = write(bucket, tmp_path, json_export(dead_letters={"stop_above": f"{share:.1%}"}), given)
    if not stops:
        assert written(found).counts.dead == 3
        return
    stopped = refused(found)
    assert not stopped.again
    assert "3 of 1000 messages" in stopped.reason and "[0, 999]" in stopped.reason
    assert "3 × not valid JSON" in stopped.reason and "Kafka partition 3" in stopped.reason
    assert "stop_above" in stopped.hint
    assert objects(bucket) == {}


def test_one_bad_message_in_ten_stops_nothing(tmp_path: Path) -> None:
    given = [*events(9), Message(9, b"nonsense")]
    assert written(write(memory(), tmp_path, json_export(), given)).counts.dead == 1


def test_holes_are_named(tmp_path: Path) -> None:
    given = [Message(offset, b"x") for offset in (12, 13, 17, 18, 25)]
    found = written(write(memory(), tmp_path, BACKUP, given, first=10, last=30, rows=2))
    assert found.holes == ((10, 11), (14, 16), (19, 24), (26, 30))
    assert (found.counts.read, found.counts.gaps) == (5, 16)
    manifest(found)


def test_very_many_holes_are_only_counted(tmp_path: Path) -> None:
    given = [Message(offset, b"x") for offset in range(0, 3 * MAX_HOLES, 2)]
    found = written(write(memory(), tmp_path, BACKUP, given))
    assert found.holes is None
    assert found.counts.gaps == len(given) - 1
    manifest(found)


def test_as_many_holes_as_are_allowed_are_named(tmp_path: Path) -> None:
    given = [Message(offset, b"x") for offset in range(0, 2 * MAX_HOLES + 1, 2)]
    found = written(write(memory(), tmp_path, BACKUP, given, rows=100))
    assert found.holes is not None and len(found.holes) == MAX_HOLES
    manifest(found)


def test_a_range_without_messages_is_all_gaps() -> None:
    found = all_gaps(work(BACKUP, 9, first=4))
    assert (found.counts.read, found.counts.gaps, found.holes) == (0, 6, ((4, 9),))
    manifest(found)


@pytest.mark.parametrize("offsets", [[0, 1, 1], [0, 2, 1], [3, 4], [8, 11], [0, 1, 2, 0]])
def test_messages_that_are_not_of_the_range_are_refused(tmp_path: Path, offsets: list[int]) -> None:
    first, last = (5, 10) if offsets[0] else (0, 10)
    bucket = memory()
    with pytest.raises(Misread, match="Kafka partition 3"):
        write(bucket, tmp_path, BACKUP, [Message(one, b"x") for one in offsets], first=first, last=last, rows=3)
    assert objects(bucket) == {}


def test_spilling_and_batches_change_nothing(tmp_path: Path) -> None:
    given = events(3000)
    given[700] = Message(700, b"nonsense")
    given[2100] = event(2100, "b", late="a new field")
    plain = memory()
    one = written(write(plain, tmp_path / "a", json_export(), given))
    for rows, budget in ((7, 1), (500, 20_000), (3000, 100_000)):
        bucket = memory()
        other = written(write(bucket, tmp_path / f"{rows}", json_export(), given, rows=rows, budget=budget))
        assert objects(bucket) == objects(plain)
        assert (other.files, other.dead, other.counts) == (one.files, one.dead, one.counts)


def test_spilling_happens(tmp_path: Path) -> None:
    write(memory(), tmp_path, json_export(), events(3000), rows=100, budget=20_000)
    assert len(list((tmp_path / "rows").glob("spill-*"))) > 2


def test_row_groups_do_not_depend_on_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 64)
    monkeypatch.setattr(range_module, "IN_MEMORY", 1000)
    given = [Message(offset, b"value %d" % offset) for offset in range(300)]
    one, other = memory(), memory()
    (file,) = written(write(one, tmp_path / "a", BACKUP, given, rows=300)).files
    written(write(other, tmp_path / "b", BACKUP, given, rows=11, budget=500))
    assert objects(one) == objects(other)
    about = pq.ParquetFile(io.BytesIO(one.get(file.key))).metadata
    assert [about.row_group(at).num_rows for at in range(about.num_row_groups)] == [64, 64, 64, 64, 44]
    assert [row["offset"] for row in rows_of(one, file.key)] == list(range(300))
    assert not [*tmp_path.glob("*/file-*")], "a file that is put is removed"


def test_many_dead_letters_stay_in_order_without_fitting_in_memory(tmp_path: Path) -> None:
    bucket = memory()
    given = [Message(n, b"nonsense") if n % 2 else event(n, "ab"[n % 4 // 2]) for n in range(2000)]
    export = json_export(dead_letters={"stop_above": "100%"})
    found = written(write(bucket, tmp_path, export, given, rows=50, budget=40_000))
    assert [row["offset"] for row in rows_of(bucket, found.dead[0].key)] == list(range(1, 2000, 2))
    assert (found.dead[0].first, found.dead[0].last) == (1, 1999)


def test_a_second_attempt_leaves_what_is_there(tmp_path: Path) -> None:
    bucket = memory()
    given = [*events(50), Message(50, b"nonsense")]
    one = written(write(bucket, tmp_path, json_export(), given))
    before = {entry.key: entry for entry in bucket.list()}
    other = written(write(bucket, tmp_path, json_export(), given))
    assert (other.files, other.dead) == (one.files, one.dead)
    assert {entry.key: entry for entry in bucket.list()} == before


def test_an_object_packed_by_another_version_is_taken_over(tmp_path: Path) -> None:
    bucket = memory()
    given = events(50)
    file = written(write(bucket, tmp_path, json_export(), given)).files[0]
    sink = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(bucket.get(file.key))), sink, compression="none")
    stat = bucket.put(file.key, sink.getvalue())
    again = written(write(bucket, tmp_path, json_export(), given)).files[0]
    assert (again.etag, again.size, again.rows) == (stat.etag, len(sink.getvalue()), file.rows)


def test_an_object_with_other_rows_is_never_taken_for_ours(tmp_path: Path) -> None:
    bucket = memory()
    given = events(50)
    file = written(write(bucket, tmp_path, json_export(), given)).files[0]
    sink = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(bucket.get(file.key))).slice(1), sink)
    bucket.put(file.key, sink.getvalue())
    with pytest.raises(BucketError, match=f"with {file.rows - 1} rows"):
        write(bucket, tmp_path, json_export(), given)


class Remembering(Wrapper):
    """Says Conflict once for each key as if it were there, and then does not find it: seen after deletes."""

    def __init__(self, inner: MemoryBucket) -> None:
        super().__init__(inner)
        self._told: set[str] = set()

    def put(self, key: str, body: Body, *, when: Precondition = ANY, tags: Tags | None = None) -> Stat:
        if when.absent and key not in self._told and key.endswith(".parquet"):
            self._told.add(key)
            when.check(key, "it was here a moment ago")
        return super().put(key, body, when=when, tags=tags)


def test_an_object_that_is_there_and_is_not_is_put(tmp_path: Path) -> None:
    bucket = memory()
    with pytest.raises(NotFound):
        bucket.head("x")
    found = written(write(Remembering(bucket), tmp_path, json_export(), events(10)))
    assert sum(len(rows) for rows in all_rows(bucket, found).values()) == 10


def test_a_schema_recorded_by_another_meanwhile_refuses_the_range(tmp_path: Path) -> None:
    bucket = memory()
    rival = json_export()

    class Overtaken(Wrapper):
        """While our range is settled, another replica records that `n` is text."""

        done = False

        def put(self, key: str, body: Body, *, when: Precondition = ANY, tags: Tags | None = None) -> Stat:
            if "_schemas/a" in key and not self.done:
                self.done = True
                write(bucket, tmp_path / "rival", rival, [event(1000, "a", n="text")], first=1000)
            return super().put(key, body, when=when, tags=tags)

    given = [event(n, "a", n=n) for n in range(10)]
    moved = refused(write(Overtaken(bucket), tmp_path, json_export(), given))
    assert moved.again
    assert not [key for key in objects(bucket) if "_3_00000000000000000000-" in key], "nothing was put before"
    export = json_export(dead_letters={"stop_above": "100%"})
    found = written(write(bucket, tmp_path, export, given))
    assert found.counts.dead == 10, "a number is not the text that was recorded"


def test_fields_added_by_another_meanwhile_are_columns_of_nulls(tmp_path: Path) -> None:
    bucket = memory()

    class Overtaken(Wrapper):
        done = False

        def put(self, key: str, body: Body, *, when: Precondition = ANY, tags: Tags | None = None) -> Stat:
            if "_schemas/a" in key and not self.done:
                self.done = True
                write(bucket, tmp_path / "rival", json_export(), [event(1000, "a", more="x")], first=1000)
            return super().put(key, body, when=when, tags=tags)

    given = [event(n, "a", n=n) for n in range(3)]
    found = written(write(Overtaken(bucket), tmp_path, json_export(), given))
    (rows,) = all_rows(bucket, found).values()
    assert [(row["n"], row["more"]) for row in rows] == [(0, None), (1, None), (2, None)]
    again = written(write(bucket, tmp_path, json_export(), given))
    assert again.files == found.files, "another attempt with the recorded schema has the same names"


def test_what_batches_teach_about_a_type_holds_for_every_later_attempt(tmp_path: Path) -> None:
    values = [b'{"type": "a", "at": 1728000000000, "v": 1}', b'{"type": "a", "at": 1728000000000, "v": "x"}']
    given = [Message(offset, value) for offset, value in enumerate(values)]
    export = json_export(dead_letters={"stop_above": "100%"})
    for rows, budget in ((1, 1), (2, LARGE)):  # apart, the first message says what v is; together, both do
        bucket = memory()
        one = written(write(bucket, tmp_path, export, given, rows=rows, budget=budget))
        before = objects(bucket)
        other = written(write(bucket, tmp_path, export, given, rows=3 - rows, budget=LARGE + 1 - budget))
        assert (other.files, other.dead, other.counts) == (one.files, one.dead, one.counts)
        assert objects(bucket) == before


def test_two_types_that_share_a_folder_do_not_share_a_name(tmp_path: Path) -> None:
    bucket = memory()
    export = json_export(split={"type": {"field": "v"}})
    given = [Message(0, b'{"v": 1.0, "a": 1}'), Message(1, b'{"v": 1, "a": 2}'), Message(2, b'{"v": "1.0", "a": 3}')]
    found = written(write(bucket, tmp_path, export, given))
    assert found.counts.written + found.counts.dead == 3
    assert sum(len(rows_of(bucket, file.key)) for file in found.files) == found.counts.written
    assert len({file.key for file in found.files}) == len(found.files)
    manifest(found)


@pytest.mark.parametrize("when", ["before", "after"])
def test_every_call_dies_once(tmp_path: Path, when: str) -> None:
    given = [*events(12), Message(12, b"nonsense")]
    clean = memory()
    expected = written(write(clean, tmp_path, json_export(), given))
    for at in count(1):
        bucket = memory()
        dying = DyingBucket(bucket, at=at, when=when)
        with suppress(Died):
            write(dying, tmp_path, json_export(), given)
        if dying.calls < at:
            break
        found = written(write(bucket, tmp_path, json_export(), given))
        assert (found.files, found.dead) == (expected.files, expected.dead)
        assert objects(bucket) == objects(clean)
    assert at > 15


def test_every_reply_is_lost_once(tmp_path: Path) -> None:
    given = [*events(12), Message(12, b"nonsense")]
    clean = memory()
    expected = written(write(clean, tmp_path, json_export(), given))
    for at in count(1):
        bucket = memory()
        dying = DyingBucket(bucket, at=at, when="after", error=lost_reply())
        with suppress(Unreachable):
            write(dying, tmp_path, json_export(), given)
        if dying.calls < at:
            break
        found = written(write(bucket, tmp_path, json_export(), given))
        assert (found.files, found.dead) == (expected.files, expected.dead)
        assert objects(bucket) == objects(clean)


MESSAGES = st.lists(
    st.one_of(
        st.builds(
            lambda kind, day, more: json.dumps({"type": kind, "at": BEGIN + day * DAY, **more}).encode(),
            st.sampled_from(["a", "b", "c/d", "ü"]),
            st.integers(0, 3),
            st.dictionaries(st.sampled_from(["x", "y"]), st.integers(0, 9), max_size=2),
        ),
        st.sampled_from([b"", b"{", b"[]", b'{"type": null}', b'{"type": "a"}', b'{"type": "d", "at": "x"}', None]),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MESSAGES, st.sets(st.integers(0, 60)), st.integers(1, 50), st.sampled_from([1, 2000, 256_000_000]))
def test_every_offset_is_somewhere_once(
    tmp_path: Path, values: list[bytes | None], gaps: set[int], rows: int, budget: int
) -> None:
    offsets = [offset for offset in range(100) if offset not in gaps][: len(values)]
    given_messages = [Message(offset, value) for offset, value in zip(offsets, values, strict=True)]
    export = json_export(dead_letters={"stop_above": "100%"}, filter="x IS NULL OR x <> 3")
    bucket, plain = memory(), memory()
    found = written(write(bucket, tmp_path, export, given_messages, last=120, rows=rows, budget=budget))
    manifest(found)
    seen: list[int] = [row["_offset"] for some in all_rows(bucket, found).values() for row in some]
    seen += [row["offset"] for file in found.dead for row in rows_of(bucket, file.key)]
    assert len(seen) == len(set(seen)) and set(seen) <= set(offsets)
    assert len(seen) + found.counts.filtered == len(offsets)
    whole: Any = write(plain, tmp_path, export, given_messages, last=120)
    assert (written(whole).files, whole.dead) == (found.files, found.dead)

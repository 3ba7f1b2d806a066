"""Messages and moments that would make a range depend on more than its records, or keep it from being written."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catchment.bucket.contract import ANY, Body, Bucket, Precondition, Stat, Tags
from catchment.bucket.wrap import Wrapper
from catchment.config.storage import Storage
from catchment.config.topics import Export
from catchment.topics import jaas
from catchment.topics.files import parquet as parquet_module
from catchment.topics.work import Refused, Target, Written
from catchment.topics.write import decoded, job
from catchment.topics.write.explain import hidden
from catchment.topics.write.range import write_range
from tests.unit.topics.write.ranges import (
    BEGIN,
    LARGE,
    Message,
    batches,
    event,
    memory,
    objects,
    refused,
    rows_of,
    work,
    write,
    written,
)

PREFIX = "topics/events/clicks/"


def export(**values: Any) -> Export:
    split = {"type": {"field": "type"}}
    given = {"group": "events", "decode": "json", "split": split, "dead_letters": {"stop_above": "100%"}, **values}
    return Export.model_validate(given)


def messages(*values: object) -> list[Message]:
    return [Message(at, one if isinstance(one, bytes) else json.dumps(one).encode()) for at, one in enumerate(values)]


def schemas(bucket: Bucket) -> dict[str, bytes]:
    return {entry.key: bucket.get(entry.key) for entry in bucket.list(f"{PREFIX}_schemas/")}


def again(bucket: Bucket, scratch: Path, export: Export, given: list[Message], **how: Any) -> tuple[Bucket, Written]:
    """The same records with the schemas that an earlier attempt recorded, elsewhere and cut otherwise."""
    other = memory()
    for key, body in schemas(bucket).items():
        other.put(key, body)
    return other, written(write(other, scratch, export, given, **how))


def dead(bucket: Bucket, found: Written) -> list[int]:
    return [row["offset"] for file in found.dead for row in rows_of(bucket, file.key)]


@pytest.mark.parametrize("inner", ["text", 1.5, True, {"c": 1}])
def test_a_number_whose_name_is_the_path_of_another_field_is_written(tmp_path: Path, inner: object) -> None:
    bucket = memory()
    (file,) = written(write(bucket, tmp_path, export(), messages({"type": "a", "a": {"b": inner}, "a.b": 5}))).files
    (row,) = rows_of(bucket, file.key)
    assert (row["a"], row["a.b"]) == ({"b": inner}, 5)


@pytest.mark.parametrize("size", [201, 300, 1100, 100_000])
def test_a_type_that_no_object_can_be_called_by_is_a_dead_letter_and_no_end(tmp_path: Path, size: int) -> None:
    bucket = memory()
    found = written(write(bucket, tmp_path, export(), messages({"type": "b"}, {"type": "t" * size, "x": 1})))
    assert dead(bucket, found) == [1]
    assert "too long" in found.reasons[0][0]
    assert [*schemas(bucket)] == [f"{PREFIX}_schemas/b.json"]


def test_a_long_default_is_a_dead_letter_too(tmp_path: Path) -> None:
    bucket = memory()
    split = {"type": {"field": "type", "default": "d" * 2000}}
    found = written(write(bucket, tmp_path, export(split=split), messages({"type": "b"}, {"x": 1})))
    assert dead(bucket, found) == [1]


@pytest.mark.parametrize("inner", ["STRUCT<>", "ARRAY<STRUCT<>>", "STRUCT<deep: STRUCT<>>", "MAP<STRING, STRUCT<>>"])
def test_a_map_of_nothing_has_no_column(tmp_path: Path, inner: str) -> None:
    bucket = memory()
    decode = {"name": "json", "schemas": {"*": f"m MAP<STRING, {inner}>"}}
    given = messages({"type": "a", "m": {}}, {"type": "a", "m": None}, {"type": "a", "x": 1})
    (file,) = written(write(bucket, tmp_path, export(decode=decode), given)).files
    assert {*rows_of(bucket, file.key)[0]} == {"type", "x", "_offset", "_timestamp"}


def test_a_map_gets_its_column_once_something_is_in_it(tmp_path: Path) -> None:
    bucket = memory()
    decode = {"name": "json", "schemas": {"*": "m MAP<STRING, STRUCT<>>"}}
    given = messages({"type": "a", "m": {"k": {}}}, {"type": "a", "m": {"k": {"x": 1}}})
    (file,) = written(write(bucket, tmp_path, export(decode=decode), given, rows=1, budget=1)).files
    assert [row["m"] for row in rows_of(bucket, file.key)] == [[("k", {"x": None})], [("k", {"x": 1})]]


def test_what_is_dead_is_so_by_the_schema_that_is_recorded(tmp_path: Path) -> None:
    # Of hundreds one has another kind, and one has both: either all that fits what is recorded is written, or nothing.
    bucket = memory()
    given = messages(*[{"type": "a", "x": ["s"]}] * 300, {"type": "a", "x": [1]}, {"type": "a", "x": [1, "s"]})
    first = written(write(bucket, tmp_path, export(), given))
    other, second = again(bucket, tmp_path, export(), given)
    assert second.counts == first.counts
    assert dead(other, second) == dead(bucket, first)
    assert [file.key for file in second.files] == [file.key for file in first.files]


_WORDS = ["1", "2.5", "1e3", "true", "null", '"t"', '""', "{}", "[]", "[1]", '["s"]', '{"a":1}', '{"a":"s","b":null}']
_WORDS += ["9007199254740993", "-0.0", '{"a":{"c":[{}]}}', '[{"a":1},null]', '"2024-01-01T00:00:00Z"', "NaN", '[1,"s"]']


def _made_up(chance: random.Random) -> bytes:
    if chance.random() < 0.05:
        return chance.choice([b"", b"{", b"[]", b"\xff", b'{"type":"a",}'])
    names = chance.sample(["x", "y", "X", "a", "a.b", ""], chance.randint(0, 3))
    fields = "".join(f",{json.dumps(name)}:{chance.choice(_WORDS)}" for name in names)
    return f'{{"type":"{chance.choice("aab")}","at":{BEGIN + chance.randint(0, 2) * 86_400_000}{fields}}}'.encode()


@pytest.mark.parametrize("seed", range(5))
def test_records_and_recorded_schema_say_all(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    given = [Message(at, _made_up(chance)) for at in range(60)]
    split = {"type": {"field": "type"}, "day": {"field": "at", "unit": "ms", "by": "day"}}
    monkeypatch.setattr(parquet_module, "GROUP_ROWS", 16)
    monkeypatch.setattr(decoded, "PIECE", chance.choice([300, 1000, 8 << 20]))
    bucket = memory()
    first = written(write(bucket, tmp_path / "1", export(split=split), given, rows=chance.choice([7, 1000])))
    monkeypatch.setattr(decoded, "PIECE", chance.choice([200, 2000]))
    how = {"rows": chance.choice([3, 20]), "budget": chance.choice([40, 4000, LARGE])}
    other, second = again(bucket, tmp_path / "2", export(split=split), given, **how)
    assert second.counts == first.counts
    assert second.files == first.files  # keys, ETags, offsets and times
    assert dead(other, second) == dead(bucket, first)


def test_what_is_read_is_read_to_its_end_though_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Spark takes a task that leaves its input unread for a failed one.
    monkeypatch.setattr(decoded, "PIECE", 1)
    left = [*batches([event(at, x="no number") for at in range(50)], 10)]
    read: list[int] = []

    def source() -> Iterator[pa.RecordBatch]:
        for batch in left:
            read.append(batch.num_rows)
            partition = pa.array([3] * batch.num_rows, pa.int32())
            yield batch.append_column("partition", partition)

    mine = work(export(filter="CAST(x AS INTEGER) > 0"), 49)
    storage = Storage.model_validate({"id": "main", "path": str(tmp_path)})
    (row,) = job.run_task({("clicks", 3): mine}, Target(storage), source())
    _, answer = pickle.loads(row["answer"][0].as_py())
    assert isinstance(answer, Refused), answer
    assert "the filter" in answer.reason
    assert sum(read) == 50


class Meanwhile(Wrapper):
    """Another replica writes its range just before the first schema of this one is recorded."""

    def __init__(self, bucket: Bucket, other: Any) -> None:
        super().__init__(bucket)
        self._other = other

    def put(self, key: str, body: Body, *, when: Precondition = ANY, tags: Tags | None = None) -> Stat:
        if "_schemas/" in key and self._other is not None:
            other, self._other = self._other, None
            other()
        return super().put(key, body, when=when, tags=tags)


@pytest.mark.parametrize(
    ("theirs", "refuses"),
    [({"y": 1}, False), ({"x": 7, "y": 1}, False), ({"x": {"deep": 1}}, True), ({"X": 1}, True), ({"x": "t"}, True)],
)
def test_two_that_grow_one_type_at_once(tmp_path: Path, theirs: dict[str, Any], refuses: bool) -> None:
    bucket = memory()
    ours, others = messages(*[{"type": "a", "x": 1}] * 3), messages({"type": "a", **theirs})

    def other() -> None:
        written(write(bucket, tmp_path / "other", export(), others, last=99))

    found = write(Meanwhile(bucket, other), tmp_path / "ours", export(), ours)
    if refuses:
        assert refused(found).again
        assert not [key for key in objects(bucket) if key.endswith("00000002_") or "-00000000000000000002_" in key]
        found = write(bucket, tmp_path / "again", export(), ours)
    done = written(found)
    assert done.counts.written + done.counts.dead == 3
    # A third attempt has nothing more to learn: what is recorded is what the files are named by.
    third = written(write(bucket, tmp_path / "third", export(), ours))
    assert (third.files, third.dead, third.counts) == (done.files, done.dead, done.counts)
    assert len(schemas(bucket)) == 1


def test_a_worker_with_an_old_schema_is_refused_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded, "_KNOWN", {})
    bucket = memory()
    given = messages({"type": "a", "x": 1})
    mine = replace(work(export(), 0), owner="us")
    written(write_range(mine, batches(given), bucket, tmp_path / "1", LARGE))
    written(write(bucket, tmp_path / "2", export(), messages({"type": "a", "y": 1}), last=5))  # by another process
    text = messages({"type": "a", "y": "text"})
    old = write_range(replace(mine, last=7), batches(text), bucket, tmp_path / "3", LARGE)
    assert refused(old).again
    now = written(write_range(replace(mine, last=7), batches(text), bucket, tmp_path / "4", LARGE))
    assert (now.counts.dead, now.counts.gaps) == (1, 7)


@pytest.mark.xfail(strict=True, reason="DuckDB writes numbers anew when it takes a field out of a message")
@pytest.mark.parametrize("number", ["0.12345678901234567890123", "1.10", "1E5"])
@pytest.mark.parametrize("declared", ["s STRING", ""])
def test_a_number_kept_as_text_is_as_it_was_written(tmp_path: Path, number: str, declared: str) -> None:
    bucket = memory()
    decode = {"name": "json", "schemas": {"*": declared}} if declared else "json"
    given = messages(b'{"type":"a","s":"t"}', f'{{"type":"a","s":{number}}}'.encode(), b'{"type":"a","s":{"k":1}}')
    (file,) = written(write(bucket, tmp_path, export(decode=decode), given)).files
    assert rows_of(bucket, file.key)[1]["s"] == number


def test_what_is_kept_as_text_is_whole_from_the_first(tmp_path: Path) -> None:
    bucket = memory()
    given = messages(b'{"type":"a","x":1}', b'{"type":"a","x":{"k":{"z":{}},"k":2}}')
    first = written(write(bucket, tmp_path, export(), given))
    other, second = again(bucket, tmp_path, export(), given)
    assert [file.key for file in second.files] == [file.key for file in first.files]
    assert rows_of(other, second.files[0].key) == rows_of(bucket, first.files[0].key)


@pytest.mark.xfail(strict=True, reason="a column a.b hides the field b of a, also in rows that have none")
def test_a_folder_depends_on_the_row_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split = {"type": {"field": "type"}, "land": {"field": "a.b", "default": "none"}}
    given = messages({"type": "a", "a": {"b": "de"}}, {"type": "a", "a.b": "fr"})
    bucket = memory()
    first = written(write(bucket, tmp_path, export(split=split), given, rows=1, budget=1))
    _, second = again(bucket, tmp_path, export(split=split), given)
    assert [file.key for file in second.files] == [file.key for file in first.files]


@pytest.mark.xfail(strict=True, reason="a condition is asked with the columns that are known by then")
def test_a_condition_sees_the_row_alone(tmp_path: Path) -> None:
    wanted = export(filter="CAST(x AS VARCHAR) NOT LIKE '%NULL%'")
    given = messages({"type": "a", "x": {"p": 1}}, {"type": "a", "x": {"p": 1, "q": 2}})
    bucket = memory()
    first = written(write(bucket, tmp_path, wanted, given, rows=1, budget=1))
    _, second = again(bucket, tmp_path, wanted, given)
    assert second.counts == first.counts


@pytest.mark.parametrize("password", ['se"cr\\et7', "plain77", "it's 77"])
def test_a_password_is_hidden_as_it_is_meant_too(password: str) -> None:
    line = jaas.jaas("PLAIN", "user", password)
    assert password not in hidden(f"login with {password} failed", {"sasl.jaas.config": line})
    bare = "org.example.Login required username=user password=plain77;"
    assert "plain77" not in hidden("login with plain77 failed", {"sasl.jaas.config": bare})

"""Batches applied to Delta tables, on a local directory."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from catchment.tables.names import Batch, Publication
from catchment.tables.settings import Disposition
from catchment.tables.work import Applied, BatchFailed
from tests.spark.batches import BASE, ORDERS, Lake, lines, load, query

ONE = {"a.json": lines({"id": 1, "v": "a"}, {"id": 2, "v": "b"})}
TWO = {"a.json": lines({"id": 3, "v": "c"})}
TARGET = "{dest_dataset}.{dest_table}"
MERGE = f"""MERGE INTO {TARGET} AS t USING batch AS b ON t.id = b.id
    WHEN MATCHED THEN UPDATE SET v = t.v || b.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (b.id, b.v)"""


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake.at(spark, tmp_path)


# -- loads


def test_batches_are_appended_and_told_in_the_history(lake: Lake) -> None:
    first = lake.job("1", ONE)
    assert lake.engine.applied(first.batch) is None
    done = lake.engine.apply(first)
    assert (done.version, done.rows, done.already) == (0, 2, False)
    assert lake.apply("2", TWO).version == 1
    assert lake.rows("id", "v") == [(1, "a"), (2, "b"), (3, "c")]
    assert lake.engine.applied(first.batch) == 0
    newest, oldest = lake.engine.history(ORDERS)
    assert [(one.version, one.rows, one.operation) for one in (newest, oldest)] == [(1, 1, "WRITE"), (0, 2, "WRITE")]
    assert newest.note is not None and oldest.note is not None
    assert (newest.note.batch, oldest.note.publication) == ("2", first.batch.publication.id)
    assert newest.seconds is not None


def test_a_batch_is_applied_once_however_often_and_by_whomever(lake: Lake) -> None:
    job = lake.job("1", ONE)
    assert not lake.engine.apply(job).already
    again = lake.engine.apply(job)
    assert (again.version, again.rows, again.already) == (0, 2, True)
    other = Lake.of(lake.spark, lake.storage)  # as another process: it knows nothing yet
    assert other.engine.apply(job).already
    assert other.engine.applied(job.batch) == 0
    published = replace(job, batch=replace(job.batch, publication=replace(job.batch.publication, id="again")))
    assert (lake.engine.apply(published).version, other.engine.applied(published.batch)) == (1, 1)


def test_truncating_and_replacing_a_partition_are_one_commit_each(lake: Lake) -> None:
    lake.apply("day=1", ONE, load(by=("day",)))
    lake.apply("day=2", TWO, load(by=("day",)))
    replacing = load(Disposition.PARTITION, by=("day",), partition={"day": "1"})
    assert lake.apply("day=1", {"a.json": lines({"id": 9, "v": "z"})}, replacing).version == 2
    assert lake.rows("id", "day") == [(3, "2"), (9, "1")]
    assert lake.apply("day=3", {"a.json": lines({"id": 7, "v": "y"})}, load(Disposition.TRUNCATE)).version == 3
    assert lake.rows("id", "day") == [(7, "3")]
    folders = {entry.key.split("/")[3] for entry in lake.bucket.list(f"{ORDERS.warehouse}/") if "day=" in entry.key}
    assert folders == {"day=1", "day=2", "day=3"}


@pytest.mark.parametrize("made", [False, True], ids=["a new table", "one that is there"])
def test_rows_outside_of_the_partition_are_refused(lake: Lake, made: bool) -> None:
    if made:
        lake.apply("0", {"a.json": lines({"id": 1, "day": "1"})}, load(by=("day",)))
    replacing = load(Disposition.PARTITION, by=("day",), partition={"day": "1"})
    with pytest.raises(BatchFailed, match="outside of the partition"):
        lake.apply("$1", {"a.json": lines({"id": 2, "day": "1"}, {"id": 3, "day": "2"})}, replacing)
    assert lake.versions() == int(made)
    assert lake.apply("$1", {"a.json": lines({"id": 2})}, replacing).rows == 1  # the partition is said by the path
    assert lake.rows("id", "day") == [(2, "1")]


def _parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pa.parquet.write_table(table, out)
    return out.getvalue()


def _orc(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pa.orc.write_table(table, out)
    return out.getvalue()


def _avro(table: pa.Table) -> bytes:
    fields = [{"name": "id", "type": "long"}, {"name": "v", "type": "string"}]
    out = io.BytesIO()
    fastavro.writer(out, {"type": "record", "name": "r", "fields": fields}, table.to_pylist())
    return out.getvalue()


def _csv(table: pa.Table) -> bytes:
    return "".join(f"{row['id']};{row['v']}\n" for row in table.to_pylist()).encode()


def _json(table: pa.Table) -> bytes:
    return lines(*table.to_pylist()).encode()


@pytest.mark.parametrize(
    ("format", "write", "how"),
    [
        ("parquet", _parquet, {}),
        ("orc", _orc, {}),
        ("avro", _avro, {}),
        ("csv", _csv, {"options": {"sep": ";"}, "schema": "id BIGINT, v STRING, day DATE"}),
        ("json", _json, {}),
    ],
)
def test_every_format_with_the_columns_of_the_path(
    lake: Lake, format: str, write: Callable[[pa.Table], bytes], how: dict[str, Any]
) -> None:
    tables = [pa.table({"id": [1, 2], "v": ["a", "b"]}), pa.table({"id": [3], "v": ["c"]})]
    files = {f"part [{at}] *.x": write(table) for at, table in enumerate(tables)}
    lake.bucket.put(f"{BASE}day=2026-11-15/not of the batch.x", b"nonsense")
    done = lake.apply("day=2026-11-15", files, format=format, **how)
    assert done.rows == 3
    assert [(id, v, str(day)) for id, v, day in lake.rows("id", "v", "day")] == [
        (1, "a", "2026-11-15"),
        (2, "b", "2026-11-15"),
        (3, "c", "2026-11-15"),
    ]


def test_columns_of_the_path_win_over_the_files_and_folders_below_add_more(lake: Lake) -> None:
    files = {"region=eu/a.json": lines({"id": 1, "day": "x"}), "region=us/a.json": lines({"id": 2, "day": "x"})}
    lake.apply("day=1", files)
    assert lake.rows("id", "day", "region") == [(1, "1", "eu"), (2, "1", "us")]


def test_columns_that_only_some_files_have_are_read(lake: Lake) -> None:
    files = {"a": _parquet(pa.table({"id": [1]})), "b": _parquet(pa.table({"id": [2], "v": ["b"]}))}
    lake.apply("1", files, format="parquet")
    assert lake.rows("id", "v") == [(1, None), (2, "b")]


def test_csv_takes_the_types_of_the_table_and_nothing_becomes_null_in_silence(lake: Lake) -> None:
    header: dict[str, Any] = {"options": {"header": "true"}, "format": "csv"}
    lake.apply("1", {"a.csv": "id,v\n1,a\n"}, schema="id INT, v STRING", **header)
    lake.apply("2", {"a.csv": "v,id\nb,2\n"}, **header)
    assert lake.rows("id", "v") == [(1, "a"), (2, "b")]
    with pytest.raises(BatchFailed, match=r"Malformed records.*\[null,c\]"):
        lake.apply("3", {"a.csv": "id,v\nx,c\n"}, **header)
    with pytest.raises(BatchFailed):
        lake.apply("4", {"a.csv": "v,id\nd,4\n"}, schema="id INT, v STRING", **header)  # in another order
    assert lake.versions() == 2


def test_new_columns_are_refused_or_added_as_the_config_says(lake: Lake) -> None:
    lake.apply("1", ONE)
    wider = {"a.json": lines({"id": 4, "v": "d", "w": {"x": 1}})}
    with pytest.raises(BatchFailed, match=r"no column w \(struct<x:bigint>\).*add columns"):
        lake.apply("2", wider)
    assert lake.apply("2", wider, evolution="add columns").version == 1
    assert lake.rows("id", "w.x") == [(1, None), (2, None), (4, 1)]
    lake.apply("3", {"a.json": lines({"id": 5})})  # what it lacks is null
    with pytest.raises(BatchFailed, match=r"no column w\.y \(string\)"):
        lake.apply("4", {"a.json": lines({"id": 6, "w": {"y": "z"}})}, schema="id BIGINT, w STRUCT<y: STRING>")


@pytest.mark.parametrize("evolution", ["fail", "add columns"])
def test_other_types_are_refused_but_numbers_are_widened(lake: Lake, evolution: str) -> None:
    lake.apply("1", ONE)
    with pytest.raises(BatchFailed, match=r"id \(string instead of bigint\)"):
        lake.apply("2", {"a.json": lines({"id": "x"})}, schema="id STRING", evolution=evolution)
    lake.apply("3", {"a.json": lines({"id": 3, "v": "c"})}, schema="id INT, v STRING", evolution=evolution)
    assert (3, "c") in lake.rows("id", "v")


# -- zero rows


@pytest.mark.parametrize("files", [{}, {"a.csv": "id,v\n"}], ids=["no files", "no rows"])
@pytest.mark.parametrize("disposition", [Disposition.APPEND, Disposition.TRUNCATE])
def test_no_rows_are_refused_unless_they_are_allowed(lake: Lake, files: Any, disposition: Disposition) -> None:
    how: dict[str, Any] = {"format": "csv", "options": {"header": "true"}}
    lake.apply("1", ONE)
    job = lake.job("2", files, load(disposition), **how)
    with pytest.raises(BatchFailed, match="allow_zero_rows"):
        lake.engine.apply(job)
    assert (lake.versions(), len(lake.rows())) == (1, 2)
    assert lake.engine.applied(job.batch) is None
    allowed = replace(job, settings=replace(job.settings, allow_zero_rows=True))
    done = lake.engine.apply(allowed)
    assert (done.rows, lake.engine.applied(job.batch)) == (0, 1)
    assert lake.engine.apply(allowed).already
    assert len(lake.rows()) == (2 if disposition is Disposition.APPEND else 0)


def test_an_empty_batch_may_be_the_first_and_the_next_says_what_the_columns_are(lake: Lake) -> None:
    empty = lake.job("0", {}, zero=True)
    assert lake.engine.apply(empty).version == 0
    assert lake.apply("day=1", ONE, load(by=("day",))).version == 1
    assert lake.engine.applied(empty.batch) == 0
    assert lake.rows("id", "day") == [(1, "1"), (2, "1")]


# -- queries


def test_a_merge_builds_on_the_batches_before(lake: Lake) -> None:
    lake.apply("0", ONE)
    done = lake.apply("1", {"a.json": lines({"id": 1, "v": "x"}, {"id": 3, "v": "y"})}, query(MERGE))
    assert (done.version, done.rows) == (1, 2)
    job = lake.job("2", {"a.json": lines({"id": 1, "v": "!"})}, query(MERGE))
    assert lake.engine.apply(job).rows == 1
    assert lake.engine.apply(job).already
    assert lake.rows("id", "v") == [(1, "ax!"), (2, "b"), (3, "y")]
    newest = next(lake.engine.history(ORDERS))
    assert (newest.version, newest.operation, newest.rows) == (2, "MERGE", 1)


def test_views_columns_of_the_path_and_every_statement(lake: Lake) -> None:
    lake.apply("0", ONE)
    view = f"CREATE TEMPORARY VIEW good AS SELECT * FROM temp_ext WHERE id NOT IN (SELECT id FROM {TARGET})"
    insert = query(f"INSERT INTO {TARGET} (id, v) SELECT id, day FROM good", view)
    assert lake.apply("day=7", {"a.json": lines({"id": 1}, {"id": 8})}, insert).rows == 1
    update = query("UPDATE {dest_dataset}.{dest_table} SET v = 'u' WHERE {dest_table}.id = 8")
    assert lake.apply("2", {"a.json": lines({"id": 8})}, update).rows == 1
    delete = query("DELETE FROM `{dest_dataset}`.`{dest_table}` WHERE id = 1")
    assert lake.apply("3", {"a.json": lines({"id": 1})}, delete).rows == 1
    assert lake.rows("id", "v") == [(2, "b"), (8, "u")]


STATEMENTS = {
    "merge": MERGE.replace("WHEN NOT MATCHED THEN INSERT (id, v) VALUES (b.id, b.v)", ""),
    "update": f"UPDATE {TARGET} SET v = 'x' WHERE id = 77",
    "delete": f"DELETE FROM {TARGET} WHERE id = 77",
    "insert": f"INSERT INTO {TARGET} SELECT b.id, b.v FROM batch b JOIN {TARGET} t ON t.id = b.id",
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_a_statement_that_changes_nothing_fails_and_can_be_tried_again(lake: Lake, statement: str) -> None:
    lake.apply("0", ONE)
    job = lake.job("1", {"a.json": lines({"id": 77, "v": "x"})}, query(statement))
    for _ in range(2):
        with pytest.raises(BatchFailed, match="changed no row"):
            lake.engine.apply(job)
        assert lake.engine.applied(job.batch) is None
        assert Lake.of(lake.spark, lake.storage).engine.applied(job.batch) is None
    lake.apply("00", {"a.json": lines({"id": 77, "v": "y"})})  # now there is something to change
    assert lake.engine.apply(job).rows == 1
    assert lake.engine.apply(job).already


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_a_statement_that_may_change_nothing_is_in_the_history_all_the_same(lake: Lake, statement: str) -> None:
    lake.apply("0", ONE)
    job = lake.job("1", {"a.json": lines({"id": 77, "v": "x"})}, query(statement), zero=True)
    done = lake.engine.apply(job)
    assert (done.version, done.rows, done.already) == (1, 0, False)
    assert lake.engine.apply(job).already
    assert lake.engine.applied(job.batch) == 1


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (f"UPDAT {TARGET} SET v = 1", "UPDAT"),
        (f"UPDATE {TARGET} SET nope = 1", "nope"),
        (f"UPDATE {TARGET} SET id = CAST(v AS BIGINT)", "CAST_INVALID_INPUT"),
        (f"INSERT INTO {TARGET} SELECT missing FROM batch", "missing"),
        (f"DELETE FROM {TARGET} WHERE id IN (SELECT id FROM batch)", "write it as MERGE"),
    ],
)
def test_a_wrong_statement_fails_with_its_file_and_spark_s_reason(lake: Lake, statement: str, said: str) -> None:
    lake.apply("0", ONE)
    with pytest.raises(BatchFailed, match=said) as failed:
        lake.apply("1", TWO, query(statement))
    assert f"{BASE}_config/change.sql" in failed.value.message
    assert "\n" not in failed.value.message and "\tat " not in failed.value.message
    assert lake.versions() == 1


def test_a_query_needs_a_table(lake: Lake) -> None:
    with pytest.raises(BatchFailed, match=r"no table sales/orders.*load.json"):
        lake.apply("0", ONE, query(MERGE))
    assert lake.versions() == 0


# -- what may go wrong


def test_a_file_that_was_changed_since_is_not_read(lake: Lake) -> None:
    job = lake.job("1", ONE)
    lake.bucket.put(job.files[0].key, ONE["a.json"].replace("a", "x").encode())
    with pytest.raises(BatchFailed, match=r"1/a.json was changed.*publish the batch again"):
        lake.engine.apply(job)
    lake.bucket.delete(job.files[0].key)
    with pytest.raises(BatchFailed, match=r"1/a.json was changed"):
        lake.engine.apply(job)
    assert lake.versions() == 0


def test_a_file_that_cannot_be_read_fails_the_batch(lake: Lake) -> None:
    with pytest.raises(BatchFailed):
        lake.apply("1", {"a.parquet": b"no parquet"}, format="parquet")
    with pytest.raises(BatchFailed):
        lake.apply("1", {"a.json": '{"id": 1}\n{"id": \n'})
    assert lake.versions() == 0


@pytest.mark.parametrize("made", [False, True], ids=["no table yet", "a table"])
def test_a_batch_that_was_skipped_is_never_applied(lake: Lake, made: bool) -> None:
    if made:
        lake.apply("0", ONE)
    job = lake.job("1", TWO)
    version = lake.engine.fence(job.batch)
    assert (version, lake.engine.fence(job.batch)) == (int(made), int(made))
    assert lake.engine.applied(job.batch) is None
    for engine in (lake.engine, Lake.of(lake.spark, lake.storage).engine):
        with pytest.raises(BatchFailed, match="skipped"):
            engine.apply(job)
    assert lake.apply("2", TWO).version == version + 1
    with pytest.raises(BatchFailed, match=r"in the table, as version"):
        lake.engine.fence(lake_batch(lake, "2"))


def lake_batch(lake: Lake, path: str) -> Batch:
    """The batch of this path, by the history."""
    note = next(one.note for one in lake.engine.history(ORDERS) if one.note is not None and one.note.batch == path)
    return Batch(ORDERS, path, Publication(note.publication, "2026-11-15T00:00:00Z"))


@pytest.mark.parametrize("do", [load(), query(MERGE)], ids=["load", "query"])
def test_an_owner_that_wakes_after_its_batch_was_skipped_is_refused(lake: Lake, do: Any) -> None:
    lake.apply("0", ONE)
    job = lake.job("1", TWO, do)
    late = Lake.of(lake.spark, lake.storage)

    def asleep(step: str) -> None:
        if step == "write":
            lake.engine.fence(job.batch)

    late.engine._on_step = asleep
    with pytest.raises(BatchFailed, match="skipped"):
        late.engine.apply(job)
    assert lake.rows("id", "v") == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("do", [load(), load(Disposition.TRUNCATE), query(MERGE)], ids=["load", "truncate", "query"])
def test_the_same_batch_by_several_threads_is_one_commit(lake: Lake, do: Any) -> None:
    lake.apply("0", ONE)
    job = lake.job("1", TWO, do)
    engines = [lake.engine, lake.engine, Lake.of(lake.spark, lake.storage).engine]
    ready = threading.Barrier(len(engines))
    done: list[Applied | BaseException] = []

    def run(at: int) -> None:
        ready.wait()
        try:
            done.append(engines[at].apply(job))
        except BaseException as error:
            done.append(error)

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(engines))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(one, Applied) for one in done), done
    assert sorted((one.version, one.already) for one in done if isinstance(one, Applied)) == [
        (1, False),
        (1, True),
        (1, True),
    ]
    assert lake.versions() == 2

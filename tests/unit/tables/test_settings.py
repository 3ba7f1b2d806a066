"""What `_config` folders say of a batch: the nearest wins key by key, and what cannot be used is named and placed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.bucket.contract import Object
from catchment.bucket.memory import MemoryBucket
from catchment.config.tables import TableItem, Tables
from catchment.errors import NotFound
from catchment.tables import documents, partition
from catchment.tables.landing import Landing
from catchment.tables.names import Table
from catchment.tables.settings import Configs, Disposition, Load, Query, Read, Settings
from catchment.tables.work import BatchFailed

ORDERS = Table("sales", "orders")
HERE = "tables/sales/orders/"
PATH = "incremental/2026/11/15"
CSV = '{"format": "csv"}'
INSERT = "INSERT INTO {dest_dataset}.{dest_table} SELECT * FROM batch"


class Reads(MemoryBucket):
    """Knows what was read of it."""

    def __init__(self) -> None:
        super().__init__()
        self.read_keys: list[str] = []

    def read(self, key: str, *, version: str | None = None) -> Object:
        self.read_keys.append(key)
        return super().read(key, version=version)


def bucket_of(objects: Mapping[str, str | bytes]) -> Reads:
    bucket = Reads()
    for key, body in objects.items():
        bucket.put(key, body.encode() if isinstance(body, str) else body)
    return bucket


def settings(
    objects: Mapping[str, str | bytes], path: str = PATH, *, base: str = "", table: Table = ORDERS, **item: Any
) -> Settings:
    one = Tables(items=(TableItem(table=str(table), **item),)).item(str(table))
    if not base:
        base = f"{one.source}/" if one.source else table.prefix
    return Configs(bucket_of(objects), list(objects)).settings(table, path, base, one)


def failed(objects: Mapping[str, str | bytes], path: str = PATH, **more: Any) -> BatchFailed:
    with pytest.raises(BatchFailed) as caught:
        settings(objects, path, **more)
    return caught.value


def load(**keys: Any) -> str:
    return json.dumps({"format": "csv", **keys})


# -- levels ----------------------------------------------------------------------------------------------------------


def test_a_load_json_is_all_that_is_needed() -> None:
    assert settings({f"{HERE}_config/load.json": CSV}) == Settings(
        read=Read("csv", {}, None),
        do=Load(Disposition.APPEND, (), {}),
        columns={},
        evolution="fail",
        allow_zero_rows=False,
        used=(f"{HERE}_config/load.json",),
    )


def test_everything_that_can_be_said() -> None:
    said = {
        "format": "json",
        "options": {"header": True, "maxColumns": 100, "samplingRatio": 0.5, "sep": ";"},
        "schema": "id BIGINT, name STRING",
        "write_disposition": "truncate",
        "partition_by": ["day", "hour"],
        "allow_zero_rows": True,
        "schema_evolution": "add columns",
    }
    found = settings({f"{HERE}_config/load.json": json.dumps(said)})
    options = {"header": "true", "maxColumns": "100", "samplingRatio": "0.5", "sep": ";"}
    assert found.read == Read("json", options, "id BIGINT, name STRING")
    assert found.do == Load(Disposition.TRUNCATE, ("day", "hour"), {})
    assert (found.evolution, found.allow_zero_rows) == ("add columns", True)


def test_every_folder_on_the_way_is_a_level_and_no_other() -> None:
    folders = ["", "sales/", "sales/orders/", *(f"sales/orders/{PATH[:end]}/" for end in (11, 16, 19, 22))]
    on_the_way = {
        f"tables/{folder}_config/load.json": load(options={f"o{at}": at}) for at, folder in enumerate(folders)
    }
    beside = ["stock/", "sales/other/", "sales/orders/historical/", "sales/orders/incremental/2026/12/", f"{PATH}/"]
    others = {f"tables/{folder}_config/load.json": load(options={"wrong": True}) for folder in beside}
    found = settings({**others, **on_the_way})
    assert found.read.options == {f"o{at}": str(at) for at in range(len(folders))}
    assert found.used == tuple(on_the_way)


def test_the_table_s_own_folder_may_be_the_batch() -> None:
    assert settings({f"{HERE}_config/load.json": CSV}, "").read.format == "csv"


def test_batches_from_elsewhere_have_their_levels_below_the_table_s_own_folder() -> None:
    objects = {
        f"{HERE}_config/load.json": load(options={"a": 1}),
        f"{HERE}eu/_config/load.json": load(options={"b": 2}),
        "dropped/orders/eu/_config/load.json": load(options={"c": 3}),
    }
    found = settings(objects, "eu/2026", source="dropped/orders")
    assert found.read.options == {"a": "1", "b": "2"}


def test_with_a_naming_of_one_s_own_the_levels_are_the_folders_of_the_batch() -> None:
    objects = {
        "tables/_config/load.json": load(options={"a": 1}),
        "tables/landing/_config/load.json": load(options={"b": 2}),
        "tables/landing/sales.orders/_config/load.json": load(options={"c": 3}),
        "tables/landing/_config/ORDERME": "",
        f"{HERE}_config/load.json": load(options={"d": 4}),
    }
    path = "landing/sales.orders/day=2026-11-15"
    found = settings(objects, path, base="tables/")
    assert found.read.options == {"a": "1", "b": "2", "c": "3"}
    assert found.columns == {"day": "2026-11-15"}
    item = Tables().item("sales/orders")
    assert Configs(MemoryBucket(), list(objects)).ordered(ORDERS, path, item, base="tables/")


def test_the_item_counts_where_no_file_says_otherwise() -> None:
    objects = {f"{HERE}_config/load.json": CSV}
    found = settings(objects, allow_zero_rows=True, schema_evolution="add columns")
    assert (found.allow_zero_rows, found.evolution) == (True, "add columns")
    objects = {f"{HERE}_config/load.json": load(allow_zero_rows=False, schema_evolution="fail")}
    found = settings(objects, allow_zero_rows=True, schema_evolution="add columns")
    assert (found.allow_zero_rows, found.evolution) == (False, "fail")


def test_null_takes_back_what_is_said_farther_away() -> None:
    objects = {
        "tables/_config/load.json": load(schema="a INT", options={"header": True, "sep": ";"}, allow_zero_rows=True),
        f"{HERE}_config/load.json": '{"schema": null, "options": {"sep": null}, "allow_zero_rows": null}',
    }
    found = settings(objects)
    assert found.read == Read("csv", {"header": "true"}, None)
    assert not found.allow_zero_rows
    objects[f"{HERE}incremental/_config/load.json"] = '{"options": null}'
    assert settings(objects).read.options == {}


def test_options_are_the_same_in_upper_and_lower_case() -> None:
    objects = {
        "tables/_config/load.json": load(options={"Header": True, "sep": ";"}),
        f"{HERE}_config/load.json": load(options={"header": False}),
    }
    assert settings(objects).read.options == {"header": "false", "sep": ";"}


VALUES = {
    "format": st.sampled_from(documents.FORMATS),
    "schema": st.sampled_from(["a INT", "b STRING"]),
    "write_disposition": st.sampled_from(["append", "truncate"]),
    "partition_by": st.sampled_from(["day", ["day"], ["day", "hour"]]),
    "allow_zero_rows": st.booleans(),
    "schema_evolution": st.sampled_from(documents.EVOLUTIONS),
    "options": st.dictionaries(
        st.sampled_from(["header", "sep", "mode"]), st.none() | st.booleans() | st.integers() | st.text(max_size=5)
    ),
}
DOCUMENTS = st.fixed_dictionaries({}, optional={key: st.none() | values for key, values in VALUES.items()})
LEVELS = ["tables/", "tables/sales/", HERE, f"{HERE}incremental/", f"{HERE}incremental/2026/"]


def nearest(documents: list[dict[str, Any]], *keys: str) -> Any:
    """What the nearest of them says, by looking at each for each key. The farthest is first."""
    for document in reversed(documents):
        here: Any = document
        for key in keys:
            if not isinstance(here, dict) or key not in here:
                break
            here = here[key]
            if here is None:
                return None
        else:
            return here
    return None


def option_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@given(st.lists(DOCUMENTS, min_size=5, max_size=5))
def test_the_nearest_wins_key_by_key(said: list[dict[str, Any]]) -> None:
    said[0] = {"format": "orc", **said[0]}
    objects = {f"{folder}_config/load.json": json.dumps(one) for folder, one in zip(LEVELS, said, strict=True)}
    if nearest(said, "format") is None:
        assert failed(objects).message == f"{LEVELS[-1]}_config/load.json: format: missing"
        return
    found = settings(objects)
    values = {name: nearest(said, "options", name) for name in ("header", "sep", "mode")}
    options = {name: option_text(value) for name, value in values.items() if value is not None}
    assert found.read == Read(nearest(said, "format"), options, nearest(said, "schema"))
    assert isinstance(found.do, Load)
    assert found.do.disposition == (nearest(said, "write_disposition") or "append")
    by = nearest(said, "partition_by") or ()
    assert found.do.partition_by == ((by,) if isinstance(by, str) else tuple(by))
    assert found.allow_zero_rows is bool(nearest(said, "allow_zero_rows"))
    assert found.evolution == (nearest(said, "schema_evolution") or "fail")


# -- what is wrong with a file ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body, says",
    [
        ('{"format": "csv",\n  "options" {}}', "line 2, column 13: broken JSON: Expecting ':' delimiter"),
        ("", 'it is empty; write {"format": "csv"} or the like'),
        (" \n", "it is empty"),
        (b'{"format":\n "\xff"}', "line 2, column 3: no UTF-8; save it as UTF-8"),
        ('["csv"]', 'expected {"format": …}, found a list'),
        ('"csv"', 'expected {"format": …}, found text'),
        ("[" * 100_000, "broken JSON: objects or lists within one another without end"),
        ('{"options": {"x": NaN}}', "broken JSON: NaN is no JSON; write a number, or put quotes around it"),
        ('{"options": {"x": %s}}' % ("1" * 5000), "broken JSON: "),
        (load(optoins={}), "optoins: unknown key; did you mean 'options'?"),
        (load(sourceFormat="CSV"), "sourceFormat: unknown key; did you mean 'format'?"),
        (load(zzz=1), "zzz: unknown key; use one of: format, options, schema, write_disposition"),
        ('{"format": "csv", "format": "json"}', "format: is there twice; remove one"),
        ('{"format": "CSV"}', "format: 'CSV' is not a choice here; write 'csv'"),
        ('{"format": "excel"}', "format: 'excel' is not a choice here; one of: csv, json, parquet, avro, orc"),
        ('{"format": 1}', "format: a number is not a choice here; one of: csv"),
        ('{"format": ["csv"]}', "format: a list is not a choice here"),
        (load(options=[]), 'options: expected names and values, found a list; write {"header": true}'),
        (load(options={"a": [1]}), "options.a: expected text, a number, true or false, found a list"),
        (load(options={"a": {}}), "options.a: expected text, a number, true or false, found keys and values"),
        ('{"format": "csv", "options": {"a": 1e999}}', "options.a: expected text, a number, true or false"),
        (load(options={"path": "x"}), "options.path: says which files are read, and the batch does that; remove it"),
        (load(options={"basePath": "x"}), "options.basePath: says which files are read"),
        (load(options={"header": 1, "Header": 2}), "options.Header: is there twice"),
        (load(options={"": 1}), 'options[""]: the name is not that of an option'),
        (load(schema={"a": "INT"}), "schema: expected columns and their types, found keys and values; write a text as"),
        (load(schema=" "), "schema: expected columns and their types, found an empty text"),
        (
            load(write_disposition="WRITE_APPEND"),
            "write_disposition: 'WRITE_APPEND' is not a choice here; write 'append'",
        ),
        (
            load(write_disposition="WRITE_TRUNCATE"),
            "write_disposition: 'WRITE_TRUNCATE' is not a choice here; write 'truncate'",
        ),
        (load(partition_by=1), "partition_by: expected columns, found a number; write a name, or names as in"),
        (load(partition_by=[]), "partition_by: expected columns, found none"),
        (load(partition_by={"a": 1}), "partition_by: expected columns, found keys and values"),
        (load(partition_by=["a", 1]), "partition_by: expected the name of a column, found a number"),
        (load(partition_by=[""]), "partition_by: expected the name of a column, found an empty text"),
        (load(partition_by=["day", "Day"]), "partition_by: column 'Day' is there twice; remove one"),
        (load(allow_zero_rows="yes"), "allow_zero_rows: expected true or false, found text; write true or false"),
        (
            load(schema_evolution="add_columns"),
            "schema_evolution: 'add_columns' is not a choice here; write 'add columns'",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_place_and_what_to_write(body: str | bytes, says: str) -> None:
    error = failed({"tables/sales/_config/load.json": body})
    assert error.message.startswith(f"tables/sales/_config/load.json: {says}")
    assert error.hint == "put a corrected tables/sales/_config/load.json"


def test_all_problems_of_a_file_are_told_at_once() -> None:
    body = {"fromat": "csv", "options": {"a": [], "b": {}}, "partition_by": 1, "allow_zero_rows": 0}
    message = failed({f"{HERE}_config/load.json": json.dumps(body)}).message
    lines = message.split("\n  ")
    assert lines[0] == f"{HERE}_config/load.json: 5 problems"
    assert [line.partition(":")[0] for line in lines[1:]] == [
        *("fromat", "options.a", "options.b", "partition_by", "allow_zero_rows")
    ]


def test_a_mark_at_the_beginning_of_a_file_does_no_harm() -> None:
    objects = {f"{HERE}_config/external.json": b"\xef\xbb\xbf" + CSV.encode()}
    found = settings({**objects, f"{HERE}_config/a.sql": b"\xef\xbb\xbf" + INSERT.encode()})
    assert isinstance(found.do, Query) and found.do.statement == INSERT


def test_what_a_load_says_is_no_business_of_external_json() -> None:
    objects = {
        f"{HERE}_config/external.json": load(write_disposition="append", partition_by="day"),
        f"{HERE}_config/a.sql": INSERT,
    }
    message = failed(objects).message
    assert "write_disposition: belongs into load.json; remove it: the statement says what is written" in message
    assert "partition_by: belongs into load.json" in message


def test_a_file_that_is_gone_since_the_listing_is_no_fault_of_the_batch() -> None:
    configs = Configs(MemoryBucket(), [f"{HERE}_config/load.json"])
    with pytest.raises(NotFound):
        configs.settings(ORDERS, PATH, HERE, Tables().item("sales/orders"))


def test_each_file_is_read_once() -> None:
    objects = {"tables/_config/external.json": CSV, f"{HERE}_config/a.sql": INSERT, f"{HERE}x/_config/load.json": CSV}
    bucket = bucket_of(objects)
    configs, item = Configs(bucket, list(objects)), Tables().item("sales/orders")
    for path in ("a", "b", "a"):
        configs.settings(ORDERS, path, HERE, item)
        configs.ordered(ORDERS, path, item)
    assert sorted(bucket.read_keys) == ["tables/_config/external.json", f"{HERE}_config/a.sql"]


# -- load or query ---------------------------------------------------------------------------------------------------


def test_a_query_reads_as_external_json_says_and_runs_the_nearest_sql() -> None:
    objects = {
        "tables/_config/external.json": load(options={"header": True}),
        "tables/_config/far.sql": "not looked at",
        "tables/_config/load.json": "not looked at",
        f"{HERE}_config/external.json": '{"options": {"sep": ";"}, "schema_evolution": "add columns"}',
        f"{HERE}incremental/_config/merge.SQL": f"CREATE TEMP VIEW a AS SELECT 1; {INSERT};",
    }
    found = settings(objects, f"{PATH}/day=1")
    file = f"{HERE}incremental/_config/merge.SQL"
    assert found == Settings(
        read=Read("csv", {"header": "true", "sep": ";"}, None),
        do=Query(("CREATE TEMP VIEW a AS SELECT 1",), INSERT, file),
        columns={"day": "1"},
        evolution="add columns",
        allow_zero_rows=False,
        used=("tables/_config/external.json", f"{HERE}_config/external.json", file),
    )


def test_without_any_external_json_a_query_reads_as_load_json_says() -> None:
    objects = {
        "tables/_config/load.json": load(options={"header": True}, write_disposition="truncate"),
        f"{HERE}_config/a.sql": INSERT,
    }
    found = settings(objects)
    assert found.read == Read("csv", {"header": "true"}, None)
    assert isinstance(found.do, Query)
    assert found.used == tuple(objects)


def test_the_nearer_of_load_json_and_sql_decides() -> None:
    objects = {
        f"{HERE}_config/external.json": '{"format": "json"}',
        f"{HERE}_config/a.sql": INSERT,
        f"{HERE}historical/_config/load.json": CSV,
    }
    assert isinstance(settings(objects, "historical/2026").do, Load)
    assert isinstance(settings(objects, "incremental/2026").do, Query)


def test_both_at_the_nearest_level_are_refused() -> None:
    error = failed({f"{HERE}_config/load.json": CSV, f"{HERE}_config/a.sql": INSERT})
    assert f"{HERE}_config/load.json" in error.message and f"{HERE}_config/a.sql" in error.message
    assert f"{HERE}_config/external.json" in error.hint


def test_several_sql_files_at_one_level_are_named() -> None:
    objects = {f"{HERE}_config/{name}": INSERT for name in ("b.sql", "a.sql")}
    error = failed({**objects, f"{HERE}_config/external.json": CSV})
    assert error.message == f"there are 2 SQL files at one level: {HERE}_config/a.sql, {HERE}_config/b.sql"
    # What editors and file managers leave behind is none.
    objects = {f"{HERE}_config/{name}": INSERT for name in ("a.sql", "._a.sql", "_a.sql", "a.sql.bak")}
    assert isinstance(settings({**objects, f"{HERE}_config/external.json": CSV}).do, Query)


def test_a_wrong_statement_is_named_with_file_and_line() -> None:
    error = failed({f"{HERE}_config/external.json": CSV, f"{HERE}_config/a.sql": "\nDROP TABLE x"})
    assert error.message.startswith(f"{HERE}_config/a.sql: line 2: DROP TABLE is not allowed here")
    error = failed({f"{HERE}_config/external.json": CSV, f"{HERE}_config/a.sql": b"\n\n\xff"})
    assert error.message == f"{HERE}_config/a.sql: line 3: no UTF-8; save it as UTF-8"


def test_a_query_without_a_word_of_how_to_read_says_what_to_add() -> None:
    error = failed({f"{HERE}_config/a.sql": INSERT})
    assert error.message == f"no external.json says how the batch for {HERE}_config/a.sql is read"
    assert f"{HERE}_config/external.json" in error.hint


def test_an_external_json_without_sql_is_not_passed_over() -> None:
    for objects in (
        {f"{HERE}_config/external.json": CSV},
        {f"{HERE}_config/external.json": CSV, "tables/_config/load.json": CSV},
        {f"{HERE}_config/external.json": CSV, f"{HERE}_config/load.json": CSV},
    ):
        error = failed(objects)
        assert error.message.startswith(f"{HERE}_config/external.json says how a query reads the batch")
        assert f"{HERE}_config/merge.sql" in error.hint
    # Farther away it is for other batches.
    assert settings({"tables/_config/external.json": CSV, f"{HERE}_config/load.json": CSV}).read.format == "csv"


def test_where_nothing_is_said_the_file_to_add_is_named() -> None:
    error = failed({f"{HERE}_config/Load.json": CSV, f"{HERE}_config/README": ""})
    assert error.message == (
        f"no load.json and no *.sql on the way to {HERE}{PATH}/ says how its batch is applied; "
        f"there is {HERE}_config/Load.json (did you mean load.json?)"
    )
    assert error.hint == f'put {HERE}_config/load.json, for example {{"format": "csv", "options": {{"header": true}}}}'
    _, _, minimal = error.hint.partition("for example ")
    assert settings({f"{HERE}_config/load.json": minimal}).read == Read("csv", {"header": "true"}, None)
    assert "put tables/landing/x/_config/load.json" in failed({}, "landing/x", base="tables/").hint


# -- days of a topic -------------------------------------------------------------------------------------------------

TOPIC = "topics/events/clicks/type=order"


def test_a_day_of_a_topic_is_parquet_and_replaces_its_partition() -> None:
    found = settings({}, "day=2026-11-15/hour=07", source=TOPIC)
    assert found.read == Read("parquet", {}, None)
    assert found.do == Load(Disposition.PARTITION, ("day", "hour"), {"day": "2026-11-15", "hour": "07"})
    assert found.columns == {"day": "2026-11-15", "hour": "07"}
    assert found.used == ()


def test_what_is_said_for_a_topic_s_table_counts_and_the_rest_stays() -> None:
    objects = {f"{HERE}_config/load.json": '{"schema_evolution": "add columns", "format": null}'}
    found = settings(objects, "day=2026-11-15", source=TOPIC)
    assert (found.read.format, found.evolution) == ("parquet", "add columns")
    assert found.do == Load(Disposition.PARTITION, ("day",), {"day": "2026-11-15"})
    objects = {f"{HERE}_config/load.json": '{"write_disposition": "append"}'}
    assert settings(objects, "day=2026-11-15", source=TOPIC).do == Load(Disposition.APPEND, (), {})
    objects = {f"{HERE}_config/a.sql": INSERT}
    assert settings(objects, "day=2026-11-15", source=TOPIC).read.format == "parquet"


def test_only_what_lies_below_topics_is_a_topic_s() -> None:
    assert "load.json" in failed({}, "day=2026-11-15", source="topics_old/events").hint
    assert "names no partition" in failed({}, "", source=TOPIC).message
    assert "there is no *.sql" in failed({f"{HERE}_config/external.json": CSV}, "day=1", source=TOPIC).message


# -- columns and partitions of the path ------------------------------------------------------------------------------


def test_columns_come_from_the_path_as_hive_wrote_it() -> None:
    path = "x/a%20b=1%2f2/city=a=b/half=50%/none=__HIVE_DEFAULT_PARTITION__/$7"
    expected = {"a b": "1/2", "city": "a=b", "half": "50%", "none": partition.NULL}
    assert settings({f"{HERE}_config/load.json": CSV}, path).columns == expected


@pytest.mark.parametrize(
    "path, says",
    [
        ("a/day=/b", "'day=' in the path a/day=/b is no column"),
        ("=1", "'=1' in the path =1 is no column"),
        ("day=1/Day=2", "column 'Day' is twice in the path day=1/Day=2"),
        ("$1/$2", "the path $1/$2 names 2 partitions, $1 and $2"),
        ("a/$", "the path a/$ names no partition"),
    ],
)
def test_a_path_that_cannot_be_understood_is_refused(path: str, says: str) -> None:
    assert failed({f"{HERE}_config/load.json": CSV}, path).message.startswith(says)


@pytest.mark.parametrize(
    "path, by, expected_by, expected",
    [
        ("day=1/hour=2", None, ("day", "hour"), {"day": "1", "hour": "2"}),
        ("day=1/hour=2", "day", ("day",), {"day": "1"}),
        ("hour=2/day=1", ["day", "hour"], ("day", "hour"), {"day": "1", "hour": "2"}),
        ("day=1", ["day", "hour"], ("day", "hour"), {"day": "1"}),
        ("DAY=1", "day", ("day",), {"day": "1"}),
        ("$20261115/07", "day", ("day",), {"day": "20261115"}),
        ("region=eu/$20261115", "day", ("day",), {"day": "20261115"}),
        ("day=1/$1", "day", ("day",), {"day": "1"}),
        ("$a%2Fb", "day", ("day",), {"day": "a/b"}),
    ],
)
def test_the_partition_that_a_batch_replaces(
    path: str, by: Any, expected_by: tuple[str, ...], expected: dict[str, str]
) -> None:
    body = load(write_disposition="partition", partition_by=by)
    found = settings({f"{HERE}_config/load.json": body}, path)
    assert found.do == Load(Disposition.PARTITION, expected_by, expected)


@pytest.mark.parametrize(
    "path, by, says",
    [
        ("2026/11/15", None, "the path 2026/11/15 names no partition"),
        ("2026/11/15", "day", "the path 2026/11/15 names no partition"),
        ("", "day", "the path (the folder of the table) names no partition"),
        ("hour=2", ["day", "hour"], "the path hour=2 does not name day"),
        ("day=1/minute=2", ["day", "hour", "minute"], "the path day=1/minute=2 does not name hour"),
        ("region=eu", "day", "the path region=eu does not name day"),
        ("$1", None, "$1 in the path $1 is the value of one partition_by column, and there is none"),
        ("$1", ["day", "hour"], "$1 in the path $1 is the value of one partition_by column, and there is 2 of them"),
        ("day=2/$1", "day", "the path day=2/$1 names two values of day: 1 and 2"),
    ],
)
def test_a_partition_that_cannot_be_told_is_refused(path: str, by: Any, says: str) -> None:
    error = failed({f"{HERE}_config/load.json": load(write_disposition="partition", partition_by=by)}, path)
    assert error.message.startswith(says)
    assert error.hint


def test_truncate_never_empties_a_table_for_one_partition() -> None:
    error = failed({f"{HERE}_config/load.json": load(write_disposition="truncate")}, "$20261115")
    assert "truncate replaces the whole table" in error.message
    assert '"write_disposition": "partition"' in error.hint
    assert settings({f"{HERE}_config/load.json": CSV}, "$20261115").do == Load(Disposition.APPEND, (), {})


# -- order -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["tables/", "tables/sales/", HERE, f"{HERE}incremental/", f"{HERE}{PATH}/"])
def test_orderme_counts_at_any_level(folder: str) -> None:
    item = Tables().item("sales/orders")
    configs = Configs(MemoryBucket(), [f"{folder}_config/ORDERME"])  # by its key alone
    assert configs.ordered(ORDERS, PATH, item)
    assert configs.ordered(ORDERS, "historical/2026", item) is (folder in HERE)


def test_without_orderme_the_item_says_it() -> None:
    configs = Configs(MemoryBucket(), [f"{HERE}_config/orderme", f"{HERE}_config/sub/ORDERME", f"{HERE}ORDERME"])
    assert not configs.ordered(ORDERS, PATH, Tables().item("sales/orders"))
    assert configs.ordered(ORDERS, PATH, Tables(order_per_table=True).item("sales/orders"))


# -- the guide -------------------------------------------------------------------------------------------------------

GUIDE = Path(__file__).parents[3] / "docs" / "tables-config.md"


def guide() -> Iterator[tuple[str, str, str]]:
    """The key, the language and the text of every example: the key stands in the line before it."""
    for found in re.finditer(r"^`(tables/\S+)`:\n+```(json|sql)\n(.*?)^```$", GUIDE.read_text(), re.M | re.S):
        yield found[1], found[2], found[3]


def test_every_example_of_the_guide_loads() -> None:
    objects = {key: text for key, _, text in guide()}
    bucket = bucket_of({**objects, f"{HERE}incremental/_config/ORDERME": ""})
    configs = Configs(bucket, Landing(bucket, Tables()).look().configs)
    used = set()
    found = {}
    for path in ("historical/2026/11/15", "incremental/2026/11/15/07"):
        found[path] = configs.settings(ORDERS, path, HERE, Tables().item("sales/orders"))
        used |= set(found[path].used)
    days = Table("web", "visits")
    daily = configs.settings(days, "day=2026-11-15", days.prefix, Tables().item("web/visits"))
    used |= set(daily.used)
    assert used == set(objects)
    assert [type(one.do) for one in found.values()] == [Load, Query]
    assert daily.do == Load(Disposition.PARTITION, ("day",), {"day": "2026-11-15"})
    assert found["historical/2026/11/15"].read == Read("csv", {"header": "true", "sep": ";"}, None)


def test_the_guide_names_every_key_and_choice() -> None:
    text = GUIDE.read_text()
    keys = [*VALUES, *documents.FORMATS, *documents.DISPOSITIONS, *documents.EVOLUTIONS]
    assert [key for key in keys if f"`{key}`" not in text] == []


def test_the_messages_in_the_guide_are_what_is_said() -> None:
    merge = f"\n\n{INSERT.replace('INSERT', 'MERGE')};\n\n\n\nUPDATE {{dest_dataset}}.{{dest_table}} SET a = 1"
    wrong: list[dict[str, str]] = [
        {"tables/sales/_config/load.json": '{"fromat": "csv", "options": {"header": []}}'},
        {"tables/sales/_config/load.json": '{"format": "csv",\n  "options" {}}'},
        {f"{HERE}_config/merge.sql": merge, f"{HERE}_config/external.json": CSV},
    ]
    assert "\n".join(failed(objects).message for objects in wrong) in GUIDE.read_text()

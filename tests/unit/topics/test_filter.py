from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.errors import ExportStopped, UsageError
from catchment.topics.filter import Condition

TABLE = pa.table(
    {
        "row": [0, 1, 2],
        "a": [1, 2, None],
        "s": ["x", "Y", "12"],
        "n": [{"q": 1, "deep": {"z": "k"}}, {"q": 2, "deep": None}, None],
        "l": [[1], [], None],
        "a.b": [1, 2, 3],
        "open": pa.array([{}, None, {}], pa.struct([])),
        "nulls": pa.array([[None], [], None], pa.list_(pa.null())),
        "_offset": [10, 11, 12],
        "_timestamp": pa.array([0, 86_400_000, None], pa.timestamp("ms", "UTC")),
    }
)


def kept(sql: str) -> list[int]:
    found: list[int] = Condition(sql).keep(TABLE)["row"].to_pylist()
    return found


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("a > 1", [1]),
        ("NOT a = 1", [1]),
        ("a IS NULL", [2]),
        ("A = 1", [0]),
        ("true", [0, 1, 2]),
        ("NULL", []),
        ("n.q = 1", [0]),
        ("n.deep.z = 'k'", [0]),
        ("n['q'] = 2", [1]),
        ('"a.b" >= 2', [1, 2]),
        ("lower(s) LIKE 'y%'", [1]),
        ("s IN ('x', '12') AND TRY_CAST(s AS INT) IS NULL", [0]),
        ("a BETWEEN 1 AND 2 -- and a comment", [0, 1]),
        ("CASE WHEN a = 1 THEN true ELSE s = '12' END", [0, 2]),
        ("list_contains(l, 1)", [0]),
        ("len(list_filter(l, lambda a: a > 0)) > 0", [0]),
        ("_offset = 11", [1]),
        ("_timestamp >= TIMESTAMPTZ '1970-01-02'", [1]),
        ("missing IS NULL", [0, 1, 2]),
        ("missing = 1 OR a = 2", [1]),
        ("lower(missing) = 'x'", []),
        ("missing", []),
        ("missing[1] = 2", []),
        ("n.missing.deeper IS NULL AND nowhere.x IS NULL", [0, 1, 2]),
        ("a.below IS NULL", [0, 1, 2]),
        ("extract(year FROM missing) = 2026 OR a = 1", [0]),
        ("date_trunc('day', missing) > other OR a = 1", [0]),
        ("open IS NULL", [1]),
        ("open.x IS NULL", [0, 1, 2]),
        ("nulls IS NULL", [2]),
        ("len(nulls) = 1", [0]),
    ],
)
def test_rows_for_which_it_is_true_are_kept(sql: str, rows: list[int]) -> None:
    assert kept(sql) == rows


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "a >",
        "SELECT 1",
        "(SELECT true)",
        "EXISTS (SELECT 1)",
        "a IN (SELECT 1)",
        "a = 1; DROP TABLE x",
        "a = 1) FROM given WHERE (true",
        "true) AS kept, (2",
        "true) AS kept FROM given --",
        "true) AS kept FROM given UNION ALL SELECT (true",
        "a = 1 LIMIT 1",
        "a, s",
        "*",
        "COLUMNS(*) > 1",
        "count(*) > 1",
        "sum(a) > 1",
        "row_number() OVER () = 1",
        "unnest(l) = 1",
        "random() > 0.5",
        "uuid() = s",
        "now() > _timestamp",
        "current_date > _timestamp",
        "CURRENT_TIMESTAMP > _timestamp",
        "nextval('x') = 1",
        "getenv('HOME') = 'x'",
        "nosuchfunction(a)",
        "read_text('/etc/hostname') = ''",
        "a = ?",
        "5",
        "'text'",
    ],
)
def test_what_is_not_one_condition_of_a_row_is_refused(sql: str) -> None:
    with pytest.raises(UsageError) as caught:
        Condition(sql)
    assert "as in WHERE" in caught.value.hint
    assert repr(sql) in caught.value.message


def test_fields_may_have_names_of_functions() -> None:
    table = pa.table({"age": [1, 5], "now": [1, 2], "count": [3, 4]})
    assert Condition("age > 2 AND now = 2 AND count = 4").keep(table).num_rows == 1


@pytest.mark.parametrize("sql", ["CAST(s AS INT) > 1", "s", "a + 1"])
def test_one_that_fails_on_a_message_stops_the_export_and_drops_nothing(sql: str) -> None:
    condition = Condition(sql)
    with pytest.raises(ExportStopped) as caught:
        condition.keep(TABLE)
    assert repr(sql) in caught.value.message
    assert "new generation" in caught.value.hint
    assert condition.sql == sql


def test_it_goes_on_after_a_failure_and_with_no_rows() -> None:
    condition = Condition("CAST(s AS INT) > 1")
    with pytest.raises(ExportStopped):
        condition.keep(TABLE)
    assert condition.keep(TABLE.slice(2))["row"].to_pylist() == [2]
    assert condition.keep(TABLE.slice(0, 0)).num_rows == 0
    assert condition.keep(TABLE.slice(2)).schema == TABLE.schema


@given(st.lists(st.none() | st.integers(-3, 3), max_size=3000), st.integers(-3, 3))
def test_order_and_columns_stay(values: list[int | None], least: int) -> None:
    table = pa.table({"v": pa.array(values, pa.int64()), "at": pa.array(range(len(values)), pa.int64())})
    wanted = [at for at, one in enumerate(values) if one is not None and one >= least]
    assert CONDITIONS[least].keep(table)["at"].to_pylist() == wanted


CONDITIONS = {least: Condition(f"v >= {least}") for least in range(-3, 4)}

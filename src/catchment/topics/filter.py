"""The condition of an export: one SQL expression over the decoded fields, by DuckDB.

It is looked at as a tree before it is used, so that it can only be an expression of the row: no query, no aggregate,
no file. Each field that it names is handed in as a column of its own, so a field that a type does not have is null.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice, product
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from catchment.errors import ExportStopped, UsageError
from catchment.topics.decode.arrays import whole
from catchment.topics.decode.read import connect
from catchment.topics.records import OFFSET, TIMESTAMP

Path = tuple[str, ...]  # of a field, from outside in
# Of which a condition may be made.
_CLASSES = {"BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION"}
_CLASSES |= {"LAMBDA", "LAMBDA_REF", "OPERATOR", "TYPE"}
# What a field that is not there may be, where a function wants to know.
_GUESSES = (pa.null(), pa.string(), pa.timestamp("us", "UTC"), pa.int64(), pa.float64(), pa.bool_(), pa.date32())
_MOST_GUESSES = 400
_HINT = "write one condition over the fields, as in WHERE: amount > 0 AND type <> 'test'"


class Condition:
    """One condition. UsageError if it is not a single expression of the row. Not for two threads at a time."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self._connection = connect()
        tree = self._tree()
        self._fields: dict[Path, str] = {}
        _rename(tree, frozenset(), self._fields)
        try:
            self._query = self._asked("SELECT json_deserialize_sql(?)", json.dumps(tree))[0][0]
        except duckdb.Error as error:
            raise self._wrong(str(error)) from error
        self._checked()

    def keep(self, table: pa.Table) -> pa.Table:
        """The rows for which it is true, in their order. ExportStopped if it fails on a row: none is dropped unseen."""
        try:
            true = self._true(table)
        except (duckdb.Error, ValueError) as error:
            raise ExportStopped(
                f"the filter {self.sql[:200]!r} failed: {_first(error)}",
                hint="change it so that it holds for every message (TRY_CAST gives NULL), in a new generation",
            ) from error
        return table if pc.all(true, skip_nulls=False).as_py() else table.filter(true)

    def _true(self, table: pa.Table) -> pa.BooleanArray:
        columns = {name: _column(table, path) for path, name in self._fields.items()}
        nulls = [name for name, column in columns.items() if pa.types.is_null(column.type)]
        columns["row"] = pa.nulls(table.num_rows, pa.int8())  # there may be no other
        failed: duckdb.Error | None = None
        for types in islice(product(_GUESSES, repeat=len(nulls)), _MOST_GUESSES):
            guessed = {name: pa.nulls(table.num_rows, one) for name, one in zip(nulls, types, strict=True)}
            try:
                return self._answers(pa.table(columns | guessed))
            except duckdb.BinderException as error:
                failed = failed or error
        assert failed is not None
        raise failed

    def _answers(self, given: pa.Table) -> pa.BooleanArray:
        self._connection.register("given", given)
        try:
            found = whole(self._connection.sql(self._query).to_arrow_table()["kept"])
        finally:
            self._connection.unregister("given")
        if len(found) != given.num_rows:
            raise ValueError("it does not say one thing of each message")
        if pa.types.is_boolean(found.type):
            return found
        if found.null_count == len(found) and (pa.types.is_integer(found.type) or pa.types.is_null(found.type)):
            return pa.nulls(len(found), pa.bool_())  # nothing that it asks for is there
        raise ValueError(f"it is not true or false, but {found.type}")

    def _tree(self) -> Any:
        """The syntax tree of the query that asks for it. UsageError unless it is one expression of the row."""
        text = f"SELECT (\n{self.sql}\n) AS kept FROM given"
        tree = self._serialized(text)
        if tree.get("error"):
            raise self._wrong(tree.get("error_message", "it cannot be read"))
        statements = tree["statements"]
        node = statements[0]["node"]
        wanted = self._serialized("SELECT (1) AS kept FROM given")["statements"][0]["node"]
        if len(statements) != 1 or len(node.get("select_list", ())) != 1:
            raise self._wrong("it is more than one expression")
        if _without_list(node) != _without_list(wanted) or node["select_list"][0].get("alias") != "kept":
            raise self._wrong("it is more than an expression")
        for one in _expressions(node["select_list"]):
            if one["class"] not in _CLASSES:
                raise self._wrong(f"{one['class'].lower().replace('_', ' ')} has no place in it")
            if one["class"] == "FUNCTION":
                self._function(one)
            if one["class"] == "COLUMN_REF" and one["column_names"][0].lower() in _CLOCKS:
                raise self._wrong(f"{one['column_names'][0]} does not give the same for the same row")
        return tree

    def _serialized(self, sql: str) -> Any:
        return json.loads(self._asked("SELECT json_serialize_sql(?)", sql)[0][0])

    def _asked(self, sql: str, argument: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, [argument]).fetchall()

    def _function(self, one: dict[str, Any]) -> None:
        name = one["function_name"]
        if one.get("is_operator"):
            return
        found = self._asked(
            "SELECT function_type, has_side_effects FROM duckdb_functions() WHERE function_name = lower(?)", name
        )
        if not found:
            raise self._wrong(f"there is no function {name}")
        if any(kind not in ("scalar", "macro") for kind, _ in found):
            raise self._wrong(f"{name} is not a function of one row")
        if any(effects for _, effects in found) or name.lower() in _CHANGING:
            raise self._wrong(f"{name} does not give the same for the same row")

    def _checked(self) -> None:
        """That it can be asked at all: of a row without any field."""
        own = {OFFSET: pa.nulls(1, pa.int64()), TIMESTAMP: pa.nulls(1, pa.timestamp("ms", "UTC"))}
        try:
            self._true(pa.table(own))
        except (duckdb.Error, ValueError) as error:
            raise self._wrong(_first(error)) from error

    def _wrong(self, why: str) -> UsageError:
        return UsageError(f"the filter {self.sql[:200]!r} cannot be used: {why.strip()[:300]}", hint=_HINT)


_CLOCKS = {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"}  # words, not fields
_CHANGING = _CLOCKS | {  # functions that DuckDB does not mark, because they stay the same within one query
    "now",
    "today",
    "age",
    "get_current_time",
    "get_current_timestamp",
    "transaction_timestamp",
    "current_localtime",
    "current_localtimestamp",
    "current_setting",
    "getenv",
    "getvariable",
}


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300]


def _without_list(node: dict[str, Any]) -> str:
    def plain(one: Any) -> Any:
        if isinstance(one, dict):
            return {name: plain(value) for name, value in one.items() if name not in ("select_list", "query_location")}
        return [plain(value) for value in one] if isinstance(one, list) else one

    return json.dumps(plain(node), sort_keys=True)


def _expressions(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        if isinstance(tree.get("class"), str) and "type" in tree:
            yield tree
        for one in tree.values():
            yield from _expressions(one)
    elif isinstance(tree, list):
        for one in tree:
            yield from _expressions(one)


def _rename(tree: Any, bound: frozenset[str], names: dict[Path, str]) -> None:
    """Give each field that the tree names a column of its own, and note which. The names of a lambda are its own."""
    if isinstance(tree, list):
        for one in tree:
            _rename(one, bound, names)
    elif isinstance(tree, dict):
        if tree.get("class") == "COLUMN_REF":
            path = tuple(tree["column_names"])
            if path[0].lower() not in bound:
                tree["column_names"] = [names.setdefault(path, f"field{len(names)}")]
            return
        if tree.get("class") == "LAMBDA":
            bound = bound | {name.lower() for name in _parameters(tree)}
        for one in tree.values():
            _rename(one, bound, names)


def _parameters(tree: dict[str, Any]) -> Iterator[str]:
    yield from tree.get("named_parameters") or ()
    for one in _expressions(tree.get("lhs")):
        if one["class"] == "COLUMN_REF":
            yield one["column_names"][-1]


def _column(table: pa.Table, path: Path) -> pa.Array:
    """The field at a path, as SQL finds it: in whatever case. Null where there is none."""
    found: pa.Array | None = None
    names = table.column_names
    for depth, part in enumerate(path):
        at = next((at for at, name in enumerate(names) if name == part), None)
        if at is None:
            at = next((at for at, name in enumerate(names) if name.lower() == part.lower()), None)
        if at is None:
            return pa.nulls(table.num_rows)
        found = whole(table.column(at)) if depth == 0 else pc.struct_field(found, [at])
        names = found.type.names if pa.types.is_struct(found.type) else []
    assert found is not None
    if pa.types.is_struct(found.type) and not found.type.num_fields:  # DuckDB has no such thing
        return pc.if_else(found.is_valid(), True, None)
    return found

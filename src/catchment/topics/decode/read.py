"""JSON texts become columns of known kinds, all of them or none: whoever calls finds out which one does not fit.

PyArrow's reader is strict about kinds, refuses names it does not know or that come twice, and does all of that in the
pass in which it builds the columns. What it cannot do is done around it: fields kept as JSON text, maps, and declared
text that holds other things are lifted out of the document by DuckDB and read by themselves.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from catchment.topics.decode import value
from catchment.topics.decode.arrays import list_of, map_of, offsets_of, struct, struct_of, whole
from catchment.topics.decode.schema import (
    ARRAY,
    BIGINT,
    BOOLEAN,
    DOUBLE,
    JSON,
    MAP,
    STRUCT,
    TEXT,
    VOID,
    Field,
    Kind,
    structured,
)

_EXACT_DOUBLE = 2.0**53  # from here on a double may stand for several integers
_EXACT_FLOAT = 2.0**24
_CARRIED = {  # what is not read as what it becomes
    VOID: pa.bool_(),  # and must be null: the reader cannot have lists of the null type
    "FLOAT": pa.float64(),
    "DATE": pa.string(),
    "TIMESTAMP": pa.string(),
    "TIMESTAMP_NTZ": pa.string(),
    "BINARY": pa.string(),
}
_NULL = pa.scalar(None, pa.string())


class Misread(Exception):
    """At least one of the texts does not fit."""


@dataclass(frozen=True)
class How:
    """How strictly to read."""

    infer: bool = False  # unknown fields are read too, after those that are known
    loose: bool = False  # declared STRING may hold other things than text
    trusted: bool = False  # every text was looked at: great numbers are what they seem


def connect() -> duckdb.DuckDBPyConnection:
    """A database in memory that reads nothing from outside."""
    connection = duckdb.connect(config={"threads": 1, "enable_external_access": False})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


class Reader:
    """Reads texts with one connection to DuckDB. Not for two threads at a time."""

    def __init__(self) -> None:
        self._connection = connect()

    def query(self, sql: str, texts: pa.Array, *arguments: object) -> pa.Table:
        """The answer to a query over the table `given`, whose one column is `text`."""
        given = pa.table({"text": texts})
        self._connection.register("given", given)
        try:
            return self._connection.sql(sql, params=list(arguments) or None).to_arrow_table()
        finally:
            self._connection.unregister("given")

    def column(self, expression: str, texts: pa.Array, *arguments: object) -> pa.Array:
        """One expression over `text`, row by row."""
        return whole(self.query(f"SELECT {expression} AS found FROM given", texts, *arguments)["found"])

    def objects(self, texts: pa.StringArray, kind: Kind, how: How) -> pa.StructArray:
        """Columns of texts that are all objects. Misread unless all fit. No text is null."""
        lifted = [one for one in kind.fields if _lifted(one.kind, how)]
        rest = texts
        if lifted:
            patch = json.dumps({one.name: None for one in lifted})
            rest = self.column("json_merge_patch(text, ?)::VARCHAR", texts, patch)
        plain = Kind(STRUCT, fields=tuple(one for one in kind.fields if not _lifted(one.kind, how)))
        read = self._plain(rest, plain, how)
        columns = dict(zip(read.type.names, read.flatten(), strict=True)) if read.type.num_fields else {}
        for one in lifted:
            found = self.column("json_extract(text, ?)::VARCHAR", texts, pointer(one.name))
            columns[one.name] = self._values(found, one.kind, how)
        order = [one.name for one in kind.fields if one.name in columns]
        order += [name for name in columns if name not in kind.by_name]
        return struct([columns[name] for name in order], order, len(texts))

    def _values(self, texts: pa.StringArray, kind: Kind, how: How) -> pa.Array:
        """Values that were lifted out, as JSON texts; null where there was none."""
        texts = pc.if_else(pc.equal(texts, "null"), _NULL, texts)
        if kind.word == JSON:
            return texts
        if kind.word == "STRING":
            return self.column("json_extract_string(text, '$')", texts)
        there = texts.is_valid()
        if kind.word in (STRUCT, MAP):
            _need(texts, "{")
        if kind.word == ARRAY:
            _need(texts, "[")
        if kind.word == STRUCT:
            read = self.objects(pc.fill_null(texts, "{}"), kind, how)
            return struct(read.flatten(), read.type.names, len(texts), pc.invert(there))
        if kind.word == ARRAY:
            lists = self.column("json_extract(text, '$[*]')::VARCHAR[]", texts)
            items = self._values(lists.flatten(), kind.inner, how)
            return list_of(offsets_of(lists), items, pc.invert(there))
        if kind.word == MAP:
            return self._map(texts, kind, how)
        return self._alone(texts, kind, how)

    def _map(self, texts: pa.StringArray, kind: Kind, how: How) -> pa.Array:
        found = self.query(
            "SELECT k, v, len(list_distinct(k)) <> len(k) AS twice FROM"
            " (SELECT json_keys(text) AS k, json_extract(text, '$.*')::VARCHAR[] AS v FROM given)",
            texts,
        )
        if pc.any(found["twice"]).as_py():
            raise Misread("a name comes twice")
        keys, lists = whole(found["k"]), whole(found["v"])
        items = self._values(lists.flatten(), kind.inner, how)
        return map_of(offsets_of(lists), keys.flatten(), items, texts.is_null())

    def _alone(self, texts: pa.StringArray, kind: Kind, how: How) -> pa.Array:
        """Values of a kind that the reader can have, each as a document of its own."""
        wrapped = pc.binary_join_element_wise('{"v":', pc.fill_null(texts, "null"), "}", "")
        read = self._plain(wrapped, Kind(STRUCT, fields=(Field("v", kind),)), how)
        return read.field("v") if read.type.get_field_index("v") >= 0 else pa.nulls(len(texts))

    def _plain(self, texts: pa.StringArray, kind: Kind, how: How) -> pa.StructArray:
        if not len(texts):
            return struct([], [], 0)
        carried = pa.schema([(one.name, _carrier(one.kind, how)) for one in kind.fields if not _left(one.kind, how)])
        table = read_lines(texts, carried, infer=how.infer)
        found = {
            one.name: pa.nulls(len(texts), one.type)
            if _unread(kind, one.name, how)
            else self._converted(whole(table.column(at)), kind.below(one.name), how)
            for at, one in enumerate(table.schema)
        }
        return struct_of(found, len(texts))

    def _converted(self, array: pa.Array, kind: Kind, how: How) -> pa.Array | None:
        """What was read as what it becomes; None if there is nothing to keep."""
        if kind.word == VOID:
            if array.null_count != len(array):
                raise Misread("a value where there was none before")
            return None
        if kind.word == STRUCT:
            found = {
                one.name: pa.nulls(len(array), one.type)
                if _unread(kind, one.name, how)
                else self._converted(array.field(at), kind.below(one.name), how)
                for at, one in enumerate(array.type)
            }
            return struct_of(found, len(array), array.is_null())
        if kind.word == ARRAY:
            items = self._converted(array.values, kind.inner, how)
            return list_of(array.offsets, pa.nulls(len(array.values)) if items is None else items, array.is_null())
        if kind.word == DOUBLE:
            if not how.trusted and _reach(array) >= _EXACT_DOUBLE:
                raise Misread("a double that may have been an integer it cannot hold")
        elif kind.word == "FLOAT":
            return _floats(array, how)
        elif kind.word == "DECIMAL":
            try:
                array.validate(full=True)
            except pa.ArrowInvalid as error:
                raise Misread("more digits than declared") from error
        elif kind.word in PARSED:
            return self._parsed(array, kind)
        return array

    def _parsed(self, array: pa.Array, kind: Kind) -> pa.Array:
        form, expression = PARSED[kind.word]
        found = self.column(f"CASE WHEN regexp_full_match(text, ?) THEN {expression} END", array, form)
        if found.null_count != array.null_count:
            raise Misread(f"not {kind}")
        return found.cast(kind.arrow())


PARSED = {
    "DATE": (value.DATE, "TRY_CAST(text AS DATE)"),
    "TIMESTAMP": (value.TIMESTAMP, "TRY_CAST(text AS TIMESTAMPTZ)"),
    "TIMESTAMP_NTZ": (value.WALL, "TRY_CAST(text AS TIMESTAMP)"),
    "BINARY": (value.BASE64, "from_base64(text)"),
}


def read_lines(texts: pa.StringArray, schema: pa.Schema, *, infer: bool = False) -> pa.Table:
    """One row per text, which must be JSON objects. Misread unless all fit this schema exactly."""
    lines = pc.binary_join_element_wise(texts, "", "\n")
    offsets = np.frombuffer(lines.buffers()[1], dtype=np.int32)[lines.offset : lines.offset + len(lines) + 1]
    body = lines.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    characters = np.frombuffer(body, dtype=np.uint8)
    if np.count_nonzero(characters == 10) != len(texts) or np.count_nonzero(characters == 13):
        # In JSON they can only be white space: inside of text they are written \n and \r.
        return read_lines(pc.replace_substring_regex(texts, r"[\r\n]", " "), schema, infer=infer)
    try:
        table = pj.read_json(
            pa.BufferReader(body),
            read_options=pj.ReadOptions(use_threads=False, block_size=body.size + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="infer" if infer else "error"
            ),
        )
    except (pa.ArrowException, IndexError, OverflowError) as error:
        raise Misread(str(error)) from error
    if table.num_rows != len(texts):
        raise Misread("a text is not one object")
    return table


def discovered(kind: Kind, found: pa.DataType) -> Kind:
    """What a reading with `infer` brings: the kind with the fields that were found. Misread if it is another kind."""
    if kind.word == VOID or pa.types.is_null(found):
        return _inferred(found)
    if kind.word == STRUCT:
        return Kind(
            STRUCT,
            fields=tuple(Field(one.name, discovered(kind.below(one.name), one.type)) for one in found),
        )
    if kind.word == ARRAY:
        if not pa.types.is_list(found):  # an open array is inferred, so it may turn out to be none
            raise Misread(f"not {kind}")
        return Kind(ARRAY, item=discovered(kind.inner, found.value_type))
    if kind.word == MAP:
        return Kind(MAP, item=discovered(kind.inner, found.item_type))
    return kind


def _inferred(found: pa.DataType) -> Kind:
    if pa.types.is_struct(found):
        return structured(Field(one.name, _inferred(one.type)) for one in found)
    if pa.types.is_list(found):
        return Kind(ARRAY, item=_inferred(found.value_type))
    if pa.types.is_timestamp(found) or pa.types.is_string(found):  # the reader guesses times; a text stays a text
        return Kind(TEXT)
    return Kind({pa.null(): VOID, pa.bool_(): BOOLEAN, pa.int64(): BIGINT, pa.float64(): DOUBLE}[found])


def pointer(name: str) -> str:
    """The JSON pointer to a field."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def lifts(kind: Kind, how: How) -> bool:
    """Whether some field has to be lifted out of every text."""
    return _lifted(kind, how)


def declared_text(kind: Kind) -> bool:
    """Whether some field is declared as STRING."""
    inside = [one.kind for one in kind.fields] + ([kind.item] if kind.item is not None else [])
    return kind.word == "STRING" or any(map(declared_text, inside))


def _lifted(kind: Kind, how: How) -> bool:
    if kind.word in (JSON, MAP) or (kind.word == "STRING" and how.loose):
        return True
    return any(_lifted(one.kind, how) for one in kind.fields) or (kind.item is not None and _lifted(kind.item, how))


def _left(kind: Kind, how: How) -> bool:
    """Whether the reader is not told about a field, so that it infers it."""
    return how.infer and (kind.word == VOID or (kind.word == ARRAY and _left(kind.inner, how)))


def _unread(kind: Kind, name: str, how: How) -> bool:
    """Whether only the type of a field is wanted. The reader may have inferred a list that is damaged: hands off."""
    return how.infer and (name not in kind.by_name or _left(kind.below(name), how))


def _carrier(kind: Kind, how: How) -> pa.DataType:
    if kind.word == STRUCT:
        return pa.struct([(one.name, _carrier(one.kind, how)) for one in kind.fields if not _left(one.kind, how)])
    if kind.word == ARRAY:
        return pa.list_(pa.field("element", _carrier(kind.inner, how)))
    return _CARRIED.get(kind.word) or kind.arrow()


def _floats(array: pa.Array, how: How) -> pa.Array:
    if not how.trusted and _reach(array) >= _EXACT_FLOAT:
        raise Misread("a float that may have been an integer it cannot hold, or is too great")
    return array.cast(pa.float32(), safe=False)


def _reach(array: pa.Array) -> float:
    ends: Any = pc.min_max(array).as_py()
    return max(abs(float(ends["min"] or 0)), abs(float(ends["max"] or 0)))


def _need(texts: pa.StringArray, mark: str) -> None:
    if not pc.all(pc.starts_with(texts, mark)).as_py() and texts.null_count != len(texts):
        raise Misread(f"not all begin with {mark}")

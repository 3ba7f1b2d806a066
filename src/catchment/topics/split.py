"""The folder of each row: `type=a/day=2026-11-15`, from the splits of an export, column by column.

A value is text as it is; numbers and booleans are as JSON writes them (`3`, `1.5`, `1.0`, `true`). An object or a list
names no folder, nor does a text that is longer than 200 bytes once it is escaped. What is null, absent or empty is
missing, and gets the split's `default`. A row whose value cannot be used, or is missing without a default, is bad, with
a reason that a person can act on. How times are read is in `moments.py`, how their folders are called in `times.py`.

A field is `a`, or `a.b` for a field of a field; a column that is itself called `a.b` comes first. Of several headers
with one name the last counts, as in Kafka's own clients. A message whose Kafka timestamp is negative has none.

The folder of a row depends on nothing but the row.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catchment.config.decode import Split
from catchment.topics import moments
from catchment.topics.names import folder_of
from catchment.topics.records import TIMESTAMP

RECORD_KEY = "__record_key"  # binary: what splits by key look at
RECORD_HEADERS = "__record_headers"  # records.HEADERS
BAD = pa.schema([("row", pa.int64()), ("reason", pa.string())])

MAX_VALUE = 200  # bytes of an escaped value
MAX_PART = 255  # bytes of name=value: a file system's limit for one name
MAX_FOLDER = 512  # bytes of all of them: a key has 1024, and more is to come before and after
_SHOWN = 60  # characters of a value that a reason quotes
_NO_TEXT = pa.scalar(None, pa.string())
_NESTED = "is an object or a list"
_LONG = "is too long for a folder"


@dataclass(frozen=True)
class Folders:
    """Where rows go. `codes` has an entry for each row, `bad` for each row that goes nowhere."""

    codes: pa.Array  # int32, which of the names; null: the row is in `bad`
    names: list[str]  # each once, in the order in which rows ask for them; "" if nothing splits
    times: pa.Array | None  # int64, milliseconds since 1970 UTC, by the first split that is a time; null: it has none
    bad: pa.Table  # row, reason; ordered by row


@dataclass(frozen=True)
class _Level:
    """One split of all rows."""

    codes: pa.Array  # int32, which of the parts; null: bad
    parts: list[str]  # day=2026-11-15; each once
    reasons: pa.Array | None  # string; null: the row is good; None: they all are
    times: pa.Array | None = None


@dataclass(frozen=True)
class _Given:
    """What a split's source gives: a column, or none at all; what is missing and what is not text is known."""

    column: pa.Array | None
    missing: str  # what to say of a row without it
    noun: str  # field 'a', the key
    garbled: pa.Array | None = None  # booleans: the bytes are there and are no UTF-8


class Splitter:
    """Splits tables by the splits of one export, whose order is the order of the folders."""

    def __init__(self, splits: Mapping[str, Split]) -> None:
        self._splits = dict(splits)
        # Schemas are kept for each value of the first split that is not a time.
        self.type_split = next(((name, split) for name, split in splits.items() if split.by is None), None)
        self.needs_key = any(split.key for split in splits.values())
        self.needs_headers = any(split.header is not None for split in splits.values())

    def type_values(self, records: pa.Table) -> pa.Array:
        """The type of each record, when it is its key or a header: text, null where there is none or it is no UTF-8.

        `records` is as `records.py` has them. ValueError if the type is looked for in the message, or nowhere.
        """
        if self.type_split is None or self.type_split[1].field is not None:
            raise ValueError("the type of these messages is not their key or a header; decode them first")
        split = self.type_split[1]
        column = records["key"] if split.key else _header(records["headers"], split.header or "")
        return _utf8(_whole(column))[0]

    def unnamable(self, type_name: str) -> str | None:
        """Why a type can name no folder; None if it can. Its schema could have no name either."""
        if self.type_split is None or _part(self.type_split[0], type_name) is not None:
            return None
        return f"{self.type_split[0]}: {_quoted(type_name)} {_LONG}"

    def folders(self, table: pa.Table) -> Folders:
        """The folder of each row of a decoded table, or of a backup's records under the names above."""
        rows = table.num_rows
        codes, names = pa.repeat(pa.scalar(0, pa.int32()), rows), [""] if rows else []
        reasons: pa.Array | None = None
        times = None
        for name, split in self._splits.items():
            level = _time(name, split, table) if split.by else _plain(name, split, table)
            reasons = _first(reasons, level.reasons)
            codes, names = _under(codes, names, level)
            times = level.times if times is None else times
        reasons = _first(reasons, _too_long(codes, names))
        if reasons is None:
            return Folders(codes, names, times, BAD.empty_table())
        is_bad = pc.is_valid(reasons)
        codes, names = _used(codes, names, is_bad)
        bad = pa.table([pc.indices_nonzero(is_bad).cast(pa.int64()), reasons.filter(is_bad)], schema=BAD)
        return Folders(codes, names, times, bad)


def texts_of(table: pa.Table, field: str) -> pa.Array:
    """What a field says in each row, as the text that would name its folder: null where it names none.

    That is where the field is absent, null, an object or a list, or bytes that are not UTF-8.
    """
    column = _field(table, field)
    if column is None or pa.types.is_nested(column.type):
        return pa.nulls(table.num_rows, pa.string())
    return _utf8(column)[0] if _is_binary(column.type) else _text(column)


def header_texts(records: pa.Table, name: str) -> pa.Array:
    """The last header of this name in each record, as text: null where there is none or it is no UTF-8."""
    return _utf8(_whole(_header(records["headers"], name)))[0]


def _under(codes: pa.Array, names: list[str], level: _Level) -> tuple[pa.Array, list[str]]:
    """Folders one level deeper: only those that some row is in."""
    if len(names) <= 1:
        return level.codes, [_join(names[0], part) for part in level.parts] if names else []
    width = len(level.parts)
    both = pc.add(pc.multiply(codes.cast(pa.int64()), max(width, 1)), level.codes.cast(pa.int64())).dictionary_encode()
    pairs = (divmod(pair, width) for pair in both.dictionary.to_pylist())
    return both.indices, [_join(names[outer], level.parts[inner]) for outer, inner in pairs]


def _join(outer: str, inner: str) -> str:
    return f"{outer}/{inner}" if outer else inner


def _too_long(codes: pa.Array, names: list[str]) -> pa.Array | None:
    long = [len(name.encode()) > MAX_FOLDER for name in names]
    if not any(long):
        return None
    is_long = pc.fill_null(pa.array(long).take(codes), False)
    return pc.if_else(is_long, f"its folder is longer than {MAX_FOLDER} bytes", _NO_TEXT)


def _first(one: pa.Array | None, other: pa.Array | None) -> pa.Array | None:
    """Of two reasons the first."""
    if one is None or other is None:
        return other if one is None else one
    return pc.coalesce(one, other)


def _used(codes: pa.Array, names: list[str], is_bad: pa.Array) -> tuple[pa.Array, list[str]]:
    """Without the bad rows, and without folders that only they were in."""
    kept = pc.if_else(is_bad, pa.scalar(None, pa.int32()), codes).dictionary_encode()
    return kept.indices, [names[code] for code in kept.dictionary.to_pylist()]


def _plain(name: str, split: Split, table: pa.Table) -> _Level:
    given = _given(split, table)
    texts, reasons = pa.nulls(table.num_rows, pa.string()), None
    if given.column is not None and pa.types.is_nested(given.column.type):
        reasons = pc.if_else(pc.is_valid(given.column), f"{name}: {given.noun} {_NESTED}", _NO_TEXT)
    elif given.column is not None:
        texts = _text(given.column)
    distinct = texts.dictionary_encode()
    codes: dict[str, int] = {}
    code: list[int | None] = []
    whys: list[str | None] = []
    for value in distinct.dictionary.to_pylist():
        part = _part(name, value or split.default or "")
        why = f"{_quoted(value)} {_LONG}" if part is None else f"{given.noun} is empty" if part.endswith("=") else None
        whys.append(f"{name}: {why}" if why else None)
        code.append(None if part is None or why else codes.setdefault(part, len(codes)))
    found = distinct.indices
    if code != [*range(len(code))]:
        found = pa.array(code, pa.int32()).take(found)
        reasons = _first(reasons, pa.array(whys, pa.string()).take(distinct.indices))
    return _fill(name, split, given, _Level(found, list(codes), reasons), texts)


def _part(name: str, value: str) -> str | None:
    """day=2026-11-15, or None if that is too long."""
    part = folder_of([(name, value)])
    size = len(part.encode())
    return part if size <= MAX_PART and size - len(name) - 1 <= MAX_VALUE else None


def _time(name: str, split: Split, table: pa.Table) -> _Level:
    given = _given(split, table)
    column = given.column if given.column is not None else pa.nulls(table.num_rows, pa.string())
    if pa.types.is_string(column.type):  # an empty text is a missing time
        column = pc.if_else(pc.equal(column, ""), _NO_TEXT, column)
    times = moments.milliseconds(column, split)
    codes, values = moments.folders(times, split)
    reasons = None
    if times.null_count > column.null_count:
        is_bad = pc.and_(pc.is_null(times), pc.is_valid(column))
        told = [_no_time(name, split, given, value) for value in _quotable(column.filter(is_bad))]
        reasons = pc.replace_with_mask(pa.nulls(len(column), pa.string()), is_bad, pa.array(told, pa.string()))
    parts = [folder_of([(name, value)]) for value in values]
    return _fill(name, split, given, _Level(codes, parts, reasons, times), column)


def _quotable(column: pa.Array) -> list[Any]:
    """Values for a sentence. Times as text: some have a year that Python does not know."""
    if pa.types.is_nested(column.type):
        return [[]] * len(column)
    found: list[Any] = (column.cast(pa.string()) if pa.types.is_temporal(column.type) else column).to_pylist()
    return found


def _no_time(name: str, split: Split, given: _Given, value: object) -> str:
    if isinstance(value, dict | list):
        return f"{name}: {given.noun} {_NESTED}"
    form = f" in {split.unit}" if split.unit in moments.UNITS else ""
    form = f" as {split.pattern} has it" if split.pattern is not None else form
    return f"{name}: {_quoted(value)} is not a time{form}"


def _fill(name: str, split: Split, given: _Given, level: _Level, values: pa.Array) -> _Level:
    """With the default for rows that have no value, or with the reason why they are bad."""
    reasons, codes, parts = level.reasons, level.codes, list(level.parts)
    if given.garbled is not None:
        reasons = _first(reasons, pc.if_else(given.garbled, f"{name}: {given.noun} is not UTF-8", _NO_TEXT))
    if values.null_count == 0:
        return level
    missing = pc.is_null(values) if reasons is None else pc.and_(pc.is_null(values), pc.is_null(reasons))
    default = None if split.default is None else _part(name, split.default)
    if default is None:
        why = given.missing if split.default is None else f"{_quoted(split.default)} {_LONG}"
        reasons = _first(reasons, pc.if_else(missing, f"{name}: {why}", _NO_TEXT))
    elif pc.any(missing).as_py():
        if default not in parts:
            parts.append(default)
        codes = pc.if_else(missing, pa.scalar(parts.index(default), pa.int32()), codes)
    return _Level(codes, parts, reasons, level.times)


def _given(split: Split, table: pa.Table) -> _Given:
    if split.timestamp:
        column = _whole(table[TIMESTAMP])
        zero = pa.scalar(0, pa.int64()).cast(column.type)
        return _Given(
            pc.if_else(pc.less(column, zero), pa.scalar(None, column.type), column),
            "the message has no timestamp",
            "the timestamp",
        )
    if split.field is not None:
        noun = f"field {split.field!r}"
        column = _field(table, split.field)
        if column is None or not _is_binary(column.type):
            return _Given(column, f"no {noun}", noun)
        missing = f"no {noun}"
    elif split.key:
        noun, missing, column = "the key", "the message has no key", _whole(table[RECORD_KEY])
    else:
        noun = f"header {split.header!r}"
        missing, column = f"no {noun}", _whole(_header(table[RECORD_HEADERS], split.header or ""))
    texts, garbled = _utf8(column)
    return _Given(texts, missing, noun, garbled)


def _field(table: pa.Table, path: str) -> pa.Array | None:
    """The column of a field; None if there is none. Null wherever one of the fields around it is."""
    at = table.schema.get_field_index(path)
    if at >= 0:
        return _simple(_whole(table.column(at)))
    first, *rest = path.split(".")
    at = table.schema.get_field_index(first)
    if at < 0 or not rest:
        return None
    column = _whole(table.column(at))
    for part in rest:
        if pa.types.is_struct(column.type) and column.type.get_field_index(part) >= 0:
            column = pc.struct_field(column, part)
        elif pa.types.is_map(column.type) and pa.types.is_string(column.type.key_type):
            column = pc.map_lookup(column, pa.scalar(part), "last")
        else:
            return None
    return _simple(column)


def _simple(column: pa.Array) -> pa.Array:
    """As one of few types: plain strings, no dictionaries, no nulls that are a type."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_null(kind):
        return column.cast(pa.string())
    return column


def _text(column: pa.Array) -> pa.Array:
    """Values that are no objects or lists as the text that names their folder."""
    if not pa.types.is_floating(column.type):
        return column.cast(pa.string())
    distinct = column.dictionary_encode()
    shortest = distinct.dictionary.cast(pa.string())  # of a 32-bit number as well
    return pa.array([_number(float(text)) for text in shortest.to_pylist()], pa.string()).take(distinct.indices)


def _number(value: float) -> str:
    return json.dumps(value) if math.isfinite(value) else ""


def _header(headers: pa.ChunkedArray, name: str) -> pa.Array:
    """The last header of this name in each list; null where there is none."""
    lists = _whole(headers)
    pairs, rows = pc.list_flatten(lists), pc.list_parent_indices(lists)
    mine = pc.equal(pc.struct_field(pairs, "key"), name)
    values, rows = pc.struct_field(pairs, "value").filter(mine), rows.filter(mine)
    if len(rows) > 1:  # the last of each row: where the next one is of another row
        last = pa.concat_arrays([pc.not_equal(rows[:-1], rows[1:]), pa.array([True])])
        values, rows = values.filter(last), rows.filter(last)
    every = pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(lists))), 1)
    return values.take(pc.index_in(every, value_set=rows.cast(pa.int64())))


def _utf8(column: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """Bytes as text, null where they are none, and where that is (None: nowhere)."""
    column = column.cast(pa.binary())
    try:
        return column.cast(pa.string()), None
    except pa.ArrowInvalid:
        distinct = column.dictionary_encode()
        texts = pa.array([_decoded(value) for value in distinct.dictionary.to_pylist()], pa.string())
        found = texts.take(distinct.indices)
        return found, pc.and_(pc.is_null(found), pc.is_valid(column))


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _quoted(value: object) -> str:
    text = value if isinstance(value, str) else str(value)
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")

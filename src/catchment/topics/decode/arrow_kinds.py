"""Columns of any Arrow types as columns of ours.

    int8 … int64, float32, float64, bool, string, binary, date, decimal up to 38 digits: as they are
    uint8, uint16, uint32   the next larger of SMALLINT, INT, BIGINT
    uint64                  DECIMAL(20,0), which holds all of them
    float16                 FLOAT
    timestamp               TIMESTAMP: microseconds in UTC. What is finer is cut off; without a zone it is in UTC
    time                    STRING, as 08:15:00.123456
    struct, list, map       STRUCT, ARRAY, and MAP if its keys are strings; null stands for a column that is not known
    dictionary, run-end-encoded and extension types: what they stand for

Other types (durations, intervals, unions, …) have no column: Unknown says so.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.topics.decode.arrays import list_of, map_of, offsets_of, struct_of
from catchment.topics.decode.schema import ARRAY, BIGINT, BOOLEAN, DOUBLE, MAP, STRUCT, TEXT, VOID, Field, Kind, within

_TYPES = pa.types
_LEAVES: dict[pa.DataType, str] = {
    pa.null(): VOID,
    pa.bool_(): BOOLEAN,
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.uint8(): "SMALLINT",
    pa.int32(): "INT",
    pa.uint16(): "INT",
    pa.int64(): BIGINT,
    pa.uint32(): BIGINT,
    pa.float16(): "FLOAT",
    pa.float32(): "FLOAT",
    pa.float64(): DOUBLE,
    pa.string(): TEXT,
    pa.large_string(): TEXT,
    pa.string_view(): TEXT,
    pa.binary(): "BINARY",
    pa.large_binary(): "BINARY",
    pa.binary_view(): "BINARY",
    pa.date32(): "DATE",
    pa.date64(): "DATE",
}
_LISTS: tuple[Callable[[pa.DataType], bool], ...] = (
    _TYPES.is_list,
    _TYPES.is_large_list,
    _TYPES.is_fixed_size_list,
    _TYPES.is_list_view,
    _TYPES.is_large_list_view,
)


class Unknown(Exception):
    """A column that cannot be one of ours. The message names it and says why."""


def columns_of(array: pa.Array, path: str = "") -> tuple[Kind, pa.Array]:
    """The kind of an array, and the array with the type of that kind (`Kind.arrow`). Unknown if there is none."""
    given = array.type
    if _TYPES.is_dictionary(given):
        return columns_of(array.dictionary_decode(), path)
    if _TYPES.is_run_end_encoded(given):
        return columns_of(pc.run_end_decode(array), path)
    if isinstance(given, pa.BaseExtensionType):
        return columns_of(array.storage, path)
    if _TYPES.is_struct(given):
        return _struct(array, path)
    if _TYPES.is_map(given):
        return _map(array, path)
    if any(is_one(given) for is_one in _LISTS):
        return _list(array, path)
    kind = _leaf(given, path)
    try:
        return kind, _as(array, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Unknown(f"{path}: {given} cannot be {kind}: {error}") from None


def _leaf(given: pa.DataType, path: str) -> Kind:
    if given in _LEAVES:
        return Kind(_LEAVES[given])
    if _TYPES.is_timestamp(given):
        return Kind("TIMESTAMP")
    if _TYPES.is_time(given):
        return Kind(TEXT)
    if _TYPES.is_fixed_size_binary(given):
        return Kind("BINARY")
    if given == pa.uint64():
        return Kind("DECIMAL", digits=(20, 0))
    if _TYPES.is_decimal(given) and given.precision <= 38 and 0 <= given.scale <= given.precision:
        return Kind("DECIMAL", digits=(given.precision, given.scale))
    raise Unknown(f"{path}: there is no column for Arrow's {given}; cast it to a type that has one")


def _as(array: pa.Array, kind: Kind) -> pa.Array:
    wanted = kind.arrow()
    if kind.word == TEXT:  # which its maker may not have looked at: a cast from bytes does, and copies nothing
        return array.cast(wanted).cast(pa.binary()).cast(wanted)
    if array.type == wanted:
        return array
    if _TYPES.is_timestamp(array.type):
        fine = array.type.unit == "ns"
        if array.type.tz is not None:
            array = array.cast(pa.timestamp(array.type.unit, "UTC"))
        return array.cast(pa.timestamp("us", array.type.tz), safe=not fine).cast(wanted)
    if array.type == pa.uint64():
        return array.cast(pa.string()).cast(wanted)
    return array.cast(wanted)


def _struct(array: pa.StructArray, path: str) -> tuple[Kind, pa.Array]:
    fields: list[Field] = []
    columns: dict[str, pa.Array] = {}
    folded: set[str] = set()
    for one, column in zip(array.type, array.flatten() if array.type.num_fields else [], strict=True):
        place = within(path, one.name)
        if one.name.lower() in folded:
            raise Unknown(f"{place}: there are two columns of this name (names that differ only in case are the same)")
        folded.add(one.name.lower())
        kind, found = columns_of(column, place)
        fields.append(Field(one.name, kind))
        if not kind.open:
            columns[one.name] = found
    return Kind(STRUCT, fields=tuple(fields)), struct_of(columns, len(array), array.is_null())


def _list(array: pa.Array, path: str) -> tuple[Kind, pa.Array]:
    if _TYPES.is_large_list(array.type) or _TYPES.is_fixed_size_list(array.type):
        # Views stay as they are: Arrow's cast of them leaves out the last offset, and loses the last list.
        array = array.cast(pa.list_(array.type.value_type))
    kind, items = columns_of(array.flatten(), f"{path}[]")
    return Kind(ARRAY, item=kind), list_of(offsets_of(array), items, array.is_null())


def _twice(lists: pa.ListArray, keys: pa.Array) -> bool:
    """Whether one of the lists has an item twice. `keys` are all their items."""
    rows = np.repeat(np.arange(len(lists)), np.diff(offsets_of(lists).to_numpy()))
    distinct = pa.table({"row": rows, "key": keys}).group_by(["row", "key"]).aggregate([])
    return bool(distinct.num_rows < len(keys))


def _map(array: pa.MapArray, path: str) -> tuple[Kind, pa.Array]:
    lists = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    names, values = lists.flatten().flatten()
    keys, texts = columns_of(names, path)
    if keys.word not in (TEXT, VOID):
        raise Unknown(f"{path}: the keys of a map are text, not {array.type.key_type}")
    if _twice(lists, texts):
        raise Unknown(f"{path}: a map has a key twice")
    kind, items = columns_of(values, f"{path}[]")
    return Kind(MAP, item=kind), map_of(offsets_of(lists), texts.cast(pa.string()), items, array.is_null())

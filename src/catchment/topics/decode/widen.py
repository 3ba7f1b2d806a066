"""Rows as a decoder hands them over, and later with the final schema: what was added since is null."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from catchment.topics.decode.arrays import map_of, whole
from catchment.topics.decode.schema import KEPT, Schema
from catchment.topics.records import OFFSET, TIMESTAMP


def rows_of(read: pa.StructArray, records: pa.Table, keep: Sequence[str]) -> pa.Table:
    """The fields of messages, then Kafka's own columns of their records, then what is to be kept of these."""
    columns = dict(zip(read.type.names, read.flatten(), strict=True)) if read.type.num_fields else {}
    columns[OFFSET] = records["offset"]
    columns[TIMESTAMP] = records["timestamp"].cast(pa.timestamp("ms", "UTC"))
    columns |= {KEPT + name: records[name] for name in keep}
    return pa.table(columns)


def finished(table: pa.Table, final: Schema) -> pa.Table:
    """Such rows with the columns of the final schema; then Kafka's own and what was kept."""
    schema = final.arrow()
    others = [name for name in table.column_names if name in (OFFSET, TIMESTAMP) or name.startswith(KEPT)]
    # A field may have a name like a kept column, but only behind Kafka's own is it one.
    others = others[others.index(OFFSET) :] if OFFSET in others else others
    fields = set(table.column_names[: len(table.column_names) - len(others)])
    columns = [
        widened(whole(table[one.name]), one.type) if one.name in fields else pa.nulls(table.num_rows, one.type)
        for one in schema
    ]
    columns += [table[name] for name in others]
    return pa.table(columns, schema=pa.schema([*schema, *(table.schema.field(name) for name in others)]))


def widened(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The same values in a type that may have more fields, or that was not known yet. Fields without a column go."""
    if array.type == wanted:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), wanted)
    if array.offset:  # what follows looks at the whole of what is inside
        array = pa.concat_arrays([array, array.slice(0, 0)])
    if pa.types.is_struct(wanted):
        there = {one.name: at for at, one in enumerate(array.type)}
        columns = [
            widened(array.field(there[one.name]), one.type) if one.name in there else pa.nulls(len(array), one.type)
            for one in wanted
        ]
        return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=array.is_null())
    if pa.types.is_list(wanted):
        items = widened(array.values, wanted.value_type)
        return pa.ListArray.from_arrays(array.offsets, items, type=wanted, mask=array.is_null())
    if pa.types.is_map(wanted):
        return map_of(array.offsets, array.keys, widened(array.items, wanted.item_type), array.is_null())
    return array.cast(wanted)

"""Building Arrow arrays from their parts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece. Nothing is copied if it is in one."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def offsets_of(lists: pa.ListArray) -> pa.Array:
    """Of the values that `flatten` gives, which has none of those under null."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    ends = np.zeros(len(lists) + 1, dtype=np.int32)
    np.cumsum(lengths.to_numpy(zero_copy_only=False), out=ends[1:])
    return pa.array(ends)


def map_of(offsets: pa.Array, keys: pa.Array, items: pa.Array, nulls: pa.Array) -> pa.MapArray:
    """A map is null where its offset is."""
    mask = np.append(nulls.to_numpy(zero_copy_only=False), False)
    marked = pa.array(offsets.to_numpy(), mask=mask)
    return pa.MapArray.from_arrays(marked, keys, items, type=pa.map_(pa.string(), pa.field("value", items.type)))


def list_of(offsets: pa.Array, items: pa.Array, nulls: pa.Array) -> pa.ListArray:
    """Lists as our columns have them."""
    return pa.ListArray.from_arrays(offsets, items, type=pa.list_(pa.field("element", items.type)), mask=nulls)


def struct_of(columns: Mapping[str, pa.Array | None], length: int, nulls: pa.Array | None = None) -> pa.StructArray:
    """Of those columns that there are."""
    kept = {name: column for name, column in columns.items() if column is not None}
    return struct(list(kept.values()), list(kept), length, nulls)


def struct(columns: list[pa.Array], names: list[str], length: int, nulls: pa.Array | None = None) -> pa.StructArray:
    """Of no columns, too: then it only says where there is a value."""
    fields = [pa.field(name, column.type) for name, column in zip(names, columns, strict=True)]
    if fields:
        return pa.StructArray.from_arrays(columns, fields=fields, mask=nulls)
    valid = pa.array(np.ones(length, dtype=bool)) if nulls is None else pc.invert(nulls)
    mask = pa.py_buffer(np.packbits(valid.to_numpy(zero_copy_only=False), bitorder="little").tobytes())
    return pa.StructArray.from_buffers(pa.struct([]), length, [mask])

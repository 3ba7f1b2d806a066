"""A column decoded with an earlier schema, as the final one wants it: what was added since is null."""

from __future__ import annotations

import pyarrow as pa

from catchment.topics.decode.read import map_of


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

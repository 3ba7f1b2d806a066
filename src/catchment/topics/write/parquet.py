"""Parquet files: the same rows give the same bytes, however they were cut into pieces on the way."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from catchment.config.decode import Format
from catchment.topics.work import Work

EXT = "parquet"
GROUP_BYTES = 128 << 20  # of a row group, as Arrow holds it in memory
GROUP_ROWS = 1 << 20

_CODECS: dict[str, dict[str, Any]] = {
    "zstd": {"compression": "zstd", "compression_level": 1},
    "snappy": {"compression": "snappy"},
    "gzip": {"compression": "gzip"},
    "none": {"compression": "none"},
}


def metadata(work: Work) -> dict[str, str]:
    """What a file says about itself: the range that it is of."""
    about = {
        "topic": work.topic,
        "kafka_partition": str(work.source),
        "first": work.first,
        "last": work.last,
        "generation": work.generation,
    }
    return {"catchment": json.dumps(about, sort_keys=True)}


def group_rows(rows: int, size: int) -> int:
    """How many rows a row group has in a file of so many rows and bytes: a power of two, or all there are."""
    if rows <= GROUP_ROWS and size <= GROUP_BYTES:
        return max(rows, 1)
    fit = max(1, GROUP_BYTES * rows // max(size, 1))
    return int(min(GROUP_ROWS, 1 << (fit.bit_length() - 1)))


def write(sink: Any, tables: Iterable[pa.Table], *, group: int, format: Format, about: dict[str, str]) -> None:
    """Write tables of one schema as one file, holding one row group in memory at a time. There is at least one row."""
    groups = _groups(tables, group)
    first = next(groups)
    texts, numbers = _texts(first.schema), _numbers(first.schema)
    with pq.ParquetWriter(
        sink,
        first.schema.remove_metadata(),
        store_schema=False,  # Arrow's own copy of the schema: Parquet's says it all
        use_dictionary=texts,
        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        **_CODECS[format.compression or "zstd"],
    ) as out:
        for table in chain([first], groups):
            out.write_table(table, row_group_size=group)
        out.add_key_value_metadata(about)


def _texts(schema: pa.Schema) -> list[str]:
    """The columns that a dictionary is for. For numbers and raw bytes it costs more than it saves."""
    found: list[str] = []

    def look(path: str, kind: pa.DataType) -> None:
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            found.append(path)
        elif pa.types.is_struct(kind):
            for one in kind:
                look(f"{path}.{one.name}", one.type)
        elif pa.types.is_map(kind):
            look(f"{path}.key_value.key", kind.key_type)
            look(f"{path}.key_value.value", kind.item_type)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            look(f"{path}.list.element", kind.value_type)

    for one in schema:
        look(one.name, one.type)
    return found


def _numbers(schema: pa.Schema) -> list[str]:
    """The columns that are written as differences, which Spark reads since 3.3.

    Offsets, times and ids take a fraction of the space then, and no more time. Not columns with a dot in their name:
    the writer takes `a.b` for the field b of a as well, which may be none that can be written so.
    """
    wide = (pa.int32(), pa.int64())
    return [one.name for one in schema if "." not in one.name and (one.type in wide or pa.types.is_timestamp(one.type))]


def _groups(tables: Iterable[pa.Table], group: int) -> Iterator[pa.Table]:
    """The same rows in tables of exactly `group` rows, the last one of fewer, each in one piece."""
    held: list[pa.Table] = []
    rows = 0
    for table in tables:
        held.append(table)
        rows += table.num_rows
        while rows >= group:
            whole = pa.concat_tables(held)
            yield whole.slice(0, group).combine_chunks()
            rows -= group
            held = [whole.slice(group)] if rows else []
    if rows:
        yield pa.concat_tables(held).combine_chunks()

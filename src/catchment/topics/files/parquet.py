"""Parquet files: the same rows give the same bytes, however they were cut into pieces on the way.

A backup's file has these columns: key, value, headers, timestamp, timestamp_type (Kafka's word for it) and offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from catchment.topics.files.format import About, Damaged, backed
from catchment.topics.records import BACKED, HEADERS, OFFSET

READ_ROWS = 1 << 16  # rows that are read at a time
GROUP_BYTES = 128 << 20  # of a row group, as Arrow holds it in memory
GROUP_ROWS = 1 << 20

_CODECS: dict[str, dict[str, Any]] = {
    "zstd": {"compression": "zstd", "compression_level": 1},
    "snappy": {"compression": "snappy"},
    "gzip": {"compression": "gzip"},
    "none": {"compression": "none"},
}
MILLIS = pa.timestamp("ms", "UTC")
BACKUP = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("timestamp", MILLIS),
        ("timestamp_type", pa.string()),
        ("offset", pa.int64()),
    ]
)
# As Kafka numbers them. What has neither is of a time before messages had timestamps, and has the number -1.
_TYPES = pa.array(["CreateTime", "LogAppendTime", "NoTimestampType"])
_NUMBERS = pa.array([0, 1, -1], pa.int32())


@dataclass(frozen=True)
class Parquet:
    """Parquet with one codec."""

    codec: str = "zstd"

    @property
    def ext(self) -> str:
        return "parquet"

    @property
    def typed(self) -> bool:
        return True

    @property
    def keeps(self) -> frozenset[str]:
        return frozenset(BACKED.names)

    def refused(self, records: pa.Table) -> None:
        return None

    def keep(self, records: pa.Table) -> pa.Table:
        kind = records["timestamp_type"]
        kinds = _TYPES.take(pc.if_else(pc.less(kind, 0), 2, kind))
        return pa.table(
            [
                records["key"],
                records["value"],
                records["headers"].cast(HEADERS),
                records["timestamp"].cast(MILLIS),
                kinds,
                records["offset"],
            ],
            schema=BACKUP,
        )

    def kept(self, rows: pa.Table) -> pa.Table:
        """Of a backup's file, or of one of dead letters, whose columns are those of records."""
        at = rows.schema.get_field_index("timestamp_type")
        if at >= 0 and pa.types.is_string(rows.schema.field(at).type):
            numbers = _NUMBERS.take(pc.index_in(rows["timestamp_type"], _TYPES))
            rows = rows.set_column(at, BACKED.field("timestamp_type"), numbers)
        return backed(rows)

    def write(self, sink: pa.NativeFile, tables: Iterable[pa.Table], about: About) -> None:
        write(sink, tables, group=group_rows(about.rows, about.size), codec=self.codec, about=about.metadata)

    def read(self, source: IO[bytes], *, first: int | None = None, last: int | None = None) -> Iterator[pa.Table]:
        try:
            with pq.ParquetFile(source) as file:
                groups = _overlapping(file, first, last)
                for batch in file.iter_batches(READ_ROWS, row_groups=groups) if groups else ():
                    yield pa.Table.from_batches([batch])
        except (
            pa.ArrowException,
            OSError,
            UnicodeDecodeError,
        ) as error:  # OSError of a damaged page, Unicode… of a name
            raise Damaged(f"is no Parquet file that can be read ({error})") from error

    def count(self, source: IO[bytes]) -> int:
        try:
            return int(pq.read_metadata(source).num_rows)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise Damaged(f"is no Parquet file that can be read ({error})") from error


def offset_column(schema: pa.Schema) -> str:
    """What the offsets are called in this file. Damaged if there are none."""
    name = OFFSET if OFFSET in schema.names else "offset"
    if schema.get_field_index(name) < 0 or schema.field(name).type != pa.int64():
        raise Damaged("has no column of offsets")
    return name


def _overlapping(file: pq.ParquetFile, first: int | None, last: int | None) -> list[int]:
    """The row groups that may have an offset in [first, last]."""
    groups = list(range(file.num_row_groups))
    if first is None and last is None:
        return groups
    name = offset_column(file.schema_arrow)
    at = next(i for i in range(len(file.schema)) if file.schema.column(i).path == name)

    def may(group: int) -> bool:
        known = file.metadata.row_group(group).column(at).statistics
        if known is None or not known.has_min_max:
            return True
        return (last is None or known.min <= last) and (first is None or known.max >= first)

    return [group for group in groups if may(group)]


def group_rows(rows: int, size: int) -> int:
    """How many rows a row group has in a file of so many rows and bytes: a power of two, or all there are."""
    if rows <= GROUP_ROWS and size <= GROUP_BYTES:
        return max(rows, 1)
    fit = max(1, GROUP_BYTES * rows // max(size, 1))
    return int(min(GROUP_ROWS, 1 << (fit.bit_length() - 1)))


def write(sink: Any, tables: Iterable[pa.Table], *, group: int, codec: str, about: dict[str, str]) -> None:
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
        **_CODECS[codec],
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

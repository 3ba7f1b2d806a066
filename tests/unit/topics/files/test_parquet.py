"""Parquet files: the same rows give the same bytes."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catchment.topics.files import parquet
from catchment.topics.files.format import Damaged

TABLE = pa.table(
    {
        "id": pa.array(range(1000), pa.int64()),
        "when": pa.array([datetime(2026, 11, 15, tzinfo=UTC)] * 1000, pa.timestamp("ms", "UTC")),
        "name": pa.array(["a", "b"] * 500),
        "raw": pa.array([b"x", None] * 500, pa.binary()),
        "nested": pa.array([{"text": "t", "many": ["u"], "n": 1}] * 1000),
        "map": pa.array([[("k", "v")]] * 1000, pa.map_(pa.string(), pa.string())),
    }
)


def written(*tables: pa.Table, group: int = 1000, codec: str = "zstd") -> bytes:
    sink = pa.BufferOutputStream()
    parquet.write(sink, iter(tables), group=group, codec=codec, about={"catchment": "{}"})
    return bytes(sink.getvalue())


def read(body: bytes) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(body))


def test_what_is_written_is_read() -> None:
    file = read(written(TABLE))
    assert file.read().to_pylist() == TABLE.to_pylist()
    assert file.schema_arrow.field("when").type == pa.timestamp("ms", "UTC")
    assert file.metadata.metadata[b"catchment"] == b"{}"


@pytest.mark.parametrize("cuts", [(1,), (500,), (10, 400, 401), tuple(range(1, 1000, 7))])
@pytest.mark.parametrize("group", [1000, 256])
def test_pieces_make_no_difference(cuts: tuple[int, ...], group: int) -> None:
    edges = (0, *cuts, 1000)
    pieces = [TABLE.slice(start, end - start) for start, end in pairwise(edges)]
    assert written(*pieces, group=group) == written(TABLE, group=group)


@pytest.mark.parametrize("name", ["zstd", "snappy", "gzip", "none"])
def test_compressions(name: str) -> None:
    file = read(written(TABLE, codec=name))
    assert file.metadata.row_group(0).column(0).compression == {"none": "UNCOMPRESSED"}.get(name, name.upper())
    assert file.read().num_rows == 1000


def test_dictionaries_are_for_text_and_differences_for_whole_numbers() -> None:
    group = read(written(TABLE)).metadata.row_group(0)
    encodings = {group.column(at).path_in_schema: set(group.column(at).encodings) for at in range(group.num_columns)}
    texts = {path for path, found in encodings.items() if "RLE_DICTIONARY" in found}
    assert texts == {"name", "nested.text", "nested.many.list.element", "map.key_value.key", "map.key_value.value"}
    assert {path for path, found in encodings.items() if "DELTA_BINARY_PACKED" in found} == {"id", "when"}


@pytest.mark.parametrize(
    ("rows", "size", "group"),
    [
        (10, 1000, 10),
        (parquet.GROUP_ROWS, 1000, parquet.GROUP_ROWS),
        (parquet.GROUP_ROWS + 1, 1000, parquet.GROUP_ROWS),
        (100, 100 * parquet.GROUP_BYTES, 1),
        (100, 2 * parquet.GROUP_BYTES, 32),
        (3_000_000, 3_000_000 * 200, 1 << 19),
    ],
)
def test_row_groups_are_bounded_in_rows_and_bytes(rows: int, size: int, group: int) -> None:
    assert parquet.group_rows(rows, size) == group


def test_a_name_that_is_no_text_is_damage_and_told_as_such() -> None:
    body = written(TABLE).replace(b"nested", b"\xffested")
    with pytest.raises(Damaged, match="is no Parquet file that can be read"):
        list(parquet.Parquet().read(io.BytesIO(body)))

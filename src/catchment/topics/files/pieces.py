"""Columns of bytes: how long each value is, all of them as one stretch of memory, and few enough at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.topics.files.format import Damaged

PIECE = 16 << 20  # bytes of messages that are laid out at a time
LARGEST = (1 << 31) - 1  # bytes in one stretch, as Arrow counts them

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


def lengths(values: pa.Array) -> Numbers:
    """In bytes; 0 where there is none."""
    found: Numbers = pc.fill_null(pc.binary_length(values), 0).to_numpy().astype(np.int64)
    return found


def starts(values: pa.Array) -> Numbers:
    """Where each value begins in `content`."""
    edges = _edges(values).astype(np.int64)
    found: Numbers = edges[:-1] - edges[0]
    return found


def content(values: pa.Array) -> memoryview:
    """The bytes of all values, one after the other, not copied. There are no nulls."""
    edges, data = _edges(values), values.buffers()[2]
    return memoryview(data)[edges[0] : edges[-1]] if len(values) and data else memoryview(b"")


def _edges(values: pa.Array) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]


def cuts(data: bytes, begins: Numbers, ends: Numbers, null: Flags | None = None) -> pa.Array:
    """What lies between these positions of the data, as binary; none of them is before the one before it."""
    if len(data) > LARGEST:
        raise Damaged("has a message that is too large to be read")
    if not len(begins):
        return pa.array([], pa.binary())
    edges = np.empty(2 * len(begins), np.int32)  # what is wanted, what is not, what is wanted, …
    edges[0::2], edges[1::2] = begins, ends
    every = pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    return every.take(pa.array(np.arange(0, len(edges), 2), mask=null))


def pieces(tables: Iterable[pa.Table], size: int = PIECE) -> Iterator[pa.RecordBatch]:
    """The same rows, so many bytes of keys and values at a time, or one row."""
    for table in tables:
        for batch in table.to_batches():
            ends = np.cumsum(sum(lengths(batch[name]) for name in ("key", "value") if name in batch.schema.names))
            start = 0
            while start < batch.num_rows:
                before = int(ends[start - 1]) if start else 0
                end = max(start + 1, int(np.searchsorted(ends, before + size, side="right")))
                yield batch.slice(start, end - start)
                start = end

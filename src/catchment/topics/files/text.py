"""Text files: each message's value, and after it the delimiter. Splitting the file at delimiters gives the messages.

So a message with the delimiter in it cannot be kept, nor one whose end makes another delimiter together with the one
after it (`xa` before `aa`), nor one without a value, which would look like an empty one. Offsets, keys, headers and
timestamps are not kept. Values need not be UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.config.decode import Format
from catchment.topics.files.format import About, Damaged, backed
from catchment.topics.files.packed import packing, unpacking
from catchment.topics.files.pieces import Numbers, content, cuts, pieces

ROWS = pa.schema([("value", pa.binary())])
PIECE = 8 << 20  # bytes that are read at a time
_EXT = {"none": "txt", "gzip": "txt.gz", "zstd": "txt.zst"}
_ADVICE = "set another delimiter, or format parquet or sequence, in a new generation"
_NO_VALUE = "the message has no value, and a text file could not tell it from an empty one; format parquet keeps it"


@dataclass(frozen=True)
class Text:
    """Text with one delimiter and one codec."""

    delimiter: bytes = b"\n"
    compression: str = "none"

    @classmethod
    def of(cls, format: Format) -> Text:
        return cls((format.delimiter or "\n").encode(), format.compression or "none")

    @property
    def ext(self) -> str:
        return _EXT[self.compression]

    @property
    def typed(self) -> bool:
        return False

    @property
    def keeps(self) -> frozenset[str]:
        return frozenset({"value"})

    def refused(self, records: pa.Table) -> pa.Array | None:
        values = records["value"].combine_chunks() if records["value"].num_chunks != 1 else records["value"].chunk(0)
        missing, ambiguous = pc.is_null(values), self._ambiguous(values)
        if not (values.null_count or pc.any(ambiguous).as_py()):
            return None
        why = f"the delimiter {self.delimiter.decode()!r} is in the message, or its end makes one with the one after it"
        reasons = pc.if_else(ambiguous, pa.scalar(f"{why}; {_ADVICE}"), pa.scalar(None, pa.string()))
        return pc.if_else(missing, pa.scalar(_NO_VALUE), reasons)

    def _ambiguous(self, values: pa.Array) -> pa.Array:
        """Whether the first delimiter in a value with the delimiter after it is not that one."""
        delimiter = self.delimiter
        if not overlaps(delimiter):  # what begins within the value then ends in it
            return pc.fill_null(pc.match_substring(values, delimiter), False)
        ended = pc.binary_join_element_wise(values, delimiter, b"")
        return pc.fill_null(pc.not_equal(pc.find_substring(ended, delimiter), pc.binary_length(values)), False)

    def keep(self, records: pa.Table) -> pa.Table:
        return records.select(ROWS.names).cast(ROWS)

    def kept(self, rows: pa.Table) -> pa.Table:
        return backed(rows)

    def write(self, sink: pa.NativeFile, tables: Iterable[pa.Table], about: About) -> None:
        with packing(sink, self.compression) as out:
            for piece in pieces(tables):
                out.write(content(pc.binary_join_element_wise(piece["value"], self.delimiter, b"")))

    def read(self, source: IO[bytes], *, first: int | None = None, last: int | None = None) -> Iterator[pa.Table]:
        rest = b""
        for piece in unpacking(source, self.compression, PIECE):
            data = rest + bytes(piece)
            ends = delimiters(data, self.delimiter)
            if len(ends):
                begins = np.concatenate([[0], ends[:-1] + len(self.delimiter)])
                yield pa.table([cuts(data, begins, ends)], schema=ROWS)
                data = data[int(ends[-1]) + len(self.delimiter) :]
            rest = data
        if rest:
            raise Damaged(f"does not end with its delimiter {self.delimiter.decode()!r}")

    def count(self, source: IO[bytes]) -> int:
        return sum(table.num_rows for table in self.read(source))


def overlaps(delimiter: bytes) -> bool:
    """Whether two of them can share bytes: one's end is the other's beginning."""
    return any(delimiter.startswith(delimiter[at:]) for at in range(1, len(delimiter)))


def delimiters(data: bytes, delimiter: bytes) -> Numbers:
    """Where delimiters begin, looked for from the left, none within another."""
    marks = np.frombuffer(data, np.uint8)
    at = np.flatnonzero(marks[: max(0, len(marks) - len(delimiter) + 1)] == delimiter[0])
    for nth, byte in enumerate(delimiter[1:], 1):
        at = at[marks[at + nth] == byte]
    if len(delimiter) == 1 or not overlaps(delimiter):
        return at
    found, end = [], 0
    for one in at.tolist():
        if one >= end:
            found.append(one)
            end = one + len(delimiter)
    return np.array(found, np.int64)

"""Files of messages, made and read without a bucket."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from catchment.config.decode import Format
from catchment.config.topics import Export
from catchment.topics.files.format import About, FileFormat, file_format
from tests.unit.topics.write.ranges import Message, batches, work

NAME = "topics/backup/clicks/1_3_00000000000000000000-00000000000000000009_0123456789ab.x"


def format_of(**options: Any) -> FileFormat:
    return file_format(Format.model_validate(options))


def about(rows: int, last: int = 9) -> About:
    return About(work(Export.model_validate({"group": "backup"}), last), NAME, rows, 1000 * rows)


def table(messages: Sequence[Message], rows: int = 1000) -> pa.Table:
    return pa.Table.from_batches(batches(messages, rows))


def laid_out(format: FileFormat, tables: Sequence[pa.Table], last: int = 9) -> bytes:
    """A file of these records."""
    sink = pa.BufferOutputStream()
    format.write(sink, (format.keep(one) for one in tables), about(sum(one.num_rows for one in tables), last))
    return bytes(sink.getvalue())


def read(format: FileFormat, body: bytes) -> list[dict[str, Any]]:
    return [row for found in format.read(io.BytesIO(body)) for row in found.to_pylist()]

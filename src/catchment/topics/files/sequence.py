"""Hadoop SequenceFiles, version 6: laid out byte for byte as Hadoop's own writer does, but for the sync marker.

    header   SEQ 6, class of keys, class of values, compressed?, in blocks?, codec if compressed, metadata, marker
    record   its length, its key's length (4 bytes each), key, value        compression none, record: the value alone
    block    -1 and the marker, number of records, then compressed lengths of keys, keys, lengths of values, values

Before a record that begins 100 KB or more after the last marker (the file's beginning, for the first) come -1 and the
marker: there a reader that begins in the middle of the file finds its footing. Hadoop makes the marker of the clock and
the host; here it is a hash of the file's key, so that the same rows under the same name are the same bytes.

A value is the message, a BytesWritable: 4 bytes of length and its bytes. A key is the offset as a LongWritable (8
bytes), or a BytesWritable that holds the MessagePack map {1: offset, 2: key}, without 2 if the message has no key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.config.decode import Format
from catchment.topics.files import scan
from catchment.topics.files.format import About, backed
from catchment.topics.files.packed import Sink, packer
from catchment.topics.files.pieces import Numbers, content, lengths, pieces, starts
from catchment.topics.files.writable import (
    Matrix,
    beside,
    big_endian,
    fixed,
    msgpack_keys,
    ragged,
    text,
    vint,
    vints,
)
from catchment.topics.records import BACKED

LONG = "org.apache.hadoop.io.LongWritable"
BYTES = "org.apache.hadoop.io.BytesWritable"
CODECS = {
    "gzip": "org.apache.hadoop.io.compress.GzipCodec",
    "zstd": "org.apache.hadoop.io.compress.ZStandardCodec",
}
ESCAPE = b"\xff\xff\xff\xff"  # where a record's length is expected: a marker follows
INTERVAL = 5 * 1024 * 20  # bytes between markers in files without blocks
BLOCK = 1_000_000  # bytes of keys and values after which a block ends
_NO_VALUE = "the message has no value, and a BytesWritable cannot say so; format parquet keeps it"


@dataclass(frozen=True)
class Sequence:
    """SequenceFiles with one kind of key and one way to compress."""

    key: str = "offset"  # or msgpack
    compression: str = "none"  # record, block
    codec: str = "gzip"

    @classmethod
    def of(cls, format: Format) -> Sequence:
        return cls(format.key or "offset", format.compression or "none", format.codec or "gzip")

    @property
    def ext(self) -> str:
        return "seq"

    @property
    def typed(self) -> bool:
        return False

    @property
    def keeps(self) -> frozenset[str]:
        return frozenset({"offset", "key", "value"} if self.key == "msgpack" else {"offset", "value"})

    def refused(self, records: pa.Table) -> pa.Array | None:
        values = records["value"]
        if not values.null_count:
            return None
        return pc.if_else(pc.is_null(values), pa.scalar(_NO_VALUE), pa.scalar(None, pa.string()))

    def keep(self, records: pa.Table) -> pa.Table:
        rows = pa.schema([one for one in BACKED if one.name in self.keeps])
        return records.select(rows.names).cast(rows)

    def kept(self, rows: pa.Table) -> pa.Table:
        return backed(rows)

    def write(self, sink: pa.NativeFile, tables: Iterable[pa.Table], about: About) -> None:
        marker = hashlib.md5(about.key.encode(), usedforsecurity=False).digest()
        header = self.header(about.metadata, marker)
        sink.write(header)
        into = _Blocks(sink, self, marker) if self.compression == "block" else _Records(sink, self, marker, len(header))
        for piece in pieces(tables):
            into.add(piece)
        into.end()

    def header(self, metadata: dict[str, str], marker: bytes) -> bytes:
        """What a file begins with."""
        found = b"SEQ\x06" + text(BYTES if self.key == "msgpack" else LONG) + text(BYTES)
        found += bytes([self.compression != "none", self.compression == "block"])
        found += text(CODECS[self.codec]) if self.compression != "none" else b""
        found += len(metadata).to_bytes(4, "big")
        found += b"".join(text(name) + text(value) for name, value in sorted(metadata.items()))
        return found + marker

    def read(self, source: IO[bytes], *, first: int | None = None, last: int | None = None) -> Iterator[pa.Table]:
        return scan.rows(source, {name: short for short, name in CODECS.items()})

    def count(self, source: IO[bytes]) -> int:
        return sum(table.num_rows for table in self.read(source))


def _joined(*parts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement=b"")


@dataclass(frozen=True)
class _Keys:
    """The keys of some records as a file has them: a first part, and perhaps what follows it in each row."""

    head: tuple[Matrix, Numbers]
    tail: pa.Array | None
    lengths: Numbers  # of both together

    @classmethod
    def of(cls, batch: pa.RecordBatch, kind: str) -> _Keys:
        offsets = batch["offset"].to_numpy()
        if kind == "offset":
            head = fixed(big_endian(offsets, 8))
            return cls(head, None, head[1])
        keys = batch["key"]
        sizes = lengths(keys)
        head = msgpack_keys(offsets, sizes, pc.is_null(keys).to_numpy(zero_copy_only=False))
        inside = head[1] + sizes
        return cls(beside(fixed(big_endian(inside, 4)), head), keys, 4 + inside)

    def parts(self, before: Matrix) -> list[pa.Array]:
        """With some bytes before each."""
        return [ragged(*beside(fixed(before), self.head)), *([] if self.tail is None else [self.tail])]


class _Records:
    """A file in which records stand one by one."""

    def __init__(self, sink: Sink, how: Sequence, marker: bytes, at: int) -> None:
        self._sink, self._how, self._mark = sink, how, ESCAPE + marker
        self._at = at  # where in the file the next byte goes
        self._marked = 0  # where the last marker ended

    def add(self, batch: pa.RecordBatch) -> None:
        keys, values = _Keys.of(batch, self._how.key), batch["value"]
        sizes = 4 + lengths(values)
        if self._how.compression == "record":
            values = _each_packed(values, self._how.codec)
            sizes = lengths(values)
        parts = keys.parts(np.hstack([big_endian(keys.lengths + sizes, 4), big_endian(keys.lengths, 4)]))
        if self._how.compression == "none":
            parts.append(ragged(*fixed(big_endian(sizes - 4, 4))))
        self._write(_joined(*parts, values))

    def _write(self, records: pa.Array) -> None:
        data, begins = content(records), starts(records)
        done = 0  # of the data
        while True:
            due = int(np.searchsorted(begins, self._marked + INTERVAL - self._at + done, side="left"))
            if due == len(begins):
                break
            at = int(begins[due])
            self._sink.write(data[done:at])
            self._sink.write(self._mark)
            self._at += at - done + len(self._mark)
            self._marked, done = self._at, at
        self._sink.write(data[done:])
        self._at += len(data) - done

    def end(self) -> None:
        pass


def _each_packed(values: pa.Array, codec: str) -> pa.Array:
    """Every value compressed by itself, with its length before it."""
    pack = packer(codec)
    found = [pack(len(one).to_bytes(4, "big") + one) for one in values.to_pylist()]
    return pa.array(found, pa.binary())


class _Blocks:
    """A file in which many records are compressed together."""

    def __init__(self, sink: Sink, how: Sequence, marker: bytes) -> None:
        self._sink, self._how, self._mark = sink, how, ESCAPE + marker
        self._pack = packer(how.codec)
        self._held: list[pa.RecordBatch] = []
        self._size = 0  # bytes of keys and values that are held

    def add(self, batch: pa.RecordBatch) -> None:
        ends = np.cumsum(_Keys.of(batch, self._how.key).lengths + 4 + lengths(batch["value"]))
        start, before = 0, 0
        while start < batch.num_rows:
            end = int(np.searchsorted(ends, before + BLOCK - self._size, side="left")) + 1
            if end > batch.num_rows:
                self._held.append(batch.slice(start))
                self._size += int(ends[-1]) - before
                return
            self._write([*self._held, batch.slice(start, end - start)])
            self._held, self._size = [], 0
            start, before = end, int(ends[end - 1])

    def end(self) -> None:
        if self._held:
            self._write(self._held)

    def _write(self, batches: list[pa.RecordBatch]) -> None:
        table = pa.Table.from_batches(batches).combine_chunks()
        batch = table.to_batches()[0]
        keys, values = _Keys.of(batch, self._how.key), batch["value"]
        sizes = lengths(values)
        nothing = np.empty((len(values), 0), np.uint8)
        self._sink.write(self._mark + vint(len(values)))
        for part in (
            ragged(*vints(keys.lengths)),
            _joined(*keys.parts(nothing)),
            ragged(*vints(4 + sizes)),
            _joined(ragged(*fixed(big_endian(sizes, 4))), values),
        ):
            body = self._pack(content(part))
            self._sink.write(vint(len(body)))
            self._sink.write(body)

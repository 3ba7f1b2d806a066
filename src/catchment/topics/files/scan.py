"""SequenceFiles read again: every record of a file, in columns.

Where a record ends is only known from its beginning, so its positions are walked one by one; everything else, and all
of a block, is done for many records at once. The header says what is in a file. One with other classes of keys and
values than ours is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import pyarrow as pa

from catchment.topics.files.format import Damaged
from catchment.topics.files.packed import unpacker
from catchment.topics.files.pieces import Flags, Numbers, cuts

PIECE = 8 << 20  # bytes that are read at a time
_LONG = "org.apache.hadoop.io.LongWritable"
_BYTES = "org.apache.hadoop.io.BytesWritable"
_ESCAPE = -1
_MARKER = 16
_CUT = "is cut off"

Data = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class Header:
    """What a file says of itself."""

    keys: str  # offset or msgpack
    compression: str  # none, record, block
    codec: str  # empty without compression
    metadata: Mapping[str, str]
    marker: bytes


def rows(source: IO[bytes], codecs: Mapping[str, str]) -> Iterator[pa.Table]:
    """The rows of a file: offset, key (if its keys have them) and value. Damaged if it cannot be read to its end.

    codecs: by the names that headers have for them.
    """
    stream = _Stream(source)
    header = _header(stream, codecs)
    yield from _blocks(stream, header) if header.compression == "block" else _records(stream, header)


class _Stream:
    """Bytes from the beginning, a few at a time."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._held, self._at = b"", 0

    def take(self, size: int) -> bytes:
        while len(self._held) - self._at < size:
            more = self.more()
            if not more:
                raise Damaged(_CUT)
            self._held, self._at = self._held[self._at :] + more, 0
        self._at += size
        return self._held[self._at - size : self._at]

    def rest(self) -> bytes:
        """What was read ahead and not taken."""
        found, self._held, self._at = self._held[self._at :], b"", 0
        return found

    def more(self) -> bytes:
        """The next piece; empty at the end."""
        return self._source.read(PIECE)

    def ended(self) -> bool:
        if self._at == len(self._held):
            self._held, self._at = self.more(), 0
        return not self._held

    def vint(self) -> int:
        first = self.take(1)[0]
        if first <= 127:
            return first
        size = 0x90 - first
        if not 1 <= size <= 4:
            raise Damaged("has a length that is none")
        return int.from_bytes(self.take(size), "big")

    def text(self) -> str:
        try:
            return self.take(self.vint()).decode()
        except UnicodeDecodeError:
            raise Damaged("has a header that cannot be read") from None


def _header(stream: _Stream, codecs: Mapping[str, str]) -> Header:
    if stream.take(4) != b"SEQ\x06":
        raise Damaged("is no SequenceFile of version 6")
    keys, values = stream.text(), stream.text()
    if keys not in (_LONG, _BYTES) or values != _BYTES:
        raise Damaged(f"has keys and values of other classes than ours ({keys}, {values})")
    compressed, blocks = stream.take(1) != b"\0", stream.take(1) != b"\0"
    codec = stream.text() if compressed else ""
    if compressed and codec not in codecs:
        raise Damaged(f"is compressed by {codec}, which is not known here")
    number = int.from_bytes(stream.take(4), "big")
    metadata = {stream.text(): stream.text() for _ in range(number)}
    how = "block" if blocks else "record" if compressed else "none"
    return Header("offset" if keys == _LONG else "msgpack", how, codecs.get(codec, ""), metadata, stream.take(_MARKER))


def _records(stream: _Stream, header: Header) -> Iterator[pa.Table]:
    data = stream.rest()
    while True:
        starts, end = _walk(data, header.marker)
        if starts:
            yield _table(data, np.array(starts, np.int64), header)
        data = data[end:]
        more = stream.more()
        if not more:
            break
        data += more
    if data:
        raise Damaged(_CUT)


def _walk(data: bytes, marker: bytes) -> tuple[list[int], int]:
    """Where whole records begin, and where the last of them ends."""
    found: list[int] = []
    at, size = 0, len(data)
    while at + 4 <= size:
        length = int.from_bytes(data[at : at + 4], "big", signed=True)
        if length == _ESCAPE:
            if at + 4 + _MARKER > size:
                break
            if data[at + 4 : at + 4 + _MARKER] != marker:
                raise Damaged("has a wrong marker between its records")
            at += 4 + _MARKER
            continue
        if length < 0:
            raise Damaged("has a record whose length is none")
        if at + 8 + length > size:
            break
        found.append(at)
        at += 8 + length
    return found, at


def _table(data: bytes, starts: Numbers, header: Header) -> pa.Table:
    """Records that begin at these positions, in columns."""
    marks = np.frombuffer(data, np.uint8)
    ends = starts + 8 + _numbers(marks, starts, 4)
    keys = starts + 8
    values = keys + _numbers(marks, starts + 4, 4)
    if (values < keys).any() or (values > ends).any():
        raise Damaged("has a record whose key is longer than the record")
    columns = _keys(data, keys, values, header.keys)
    if header.compression == "record":
        columns["value"] = _unpacked(data, values, ends, header.codec)
    else:
        columns["value"] = _sized(data, values, ends)
    return pa.table(columns)


def _blocks(stream: _Stream, header: Header) -> Iterator[pa.Table]:
    unpack = unpacker(header.codec)
    while not stream.ended():
        if stream.take(4) != b"\xff\xff\xff\xff" or stream.take(_MARKER) != header.marker:
            raise Damaged("has no marker before a block")
        number = stream.vint()
        parts = [unpack(stream.take(stream.vint())) for _ in range(4)]
        key_ends, value_ends = np.cumsum(_vints(parts[0], number)), np.cumsum(_vints(parts[2], number))
        for ends, part in ((key_ends, parts[1]), (value_ends, parts[3])):
            if (ends[-1] if number else 0) != len(part):
                raise Damaged("has a block whose lengths are not those of its records")
        columns = _keys(parts[1], _begins(key_ends), key_ends, header.keys)
        columns["value"] = _sized(parts[3], _begins(value_ends), value_ends)
        yield pa.table(columns)


def _begins(ends: Numbers) -> Numbers:
    return np.concatenate([np.zeros(1, np.int64), ends[:-1]])


def _vints(data: bytes, number: int) -> Numbers:
    """So many of Hadoop's variable-length integers, which are all there is."""
    marks = np.frombuffer(data, np.uint8)
    if len(marks) == number and (marks <= 127).all():
        return marks.astype(np.int64)
    stream = memoryview(data)
    found, at = [], 0
    while at < len(stream):
        first = stream[at]
        size = 0 if first <= 127 else 0x90 - first
        if not 0 <= size <= 4:
            raise Damaged("has a length that is none")
        found.append(int.from_bytes(stream[at + 1 : at + 1 + size], "big") if size else first)
        at += 1 + size
    if at != len(stream) or len(found) != number:
        raise Damaged("has a block with more or fewer records than it says")
    return np.array(found, np.int64)


def _numbers(marks: Data, at: Numbers, width: int) -> Numbers:
    """The big-endian numbers at these positions. Damaged if one goes over the end."""
    if len(at) and (at.min() < 0 or int(at.max()) + width > len(marks)):
        raise Damaged(_CUT)
    found = np.zeros(len(at), np.int64)
    for nth in range(width):
        found = (found << 8) | marks[at + nth]
    return found


def _sized(data: bytes, starts: Numbers, ends: Numbers) -> pa.Array:
    """BytesWritables between these positions."""
    lengths = _numbers(np.frombuffer(data, np.uint8), starts, 4)
    if (starts + 4 + lengths != ends).any():
        raise Damaged("has a value that is not as long as it says")
    return cuts(data, starts + 4, ends)


def _unpacked(data: bytes, starts: Numbers, ends: Numbers, codec: str) -> pa.Array:
    """Compressed BytesWritables between these positions."""
    view, unpack = memoryview(data), unpacker(codec)
    bodies = [unpack(view[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    edges = np.cumsum([len(one) for one in bodies], dtype=np.int64)
    return _sized(b"".join(bodies), _begins(edges), edges)


def _keys(data: bytes, starts: Numbers, ends: Numbers, kind: str) -> dict[str, Any]:
    """The columns that keys between these positions say."""
    marks = np.frombuffer(data, np.uint8)
    if kind == "offset":
        if (ends - starts != 8).any():
            raise Damaged("has a key that is no offset")
        return {"offset": pa.array(_numbers(marks, starts, 8))}
    if (_numbers(marks, starts, 4) != ends - starts - 4).any():
        raise Damaged("has a key that is not as long as it says")
    offsets, key_starts, null = _msgpack(marks, starts + 4, ends)
    return {"offset": pa.array(offsets), "key": cuts(data, key_starts, ends, null)}


def _msgpack(marks: Data, at: Numbers, ends: Numbers) -> tuple[Numbers, Numbers, Flags]:
    """Of {1: offset, 2: key}: the offset, where the key begins, and whether there is none."""
    size = _numbers(marks, at, 1)
    offsets, after = _msgpack_number(marks, at + 2)
    null = size == 0x81
    good = (_numbers(marks, at + 1, 1) == 1) & (null | (size == 0x82)) & (after <= ends) & (~null | (after == ends))
    named = np.flatnonzero(~null)
    start = after.copy()
    if len(named) and good.all():
        form = _numbers(marks, after[named] + 1, 1)
        good[named] &= (_numbers(marks, after[named], 1) == 2) & (form >= 0xC4) & (form <= 0xC6)
        lengths = np.zeros(len(named), np.int64)
        for code, width in ((0xC4, 1), (0xC5, 2), (0xC6, 4)):
            rows = np.flatnonzero(form == code)
            lengths[rows] = _numbers(marks, after[named[rows]] + 2, width)
            start[named[rows]] += 2 + width
        good[named] &= start[named] + lengths == ends[named]
    if not good.all():
        raise Damaged("has a key that is no MessagePack map of an offset and a key")
    return offsets, start, null


def _msgpack_number(marks: Data, at: Numbers) -> tuple[Numbers, Numbers]:
    """Unsigned integers, and where they end."""
    form = _numbers(marks, at, 1)
    found, after = form.copy(), at + 1
    bad = form > 127
    for code, width in ((0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)):
        rows = np.flatnonzero(form == code)
        found[rows] = _numbers(marks, at[rows] + 1, width)
        after[rows] += width
        bad[rows] = False
    if bad.any():
        raise Damaged("has a key whose offset is none")
    return found, after

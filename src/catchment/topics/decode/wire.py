"""Reading the same thing in many messages at once: numbers, lengths and pieces of bytes, with numpy.

`data` is the messages' bytes, one message after the other; `at` and `end` hold one position of each message. Whoever
reads goes through a message's parts in order, and takes the same step in all messages together.

Nothing is ever read beyond `end`. A message in which the step cannot be taken is bad: its value is 0 and its position
is its `end`, and what comes of the other messages is the same as without it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Positions = np.ndarray[Any, np.dtype[np.int64]]
Words = np.ndarray[Any, np.dtype[np.uint64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

MOST = 10  # bytes of a varint
_WORD = 8
_ENDS = np.uint64(0x8080808080808080)  # the bit of each byte that says that another follows
_LOWEST = np.uint64(0x0101010101010101)
_ONE = np.uint64(1)
_SQUEEZE = (  # seven bits of each of eight bytes become 56 bits: pairs, pairs of pairs, and both halves
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
)


def flat(values: pa.BinaryArray) -> tuple[Bytes, Positions, Positions]:
    """The bytes of all values, and where each begins and ends. Without a copy of the bytes; a null is empty."""
    validity, offsets, content = values.buffers()
    count = len(values)
    wide = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
    if offsets is None or count == 0:
        bounds = np.zeros(count + 1, np.int64)
    else:
        dtype = np.dtype(np.int64 if wide else np.int32)
        bounds = np.frombuffer(offsets, dtype, count + 1, values.offset * dtype.itemsize).astype(np.int64)
    data = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
    data, bounds = data[bounds[0] : bounds[-1]], bounds - bounds[0]
    starts, ends = bounds[:-1], bounds[1:]
    if validity is not None and values.null_count:
        ends = np.where(values.is_null().to_numpy(zero_copy_only=False), starts, ends)
    return data, starts, ends


def varints(data: Bytes, at: Positions, end: Positions) -> tuple[Words, Positions, Flags]:
    """Numbers in base 128, lowest part first: value, position after it, bad (over its end, or over 10 bytes).

    Of a tenth byte, only the bit that fits into 64 counts.
    """
    first = data.take(at, mode="clip") if len(data) else np.zeros(len(at), np.uint8)
    bad = at >= end
    if not (first & 0x80).any():
        values, after = first.astype(np.uint64), at + 1
    else:
        values, after = _quickly(data, at) if len(data) >= _WORD else (np.zeros(len(at), np.uint64), at.copy())
        near = np.flatnonzero(at > len(data) - _WORD)
        values[near], after[near] = _slowly(data, at[near], end[near])
        bad |= after > end
    if bad.any():
        values, after = np.where(bad, np.uint64(0), values), np.where(bad, end, after)
    return values, after, bad


def _quickly(data: Bytes, at: Positions) -> tuple[Words, Positions]:
    """Eight bytes at once, and two more where these do not end it. Anything for those too near to the end of data."""
    words: Words = _loaded(data, at, "<u8")
    last = ~words & _ENDS
    last &= -last  # the lowest bit alone
    kept = (last - _ONE) | last  # all up to it; everything if there is none
    values = words & kept
    for low, high, shift in _SQUEEZE:
        values = (values & low) | ((values & high) >> shift)
    after = at + (((kept & _LOWEST) * _LOWEST) >> np.uint64(56)).astype(np.int64)
    long = np.flatnonzero(last == 0)
    if len(long):
        # What is read beyond the end of data counts for nothing: the position after it is beyond any end.
        ninth, tenth = data.take(at[long] + 8, mode="clip"), data.take(at[long] + 9, mode="clip")
        more = ninth >= 0x80
        values[long] |= (ninth & 0x7F).astype(np.uint64) << np.uint64(56)
        values[long] |= np.where(more, tenth, 0).astype(np.uint64) << np.uint64(63)
        after[long] = np.where(more & (tenth >= 0x80), np.iinfo(np.int64).max, at[long] + 9 + more)
    return values, after


def _slowly(data: Bytes, at: Positions, end: Positions) -> tuple[Words, Positions]:
    """Byte by byte. The position after what runs over its end, or is longer than ten bytes, lies behind the end."""
    values, after = np.zeros(len(at), np.uint64), end + 1
    left = np.flatnonzero(at < end)
    for number in range(MOST):
        where = at[left] + number
        byte = data[where]
        values[left] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * number)
        done = byte < 0x80
        after[left[done]] = where[done] + 1
        left = left[~done & (where + 1 < end[left])]
        if not len(left):
            break
    return values, after


def zigzag(values: Words) -> Positions:
    """0, 1, 2, 3 … as 0, -1, 1, -2 …"""
    return ((values >> _ONE) ^ -(values & _ONE)).view(np.int64)


def fixed(data: Bytes, at: Positions, end: Positions, dtype: str) -> tuple[np.ndarray[Any, Any], Positions, Flags]:
    """Numbers of a fixed width, for example "<f8": value, position after it, bad (over its end)."""
    kind = np.dtype(dtype)
    after = at + kind.itemsize
    bad = after > end
    values = _loaded(data, at, dtype) if len(data) >= kind.itemsize else np.zeros(len(at), kind)
    if bad.any():
        values, after = np.where(bad, np.zeros((), kind), values), np.where(bad, end, after)
    return values, after, bad


def _loaded(data: Bytes, at: Positions, dtype: str) -> np.ndarray[Any, Any]:
    """What stands at each position, read as this type; at a position too near to the end of data, anything."""
    size = np.dtype(dtype).itemsize
    every: np.ndarray[Any, Any] = np.ndarray((len(data) - size + 1,), dtype, data.data, strides=(1,))
    return every[np.minimum(at, len(data) - size)]  # numpy's take would first copy all of `every`


def slices(
    data: Bytes,
    starts: Positions,
    lengths: Positions,
    null: Flags | None = None,
    type: pa.DataType = pa.binary(),  # noqa: B008
) -> pa.Array:
    """Pieces of data as an array, null where told to; a null's position may be any. Whether it is text is not checked.

    One copy. Both data and the pieces together have less than 2 GB, as one value of ours and a task's piece have.
    """
    count = len(starts)
    # Of an array whose every second value is a piece, and the others what lies between, every second one is taken.
    # What lies between is never looked at, so pieces may come in any order and overlap.
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = starts + lengths
    offsets[-1] = len(data)
    pieces = pa.Array.from_buffers(type, 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pieces.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int64), mask=null))


def texts(values: pa.BinaryArray) -> tuple[pa.StringArray, Flags]:
    """The values as text, without a copy if all are; and which are not UTF-8: null in the text."""
    try:
        return values.cast(pa.string()), np.zeros(len(values), np.bool_)
    except pa.ArrowInvalid:
        pass
    bad = np.zeros(len(values), np.bool_)
    pending = [(0, len(values))]
    while pending:
        first, stop = pending.pop()
        try:
            values.slice(first, stop - first).cast(pa.string())
        except pa.ArrowInvalid:
            if stop - first == 1:
                bad[first] = True
                continue
            middle = (first + stop) // 2
            pending += [(first, middle), (middle, stop)]
    return pc.if_else(pa.array(bad), None, values).cast(pa.string()), bad

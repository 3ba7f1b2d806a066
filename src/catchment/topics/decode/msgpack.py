"""Messages that are MessagePack maps. They are written as JSON, many at a time, and decoded as JSON is.

The library reads one value at a time, so all messages become one: an array of them, with a mark after each. A mark is a
number that occurs nowhere else in these bytes, so that where it is found at its place in the array, the value before it
is one whole message: one that was cut short cannot have swallowed a part of the next. If anything is amiss, the
messages are halved until the bad ones are alone.

- Bytes are base64 text, as JSON has them: declared BINARY, they are bytes again.
- Timestamps (extension type -1) are ISO text: declared TIMESTAMP, they are times.
- Keys that are numbers are text.
- Of two entries with the same key in one map, the last counts. 1 and "1" are two keys: of these the first counts.
- NaN and infinities are numbers.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.topics.decode.json import MAX_DEPTH
from catchment.topics.decode.letters import Reasons
from catchment.topics.decode.wire import flat, slices

_NONE = "not MessagePack"
_KEY = "a key in it is neither text nor a number"
_DEEP = f"nested more than {MAX_DEPTH} levels deep"
_UINT64, _FLOAT, _DOUBLE = 0xCF, 0xCA, 0xCB  # what such numbers begin with
_DECODER = msgspec.msgpack.Decoder()
_ENCODER = msgspec.json.Encoder()


class Amiss(Exception):
    """At least one of the messages is not what it should be."""


@dataclass(frozen=True)
class MsgpackTranslation:
    """A `Translation`."""

    piece: int = 4 << 20  # bytes of messages that are Python objects at one time

    def json(self, values: pa.BinaryArray) -> tuple[pa.BinaryArray, dict[int, str]]:
        reasons = Reasons(len(values))
        reasons.without_value(values)
        rows = reasons.good()
        there = values.take(rows) if reasons.found else values
        texts, bad = [pa.array([], pa.binary())], Reasons(len(there))
        for first, end in _pieces(there, self.piece):
            texts += _texts(there.slice(first, end - first), first, bad)
        numbers = rows.to_numpy()
        return pa.concat_arrays(texts), reasons.found | {int(numbers[at]): why for at, why in bad.found.items()}


def _pieces(values: pa.BinaryArray, size: int) -> list[tuple[int, int]]:
    """Stretches of about so many bytes each."""
    if not len(values):
        return []
    sizes = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    number = np.cumsum(sizes) // size
    starts = [0, *(int(at) + 1 for at in np.flatnonzero(np.diff(number)))]
    return list(zip(starts, [*starts[1:], len(values)], strict=True))


def _texts(values: pa.BinaryArray, first: int, reasons: Reasons) -> Iterator[pa.BinaryArray]:
    """The JSON of each message that has one. `first` is the number of the first of them."""
    try:
        with _no_collection():
            texts = _lines(_objects(values), values)
        yield texts
        return
    except Amiss:
        pass
    if len(values) == 1:
        reasons.found[first] = _why(values[0].as_py())
        return
    middle = len(values) // 2
    yield from _texts(values[:middle], first, reasons)
    yield from _texts(values[middle:], first + middle, reasons)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without looking for garbage: none of these objects is part of a cycle, and looking takes longer than reading."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _objects(values: pa.BinaryArray) -> list[Any]:
    """The messages, read in one go. Amiss unless each is one whole value, and a map."""
    body, marks = _marked(values)
    try:
        found = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, RecursionError) as error:
        raise Amiss from error
    objects: list[Any] = found[::2]
    between = found[1::2]  # a floating-point number may equal a mark, and is none
    if len(found) != 2 * len(values) or between != marks or {*map(type, between)} != {int}:
        raise Amiss
    if {*map(type, objects)} != {dict}:
        raise Amiss
    return objects


def _marked(values: pa.BinaryArray) -> tuple[bytes, list[int]]:
    """An array of all messages with a mark after each, and the marks as numbers."""
    count = len(values)
    begin = 0x80000000  # so great that a number of this size has one form only
    while True:
        start = bytes([_UINT64]) + begin.to_bytes(4)
        marks = np.zeros((count, 9), dtype=np.uint8)
        marks[:, :5] = np.frombuffer(start, dtype=np.uint8)
        marks[:, 5:] = np.arange(count, dtype=">u4").view(np.uint8).reshape(count, 4)
        column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(9), count, [None, pa.py_buffer(marks)])
        joined = pc.binary_join_element_wise(values, column.cast(pa.binary()), b"")
        offsets = np.frombuffer(joined.buffers()[1], dtype=np.int32)
        body = b"\xdd" + (2 * count).to_bytes(4) + bytes(joined.buffers()[2][int(offsets[0]) : int(offsets[count])])
        if body.count(start) == count:  # no byte of `start` but the first is 0xCF, so none overlaps another
            return body, list(range(begin << 32, (begin << 32) + count))
        begin = _next(begin)


def _next(begin: int) -> int:
    """Another beginning of marks, without the byte that all begin with."""
    begin += 0x01010101
    return begin if _UINT64 not in begin.to_bytes(4) else _next(begin)


def _lines(objects: list[Any], values: pa.BinaryArray) -> pa.BinaryArray:
    """As JSON, one text for each. Amiss if one holds what JSON cannot have."""
    try:
        for at in _odd(values):
            objects[at] = _spelled(objects[at])
        body = _ENCODER.encode_lines(objects)
    except (TypeError, ValueError, RecursionError) as error:
        raise Amiss from error
    # Line breaks are nowhere else: in JSON's texts they are escaped.
    data = np.frombuffer(body, dtype=np.uint8)
    ends = np.flatnonzero(data == ord("\n")).astype(np.int64)
    starts = np.append([0], ends[:-1] + 1).astype(np.int64)
    return slices(data, starts, ends - starts, None)


def _odd(values: pa.BinaryArray) -> list[int]:
    """The messages that may hold a number that is not finite: bytes that look like one are there."""
    data, _, ends = flat(values)
    if len(data) < 3:
        return []
    at = np.flatnonzero((data[1:-1] & 0x7F) == 0x7F)
    exponent = np.where(data[at] == _FLOAT, 0x80, np.where(data[at] == _DOUBLE, 0xF0, 0x100))
    at = at[data[at + 2] >= exponent]
    return [int(number) for number in np.unique(np.searchsorted(ends, at, side="right"))]


def _spelled(given: Any) -> Any:
    """The same with numbers that are not finite as JSON's readers know them; the library would write null."""
    if isinstance(given, dict):
        return {name: _spelled(one) for name, one in given.items()}
    if isinstance(given, list):
        return [_spelled(one) for one in given]
    if isinstance(given, float) and not math.isfinite(given):
        return msgspec.Raw(b"NaN" if given != given else b"Infinity" if given > 0 else b"-Infinity")
    return given


def _why(message: bytes) -> str:
    """Why a message by itself cannot be used."""
    try:
        found = _DECODER.decode(message)
    except msgspec.ValidationError:
        return f"{_NONE}: a timestamp is out of range"
    except msgspec.DecodeError as error:
        said = str(error)
        if "truncated" in said:
            return f"{_NONE}: it ends in the middle of a value"
        if "trailing" in said:
            return f"{_NONE}: there is more after its first value"
        return _KEY if "hashable" in said else _NONE
    except TypeError:  # of older versions of the library
        return _KEY
    except UnicodeDecodeError:
        return f"{_NONE}: a text in it is not valid UTF-8"
    except RecursionError:
        return _DEEP
    if not isinstance(found, dict):
        return "not a map"
    try:
        _ENCODER.encode(found)
    except RecursionError:
        return _DEEP
    except (TypeError, ValueError):
        return _unknown(found) or _KEY
    return _DEEP  # only within an array is it deeper than the library goes


def _unknown(found: Any) -> str:
    """Which extension type is in it, if there is one."""
    if isinstance(found, msgspec.msgpack.Ext):
        return f"extension type {found.code} is not known; only timestamps (-1) are"
    inside = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    return next((why for one in inside if (why := _unknown(one))), "")

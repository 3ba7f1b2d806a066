"""Avro's plain types, each read in many lanes at once (`lanes.py`).

A node is one place of a schema. It reads its value in all lanes, or only goes over it, in all lanes or in one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.topics.decode import wire
from catchment.topics.decode.avro.lanes import Cut, Lanes, varint
from catchment.topics.decode.schema import BIGINT, BOOLEAN, STRUCT, TEXT, VOID, Field, Kind
from catchment.topics.decode.wire import Flags, Positions

_INT = (-(1 << 31), (1 << 31) - 1)
_LONG = (-(1 << 63), (1 << 63) - 1)


class Node(ABC):
    """One place of a schema."""

    kind: Kind  # of the column
    least: int = 1  # bytes that a value has; 0 only if it never has any, and then there is no column
    width: int | None = None  # bytes that every value has
    single: bool = False  # whether a value is one varint

    def __init__(self, path: str, kind: Kind) -> None:
        self.path, self.kind = path, kind
        self.cut = f"{path}: the message ends within it; was it written with another schema?"

    @abstractmethod
    def read(self, lanes: Lanes, null: Flags | None) -> pa.Array:
        """One value per lane, of the type `kind.arrow()`."""

    @abstractmethod
    def skip(self, lanes: Lanes, null: Flags | None) -> None:
        """Go over the values. Only what is needed for that is checked."""

    @abstractmethod
    def step(self, view: memoryview, at: int, end: int) -> int:
        """Go over one value: the position after it. Cut, as `skip` fails."""


class Nothing(Node):
    """null."""

    least, width = 0, 0

    def __init__(self, path: str) -> None:
        super().__init__(path, Kind(VOID))

    def read(self, lanes: Lanes, null: Flags | None) -> pa.Array:
        return pa.nulls(len(lanes))

    def skip(self, lanes: Lanes, null: Flags | None) -> None:
        pass

    def step(self, view: memoryview, at: int, end: int) -> int:
        return at


class Number(Node):
    """int and long, and what is written as one of them: each within limits, times `factor`."""

    single = True

    def __init__(self, path: str, kind: Kind, *, int32: bool = False, factor: int = 1) -> None:
        super().__init__(path, kind)
        low, high = _INT if int32 else _LONG
        self._low, self._high, self._factor = -(-low // factor), high // factor, factor
        self._checked = (self._low, self._high) != _LONG
        self._far = f"{path}: a number beyond {'32 bits' if int32 else 'what a TIMESTAMP holds'}"

    def read(self, lanes: Lanes, null: Flags | None) -> pa.Array:
        values = self.values(lanes, null)
        if self._factor != 1:
            values = values * self._factor
        type = self.kind.arrow()
        stored: Any = np.int32 if type.bit_width == 32 else np.int64
        return pa.array(values.astype(stored, copy=False), mask=null).view(type)

    def values(self, lanes: Lanes, null: Flags | None) -> Positions:
        """As they are written. 0 in lanes that are over."""
        values = lanes.number(null, self.cut)
        if self._checked:
            far = (values < self._low) | (values > self._high)
            if far.any():
                lanes.failed(far if null is None else far & ~null, self._far)
                values = np.where(far, 0, values)
        return values

    def skip(self, lanes: Lanes, null: Flags | None) -> None:
        lanes.number(null, self.cut)

    def step(self, view: memoryview, at: int, end: int) -> int:
        return varint(view, at, end, self.cut)[1]


class Enum(Number):
    """The name of one of several symbols."""

    def __init__(self, path: str, symbols: list[str]) -> None:
        super().__init__(path, Kind(TEXT))
        self._symbols = pa.array(symbols, pa.string())
        self._none = f"{path}: its enum has no such symbol; was it written with another schema?"

    def read(self, lanes: Lanes, null: Flags | None) -> pa.Array:
        values = lanes.number(null, self.cut)
        bad = (values < 0) | (values >= len(self._symbols))
        if bad.any():
            lanes.failed(bad if null is None else bad & ~null, self._none)
            values = np.where(bad, 0, values)
        return self._symbols.take(pa.array(values, mask=null))


class Fixed(Node):
    """What always has the same number of bytes."""

    def __init__(self, path: str, kind: Kind, width: int) -> None:
        super().__init__(path, kind)
        self.width = self.least = width

    def read(self, lanes: Lanes, null: Flags | None) -> pa.Array:
        starts = self.starts(lanes, null)
        return lanes.slices(starts, np.full(len(starts), self.width), null)

    def starts(self, lanes: Lanes, null: Flags | None) -> Positions:
        """Where the bytes begin; of lanes that are over, anywhere where there are so many."""
        assert self.width is not None
        starts = lanes.block(self.width, null, self.cut)
        return np.clip(starts, 0, max(len(lanes.data) - self.width, 0))

    def matrix(self, lanes: Lanes, null: Flags | None) -> np.ndarray[Any, Any]:
        """A row of bytes for each lane."""
        assert self.width is not None
        starts = self.starts(lanes, null)
        if len(lanes.data) < self.width:
            return np.zeros((len(lanes), self.width), np.uint8)
        found: np.ndarray[Any, Any] = lanes.data[starts[:, None] + np.arange(self.width)]
        return found

    def skip(self, lanes: Lanes, null: Flags | None) -> None:
        assert self.width is not None
        lanes.block(self.width, null, self.cut)

    def step(self, view: memoryview, at: int, end: int) -> int:
        assert self.width is not None
        if at + self.width > end:
            raise Cut(self.cut)
        return at + self.width


class Float(Fixed):
    """float and double."""

    def __init__(self, path: str, kind: Kind, dtype: str) -> None:
        super().__init__(path, kind, np.dtype(dtype).itemsize)
        self._dtype = dtype

    def read(self, lanes: Lanes, null: Flags | None) -> pa.Array:
        return pa.array(lanes.fixed(self._dtype, null, self.cut), mask=null)


class Truth(Fixed):
    """boolean."""

    def __init__(self, path: str) -> None:
        super().__init__(path, Kind(BOOLEAN), 1)
        self._neither = f"{path}: a boolean that is neither 0 nor 1; was it written with another schema?"

    def read(self, lanes: Lanes, null: Flags | None) -> pa.Array:
        values = lanes.fixed("u1", null, self.cut)
        bad = values > 1
        lanes.failed(bad if null is None else bad & ~null, self._neither)
        return pa.array(values == 1, mask=null)


class Uuid(Fixed):
    """Sixteen bytes, as people write them."""

    def __init__(self, path: str) -> None:
        super().__init__(path, Kind(TEXT), 16)

    def read(self, lanes: Lanes, null: Flags | None) -> pa.Array:
        found = self.matrix(lanes, null)
        halves = np.stack([found >> 4, found & 15], axis=2).reshape(len(found), 32)
        digits = np.frombuffer(b"0123456789abcdef", np.uint8)[halves]
        text = np.insert(digits, [8, 12, 16, 20], ord("-"), axis=1)
        starts = np.arange(len(found), dtype=np.int64) * 36
        return wire.slices(text.reshape(-1), starts, np.full(len(found), 36), null, pa.string())


class Duration(Fixed):
    """Months, days and milliseconds: three numbers, because none of them can be said in another."""

    PARTS = ("months", "days", "millis")

    def __init__(self, path: str) -> None:
        super().__init__(path, Kind(STRUCT, fields=tuple(Field(name, Kind(BIGINT)) for name in self.PARTS)), 12)

    def read(self, lanes: Lanes, null: Flags | None) -> pa.Array:
        numbers = np.ascontiguousarray(self.matrix(lanes, null)).view("<u4").astype(np.int64)
        columns = [pa.array(numbers[:, at], mask=null) for at in range(3)]
        mask = None if null is None else pa.array(null)
        return pa.StructArray.from_arrays(columns, fields=list(self.kind.arrow()), mask=mask)


class Piece(Node):
    """bytes: a length, and so many of them."""

    def __init__(self, path: str, kind: Kind) -> None:
        super().__init__(path, kind)
        self.long = f"{path}: longer than the message; was it written with another schema?"

    def read(self, lanes: Lanes, null: Flags | None) -> pa.Array:
        return lanes.slices(*lanes.piece(null, self.long), null)

    def skip(self, lanes: Lanes, null: Flags | None) -> None:
        lanes.piece(null, self.long)

    def step(self, view: memoryview, at: int, end: int) -> int:
        length, at = varint(view, at, end, self.long)
        if not 0 <= length <= end - at:
            raise Cut(self.long)
        return at + length


class Text(Piece):
    """string."""

    def __init__(self, path: str) -> None:
        super().__init__(path, Kind(TEXT))
        self._wrong = f"{path}: not valid UTF-8"

    def read(self, lanes: Lanes, null: Flags | None) -> pa.Array:
        found, bad = wire.texts(super().read(lanes, null))
        lanes.failed(bad, self._wrong)
        return found


class Decimal(Node):
    """A whole number, the highest byte first, with its point moved: in bytes, or in a fixed."""

    def __init__(self, below: Piece | Fixed, precision: int, scale: int) -> None:
        super().__init__(below.path, Kind("DECIMAL", digits=(precision, scale)))
        self._below, self._most = below, 10**precision
        self.least, self.width = below.least, below.width
        self._far = f"{below.path}: a number of more than {precision} digits"

    def read(self, lanes: Lanes, null: Flags | None) -> pa.Array:
        if isinstance(self._below, Fixed):
            starts = self._below.starts(lanes, null)
            lengths = np.full(len(lanes), self.least if len(lanes.data) >= self.least else 0)
        else:
            starts, lengths = lanes.piece(null, self._below.long)
        if null is not None:
            lengths = np.where(null, 0, lengths)
        words = self._words(lanes, starts, lengths)
        lanes.failed(self._beyond(words), self._far)
        valid = None if null is None else pa.array(~null).buffers()[1]
        return pa.Array.from_buffers(self.kind.arrow(), len(lanes), [valid, pa.py_buffer(words)])

    def skip(self, lanes: Lanes, null: Flags | None) -> None:
        self._below.skip(lanes, null)

    def step(self, view: memoryview, at: int, end: int) -> int:
        return self._below.step(view, at, end)

    def _words(self, lanes: Lanes, starts: Positions, lengths: Positions) -> np.ndarray[Any, Any]:
        """Each number in 16 bytes, the lowest first. One that needs more is the first that has too many digits."""
        data = lanes.data
        out = np.zeros((len(lanes), 16), np.uint8)
        there = np.flatnonzero(lengths)
        if not len(there):
            return out
        starts, lengths = starts[there], lengths[there]
        filled = np.where(data[starts] >= 0x80, 0xFF, 0).astype(np.uint8)
        for place in range(16):
            has = lengths > place
            byte = data[np.where(has, starts + lengths - 1 - place, 0)]
            out[there, place] = np.where(has, byte, filled)
        for at in map(int, np.flatnonzero(lengths > 16)):
            first = int(starts[at])
            value = int.from_bytes(bytes(lanes.view[first : first + int(lengths[at])]), "big", signed=True)
            held = value if abs(value) < self._most else self._most
            out[there[at]] = np.frombuffer(held.to_bytes(16, "little", signed=True), np.uint8)
        return out

    def _beyond(self, words: np.ndarray[Any, Any]) -> Flags:
        """Which have more digits than there are."""
        found = words.view("<i8")[:, 1], words.view("<u8")[:, 0]
        inside: Flags = _less(found, _halves(self._most)) & _less(_halves(-self._most), found)
        return ~inside


def _halves(value: int) -> tuple[Any, Any]:
    """A number of 128 bits in two words, the higher one with the sign."""
    return np.int64(value >> 64), np.uint64(value & 0xFFFFFFFFFFFFFFFF)


def _less(left: tuple[Any, Any], right: tuple[Any, Any]) -> Any:
    return (left[0] < right[0]) | ((left[0] == right[0]) & (left[1] < right[1]))

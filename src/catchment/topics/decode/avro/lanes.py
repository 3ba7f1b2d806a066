"""Where each of many values of the same kind begins, while all of them are read together.

A lane is one value on its way to a row: of a message at first, and of one element of a list further in. All lanes take
each step at once (`wire.py`). A lane that cannot take it is over: its message is a dead letter, it stands at its end,
and what is read of it from then on is empty.

Some lanes may be `null`: they have no such value, give null, and stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.topics.decode import wire
from catchment.topics.decode.wire import Bytes, Flags, Positions

FEW = 32  # lanes below which it is quicker to go through them one by one


class Cut(Exception):
    """A single lane cannot take a step; the text says where and why, as `Lanes.failed` is told for many."""


class Faults:
    """Why messages are dead letters. The first reason of each stays."""

    def __init__(self, messages: int) -> None:
        self._codes = np.zeros(messages, np.int32)
        self._reasons: dict[str, int] = {}

    def add(self, messages: Positions, why: str) -> None:
        code = self._reasons.setdefault(why, len(self._reasons) + 1)
        self._codes[messages[self._codes[messages] == 0]] = code

    def dead(self, messages: Positions) -> Flags:
        """Which of these are, by now."""
        flags: Flags = self._codes[messages] != 0
        return flags

    def found(self) -> dict[int, str]:
        """Reasons by the number of the message."""
        if not self._reasons:
            return {}
        texts = {code: why for why, code in self._reasons.items()}
        return {int(at): texts[int(self._codes[at])] for at in np.flatnonzero(self._codes)}


@dataclass
class Lanes:
    """Many values of the same kind. Each step gives what was read and moves `at` behind it."""

    data: Bytes
    at: Positions
    end: Positions  # of the message
    message: Positions  # which one it is
    faults: Faults
    few: int = FEW
    view: memoryview = field(init=False, repr=False)  # of data, for those that go one by one

    def __post_init__(self) -> None:
        self.view = self.data.data

    def __len__(self) -> int:
        return len(self.at)

    def some(self, numbers: Positions) -> Lanes:
        """Only these. They move by themselves."""
        return self.others(self.at[numbers], numbers)

    def others(self, at: Positions, numbers: Positions) -> Lanes:
        """Lanes within these, from other positions on."""
        return Lanes(self.data, at, self.end[numbers], self.message[numbers], self.faults, self.few)

    def failed(self, bad: Flags, why: str) -> None:
        if bad.any():
            self.faults.add(self.message[bad], why)

    def number(self, null: Flags | None, why: str) -> Positions:
        """A varint with its sign folded in; 0 where there is none."""
        values, after, bad = wire.varints(self.data, self.at, self.end)
        self._moved(after, bad, null, why)
        return wire.zigzag(values)

    def fixed(self, dtype: str, null: Flags | None, why: str) -> np.ndarray[Any, Any]:
        """A number of fixed width."""
        values, after, bad = wire.fixed(self.data, self.at, self.end, dtype)
        self._moved(after, bad, null, why)
        return values

    def block(self, size: int, null: Flags | None, why: str) -> Positions:
        """So many bytes: where they begin. Data is shorter than that at the end of lanes that are over."""
        starts = self.at
        after = starts + size
        bad = after > self.end
        self._moved(np.minimum(after, self.end), bad, null, why)
        return starts

    def piece(self, null: Flags | None, why: str) -> tuple[Positions, Positions]:
        """A length and so many bytes: where they begin, and how many there are. None of lanes that are over."""
        lengths = self.number(null, why)
        bad = (lengths < 0) | (lengths > self.end - self.at)
        if null is not None:
            bad &= ~null
            lengths = np.where(null, 0, lengths)
        starts = self.at
        if bad.any():
            self.failed(bad, why)
            lengths, starts = np.where(bad, 0, lengths), np.where(bad, self.end, starts)
        self.at = starts + lengths
        return starts, lengths

    def slices(self, starts: Positions, lengths: Positions, null: Flags | None) -> pa.BinaryArray:
        return wire.slices(self.data, starts, lengths, null)

    def _moved(self, after: Positions, bad: Flags, null: Flags | None, why: str) -> None:
        if null is not None:
            after, bad = np.where(null, self.at, after), bad & ~null
        self.at = after
        self.failed(bad, why)


def varint(view: memoryview, at: int, end: int, why: str) -> tuple[int, int]:
    """`Lanes.number` of a single lane: the value and the position after it."""
    if at < end and view[at] < 0x80:
        return (view[at] >> 1) ^ -(view[at] & 1), at + 1
    value = shift = 0
    for where in range(at, min(end, at + wire.MOST)):
        byte = view[where]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFFFFFFFFFF
            return (value >> 1) ^ -(value & 1), where + 1
        shift += 7
    raise Cut(why)

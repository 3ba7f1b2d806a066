"""Where the fields of many protobuf messages are, found in all of them together.

In each round one field of every unfinished message is read: first the tags, then, for each tag that was found, what
comes behind it in all messages that have it there. Most messages of a topic have the same fields in the same order, so
there are about as many rounds as fields. The last few messages, those with very many fields, are read one by one: a
round costs the same for three messages as for three hundred.

What a length claims is compared with what is there before anything is done with it. A message that cannot be read to
its end is bad, with the reason; what is found in the others is the same as without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from catchment.topics.decode.protobuf.shape import FIXED4, FIXED8, GROUP, GROUP_END, PIECE, VARINT
from catchment.topics.decode.wire import MOST, Bytes, Flags, Positions, Words, fixed, varints

MAX_DEPTH = 100  # messages and groups inside each other
FEW = 24  # messages: a round for so many costs as much as reading each

ENDS = "it ends within a field"
LONG = "a number is longer than 10 bytes"
BAD_LENGTH = "a field is longer than what is left"
BAD_TAG = "there is no such field number or wire type"
BAD_GROUP = "a group ends that did not begin"
OPEN_GROUP = "a group does not end"
TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
BAD_PACK = "packed values do not fill their field"

_SHORT = 5  # bytes of a tag, or of a length
_SIZES = {FIXED4: 4, FIXED8: 8}
_AnyArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Found:
    """Values of one field."""

    which: Positions  # the number of the message
    at: Positions  # where the value lies: behind the tag, and behind the length if it has one
    value: Words  # a number as it was read, the bits of what has a fixed width, or how long a piece is

    def __len__(self) -> int:
        return len(self.which)

    def take(self, rows: Any) -> Found:
        return Found(self.which[rows], self.at[rows], self.value[rows])

    @classmethod
    def together(cls, parts: Sequence[Found]) -> Found:
        """In the order of the bytes."""
        if not parts:
            return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint64))
        if len(parts) == 1:
            return parts[0]
        joined = cls(*(np.concatenate([getattr(one, name) for one in parts]) for name in ("which", "at", "value")))
        return joined.take(np.argsort(joined.at, kind="stable"))  # each part is in order: they are merged


def scan(
    data: Bytes, starts: Positions, ends: Positions, tags: Sequence[int], *, depth: int = 0, few: int = FEW
) -> tuple[dict[int, Found], dict[int, str]]:
    """The fields with these tags (ascending), and why messages are bad, by number.

    starts: ascending. depth: in how many others these messages are.
    """
    scanner = _Scanner(data, tags, depth)
    scanner.together(starts, ends, few)
    return {tag: Found.together(parts) for tag, parts in scanner.found.items()}, scanner.bad


class _Scanner:
    def __init__(self, data: Bytes, tags: Sequence[int], depth: int) -> None:
        self._data, self._depth = data, depth
        self._tags = np.array(tags, np.uint64)
        self.found: dict[int, list[Found]] = {tag: [] for tag in tags}
        self.bad: dict[int, str] = {}

    def together(self, starts: Positions, ends: Positions, few: int) -> None:
        live = np.flatnonzero(starts < ends)
        at, end = starts[live], ends[live]
        while len(live) > few:
            tags, behind, broken = varints(self._data, at, end)
            same = not broken.any() and bool((tags == tags[0]).all()) and int((behind - at).max()) <= _SHORT
            if same and _sound(int(tags[0])):
                after = self._field(int(tags[0]), live, behind, end, tags)
            else:
                after = np.empty_like(at)
                broken |= (behind - at > _SHORT) | (tags >= 1 << 32) | (tags < 8)
                for code, rows in self._groups(tags, broken):
                    if code is None:
                        after[rows] = self._bad_tags(live[rows], at[rows], end[rows])
                    else:
                        after[rows] = self._field(code, live[rows], behind[rows], end[rows], tags[rows])
            at = after
            left = at < end
            if not left.all():
                live, at, end = live[left], at[left], end[left]
        if len(live):
            self._one_by_one(live, at, end)

    def _groups(self, tags: Words, broken: Flags) -> Iterator[tuple[int | None, _AnyArray]]:
        """Messages that have the same tag now. Unknown ones are told apart by wire type alone: None if it is broken."""
        known = np.searchsorted(self._tags, tags)
        count = len(self._tags)
        if count:
            unknown = self._tags[np.minimum(known, count - 1)] != tags
        else:
            unknown = np.ones(len(tags), np.bool_)
        codes = np.where(unknown, count + (tags & np.uint64(7)).astype(np.int64), known)
        codes[broken] = count + 8
        order = np.argsort(codes.astype(np.uint16), kind="stable")
        bounds = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=count + 9))])
        for code in np.flatnonzero(np.diff(bounds)):
            rows = order[bounds[code] : bounds[code + 1]]
            if code < count:
                yield int(self._tags[code]), rows
            else:
                wire = int(code) - count
                yield (wire if wire <= FIXED4 and wire != GROUP_END else None), rows

    def _bad_tags(self, live: Positions, at: Positions, end: Positions) -> Positions:
        view = self._data.data
        for number, begin, stop in zip(live.tolist(), at.tolist(), end.tolist(), strict=True):
            try:
                tag, _ = _tag(view, begin, stop)
                assert tag & 7 == GROUP_END
                self.bad[number] = BAD_GROUP
            except _Bad as bad:
                self.bad[number] = bad.reason
        return end

    def _field(self, code: int, live: Positions, at: Positions, end: Positions, tags: Words) -> Positions:
        """Read a field in these messages. Behind it; the end if it cannot be read.

        code: its tag, or the wire type alone if nobody wants it.
        """
        wire, data = code & 7, self._data
        if wire == GROUP:
            return self._group(code, live, at, end, tags)
        if wire == PIECE:
            value, begin, bad = varints(data, at, end)
            bad |= (begin - at > _SHORT) | (value > (end - begin).astype(np.uint64))
            after = begin + value.astype(np.int64)
        elif wire == VARINT:
            value, after, bad = varints(data, at, end)
            begin = at
        else:
            value, after, bad = fixed(data, at, end, "<u4" if wire == FIXED4 else "<u8")
            value, begin = value.astype(np.uint64), at
        found = Found(live, begin, value)
        if bad.any():
            for number, left in zip(live[bad].tolist(), (end - at)[bad].tolist(), strict=True):
                self.bad[number] = BAD_LENGTH if wire == PIECE else LONG if wire == VARINT and left >= MOST else ENDS
            after = np.where(bad, end, after)
            found = found.take(~bad)
        if code in self.found:
            self.found[code].append(found)
        return after

    def _group(self, code: int, live: Positions, at: Positions, end: Positions, tags: Words) -> Positions:
        view, after = self._data.data, end.copy()
        sizes, good = np.zeros(len(at), np.uint64), np.zeros(len(at), np.bool_)
        each = zip(tags.tolist(), at.tolist(), end.tolist(), strict=True)
        for row, (tag, begin, stop) in enumerate(each):
            try:
                close, after[row] = _group_end(view, begin, stop, tag >> 3, self._depth + 1)
                sizes[row], good[row] = close - begin, True
            except _Bad as bad:
                self.bad[int(live[row])] = bad.reason
        if code in self.found:
            self.found[code].append(Found(live, at, sizes).take(good))
        return after

    def _one_by_one(self, live: Positions, at: Positions, end: Positions) -> None:
        view = self._data.data
        found: dict[int, tuple[list[int], list[int], list[int]]] = {tag: ([], [], []) for tag in self.found}
        for number, begin, stop in zip(live.tolist(), at.tolist(), end.tolist(), strict=True):
            try:
                for tag, where, value in _fields(view, begin, stop, self._depth):
                    if tag in found:
                        which, places, values = found[tag]
                        which.append(number)
                        places.append(where)
                        values.append(value)
            except _Bad as bad:
                self.bad[number] = bad.reason
        for tag, (which, places, values) in found.items():
            if which:
                arrays = (np.array(which, np.int64), np.array(places, np.int64), np.array(values, np.uint64))
                self.found[tag].append(Found(*arrays))


def unpacked(data: Bytes, pieces: Found, wire: int) -> tuple[Found, Flags]:
    """The values that are packed in pieces, and which pieces are not made of whole values."""
    length = pieces.value.astype(np.int64)
    if wire in _SIZES:
        bad = length % _SIZES[wire] != 0
        at, of = _each(pieces.at, np.where(bad, 0, length), _SIZES[wire])
        value, _, _ = fixed(data, at, at + _SIZES[wire], "<u4" if wire == FIXED4 else "<u8")
        return Found(pieces.which[of], at, value.astype(np.uint64)), bad
    bad = (length > 0) & (data.take(pieces.at + length - 1, mode="clip") >= 0x80)
    every, of = _each(pieces.at, np.where(bad, 0, length), 1)
    last = np.flatnonzero(data[every] < 0x80)  # bytes; and the last byte of every piece is one of them
    first = np.concatenate([[0], last[:-1] + 1]) if len(last) else last
    value, _, long = varints(data, every[first], every[last] + 1)
    bad[of[first[long]]] = True
    return Found(pieces.which[of[first]], every[first], value), bad


def _each(at: Positions, length: Positions, size: int) -> tuple[Positions, Positions]:
    """Where each value of this size lies, in pieces one after the other, and of which piece it is."""
    counts = length // size
    of = np.repeat(np.arange(len(at)), counts)
    within = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    return at[of] + within * size, of


class _Bad(Exception):
    def __init__(self, reason: str) -> None:
        self.reason = reason


def _sound(tag: int) -> bool:
    return 8 <= tag < 1 << 32 and tag & 7 <= FIXED4 and tag & 7 != GROUP_END


def _fields(view: memoryview, at: int, end: int, depth: int) -> Iterator[tuple[int, int, int]]:
    """Tag, where the value lies, and the value or its length, of one field after the other."""
    while at < end:
        tag, at = _tag(view, at, end)
        if tag & 7 == GROUP_END:
            raise _Bad(BAD_GROUP)
        if tag & 7 == GROUP:
            close, after = _group_end(view, at, end, tag >> 3, depth + 1)
            yield tag, at, close - at
        else:
            where, value, after = _value(view, tag & 7, at, end)
            yield tag, where, value
        at = after


def _value(view: memoryview, wire: int, at: int, end: int) -> tuple[int, int, int]:
    """Where it lies, what it is, and the position after it."""
    if wire == VARINT:
        value, after = _varint(view, at, end)
        return at, value, after
    if wire == PIECE:
        try:
            value, begin = _varint(view, at, end)
        except _Bad:
            raise _Bad(BAD_LENGTH) from None
        if begin - at > _SHORT or value > end - begin:
            raise _Bad(BAD_LENGTH)
        return begin, value, begin + value
    after = at + _SIZES[wire]
    if after > end:
        raise _Bad(ENDS)
    return at, int.from_bytes(view[at:after], "little"), after


def _tag(view: memoryview, at: int, end: int, least: int = 8) -> tuple[int, int]:
    tag, after = _varint(view, at, end)
    if after - at > _SHORT or not least <= tag < 1 << 32 or tag & 7 > FIXED4:
        raise _Bad(BAD_TAG)
    return tag, after


def _varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    if at < end and view[at] < 0x80:
        return view[at], at + 1
    value, stop = 0, min(end, at + MOST)
    for number, where in enumerate(range(at, stop)):
        byte = view[where]
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, where + 1
    raise _Bad(LONG if end - at >= MOST else ENDS)


def _group_end(view: memoryview, at: int, end: int, number: int, depth: int) -> tuple[int, int]:
    """Where the content of a group ends, and the position after its last tag."""
    numbers = [number]
    while True:
        if len(numbers) + depth - 1 > MAX_DEPTH:
            raise _Bad(TOO_DEEP)
        if at >= end:
            raise _Bad(OPEN_GROUP)
        close = at
        tag, at = _tag(view, at, end, least=0)  # protobuf takes any field number in a group that nobody reads
        if tag & 7 == GROUP:
            numbers.append(tag >> 3)
        elif tag & 7 == GROUP_END:
            if numbers.pop() != tag >> 3:
                raise _Bad(BAD_GROUP)
            if not numbers:
                return close, at
        else:
            _, _, at = _value(view, tag & 7, at, end)

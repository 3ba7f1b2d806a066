"""Avro's records, lists, maps and unions, each read in many lanes at once.

The elements of a list follow each other, so where the second one begins is known once the first one was gone over.
Therefore lists are gone over first, the first elements of all lanes together, then the second ones, and so on; lists
of elements whose ends can be seen at once need no such rounds, and where only a few lanes are left they go one by one.
Then all elements of all lanes are read together, as lanes of their own.

No count that a message claims is believed beyond what the rest of its bytes can hold.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.topics.decode import wire
from catchment.topics.decode.arrays import list_of, map_of, struct
from catchment.topics.decode.avro.lanes import Cut, Lanes, varint
from catchment.topics.decode.avro.leaves import Float, Node, Number, Text
from catchment.topics.decode.schema import ARRAY, BIGINT, DOUBLE, MAP, STRUCT, VOID, Field, Kind
from catchment.topics.decode.wire import Flags, Positions

MANY = 32  # elements of one list, from which on it is quicker to look at all of their bytes at once


class Record(Node):
    """Fields, one after the other."""

    def __init__(self, path: str, fields: Sequence[tuple[str, Node]]) -> None:
        super().__init__(path, Kind(STRUCT, fields=tuple(Field(name, node.kind) for name, node in fields)))
        self._fields = list(fields)
        self.least = sum(node.least for _, node in fields)
        widths = [node.width for _, node in fields]
        self.width = None if None in widths else self.least

    def read(self, lanes: Lanes, null: Flags | None) -> pa.Array:
        names, columns = [], []
        for name, node in self._fields:
            if node.kind.open:
                node.skip(lanes, null)
            else:
                names.append(name)
                columns.append(node.read(lanes, null))
        return struct(columns, names, len(lanes), None if null is None else pa.array(null))

    def skip(self, lanes: Lanes, null: Flags | None) -> None:
        for _, node in self._fields:
            node.skip(lanes, null)

    def step(self, view: memoryview, at: int, end: int) -> int:
        for _, node in self._fields:
            at = node.step(view, at, end)
        return at


class _Many(Node):
    """Elements in blocks, each with its count before it; a block of none ends them."""

    def __init__(self, path: str, kind: Kind, item: Node) -> None:
        super().__init__(path, kind)
        self.item = item
        self._many = f"{path}: more elements than the message has bytes for; was it written with another schema?"

    def skip(self, lanes: Lanes, null: Flags | None) -> None:
        self._items(lanes, null)

    def step(self, view: memoryview, at: int, end: int) -> int:
        return self._alone(view, at, end, [])

    def _elements(self, lanes: Lanes, null: Flags | None) -> tuple[pa.Array, Lanes, Positions]:
        """Offsets, a lane for each element, and which lane each is of."""
        owners, positions = self._items(lanes, null)
        offsets = np.zeros(len(lanes) + 1, np.int32)
        np.cumsum(np.bincount(owners, minlength=len(lanes)), out=offsets[1:])
        return pa.array(offsets), lanes.others(positions, owners), owners

    def _items(self, lanes: Lanes, null: Flags | None) -> tuple[Positions, Positions]:
        """Of each element, which lane it is of and where it begins, in order. Moves the lanes behind them all."""
        walk = _Walk(lanes)
        active = np.arange(len(lanes)) if null is None else np.flatnonzero(~null)
        while len(active):
            if len(active) <= lanes.few:
                for lane in active.tolist():
                    self._one(walk, lane, None)
                break
            active, counts = self._counts(walk, active)
            if not self.item.least:
                continue
            if self.item.width is not None:
                active = self._of_width(walk, active, counts, self.item.width)
            elif self.item.single:
                active = self._of_varints(walk, active, counts)
            else:
                active = self._in_rounds(walk, active, counts)
        lanes.at = walk.at
        return walk.in_order()

    def _counts(self, walk: _Walk, active: Positions) -> tuple[Positions, Positions]:
        """The next block of each: those lanes that have one, and how many elements are in it."""
        here = walk.here(active)
        counts = here.number(None, self.cut)
        sized = counts < 0  # the block's bytes are said, too
        if sized.any():
            here.number(~sized, self.cut)
            counts = np.where(sized, -counts, counts)
        bad = counts < 0  # the one number that has no opposite
        if self.item.least:
            bad |= counts > (here.end - here.at) // self.item.least
        here.failed(bad, self._many)
        walk.at[active] = here.at
        live = (counts > 0) & ~here.faults.dead(here.message)
        return active[live], counts[live]

    def _of_width(self, walk: _Walk, active: Positions, counts: Positions, width: int) -> Positions:
        """All elements have so many bytes, and `_counts` saw that there is room for them."""
        walk.add(np.repeat(active, counts), np.repeat(walk.at[active], counts) + _ranks(counts) * width)
        walk.at[active] += counts * width
        return active

    def _of_varints(self, walk: _Walk, active: Positions, counts: Positions) -> Positions:
        """An element ends where a byte says that no other follows."""
        here = walk.here(active)
        sizes = np.minimum(here.end - here.at, counts * wire.MOST)
        places = np.repeat(here.at, sizes) + _ranks(sizes)
        last = places[here.data[places] < 0x80]  # bytes, of all lanes one after the other
        first = np.searchsorted(np.flatnonzero(here.data[places] < 0x80), np.cumsum(sizes) - sizes)
        good = np.append(first[1:], len(last)) - first >= counts
        here.failed(~good, self.item.cut)
        active, counts, first, starts = active[good], counts[good], first[good], here.at[good]
        ranks = _ranks(counts)
        numbers = np.repeat(first, counts) + ranks
        before = last[numbers - 1] + 1  # of the first element, something else
        walk.add(np.repeat(active, counts), np.where(ranks == 0, np.repeat(starts, counts), before))
        walk.at[active] = last[first + counts - 1] + 1
        return active

    def _in_rounds(self, walk: _Walk, active: Positions, counts: Positions) -> Positions:
        """The first element of each lane, then the second, and so on."""
        left = active
        while len(left) > walk.lanes.few:
            here = walk.here(left)
            walk.add(left, here.at)
            self.item.skip(here, None)
            walk.at[left] = here.at
            counts = counts - 1
            more = (counts > 0) & ~here.faults.dead(here.message)
            left, counts = left[more], counts[more]
        for lane, count in zip(left.tolist(), counts.tolist(), strict=True):
            self._one(walk, lane, count)
        return active[~walk.lanes.faults.dead(walk.lanes.message[active])]

    def _one(self, walk: _Walk, lane: int, count: int | None) -> None:
        """One lane by itself: so many elements of a block that was begun, or all blocks."""
        lanes, positions, at, end = walk.lanes, list[int](), int(walk.at[lane]), int(walk.lanes.end[lane])
        try:
            if count is None:
                walk.at[lane] = self._alone(lanes.view, at, end, positions)
            else:
                walk.at[lane] = self._block(lanes.view, at, end, positions, count)
        except Cut as cut:
            lanes.faults.add(lanes.message[lane : lane + 1], str(cut))
            walk.at[lane] = end
        walk.add(np.full(len(positions), lane), np.array(positions, np.int64))

    def _alone(self, view: memoryview, at: int, end: int, positions: list[int]) -> int:
        while True:
            count, at = varint(view, at, end, self.cut)
            if count < 0:
                _, at = varint(view, at, end, self.cut)
                count = -count
            if count >= 1 << 63 or (self.item.least and count > (end - at) // self.item.least):
                raise Cut(self._many)
            if count == 0:
                return at
            if self.item.least:
                at = self._block(view, at, end, positions, count)

    def _block(self, view: memoryview, at: int, end: int, positions: list[int], count: int) -> int:
        if self.item.width is not None:  # there is room for them
            after = at + count * self.item.width
            positions.extend(range(at, after, self.item.width))
            return after
        if self.item.single and count > MANY:
            ends = np.flatnonzero(np.frombuffer(view[at : min(end, at + count * wire.MOST)], np.uint8) < 0x80) + at
            if len(ends) < count:
                raise Cut(self.item.cut)
            positions.append(at)
            positions.extend((ends[: count - 1] + 1).tolist())
            return int(ends[count - 1]) + 1
        for _ in range(count):
            positions.append(at)
            at = self.item.step(view, at, end)
        return at


class _Walk:
    """How far each lane has been gone over, and the elements that were found on the way."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes, self.at = lanes, lanes.at.copy()
        self._owners: list[Positions] = []
        self._positions: list[Positions] = []

    def here(self, active: Positions) -> Lanes:
        return self.lanes.others(self.at[active], active)

    def add(self, owners: Positions, positions: Positions) -> None:
        """Elements: which lane each is of, and where it begins. Those of one lane come in their order."""
        self._owners.append(owners)
        self._positions.append(positions)

    def in_order(self) -> tuple[Positions, Positions]:
        if not self._owners:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        owners, positions = np.concatenate(self._owners), np.concatenate(self._positions)
        if len(self._owners) > 1:
            order = np.argsort(owners, kind="stable")
            owners, positions = owners[order], positions[order]
        return owners, positions


class List(_Many):
    """array."""

    def __init__(self, path: str, item: Node) -> None:
        super().__init__(path, Kind(ARRAY, item=item.kind), item)

    def read(self, lanes: Lanes, null: Flags | None) -> pa.Array:
        offsets, elements, _ = self._elements(lanes, null)
        nulls = null if null is not None else np.zeros(len(lanes), np.bool_)
        return list_of(offsets, self.item.read(elements, None), pa.array(nulls))


class Map(_Many):
    """map. A key that comes twice in one is refused: not every reader takes such a map."""

    def __init__(self, path: str, value: Node) -> None:
        self._key, self._value = Text(f"{path} (a key)"), value
        super().__init__(path, Kind(MAP, item=value.kind), Record(path, [("key", self._key), ("value", value)]))
        self._twice = f"{path}: a key comes twice in the map"

    def read(self, lanes: Lanes, null: Flags | None) -> pa.Array:
        offsets, elements, owners = self._elements(lanes, null)
        keys = self._key.read(elements, None).fill_null("")  # of lanes that are over
        self._unique(keys, owners, elements)
        values = self._value.read(elements, None)
        nulls = null if null is not None else np.zeros(len(lanes), np.bool_)
        return map_of(offsets, keys, values, pa.array(nulls))

    def _unique(self, keys: pa.Array, owners: Positions, elements: Lanes) -> None:
        coded = keys.dictionary_encode()
        both = owners * len(coded.dictionary) + coded.indices.to_numpy()
        _, first = np.unique(both, return_index=True)
        if len(first) < len(both):
            again = np.ones(len(both), np.bool_)
            again[first] = False
            elements.failed(again, self._twice)


class Choice(Node):
    """A union: the number of a member, and its value.

    With one member beside null it is that member. Numbers that widen into each other are one column; all others are a
    STRUCT with a field for each member, of which one has a value.
    """

    def __init__(self, path: str, members: Sequence[Node]) -> None:
        self._members = list(members)
        self._null = [at for at, one in enumerate(members) if one.kind.word == VOID]
        self._others = [at for at in range(len(members)) if at not in self._null]
        super().__init__(path, self._kind())
        self.least = 1
        self._none = f"{path}: its union has no such member; was it written with another schema?"

    def _kind(self) -> Kind:
        kinds = [self._members[at].kind for at in self._others]
        if not kinds:
            return Kind(VOID)
        if len(kinds) == 1:
            return kinds[0]
        plain = [type(self._members[at]) for at in self._others]
        words = {kind.word for kind in kinds}
        if words == {"INT", BIGINT} and set(plain) == {Number}:
            return Kind(BIGINT)
        if words == {"FLOAT", DOUBLE} and set(plain) == {Float}:
            return Kind(DOUBLE)
        return Kind(STRUCT, fields=tuple(Field(f"member{at}", kind) for at, kind in enumerate(kinds)))

    def read(self, lanes: Lanes, null: Flags | None) -> pa.Array:
        chosen, absent = self._chosen(lanes, null)
        if len(self._others) <= 1:
            return self._read(self._others[0], lanes, chosen) if self._others else pa.nulls(len(lanes))
        if self.kind.word == STRUCT:
            names, columns = [], []
            for field, at in zip(self.kind.fields, self._others, strict=True):
                if field.kind.open:
                    self._members[at].skip(lanes, chosen != at)
                else:
                    names.append(field.name)
                    columns.append(self._read(at, lanes, chosen))
            return struct(columns, names, len(lanes), pa.array(absent))
        type = self.kind.arrow()
        parts = [self._read(at, lanes, chosen).cast(type) for at in self._others]
        return pc.coalesce(*parts)

    def _chosen(self, lanes: Lanes, null: Flags | None) -> tuple[Positions, Flags]:
        """Which member each lane has, -1 if none; and which have none, or null."""
        chosen = lanes.number(null, self.cut)
        bad = (chosen < 0) | (chosen >= len(self._members))
        if null is not None:
            bad |= null
        if bad.any():
            lanes.failed(bad if null is None else bad & ~null, self._none)
            chosen = np.where(bad, -1, chosen)
        absent = chosen == -1
        for at in self._null:
            absent |= chosen == at
        return chosen, absent

    def _read(self, at: int, lanes: Lanes, chosen: Positions) -> pa.Array:
        """One member: null in the lanes that have another one. Where those are most of them, only the others go."""
        node = self._members[at]
        mine = chosen == at
        count = int(np.count_nonzero(mine))
        if count == len(lanes):
            return node.read(lanes, None)
        if count == 0:
            return pa.nulls(len(lanes), node.kind.arrow())
        if 2 * count >= len(lanes):
            return node.read(lanes, ~mine)
        numbers = np.flatnonzero(mine)
        here = lanes.some(numbers)
        column = node.read(here, None)
        lanes.at = lanes.at.copy()
        lanes.at[numbers] = here.at
        return column.take(pa.array(np.cumsum(mine) - 1, mask=~mine))

    def skip(self, lanes: Lanes, null: Flags | None) -> None:
        chosen, _ = self._chosen(lanes, null)
        for at in self._others:
            mine = chosen == at
            if mine.all():
                self._members[at].skip(lanes, None)
            elif mine.any():
                self._members[at].skip(lanes, ~mine)

    def step(self, view: memoryview, at: int, end: int) -> int:
        chosen, at = varint(view, at, end, self.cut)
        if not 0 <= chosen < len(self._members):
            raise Cut(self._none)
        return self._members[chosen].step(view, at, end)


def _ranks(counts: Positions) -> Positions:
    """0, 1, … up to the first count, then again from 0 up to the second one, and so on."""
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)

"""Messages in Avro's binary encoding become rows: each field of all messages at once, with no library in between.

A schema is given, or each message names its own (`registry.py`). Messages of one schema are read together; those of
another version of it have columns of their own, and the recorded schema of the type unites them (`columns.py`).

A message is read to its last byte. One that ends early, has bytes left over, or says what its schema does not allow is
a dead letter.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa

from catchment.config.decode import Decode
from catchment.errors import UsageError
from catchment.topics.decode import wire
from catchment.topics.decode.arrays import whole
from catchment.topics.decode.avro import schema as avro_schema
from catchment.topics.decode.avro.lanes import FEW, Faults, Lanes
from catchment.topics.decode.avro.leaves import Node
from catchment.topics.decode.avro.schema import BadSchema
from catchment.topics.decode.columns import ColumnDecoder, Parsed
from catchment.topics.decode.decoder import Decoder
from catchment.topics.decode.letters import EMPTY
from catchment.topics.decode.registry import Registered, Registry, UnknownSchema, shared, unframed
from catchment.topics.decode.schemas import Schemas

KIND = "AVRO"
MARK = b"\xc3\x01"  # begins a message in single-object encoding; the fingerprint of its schema follows
PIECE = 1 << 20  # bytes
_OVER = "bytes are left over after the last field; was it written with another schema?"


def avro_decoder(decode: Decode, schemas: Schemas) -> Decoder:
    """The decoder for an export whose schema is given, or whose messages name theirs. UsageError if it is unusable."""
    if decode.registry is not None:
        return ColumnDecoder(FramedAvro(shared(decode.registry)), schemas)
    text = decode.schema_file.read_text() if decode.schema_file is not None else decode.avro_schema
    assert text is not None
    return ColumnDecoder(PlainAvro(text), schemas)


class PlainAvro:
    """A `Parser` of messages that all have this schema, with or without the mark of single-object encoding."""

    def __init__(self, schema: str, *, few: int = FEW) -> None:
        try:
            self._node = avro_schema.parse(schema)
        except BadSchema as bad:
            raise UsageError(f"the Avro schema cannot be used: {bad}", hint="correct schema or schema_file") from None
        self._mark = np.frombuffer(MARK + avro_schema.fingerprint(schema), np.uint8)
        self._few = few

    def parse(self, records: pa.Table) -> tuple[list[Parsed], dict[int, str]]:
        values = whole(records["value"])
        data, starts, ends = wire.flat(values)
        absent = values.is_null().to_numpy(zero_copy_only=False)
        if self._node.least:
            absent = starts == ends
        faults = Faults(len(starts))
        faults.add(np.flatnonzero(absent), EMPTY)
        found = read(self._node, data, self._unmarked(data, starts, ends), ends, faults, few=self._few)
        return [found], faults.found()

    def _unmarked(self, data: wire.Bytes, starts: wire.Positions, ends: wire.Positions) -> wire.Positions:
        marked = np.flatnonzero(ends - starts >= len(self._mark))
        for place, byte in enumerate(self._mark):
            marked = marked[data[starts[marked] + place] == byte]
            if not len(marked):
                return starts
        after = starts.copy()
        after[marked] += len(self._mark)
        return after


class FramedAvro:
    """A `Parser` of messages that name their schemas."""

    def __init__(self, registry: Registry, *, few: int = FEW) -> None:
        self._registry, self._few = registry, few
        self._nodes: dict[int, Node | str] = {}  # by number: or why it cannot be used

    def parse(self, records: pa.Table) -> tuple[list[Parsed], dict[int, str]]:
        values = unframed(whole(records["value"]))
        found, dead = [], dict(values.bad)
        good = np.ones(len(values.numbers), np.bool_)
        good[list(dead)] = False
        for number in np.unique(values.numbers[good]).tolist():
            rows = np.flatnonzero(good & (values.numbers == number))
            node = self._node(number)
            if isinstance(node, str):
                dead |= dict.fromkeys(rows.tolist(), node)
                continue
            faults = Faults(len(rows))
            parsed = read(node, values.data, values.starts[rows], values.ends[rows], faults, few=self._few)
            found.append(Parsed(pa.array(rows[parsed.rows.to_numpy()]), parsed.values, parsed.kind))
            dead |= {int(rows[at]): why for at, why in faults.found().items()}
        return found, dead

    def _node(self, number: int) -> Node | str:
        if number not in self._nodes:
            try:
                self._nodes[number] = self._built(self._registry.schema(number))
            except UnknownSchema as unknown:
                return unknown.message  # not kept: it may be registered yet
        return self._nodes[number]

    def _built(self, schema: Registered) -> Node | str:
        if schema.kind != KIND:
            return f"schema {schema.number} is of kind {schema.kind}, and the export decodes Avro"
        try:
            return avro_schema.parse(schema.text, self._others(schema))
        except BadSchema as bad:
            return f"schema {schema.number} cannot be used: {bad}"

    def _others(self, schema: Registered) -> list[str]:
        """The texts of all schemas that this one uses, each after those that it uses itself."""
        found: dict[int, str] = {}
        open_: set[int] = set()

        def visit(one: Registered) -> None:
            for reference in one.references:
                other = self._registry.referenced(reference)
                if other.number not in found and other.number not in open_:
                    open_.add(other.number)
                    visit(other)
                    found[other.number] = other.text

        visit(schema)
        return list(found.values())


def read(
    node: Node,
    data: wire.Bytes,
    starts: wire.Positions,
    ends: wire.Positions,
    faults: Faults,
    *,
    few: int = FEW,
) -> Parsed:
    """What these messages hold, all of one schema. The others have faults, or get them here."""
    found = []
    for first, stop in _pieces(ends - starts):
        here = slice(first, stop)
        lanes = Lanes(data, starts[here], ends[here], np.arange(first, stop), faults, few)
        values = node.read(lanes, None)
        lanes.failed(lanes.at < lanes.end, _OVER)
        good = np.flatnonzero(~faults.dead(lanes.message))
        found.append(values if len(good) == len(values) else values.take(pa.array(good)))
    rows = np.flatnonzero(~faults.dead(np.arange(len(starts))))
    values = found[0] if len(found) == 1 else pa.concat_arrays(found)
    return Parsed(pa.array(rows), values, node.kind)


def _pieces(lengths: wire.Positions) -> list[tuple[int, int]]:
    """Messages that are read together: so few that what is noted of each of their elements stays small."""
    total = np.cumsum(lengths)
    cuts = np.searchsorted(total, np.arange(PIECE, int(total[-1]) if len(total) else 0, PIECE)) + 1
    borders = np.unique(np.concatenate([[0], cuts, [len(lengths)]])).tolist()
    return list(pairwise(borders)) or [(0, 0)]

"""Records from plain values, and a decoder over a bucket in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from catchment.bucket.memory import MemoryBucket
from catchment.topics.decode.decoder import Decoded, Decoder, Typed
from catchment.topics.decode.json import JsonDecoder
from catchment.topics.decode.schema import Schema
from catchment.topics.decode.schemas import Schemas
from catchment.topics.names import Place
from catchment.topics.records import RECORDS

PLACE = Place("events", "orders")
TYPE = "order"


def records(messages: Sequence[object], first: int = 0) -> pa.Table:
    """Bytes, text and None as they are, everything else as JSON. Offsets count from `first`."""
    values = [
        one if one is None or isinstance(one, bytes) else (one if isinstance(one, str) else json.dumps(one)).encode()
        for one in messages
    ]
    offsets = pa.array(range(first, first + len(values)), pa.int64())
    keys = pa.array([b"k%d" % at for at in range(len(values))], pa.binary())
    return pa.table([offsets, offsets, keys, pa.array(values, pa.binary())], schema=RECORDS)


@dataclass
class Lake:
    """One export. Each `task` begins with what is recorded."""

    declared: Mapping[str, str] = field(default_factory=dict)
    generation: int = 1
    bucket: MemoryBucket = field(default_factory=MemoryBucket)

    def task(self) -> tuple[Schemas, JsonDecoder]:
        schemas = Schemas(self.bucket, PLACE, self.declared, self.generation)
        return schemas, JsonDecoder(schemas)

    def decode(self, *messages: object) -> tuple[list[dict[str, object]], list[str], Schema]:
        """Rows without Kafka's own columns, reasons, and the schema, which is settled."""
        schemas, decoder = self.task()
        decoded = decoder.decode(TYPE, records(messages))
        schemas.settle([TYPE])
        return rows(decoder, decoded), reasons(decoded), schemas.of(TYPE)


def rows(decoder: Decoder, decoded: Decoded) -> list[dict[str, object]]:
    found: list[dict[str, object]] = (
        decoder.finish(TYPE, decoded.table).drop_columns(["_offset", "_timestamp"]).to_pylist()
    )
    return found


def reasons(decoded: Decoded | Typed) -> list[str]:
    found: list[str] = decoded.dead["reason"].to_pylist()
    return found


def ddl(schema: Schema) -> dict[str, str]:
    """The fields that have a column, as people write them."""
    return {one.name: str(one.kind) for one in schema.fields if not one.kind.open}

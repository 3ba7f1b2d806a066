"""Protobuf messages become rows: which message each one is, and then all of a kind at once.

Which message it is comes from the configuration (`message`), from a header or a field that names its type (`type_from`
and `messages`), or from the number of a schema in a registry, before each message (`registry`). Then come the columns
that `shape.py` lists.

An empty value is a message whose fields are all absent; a record without a value is a dead letter. So is a message
that protobuf itself would not read, one with text that is not UTF-8, or without a field that is required.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from catchment.config.decode import Decode
from catchment.errors import UsageError
from catchment.topics.decode.columns import ColumnDecoder, Parsed
from catchment.topics.decode.decoder import Decoder
from catchment.topics.decode.protobuf.choice import Always, ByField, ByHeader, Chooser
from catchment.topics.decode.protobuf.columns import Reading
from catchment.topics.decode.protobuf.files import Messages
from catchment.topics.decode.protobuf.registry import Framed
from catchment.topics.decode.protobuf.shape import shape_of
from catchment.topics.decode.registry import shared
from catchment.topics.decode.schema import Kind
from catchment.topics.decode.schemas import Schemas


def protobuf_decoder(decode: Decode, schemas: Schemas) -> Decoder:
    """UsageError if there is no such message, or the field that is to name the type cannot."""
    return ColumnDecoder(ProtobufParser(chooser_of(decode)), schemas)


class ProtobufParser:
    """A `Parser` of columns.py."""

    def __init__(self, chooser: Chooser) -> None:
        self._chooser = chooser

    def parse(self, records: pa.Table) -> tuple[list[Parsed], dict[int, str]]:
        """What the records hold, each in one Parsed, and why the others are dead letters, by their number."""
        found = self._chooser.sort(records)
        dead = dict(found.dead)
        parsed = []
        for shape, rows in found.groups:
            reading = Reading(found.data)
            values = reading.messages(shape, found.starts[rows], found.ends[rows], rows)
            if reading.bad:
                dead |= reading.bad
                good = np.flatnonzero(~np.isin(rows, list(reading.bad)))
                values, rows = values.take(pa.array(good)), rows[good]
            parsed.append(Parsed(pa.array(rows), values, shape.kind))
        return _by_kind(one for one in parsed if len(one.rows)), dead


def _by_kind(parsed: Iterable[Parsed]) -> list[Parsed]:
    """Messages whose columns are the same are of one shape, though they may have come in different ones."""
    found: dict[Kind, list[Parsed]] = {}
    for one in parsed:
        found.setdefault(one.kind, []).append(one)
    return [_together(alike) if len(alike) > 1 else alike[0] for alike in found.values()]


def _together(alike: list[Parsed]) -> Parsed:
    rows = np.concatenate([one.rows.to_numpy() for one in alike])
    order = np.argsort(rows)
    values = pa.concat_arrays([one.values for one in alike]).take(pa.array(order))
    return Parsed(pa.array(rows[order]), values, alike[0].kind)


def chooser_of(decode: Decode) -> Chooser:
    """As the configuration says."""
    if decode.registry is not None:
        if decode.messages:
            raise UsageError(
                "decode: messages and type_from do not go with registry, where each message says what it is",
                hint="remove both; or name a descriptor in place of registry, if messages have no frame",
            )
        return Framed(shared(decode.registry), decode.message)
    messages = messages_of(decode)
    if decode.type_from is None:
        assert decode.message is not None
        return Always(shape_of(messages.find(decode.message)))
    shapes = {name: shape_of(messages.find(name)) for name in sorted(set(decode.messages.values()))}
    by_type = {type_name: shapes[name] for type_name, name in decode.messages.items()}
    if decode.type_from.header is not None:
        return ByHeader(decode.type_from.header, by_type)
    assert decode.type_from.field is not None
    return ByField(decode.type_from.field, by_type)


def messages_of(decode: Decode) -> Messages:
    """What the descriptor set describes."""
    assert decode.descriptor is not None
    return Messages.of_set(decode.descriptor.read_bytes(), str(decode.descriptor))

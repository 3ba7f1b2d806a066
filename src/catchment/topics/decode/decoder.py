"""What turns messages into rows. One for each task; `json.py` and its neighbours make them.

A decoder is columnar: it takes tables of records and gives tables of rows, and there is no Python object per message
where the library behind it does not force one. What becomes of a message depends on the message and on the recorded
schema of its type, and never on the messages around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from catchment.config.decode import DECODERS, Decode
from catchment.topics.decode.schemas import Schemas
from catchment.topics.names import Place


@dataclass(frozen=True)
class Typed:
    """The records that can be read as far as their type, what type each is of, and the others as dead letters."""

    records: pa.Table  # perhaps marked, or with columns added, which `decode` knows: put no others together with them
    types: pa.Array  # of text; null where the field is absent, null, an object or an array
    dead: pa.Table  # as records.DEAD


@dataclass(frozen=True)
class Decoded:
    """Rows and dead letters of some records, both in the order of the records."""

    table: pa.Table  # the message's fields, then _offset and _timestamp, then what was to be kept
    dead: pa.Table  # as records.DEAD


class Decoder(Protocol):
    """Decodes for one task. Not for two threads at a time. All methods may raise ExportStopped or RegistryError."""

    def types(self, records: pa.Table, field: str) -> Typed:
        """What this field says in each record, `a.b` for a field of a field: text as it is, numbers as in JSON."""

    def decode(self, type_name: str, records: pa.Table, keep: Sequence[str] = ()) -> Decoded:
        """Rows of one type. New fields are grown in the schemas; a record that does not fit is a dead letter.

        records: any that are of this type, perhaps those that `types` gave. keep: their columns that go along, each
        under its name with `schema.KEPT` before it.
        """

    def finish(self, type_name: str, table: pa.Table) -> pa.Table:
        """A table decoded earlier, with the columns of the final schema; then Kafka's own and what was kept."""


def decoder_of(decode: Decode, schemas: Schemas) -> Decoder:
    """The decoder that this export wants. Only its own libraries are imported."""
    match decode.name:
        case "json" if decode.registry:
            from catchment.topics.decode.framed import FramedJson

            return FramedJson(decode.registry, schemas)
        case "json":
            from catchment.topics.decode.json import JsonDecoder

            return JsonDecoder(schemas)
        case "msgpack":
            from catchment.topics.decode.msgpack import MsgpackTranslation
            from catchment.topics.decode.translated import TranslatedDecoder

            return TranslatedDecoder(MsgpackTranslation(), schemas)
        case "avro":
            from catchment.topics.decode.avro.parser import avro_decoder

            return avro_decoder(decode, schemas)
        case "protobuf":
            from catchment.topics.decode.protobuf.parser import protobuf_decoder

            return protobuf_decoder(decode, schemas)
        case "regex":
            from catchment.topics.decode.columns import ColumnDecoder
            from catchment.topics.decode.regex import RegexParser

            assert decode.pattern is not None
            return ColumnDecoder(RegexParser(decode.pattern), schemas)
    from catchment.topics.decode.columns import ColumnDecoder
    from catchment.topics.decode.modules import find
    from catchment.topics.decode.plugin import PluginParser

    return ColumnDecoder(PluginParser(find(decode.name), decode.options), schemas)


def check_decoder(decode: Decode) -> None:
    """Whether it can be had, before anything is started or written. UsageError (or ExportStopped) says why not.

    Its module is imported, and its schemas, pattern and files are looked at; a registry is not asked.
    """
    from catchment.bucket.memory import MemoryBucket  # it is never written to

    decoder_of(decode, Schemas(MemoryBucket(), Place("check", "check"), decode.schemas, 1))


def needs_headers(decode: Decode | None) -> bool:
    """Whether records have to come with their headers: a backup's do, and those whose decoder looks at them."""
    if decode is None or decode.name not in DECODERS:
        return True
    return decode.type_from is not None and decode.type_from.header is not None

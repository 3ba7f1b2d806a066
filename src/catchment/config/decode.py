"""How one export reads and writes: decode, format and split of an export."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from catchment.config.fields import Flag, choice, meant, of_pattern, of_text
from catchment.config.file import FileOf
from catchment.config.maps import open_map, scalar_text
from catchment.config.names import HttpUrl, Line, Prose, Regex, Zone
from catchment.config.section import Loc, Section, Wrong, refuse

DECODERS = ("json", "msgpack", "avro", "protobuf", "regex")
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_MESSAGE = of_pattern(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", "is not the name of a message", "write it as package.Message")


def _decoder(text: str) -> str:
    if text not in DECODERS and not _FUNCTION.fullmatch(text):
        near = meant(text, DECODERS)
        advice = f"did you mean {near!r}? Write" if near else "write"
        raise Wrong("is not a decoder", f"{advice} one of: {', '.join(DECODERS)}, or module:callable")
    return text


def _named(raw: object) -> object:
    """`json` is short for `{name: json}`."""
    return {"name": raw} if isinstance(raw, str) else raw


class TypeFrom(Section):
    """What names the type of a message: a field of an envelope, or a header."""

    field: Line | None = None
    header: Line | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.field is None) == (self.header is None):
            refuse([((), "names no single place; write either field or header")])
        return self


class Decode(Section):
    """How bytes become fields. Each decoder takes some of these options and no others."""

    name: Annotated[str, BeforeValidator(of_text(_decoder))] = Field(examples=["json"])
    schemas: Annotated[  # declared fields by type ("*": every type), as DDL; a declared field keeps its type
        Mapping[str, str], open_map(lambda name: name, lambda _, raw: of_text(_columns)(raw))
    ] = Field(default_factory=dict)
    registry: HttpUrl | None = None  # messages begin with the registry's magic byte and a schema's id
    avro_schema: Prose | None = Field(default=None, alias="schema")  # as JSON
    schema_file: FileOf | None = None
    descriptor: FileOf | None = None  # a file made by protoc --descriptor_set_out
    message: Annotated[str, BeforeValidator(of_text(_MESSAGE))] | None = None  # every message is this one
    messages: Annotated[  # or the type chooses: type → message
        Mapping[str, str], open_map(lambda name: name, lambda _, raw: of_text(_MESSAGE)(raw))
    ] = Field(default_factory=dict)
    type_from: TypeFrom | None = None
    pattern: Regex | None = None  # with a named group for each field
    options: Annotated[  # handed to module:callable
        Mapping[str, str], open_map(lambda name: name, lambda _, raw: scalar_text(raw))
    ] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        given = {field.alias or key for key, field in Decode.model_fields.items() if getattr(self, key)} - {"name"}
        found: list[tuple[Loc, str]] = []
        allowed = _OPTIONS.get(self.name, ("options", "schemas"))
        known = self.name if self.name in DECODERS else "module:callable"  # a name from elsewhere is not quoted
        for key in sorted(given - set(allowed)):
            found.append(((key,), f"is no option of {known}; remove it, or use one of: {', '.join(allowed)}"))
        found += _CHECKS[self.name](self) if self.name in _CHECKS else []
        refuse(found)
        return self


def _columns(text: str) -> str:
    if not re.match(r"\s*(`[^`]+`|\w+)\s*:?\s+\S", text):
        raise Wrong("declares no columns", "write them as in CREATE TABLE: id BIGINT, name STRING")
    return text


_OPTIONS: dict[str, tuple[str, ...]] = {
    "json": ("schemas", "registry"),
    "msgpack": ("schemas",),
    "avro": ("schema", "schema_file", "registry", "schemas"),
    "protobuf": ("descriptor", "message", "messages", "type_from", "registry", "schemas"),
    "regex": ("pattern", "schemas"),
}


def _avro(decode: Decode) -> list[tuple[Loc, str]]:
    if sum(value is not None for value in (decode.avro_schema, decode.schema_file, decode.registry)) != 1:
        return [(("schema",), "avro needs its schema from one place; write one of schema, schema_file or registry")]
    try:
        json.loads(decode.avro_schema or "{}")
    except (ValueError, RecursionError):
        return [(("schema",), "is not JSON; write the Avro schema as JSON text")]
    return []


def _protobuf(decode: Decode) -> list[tuple[Loc, str]]:
    found: list[tuple[Loc, str]] = []
    if (decode.descriptor is None) == (decode.registry is None):
        found.append(
            (("descriptor",), "protobuf needs its messages from one place; write either descriptor or registry")
        )
    if decode.descriptor is not None and (decode.message is None) == (not decode.messages):
        found.append((("message",), "which message is it? Write either message, or messages with type_from"))
    if bool(decode.messages) != (decode.type_from is not None):
        found.append(
            (("type_from",), "goes with messages; write both: what names the type, and the message of each type")
        )
    return found


def _regex(decode: Decode) -> list[tuple[Loc, str]]:
    if decode.pattern is None:
        return [(("pattern",), "missing; add it, for example '(?P<time>[0-9]+) (?P<text>.*)'")]
    if not re.compile(decode.pattern).groupindex:
        return [(("pattern",), "has no named group, so there would be no field; name one as in (?P<text>.*)")]
    return []


_CHECKS = {"avro": _avro, "protobuf": _protobuf, "regex": _regex}


class Format(Section):
    """How files are written. Without options, the name alone will do."""

    name: Annotated[Literal["parquet", "text", "sequence"], choice("parquet", "text", "sequence")] = "parquet"
    compression: Line | None = None  # parquet and text: a codec; sequence: none, record or block
    codec: Annotated[Literal["gzip", "zstd"], choice("gzip", "zstd")] | None = None  # sequence only
    delimiter: Annotated[str, BeforeValidator(of_text(lambda text: text))] | None = (
        None  # text only, after each message
    )
    key: Annotated[Literal["offset", "msgpack"], choice("offset", "msgpack")] | None = None  # sequence only

    @model_validator(mode="after")
    def _fits(self) -> Self:
        compressions, options = _FORMATS[self.name]
        given = self.model_fields_set - {"name"}
        found: list[tuple[Loc, str]] = [
            ((key,), f"is no option of {self.name}; remove it, or use one of: {', '.join(options)}")
            for key in sorted(given - set(options))
        ]
        if self.compression is not None and self.compression not in compressions:
            found.append((("compression",), f"{self.name} cannot have it; write one of: {', '.join(compressions)}"))
        if self.delimiter == "":
            found.append((("delimiter",), 'is empty; write one or more characters, as "\\n"'))
        if self.delimiter is not None and any("\ud800" <= one <= "\udfff" for one in self.delimiter):
            found.append((("delimiter",), "is half of a character; write whole ones"))
        if self.codec is not None and self.compression in (None, "none"):
            found.append((("codec",), "needs compression; add 'compression: block' (or record)"))
        refuse(found)
        return self


_FORMATS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # compressions (the first is the default), options
    "parquet": (("zstd", "snappy", "gzip", "none"), ("compression",)),
    "text": (("none", "gzip", "zstd"), ("compression", "delimiter")),
    "sequence": (("none", "record", "block"), ("compression", "codec", "key")),
}


def _time_pattern(text: str) -> str:
    directives = re.findall(r"%(.?)", text, re.DOTALL)
    if not directives or any(directive not in "YmdHMSfyjbBaApIzZTFe%" or not directive for directive in directives):
        raise Wrong("is not a pattern of a time", "write one as strptime takes it, as in %Y-%m-%d %H:%M:%S")
    return text


class Split(Section):
    """One folder level: where its value comes from, and for a time, how it is read and how long a folder is."""

    field: Line | None = None  # of the decoded message; a.b for a field of a field
    key: Flag = False  # the message's key
    header: Line | None = None  # one of its headers
    timestamp: Flag = False  # Kafka's own
    by: Annotated[Literal["day", "hour", "minute"], choice("day", "hour", "minute")] | None = None  # makes it a time
    unit: (
        Annotated[Literal["s", "ms", "us", "ns", "auto", "iso"], choice("s", "ms", "us", "ns", "auto", "iso")] | None
    ) = None
    pattern: Annotated[str, BeforeValidator(of_text(_time_pattern))] | None = None  # of times written as text
    zone: Zone = "UTC"  # whose days and hours; and of times that name none
    default: Line | None = None  # for messages without the value; None: they are dead letters

    @property
    def sources(self) -> tuple[str, ...]:
        """The places given; exactly one in a valid split."""
        places = {"field": self.field, "key": self.key, "header": self.header, "timestamp": self.timestamp}
        return tuple(name for name, given in places.items() if given)

    @model_validator(mode="after")
    def _sense(self) -> Self:
        found: list[tuple[Loc, str]] = []
        if len(self.sources) != 1:
            found.append(((), "needs one source; write one of field: name, key: true, header: name, timestamp: true"))
        if self.field is not None and "" in self.field.split("."):
            found.append((("field",), "has an empty part; write it as name, or outer.inner"))
        if self.by is None and not self.timestamp:
            for option in ("unit", "pattern", "zone"):
                if option in self.model_fields_set:
                    found.append(((option,), "is about a time; add 'by: day' (or hour, minute), or remove it"))
        if self.by is None and self.timestamp:
            found.append((("by",), "missing; a timestamp is split by day, hour or minute: add 'by: day'"))
        if self.unit is not None and self.pattern is not None:
            found.append((("unit",), "a time has a unit or a pattern; remove one of them"))
        if self.timestamp and (self.unit is not None or self.pattern is not None):
            found.append((("unit" if self.unit else "pattern",), "Kafka's timestamps are milliseconds; remove it"))
        refuse(found)
        return self


DecodeOf = Annotated[Decode, BeforeValidator(_named)]
FormatOf = Annotated[Format, BeforeValidator(_named)]

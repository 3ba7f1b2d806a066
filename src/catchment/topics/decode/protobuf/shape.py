"""What a protobuf message looks like, as the columns that are made of it.

    int32, sint32, sfixed32          INT
    int64, sint64, sfixed64          BIGINT
    uint32, fixed32                  BIGINT
    uint64, fixed64                  DECIMAL(20,0)
    float, double, bool, bytes       FLOAT, DOUBLE, BOOLEAN, BINARY
    string                           text, checked to be UTF-8
    enum                             the name of the value; a number without a name is text too, its digits
    message, group                   STRUCT
    repeated                         ARRAY, empty if there is none
    map                              MAP<STRING, …>: keys that are not text are written as in JSON
    Timestamp                        TIMESTAMP: what is finer than a microsecond is cut off
    StringValue, Int64Value, …       what they wrap, null if absent
    Any, Struct, Value, ListValue    JSON text, as protobuf writes it
    a message within itself          JSON text: a STRUCT cannot be endless
    a message without fields         JSON text: {} if it is there
    Duration                         STRUCT<seconds: BIGINT, nanos: INT>, as it is

A field that knows whether it is there (`optional`, in a oneof, a message, proto2) is null if it is not, unless it has
a default of its own. Other absent fields have the default of their type. Extensions and unknown fields are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from catchment.errors import UsageError
from catchment.topics.decode.schema import (
    ARRAY,
    BIGINT,
    BOOLEAN,
    DOUBLE,
    JSON,
    MAP,
    MAX_FIELDS,
    STRUCT,
    TEXT,
    Field,
    Kind,
    Schema,
)

VARINT, FIXED8, PIECE, GROUP, GROUP_END, FIXED4 = 0, 1, 2, 3, 4, 5  # wire types, by their numbers

_F = FieldDescriptor
_SCALARS: dict[int, tuple[str, int, Kind]] = {
    _F.TYPE_DOUBLE: ("double", FIXED8, Kind(DOUBLE)),
    _F.TYPE_FLOAT: ("float", FIXED4, Kind("FLOAT")),
    _F.TYPE_INT64: ("int64", VARINT, Kind(BIGINT)),
    _F.TYPE_UINT64: ("uint64", VARINT, Kind("DECIMAL", digits=(20, 0))),
    _F.TYPE_INT32: ("int32", VARINT, Kind("INT")),
    _F.TYPE_FIXED64: ("uint64", FIXED8, Kind("DECIMAL", digits=(20, 0))),
    _F.TYPE_FIXED32: ("uint32", FIXED4, Kind(BIGINT)),
    _F.TYPE_BOOL: ("bool", VARINT, Kind(BOOLEAN)),
    _F.TYPE_STRING: ("string", PIECE, Kind(TEXT)),
    _F.TYPE_BYTES: ("bytes", PIECE, Kind("BINARY")),
    _F.TYPE_UINT32: ("uint32", VARINT, Kind(BIGINT)),
    _F.TYPE_ENUM: ("enum", VARINT, Kind(TEXT)),
    _F.TYPE_SFIXED32: ("int32", FIXED4, Kind("INT")),
    _F.TYPE_SFIXED64: ("int64", FIXED8, Kind(BIGINT)),
    _F.TYPE_SINT32: ("sint32", VARINT, Kind("INT")),
    _F.TYPE_SINT64: ("sint64", VARINT, Kind(BIGINT)),
}
MESSAGE, TIMESTAMP, WRAPPER, TEXT_OF, ENTRY = "message", "timestamp", "wrapper", "json", "entry"
_WRAPPERS = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_READ: dict[str, str] = {
    "google.protobuf.Timestamp": TIMESTAMP,
    **{f"google.protobuf.{name}Value": WRAPPER for name in _WRAPPERS},
    **dict.fromkeys(("google.protobuf.Any", "google.protobuf.Struct"), TEXT_OF),
    **dict.fromkeys(("google.protobuf.Value", "google.protobuf.ListValue"), TEXT_OF),
}


@dataclass(frozen=True)
class Part:
    """One field of a message: how it is found in the bytes, and what becomes of it."""

    name: str
    number: int
    wire: int  # the wire type of one value
    read: str  # a word of _SCALARS, or one of MESSAGE, TIMESTAMP, WRAPPER, TEXT_OF, ENTRY
    kind: Kind  # of the column
    many: bool = False  # repeated, or a map
    nullable: bool = False  # absent is null
    required: bool = False  # absent is wrong
    default: Any = None  # what an absent one is, unless it is null, zero or empty
    oneof: str = ""  # those that share one: the last of them counts
    shape: Shape | None = None  # of a message
    names: tuple[tuple[int, str], ...] = ()  # of an enum, by number, ascending

    @property
    def packs(self) -> bool:
        """Whether its values may also come in one piece."""
        return self.many and self.wire not in (PIECE, GROUP)

    @property
    def inner(self) -> Shape:
        """Of a message."""
        assert self.shape is not None
        return self.shape

    @property
    def tag(self) -> int:
        return self.number << 3 | self.wire


@dataclass(frozen=True)
class Shape:
    """A message."""

    name: str
    descriptor: Descriptor
    parts: tuple[Part, ...]

    @property
    def kind(self) -> Kind:
        return Kind(STRUCT, fields=tuple(Field(one.name, one.kind) for one in self.parts))

    def tags(self) -> list[int]:
        """All that its fields may begin with, ascending."""
        packed = [one.number << 3 | PIECE for one in self.parts if one.packs]
        return sorted([one.tag for one in self.parts] + packed)


def shape_of(message: Descriptor) -> Shape:
    """UsageError if there cannot be columns of it."""
    folded: dict[str, str] = {}
    for field in message.fields:
        other = folded.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise UsageError(
                f"{message.full_name}: {field.name} and {other} differ in case alone, so they cannot both be columns",
                hint="rename one of them in a copy of the .proto file: on the wire there are only numbers",
            )
    shape = _Shapes(message).of(message, ())
    if why := Schema(shape.kind.fields).misnamed():
        raise UsageError(
            f"{message.full_name}: {why}",
            hint="rename it in a copy of the .proto file: on the wire there are only numbers",
        )
    return shape


class _Shapes:
    """Counts fields, so that messages that hold each other many times over end somewhere."""

    def __init__(self, outermost: Descriptor) -> None:
        self._outermost = outermost.full_name
        self._left = MAX_FIELDS

    def of(self, message: Descriptor, around: tuple[str, ...]) -> Shape:
        around = (*around, message.full_name)
        return Shape(message.full_name, message, tuple(self._part(field, around) for field in message.fields))

    def _part(self, field: FieldDescriptor, around: tuple[str, ...]) -> Part:
        self._left -= 1
        if self._left < 0:
            raise UsageError(
                f"{self._outermost} has more than {MAX_FIELDS} fields, those of messages within it included",
                hint="leave out what is not needed in a copy of the .proto file, and name that in descriptor",
            )
        many = repeated(field)
        part = Part(
            name=field.name,
            number=field.number,
            wire=PIECE,
            read=MESSAGE,
            kind=Kind(JSON),
            many=many,
            nullable=not many and field.has_presence and not field.has_default_value,
            required=needed(field),
            oneof=_oneof(field),
        )
        if field.message_type is not None:
            return self._with_message(part, field, field.message_type, around)
        read, wire, kind = _SCALARS[field.type]
        default = None if many else field.default_value
        names: tuple[tuple[int, str], ...] = ()
        if field.enum_type is not None:
            names = tuple(sorted(_names(field.enum_type).items()))
            default = dict(names)[default] if default else None
        kind = Kind(ARRAY, item=kind) if many else kind
        return replace(part, wire=wire, read=read, kind=kind, default=default or None, names=names)

    def _with_message(self, part: Part, field: FieldDescriptor, message: Descriptor, around: tuple[str, ...]) -> Part:
        if message.GetOptions().map_entry:
            shape = self._entry(message, around)
            return replace(part, read=ENTRY, kind=Kind(MAP, item=shape.parts[1].kind), shape=shape)
        read, shape, kind = self._message(message, around)
        wire = GROUP if field.type == _F.TYPE_GROUP else PIECE
        return replace(part, wire=wire, read=read, kind=Kind(ARRAY, item=kind) if part.many else kind, shape=shape)

    def _message(self, message: Descriptor, around: tuple[str, ...]) -> tuple[str, Shape, Kind]:
        read = _READ.get(message.full_name, MESSAGE)
        names = [field.name.lower() for field in message.fields]
        if message.full_name in around or not names or len(set(names)) < len(names):
            read = TEXT_OF
        if read == TEXT_OF:
            return read, Shape(message.full_name, message, ()), Kind(JSON)
        shape = self.of(message, around)
        if read == TIMESTAMP:
            return read, shape, Kind("TIMESTAMP")
        return read, shape, shape.parts[0].kind if read == WRAPPER else shape.kind

    def _entry(self, message: Descriptor, around: tuple[str, ...]) -> Shape:
        """Key and value of a map: what is absent has its default, a message too."""
        parts = (self._part(message.fields_by_name[name], around) for name in ("key", "value"))
        shown = tuple(replace(part, nullable=False, required=False) for part in parts)
        return Shape(message.full_name, message, shown)


def _oneof(field: FieldDescriptor) -> str:
    """Its name, if others share it."""
    oneof = field.containing_oneof
    return oneof.name if oneof is not None and len(oneof.fields) > 1 else ""


def _names(enum: EnumDescriptor) -> dict[int, str]:
    """The first name of each number."""
    found: dict[int, str] = {}
    for value in enum.values:
        found.setdefault(value.number, value.name)
    return found


def repeated(field: Any) -> bool:
    """Maps too. Older libraries have only the label."""
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == _F.LABEL_REPEATED)


def needed(field: Any) -> bool:
    """Whether it is required."""
    return bool(field.is_required if hasattr(field, "is_required") else field.label == _F.LABEL_REQUIRED)

"""Descriptor sets made by protoc, and message classes made from them: the measure of our own reading."""

from __future__ import annotations

import base64
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from grpc_tools import protoc  # type: ignore[import-untyped]

from catchment.topics.decode.protobuf.choice import Always
from catchment.topics.decode.protobuf.files import Messages
from catchment.topics.decode.protobuf.parser import ProtobufParser
from catchment.topics.decode.protobuf.shape import shape_of
from tests.unit.topics.decode.messages import records

SHOP = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/any.proto";
import "google/protobuf/empty.proto";

enum Status { UNKNOWN = 0; PAID = 1; SENT = 7; LOST = -1; }

message Line { string sku = 1; int32 count = 2; repeated double prices = 3; }

message Order {
  int32 i32 = 1; int64 i64 = 2; uint32 u32 = 3; uint64 u64 = 4; sint32 s32 = 5; sint64 s64 = 6;
  fixed32 f32 = 7; fixed64 f64 = 8; sfixed32 sf32 = 9; sfixed64 sf64 = 10;
  float f = 11; double d = 12; bool b = 13; string text = 14; bytes raw = 15; Status status = 16;
  optional int32 maybe = 17; optional string maybe_text = 18; optional Status maybe_status = 19;
  Line line = 20; repeated Line lines = 21;
  repeated int32 numbers = 22; repeated sint64 signed = 23; repeated fixed32 fixed = 24; repeated double doubles = 25;
  repeated bool flags = 26; repeated string words = 27; repeated bytes blobs = 28; repeated Status states = 29;
  repeated int32 loose = 30 [packed = false]; repeated uint64 large = 31;
  map<string, int64> tags = 32; map<int32, Line> by_number = 33; map<bool, string> by_flag = 34;
  map<uint64, Status> by_large = 35; map<string, google.protobuf.Timestamp> when = 36;
  oneof choice { int32 one = 37; string other = 38; Line third = 39; Status fourth = 40; }
  google.protobuf.Timestamp at = 41; repeated google.protobuf.Timestamp times = 42;
  google.protobuf.Duration took = 43;
  google.protobuf.StringValue nick = 44; google.protobuf.Int64Value limit = 45; google.protobuf.BoolValue sure = 46;
  repeated google.protobuf.UInt64Value limits = 47; google.protobuf.DoubleValue share = 48;
  google.protobuf.Struct extra = 49; google.protobuf.Value any_value = 50; google.protobuf.Any packed = 51;
  google.protobuf.Empty nothing = 52; Order parent = 53; repeated Order children = 54;
  message Inner { message Deeper { Line line = 1; optional bool ok = 2; } Deeper deeper = 1; repeated Deeper all = 2; }
  Inner inner = 2000;
  oneof empties { google.protobuf.Empty ping = 60; Inner pong = 61; }
}
"""

OLD = """
syntax = "proto2";
package old;
enum Color { RED = 3; GREEN = 1; }
message Point { required int32 x = 1; optional int32 y = 2 [default = 7]; }
message Event {
  required string name = 1;
  optional int64 number = 2;
  optional int32 seven = 3 [default = -7];
  optional string word = 4 [default = "hello"];
  optional bytes raw = 5 [default = "\\001\\377"];
  optional double half = 6 [default = 0.5];
  optional bool yes = 7 [default = true];
  optional Color color = 8;
  optional Color favourite = 9 [default = GREEN];
  optional Point point = 10;
  repeated Point points = 11;
  repeated int32 packed = 12 [packed = true];
  repeated int32 loose = 13;
  optional group Box = 14 { optional string label = 1; repeated int32 sizes = 2; }
  repeated group Parts = 15 { optional int32 id = 1; optional group Deep = 2 { optional string text = 1; } }
  map<string, Point> places = 16;
  oneof which { string left = 17; Point right = 18; uint32 middle = 19; }
  extensions 100 to 199;
}
"""


def compiled(files: Mapping[str, str], *options: str) -> bytes:
    """The descriptor set of these .proto files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        out = Path(folder, "set.desc")
        own = str(resources.files("grpc_tools") / "_proto")
        command = ["protoc", f"-I{folder}", f"-I{own}", *options, f"--descriptor_set_out={out}", *files]
        assert protoc.main(command) == 0
        return out.read_bytes()


@cache
def messages(text: str) -> Messages:
    return Messages.of_set(compiled({"test.proto": text}, "--include_imports"), "test.desc")


def message_class(text: str, name: str) -> type[Message]:
    return GetMessageClass(messages(text).find(name))


def parser(text: str, name: str) -> ProtobufParser:
    return ProtobufParser(Always(shape_of(messages(text).find(name))))


def rows_and_reasons(
    parser: ProtobufParser, values: Sequence[bytes | None]
) -> tuple[list[dict[str, Any] | None], dict[int, str]]:
    """The row of each value, None if it is a dead letter; and why."""
    table = records(values)
    parsed, dead = parser.parse(table)
    found: list[dict[str, Any] | None] = [None] * len(values)
    for one in parsed:
        one.values.validate(full=True)
        assert one.values.null_count == 0
        assert one.values.type == one.kind.arrow()
        for at, row in zip(one.rows.to_pylist(), one.values.to_pylist(), strict=True):
            assert found[at] is None
            assert at not in dead
            found[at] = row
    assert {at for at, row in enumerate(found) if row is None} == set(dead)
    return found, dead


class Dead(Exception):
    """What protobuf reads, and what can nevertheless be no row."""


class Unsure(Exception):
    """Protobuf does not say."""


def expected(message: Message, around: tuple[str, ...] = ()) -> dict[str, Any]:
    """The row of a message, by its attributes alone."""
    inside = (*around, message.DESCRIPTOR.full_name)
    return {field.name: _expected(message, field, inside) for field in message.DESCRIPTOR.fields}


def oracle(kind: type[Message], value: bytes) -> dict[str, Any] | None:
    """The row of these bytes, None for a dead letter. Unsure if protobuf hides something that we show."""
    try:
        message = kind.FromString(value)
        if hides(message):
            raise Unsure
        return expected(message) if message.IsInitialized() else None
    except (DecodeError, Dead, UnicodeDecodeError):
        return None


def hides(message: Message) -> bool:
    """Whether protobuf itself put a field that it knows among the unknown ones, with all that is in it.

    It does so with numbers that an enum of proto2 has no name for, and with entries of a map that have other fields.
    """
    known = {field.number: field for field in message.DESCRIPTOR.fields}
    unknown: Any = UnknownFieldSet(message)
    aside = [known[one.field_number] for one in unknown if one.field_number in known]
    if any(field.enum_type is not None or _is_map(field) for field in aside):
        return True
    field: Any
    for field, value in message.ListFields():
        if _is_map(field):
            inner = list(value.values()) if field.message_type.fields_by_name["value"].message_type else []
        elif field.message_type is not None:
            inner = list(value) if field.is_repeated else [value]
        else:
            inner = []
        if any(hides(one) for one in inner):
            return True
    return False


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _expected(message: Message, field: Any, around: tuple[str, ...]) -> Any:
    value = getattr(message, field.name)
    if _is_map(field):
        of = field.message_type.fields_by_name["value"]
        return {_key(key): _one(value[key], of, around) for key in value}
    if field.is_repeated:
        return [_one(item, field, around) for item in value]
    if field.has_presence and not message.HasField(field.name) and not field.has_default_value:
        return None
    return _one(value, field, around)


def _one(value: Any, field: FieldDescriptor, around: tuple[str, ...]) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else str(value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
        return Decimal(value)
    if field.message_type is None:
        if field.type == FieldDescriptor.TYPE_STRING and isinstance(value, bytes):
            raise Dead
        return value
    return _message(value, field.message_type, around)


def _message(value: Any, kind: Descriptor, around: tuple[str, ...]) -> Any:
    name = kind.full_name
    if name == "google.protobuf.Timestamp":
        if not (-62_135_596_800 <= value.seconds <= 253_402_300_799 and 0 <= value.nanos < 10**9):
            raise Dead
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if name.startswith("google.protobuf.") and name.endswith("Value") and name not in _JSON:
        return _one(value.value, kind.fields_by_name["value"], around)
    folded = {field.name.lower() for field in kind.fields}
    if name in _JSON or name in around or not folded or len(folded) < len(kind.fields):
        return _json(value)
    return expected(value, around)


_JSON = {"google.protobuf.Any", "google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"}


def _json(value: Any) -> Any:
    pool = value.DESCRIPTOR.file.pool
    try:
        plain = json_format.MessageToDict(value, preserving_proto_field_name=True, descriptor_pool=pool)
        json.dumps(plain, allow_nan=False)
    except (json_format.Error, ValueError) as error:
        raise Dead from error
    except (TypeError, DecodeError) as error:
        if value.DESCRIPTOR.full_name != "google.protobuf.Any":
            raise Dead from error
        plain = {"@type": value.type_url, "value": base64.b64encode(value.value).decode()}
    return ("json", plain)


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def same(found: Any, wanted: Any) -> bool:
    """Whether a row is as it should be; NaN is itself, a map a list of pairs in any order."""
    if isinstance(wanted, tuple):
        return isinstance(found, str) and same(json.loads(found), wanted[1])
    if isinstance(wanted, dict):
        items = dict(found) if isinstance(found, list) and len(dict(found)) == len(found) else found
        return (
            isinstance(items, dict)
            and items.keys() == wanted.keys()
            and all(same(items[name], wanted[name]) for name in wanted)
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, float) and math.isnan(wanted):
        return isinstance(found, float) and math.isnan(found)
    return type(found) is type(wanted) and bool(found == wanted)


def assert_same(found: Any, wanted: Any) -> None:
    if not same(found, wanted):
        assert found == wanted  # for what it shows
        raise AssertionError((found, wanted))


def binary(values: Sequence[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())

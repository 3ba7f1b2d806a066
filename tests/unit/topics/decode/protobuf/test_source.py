"""The text of .proto files is read as protoc reads it, as far as messages depend on it."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.topics.decode.protobuf.files import Messages
from catchment.topics.decode.protobuf.shape import Shape, shape_of
from catchment.topics.decode.protobuf.source import NotProto, file_of
from tests.unit.topics.decode.protobuf.protos import OLD, SHOP, compiled

ODD = """
// a comment with "quotes" and { brackets
syntax = 'proto2'; /* another; message X { */
package odd.ones;
import public "google/protobuf/descriptor.proto";
option java_package = "a" 'b';
option (file_option) = { a: 1 b: "}" };
extend google.protobuf.FileOptions { optional Any file_option = 50001; }
extend google.protobuf.FieldOptions { optional string about = 50002; repeated int32 more = 50003; }
message Any { optional int32 a = 1; optional string b = 2; }
enum Same { option allow_alias = true; A = 0; B = 0 [deprecated = true]; C = -0x10; reserved 5, 7 to 9; reserved "Z"; }
message message {
  option deprecated = true;
  reserved 100 to 110, 120; reserved "gone", "away";
  extensions 1000 to max [verification = UNVERIFIED];
  optional string optional = 1 [default = "a\\"\\n\\303\\251" "b", (about) = "[x]", deprecated = true];
  optional bytes repeated = 2 [default = "\\x00\\377\\'"];
  optional float inf = 3 [default = -inf]; optional double e = 4 [default = 1.5e3];
  optional int32 hex = 5 [default = 0x1F];
  optional Same same = 6 [default = C, json_name = "sAmE"];
  optional .odd.ones.Any any = 7; optional inner.Deep deep = 8; required inner needed = 9;
  repeated uint32 packed = 10 [packed = true, (more) = 1, (more) = 2];
  map<string, inner.Deep> map_of_all = 11; map<int32, Same> map = 12;
  oneof reserved_words { string message = 13; group Box = 14 { optional bool b = 1; } inner oneof = 15; }
  message inner { message Deep { enum Same { X = 3; } optional Same same = 1; optional .odd.ones.message back = 2; } }
  extend .odd.ones.message { optional int32 outside = 1001; }
  ;
}
service S { rpc Call (message) returns (stream message) { option deprecated = true; } }
"""

EDITION = """
edition = "2023";
package e;
option features.field_presence = IMPLICIT;
option features.repeated_field_encoding = EXPANDED;
enum Closed { option features.enum_type = CLOSED; ONE = 1; }
message M {
  int32 implicit = 1;
  int32 explicit = 2 [features.field_presence = EXPLICIT, default = 5];
  repeated int32 expanded = 3; repeated int32 packed = 4 [features.repeated_field_encoding = PACKED];
  Closed closed = 5 [features.field_presence = EXPLICIT];
  Inner delimited = 6 [features.message_encoding = DELIMITED]; Inner inner = 7;
  message Inner { string s = 1; }
}
"""

PLAIN = """
message M { optional int32 a = 1; }
"""


def plain(shape: Shape) -> Any:
    """All that reading depends on."""
    return [
        (one.tag, one.read, one.kind, one.nullable, one.required, one.default, one.oneof, one.names)
        + ((plain(one.shape),) if one.shape else ())
        for one in shape.parts
    ]


@pytest.mark.parametrize("text", [SHOP, OLD, ODD, EDITION, PLAIN])
def test_it_is_what_protoc_says(text: str) -> None:
    ours = Messages([file_of(text, "test.proto")], "ours")
    theirs = Messages(FileDescriptorSet.FromString(compiled({"test.proto": text})).file, "theirs")
    assert ours.names() == theirs.names()
    for name in theirs.names():
        assert plain(shape_of(ours.find(name))) == plain(shape_of(theirs.find(name))), name


def test_what_registries_have_of_their_own() -> None:
    text = """
    syntax = "proto3"; import "confluent/meta.proto"; import "confluent/type/decimal.proto";
    message M { confluent.type.Decimal price = 1 [(confluent.field_meta) = { params: [ { key: "a" value: "]" } ] }]; }
    """
    kind = shape_of(Messages([file_of(text, "m.proto")], "m").find("M")).kind
    assert str(kind) == "STRUCT<price: STRUCT<value: BINARY, precision: BIGINT, scale: INT>>"


@pytest.mark.parametrize(
    "text",
    ["{}", "message", "message M {", "message M { int32 a = x; }", "message M { int32 a 1; }", "enum E { A = ; }", '"'],
)
def test_what_is_no_proto_file(text: str) -> None:
    with pytest.raises(NotProto):
        file_of(text, "x.proto")


@settings(deadline=None, max_examples=100)
@given(st.integers(0, len(ODD)), st.integers(0, len(ODD)))
def test_nothing_but_this_error_is_raised(first: int, last: int) -> None:
    try:
        file_of(ODD[first:last], "x.proto")
    except NotProto:
        pass

"""Protobuf messages become rows: which message each is, every kind of field, and what cannot be read."""

from __future__ import annotations

import base64
import json
import pickle
import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from catchment.config.decode import Decode
from catchment.config.topics import Export
from catchment.errors import RegistryError, UsageError
from catchment.testing.clock import FakeClock
from catchment.testing.registry import SchemaRegistry, framed
from catchment.topics.decode.protobuf.files import Messages
from catchment.topics.decode.protobuf.parser import ProtobufParser, chooser_of
from catchment.topics.decode.protobuf.registry import Framed
from catchment.topics.decode.protobuf.scan import BAD_GROUP, BAD_LENGTH, BAD_TAG, ENDS, LONG, OPEN_GROUP, TOO_DEEP
from catchment.topics.decode.protobuf.shape import shape_of
from catchment.topics.decode.registry import Registry
from catchment.topics.definition import fingerprint
from catchment.topics.records import HEADERS
from tests.unit.topics.decode.messages import records
from tests.unit.topics.decode.protobuf.protos import (
    OLD,
    SHOP,
    assert_same,
    compiled,
    expected,
    message_class,
    messages,
    parser,
    rows_and_reasons,
)
from tests.unit.topics.write import ranges

TINY = 'syntax = "proto3"; package t; message M { int32 a = 1; string s = 2; repeated int32 p = 3; M m = 4; }'
SALES = """
syntax = "proto3"; package sales;
enum Kind { NONE = 0; ORDER = 1; REFUND = 2; }
message Order { string type = 1; int64 id = 2; double total = 3; Kind kind = 4; uint32 number = 5; }
message Refund { string type = 1; string reason = 2; int64 id = 6; Kind kind = 4; uint32 number = 5; }
message Other { int32 type = 1; repeated string kind = 4; fixed32 number = 5; }
message Named { string name = 1; }
"""


def row(text: str, name: str, value: bytes) -> dict[str, Any]:
    """The one row of these bytes, which protobuf reads alike."""
    (found,), dead = rows_and_reasons(parser(text, name), [value])
    assert found is not None, dead
    assert_same(found, expected(message_class(text, name).FromString(value)))
    return found


def why(text: str, name: str, value: bytes | None) -> str:
    """Why these bytes are a dead letter, beside two good ones."""
    _, dead = rows_and_reasons(parser(text, name), [b"", value, b""])
    assert list(dead) == [1]
    return dead[1]


def order(**values: Any) -> bytes:
    return message_class(SHOP, "shop.Order")(**values).SerializeToString()


# --- one field after the other ----------------------------------------------------------------------------------------


def test_an_empty_value_is_a_message_and_no_value_is_none() -> None:
    found = row(SHOP, "shop.Order", b"")
    absent = {name for name, value in found.items() if value is None}
    assert {"i32", "text", "raw", "status", "numbers", "tags"}.isdisjoint(absent)
    assert {"maybe", "line", "one", "at", "nick", "extra", "nothing"} <= absent
    assert (found["i32"], found["u64"], found["text"], found["status"]) == (0, Decimal(0), "", "UNKNOWN")
    assert found["tags"] == [] == found["lines"]
    assert why(TINY, "t.M", None) == "the message has no value"


def test_columns_are_as_documented() -> None:
    kinds = {one.name: str(one.kind) for one in shape_of(messages(SHOP).find("shop.Order")).kind.fields}
    json_text = "STRING (as JSON text)"
    line = "STRUCT<sku: STRING, count: INT, prices: ARRAY<DOUBLE>>"
    assert kinds["i32"] == kinds["s32"] == kinds["sf32"] == "INT"
    assert kinds["i64"] == kinds["u32"] == kinds["f32"] == "BIGINT"
    assert kinds["u64"] == kinds["f64"] == "DECIMAL(20,0)"
    assert (kinds["f"], kinds["d"], kinds["b"], kinds["raw"]) == ("FLOAT", "DOUBLE", "BOOLEAN", "BINARY")
    assert kinds["text"] == kinds["status"] == "STRING"
    assert (kinds["line"], kinds["lines"], kinds["by_number"]) == (line, f"ARRAY<{line}>", f"MAP<STRING, {line}>")
    assert (kinds["at"], kinds["times"]) == ("TIMESTAMP", "ARRAY<TIMESTAMP>")
    assert kinds["took"] == "STRUCT<seconds: BIGINT, nanos: INT>"
    assert (kinds["nick"], kinds["limits"], kinds["sure"]) == ("STRING", "ARRAY<DECIMAL(20,0)>", "BOOLEAN")
    assert kinds["extra"] == kinds["packed"] == kinds["nothing"] == kinds["parent"] == json_text
    assert kinds["children"] == f"ARRAY<{json_text}>"


def test_enums_are_names_and_numbers_without_one_are_digits() -> None:
    assert row(SHOP, "shop.Order", order(status=7, states=[1, 99, -1]))["states"] == ["PAID", "99", "LOST"]
    # protobuf itself would hide a number that an enum of proto2 does not have
    (found,), _ = rows_and_reasons(parser(OLD, "old.Event"), [b"\x0a\x00\x40\x63"])
    assert found is not None
    assert (found["color"], found["favourite"]) == ("99", "GREEN")


def test_packed_and_unpacked_values_mix() -> None:
    assert row(TINY, "t.M", b"\x18\x05\x1a\x03\x06\x80\x01\x18\x07\x1a\x00\x1a\x01\x08")["p"] == [5, 6, 128, 7, 8]


def test_the_last_value_counts_and_messages_are_merged() -> None:
    kind = message_class(SHOP, "shop.Order")
    one = kind(i32=1, line={"sku": "a", "prices": [1]}, tags={"a": 1, "b": 2}).SerializeToString()
    two = kind(i32=2, line={"count": 3, "prices": [2]}, tags={"a": 5}).SerializeToString()
    found = row(SHOP, "shop.Order", one + two)
    assert found["i32"] == 2
    assert found["line"] == {"sku": "a", "count": 3, "prices": [1.0, 2.0]}
    assert dict(found["tags"]) == {"a": 5, "b": 2}


def test_of_a_oneof_the_last_one_counts() -> None:
    third, other = order(third={"sku": "x", "prices": [1]}), order(other="y")
    found = row(SHOP, "shop.Order", third + other + order(third={"count": 2}))
    assert (found["one"], found["other"], found["fourth"]) == (None, None, None)
    assert found["third"] == {"sku": "", "count": 2, "prices": []}
    assert row(SHOP, "shop.Order", third + other)["third"] is None
    # what does not count any more has to be right nevertheless
    bad_text = b"\xb2\x02\x01\xff"
    assert why(SHOP, "shop.Order", bad_text + third) == "other: not valid UTF-8"
    cut = b"\xba\x02\x02\x0a\x05"
    assert why(SHOP, "shop.Order", cut + other) == f"not a shop.Line: {BAD_LENGTH}"


def test_what_does_not_count_may_say_what_it_likes() -> None:
    text = """
    syntax = "proto2"; import "google/protobuf/timestamp.proto";
    message P { required int32 x = 1; optional P p = 2; }
    message M { oneof o { P point = 1; google.protobuf.Timestamp at = 2; int32 n = 3; } }
    """
    late = b"\x12\x02\x10\x7f" + b"\x12\x0b\x08" + b"\xff" * 9 + b"\x01"
    assert row(text, "M", b"\x0a\x00" + late + b"\x0a\x02\x12\x00" + b"\x18\x05")["n"] == 5


def test_a_field_with_another_wire_type_is_unknown() -> None:
    assert row(TINY, "t.M", b"\x0d\x01\x02\x03\x04\x10\x05")["a"] == 0


def test_numbers_are_cut_to_their_width() -> None:
    assert row(TINY, "t.M", b"\x08" + b"\xff" * 9 + b"\x7f")["a"] == -1
    assert row(SHOP, "shop.Order", b"\x68\x80\x80\x80\x80\x10")["b"] is True


def test_times() -> None:
    found = row(SHOP, "shop.Order", order(at={"seconds": -1, "nanos": 999_999_999}))
    assert found["at"] == datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    for bad in ({"seconds": 253_402_300_800}, {"seconds": -(2**63)}, {"nanos": -1}, {"nanos": 10**9}):
        assert why(SHOP, "shop.Order", order(at=bad)) == "at: not a Timestamp between the years 1 and 9999"
        assert why(SHOP, "shop.Order", order(times=[{}, bad])).startswith("times[]: not a Timestamp")


def test_wrappers_and_json_text() -> None:
    kind: Any = message_class(SHOP, "shop.Order")()
    kind.nick.value = ""
    kind.extra.update({"b": [1, None, {"c": "é"}], "a": True})
    kind.parent.parent.i64 = 5
    kind.packed.Pack(message_class(SHOP, "shop.Line")(sku="x"))
    kind.nothing.SetInParent()
    found = row(SHOP, "shop.Order", kind.SerializeToString())
    assert (found["nick"], found["limit"]) == ("", None)
    assert found["extra"] == '{"a":true,"b":[1.0,null,{"c":"é"}]}'
    assert found["parent"] == '{"parent":{"i64":"5"}}'
    assert found["packed"] == '{"@type":"type.googleapis.com/shop.Line","sku":"x"}'
    assert found["nothing"] == "{}"


def test_an_any_that_nobody_knows_is_kept_as_it_is() -> None:
    found = row(SHOP, "shop.Order", order(packed={"type_url": "x/no.Such", "value": b"\xff"}))
    assert json.loads(found["packed"]) == {"@type": "x/no.Such", "value": base64.b64encode(b"\xff").decode()}


def test_values_that_have_no_json_text_are_dead_letters() -> None:
    assert "any_value: has no JSON text" in why(SHOP, "shop.Order", order(any_value={"number_value": float("nan")}))


# --- proto2 and editions ----------------------------------------------------------------------------------------------


def test_proto2_has_defaults_groups_and_required_fields() -> None:
    kind: Any = message_class(OLD, "old.Event")(name="n")
    kind.box.label = "b"
    kind.box.sizes.extend([1, 2])
    kind.parts.add(id=3).deep.text = "t"
    kind.parts.add()
    found = row(OLD, "old.Event", kind.SerializeToString())
    assert (found["number"], found["color"], found["point"]) == (None, None, None)
    assert (found["seven"], found["word"], found["raw"], found["half"]) == (-7, "hello", b"\x01\xff", 0.5)
    assert (found["yes"], found["favourite"]) == (True, "GREEN")
    assert found["box"] == {"label": "b", "sizes": [1, 2]}
    assert found["parts"] == [{"id": 3, "deep": {"text": "t"}}, {"id": None, "deep": None}]


def test_a_required_field_that_is_missing() -> None:
    _, dead = rows_and_reasons(
        parser(OLD, "old.Event"), [b"", b"\x0a\x00\x52\x00", b"\x0a\x00\x5a\x02\x08\x01\x5a\x00"]
    )
    assert dead == {
        0: "name: required, and not there",
        1: "point.x: required, and not there",
        2: "points[].x: required, and not there",
    }


def test_text_of_proto2_is_checked_too() -> None:
    _, dead = rows_and_reasons(parser(OLD, "old.Event"), [b"\x0a\x01\xff"])
    assert dead == {0: "name: not valid UTF-8"}


def test_editions() -> None:
    text = """
    edition = "2023"; package e;
    message M {
      int32 explicit = 1; int32 implicit = 2 [features.field_presence = IMPLICIT];
      repeated int32 expanded = 3 [features.repeated_field_encoding = EXPANDED];
      Inner inner = 4 [features.message_encoding = DELIMITED];
      message Inner { string s = 1; }
    }
    """
    kind: Any = message_class(text, "e.M")(expanded=[1, 2], inner={"s": "x"})
    value = kind.SerializeToString()
    assert row(text, "e.M", value) == {"explicit": None, "implicit": 0, "expanded": [1, 2], "inner": {"s": "x"}}


# --- what cannot be read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\x08", ENDS),
        (b"\x08\x80", ENDS),
        (b"\x0d\x01", ENDS),
        (b"\x80", ENDS),
        (b"\x08" + b"\xff" * 10 + b"\x01", LONG),
        (b"\x12\x05abc", BAD_LENGTH),
        (b"\x12\xff\xff\xff\xff\x07abc", BAD_LENGTH),
        (b"\x12" + b"\xff" * 9 + b"\x01abc", BAD_LENGTH),
        (b"\x12\x81\x80\x80\x80\x80\x00a", BAD_LENGTH),
        (b"\x7a\x02a", BAD_LENGTH),
        (b"\x00\x01", BAD_TAG),
        (b"\x0e\x01", BAD_TAG),
        (b"\x0f\x01", BAD_TAG),
        (b"\x88\x80\x80\x80\x80\x00\x05", BAD_TAG),
        (b"\x88\x80\x80\x80\x7f\x05", BAD_TAG),
        (b"\x0c", BAD_GROUP),
        (b"\x73\x08\x01\x7c", BAD_GROUP),
        (b"\x73\x08\x01", OPEN_GROUP),
        (b"\x73\x08", ENDS),
        (b"\x73" * 101 + b"\x74" * 101, TOO_DEEP),
    ],
)
def test_bytes_that_are_no_message(value: bytes, reason: str) -> None:
    assert why(TINY, "t.M", value) == f"not a t.M: {reason}"
    # the same in rounds, beside many others
    found, dead = rows_and_reasons(parser(TINY, "t.M"), [b"\x08\x01"] * 50 + [value] + [b"\x08\x02"] * 50)
    assert dead == {50: f"not a t.M: {reason}"}
    assert [one["a"] for one in found if one is not None] == [1] * 50 + [2] * 50


def test_groups_that_nobody_wants_are_skipped() -> None:
    # behind a byte that could be taken for the beginning of the tag
    assert row(TINY, "t.M", b"\x7a\x01\x80\x73\x08\x01\x7b\x12\x01x\x7c\x74\x08\x05")["a"] == 5
    assert row(TINY, "t.M", b"\x73" * 100 + b"\x74" * 100)["a"] == 0


def test_text_that_is_not_utf8_and_packed_values_that_are_cut() -> None:
    assert why(TINY, "t.M", b"\x12\x01\xff") == "s: not valid UTF-8"
    assert why(SHOP, "shop.Order", order(tags={"a": 1}).replace(b"a", b"\xff")) == "tags[].key: not valid UTF-8"
    assert why(TINY, "t.M", b"\x1a\x02\x01\x80").startswith("p: packed values")
    assert why(TINY, "t.M", b"\x1a\x0b" + b"\xff" * 10 + b"\x01").startswith("p: packed values")
    assert why(SHOP, "shop.Order", b"\xc2\x01\x03abc").startswith("fixed: packed values")


def test_a_hostile_length_allocates_nothing() -> None:
    before = pa.total_allocated_bytes()
    huge = b"\x12\xff\xff\xff\xff\x0f" + b"x" * 10
    _, dead = rows_and_reasons(parser(TINY, "t.M"), [huge] * 100)
    assert len(dead) == 100
    assert pa.total_allocated_bytes() - before < 1_000_000


# --- which message it is ----------------------------------------------------------------------------------------------


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    path = tmp_path / "sales.desc"
    path.write_bytes(compiled({"sales.proto": SALES}))
    return path


def sale(kind: str, /, **values: Any) -> bytes:
    return message_class(SALES, f"sales.{kind}")(**values).SerializeToString()


def decode(path: Path, **values: Any) -> Decode:
    return Decode.model_validate({"name": "protobuf", "descriptor": str(path), **values})


MESSAGES = {"order": "sales.Order", "refund": "sales.Refund", "return": "sales.Refund"}


def test_a_message_that_is_not_in_the_set(sales: Path) -> None:
    with pytest.raises(UsageError, match=r"no message sales.Ordre in .*sales.desc; .* sales.Named, sales.Order"):
        chooser_of(decode(sales, message="sales.Ordre"))


def test_a_file_that_is_no_set(tmp_path: Path, sales: Path) -> None:
    for content, reason in ((b"\xff\xff", "is not a descriptor set"), (b"", "without a file")):
        path = tmp_path / f"{len(content)}.desc"
        path.write_bytes(content)
        with pytest.raises(UsageError, match=reason):
            chooser_of(decode(path, message="a.B"))
    with pytest.raises(UsageError, match=r"nowhere.desc cannot be read"):
        chooser_of(decode(tmp_path / "nowhere.desc", message="a.B"))


def test_imports_have_to_be_in_the_set_but_googles_own(tmp_path: Path) -> None:
    files = {
        "a.proto": 'syntax = "proto3"; import "b.proto"; import "google/protobuf/timestamp.proto"; message A { B b = 1;'
        " google.protobuf.Timestamp t = 2; }",
        "b.proto": 'syntax = "proto3"; message B { int32 n = 1; }',
    }
    both = compiled(files)
    assert Messages.of_set(both, "x").find("A").full_name == "A"
    alone = FileDescriptorSet(file=[one for one in FileDescriptorSet.FromString(both).file if one.name == "a.proto"])
    with pytest.raises(UsageError, match=r"x: b.proto is imported, and not there; .*--include_imports"):
        Messages.of_set(alone.SerializeToString(), "x")


def test_messages_that_cannot_be_columns() -> None:
    clash = 'syntax = "proto3"; message M { int32 ab = 1; int32 AB = 2 [json_name = "x"]; }'
    with pytest.raises(UsageError, match="AB and ab differ in case alone"):
        shape_of(messages(clash).find("M"))
    with pytest.raises(UsageError, match="M: _offset: this name is taken"):
        shape_of(messages('syntax = "proto3"; message M { int32 _offset = 1; }').find("M"))
    inside = clash + " message N { M m = 1; }"
    assert row(inside, "N", b"\x0a\x04\x08\x01\x10\x02")["m"] == '{"AB":2,"ab":1}'
    doubling = "".join(f"message M{n} {{ M{n + 1} a = 1; M{n + 1} b = 2; }} " for n in range(12))
    with pytest.raises(UsageError, match="M0 has more than 2000 fields"):
        shape_of(messages('syntax = "proto3"; ' + doubling + "message M12 { int32 n = 1; }").find("M0"))


def test_messages_that_hold_each_other_are_cut_where_they_begin_anew() -> None:
    text = 'syntax = "proto3"; message A { B b = 1; int32 n = 2; } message B { A a = 1; repeated B more = 2; }'
    value = message_class(text, "A")(b={"a": {"n": 1}, "more": [{}, {"a": {"n": 2}}]}).SerializeToString()
    assert row(text, "A", value)["b"] == {"a": '{"n":1}', "more": ["{}", '{"a":{"n":2}}']}


def by_field(sales: Path, field: str, values: Sequence[bytes | None], chosen: dict[str, str]) -> Any:
    chooser = chooser_of(decode(sales, messages=chosen, type_from={"field": field}))
    return rows_and_reasons(ProtobufParser(chooser), values)


def test_a_field_names_the_type(sales: Path) -> None:
    values = [
        sale("Order", type="order", id=1),
        sale("Refund", type="refund", id=2, reason="broken"),
        sale("Refund", type="return"),
        sale("Named", name="order") + sale("Refund", reason="x", type="refund"),
        sale("Order", type="odd"),
        b"",
        None,
        b"\x0a\x05or",
        sale("Order", type="order")[:-1] + b"\xff",
        sale("Refund", type="order", reason="x"),
    ]
    found, dead = by_field(sales, "type", values, MESSAGES)
    assert [one and one.get("id") for one in found] == [1, 2, 0, 0, None, None, None, None, None, 0]
    assert dead == {
        4: "type odd (field 'type') is not one of messages",
        5: "no type: no field 'type'",
        6: "the message has no value",
        7: f"not a protobuf message: {BAD_LENGTH}",
        8: "type: not valid UTF-8",
    }
    assert found[1] == {"type": "refund", "reason": "broken", "id": 2, "kind": "NONE", "number": 0}


def test_enums_and_integers_name_types_too(sales: Path) -> None:
    values = [sale("Order", kind=1, id=1), sale("Refund", kind=2, id=2), sale("Refund", kind=9), b""]
    chosen = {"ORDER": "sales.Order", "REFUND": "sales.Refund"}
    found, dead = by_field(sales, "kind", values, chosen)
    assert [one and one["id"] for one in found] == [1, 2, None, None]
    assert dead[2] == "type 9 (field 'kind') is not one of messages"
    values = [sale("Order", number=7, id=1), sale("Refund", id=2)]
    found, dead = by_field(sales, "number", values, {"7": "sales.Order", "0": "sales.Refund"})
    assert [one and one["id"] for one in found] == [1, 2]


@pytest.mark.parametrize(
    ("field", "other", "reason"),
    [
        ("type", "Other", "type is not the same in sales.Order and sales.Other"),
        ("type", "Named", "sales.Named has no field type"),
        ("kind", "Other", r"sales.Other.kind is ARRAY<STRING>, so it cannot name the type"),
        ("number", "Other", "number is not the same"),
        ("total", "Order", "sales.Order.total is DOUBLE, so it cannot name the type"),
        ("id", "Refund", "id is not the same"),
    ],
)
def test_a_field_that_cannot_name_the_type(sales: Path, field: str, other: str, reason: str) -> None:
    chosen = {"a": "sales.Order", "b": f"sales.{other}"}
    with pytest.raises(UsageError, match=reason):
        chooser_of(decode(sales, messages=chosen, type_from={"field": field}))


def test_a_header_names_the_type(sales: Path) -> None:
    table = records([sale("Order", id=1), sale("Refund", id=2), b"", b"", sale("Order", id=3), None])
    headers: list[list[tuple[str, bytes | None]]] = [
        [("type", b"order")],
        [("type", b"order"), ("x", None), ("type", b"refund")],
        [],
        [("type", b"\xff")],
        [("type", b"odd")],
        [("type", b"order")],
    ]
    pairs = [[{"key": key, "value": value} for key, value in one] for one in headers]
    table = table.append_column("headers", pa.array(pairs, HEADERS))
    chooser = chooser_of(decode(sales, messages=MESSAGES, type_from={"header": "type"}))
    parsed, dead = ProtobufParser(chooser).parse(table)
    assert [(one.rows.to_pylist(), one.values.field("id").to_pylist()) for one in parsed] == [([0], [1]), ([1], [2])]
    assert dead == {
        2: "no type: no header 'type'",
        3: "no type: no header 'type'",
        4: "type odd (header 'type') is not one of messages",
        5: "the message has no value",
    }


# --- a schema registry ------------------------------------------------------------------------------------------------


def zigzag(*numbers: int) -> bytes:
    found = b""
    for number in numbers:
        left = (number << 1) ^ (number >> 63)
        while left > 0x7F:
            found, left = found + bytes([left & 0x7F | 0x80]), left >> 7
        found += bytes([left])
    return found


LIBRARY = {
    "parts/line.proto": 'syntax = "proto3"; package lib; message Line { string sku = 1; }',
    "order.proto": 'syntax = "proto3"; package lib;'
    ' import "parts/line.proto"; import "google/protobuf/timestamp.proto";'
    " message Order { int64 id = 1; repeated Line lines = 2; google.protobuf.Timestamp at = 3;"
    "   message Inner { message Deep { bool deep = 1; } } }"
    " message Refund { int64 id = 1; string why = 2; }",
}


class Library:
    """A registry that has the two files above."""

    def __init__(self) -> None:
        self.server = SchemaRegistry()
        content = FileDescriptorSet.FromString(compiled(LIBRARY)).file
        encoded = {one.name: base64.b64encode(one.SerializeToString()).decode() for one in content}
        self.server.register("line", "…", "PROTOBUF", serialized=encoded["parts/line.proto"])
        self.number = self.server.register(
            "orders",
            "…",
            "PROTOBUF",
            references=[("parts/line.proto", "line", 1)],
            serialized=encoded["order.proto"],
        )
        found = Messages.of_set(compiled(LIBRARY), "library")
        self.kinds = {name: GetMessageClass(found.find(f"lib.{name}")) for name in ("Order", "Refund")}
        self.registry = Registry("http://registry.test", transport=self.server.transport(), clock=FakeClock())

    def parser(self, only: str | None = None) -> ProtobufParser:
        return ProtobufParser(Framed(self.registry, only))

    def value(self, name: str, index: bytes, **values: Any) -> bytes:
        message: Message = self.kinds[name](**values)
        return framed(self.number, index + message.SerializeToString())


def test_the_frame_says_which_message_it_is() -> None:
    library = Library()
    values = [
        library.value("Order", b"\0", id=1, lines=[{"sku": "a"}]),
        library.value("Order", zigzag(1, 0), id=2),
        library.value("Refund", zigzag(1, 1), id=3, why="x"),
        framed(library.number, zigzag(3, 0, 0, 0) + b"\x08\x01"),
        framed(library.number, b"\0"),
    ]
    found, dead = rows_and_reasons(library.parser(), values)
    assert not dead
    assert found == [
        {"id": 1, "lines": [{"sku": "a"}], "at": None},
        {"id": 2, "lines": [], "at": None},
        {"id": 3, "why": "x"},
        {"deep": True},
        {"id": 0, "lines": [], "at": None},
    ]
    assert len(library.server.requests) == 3  # two schemas, and what version 1 of a subject is


def test_frames_that_lead_nowhere() -> None:
    library = Library()
    avro = library.server.register("avro", '"string"')
    values = [
        None,
        b"\x08\x01",
        framed(library.number, b""),
        framed(library.number, zigzag(2, 0)),
        framed(library.number, zigzag(1, 2)),
        framed(library.number, zigzag(1, -1)),
        framed(library.number, zigzag(-1)),
        framed(library.number, zigzag(2**40)),
        framed(avro, b"\0"),
        framed(77, b"\0"),
        library.value("Order", b"\0", id=1)[:-1],
        library.value("Order", b"\0", id=1),
    ]
    found, dead = rows_and_reasons(library.parser(), values)
    assert found[-1] == {"id": 1, "lines": [], "at": None}
    assert [dead[at] for at in range(2, 11)] == [
        "not framed: ends within the number of the message",
        "not framed: ends within the number of the message",
        f"schema {library.number} has no message [2]",
        f"schema {library.number} has no message [{2**63 - 1}]",
        "not framed: a message more than 100 levels deep",
        "not framed: a message more than 100 levels deep",
        f"schema {avro} is AVRO, and not PROTOBUF",
        "the registry has no schema 77",
        f"not a lib.Order: {ENDS}",
    ]


def test_with_a_message_given_others_are_dead_letters() -> None:
    library = Library()
    values = [library.value("Order", b"\0", id=1), library.value("Refund", zigzag(1, 1), id=3)]
    found, dead = rows_and_reasons(library.parser("lib.Order"), values)
    assert found[0] is not None
    assert dead == {1: "a lib.Refund, and not a lib.Order"}


def test_the_same_columns_from_two_schemas_are_one_table() -> None:
    library = Library()
    turned = compiled({"r.proto": 'syntax = "proto3"; message R { int64 id = 9; string why = 3; }'})
    text = base64.b64encode(FileDescriptorSet.FromString(turned).file[0].SerializeToString()).decode()
    other = library.server.register("refunds", "…", "PROTOBUF", serialized=text)
    values = [
        library.value("Refund", zigzag(1, 1), id=1),
        framed(other, b"\0\x48\x02\x1a\x01y"),
        library.value("Refund", zigzag(1, 1), id=3),
    ]
    parsed, dead = library.parser().parse(records(values))
    assert not dead
    assert [one.rows.to_pylist() for one in parsed] == [[0, 1, 2]]
    assert parsed[0].values.field("id").to_pylist() == [1, 2, 3]


def test_a_registry_that_gives_text_alone_or_is_away() -> None:
    server = SchemaRegistry()
    server.register("line", LIBRARY["parts/line.proto"], "PROTOBUF")
    references = [("parts/line.proto", "line", 1)]
    number = server.register("orders", LIBRARY["order.proto"], "PROTOBUF", references=references)
    broken = server.register("broken", "message M {", "PROTOBUF")
    alone = server.register("alone", LIBRARY["order.proto"].replace("parts/", "no/"), "PROTOBUF")
    registry = Registry("http://registry.test", transport=server.transport(), clock=FakeClock())
    values = [framed(one, b"\0\x08\x05\x12\x03\x0a\x01a") for one in (number, broken, alone)]
    found, dead = rows_and_reasons(ProtobufParser(Framed(registry)), values)
    assert found[0] == {"id": 5, "lines": [{"sku": "a"}], "at": None}
    assert dead[1].startswith(f"schema {broken} cannot be used: it is not the text of a .proto file")
    assert dead[2] == f"schema {alone} cannot be used: its files: no/line.proto is imported, and not there"
    server.away = True
    with pytest.raises(RegistryError):
        ProtobufParser(Framed(registry)).parse(records([framed(alone + 1, b"\0")]))


def test_a_schema_that_cannot_be_columns_makes_dead_letters() -> None:
    library = Library()
    content = compiled({"c.proto": 'syntax = "proto3"; message C { int32 ab = 1; int32 AB = 2 [json_name = "x"]; }'})
    text = base64.b64encode(FileDescriptorSet.FromString(content).file[0].SerializeToString()).decode()
    clash = library.server.register("c", "…", "PROTOBUF", serialized=text)
    values = [framed(clash, b"\0"), library.value("Order", b"\0", id=1), framed(clash, b"\0\x08\x01")]
    found, dead = rows_and_reasons(library.parser(), values)
    assert found[1] is not None
    assert (
        dead[0]
        == dead[2]
        == f"schema {clash} cannot be used: C: AB and ab differ in case alone, so they" + (" cannot both be columns")
    )


def test_types_do_not_go_with_a_registry() -> None:
    given = {"name": "protobuf", "registry": "http://registry.test"}
    options = {"messages": {"a": "a.B"}, "type_from": {"header": "type"}}
    with pytest.raises(UsageError, match="do not go with registry"):
        chooser_of(Decode.model_validate({**given, **options}))


# --- as an export -----------------------------------------------------------------------------------------------------


def export(path: Path, **values: Any) -> Export:
    given = {"name": "protobuf", "descriptor": str(path), "messages": MESSAGES, "type_from": {"field": "type"}}
    split = {"type": {"field": "type"}}
    return Export.model_validate(
        {"group": "sales", "decode": given, "split": split, "dead_letters": {"stop_above": "50%"}, **values}
    )


def test_a_range_becomes_files_by_type_however_it_is_cut(sales: Path, tmp_path: Path) -> None:
    made = []
    for n in range(300):
        value = sale("Order", type="order", id=n, total=n / 4) if n % 3 else sale("Refund", type="refund", id=n)
        made.append(ranges.Message(n, value if n % 50 else value[:-1] + b"\xff\xff"))
    found = []
    for rows, budget in ((1000, ranges.LARGE), (7, 3000)):
        bucket = ranges.memory()
        done = ranges.written(ranges.write(bucket, tmp_path / str(rows), export(sales), made, rows=rows, budget=budget))
        found.append(ranges.objects(bucket))
    assert found[0] == found[1]
    assert (done.counts.written, done.counts.dead) == (294, 6)
    by_folder = ranges.all_rows(bucket, done)
    orders = by_folder["topics/sales/clicks/type=order"]
    wanted = [(n, n / 4) for n in range(300) if n % 3 and n % 50]
    assert [(one["id"], one["total"]) for one in orders] == wanted
    assert [one["_offset"] for one in orders] == [n for n, _ in wanted]


def test_the_content_of_the_descriptor_is_part_of_the_definition_and_goes_along(sales: Path) -> None:
    first = export(sales)
    before = fingerprint(first)
    sent = pickle.loads(pickle.dumps(first))
    moved = sales.with_name("moved.desc")
    sales.rename(moved)
    assert fingerprint(export(moved)) == before == fingerprint(sent)
    assert chooser_of(sent.decode) is not None
    moved.write_bytes(compiled({"sales.proto": SALES.replace("double total = 3", "double sum = 3")}))
    assert fingerprint(export(moved)) != before


def test_many_kinds_of_numbers_survive_at_their_ends() -> None:
    ends: dict[str, list[Any]] = {
        "i32": [-(2**31), 2**31 - 1],
        "i64": [-(2**63), 2**63 - 1],
        "u32": [0, 2**32 - 1],
        "u64": [0, 2**64 - 1],
        "s32": [-(2**31), 2**31 - 1],
        "s64": [-(2**63), 2**63 - 1],
        "f32": [0, 2**32 - 1],
        "f64": [0, 2**64 - 1],
        "sf32": [-(2**31), 2**31 - 1],
        "sf64": [-(2**63), 2**63 - 1],
        "d": [5e-324, float("-inf")],
        "f": [struct.unpack("<f", b"\x01\0\0\0")[0], float("inf")],
    }
    for number in (0, 1):
        row(SHOP, "shop.Order", order(**{name: both[number] for name, both in ends.items()}))

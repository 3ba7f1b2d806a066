"""What is read from many messages at once is what protobuf reads from each of them; and what it refuses is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catchment.topics.decode.protobuf.columns import Reading
from catchment.topics.decode.protobuf.shape import shape_of
from catchment.topics.decode.wire import flat
from tests.unit.topics.decode.protobuf.protos import (
    OLD,
    SHOP,
    Unsure,
    assert_same,
    binary,
    expected,
    message_class,
    messages,
    oracle,
    parser,
    rows_and_reasons,
)

ORDER, EVENT = message_class(SHOP, "shop.Order"), message_class(OLD, "old.Event")
EXAMPLES = 80
KINDS = {"proto3": (SHOP, ORDER), "proto2": (OLD, EVENT)}

_TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
_INT32 = st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 300)
_INT64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300)
_UINT64 = st.integers(0, 2**64 - 1) | st.integers(0, 300)
_FINITE = st.floats(allow_nan=False, allow_infinity=False)
_F = FieldDescriptor
_VALUES: dict[int, st.SearchStrategy[Any]] = {
    _F.CPPTYPE_INT32: _INT32,
    _F.CPPTYPE_INT64: _INT64,
    _F.CPPTYPE_UINT32: st.integers(0, 2**32 - 1) | st.integers(0, 300),
    _F.CPPTYPE_UINT64: _UINT64,
    _F.CPPTYPE_DOUBLE: st.floats(),
    _F.CPPTYPE_FLOAT: st.floats(width=32),
    _F.CPPTYPE_BOOL: st.booleans(),
}


def _scalar(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.type == _F.TYPE_STRING:
        return _TEXT
    if field.type == _F.TYPE_BYTES:
        return st.binary(max_size=5)
    if field.enum_type is not None:
        numbers = sorted(field.enum_type.values_by_number)
        return st.sampled_from(numbers) if field.enum_type.is_closed else st.sampled_from([*numbers, 5, -(2**31)])
    return _VALUES[field.cpp_type]


@st.composite
def filled(draw: st.DrawFn, kind: type[Message], depth: int = 0) -> Message:
    """A message with some of its fields, and all that are required."""
    message = kind()
    _fill(draw, message, depth)
    return message


def _fill(draw: st.DrawFn, message: Any, depth: int) -> None:
    name, fields = message.DESCRIPTOR.full_name, message.DESCRIPTOR.fields
    if name == "google.protobuf.Timestamp":
        message.seconds = draw(st.integers(-62_135_596_800, 253_402_300_799))
        message.nanos = draw(st.integers(0, 999_999_999))
        return
    if name == "google.protobuf.Duration":
        message.FromNanoseconds(draw(_INT64))
        return
    if name == "google.protobuf.Any":
        if draw(st.booleans()):
            message.Pack(draw(filled(message_class(SHOP, "shop.Line"), depth)))
        return
    if name == "google.protobuf.Value":
        message.number_value = draw(_FINITE)
        return
    chosen = (
        draw(st.lists(st.sampled_from(list(fields)), max_size=6, unique_by=lambda one: one.number)) if fields else []
    )
    for field in {field.number: field for field in [*chosen, *(one for one in fields if one.is_required)]}.values():
        if field.message_type is None:
            if field.is_repeated:
                getattr(message, field.name).extend(draw(st.lists(_scalar(field), max_size=4)))
            else:
                setattr(message, field.name, draw(_scalar(field)))
        elif depth < 3:
            _fill_message(draw, message, field, depth)


def _fill_message(draw: st.DrawFn, message: Any, field: FieldDescriptor, depth: int) -> None:
    kind = field.message_type
    assert kind is not None
    target = getattr(message, field.name)
    if kind.GetOptions().map_entry:
        key, value = kind.fields_by_name["key"], kind.fields_by_name["value"]
        for one in draw(st.lists(_scalar(key), max_size=3)):
            if value.message_type is None:
                target[one] = draw(_scalar(value))
            else:
                _fill(draw, target[one], depth + 1)
    elif field.is_repeated:
        for _ in range(draw(st.integers(0, 3))):
            _fill(draw, target.add(), depth + 1)
    else:
        target.SetInParent()
        _fill(draw, target, depth + 1)


@pytest.mark.parametrize("syntax", KINDS)
@settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_messages_are_read_as_protobuf_reads_them(syntax: str, data: st.DataObject) -> None:
    text, kind = KINDS[syntax]
    many = data.draw(st.lists(filled(kind), max_size=5))
    found, dead = rows_and_reasons(parser(text, kind.DESCRIPTOR.full_name), [one.SerializeToString() for one in many])
    assert not dead
    for row, message in zip(found, many, strict=True):
        assert_same(row, expected(message))


@st.composite
def damaged(draw: st.DrawFn, kind: type[Message]) -> bytes:
    """Bytes that were a message, or several: cut, changed, moved, doubled; or never one."""
    value = b"".join(one.SerializeToString() for one in draw(st.lists(filled(kind), min_size=1, max_size=3)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(value)))
        match draw(st.sampled_from(["cut", "change", "insert", "remove", "repeat"])):
            case "cut":
                value = value[:at]
            case "change":
                value = value[:at] + draw(st.binary(min_size=1, max_size=1)) + value[at + 1 :]
            case "insert":
                value = value[:at] + draw(st.binary(min_size=1, max_size=12)) + value[at:]
            case "remove":
                value = value[:at] + value[at + 1 :]
            case "repeat":
                value = value + value[at:]
    return value


@pytest.mark.parametrize("syntax", KINDS)
@settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_messages_are_judged_as_protobuf_judges_them(syntax: str, data: st.DataObject) -> None:
    text, kind = KINDS[syntax]
    values = data.draw(st.lists(damaged(kind) | st.binary(max_size=12), max_size=4))
    found, dead = rows_and_reasons(parser(text, kind.DESCRIPTOR.full_name), values)
    for at, (row, value) in enumerate(zip(found, values, strict=True)):
        try:
            wanted = oracle(kind, value)
        except Unsure:
            continue
        if syntax == "proto2" and dead.get(at, "").endswith("not valid UTF-8"):
            continue  # protobuf does not look at the text of proto2 before somebody asks for it
        assert (row is None) == (wanted is None), (value, wanted, dead)
        assert_same(row, wanted)


@pytest.mark.parametrize("syntax", KINDS)
@settings(deadline=None, max_examples=EXAMPLES // 2, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_message_does_not_depend_on_its_neighbours_nor_on_how_it_is_read(syntax: str, data: st.DataObject) -> None:
    text, kind = KINDS[syntax]
    name = kind.DESCRIPTOR.full_name
    values = data.draw(st.lists(damaged(kind), max_size=6))
    together = rows_and_reasons(parser(text, name), values)
    for at, value in enumerate(values):
        (alone,), why = rows_and_reasons(parser(text, name), [value])
        assert repr(alone) == repr(together[0][at])
        assert why.get(0) == together[1].get(at)
    content, starts, ends = flat(binary(values))
    shape = shape_of(messages(text).find(name))
    one_by_one, in_rounds = Reading(content, few=1000), Reading(content, few=0)
    rows = [
        reading.messages(shape, starts, ends, np.arange(len(values))).to_pylist() for reading in (one_by_one, in_rounds)
    ]
    assert one_by_one.bad == in_rounds.bad == together[1]
    good = [at for at in range(len(values)) if at not in together[1]]
    assert repr([rows[0][at] for at in good]) == repr([rows[1][at] for at in good])

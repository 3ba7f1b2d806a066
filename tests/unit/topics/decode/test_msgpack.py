"""MessagePack: read many at a time, and decoded as the same objects in JSON would be."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.bucket.memory import MemoryBucket
from catchment.config.decode import Decode
from catchment.config.topics import Export
from catchment.topics.decode.decoder import Decoder, decoder_of
from catchment.topics.decode.msgpack import MsgpackTranslation
from catchment.topics.decode.schemas import Schemas
from tests.unit.topics.decode.messages import PLACE, TYPE, reasons, records, rows
from tests.unit.topics.write.ranges import (
    BY_TYPE_AND_DAY,
    Message,
    all_rows,
    events,
    json_export,
    memory,
    write,
    written,
)

pack = msgspec.msgpack.encode
NOT = "not MessagePack"


def task(name: str = "msgpack", schemas: Mapping[str, str] | None = None) -> tuple[Schemas, Decoder]:
    decode = Decode.model_validate({"name": name, "schemas": schemas or {}})
    known = Schemas(MemoryBucket(), PLACE, decode.schemas, 1)
    return known, decoder_of(decode, known)


def decoded(*messages: object, schemas: Mapping[str, str] | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    """Bytes and None as they are, everything else packed."""
    _, decoder = task(schemas=schemas)
    values = [one if one is None or isinstance(one, bytes) else pack(one) for one in messages]
    found = decoder.decode(TYPE, records(values))
    return rows(decoder, found), reasons(found)


def test_maps_become_rows() -> None:
    found, dead = decoded(
        {"i": -5, "f": 1.5, "s": "ü\n€", "b": True, "l": [1, None], "o": {"x": {"y": "z"}}, "none": None}, {"i": 2**40}
    )
    assert found[0] == {"i": -5, "f": 1.5, "s": "ü\n€", "b": True, "l": [1, None], "o": {"x": {"y": "z"}}}
    assert found[1]["i"] == 2**40
    assert dead == []


BAD: list[tuple[bytes | None, str]] = [
    (None, "the message has no value"),
    (b"", "the message has no value"),
    (b"\xc1", NOT),
    (pack({"a": 1})[:-1], f"{NOT}: it ends in the middle of a value"),
    (b"\x82\xa1a\x01", f"{NOT}: it ends in the middle of a value"),  # the next message looks like its second entry
    (b"\xdf\xff\xff\xff\xff", f"{NOT}: it ends in the middle of a value"),
    (pack({"a": 1}) + b"\x00", f"{NOT}: there is more after its first value"),
    (pack({"a": 1}) * 2, f"{NOT}: there is more after its first value"),
    (b"\x81\xa1\xff\x01", f"{NOT}: a text in it is not valid UTF-8"),
    (pack([1]), "not a map"),
    (pack("text"), "not a map"),
    (pack(5), "not a map"),
    (pack(None), "not a map"),
    (b"\x81\xa1a\xd4\x05\x01", "extension type 5 is not known; only timestamps (-1) are"),
    (b"\x81\xa1a\x91\x81\xa1b\xc7\x02\x2a\x01\x02", "extension type 42 is not known; only timestamps (-1) are"),
    (b"\x81\xa1a\xc7\x0c\xff\x00\x00\x00\x01\x7f\xff\xff\xff\xff\xff\xff\xff", f"{NOT}: a timestamp is out of range"),
    (b"\x81\xc0\x05", "a key in it is neither text nor a number"),
    (b"\x81\x80\x05", "a key in it is neither text nor a number"),
    (b"\x81\xa1a" + b"\x91" * 200 + b"\x01", "nested more than 100 levels deep"),
    (b"\x81\xa1a" + b"\x91" * 100_000 + b"\x01", "nested more than 100 levels deep"),
]


@pytest.mark.parametrize("bad, why", BAD)
def test_what_is_no_map_is_a_dead_letter_and_harms_no_neighbour(bad: bytes | None, why: str) -> None:
    good = [pack({"a": n}) for n in range(5)]
    _, decoder = task()
    given = records([*good[:2], bad, good[2], bad, *good[3:]])
    for found in (decoder.decode(TYPE, given), decoder.decode(TYPE, decoder.types(given, "a").records)):
        assert found.table["a"].to_pylist() == [0, 1, 2, 3, 4]
    found = decoder.decode(TYPE, given)
    assert found.dead.select(["offset", "key", "value", "reason"]).to_pylist() == [
        {"offset": 2, "key": b"k2", "value": bad, "reason": why},
        {"offset": 4, "key": b"k4", "value": bad, "reason": why},
    ]
    assert decoder.types(given, "a").dead.equals(found.dead)


def test_a_dead_letter_that_json_finds_has_its_own_bytes_too() -> None:
    _, decoder = task(schemas={"*": "a INT"})
    messages = [pack({"a": 1}), pack({"a": "x"}), b"\xc1", pack({"_offset": 1})]
    found = decoder.decode(TYPE, records(messages))
    assert found.dead["value"].to_pylist() == messages[1:]
    assert [one.partition(";")[0] for one in reasons(found)] == [
        'a: "x" is not INT',
        NOT,
        "_offset: this name is taken by a column of our own",
    ]
    typed = decoder.types(records(messages), "a")
    assert typed.types.to_pylist() == ["1", "x", None]
    assert typed.records["value"].to_pylist() == [messages[0], messages[1], messages[3]]
    again = decoder.decode(TYPE, typed.records)
    assert again.dead["value"].to_pylist() == [messages[1], messages[3]]


def test_bytes_are_base64_unless_they_are_declared() -> None:
    assert decoded({"raw": b"\xff\x00"})[0] == [{"raw": "/wA="}]
    assert decoded({"raw": b"\xff\x00"}, {"raw": None}, schemas={"*": "raw BINARY"})[0] == [
        {"raw": b"\xff\x00"},
        {"raw": None},
    ]


def test_timestamps_are_iso_texts_unless_they_are_declared() -> None:
    moment = datetime(2026, 11, 15, 8, 30, 0, 250_000, tzinfo=UTC)
    assert decoded({"at": moment})[0] == [{"at": "2026-11-15T08:30:00.250000Z"}]
    assert decoded({"at": moment}, schemas={"*": "at TIMESTAMP"})[0] == [{"at": moment}]


def test_keys_that_are_numbers_are_text_and_the_last_of_two_equal_ones_counts() -> None:
    assert decoded({1: "a", -2: "b"})[0] == [{"1": "a", "-2": "b"}]
    assert decoded(b"\x82\xa1a\x01\xa1a\x02")[0] == [{"a": 2}]
    assert decoded(b"\x82\x01\x01\xa11\x02")[0] == [{"1": 1}]


def test_what_is_not_finite_is_a_number_and_not_null() -> None:
    numbers = [math.nan, math.inf, -math.inf, 1.0, None]
    single = [b"\xca\x7f\xc0\x00\x00", b"\xca\x7f\x80\x00\x00", b"\xca\xff\x80\x00\x00"]
    found, dead = decoded(*({"x": one, "l": [{"y": one}]} for one in numbers), *(b"\x81\xa1x" + one for one in single))
    assert dead == []
    assert repr([row["x"] for row in found]) == "[nan, inf, -inf, 1.0, None, nan, inf, -inf]"
    assert repr([row["l"][0]["y"] for row in found[:5]]) == "[nan, inf, -inf, 1.0, None]"
    # The same bytes inside of a text or bytes are nothing special.
    assert decoded({"x": b"\xca\x7f\xc0\x00\x00", "n": 5})[0] == [{"x": "yn/AAAA=", "n": 5}]


def test_great_numbers_are_as_in_json() -> None:
    found, dead = decoded({"a": 2**63}, {"a": 2**64 - 1}, {"a": 1.5})
    assert [row["a"] for row in found] == [2.0**63, 1.5]
    assert [one.partition(";")[0] for one in dead] == ["a: 18446744073709551615 is not DOUBLE"]


def test_bytes_that_look_like_a_mark_change_nothing() -> None:
    # Whatever marks are chosen, a message may hold them: then others are.
    first = bytes([0xCF, 0x80, 0x00, 0x00, 0x00])
    second = bytes([0xCF, 0x81, 0x01, 0x01, 0x01])
    messages = [{"a": first + bytes(4)}, {"a": second + bytes(4)}, {"a": int.from_bytes(first[1:] + bytes(4))}]
    texts, dead = MsgpackTranslation().json(pa.array([pack(one) for one in messages], pa.binary()))
    assert dead == {}
    assert [json.loads(one) for one in texts.to_pylist()] == [json.loads(msgspec.json.encode(one)) for one in messages]
    # Cut short so that a mark is swallowed: a text of nine bytes, and nothing of it is there.
    cut = b"\x81\xa1a\xa9"
    texts, dead = MsgpackTranslation().json(pa.array([cut, pack({"b": 1}), cut, cut], pa.binary()))
    assert texts.to_pylist() == [b'{"b":1}']
    assert dead == {at: f"{NOT}: it ends in the middle of a value" for at in (0, 2, 3)}
    # The same with a number that equals the mark, though it is not written as one, where the mark should be.
    equal = b"\xcb" + struct.pack(">d", 2.0**63)
    texts, dead = MsgpackTranslation().json(pa.array([b"\x81\xa1a", equal + b"\x80"], pa.binary()))
    assert texts.to_pylist() == [] and sorted(dead) == [0, 1]


def test_the_same_export_as_json_has_the_same_rows(tmp_path: Path) -> None:
    in_json = events(300)
    in_msgpack = [Message(one.offset, pack(json.loads(one.value or b""))) for one in in_json]
    packed = Export.model_validate({"group": "events", "decode": "msgpack", "split": BY_TYPE_AND_DAY})
    buckets = memory(), memory(), memory()
    wanted = all_rows(buckets[0], written(write(buckets[0], tmp_path / "json", json_export(), in_json)))
    assert all_rows(buckets[1], written(write(buckets[1], tmp_path / "1", packed, in_msgpack))) == wanted
    assert all_rows(buckets[2], written(write(buckets[2], tmp_path / "2", packed, in_msgpack, rows=17))) == wanted
    keys = [[entry.key for entry in bucket.list()] for bucket in buckets[1:]]
    assert keys[0] == keys[1]
    assert all(buckets[1].get(key) == buckets[2].get(key) for key in keys[0] if key.endswith(".parquet"))


_VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text(max_size=6)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=6,
)
_OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "C", "é"]), _VALUES, max_size=3)


@settings(max_examples=80, deadline=None)
@given(objects=st.lists(_OBJECTS, max_size=8), cuts=st.lists(st.integers(0, 8), max_size=3))
def test_objects_are_decoded_as_in_json(objects: Sequence[dict[str, Any]], cuts: Sequence[int]) -> None:
    bounds = sorted({0, len(objects), *(cut for cut in cuts if cut < len(objects))})

    def run(name: str, values: Sequence[bytes]) -> tuple[object, ...]:
        known, decoder = task(name)
        found = [decoder.decode(TYPE, records(values[start:end], start)) for start, end in pairwise(bounds)]
        return (
            [repr(row) for one in found for row in rows(decoder, one)],  # NaN is not equal to itself
            [reasons(one) for one in found],
            [one.dead["offset"].to_pylist() for one in found],
            known.of(TYPE),
        )

    assert run("msgpack", [pack(one) for one in objects]) == run(
        "json", [msgspec.json.encode(_spelled(one)) for one in objects]
    )


def _spelled(given: Any) -> Any:
    if isinstance(given, dict):
        return {name: _spelled(one) for name, one in given.items()}
    if isinstance(given, list):
        return [_spelled(one) for one in given]
    return msgspec.Raw(b"Infinity" if given > 0 else b"-Infinity") if given in (math.inf, -math.inf) else given


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(
        st.one_of(
            st.sampled_from([one for one, _ in BAD if one is None or len(one) < 1000]),
            _OBJECTS.map(pack),
            st.builds(lambda one, cut: pack(one)[: -1 - cut % 5] or None, _OBJECTS, st.integers(0, 5)),
            st.binary(max_size=12),
        ),
        max_size=10,
    ),
    piece=st.integers(1, 60),
)
def test_what_is_said_of_a_message_does_not_depend_on_its_neighbours(
    values: Sequence[bytes | None], piece: int
) -> None:
    def alone(value: bytes | None) -> tuple[list[bytes], str | None]:
        texts, dead = MsgpackTranslation().json(pa.array([value], pa.binary()))
        return texts.to_pylist(), dead.get(0)

    texts, dead = MsgpackTranslation(piece).json(pa.array(values, pa.binary()))
    each = [alone(one) for one in values]
    assert texts.to_pylist() == [text for found, _ in each for text in found]
    assert dead == {at: why for at, (_, why) in enumerate(each) if why is not None}

"""Decoding many messages at once gives what one would get by looking at each, however they are cut."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.topics.decode.schema import ARRAY, JSON, STRUCT, VOID, Kind
from tests.unit.topics.decode.messages import TYPE, Lake, records

NAMES = st.sampled_from(["a", "b", "c", "A", "é", ""])
INTEGERS = st.integers(-5, 5) | st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63 - 1, 2**63, 2**64 - 1, 10**30])
LEAVES = (
    st.none()
    | st.booleans()
    | INTEGERS
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=4)
    | st.sampled_from(["2026-01-01", "null", "{}", "5"])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
TAME = st.fixed_dictionaries(  # most messages of a topic look alike
    {}, optional={"a": st.integers(-9, 9), "b": st.text(max_size=3), "c": st.lists(st.floats(-9, 9), max_size=2)}
)
MESSAGES = st.lists(TAME | st.dictionaries(NAMES, VALUES, max_size=3), max_size=40)


class Dead(Exception):
    pass


def reference(kind: Kind, value: Any) -> Any:
    """A value as its column has it, by the rules alone. Dead if it does not fit."""
    if value is None:
        return None
    match kind.word:
        case "json":
            return ("json", value)
        case "BOOLEAN" if isinstance(value, bool):
            return value
        case "BIGINT" if type(value) is int and -(2**63) <= value < 2**63:
            return value
        case "DOUBLE" if type(value) is float or (type(value) is int and int(float(value)) == value):
            return float(value)
        case "string" if isinstance(value, str):
            return value
        case "ARRAY" if isinstance(value, list):
            return [reference(kind.inner, one) for one in value]
        case "STRUCT" if isinstance(value, dict):
            known = {one.name: one.kind for one in kind.fields}
            if len({name.lower() for name in {*value, *known}}) != len({*value, *known}):
                raise Dead
            found = {name: reference(kind, value.get(name)) for name, kind in known.items()}
            return {name: one for name, one in found.items() if not known[name].open}
    raise Dead


def plain(kind: Kind, value: Any) -> Any:
    """What came out of a column, JSON text read."""
    if value is None:
        return None
    if kind.word == JSON:
        return ("json", json.loads(value))
    if kind.word == ARRAY:
        return [plain(kind.inner, one) for one in value]
    if kind.word == STRUCT:
        return {one.name: plain(one.kind, value[one.name]) for one in kind.fields if not one.kind.open}
    assert kind.word != VOID
    assert not isinstance(value, float) or math.isfinite(value)
    return value


def decoded(lake: Lake, messages: list[object], cuts: list[int]) -> tuple[pa.Table, pa.Table, Kind]:
    """All rows and dead letters, decoded in pieces that are cut there, and the settled schema."""
    schemas, decoder = lake.task()
    given = records(messages)
    ends = sorted({0, len(messages), *(cut for cut in cuts if cut < len(messages))})
    pieces = [given.slice(start, end - start) for start, end in pairwise(ends)] or [given]
    found = [decoder.decode(TYPE, piece) for piece in pieces]
    schemas.settle([TYPE])
    rows = pa.concat_tables(decoder.finish(TYPE, one.table) for one in found)
    return rows, pa.concat_tables(one.dead for one in found), schemas.of(TYPE).kind


CUTS = st.lists(st.integers(1, 39), max_size=4)


@settings(deadline=None, max_examples=60)
@given(MESSAGES, CUTS)
def test_rows_are_what_the_rules_say(messages: list[Any], cuts: list[int]) -> None:
    rows, dead, kind = decoded(Lake(), messages, cuts)
    wanted: dict[int, Any] = {}
    for offset, message in enumerate(messages):
        try:
            wanted[offset] = reference(kind, message)
        except Dead:
            continue
    assert rows["_offset"].to_pylist() == list(wanted)
    assert dead["offset"].to_pylist() == [at for at in range(len(messages)) if at not in wanted]
    found = rows.drop_columns(["_offset", "_timestamp"]).to_pylist()
    assert [plain(kind, one) for one in found] == list(wanted.values())


@settings(deadline=None, max_examples=40)
@given(MESSAGES, CUTS, CUTS)
def test_with_the_schema_known_it_does_not_matter_how_they_are_cut(
    messages: list[object], cuts: list[int], others: list[int]
) -> None:
    lake = Lake()
    first = decoded(lake, messages, cuts)
    again = decoded(lake, messages, others)
    assert again[2] == first[2]
    assert again[0].equals(first[0])
    # Of two reasons why a message is a dead letter, another may be said.
    assert again[1].drop_columns(["reason"]).equals(first[1].drop_columns(["reason"]))

from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.topics.decode import ddl
from catchment.topics.decode.schema import ARRAY, JSON, STRUCT, VOID, Field, Kind, Schema, SchemaClash

LEAVES = st.sampled_from([Kind(word) for word in (VOID, JSON, "string", "BOOLEAN", "BIGINT", "DOUBLE", "DATE")])


def structs(kinds: st.SearchStrategy[Kind]) -> st.SearchStrategy[tuple[Field, ...]]:
    found = st.dictionaries(st.sampled_from(["a", "b", "c"]), kinds, max_size=3)
    return found.map(lambda one: tuple(Field(name, kind) for name, kind in one.items()))


KINDS = st.recursive(
    LEAVES,
    lambda kinds: (
        kinds.map(lambda kind: Kind(ARRAY, item=kind)) | structs(kinds).map(lambda fields: Kind(STRUCT, fields=fields))
    ),
    max_leaves=6,
)
SCHEMAS = structs(KINDS).map(Schema)


def unordered(kind: Kind) -> object:
    if kind.word == STRUCT:
        return {one.name: unordered(one.kind) for one in kind.fields}
    return (kind.word, unordered(kind.item)) if kind.item is not None else kind.word


@given(SCHEMAS)
def test_plain_values_give_it_back(schema: Schema) -> None:
    assert Schema.parse(json.loads(json.dumps(schema.plain()))) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert hash(pickle.loads(pickle.dumps(schema))) == hash(schema)


@given(SCHEMAS, SCHEMAS)
def test_growing_commutes_but_for_the_order(one: Schema, other: Schema) -> None:
    try:
        grown = one.grown(other)
    except SchemaClash:
        with pytest.raises(SchemaClash):
            other.grown(one)
        return
    assert unordered(grown.kind) == unordered(other.grown(one).kind)
    assert grown.grown(one) == grown
    assert grown.grown(other) == grown


@given(SCHEMAS, SCHEMAS, SCHEMAS)
def test_mixing_does_not_depend_on_the_order(a: Schema, b: Schema, c: Schema) -> None:
    assert unordered(a.mixed(b).mixed(c).kind) == unordered(c.mixed(b.mixed(a)).kind)


def test_a_clash_names_the_field_and_both_types() -> None:
    with pytest.raises(SchemaClash) as caught:
        ddl.parse("a STRUCT<b: ARRAY<INT>>").grown(ddl.parse("a STRUCT<b: ARRAY<STRING>>"))
    assert (caught.value.path, caught.value.ours, caught.value.theirs) == ("a.b[]", "INT", "STRING")


def test_names_that_differ_only_in_case_clash() -> None:
    with pytest.raises(SchemaClash):
        ddl.parse("a STRUCT<b: INT>").grown(ddl.parse("a STRUCT<B: INT>"))


def test_what_is_open_has_no_column() -> None:
    seen = Schema(
        (
            Field("n", Kind(VOID)),
            Field("o", Kind(STRUCT, fields=(Field("x", Kind(VOID)),))),
            Field("l", Kind(ARRAY, item=Kind(STRUCT))),
            Field("k", Kind(STRUCT, fields=(Field("x", Kind(VOID)), Field("y", Kind("BIGINT"))))),
        )
    )
    assert seen.arrow() == pa.schema([("k", pa.struct([("y", pa.int64())]))])
    grown = seen.grown(ddl.parse("n INT, o STRUCT<x: INT>, l ARRAY<STRUCT<z: INT>>"))
    assert grown.arrow().names == ["n", "o", "l", "k"]


def test_without_clash_keeps_ours() -> None:
    found = ddl.parse("a INT, b STRING").without_clash(ddl.parse("b INT, c DATE"))
    assert {one.name: str(one.kind) for one in found.fields} == {"a": "INT", "b": "STRING", "c": "DATE"}


@pytest.mark.parametrize("plain", [{}, "BIGINT", [["a"]], [["a", "NOPE"]], [["a", {"struct": 5}]], [5], None])
def test_other_plain_values_are_refused(plain: object) -> None:
    with pytest.raises(ValueError):
        Schema.parse(plain)


def test_keeping_adds_what_is_new_and_leaves_ours_as_it_is() -> None:
    ours = ddl.parse("a INT, s STRUCT<x: INT>, l ARRAY<INT>")
    found = ddl.parse("b DATE, a BIGINT, s STRUCT<y: INT, x: STRING>, l STRUCT<z: INT>")
    assert ours.keeping(found) == ddl.parse("a INT, s STRUCT<x: INT, y: INT>, l ARRAY<INT>, b DATE")
    assert Schema((Field("v", Kind(VOID)),)).keeping(ddl.parse("v INT")) == ddl.parse("v INT")
    for clash in ("A INT", "s STRUCT<X: INT>"):
        with pytest.raises(SchemaClash, match="a name in another case"):
            ours.keeping(ddl.parse(clash))

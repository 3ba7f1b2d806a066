"""What is the same for every decoder that reads messages into columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.bucket.memory import MemoryBucket
from catchment.topics.decode import ddl
from catchment.topics.decode.cast import Casting
from catchment.topics.decode.columns import ColumnDecoder, Parsed
from catchment.topics.decode.decoder import Decoded
from catchment.topics.decode.json import JsonDecoder
from catchment.topics.decode.read import Reader
from catchment.topics.decode.schema import ARRAY, JSON, MAP, STRUCT, TEXT, VOID, Field, Kind, Schema
from catchment.topics.decode.schemas import Schemas
from catchment.topics.records import DEAD
from tests.unit.topics.decode import messages
from tests.unit.topics.decode.messages import PLACE, TYPE, reasons, records

Shapes = Mapping[str, Kind]


class ByShape:
    """A parser: each message is JSON that names its shape, and has its fields."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self.parsed = 0

    def parse(self, given: pa.Table) -> tuple[list[Parsed], dict[int, str]]:
        self.parsed += given.num_rows
        found: dict[str, list[tuple[int, Any]]] = {}
        dead = {}
        for at, text in enumerate(given["value"].to_pylist()):
            shape, _, body = (text or b"").decode().partition(" ")
            if shape in self.shapes:
                found.setdefault(shape, []).append((at, _values(json.loads(body))))
            else:
                dead[at] = f"no shape {shape!r}"
        return [
            Parsed(
                pa.array([at for at, _ in each], pa.int64()),
                pa.array([one for _, one in each], self.shapes[shape].arrow()),
                self.shapes[shape],
            )
            for shape, each in found.items()
        ], dead


def _values(found: Any) -> Any:
    """What JSON cannot say."""
    match found:
        case {"date": text}:
            return date.fromisoformat(text)
        case {"time": text}:
            return datetime.fromisoformat(text)
        case {"decimal": text}:
            return Decimal(text)
        case {"bytes": text}:
            return bytes.fromhex(text)
        case {"map": pairs}:
            return [(name, _values(one)) for name, one in pairs]
        case dict():
            return {name: _values(one) for name, one in found.items()}
        case list():
            return [_values(one) for one in found]
    return found


def shape(**fields: Kind | str) -> Kind:
    return Kind(STRUCT, fields=tuple(Field(name, kind_of(one)) for name, one in fields.items()))


def kind_of(given: Kind | str) -> Kind:
    if isinstance(given, Kind):
        return given
    return Kind(given) if given in (TEXT, VOID) else ddl.parse(f"x {given}").fields[0].kind


def message(name: str, **fields: Any) -> str:
    return f"{name} {json.dumps(fields)}"


@dataclass
class Export:
    """One export with a parser of ours."""

    shapes: Shapes
    declared: Mapping[str, str] = field(default_factory=dict)
    bucket: MemoryBucket = field(default_factory=MemoryBucket)

    def task(self) -> tuple[Schemas, ColumnDecoder, ByShape]:
        schemas, parser = Schemas(self.bucket, PLACE, self.declared, 1), ByShape(self.shapes)
        return schemas, ColumnDecoder(parser, schemas), parser

    def decode(self, *messages: object) -> tuple[list[dict[str, Any]], list[str], Schema]:
        schemas, decoder, _ = self.task()
        decoded = decoder.decode(TYPE, records(messages))
        schemas.settle([TYPE])
        return rows(decoder, decoded), reasons(decoded), schemas.of(TYPE)


def rows(decoder: ColumnDecoder, decoded: Decoded) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = decoder.finish(TYPE, decoded.table).drop_columns(["_timestamp"]).to_pylist()
    return [{name: one for name, one in row.items() if name != "_offset"} for row in found]


def one_field(have: Kind | str, want: str, *values: Any) -> tuple[list[Any], list[str]]:
    """Values of one kind in a field that is declared as another: those that fit, and what is said of the others."""
    found, dead, _ = Export({"s": shape(x=have)}, {"*": f"x {want}"}).decode(*(message("s", x=one) for one in values))
    return [row["x"] for row in found], [one.partition(";")[0] for one in dead]


def test_fields_become_columns_with_kafkas_own_last() -> None:
    _, decoder, _ = Export({"s": shape(a="INT", b=TEXT)}).task()
    decoded = decoder.decode(TYPE, records([message("s", a=1, b="x"), message("s", a=None)], first=7), keep=["key"])
    assert decoded.table.schema == pa.schema(
        [
            ("a", pa.int32()),
            ("b", pa.string()),
            ("_offset", pa.int64()),
            ("_timestamp", pa.timestamp("ms", "UTC")),
            ("__record_key", pa.binary()),
        ]
    )
    assert decoded.table.to_pylist()[1] == {
        "a": None,
        "b": None,
        "_offset": 8,
        "_timestamp": datetime(1970, 1, 1, 0, 0, 0, 8000, tzinfo=UTC),
        "__record_key": b"k1",
    }
    assert decoded.dead.schema == DEAD


def test_rows_of_several_shapes_are_in_the_order_of_their_records() -> None:
    export = Export({"s": shape(a="INT"), "t": shape(b=TEXT, a="INT")})
    found, dead, schema = export.decode(
        message("t", a=0, b="x"), "bad", message("s", a=1), message("t", a=2), message("s", a=3), None
    )
    assert [row["a"] for row in found] == [0, 1, 2, 3]
    assert [row["b"] for row in found] == ["x", None, None, None]
    assert dead == ["no shape 'bad'", "no shape ''"]
    assert [one.name for one in schema.fields] == ["b", "a"]


def test_dead_letters_are_the_records_as_they_were_in_their_order() -> None:
    _, decoder, _ = Export({"s": shape(a="BIGINT")}, {"*": "a INT"}).task()
    decoded = decoder.decode(TYPE, records([b"\xff".hex(), message("s", a=1), message("s", a=1 << 40), None], first=3))
    assert decoded.dead["offset"].to_pylist() == [3, 5, 6]
    assert decoded.dead["key"].to_pylist() == [b"k0", b"k2", b"k3"]
    assert decoded.dead["value"].to_pylist() == [b"ff", message("s", a=1 << 40).encode(), None]
    assert decoded.table["_offset"].to_pylist() == [4]


def test_nothing_at_all() -> None:
    _, decoder, _ = Export({"s": shape(a="INT")}).task()
    decoded = decoder.decode(TYPE, records([]))
    assert decoded.table.num_rows == decoded.dead.num_rows == 0
    typed = decoder.types(records([]), "a")
    assert len(typed.types) == typed.records.num_rows == 0
    assert decoder.finish(TYPE, decoder.decode(TYPE, records([b"bad"])).table).num_rows == 0


@pytest.mark.parametrize(
    "have, want, fits, bad",
    [
        ("BIGINT", "TINYINT", [-128, 0, 127, None], [128, -129]),
        ("BIGINT", "INT", [-(2**31), 2**31 - 1], [2**31]),
        ("TINYINT", "BIGINT", [-128, 127], []),
        ("BIGINT", "DOUBLE", [2**53, -(2**63), 3, 2**62], [2**53 + 1, 2**63 - 1]),
        ("INT", "FLOAT", [2**24], [2**24 + 1]),
        ("DOUBLE", "FLOAT", [0.5, 3.4e38], [1e39, -1e39]),
        ("DOUBLE", "BIGINT", [1.0, -(2.0**63)], [0.5, 2.0**63]),
        ("DOUBLE", "INT", [2.0**31 - 1], [2.0**31]),
        ("FLOAT", "DOUBLE", [0.5], []),
        (TEXT, "BIGINT", ["1", "-9223372036854775808", "+7", "007"], ["", " 1", "1.0", "1e3", "9223372036854775808"]),
        (TEXT, "TINYINT", ["-128"], ["128", "x"]),
        (TEXT, "BOOLEAN", ["true", "False"], ["1", "yes", ""]),
        (TEXT, "DOUBLE", ["1.5", "1e3", ".5", "-2", "9007199254740992"], ["1e999", "", "x", "9007199254740993"]),
        (TEXT, "FLOAT", ["0.5", "16777216"], ["16777217", "1e39"]),
        (TEXT, "DATE", ["2026-11-15", "0001-01-01"], ["2026-02-30", "15.11.2026", ""]),
        (TEXT, "TIMESTAMP", ["2026-11-15T08:00:00Z"], ["2026-11-15T25:00:00Z", "1700000000", ""]),
        (TEXT, "DECIMAL(5,2)", ["1.50", "-999.99", "1", "1.500", "1e2"], ["1000", "1.555", "x", "", "NaN"]),
        (TEXT, "DECIMAL(2,2)", ["0.25", ".5", "0", "-0.99"], ["1", "0.255"]),
        (TEXT, "DECIMAL(3,0)", ["999", "-1", "5.0", "0e99", "0" * 9 + "7", "100e-2"], ["1000", "0.5", "9" * 400]),
        (TEXT, "DOUBLE", ["0" * 5000 + "1", "-0"], ["9" * 5000]),
        ("BIGINT", "DECIMAL(5,2)", [999, -999, 0], [1000]),
        ("DOUBLE", "DECIMAL(5,2)", [0.1, 999.99], [0.001, 1e10]),
        ("BINARY", "BINARY", [{"bytes": "00ff"}], []),
        ("DATE", "BOOLEAN", [None], [{"date": "2026-11-15"}]),
        ("BOOLEAN", "BIGINT", [None], [True]),
        ("TIMESTAMP", "DATE", [None], [{"time": "2026-11-15T00:00:00+00:00"}]),
        ("ARRAY<INT>", "INT", [None], [[1], []]),
        ("STRUCT<a: INT>", "ARRAY<INT>", [None], [{"a": 1}]),
        ("INT", "STRUCT<a: INT>", [None], [1]),
        ("ARRAY<BIGINT>", "ARRAY<TINYINT>", [[1, None], [], None], [[1, 1000], [1000]]),
    ],
)
def test_values_go_over_if_they_fit_and_are_dead_letters_if_not(
    have: str, want: str, fits: list[Any], bad: list[Any]
) -> None:
    found, dead = one_field(have, want, *fits, *bad)
    assert len(found) == len(fits)
    assert len(dead) == len(bad)
    assert all(one.startswith("x") and " is not " in one for one in dead), dead
    # Each of them alone is judged in the same way, whatever ways are taken for many.
    for one in fits:
        assert one_field(have, want, one)[1] == []
    for one in bad:
        assert one_field(have, want, one)[0] == []


def test_what_values_become() -> None:
    assert one_field(TEXT, "DECIMAL(5,2)", "1.5", "1e2", "-0.10")[0] == [Decimal("1.50"), 100, Decimal("-0.10")]
    assert one_field("DOUBLE", "DECIMAL(5,2)", 0.1, 1.25)[0] == [Decimal("0.10"), Decimal("1.25")]
    assert one_field("DECIMAL(5,2)", "DECIMAL(7,3)", {"decimal": "1.25"})[0] == [Decimal("1.250")]
    assert one_field("DECIMAL(5,2)", "BIGINT", {"decimal": "7.00"}, {"decimal": "7.01"}) == (
        [7],
        ["x: 7.01 is not BIGINT"],
    )
    assert one_field("DECIMAL(5,2)", "DOUBLE", {"decimal": "7.10"})[0] == [7.1]
    small = [{"decimal": text} for text in ("0", "5", "1e-30", "-7654321")]
    assert one_field("DECIMAL(38,30)", "BIGINT", *small)[0] == [0, 5, -7654321]
    assert one_field("DECIMAL(38,30)", "DECIMAL(38,29)", *small)[0] == [0, 5, -7654321]
    assert one_field("DECIMAL(38,30)", "DOUBLE", *small)[0] == [0, 5, 1e-30, -7654321]
    assert one_field("DECIMAL(38,0)", "BIGINT", {"decimal": "9" * 38})[1] == [f"x: {'9' * 38} is not BIGINT"]
    assert one_field("DATE", "TIMESTAMP", {"date": "2026-11-15"})[0] == [datetime(2026, 11, 15, tzinfo=UTC)]
    assert one_field(TEXT, "TIMESTAMP", "2026-11-15 08:00:00+02:00")[0] == [datetime(2026, 11, 15, 6, tzinfo=UTC)]
    wall = datetime(2026, 11, 15, 8)  # noqa: DTZ001
    assert one_field(TEXT, "TIMESTAMP_NTZ", "2026-11-15 08:00", "2026-11-15T08:00Z")[0] == [wall]
    assert one_field("TIMESTAMP_NTZ", "TIMESTAMP", {"time": "2026-11-15T08:00"})[0] == [wall.replace(tzinfo=UTC)]
    assert one_field("TIMESTAMP", "TIMESTAMP_NTZ", {"time": "2026-11-15T09:00+01:00"})[0] == [wall]
    assert one_field("DATE", "TIMESTAMP_NTZ", {"date": "2026-11-15"})[0] == [wall.replace(hour=0)]
    assert one_field("TIMESTAMP_NTZ", "STRING", {"time": "2026-11-15T08:00"})[0] == ["2026-11-15T08:00:00.000000"]
    assert one_field(TEXT, "BINARY", "ü")[0] == ["ü".encode()]
    assert one_field("BINARY", "STRING", {"bytes": "c3bc"}, {"bytes": "ff"})[0] == ["ü"]
    assert one_field(TEXT, "DOUBLE", "NaN", "-Infinity")[0][1] == float("-inf")
    assert one_field("BIGINT", "DECIMAL(38,30)", 5)[0] == [5]


def test_a_declared_string_takes_anything_as_its_json_text() -> None:
    assert one_field("BIGINT", "STRING", 5, None)[0] == ["5", None]
    assert one_field("BOOLEAN", "STRING", True)[0] == ["true"]
    assert one_field("DOUBLE", "STRING", 1.0, 0.5, 1e300)[0] == ["1.0", "0.5", "1e+300"]
    assert one_field(TEXT, "STRING", 'a "b"')[0] == ['a "b"']
    assert one_field("DATE", "STRING", {"date": "2026-11-15"})[0] == ["2026-11-15"]
    assert one_field("TIMESTAMP", "STRING", {"time": "2026-11-15T08:00:00.5+00:00"})[0] == [
        "2026-11-15T08:00:00.500000Z"
    ]
    assert one_field("DECIMAL(5,2)", "STRING", {"decimal": "1.50"})[0] == ["1.50"]
    nested = shape(a="INT", b=Kind(ARRAY, item=Kind("BINARY")), c=Kind(MAP, item=Kind("DATE")))
    given = {"a": 1, "b": [{"bytes": "ff"}], "c": {"map": [["x", {"date": "2026-11-15"}]]}}
    texts, dead = one_field(nested, "STRING", given, None)
    assert dead == []
    assert [json.loads(one) if one else None for one in texts] == [
        {"a": 1, "b": ["/w=="], "c": {"x": "2026-11-15"}},
        None,
    ]


def test_a_field_that_holds_json_text_goes_on_holding_it() -> None:
    bucket = MemoryBucket()
    schemas = Schemas(bucket, PLACE, {}, 1)
    schemas.grow(TYPE, Schema((Field("x", Kind(JSON)),)))
    schemas.settle([TYPE])
    shapes = {"n": shape(x="DOUBLE"), "t": shape(x=TEXT), "o": shape(x=shape(a=TEXT)), "b": shape(x="BINARY")}
    given = [message("n", x=1.5), message("t", x='a "b"'), message("o", x={"a": "c"}), message("b", x={"bytes": "ff"})]
    found, dead, _ = Export(shapes, bucket=bucket).decode(*given, message("t", x=None))
    assert [row["x"] for row in found] == ["1.5", '"a \\"b\\""', '{"a":"c"}', '"/w=="', None]
    assert dead == []


def test_nested_values_are_cast_where_they_are() -> None:
    inner = shape(n="BIGINT", t=TEXT)
    have = shape(l=Kind(ARRAY, item=inner), m=Kind(MAP, item=Kind("BIGINT")), s=inner)
    declared = "l ARRAY<STRUCT<n: TINYINT>>, m MAP<STRING, INT>, s STRUCT<t: DATE, more: STRING>"
    found, dead, schema = Export({"s": have}, {"*": declared}).decode(
        message("s", l=[{"n": 1, "t": "x"}, None], m={"map": [["a", 1], ["b", None]]}, s={"n": 5, "t": "2026-11-15"}),
        message("s", l=[{"n": 1}, {"n": 500}], m={"map": []}),
        message("s", l=None, m={"map": [["a", 1 << 40]]}, s=None),
        message("s", s={"t": "no day"}),
        message("s", l=[], m=None, s={"t": None}),
    )
    assert found == [
        {
            "l": [{"n": 1, "t": "x"}, None],
            "m": [("a", 1), ("b", None)],
            "s": {"t": date(2026, 11, 15), "more": None, "n": 5},
        },
        {"l": [], "m": None, "s": {"t": None, "more": None, "n": None}},
    ]
    assert [one.partition(";")[0] for one in dead] == [
        "l[].n: 500 is not TINYINT",
        "m[]: 1099511627776 is not INT",
        's.t: "no day" is not DATE',
    ]
    assert str(schema.kind) == (
        "STRUCT<l: ARRAY<STRUCT<n: TINYINT, t: STRING>>, m: MAP<STRING, INT>,"
        " s: STRUCT<t: DATE, more: STRING, n: BIGINT>>"
    )


def test_what_is_recorded_stays_and_what_is_new_is_added() -> None:
    bucket = MemoryBucket()
    Export({"s": shape(a="INT")}, bucket=bucket).decode(message("s", a=1))
    found, dead, schema = Export({"t": shape(b=TEXT, a="BIGINT")}, bucket=bucket).decode(
        message("t", a=1 << 40, b="x"), message("t", a=2, b="y")
    )
    assert found == [{"a": 2, "b": "y"}]
    assert [one.partition(";")[0] for one in dead] == ["a: 1099511627776 is not INT"]
    assert [(one.name, str(one.kind)) for one in schema.fields] == [("a", "INT"), ("b", "STRING")]


def test_a_field_without_a_kind_takes_the_first_that_comes() -> None:
    export = Export({"s": shape(a=VOID, b=Kind(STRUCT)), "t": shape(a="INT", b=shape(c=TEXT))})
    assert export.decode(message("s"))[0] == [{}]
    found, dead, schema = export.decode(message("s"), message("t", a=1, b={"c": "x"}))
    assert found == [{"a": None, "b": None}, {"a": 1, "b": {"c": "x"}}]
    assert dead == []
    assert str(schema.kind) == "STRUCT<a: INT, b: STRUCT<c: STRING>>"


def test_names_that_cannot_be_columns_make_dead_letters_of_their_shape() -> None:
    shapes = {
        "good": shape(Id="INT", inner=shape(a="INT")),
        "own": shape(_offset="INT"),
        "kept": shape(__record_key="INT"),
        "case": shape(id="INT"),
        "deep": shape(inner=shape(A="INT")),
        "many": shape(**{f"f{n}": "INT" for n in range(2000)}),
    }
    names = [*shapes, "good"]
    found, dead, schema = Export(shapes).decode(
        *(message(name, Id=1) if name == "good" else message(name) for name in names)
    )
    assert [row["Id"] for row in found] == [1, 1]
    assert dead == [
        "_offset: this name is taken by a column of our own; rename the field",
        "__record_key: this name is taken by a column of our own; rename the field",
        "id: differs only in case from the field Id; rename one of them",
        "inner.A: differs only in case from the field a; rename one of them",
        "more than 2000 fields; declare the one that grows as MAP<STRING, …> or STRING",
    ]
    assert [one.name for one in schema.fields] == ["Id", "inner"]


def test_types_are_what_a_field_says() -> None:
    kinds = shape(
        t=TEXT, n="BIGINT", f="DOUBLE", b="BOOLEAN", o=shape(i="INT"), l=Kind(ARRAY, item=Kind("INT")), y="BINARY"
    )
    _, decoder, _ = Export({"s": kinds, "other": shape(t=TEXT)}).task()
    given = records(
        [
            message("s", t="x", n=5, f=1.0, b=True, o={"i": 7}, l=[1], y={"bytes": "6869"}),
            "bad",
            message("other", t="é"),
            message("s", y={"bytes": "ff"}),
        ]
    )
    found = {
        name: decoder.types(given, name).types.to_pylist() for name in ("t", "n", "f", "b", "o.i", "o", "l", "y", "no")
    }
    assert found == {
        "t": ["x", "é", None],
        "n": ["5", None, None],
        "f": ["1.0", None, None],
        "b": ["true", None, None],
        "o.i": ["7", None, None],
        "o": [None] * 3,
        "l": [None] * 3,
        "y": ["hi", None, None],
        "no": [None] * 3,
    }
    typed = decoder.types(given, "t")
    assert typed.records["offset"].to_pylist() == [0, 2, 3]
    assert reasons(typed) == ["no shape 'bad'"]


def test_what_was_read_for_the_types_is_not_read_again() -> None:
    _, decoder, parser = Export({"s": shape(t=TEXT), "u": shape(n="INT")}).task()
    some = decoder.types(records([message("s", t="x"), message("u", n=1), "bad"]), "t").records
    more = decoder.types(records([message("s", t="y")], first=3), "t").records
    assert parser.parsed == 4
    held = pa.concat_tables([some.take([0]), more, some.take([1])], promote_options="default")
    decoded = decoder.decode(TYPE, held)
    assert parser.parsed == 4
    assert [row["t"] for row in rows(decoder, decoded)] == ["x", "y", None]
    assert [row["n"] for row in rows(decoder, decoded)] == [None, None, 1]
    assert decoded.table.column_names == ["t", "n", "_offset", "_timestamp"]


def test_shapes_that_are_too_many_to_be_handed_on_are_read_again() -> None:
    shapes = {f"s{n}": shape(t=TEXT, **{f"f{n}": "INT"}) for n in range(12)}
    _, decoder, parser = Export(shapes).task()
    first = decoder.types(records([message("s0", t="x", f0=0)]), "t").records
    many = decoder.types(records([message(name, t="x") for name in shapes], first=1), "t").records
    decoded = decoder.decode(TYPE, pa.concat_tables([first, many], promote_options="default"))
    assert parser.parsed == 1 + 12 + 12
    assert [row["f0"] for row in rows(decoder, decoded)] == [0] + [None] * 12


_EDGES = [
    *(sign * (1 << bits) + by for bits in (7, 15, 24, 31, 53, 62) for sign in (1, -1) for by in (-1, 0, 1)),
    10**17,
]
_WHOLE = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.sampled_from(_EDGES))
_DOUBLES = st.one_of(st.none(), st.floats(width=64), st.floats(width=16), st.sampled_from([3.5e38, -0.0, 0.1]))
_WORDS = st.one_of(
    st.none(),
    st.text(max_size=8),
    st.from_regex(r"\A[+-]?[0-9]{0,7}\.?[0-9]{0,3}([eE][+-]?[0-9]{1,2})?\Z"),
    st.from_regex(
        r"\A20[0-9]{2}-[01][0-9]-[0-3][0-9]"
        r"([T ][0-2][0-9]:[0-5][0-9](:[0-6][0-9](\.[0-9]{1,9})?)?(Z|[+-][01][0-9]:00)?)?\Z"
    ),
)


@settings(max_examples=100, deadline=None)
@given(
    case=st.one_of(
        st.tuples(
            st.just("BIGINT"),
            st.sampled_from(
                ["TINYINT", "SMALLINT", "INT", "FLOAT", "DOUBLE", "DECIMAL(5,2)", "DECIMAL(38,20)", "BOOLEAN"]
            ),
            st.lists(_WHOLE, max_size=5),
        ),
        st.tuples(st.just("DOUBLE"), st.sampled_from(["FLOAT", "BOOLEAN", "DATE"]), st.lists(_DOUBLES, max_size=5)),
        st.tuples(
            st.just(TEXT),
            st.sampled_from(
                ["DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "DECIMAL(5,2)", "DECIMAL(2,2)", "DECIMAL(9,0)", "STRING"]
            ),
            st.lists(_WORDS, max_size=5),
        ),
    )
)
def test_values_fit_where_they_would_in_json(case: tuple[str, str, list[Any]]) -> None:
    have, want, values = case
    texts = [json.dumps({"x": one}) for one in values]
    known = Schemas(MemoryBucket(), PLACE, {"*": f"x {want}"}, 1)
    decoder = JsonDecoder(known)
    of_json = decoder.decode(TYPE, records(texts))
    _, ours, _ = Export({"s": shape(x=have)}, {"*": f"x {want}"}).task()
    found = ours.decode(TYPE, records([message("s", x=one) for one in values]))
    assert found.dead["offset"].to_pylist() == of_json.dead["offset"].to_pylist()
    assert ours.finish(TYPE, found.table).schema == decoder.finish(TYPE, of_json.table).schema
    assert repr(rows(ours, found)) == repr(messages.rows(decoder, of_json))


_NUMBERS = st.one_of(st.none(), st.integers(-(2**40), 2**40))
_TEXTS = st.one_of(st.none(), st.sampled_from(["1", "70000000000", "x", "2026-11-15"]))
_MESSAGES = st.one_of(
    st.just("bad"),
    st.builds(lambda a, b: message("s", a=a, b=b), _NUMBERS, _TEXTS),
    st.builds(lambda a, c: message("t", a=a, c={"d": c}), _TEXTS, _NUMBERS),
    st.builds(lambda a: message("u", A=a), st.integers(-5, 5)),
    st.builds(lambda c: message("v", c=[c]), _NUMBERS),
)
_SHAPES = {
    "s": shape(a="BIGINT", b=TEXT),
    "t": shape(a=TEXT, c=shape(d="BIGINT")),
    "u": shape(A="INT"),
    "v": shape(c=Kind(ARRAY, item=Kind("BIGINT"))),
}


@settings(max_examples=60, deadline=None)
@given(
    messages=st.lists(_MESSAGES, max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=4),
    declared=st.sampled_from([{}, {"*": "a INT, b BIGINT"}, {"*": "b DATE, c STRING"}]),
    typed=st.booleans(),
)
def test_rows_do_not_depend_on_how_records_were_cut(
    messages: Sequence[str], cuts: Sequence[int], declared: Mapping[str, str], typed: bool
) -> None:
    def decoded(pieces: Sequence[Sequence[str]]) -> tuple[list[Any], list[Any], object]:
        schemas, decoder, _ = Export(_SHAPES, declared).task()
        tables, dead, first = [], [], 0
        for piece in pieces:
            given = records(piece, first)
            first += len(piece)
            if typed:
                found = decoder.types(given, "a")
                dead += found.dead.select(["offset", "reason"]).to_pylist()
                given = found.records
            done = decoder.decode(TYPE, given)
            tables.append(done.table)
            dead += done.dead.select(["offset", "reason"]).to_pylist()
        finished = pa.concat_tables([decoder.finish(TYPE, one) for one in tables])
        return (
            finished.drop_columns(["_timestamp"]).to_pylist(),
            sorted(dead, key=lambda one: one["offset"]),
            schemas.of(TYPE).plain(),
        )

    bounds = sorted({0, len(messages), *(cut for cut in cuts if cut < len(messages))})
    pieces = [messages[start:end] for start, end in pairwise(bounds)] or [[]]
    assert decoded(pieces) == decoded([messages])


def test_two_schemas_that_differ_in_no_column_are_one_shape() -> None:
    kind = Kind(STRUCT, fields=(Field("type", Kind(TEXT)), Field("n", Kind("BIGINT"))))
    decoder = ColumnDecoder(ByShape({"old": kind, "new": kind}), Schemas(MemoryBucket(), PLACE, {}, 1))
    given = records([f'{("old", "new")[at % 2]} {{"type": "a", "n": {at}}}' for at in range(5)])
    typed = decoder.types(given, "type")
    assert typed.types.to_pylist() == ["a"] * 5
    assert decoder.decode(TYPE, typed.records).table["n"].to_pylist() == [*range(5)]


@pytest.mark.parametrize(
    "have, given, want, held",
    [
        ("DATE", pa.array([0, 2**31 - 1, -(2**31)], pa.int32()).cast(pa.date32()), "TIMESTAMP", [0]),
        ("DATE", pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32()), "BIGINT", []),
        ("TIMESTAMP", pa.array([0, 2**63 - 1]).cast(pa.timestamp("us", "UTC")), "DATE", []),
        ("DECIMAL(38,38)", pa.array([Decimal("0.1"), Decimal(0)], pa.decimal128(38, 38)), "BIGINT", [1]),
    ],
)
def test_a_value_beyond_all_bounds_is_a_misfit_and_no_failure(
    have: str, given: pa.Array, want: str, held: list[int]
) -> None:
    shapes = [ddl.parse(f"x {one}").kind for one in (have, want)]
    casting = Casting(Reader())
    casting.columns(pa.StructArray.from_arrays([given], ["x"]), *shapes)
    assert sorted(casting.misfits) == [at for at in range(len(given)) if at not in held]
    assert all(f" is not {want}; " in why for why in casting.misfits.values())

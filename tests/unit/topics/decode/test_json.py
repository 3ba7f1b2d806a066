from __future__ import annotations

import json
import tracemalloc
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from catchment.topics.records import DEAD
from tests.unit.topics.decode.messages import TYPE, Lake, ddl, reasons, records, rows


def test_fields_become_columns_with_kafkas_own_last() -> None:
    _, decoder = Lake().task()
    decoded = decoder.decode(TYPE, records([{"id": 1, "name": "x"}, {"id": 2, "ok": True}], first=7), keep=["key"])
    assert decoded.table.schema == pa.schema(
        [
            ("id", pa.int64()),
            ("name", pa.string()),
            ("ok", pa.bool_()),
            ("_offset", pa.int64()),
            ("_timestamp", pa.timestamp("ms", "UTC")),
            ("__record_key", pa.binary()),
        ]
    )
    assert decoded.table["_offset"].to_pylist() == [7, 8]
    assert decoded.table["_timestamp"].to_pylist()[0] == datetime(1970, 1, 1, 0, 0, 0, 7000, tzinfo=UTC)
    assert decoded.table["__record_key"].to_pylist() == [b"k0", b"k1"]
    assert decoded.dead.schema == DEAD
    assert decoded.dead.num_rows == 0


def test_what_is_not_a_json_object_is_a_dead_letter_as_it_was() -> None:
    bad = [
        None,
        b"",
        b"\xff{}",
        b"{",
        b"[1]",
        b"5",
        b"null",
        b' "x"',
        b'{"a":1} {"a":2}',
        b'{"a":1,}',
        b'{"a":"\\ud800"}',
    ]
    _, decoder = Lake().task()
    decoded = decoder.decode(TYPE, records([{"a": 1}, *bad, b' \n\t{"a":\r\n2}']))
    assert decoded.table["a"].to_pylist() == [1, 2]
    assert decoded.dead["value"].to_pylist() == bad
    assert decoded.dead["offset"].to_pylist() == list(range(1, 12))
    assert decoded.dead["key"].to_pylist() == [b"k%d" % at for at in range(1, 12)]
    no, text, wrong, shape = "the message has no value", "not valid UTF-8", "not valid JSON", "not a JSON object"
    assert reasons(decoded) == [no, no, text, wrong, shape, shape, shape, shape, wrong, wrong, wrong]


def test_kinds_are_inferred() -> None:
    message = {"i": 1, "f": 1.5, "s": "2026-01-01T00:00:00Z", "b": True, "l": [1, None], "o": {"x": {"y": "z"}}}
    found, _, schema = Lake().decode(message)
    assert found == [message]
    assert ddl(schema) == {
        "i": "BIGINT",
        "f": "DOUBLE",
        "s": "STRING",
        "b": "BOOLEAN",
        "l": "ARRAY<BIGINT>",
        "o": "STRUCT<x: STRUCT<y: STRING>>",
    }


def test_integers_and_fractions_of_a_new_field_are_doubles() -> None:
    found, dead, schema = Lake().decode({"a": 1}, {"a": 1.5}, {"a": 2**53 + 1}, {"a": 2**63}, {"a": 2**64 - 1})
    assert ddl(schema) == {"a": "DOUBLE"}
    assert found == [{"a": 1.0}, {"a": 1.5}, {"a": 2.0**63}]
    assert [one.split(";")[0] for one in dead] == [
        "a: 9007199254740993 is not DOUBLE",
        "a: 18446744073709551615 is not DOUBLE",
    ]


def test_null_and_empty_values_have_no_column_until_there_is_a_value() -> None:
    lake = Lake()
    schemas, decoder = lake.task()
    empty = decoder.decode(TYPE, records([{"n": None, "o": {}, "l": [], "k": [None, None], "d": {"x": {}}}, {}]))
    assert ddl(schemas.of(TYPE)) == {}
    assert rows(decoder, empty) == [{}, {}]
    full = {"n": 1, "o": {"a": 1}, "l": ["x"], "k": [{"y": 1}], "d": {"x": {"z": 1}}}
    decoder.decode(TYPE, records([full]))
    # What was there before is as if the schema had been known: an empty object is not null.
    was = {"n": None, "o": {"a": None}, "l": [], "k": [None, None], "d": {"x": {"z": None}}}
    assert rows(decoder, empty) == [was, dict.fromkeys(was)]
    schemas.settle([TYPE])
    assert lake.decode({"n": None, "o": {}, "l": [], "k": [None, None], "d": {"x": {}}}, {})[0] == rows(decoder, empty)


def test_a_field_that_only_ever_is_null_is_known_and_is_written_once() -> None:
    lake = Lake()
    lake.decode({"a": 1, "n": None, "l": [None]})
    key = "topics/events/orders/_schemas/order.json"
    before = lake.bucket.get(key)
    assert lake.decode({"a": 2, "n": None, "l": [None, None]})[0] == [{"a": 2}]
    assert lake.bucket.get(key) == before


def test_lists_that_begin_with_null() -> None:
    lake = Lake()
    lake.decode({"l": [None], "o": [{"m": [None]}]})
    found, dead, schema = lake.decode({"l": [None, None]}, {"l": [True], "o": [{"m": [None, None]}, {"m": [1]}]})
    assert (ddl(schema), dead) == ({"l": "ARRAY<BOOLEAN>", "o": "ARRAY<STRUCT<m: ARRAY<BIGINT>>>"}, [])
    assert found == [{"l": [None, None], "o": None}, {"l": [True], "o": [{"m": [None, None]}, {"m": [1]}]}]


def test_an_array_of_which_nothing_is_known_stays_an_array() -> None:
    lake = Lake()
    lake.decode({"l": [], "k": [[]]})
    found, dead, schema = lake.decode({"l": None, "new": 1}, {"l": "x"}, {"k": [1]}, {"l": {}}, {"k": [None, [2]]})
    assert found == [{"new": 1, "k": None}, {"new": None, "k": [None, [2]]}]
    said = ['l: "x" is not an array', "k[]: 1 is not an array", "l: {…} is not an array"]
    assert [one.split(";")[0] for one in dead] == said
    assert ddl(schema) == {"k": "ARRAY<ARRAY<BIGINT>>", "new": "BIGINT"}


def test_mixed_kinds_of_a_new_field_are_json_text_from_then_on() -> None:
    lake = Lake()
    mixed = [1, "x", True, [1, "y"], {"z": 1.5}, None, "1"]
    found, dead, schema = lake.decode(*({"m": one} for one in mixed))
    assert dead == []
    assert ddl(schema) == {"m": "STRING (as JSON text)"}
    texts = ["1", '"x"', "true", '[1,"y"]', '{"z":1.5}', None, '"1"']
    assert [one["m"] for one in found] == texts
    assert [one["m"] for one in lake.decode(*({"m": one} for one in reversed(mixed)))[0]] == texts[::-1]
    assert lake.decode({"m": 5, "deep": {"m": [1, "x"]}}, {"deep": {"m": [{"y": 1}]}})[0] == [
        {"m": "5", "deep": {"m": ["1", '"x"']}},
        {"m": None, "deep": {"m": ['{"y":1}']}},
    ]


def test_a_value_that_does_not_fit_is_a_dead_letter_that_names_field_value_and_type() -> None:
    lake = Lake()
    lake.decode({"amount": 1, "name": "x", "user": {"id": 1, "tags": ["a"]}, "rate": 1.5, "ok": True})
    bad = [
        {"amount": 1.5},
        {"amount": "5"},
        {"amount": 2**63},
        {"name": 5},
        {"user": {"id": True}},
        {"user": {"tags": [1]}},
        {"user": [1]},
        {"rate": "x" * 100},
        {"ok": 1},
        {"amount": {"a": 1}},
    ]
    found, dead, _ = lake.decode({"amount": 2}, *bad, {"amount": 3})
    assert [one["amount"] for one in found] == [2, 3]
    advice = "; declare another type for it (decode.schemas) in a new generation"
    assert [one.removesuffix(advice) for one in dead] == [
        "amount: 1.5 is not BIGINT",
        'amount: "5" is not BIGINT',
        "amount: 9223372036854775808 is not BIGINT",
        "name: 5 is not STRING",
        "user.id: true is not BIGINT",
        "user.tags[]: 1 is not STRING",
        "user: […] is not an object",
        f'rate: "{"x" * 38}… is not DOUBLE',
        "ok: 1 is not BOOLEAN",
        "amount: {…} is not BIGINT",
    ]


def test_a_bad_message_among_many_with_new_fields() -> None:
    lake = Lake()
    lake.decode({"a": 1})
    good: list[object] = [{"a": at, f"n{at % 7}": {"x": at}} for at in range(1000)]
    good[500:500] = [{"a": "x", "lost": 1}]
    found, dead, schema = lake.decode(*good)
    assert (len(found), len(dead)) == (1000, 1)
    assert set(ddl(schema)) == {"a", *(f"n{at}" for at in range(7))}


def test_the_first_of_two_fields_with_one_name_counts() -> None:
    lake = Lake()
    assert lake.decode('{"a":1,"b":{"x":1,"x":2},"a":2}', {"a": 3})[0] == [{"a": 1, "b": {"x": 1}}, {"a": 3, "b": None}]
    assert lake.decode('{"a":1,"a":"x"}')[0] == [{"a": 1, "b": None}]
    assert lake.decode('{"a":"x","a":1}')[1][0].startswith('a: "x" is not BIGINT')


def test_names_that_differ_only_in_case_are_dead_letters() -> None:
    lake = Lake()
    lake.decode({"Name": "x", "o": {"a": 1}})
    found, dead, _ = lake.decode({"name": "y"}, {"Name": "z"}, {"o": {"A": 1}}, {"new": 1, "NEW": 2})
    assert found == [{"Name": "z", "o": None}]
    assert dead == [
        "name: differs only in case from the field Name; rename one of them",
        "o.A: differs only in case from the field a; rename one of them",
        "NEW: differs only in case from the field new; rename one of them",
    ]


def test_a_new_object_that_no_struct_can_hold_is_json_text() -> None:
    lake = Lake()
    found, dead, _ = lake.decode({"o": {"a": 1, "A": 2}}, {"o": {"b": 1}}, {"p": {"a": 1}}, {"p": {"A": 1}})
    assert dead == []
    assert [(one["o"], one["p"]) for one in found] == [
        ('{"a":1,"A":2}', None),
        ('{"b":1}', None),
        (None, '{"a":1}'),
        (None, '{"A":1}'),
    ]
    assert lake.decode({"o": {"a": 1, "A": 2}})[0] == [{"o": '{"a":1,"A":2}', "p": None}]


@pytest.mark.parametrize("name", ["_offset", "_OFFSET", "_timestamp", "_Timestamp", "__record_key"])
def test_our_own_names_are_taken(name: str) -> None:
    found, dead, schema = Lake().decode({"a": 1}, {name: 1})
    assert found == [{"a": 1}]
    assert dead == [f"{name}: this name is taken by a column of our own; rename the field"]
    assert ddl(schema) == {"a": "BIGINT"}


NAMES = ["", " ", "a.b", 'q"r', "s't", "é", "日本", "x/y~z", "*", "0", "$", "a\nb", "null", "[0]", "\x00", "\\"]


def test_any_other_name_is_kept() -> None:
    lake = Lake()
    message = {name: {name: at} for at, name in enumerate(NAMES)}
    assert lake.decode(message)[0] == [message]
    assert lake.decode(message, {"": {"": 1}})[0][0] == message
    mixed = {name: "x" if at % 2 else at for at, name in enumerate(NAMES)}
    other = {name: at if at % 2 else "x" for at, name in enumerate(NAMES)}
    found, dead, _ = Lake().decode(mixed, other)
    assert dead == []
    assert {name: json.loads(str(text)) for name, text in found[0].items()} == mixed


def test_more_fields_than_a_type_may_have() -> None:
    lake = Lake()
    found, dead, schema = lake.decode(*({f"k{at}": 1} for at in range(2010)))
    assert (len(found), len(dead), schema.count()) == (2000, 10, 2000)
    assert set(dead) == {"more than 2000 fields; declare the one that grows as MAP<STRING, …> or STRING"}
    assert len(lake.decode({"k1": 5}, {"other": 1})[1]) == 1


def test_brackets_in_a_long_text_take_no_more_memory_than_the_text_does() -> None:
    _, decoder = Lake().task()
    message = records([{"s": '[{\\"' * 500_000}])
    decoder.decode(TYPE, message)  # whatever is loaded only once is loaded
    tracemalloc.start()
    decoder.decode(TYPE, message)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * len(message["value"][0].as_py())


def test_deep_large_and_many_lined_messages() -> None:
    deep = '{"a":' * 1000 + "1" + "}" * 1000
    deeper = '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"
    brackets = {"s": "[{" * 5000}
    large = {"s": "x" * 5_000_000, "l": list(range(1000))}
    found, dead, _ = Lake().decode(deep, brackets, deeper, large, json.dumps({"s": "a\nb"}, indent=2))
    assert [len(str(one["s"])) for one in found] == [10_000, 5_000_000, 3]
    assert dead == ["nested more than 100 levels deep"] * 2


def test_infinity_is_a_number_and_too_great_a_number_is_none() -> None:
    found, dead, _ = Lake().decode('{"a":Infinity}', '{"a":-Infinity}', '{"a":1e999}', '{"a":1e308}', '{"a":Inf}')
    assert [one["a"] for one in found] == [float("inf"), float("-inf"), 1e308]
    assert [one.split(";")[0] for one in dead] == ["a: 1e999 is not DOUBLE", "not valid JSON"]


DECLARED = {
    "*": "t TIMESTAMP, d DATE, p DECIMAL(20,2), b BINARY, f FLOAT, i INT, y TINYINT, h SMALLINT, s STRING,"
    " n STRUCT<x: INT>"
}


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ({"t": "2026-01-02T03:04:05.123456789+02:00"}, datetime(2026, 1, 2, 1, 4, 5, 123456, tzinfo=UTC)),
        ({"t": "2026-01-02 03:04"}, datetime(2026, 1, 2, 3, 4, tzinfo=UTC)),
        ({"t": "2026-01-02"}, datetime(2026, 1, 2, tzinfo=UTC)),
        ({"t": 1700000000}, None),
        ({"t": "2026-02-30T00:00:00Z"}, None),
        ({"t": "yesterday"}, None),
        ({"t": "2026-01-02T25:00:00Z"}, None),
        ({"d": "2026-01-02"}, date(2026, 1, 2)),
        ({"d": "2026-1-2"}, None),
        ({"d": "2026-01-02T00:00:00Z"}, None),
        ({"p": 1}, Decimal("1.00")),
        ({"p": 1.5}, Decimal("1.50")),
        ({"p": "12.340"}, Decimal("12.34")),
        ('{"p":123456789012345678.91}', Decimal("123456789012345678.91")),
        ('{"p":1e3}', Decimal("1000.00")),
        ({"p": 1.234}, None),
        ({"p": "x"}, None),
        ({"p": True}, None),
        ({"p": 10**18}, None),
        ({"b": "aGk="}, b"hi"),
        ({"b": ""}, b""),
        ({"b": "aGk"}, None),
        ({"f": 1.5}, 1.5),
        ({"f": 16777216}, 16777216.0),
        ({"f": 16777217}, None),
        ({"f": 1e39}, None),
        ({"i": 2**31 - 1}, 2**31 - 1),
        ({"i": 2**31}, None),
        ({"i": "1"}, None),
        ({"y": -128}, -128),
        ({"y": 128}, None),
        ({"h": 32767}, 32767),
        ({"h": 32768}, None),
        ({"s": "text"}, "text"),
        ({"s": 5}, "5"),
        ({"s": True}, "true"),
        ({"s": {"a": [1, "x"]}}, '{"a":[1,"x"]}'),
        ('{"s":123456789012345678901234567890}', "123456789012345678901234567890"),
    ],
)
def test_declared_types(message: str | dict[str, object], wanted: object) -> None:
    """The same alone, among others that fit, and next to one that does not."""
    name = next(iter(json.loads(message) if isinstance(message, str) else message))
    other: object = {"n": {"x": 1}}
    surroundings: list[tuple[list[object], list[object]]] = [
        ([], []),
        ([other], [other] * 40),
        ([{"n": 1}], [{"s": 1}]),
    ]
    for before, after in surroundings:
        found, dead, _ = Lake(DECLARED).decode(*before, message, *after)
        if wanted is None:
            assert any(one.startswith(f"{name}: ") and " is not " in one for one in dead), dead
        else:
            assert wanted in [one[name] for one in found]
            assert not any(one.startswith(f"{name}:") for one in dead)


def test_declared_maps_and_arrays() -> None:
    lake = Lake({"*": "m MAP<STRING, STRUCT<at: DATE, n: DECIMAL(5,1)>>, l ARRAY<STRING>, j MAP<STRING, STRING>"})
    found, dead, _ = lake.decode(
        {"m": {"a": {"at": "2026-01-01", "n": 1.5}, "b": None}, "l": ["x", 1, None, {"y": 1}], "j": {"p": 1, "q": "x"}},
        {"m": {}, "l": [], "j": None},
        '{"m":{"a":{"n":1},"a":{"n":2}},"l":null}',
        {"m": {"a": {"n": 1.55}}},
        {"m": [1]},
        {"l": {"a": 1}},
    )
    assert found == [
        {
            "m": [("a", {"at": date(2026, 1, 1), "n": Decimal("1.5")}), ("b", None)],
            "l": ["x", "1", None, '{"y":1}'],
            "j": [("p", "1"), ("q", "x")],
        },
        {"m": [], "l": [], "j": None},
        {"m": [("a", {"at": None, "n": Decimal("1.0")})], "l": None, "j": None},
    ]
    assert [one.split(";")[0] for one in dead] == [
        "m[].n: 1.55 is not DECIMAL(5,1)",
        "m: […] is not an object",
        "l: {…} is not an array",
    ]


def test_a_declared_struct_grows_inside_a_map() -> None:
    lake = Lake({"*": "m MAP<STRING, STRUCT<a: INT>>"})
    lake.decode({"m": {"x": {"a": 1}}})
    found, _, schema = lake.decode({"m": {"x": {"a": 1, "b": "y"}}}, {"m": {"x": {"a": "bad"}}})
    assert found == [{"m": [("x", {"a": 1, "b": "y"})]}]
    assert ddl(schema) == {"m": "MAP<STRING, STRUCT<a: INT, b: STRING>>"}


def test_what_is_not_json_is_dead_also_where_fields_are_lifted_out() -> None:
    bad = ['{"s":1,"a":1,}', '{"s":[1,],"a":1}', '{"s":nan,"a":1}', '{"s":-inf}']
    assert Lake({"*": "s STRING"}).decode(*bad)[1] == ["not valid JSON"] * 4
    assert Lake({"*": "m MAP<STRING, DOUBLE>"}).decode(*bad)[1] == ["not valid JSON"] * 4
    assert Lake({"*": "s STRING"}).decode({"s": [",}", ": nan"]})[0] == [{"s": '[",}",": nan"]'}]


def test_long_fractions_are_not_rounded_where_fields_are_lifted_out() -> None:
    lake = Lake({"*": "p DECIMAL(30,10), m MAP<STRING, DECIMAL(30,10)>"})
    number = "12345678901234567.8912345678"
    found, dead, _ = lake.decode(f'{{"p":{number},"m":{{"x":{number}}}}}', {"m": {}})
    assert dead == []
    assert found[0] == {"p": Decimal(number), "m": [("x", Decimal(number))]}


def test_types_are_the_text_of_a_field() -> None:
    _, decoder = Lake().task()
    messages: list[object] = [
        {"type": "a"},
        b"{",
        {"type": 5},
        {"type": True},
        {"type": None},
        {},
        b"\xff",
        {"type": {"x": 1}},
        {"type": [1]},
        {"type": "{x}"},
        {"type": "é\n"},
        [1],
        {"type": 1.5},
        None,
    ]
    typed = decoder.types(records(messages), "type")
    assert typed.types.to_pylist() == ["a", "5", "true", None, None, None, None, "{x}", "é\n", "1.5"]
    assert typed.records["offset"].to_pylist() == [0, 2, 3, 4, 5, 7, 8, 9, 10, 12]
    assert typed.records.schema.types == records([]).schema.types
    assert typed.dead["offset"].to_pylist() == [1, 6, 11, 13]
    assert decoder.decode("x", typed.records.slice(1, 2)).table.num_rows == 2


@pytest.mark.parametrize(
    ("path", "wanted"), [("a.b", "x"), ("a", None), ("a.c", None), ("q\"r.s't", "y"), ("n.0", None)]
)
def test_types_of_nested_fields(path: str, wanted: str | None) -> None:
    _, decoder = Lake().task()
    typed = decoder.types(records([{"a": {"b": "x"}, 'q"r': {"s't": "y"}, "n": ["z"]}]), path)
    assert typed.types.to_pylist() == [wanted]


def test_no_records_at_all() -> None:
    schemas, decoder = Lake({"*": "a INT"}).task()
    assert decoder.types(records([]), "a").types.to_pylist() == []
    decoded = decoder.decode(TYPE, records([]))
    assert decoder.finish(TYPE, decoded.table).schema.names == ["a", "_offset", "_timestamp"]
    assert decoder.decode(TYPE, records([b"{"])).dead.num_rows == 1
    assert schemas.of(TYPE).count() == 1


def test_finishing_takes_slices_and_pieces() -> None:
    _, decoder = Lake().task()
    early = decoder.decode(TYPE, records([{"l": [{"a": at}], "o": {"p": at}} for at in range(6)])).table
    decoder.decode(TYPE, records([{"new": 1, "l": [{"b": [1]}], "o": {"q": {"r": 1}}}]))
    wanted = [{"l": [{"a": at, "b": None}], "o": {"p": at, "q": None}, "new": None} for at in range(6)]
    for table in (early, pa.concat_tables([early.slice(0, 2), early.slice(2)])):
        finished = decoder.finish(TYPE, table.slice(1, 4)).drop_columns(["_offset", "_timestamp"])
        assert finished.to_pylist() == wanted[1:5]


@pytest.mark.parametrize(("odd", "dead", "kind"), [(1, 1, "BIGINT"), (30, 0, "json")])
def test_one_odd_message_among_the_first_does_not_decide_what_a_field_is(odd: int, dead: int, kind: str) -> None:
    """Fewer than one in a hundred: dead letters. More: the field holds JSON text, and so both."""
    found, why, schema = Lake().decode(*({"at": "yesterday" if n < odd else n} for n in range(500)))
    assert len(found) == 500 - dead
    assert schema.plain() == [["at", kind]]
    assert why == ["at: STRING, and BIGINT in nearly all messages; declare it if both are meant"] * dead

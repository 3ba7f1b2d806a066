"""Decoders of one's own: `module:callable` over Arrow tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from catchment.bucket.memory import MemoryBucket
from catchment.config.topics import Export
from catchment.errors import ExportStopped, UsageError
from catchment.topics.decode.columns import ColumnDecoder
from catchment.topics.decode.decoder import Decoded, check_decoder, decoder_of
from catchment.topics.decode.modules import Plugin, find, look_in
from catchment.topics.decode.plugin import PluginParser
from catchment.topics.decode.schemas import Schemas
from catchment.topics.definition import definition, fingerprint
from catchment.topics.records import HEADERS, RECORDS_WITH_HEADERS
from catchment.topics.work import Work
from catchment.topics.write.range import write_range
from tests.unit.topics.decode.messages import PLACE, TYPE, reasons, records, rows
from tests.unit.topics.write.ranges import Message, all_rows, batches, memory, refused, rows_of, work, write, written

EXAMPLES = Path(__file__).parents[4] / "examples" / "decoders"


@pytest.fixture(autouse=True)
def _modules_come_and_go() -> Iterator[None]:
    before, path = set(sys.modules), list(sys.path)
    yield
    find.cache_clear()
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if not name.startswith(("catchment", "pyarrow", "google", "fastavro", "duckdb", "msgspec")):
            del sys.modules[name]


def module(folder: Path, name: str, source: str) -> None:
    """A module that can be found."""
    place = folder.joinpath(*name.split(".")).with_suffix(".py")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(source)
    look_in(folder)


def export(name: str, **more: Any) -> Export:
    options = more.pop("options", {})
    return Export.model_validate({"group": "own", "decode": {"name": name, "options": options}, **more})


def decoder(call: Any, schemas: Mapping[str, str] | None = None) -> tuple[Schemas, ColumnDecoder]:
    known = Schemas(MemoryBucket(), PLACE, schemas or {}, 1)
    return known, ColumnDecoder(PluginParser(Plugin("mine:decode", call, "", "mine", __file__), {"a": "b"}), known)


def decoded(call: Any, count: int = 3) -> tuple[Schemas, ColumnDecoder, Decoded]:
    known, one = decoder(call)
    return known, one, one.decode(TYPE, records([b"%d" % n for n in range(count)]))


def columns(**given: Any) -> dict[str, tuple[str, list[Any]]]:
    """What kinds columns of these Arrow arrays get, and which values."""
    known, one, found = decoded(lambda records, options: pa.table(given), len(next(iter(given.values()))))
    kinds = {field.name: str(field.kind) for field in known.of(TYPE).fields}
    values = rows(one, found)
    return {name: (kinds[name], [row.get(name) for row in values]) for name in given}


def test_the_example_of_the_guide_over_a_whole_range(tmp_path: Path) -> None:
    look_in(EXAMPLES)
    lines = [b"%010d202611%02d%s%011d%s" % (n, n % 28 + 1, b"+-"[n % 2 : n % 2 + 1], n, b"EUR") for n in range(100)]
    lines[5] = lines[5][:-3] + b"   "
    bad = [b"x", None, b"\xff" * 33, b"000000471220260231+00000012345EUR"]
    messages = [Message(n, line) for n, line in enumerate([*lines, *bad])]
    payments = export(
        "payments:payments",
        options={"default_currency": "CHF"},
        split={"currency": {"field": "currency"}, "day": {"field": "day", "by": "day"}},
    )
    buckets = []
    for size in (1000, 13):
        bucket = memory()
        found = written(write(bucket, tmp_path / str(size), payments, messages, rows=size))
        assert (found.counts.written, found.counts.dead) == (100, 4)
        by_folder = all_rows(bucket, found)
        assert by_folder["topics/own/clicks/currency=CHF/day=2026-11-06"] == [
            {
                "account": 5,
                "day": date(2026, 11, 6),
                "amount": Decimal("-0.05"),
                "currency": "CHF",
                "_offset": 5,
                "_timestamp": datetime(2024, 10, 4, tzinfo=UTC),
            }
        ]
        dead = rows_of(bucket, found.dead[0].key)
        assert [row["value"] for row in dead] == bad
        assert [row["reason"] for row in dead] == ["not a payment of 33 characters"] * 3 + ["its day is in no calendar"]
        buckets.append({entry.key: bucket.get(entry.key) for entry in bucket.list() if entry.key.endswith(".parquet")})
    assert buckets[0] == buckets[1]


def test_it_gets_the_records_as_documented_and_its_options() -> None:
    seen: list[Any] = []

    def decode(given: pa.Table, options: Mapping[str, str]) -> pa.Table:
        seen.append((given, options))
        return given.select(["value"])

    _, one = decoder(decode)
    plain = records([b"x", None])
    headers = pa.array([[{"key": "h", "value": b"v"}], []], HEADERS)
    one.decode(TYPE, plain)
    one.decode(TYPE, plain.append_column("headers", headers).append_column("timestamp_type", pa.array([0, 0])))
    one.decode(TYPE, one.types(plain, "value").records)
    assert [given.schema for given, _ in seen] == [RECORDS_WITH_HEADERS] * 3
    assert seen[1][0]["headers"].to_pylist() == headers.to_pylist()
    assert [options for _, options in seen] == [{"a": "b"}] * 3


def test_a_record_batch_will_do_and_errors_are_dead_letters() -> None:
    def decode(given: pa.Table, options: Mapping[str, str]) -> pa.RecordBatch:
        return pa.record_batch({"n": [0, 1, None], "_error": [None, "not good", None]})

    _, one, found = decoded(decode)
    assert rows(one, found) == [{"n": 0}, {"n": None}]
    assert found.dead.select(["offset", "value", "reason"]).to_pylist() == [
        {"offset": 1, "value": b"1", "reason": "not good"}
    ]
    assert reasons(decoded(lambda given, options: pa.table({"_error": ["a", "b", "c"]}))[2]) == ["a", "b", "c"]
    assert decoded(lambda given, options: pa.table({"_error": pa.nulls(3)}))[2].table.num_rows == 3


def test_arrow_types_and_what_they_become() -> None:
    moment = datetime(2026, 11, 15, 8, tzinfo=UTC)
    assert columns(
        i8=pa.array([1], pa.int8()),
        u8=pa.array([255], pa.uint8()),
        u16=pa.array([65535], pa.uint16()),
        u32=pa.array([2**32 - 1], pa.uint32()),
        u64=pa.array([2**64 - 1], pa.uint64()),
        f16=pa.array(np.array([0.5], np.float16)),
        f32=pa.array([0.5], pa.float32()),
        text=pa.array(["x"], pa.large_string()),
        view=pa.array(["x"], pa.string_view()),
        raw=pa.array([b"x"], pa.large_binary()),
        fixed=pa.array([b"xy"], pa.binary(2)),
        day=pa.array([date(2026, 11, 15)], pa.date64()),
        s=pa.array([1_763_193_600], pa.timestamp("s")),
        ns=pa.array([1_700_000_000_123_456_789], pa.timestamp("ns", "Europe/Paris")),
        zoned=pa.array([moment], pa.timestamp("ms", "America/New_York")),
        clock=pa.array([time(8, 15, 0, 250_000)], pa.time64("us")),
        dec=pa.array([Decimal("1.50")], pa.decimal128(5, 2)),
        coded=pa.array(["x"]).dictionary_encode(),
        nothing=pa.nulls(1),
    ) == {
        "i8": ("TINYINT", [1]),
        "u8": ("SMALLINT", [255]),
        "u16": ("INT", [65535]),
        "u32": ("BIGINT", [2**32 - 1]),
        "u64": ("DECIMAL(20,0)", [2**64 - 1]),
        "f16": ("FLOAT", [0.5]),
        "f32": ("FLOAT", [0.5]),
        "text": ("STRING", ["x"]),
        "view": ("STRING", ["x"]),
        "raw": ("BINARY", [b"x"]),
        "fixed": ("BINARY", [b"xy"]),
        "day": ("DATE", [date(2026, 11, 15)]),
        "s": ("TIMESTAMP", [datetime(2025, 11, 15, 8, tzinfo=UTC)]),
        "ns": ("TIMESTAMP", [datetime(2023, 11, 14, 22, 13, 20, 123_456, tzinfo=UTC)]),
        "zoned": ("TIMESTAMP", [moment]),
        "clock": ("STRING", ["08:15:00.250000"]),
        "dec": ("DECIMAL(5,2)", [Decimal("1.50")]),
        "coded": ("STRING", ["x"]),
        "nothing": ("void", [None]),
    }


def test_nested_arrow_types() -> None:
    struct = pa.array(
        [{"a": 1, "b": {"c": None}}, None, {"a": None, "b": None}],
        pa.struct([("a", pa.uint8()), ("b", pa.struct([("c", pa.null()), ("d", pa.large_string())]))]),
    )
    lists = pa.array([[1, None], None, []], pa.large_list(pa.uint16()))
    pairs = pa.array([[1, 2], [3, None], None], pa.list_(pa.int8(), 2))
    maps = pa.array([[("x", 1)], None, []], pa.map_(pa.large_string(), pa.uint32()))
    deep = pa.array([[{"k": ["x"]}], [], None])
    cut = pa.array([[0], [1], [2], [3]]).slice(1)
    found = columns(struct=struct, lists=lists, pairs=pairs, maps=maps, deep=deep, cut=cut)
    assert found == {
        "struct": (
            "STRUCT<a: SMALLINT, b: STRUCT<c: void, d: STRING>>",
            [{"a": 1, "b": {"d": None}}, None, {"a": None, "b": None}],
        ),
        "lists": ("ARRAY<INT>", [[1, None], None, []]),
        "pairs": ("ARRAY<TINYINT>", [[1, 2], [3, None], None]),
        "maps": ("MAP<STRING, BIGINT>", [[("x", 1)], None, []]),
        "deep": ("ARRAY<STRUCT<k: ARRAY<STRING>>>", [[{"k": ["x"]}], [], None]),
        "cut": ("ARRAY<BIGINT>", [[1], [2], [3]]),
    }


VIEWS = {
    "text": (pa.string_view(), ["a", None, "c"]),
    "bytes": (pa.binary_view(), [b"a", b"b", None]),
    "lists": (pa.list_view(pa.int64()), [[1], None, [2, 3]]),
    "many": (pa.large_list_view(pa.string_view()), [["x"], [], ["y", None]]),
    "inside": (pa.struct([("a", pa.list_view(pa.int32()))]), [{"a": [1]}, None, {"a": [2, 3]}]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_keep_all_their_values_also_beside_dead_letters(name: str) -> None:
    array = pa.array(VIEWS[name][1], VIEWS[name][0])
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["r", "s"]))
    assert columns(it=array)["it"][1] == array.to_pylist()
    _, one, found = decoded(lambda records, options: pa.table({"it": array, "r": runs, "_error": [None, "no", None]}))
    assert rows(one, found) == [{"it": array[at].as_py(), "r": "rrs"[at]} for at in (0, 2)]
    assert reasons(found) == ["no"]


def _fails(given: pa.Table, options: Mapping[str, str]) -> pa.Table:
    return _deeper(given.num_rows)


def _deeper(number: int) -> Any:
    return number // 0  # the line that is named


@pytest.mark.parametrize(
    "call, why",
    [
        (lambda given, options: None, "gave a NoneType"),
        (lambda given, options: given.to_pylist(), "gave a list"),
        (lambda given, options: pa.table({"a": [1]}), "gave 1 rows for 3 messages"),
        (lambda given, options: pa.table({"_offset": [1, 2, 3]}), "gave _offset: this name is taken"),
        (lambda given, options: pa.table([[1, 2, 3], [1, 2, 3]], names=["a", "a"]), "two columns named 'a'"),
        (lambda given, options: pa.table({"a": [1, 2, 3], "A": [1, 2, 3]}), "A: there are two columns of this name"),
        (
            lambda given, options: pa.table({"a": [{"b": 1, "B": 1}] * 3}),
            r"a\.[bB]: there are two columns of this name",
        ),
        (
            lambda given, options: pa.table({"a": pa.array([1] * 3, pa.duration("s"))}),
            "a: there is no column for Arrow's",
        ),
        (
            lambda given, options: pa.table({"a": pa.array([[(1, 1)]] * 3, pa.map_(pa.int8(), pa.int8()))}),
            "keys of a map",
        ),
        (
            lambda given, options: pa.table({"a": pa.array([[("k", 1), ("k", 2)]] * 3, pa.map_("string", "int8"))}),
            "a: a map has a key twice",
        ),
        (lambda given, options: pa.table({"a": pa.array([2**62] * 3, pa.timestamp("s"))}), "a: timestamp.* cannot be"),
        (lambda given, options: pa.table({"_error": [[1]] * 3}), "gave _error as list"),
        (lambda given, options: pa.table([["x"] * 3] * 2, names=["_error", "_error"]), "two columns named '_error'"),
        (lambda given, options: pa.table({"a": pa.array([b"\xff"] * 3).cast("string", safe=False)}), "a: .*UTF8"),
        (lambda given, options: sys.exit("enough"), "SystemExit: enough"),
        (
            _fails,
            rf"failed on offsets 0 to 2: ZeroDivisionError: .* \({__file__}:{_deeper.__code__.co_firstlineno + 1}\)",
        ),
    ],
)
def test_what_it_does_wrong_stops_the_export_and_names_it(call: Any, why: str) -> None:
    with pytest.raises(ExportStopped, match=why) as caught:
        decoded(call)
    assert "the decoder mine:decode " in str(caught.value)
    assert "nothing of the range was written" in caught.value.hint


def test_an_exception_refuses_the_range_and_nothing_is_written(tmp_path: Path) -> None:
    module(tmp_path / "code", "failing", "def decode(records, options):\n    raise KeyError(options['why'])\n")
    for split in ({}, {"a": {"field": "a"}}):
        bucket = memory()
        found = refused(
            write(
                bucket, tmp_path, export("failing:decode", options={"why": "no luck"}, split=split), [Message(0, b"x")]
            )
        )
        assert "failing:decode failed on offsets 0 to 0: KeyError: 'no luck' (" in found.reason
        assert f"{tmp_path / 'code' / 'failing.py'}:2)" in found.reason
        assert not found.again
        assert list(bucket.list()) == []


def test_a_module_that_cannot_be_had_is_told_before_anything_starts(tmp_path: Path) -> None:
    module(tmp_path, "broken", "import json\n\nraise RuntimeError('not today')\n")
    module(tmp_path, "wrong", "def decode(:\n")
    module(tmp_path, "needy", "import no_such_library\n")
    module(tmp_path, "fine", "decode = 5\n\ndef other(records, options): ...\n")
    for name, why in (
        ("absent:decode", "there is no module absent"),
        ("absent.inner:decode", "there is no module absent"),
        ("broken:decode", rf"importing broken failed: RuntimeError: not today \({tmp_path}/broken.py:3\)"),
        ("wrong:decode", rf"importing wrong failed: SyntaxError: .*{tmp_path}/wrong.py:1\)"),
        ("needy:decode", "importing needy failed: ModuleNotFoundError: No module named 'no_such_library'"),
        ("fine:decode", "decode is not callable in "),
        ("fine:decod", "decod is not there in "),
    ):
        wanted = export(name).decode
        assert wanted is not None
        with pytest.raises(UsageError, match=why) as caught:
            check_decoder(wanted)
        assert caught.value.hint
        assert f"decode: {name}: " in str(caught.value)


def test_its_code_is_part_of_the_definition(tmp_path: Path) -> None:
    def known(source: str, helper: str = "") -> str:
        module(tmp_path, "mine.orders", source)
        module(tmp_path, "mine.helper", helper)
        for name in [one for one in sys.modules if one.partition(".")[0] == "mine"]:
            del sys.modules[name]
        find.cache_clear()
        return fingerprint(export("mine.orders:decode"))

    plain = "def decode(records, options):\n    return records\n"
    first = known(plain)
    assert known(plain) == first
    assert known(plain + "# another comment\n") != first
    # The module that defines it counts as well, but not what that imports.
    moved = known("from mine.helper import decode\n", plain)
    assert known("from mine.helper import decode\n", plain + "\n") != moved
    assert known("import mine.helper\n" + plain, "x = 1\n") == known("import mine.helper\n" + plain, "x = 2\n")
    assert definition(export("mine.orders:decode"))["code"][:2] == [1, 1]


def test_a_worker_with_other_code_writes_nothing(tmp_path: Path) -> None:
    module(tmp_path, "versions", "def decode(records, options):\n    return records.select(['value'])\n")
    wanted = export("versions:decode")
    stale = Work(**{**vars(work(wanted, 0)), "fingerprint": "another"})
    bucket = memory()
    with pytest.raises(ExportStopped, match=r"the code of versions:decode in .*versions.py on .* is not what"):
        write_range(stale, batches([Message(0, b"x")]), bucket, tmp_path, 1000)
    assert list(bucket.list()) == []


def test_declared_fields_keep_their_types(tmp_path: Path) -> None:
    known, one = decoder(
        lambda given, options: pa.table({"n": [1.0, 2.5], "at": ["2026-11-15", None]}), {"*": "n INT, at DATE"}
    )
    found = one.decode(TYPE, records([b"a", b"b"]))
    assert rows(one, found) == [{"n": 1, "at": date(2026, 11, 15)}]
    assert [why.partition(";")[0] for why in reasons(found)] == ["n: 2.5 is not INT"]
    assert [str(field.kind) for field in known.of(TYPE).fields] == ["INT", "DATE"]


def test_a_decoder_can_be_any_callable(tmp_path: Path) -> None:
    source = """
import functools
import pyarrow as pa

class Decoder:
    def __call__(self, records, options):
        return records.select(["value"])

decode = Decoder()
partial = functools.partial(lambda extra, records, options: pa.table({"e": [extra] * records.num_rows}), 5)
"""
    module(tmp_path, "callables", source)
    for name in ("callables:decode", "callables:partial"):
        wanted = export(name)
        assert wanted.decode is not None
        schemas = Schemas(MemoryBucket(), PLACE, {}, 1)
        one = decoder_of(wanted.decode, schemas)
        assert one.decode(TYPE, records([b"x"])).table.num_rows == 1
        assert fingerprint(wanted) == fingerprint(wanted)

"""The folder of each row, and why some have none."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.config.decode import Split
from catchment.topics.names import escape, folder_of, values_of
from catchment.topics.records import HEADERS, RECORDS_WITH_HEADERS
from catchment.topics.split import MAX_FOLDER, Folders, Splitter
from catchment.topics.times import value_at


def rows(found: Folders) -> list[str]:
    """The folder of each row, or the reason why it has none."""
    reasons = dict(zip(*(found.bad.column(name).to_pylist() for name in ("row", "reason")), strict=True))
    codes = found.codes.to_pylist()
    assert found.codes.type == pa.int32()
    assert len(set(found.names)) == len(found.names)
    assert {row for row, code in enumerate(codes) if code is None} == reasons.keys()
    assert list(reasons) == sorted(reasons)
    assert {code for code in codes if code is not None} == set(range(len(found.names)))
    return [reasons[row] if code is None else found.names[code] for row, code in enumerate(codes)]


def split_of(values: Any, **given: Any) -> list[str]:
    """What a split called x makes of a column v."""
    column = values if isinstance(values, pa.Array) else pa.array(values)
    return rows(Splitter({"x": Split(field="v", **given)}).folders(pa.table({"v": column})))


def times_of(values: Any, **given: Any) -> list[str | None]:
    """The moments that are read from a column, as ISO text."""
    column = values if isinstance(values, pa.Array) else pa.array(values)
    splitter = Splitter({"x": Split(field="v", by="day", **given)})
    found = splitter.folders(pa.table({"v": column})).times
    assert found is not None
    assert found.type == pa.int64()
    return [None if ms is None else told(ms) for ms in found.to_pylist()]


def told(ms: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")[:-6]


# -- values


def test_text_is_taken_as_it_is_and_escaped() -> None:
    texts = ["a", "b/c", "a", "..", "_x", "ü", "50%", "a=b"]
    assert split_of(texts) == [folder_of([("x", text)]) for text in texts]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pa.array([1, -3, 10**18]), ["1", "-3", "1000000000000000000"]),
        (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([1.0, 1.5, 1e16, 0.1]), ["1.0", "1.5", "1e+16", "0.1"]),
        (pa.array([0.1, 1.0], pa.float32()), ["0.1", "1.0"]),
        (pa.array([Decimal("1.50"), Decimal("0.01")]), ["1.50", "0.01"]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (pa.array(["a"], pa.large_string()), ["a"]),
        (pa.array([b"a", b"\xc3\xbc"]), ["a", "ü"]),
        (pa.array([date(2026, 11, 15)]), ["2026-11-15"]),
    ],
)
def test_values_of_all_types(column: pa.Array, values: list[str]) -> None:
    assert split_of(column) == [f"x={escape(value)}" for value in values]


def test_what_cannot_name_a_folder() -> None:
    assert split_of([{"a": 1}, None]) == ["x: field 'v' is an object or a list", "x: no field 'v'"]
    assert split_of([[1], [2]]) == ["x: field 'v' is an object or a list"] * 2
    assert split_of(["a" * 200, "a" * 201]) == ["x=" + "a" * 200, f"x: '{'a' * 59}…' is too long for a folder"]
    assert split_of(["/" * 67]) == [f"x: '{'/' * 59}…' is too long for a folder"]  # three bytes each, escaped
    assert split_of([b"\xff", b"ok"]) == ["x: field 'v' is not UTF-8", "x=ok"]
    assert split_of([float("nan"), float("inf")]) == ["x: field 'v' is empty"] * 2


def test_what_is_missing() -> None:
    assert split_of(["a", None, ""]) == ["x=a", "x: no field 'v'", "x: field 'v' is empty"]
    assert split_of(["a", None, "", "none"], default="none") == ["x=a", "x=none", "x=none", "x=none"]
    assert split_of(pa.nulls(2)) == ["x: no field 'v'"] * 2
    absent = pa.table({"w": [1, 2]})
    assert rows(Splitter({"x": Split(field="v")}).folders(absent)) == ["x: no field 'v'"] * 2
    assert rows(Splitter({"x": Split(field="v", default="d/e")}).folders(absent)) == ["x=d%2Fe"] * 2
    # A default stands in for what is missing, never for what is wrong.
    assert split_of([b"\xff", None], default="d") == ["x: field 'v' is not UTF-8", "x=d"]


def test_a_long_name_leaves_less_room_for_the_value() -> None:
    name = "n" * 64
    table = pa.table({"v": ["a" * 190, "a" * 191]})
    good, bad = rows(Splitter({name: Split(field="v")}).folders(table))
    assert len(good) == 255
    assert bad.endswith("is too long for a folder")


def test_a_folder_of_many_long_values_is_bad() -> None:
    splits = {name: Split(field="v") for name in "abc"}
    good, bad = rows(Splitter(splits).folders(pa.table({"v": ["a" * 168, "a" * 169]})))
    assert len(good) == MAX_FOLDER
    assert bad == "its folder is longer than 512 bytes"


def test_fields_of_fields() -> None:
    table = pa.table(
        {
            "a": pa.array([{"b": {"c": "x"}}, {"b": None}, None]),
            "m": pa.array([[("k", "1")], [], None], pa.map_(pa.string(), pa.string())),
            "a.d": ["literal", "too", "three"],
        }
    )

    def by(field: str) -> list[str]:
        return rows(Splitter({"x": Split(field=field, default="-")}).folders(table))

    assert by("a.b.c") == ["x=x", "x=-", "x=-"]
    assert by("a.d") == ["x=literal", "x=too", "x=three"]
    assert by("m.k") == ["x=1", "x=-", "x=-"]
    assert by("a.b.c.d") == by("a.z") == by("z.a") == ["x=-"] * 3


# -- keys and headers

KEYS = pa.array([b"one", None, b"\xff\xfe", b"", b"one"])
LISTS = pa.array(
    [
        [{"key": "type", "value": b"a"}, {"key": "other", "value": b"z"}],
        [],
        [{"key": "type", "value": b"a"}, {"key": "type", "value": b"b"}],
        [{"key": "type", "value": b"\xff"}],
        None,
    ],
    HEADERS,
)


def test_keys_and_headers() -> None:
    table = pa.table({"__record_key": KEYS, "__record_headers": LISTS})
    by_key = Splitter({"k": Split(key=True)})
    assert (by_key.needs_key, by_key.needs_headers) == (True, False)
    assert rows(by_key.folders(table)) == [
        "k=one", "k: the message has no key", "k: the key is not UTF-8", "k: the key is empty", "k=one"
    ]  # fmt: skip
    by_header = Splitter({"h": Split(header="type")})
    assert (by_header.needs_key, by_header.needs_headers) == (False, True)
    assert rows(by_header.folders(table)) == [
        "h=a", "h: no header 'type'", "h=b", "h: header 'type' is not UTF-8", "h: no header 'type'"
    ]  # fmt: skip
    assert rows(by_header.folders(table.slice(2, 1))) == ["h=b"]


def test_types_from_records() -> None:
    records = pa.table(
        [pa.array(range(5)), pa.array([0] * 5), KEYS, pa.nulls(5, pa.binary()), LISTS], schema=RECORDS_WITH_HEADERS
    )
    day = Split(timestamp=True, by="day")
    key, header = Splitter({"d": day, "k": Split(key=True)}), Splitter({"h": Split(header="type")})
    assert key.type_split == ("k", Split(key=True))
    assert key.type_values(records).to_pylist() == ["one", None, None, "", "one"]
    assert header.type_values(records).to_pylist() == ["a", None, "b", None, None]
    assert header.type_values(records.slice(2, 2)).to_pylist() == ["b", None]
    assert header.type_values(records.slice(0, 0)).to_pylist() == []
    assert Splitter({"d": day}).type_split is None
    with pytest.raises(ValueError, match="decode them first"):
        Splitter({"d": day}).type_values(records)


# -- several levels


def test_levels_are_in_the_order_of_the_splits() -> None:
    table = pa.table({"t": ["a", "b", "a", None], "ts": [0, 0, 86_400, 0], "c": [True, False, True, True]})
    splits = {"type": Split(field="t"), "day": Split(field="ts", unit="s", by="day"), "c": Split(field="c")}
    found = Splitter(splits).folders(table)
    assert rows(found) == [
        "type=a/day=1970-01-01/c=true",
        "type=b/day=1970-01-01/c=false",
        "type=a/day=1970-01-02/c=true",
        "type: no field 't'",
    ]
    assert [list(values_of(name)) for name in found.names] == [["type", "day", "c"]] * 3
    assert rows(Splitter(dict(reversed(splits.items()))).folders(table))[0] == "c=true/day=1970-01-01/type=a"


def test_without_splits_and_without_rows() -> None:
    table = pa.table({"v": [1, 2]})
    assert rows(Splitter({}).folders(table)) == ["", ""]
    assert Splitter({}).folders(table).times is None
    both = Splitter({"x": Split(field="v"), "d": Split(field="v", by="day")})
    assert rows(both.folders(table.slice(0, 0))) == []


def test_the_first_split_that_fails_says_why() -> None:
    splits = {"a": Split(field="a"), "b": Split(field="b")}
    assert rows(Splitter(splits).folders(pa.table({"v": [1]}))) == ["a: no field 'a'"]


# -- times

MS = 1_794_902_405_678  # 2026-11-17T08:00:05.678Z
ISO = "2026-11-17T08:00:05.678"


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "auto", None])
@pytest.mark.parametrize("form", [int, str])
def test_units(unit: str | None, form: type) -> None:
    counts = {"s": MS // 1000, "ms": MS, "us": MS * 1000 + 999, "ns": MS * 10**6 + 999_999}
    for name, value in counts.items():
        if unit in (name, "auto", None):
            assert times_of([form(value)], unit=unit) == [ISO if name != "s" else ISO[:-3] + "000"]


def test_fractions() -> None:
    assert times_of([MS / 1000], unit="s") == [ISO]
    assert times_of([float(MS) + 0.25], unit="ms") == [ISO]
    assert times_of([MS * 1000.0], unit="us") == times_of([MS * 1e6], unit="ns") == [ISO]
    assert times_of([MS / 1000, float(MS), MS * 1e3, MS * 1e6]) == [ISO] * 4
    assert times_of([f"{MS / 1000:.3f}", "1794902405.6789"], unit="s") == [ISO] * 2
    assert times_of(pa.array([Decimal("1794902405.678")]), unit="s") == [ISO]
    # Never into the next day: 23:59:59.9996 is still today.
    assert split_of([1_794_873_599.9996, "1794873599.9999999"][:1], unit="s", by="day") == ["x=2026-11-16"]
    assert split_of(["1794873599.9999999"], unit="s", by="day") == ["x=2026-11-16"]


@given(st.datetimes(datetime(1973, 1, 1), datetime(2100, 1, 1)), st.sampled_from([1, 10**3, 10**6, 10**9]))  # noqa: DTZ001
def test_units_are_told_apart(moment: datetime, per_second: int) -> None:
    micros = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001
    count = micros * per_second // 10**6
    expected = moment.isoformat(timespec="milliseconds")[: 19 if per_second == 1 else 23]
    for value in (count, str(count)):
        found = times_of([value], unit="auto")[0]
        assert found is not None
        assert found.startswith(expected)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-11-17T08:00:05.678Z", ISO),
        ("2026-11-17 08:00:05.678", ISO),
        ("2026-11-17t08:00:05.678z", ISO),
        ("2026-11-17T09:00:05.678+01:00", ISO),
        ("2026-11-17 03:00:05.678 -0500", ISO),
        ("2026-11-17T08:00:05.678999999Z", ISO),
        ("2026-11-17T08:00:05,678+00", ISO),
        ("20261117T080005.678Z", ISO),
        ("2026-11-17T08:00Z", "2026-11-17T08:00:00.000"),
        ("2026-11-17", "2026-11-17T00:00:00.000"),
        ("2026-W47-2", "2026-11-17T00:00:00.000"),
        ("1965-03-01T00:00:00Z", "1965-03-01T00:00:00.000"),
        ("0001-01-01", "0001-01-01T00:00:00.000"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999"),
    ],
)
def test_iso(text: str, utc: str) -> None:
    assert times_of([text], unit="iso") == [utc]
    assert times_of([text]) == [utc]
    many = [text, *(f"2026-01-01T00:00:{n % 60:02d}.{n:06d}Z" for n in range(2000))]
    assert times_of(many)[0] == utc  # the fast way reads the same


@pytest.mark.parametrize(
    "text",
    ["yesterday", "2026-02-30", "2026-02-30T00:00:00Z", "2026-11-17x08:00", "2026-11-17T24:00:00Z",
     "2026-11-17T08:00:60Z", "0000-01-01T00:00:00Z", "2026-11-17T08:00:05+99:00", " 2026-11-17", "10000-01-01",
     "2026-13-01T00:00:00", "-1"],
)  # fmt: skip
def test_what_is_no_iso_time(text: str) -> None:
    many = [text, *(f"2026-01-01T00:00:{n % 60:02d}.{n:06d}Z" for n in range(2000))]
    for values in ([text], many):
        assert split_of(values, unit="iso", by="day")[0] == f"x: {text!r} is not a time"
        assert split_of(values, by="day")[0] == f"x: {text!r} is not a time"
    assert split_of([text], unit="ms", by="day") == [f"x: {text!r} is not a time in ms"]


@pytest.mark.parametrize(
    "value",
    [-1, 2**63 - 1, 253_402_300_800, True, "x", "1e3", "", "-5", "9" * 40, float("nan"), float("inf"), -0.5, 1e30],
)
def test_what_is_no_number_of_seconds(value: object) -> None:
    found = split_of([value], unit="s", by="day")
    shown = {True: "'True'", "": None}.get(value, repr(str(value)))
    assert found == ["x: no field 'v'" if shown is None else f"x: {shown} is not a time in s"]


def test_limits_of_numbers() -> None:
    assert split_of([0, 253_402_300_799], unit="s", by="day") == ["x=1970-01-01", "x=9999-12-31"]
    assert split_of(pa.array([2**64 - 1, 5], pa.uint64()), unit="ns", by="day") == [
        "x: '18446744073709551615' is not a time in ns", "x=1970-01-01"
    ]  # fmt: skip
    assert split_of([4_102_444_800, 4_070_908_800_000], by="day") == ["x=2100-01-01", "x=2099-01-01"]
    assert split_of([5], unit="iso", by="day") == ["x: '5' is not a time"]


@pytest.mark.parametrize(
    ("pattern", "text", "utc"),
    [
        ("%d/%b/%Y:%H:%M:%S %z", "17/Nov/2026:09:00:05 +0100", "2026-11-17T08:00:05.000"),
        ("%Y-%m-%d %H:%M:%S.%f", "2026-11-17 08:00:05.678", ISO),
        ("%F %T", "2026-11-17 08:00:05", "2026-11-17T08:00:05.000"),
        ("%F %T %Z", "2026-11-17 08:00:05 GMT", "2026-11-17T08:00:05.000"),
        ("%e.%m.%Y", "7.11.2026", "2026-11-07T00:00:00.000"),
        ("%Y %j", "2026 321", "2026-11-17T00:00:00.000"),
        ("%I %p %y%m%d", "08 AM 261117", "2026-11-17T08:00:00.000"),
        ("100%% %Y", "100% 2026", "2026-01-01T00:00:00.000"),
        ("%%T%Y", "%T2026", "2026-01-01T00:00:00.000"),
    ],
)
def test_patterns(pattern: str, text: str, utc: str) -> None:
    assert times_of([text, None, text], pattern=pattern) == [utc, None, utc]


def test_patterns_with_zones_and_numbers() -> None:
    berlin = {"zone": "Europe/Berlin"}
    assert times_of(["2026-07-01 00:00"], pattern="%Y-%m-%d %H:%M", **berlin) == ["2026-06-30T22:00:00.000"]
    assert times_of(["2026-07-01 00:00 UTC"], pattern="%Y-%m-%d %H:%M %Z", **berlin) == ["2026-07-01T00:00:00.000"]
    assert split_of(["2026 CET"], pattern="%Y %Z", by="day") == ["x: '2026 CET' is not a time as %Y %Z has it"]
    assert times_of([20261117], pattern="%Y%m%d") == ["2026-11-17T00:00:00.000"]
    assert split_of([1.5], pattern="%Y", by="day") == ["x: '1.5' is not a time as %Y has it"]


def test_columns_that_are_times() -> None:
    moment = datetime(2026, 11, 17, 8, 0, 5, 678_999, tzinfo=UTC)
    for unit in ("ms", "us", "ns"):
        assert times_of(
            pa.array([moment], pa.timestamp("us", "Asia/Tokyo")).cast(pa.timestamp(unit, "UTC"), safe=False)
        ) == [ISO]
    wall = pa.array([moment.replace(tzinfo=None)], pa.timestamp("us"))
    assert times_of(wall) == [ISO]
    assert times_of(wall, zone="Europe/Berlin") == ["2026-11-17T07:00:05.678"]
    assert times_of(wall.cast(pa.timestamp("s"), safe=False)) == ["2026-11-17T08:00:05.000"]
    days = pa.array([date(2026, 11, 17), date(1, 1, 1), date(1969, 12, 31)])
    assert times_of(days) == ["2026-11-17T00:00:00.000", "0001-01-01T00:00:00.000", "1969-12-31T00:00:00.000"]
    assert split_of(days, by="day", zone="America/New_York") == ["x=2026-11-17", "x=0001-01-01", "x=1969-12-31"]
    assert split_of(days, by="day", zone="Asia/Tokyo")[1].endswith("is not a time")  # in UTC it is in the year 0


def test_a_time_beyond_the_calendar_is_bad_and_harms_no_other() -> None:
    far = [0, 253_402_300_800_000_000, 2**63 - 1, -(2**63)]  # the first of them is the year 10000
    for kind in (pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.list_(pa.timestamp("us"))):
        column = pa.array(far) if not pa.types.is_nested(kind) else pa.array([[one] for one in far])
        found = split_of(column.cast(kind), by="day")
        assert found[0] == "x=1970-01-01" or pa.types.is_nested(kind)
        assert [("is not a time" in why or "an object" in why) for why in found[1:]] == [True] * 3
    days = pa.array([0, 2**31 - 1, -(2**31)], pa.int32()).cast(pa.date32())
    assert [why.rpartition(" is ")[2] for why in split_of(days, by="day")[1:]] == ["not a time"] * 2


def test_kafkas_own_timestamp() -> None:
    stamps = pa.array([MS, -1, None, 0]).cast(pa.timestamp("ms", "UTC"))
    table = pa.table({"_timestamp": stamps})
    none = "d: the message has no timestamp"
    assert rows(Splitter({"d": Split(timestamp=True, by="hour")}).folders(table)) == [
        "d=2026-11-17T08", none, none, "d=1970-01-01T00"
    ]  # fmt: skip


def test_a_default_for_times() -> None:
    values = [MS, None, "x"]
    texts = [None if value is None else str(value) for value in values]
    assert split_of(texts, unit="ms", by="day", default="none") == [
        "x=2026-11-17", "x=none", "x: 'x' is not a time in ms"
    ]  # fmt: skip
    assert split_of([MS, None], unit="ms", by="day", default="2026-11-17") == ["x=2026-11-17"] * 2
    assert times_of([MS, None], unit="ms", default="none") == [ISO, None]


def test_new_year_has_no_week_years() -> None:
    texts = ["2024-12-30T12:00:00Z", "2024-12-31T23:59:59Z", "2025-01-01T00:00:00Z", "2027-01-01T00:00:00Z"]
    assert split_of(texts, by="day") == ["x=2024-12-30", "x=2024-12-31", "x=2025-01-01", "x=2027-01-01"]


ZONES = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns", "Pacific/Apia", "Africa/Monrovia"]
around = st.one_of(
    st.integers(0, 4_000_000_000_000),
    st.sampled_from([1_774_746_000, 1_792_890_000, 1_775_314_800, 1_791_041_400, 1_268_537_460, 1_289_097_060,
                     1_325_239_200, 63_593_070]).flatmap(
        lambda change: st.integers(change * 1000 - 7_300_000, change * 1000 + 7_300_000)
    ),
)  # fmt: skip


@given(st.lists(around, min_size=1, max_size=30), st.sampled_from(ZONES), st.sampled_from(["day", "hour", "minute"]))
def test_folders_are_wall_time_in_the_zone(values: list[int], zone: str, by: str) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    expected = [f"x={value_at(epoch + timedelta(milliseconds=value), by, zone)}" for value in values]
    assert split_of(values, unit="ms", by=by, zone=zone) == expected


@given(st.lists(around, min_size=1, max_size=30), st.sampled_from(ZONES))
def test_wall_times_without_a_zone_are_in_the_splits_zone(values: list[int], zone: str) -> None:
    texts = [told(value) for value in values]
    walls = pa.array(values, pa.timestamp("ms"))
    many = [*texts, *(told(n * 10**7) for n in range(1500))]
    found = times_of(texts, zone=zone)
    assert found == times_of(walls, zone=zone) == times_of(many, zone=zone)[: len(texts)]


def test_an_hour_that_happens_twice_is_one_folder() -> None:
    hours = ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"]
    found = split_of(hours, by="hour", zone="Europe/Berlin")
    assert found == ["x=2026-10-25T02", "x=2026-10-25T02", "x=2026-10-25T03"]


texts = st.one_of(
    st.sampled_from(["", "5", "1794902405", "1794902405678", "2026-11-17", "2026-11-17T08:00:05Z",
                     "2026-11-17 08:00:05.5", "2026-02-30T00:00:00Z", "x", "1.5", "-1", "2026-11-17T08:00:05+14:30"]),
    st.text(alphabet="0123456789-:TZ .+", max_size=24),
)  # fmt: skip


@given(st.lists(st.one_of(st.none(), texts), min_size=1, max_size=8), st.sampled_from(["auto", "iso", "s", "ns", None]))
def test_a_value_means_the_same_whatever_is_beside_it(values: list[str | None], unit: Any) -> None:
    alone = [split_of(pa.array([value], pa.string()), unit=unit, by="minute")[0] for value in values]
    filler = [f"{n}" for n in range(10**9, 10**9 + 600)] + [told(n * 10**8) for n in range(600)]
    beside = split_of(pa.array([*values, *filler], pa.string()), unit=unit, by="minute")
    assert beside[: len(values)] == alone


def test_chunks_make_no_difference() -> None:
    whole = pa.table({"v": ["a", "b", "a", "c"], "t": [0, 1, 2, 90_000]})
    chunked = pa.concat_tables([whole.slice(0, 1), whole.slice(1, 2), whole.slice(3)])
    splitter = Splitter({"x": Split(field="v"), "d": Split(field="t", unit="s", by="day")})
    assert rows(splitter.folders(whole)) == rows(splitter.folders(chunked))
    assert rows(splitter.folders(whole.slice(2))) == rows(splitter.folders(whole))[2:]

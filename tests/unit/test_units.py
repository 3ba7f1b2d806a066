from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment import units

MICROSECOND = timedelta(microseconds=1)


@pytest.mark.parametrize(
    "text, duration",
    [
        ("500ms", timedelta(milliseconds=500)),
        ("5s", timedelta(seconds=5)),
        ("0s", timedelta(0)),
        ("2h", timedelta(hours=2)),
        ("1h30m", timedelta(minutes=90)),
        ("3d", timedelta(days=3)),
        ("1.5h", timedelta(minutes=90)),
        ("0.5s", timedelta(milliseconds=500)),
        ("250us", timedelta(microseconds=250)),
        (" 5s ", timedelta(seconds=5)),
    ],
)
def test_durations_as_people_write_them(text: str, duration: timedelta) -> None:
    assert units.parse_duration(text) == duration


@pytest.mark.parametrize(
    "text",
    ["", "5", "s", "-5s", "5 s", "5sec", "5S", "1m1h", "5s5s", "1e3s", "٥s", "0.1us", "99999999d", "5s\x00", "."],
)
def test_what_is_no_duration_gets_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="500ms"):
        units.parse_duration(text)


@pytest.mark.parametrize(
    "text, size",
    [
        ("128MB", 128_000_000),
        ("1GiB", 1 << 30),
        ("50 MB", 50_000_000),
        ("1.5kB", 1500),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("0B", 0),
        ("2TB", 2 * 10**12),
    ],
)
def test_sizes_as_people_write_them(text: str, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "128", "MB", "-1MB", "1mb", "1Mb", "1.5B", "1 000MB", "99999999TiB", "1MBs", "1MiB5B"]
)
def test_what_is_no_size_gets_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="50MB"):
        units.parse_size(text)


@pytest.mark.parametrize("text, share", [("1%", 0.01), ("0%", 0.0), ("100%", 1.0), ("0.5%", 0.005)])
def test_shares_as_people_write_them(text: str, share: float) -> None:
    assert units.parse_share(text) == share


@pytest.mark.parametrize("text", ["", "1", "0.01", "101%", "-1%", "1 %", "%", "100.1%"])
def test_what_is_no_share_gets_the_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"0\.5%"):
        units.parse_share(text)


def test_times_are_moments_in_utc() -> None:
    eight = datetime(2026, 11, 15, 8, tzinfo=UTC)
    assert units.parse_time("2026-11-15T08:00:00Z") == eight
    assert units.parse_time("2026-11-15T09:00:00+01:00") == eight
    assert units.parse_time("2026-11-15T09:00:00+01:00").tzinfo is UTC
    assert units.format_time(eight) == "2026-11-15T08:00:00Z"


@pytest.mark.parametrize(
    "text", ["", "2026-11-15", "2026-11-15T08:00:00", "yesterday", "2026-13-01T00:00:00Z", "0001-01-01T00:00:00+23:00"]
)
def test_what_is_no_moment_gets_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="2026-11-15T08:00:00Z"):
        units.parse_time(text)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=36_500)))
def test_durations_round_trip(duration: timedelta) -> None:
    assert units.parse_duration(units.format_duration(duration)) == duration


@given(st.integers(0, 1 << 60))
def test_sizes_round_trip(size: int) -> None:
    assert units.parse_size(units.format_size(size)) == size


@given(st.integers(0, 10**9), st.sampled_from(["B", "kB", "MB", "KiB", "MiB"]))
def test_formatting_a_parsed_size_keeps_its_value(number: int, unit: str) -> None:
    size = units.parse_size(f"{number}{unit}")
    assert units.parse_size(units.format_size(size)) == size


@given(st.integers(0, 10**6))
def test_shares_round_trip(millionths: int) -> None:
    share = millionths / 10**6
    assert units.parse_share(units.format_share(share)) == share


@given(st.datetimes(timezones=st.just(UTC)))
def test_times_round_trip(moment: datetime) -> None:
    assert units.parse_time(units.format_time(moment)) == moment


@given(st.text())
def test_any_text_is_parsed_or_refused_with_advice(text: str) -> None:
    for parse in (units.parse_duration, units.parse_size, units.parse_share, units.parse_time):
        advice = "; write "
        try:
            parse(text)
        except ValueError as error:
            advice = str(error)
        assert "; write " in advice


@pytest.mark.parametrize(
    "wrong",
    [lambda: units.format_duration(-MICROSECOND), lambda: units.format_size(-1), lambda: units.format_share(1.1)],
)
def test_what_has_no_text_is_refused(wrong: object) -> None:
    assert callable(wrong)
    with pytest.raises(ValueError, match="give"):
        wrong()


def test_the_shortest_exact_text_is_chosen() -> None:
    assert units.format_duration(timedelta(minutes=90)) == "1h30m"
    assert units.format_duration(timedelta(0)) == "0s"
    assert units.format_size(128_000_000) == "128MB"
    assert units.format_size(1 << 30) == "1GiB"
    assert units.format_size(0) == "0B"
    assert units.format_share(0.005) == "0.5%"
    assert units.format_share(1.0) == "100%"

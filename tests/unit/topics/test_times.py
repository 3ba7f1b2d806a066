"""The names of days, hours and minutes, and when they end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.topics.times import LATEST, boundary, end_of, format_value, parse_value, value_at, zone_of

# Lord Howe sets its clocks by half an hour, St John's did so a minute after midnight, Apia left out a day, Sao Paulo
# began summer at midnight, Monrovia had an offset of 44 minutes and 30 seconds until 1972.
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "Pacific/Apia",
    "America/Sao_Paulo",
    "Africa/Monrovia",
    "Asia/Kathmandu",
]
UNITS = ["day", "hour", "minute"]
moments = st.datetimes(datetime(1960, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC)).map(  # noqa: DTZ001
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)
CHANGES = [  # moments at which clocks are set
    ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("America/St_Johns", datetime(2010, 3, 14, 3, 31, tzinfo=UTC)),
    ("America/St_Johns", datetime(2010, 11, 7, 2, 31, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2018, 2, 18, 2, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2018, 11, 4, 3, tzinfo=UTC)),
    ("Africa/Monrovia", datetime(1972, 1, 7, 0, 44, 30, tzinfo=UTC)),
]
near = st.sampled_from(CHANGES).flatmap(
    lambda change: st.tuples(
        st.just(change[0]),
        st.integers(-3 * 86_400_000, 3 * 86_400_000).map(lambda ms: change[1] + timedelta(milliseconds=ms)),
    )
)
anywhere = st.one_of(near, st.tuples(st.sampled_from(ZONES), moments))


@pytest.mark.parametrize(
    ("by", "value"), [("day", "2026-11-15"), ("hour", "2026-11-15T08"), ("minute", "2026-11-15T08-05")]
)
def test_names(by: str, value: str) -> None:
    assert value_at(datetime(2026, 11, 15, 8, 5, 59, tzinfo=UTC), by, "UTC") == value
    assert format_value(parse_value(value, by), by) == value


@given(anywhere, st.sampled_from(UNITS))
def test_a_name_and_back(place: tuple[str, datetime], by: str) -> None:
    zone, moment = place
    value = value_at(moment, by, zone)
    wall = moment.astimezone(zone_of(zone)).replace(tzinfo=None)
    begin = parse_value(value, by)
    assert format_value(begin, by) == value
    assert begin <= wall < begin + timedelta(days=1)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "2026-11-5",
        "2026-11-31",
        "2026-11-15T08",
        "0000-01-01",
        "２０２６-11-15",
        "2026-11-15\n",
        "unknown",
        " 2026-11-15",
    ],
)
def test_what_is_no_day(value: str) -> None:
    with pytest.raises(ValueError):
        parse_value(value, "day")


@given(anywhere, anywhere, st.sampled_from(UNITS))
def test_names_sort_as_wall_time(one: tuple[str, datetime], two: tuple[str, datetime], by: str) -> None:
    zone, first = one
    second = two[1]
    walls = [moment.astimezone(zone_of(zone)).replace(tzinfo=None) for moment in (first, second)]
    values = [value_at(moment, by, zone) for moment in (first, second)]
    assert values[0] == values[1] or (values[0] < values[1]) == (walls[0] < walls[1])


@given(anywhere, st.sampled_from(UNITS), st.integers(0, 3 * 86_400))
def test_nothing_belongs_to_a_folder_after_its_end(place: tuple[str, datetime], by: str, later: int) -> None:
    zone, moment = place
    value = value_at(moment, by, zone)
    end = end_of(value, by, zone)
    assert moment < end
    assert value_at(end + timedelta(seconds=later), by, zone) > value
    assert value_at(end - timedelta(microseconds=1), by, zone) <= value


@pytest.mark.parametrize(
    ("value", "by", "zone", "end"),
    [
        ("2026-11-15", "day", "UTC", "2026-11-16T00:00:00"),
        ("2026-12-31", "day", "UTC", "2027-01-01T00:00:00"),
        ("2026-11-15", "day", "Europe/Berlin", "2026-11-15T23:00:00"),
        ("2026-10-25T02", "hour", "Europe/Berlin", "2026-10-25T02:00:00"),  # it happens twice
        ("2026-10-25T01", "hour", "Europe/Berlin", "2026-10-25T00:00:00"),
        ("2026-03-29T01", "hour", "Europe/Berlin", "2026-03-29T01:00:00"),  # the next one is left out
        ("2026-03-29T02", "hour", "Europe/Berlin", "2026-03-29T01:00:00"),
        ("2026-04-05T01", "hour", "Australia/Lord_Howe", "2026-04-04T15:30:00"),  # it takes an hour and a half
        ("2026-04-05T01-45", "minute", "Australia/Lord_Howe", "2026-04-04T15:16:00"),
        ("2010-03-14T00", "hour", "America/St_Johns", "2010-03-14T03:31:00"),  # it takes a minute
        ("2010-11-06", "day", "America/St_Johns", "2010-11-07T03:30:00"),  # the next day had begun already
        ("2011-12-29", "day", "Pacific/Apia", "2011-12-30T10:00:00"),
        ("2011-12-30", "day", "Pacific/Apia", "2011-12-30T10:00:00"),
    ],
)
def test_ends(value: str, by: str, zone: str, end: str) -> None:
    assert end_of(value, by, zone) == datetime.fromisoformat(end).replace(tzinfo=UTC)


def test_the_ends_of_the_calendar() -> None:
    assert end_of("9999-12-31", "day", "UTC") == LATEST
    assert end_of("9999-12-31", "day", "America/New_York") == LATEST
    assert end_of("0001-01-01T00", "hour", "Asia/Kathmandu") < end_of("0001-01-01T10", "hour", "Asia/Kathmandu")


@given(anywhere, st.sampled_from(["day", "hour"]), st.integers(0, 100_000))
def test_a_boundary_is_the_last_end_that_has_passed(place: tuple[str, datetime], by: str, seconds: int) -> None:
    zone, watermark = place
    lateness = timedelta(seconds=seconds)
    found = boundary(watermark, lateness, by, zone)
    assert found + lateness <= watermark
    # Everything before it that is a folder has ended, and the folder of the moment before the watermark has not.
    before = value_at(found - timedelta(microseconds=1), by, zone)
    assert end_of(before, by, zone) <= found
    until = watermark - lateness
    open_now = value_at(until, by, zone)
    assert end_of(open_now, by, zone) > until
    step = parse_value(open_now, by) - timedelta(days=1 if by == "day" else 0, hours=0 if by == "day" else 1)
    if (end := end_of(format_value(step, by), by, zone)) <= until:
        assert end == found


def test_a_boundary_waits_for_lateness() -> None:
    lateness = timedelta(hours=2)
    just = datetime(2026, 11, 16, 2, tzinfo=UTC)
    assert boundary(just, lateness, "day", "UTC") == datetime(2026, 11, 16, tzinfo=UTC)
    assert boundary(just - timedelta(milliseconds=1), lateness, "day", "UTC") == datetime(2026, 11, 15, tzinfo=UTC)
    assert boundary(just, lateness, "hour", "UTC") == datetime(2026, 11, 16, tzinfo=UTC)

"""Ticks that do not drift, turns that are never bunched, waits that are bounded, cuts at the right moments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.feeds.schedule import (
    GRACE,
    LONGEST_BACKOFF,
    LONGEST_REQUEST,
    LONGEST_RETRY,
    RETRY,
    Cuts,
    Ticks,
    Turn,
    backoff,
    last_cut,
    next_turn,
    phase,
)

STARTS = st.floats(0, 1e7)
PERIODS = st.floats(0.01, 3600)
EIGHT = datetime(2026, 11, 15, 8, tzinfo=UTC)
HOUR = timedelta(hours=1)


@given(STARTS, PERIODS, st.floats(-10, 1e6))
def test_the_current_tick_is_the_last_that_is_due(start: float, period: float, after: float) -> None:
    ticks, now = Ticks(start, period), start + after
    n = ticks.current(now)
    assert ticks.at(n) <= now < ticks.at(n + 1)


@given(STARTS, PERIODS, st.integers(-1, 1000), st.floats(0, 1e5), st.floats(0, 1000))
def test_a_turn_is_still_to_come_and_nothing_before_it_is_forgotten(
    start: float, period: float, taken: int, after: float, wait: float
) -> None:
    ticks, now = Ticks(start, period), start + after
    turn = next_turn(ticks, taken, now, not_before=now + wait)
    assert turn.tick > taken
    assert ticks.at(turn.tick) >= now
    assert turn.missed >= 0 and turn.held >= 0
    assert taken + 1 + turn.missed + turn.held == turn.tick
    if turn.held:  # no tick after the wait is left out
        assert ticks.at(turn.tick - 1) < now + wait


def test_a_quick_answer_leaves_no_tick_out() -> None:
    assert next_turn(Ticks(100.0, 5.0), 0, 100.2) == Turn(1)


def test_ticks_that_pass_during_a_slow_answer_are_counted_and_not_made_up_for() -> None:
    assert next_turn(Ticks(100.0, 5.0), 0, 117.0) == Turn(4, missed=3)


def test_a_tick_that_is_due_at_this_very_moment_is_taken() -> None:
    assert next_turn(Ticks(100.0, 5.0), 0, 105.0) == Turn(1)


def test_backing_off_stays_on_the_grid() -> None:
    turn = next_turn(Ticks(100.0, 5.0), 0, 100.2, not_before=112.0)
    assert turn == Turn(3, held=2)


@given(st.integers(0, 500), PERIODS)
def test_the_first_tick_comes_within_a_second(index: int, period: float) -> None:
    assert 0 <= phase(index, period) <= min(period, 1.0)


def test_two_hundred_feeds_of_one_period_are_spread_over_it() -> None:
    found = sorted(phase(index, 0.5) for index in range(200))
    gaps = [after - before for before, after in zip(found, [*found[1:], 0.5], strict=True)]
    assert max(gaps) < 0.01  # evenly would be 0.0025


@given(st.integers(0, 10_000), PERIODS, st.floats(0, 1, exclude_max=True), st.none() | st.floats(0, 1e9))
def test_backing_off_is_bounded(errors: int, period: float, chance: float, asked: float | None) -> None:
    wait = backoff(errors, period, chance, asked=asked)
    assert 0 <= wait <= max(LONGEST_BACKOFF, LONGEST_REQUEST if asked else 0)


def test_one_error_costs_no_tick_and_more_cost_ever_more_of_them() -> None:
    waits = [backoff(errors, 1.0, 0.0) for errors in range(9)]
    assert waits == [0, 0, 1, 2, 4, 8, 16, 30, 30]
    assert backoff(4, 1.0, 0.999) == pytest.approx(8, rel=0.01)


def test_what_a_server_asks_for_counts_from_the_first_error() -> None:
    assert backoff(1, 1.0, 0.5, asked=42.0) == 42.0
    assert backoff(1, 1.0, 0.5, asked=1e9) == LONGEST_REQUEST


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=-3))])
def test_hours_end_in_utc_whatever_the_zone(zone: timezone) -> None:
    moment = datetime(2026, 11, 15, 8, 59, 59, tzinfo=UTC).astimezone(zone)
    assert last_cut(moment, HOUR) == EIGHT
    assert last_cut(moment + timedelta(seconds=1), HOUR) == EIGHT + HOUR


def test_a_cut_that_divides_an_hour_also_cuts_at_its_end() -> None:
    for seconds in (1, 5, 60, 900):
        assert last_cut(EIGHT + timedelta(seconds=0.5), timedelta(seconds=seconds)) == EIGHT
    with pytest.raises(ValueError, match="positive"):
        last_cut(EIGHT, timedelta(0))


def nothing(_: datetime) -> bool:
    return False


def something(_: datetime) -> bool:
    return True


def test_a_cycle_runs_at_the_start_and_then_at_each_hours_end() -> None:
    cuts = Cuts(HOUR)
    half_past = EIGHT + HOUR / 2
    assert cuts.due(half_past, 0, something) == EIGHT
    cuts.finished(1, well=True)
    assert cuts.due(half_past, 2, nothing) is None
    assert cuts.due(EIGHT + HOUR, 1800, nothing) == EIGHT + HOUR
    cuts.finished(1801, well=True)
    assert cuts.due(EIGHT + HOUR, 1802, nothing) is None


def test_a_cut_waits_for_what_was_sent_before_it_but_not_for_ever() -> None:
    cuts = Cuts(HOUR)
    cuts.due(EIGHT, 0, nothing)
    cuts.finished(0, well=True)
    nine = EIGHT + HOUR
    assert cuts.due(nine, 3600, something) is None
    assert cuts.due(nine, 3601, nothing) == nine
    cuts.finished(3602, well=True)
    assert cuts.due(nine + HOUR, 7200, something) is None
    assert cuts.due(nine + HOUR, 7200 + GRACE, something) == nine + HOUR


def test_a_cycle_with_problems_runs_again_ever_more_rarely() -> None:
    cuts = Cuts(HOUR)
    now, waits = 0.0, []
    assert cuts.due(EIGHT, now, nothing) == EIGHT
    for _ in range(8):
        cuts.finished(now, well=False)
        begin = now
        while cuts.due(EIGHT, now, nothing) is None:
            now += 1
        waits.append(now - begin)
    assert waits[:3] == [RETRY, 2 * RETRY, 4 * RETRY]
    assert waits[-1] == LONGEST_RETRY
    cuts.finished(now, well=True)
    assert cuts.due(EIGHT, now + 1e6, nothing) is None


def test_a_wall_clock_that_is_set_back_does_not_stop_the_cutting() -> None:
    cuts = Cuts(HOUR)
    assert cuts.due(EIGHT + 8760 * HOUR, 0, nothing) is not None
    cuts.finished(1, well=True)
    assert cuts.due(EIGHT, 2, nothing) == EIGHT
    cuts.finished(3, well=True)
    assert cuts.due(EIGHT + HOUR, 3600, nothing) == EIGHT + HOUR

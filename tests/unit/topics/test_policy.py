from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.config.topics import Policy
from catchment.testing.clock import START, FakeClock
from catchment.testing.topics import FakeKafka, Message
from catchment.topics.policy import AtBoundary, Pending, boundary, cut, largest
from tests.unit.topics.lakes import bounds, exporter, memory, messages

MINUTE = timedelta(minutes=1)


def policy(**values: Any) -> Policy:
    return Policy.model_validate({"max_age": "5m", "max_bytes": "1kB", "max_messages": 100, **values})


def pending(first: int, end: int, *, minutes: float = 0, mean: float = 1.0) -> Pending:
    return Pending(first, end, START - minutes * MINUTE, mean)


moments = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
policies = st.builds(
    lambda age, size, messages, align: policy(
        max_age=f"{age}m", max_bytes=f"{size}B", max_messages=messages, align=align
    ),
    st.sampled_from([1, 5, 15, 60, 1440]),
    st.integers(1, 10**12),
    st.integers(1, 10**9),
    st.booleans(),
)


@given(
    policies,
    st.integers(0, 2**62),
    st.integers(-5, 10**12),
    moments,
    moments,
    st.just(0.0) | st.floats(1e-6, 1e9),
    st.booleans(),
)
def test_a_cut_is_always_of_messages_that_are_there_and_within_the_limits(
    policy: Policy, first: int, waiting: int, since: datetime, now: datetime, mean: float, flush: bool
) -> None:
    found = cut(policy, Pending(first, first + waiting, since, mean), now, flush=flush)
    last = found.longest if isinstance(found, AtBoundary) else found
    if waiting <= 0:
        assert last is None
    if last is None:
        assert waiting < policy.max_messages
        assert not flush or waiting <= 0
        return
    assert first <= last < first + waiting
    count = last - first + 1
    assert count <= policy.max_messages
    assert count == 1 or count * mean <= policy.max_bytes * (1 + 1e-9)


@given(policies, moments, moments, st.integers(1, 50))
def test_what_is_due_stays_due(policy: Policy, since: datetime, now: datetime, waiting: int) -> None:
    one = Pending(0, waiting, since, 1.0)
    if cut(policy, one, now) is not None:
        assert cut(policy, one, now + MINUTE) is not None


@given(policies, moments, moments, st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_backlog_is_cut_in_full_ranges_whatever_is_behind_it(
    policy: Policy, since: datetime, now: datetime, waiting: int, more: int
) -> None:
    """So replicas that look at different moments cut a backlog in the same places."""
    if waiting >= largest(policy, 1.0):
        one, other = (cut(policy, Pending(0, end, since, 1.0), now) for end in (waiting, waiting + more))
        assert one == other


@pytest.mark.parametrize(
    "values, waiting, expected",
    [
        ({}, pending(10, 10), None),
        ({}, pending(10, 109, minutes=4.99), None),
        ({}, pending(10, 109, minutes=5), 108),
        ({}, pending(10, 110), 109),
        ({}, pending(10, 500), 109),
        ({}, pending(10, 500, mean=100.0), 19),
        ({}, pending(10, 500, mean=1e9), 10),  # one message larger than the limit is a range of its own
        ({}, pending(10, 500, mean=0.0), 109),  # its size is not known
        ({"align": True}, pending(10, 50, minutes=4), AtBoundary(START, 49)),
        ({"align": True}, pending(10, 50, minutes=0), None),  # since the boundary: nothing from before it waits
        ({"align": True}, pending(10, 500, minutes=0), 109),
    ],
)
def test_when_a_range_is_due_and_where_it_ends(values: dict[str, Any], waiting: Pending, expected: object) -> None:
    assert cut(policy(**values), waiting, START) == expected


@pytest.mark.parametrize("align", [True, False])
def test_flushing_leaves_only_the_age_out_of_account(align: bool) -> None:
    assert cut(policy(align=align), pending(10, 50), START, flush=True) == 49
    assert cut(policy(align=align), pending(10, 500), START, flush=True) == 109


@given(st.sampled_from([1, 2, 5, 15, 60, 720, 1440]), moments)
def test_a_boundary_is_a_multiple_since_midnight_and_the_last_one(minutes: int, now: datetime) -> None:
    every = minutes * MINUTE
    found = boundary(every, now)
    assert found <= now < found + every
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    assert (found - midnight) % every == timedelta(0)


def test_a_boundary_does_not_depend_on_the_zone_of_the_clock() -> None:
    there = datetime.fromisoformat("2026-05-05T01:30:00+05:45")
    assert boundary(timedelta(hours=12), there) == datetime(2026, 5, 4, 12, tzinfo=UTC)


def aligned(*minutes: float, clock: FakeClock) -> tuple[Any, FakeKafka, Any]:
    bucket, kafka = memory(), FakeKafka()
    kafka.create("events")
    one = exporter(bucket, kafka, clock=clock, policy={"max_age": "5m", "align": True})
    one.step()
    dated(kafka, *minutes)
    return bucket, kafka, one


def dated(kafka: FakeKafka, *minutes: float) -> None:
    at = START.timestamp() * 1000
    kafka.append("events", 0, *(Message(messages(1)[0], int(at + minute * 60_000)) for minute in minutes))


def test_a_message_dated_far_ahead_does_not_hold_up_an_aligned_export() -> None:
    """Kafka's timestamps are the producer's word. One from 2099 would wait for 2099, with everything behind it."""
    clock = FakeClock()
    bucket, kafka, one = aligned(1, 1e7, 2, 3, clock=clock)
    clock.advance(301)
    one.step()
    assert bounds(bucket) == [("0", 0, 0)]  # up to it
    one.step()
    assert bounds(bucket) == [("0", 0, 0), ("0", 1, 3)]  # it, and what is behind it
    dated(kafka, 6, 7)
    clock.advance(300)
    one.step()
    assert bounds(bucket)[2:] == [("0", 4, 5)]  # though Kafka names message 1 for every boundary


def test_a_producer_whose_clock_is_a_little_fast_changes_no_boundary() -> None:
    clock = FakeClock()
    bucket, _, one = aligned(1, 5.2, 5.4, clock=clock)
    clock.advance(301)
    one.step()
    one.step()
    assert bounds(bucket) == [("0", 0, 0)]
    clock.advance(300)
    one.step()
    assert bounds(bucket) == [("0", 0, 0), ("0", 1, 2)]

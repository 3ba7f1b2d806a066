"""One feed in fake time: when it is asked, how it is asked, and what is stored."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from catchment.config import Feed
from catchment.feeds.downloads import Downloads
from catchment.feeds.fetch import NO_VALIDATORS, Body, Failure, Result, Unchanged, Validators
from catchment.feeds.names import Download, body_hash
from catchment.feeds.poll import Attempt, Poller
from catchment.feeds.schedule import Ticks
from catchment.testing.clock import FakeClock

EIGHT = datetime(2026, 11, 15, 8, tzinfo=UTC)
Answer = tuple[float, Result]  # seconds that it takes, and what comes


class Inline(Executor):
    """Does the work at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


class Scripted:
    """A server in fake time. After its last answer the test ends."""

    def __init__(self, clock: FakeClock, answers: list[Answer]) -> None:
        self.clock = clock
        self.answers = answers
        self.asked: list[tuple[float, Validators]] = []

    @asynccontextmanager
    async def slot(self, feed: Feed) -> AsyncIterator[None]:
        yield

    async def fetch(self, feed: Feed, validators: Validators = NO_VALIDATORS) -> Result:
        if len(self.asked) == len(self.answers):
            raise asyncio.CancelledError
        self.asked.append((self.clock.monotonic(), validators))
        seconds, result = self.answers[len(self.asked) - 1]
        self.clock.advance(seconds)
        return result

    @property
    def times(self) -> list[float]:
        return [time for time, _ in self.asked]


class Run:
    """Polls until the script is through."""

    def __init__(
        self,
        workspace: Path,
        answers: list[Answer],
        *,
        period: str = "10s",
        start: datetime = EIGHT,
        downloads: Downloads | None = None,
        lag: float = 0,
        paused: Callable[[float], bool] = lambda now: False,
    ) -> None:
        clock = FakeClock(start)
        self.server = Scripted(clock, answers)
        self.attempts: list[Attempt] = []
        self.downloads = downloads or Downloads(workspace)
        feed = Feed(id="subway", url="https://example.com/feed?key=hidden", periodicity=period, postfix=".pb")  # type: ignore[arg-type]

        async def wait(seconds: float) -> None:
            clock.advance(seconds + lag)

        poller = Poller(
            feed,
            Ticks(0.0, feed.periodicity.total_seconds()),
            self.server,
            self.downloads,
            report=self.attempts.append,
            pool=Inline(),
            paused=lambda: paused(clock.monotonic()),
            clock=clock,
            wait=wait,
            chance=lambda: 0.0,
        )
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(poller.run())
        self.sent = poller.sent

    @property
    def stored(self) -> list[bytes]:
        return [path.read_bytes() for found in self.downloads.before() for path in found.files]


def ok(body: bytes, etag: str | None = None) -> Body:
    return Body(body, Validators(etag))


def test_ticks_do_not_drift_however_long_answers_take(tmp_path: Path) -> None:
    run = Run(tmp_path, [(0.3 + n % 7, ok(b"%d" % n)) for n in range(50)])
    assert run.server.times == [10.0 * n for n in range(50)]


def test_late_wake_ups_do_not_add_up(tmp_path: Path) -> None:
    run = Run(tmp_path, [(0.1, ok(b"x"))] * 20, lag=0.25)
    assert run.server.times == [0.0] + [10.0 * n + 0.25 for n in range(1, 20)]
    assert {attempt.missed for attempt in run.attempts} == {0}


def test_a_slow_feed_skips_ticks_and_never_catches_up_in_a_bunch(tmp_path: Path) -> None:
    run = Run(tmp_path, [(1, ok(b"a")), (34, ok(b"b")), (1, ok(b"c")), (1, ok(b"d"))])
    assert run.server.times == [0, 10, 50, 60]
    assert [attempt.missed for attempt in run.attempts] == [0, 0, 3, 0]


def test_a_process_that_was_held_up_takes_the_newest_tick_only(tmp_path: Path) -> None:
    run = Run(tmp_path, [(0, ok(b"a")), (0, ok(b"b"))], lag=25)
    assert run.server.times == [0, 35]
    assert run.attempts[1].missed == 2
    assert run.attempts[1].due == 30


def test_errors_are_followed_by_growing_pauses_on_the_grid(tmp_path: Path) -> None:
    run = Run(tmp_path, [(0.5, Failure("status 503"))] * 6 + [(0.5, ok(b"a")), (0.5, ok(b"b"))], period="1s")
    assert run.server.times == [0, 1, 3, 6, 11, 20, 37, 38]
    assert [attempt.held for attempt in run.attempts] == [0, 0, 1, 2, 4, 8, 16, 0]
    assert [attempt.errors for attempt in run.attempts] == [1, 2, 3, 4, 5, 6, 0, 0]
    assert run.stored == [b"a", b"b"]


def test_a_server_that_asks_for_peace_gets_it(tmp_path: Path) -> None:
    run = Run(tmp_path, [(0, Failure("status 429", retry_after=25)), (0, ok(b"a"))])
    assert run.server.times == [0, 30]


def test_failures_store_nothing_and_say_why(tmp_path: Path) -> None:
    run = Run(tmp_path, [(1, Failure("status 500 Internal Server Error"))])
    assert run.stored == []
    assert run.attempts[0].note == "status 500 Internal Server Error"
    assert run.attempts[0].failed


def test_a_repeated_body_is_stored_once_but_one_that_comes_back_again(tmp_path: Path) -> None:
    run = Run(tmp_path, [(0, ok(body)) for body in (b"a", b"a", b"b", b"b", b"a")])
    assert run.stored == [b"a", b"b", b"a"]
    assert [attempt.stored is not None for attempt in run.attempts] == [True, False, True, False, True]
    assert not any(attempt.failed for attempt in run.attempts)


def test_an_unchanged_feed_is_stored_in_each_hour(tmp_path: Path) -> None:
    """Or an hour without a change would look like an hour in which the feed was down."""
    run = Run(tmp_path, [(0, ok(b"same"))] * 9, period="20m")
    assert run.stored == [b"same"] * 3
    assert [one.hour.text for one in run.downloads.before()] == ["20261115T08", "20261115T09", "20261115T10"]


def test_the_first_request_of_an_hour_is_never_conditional(tmp_path: Path) -> None:
    answers: list[Answer] = [(0, ok(b"a", '"1"')), (0, Unchanged()), (0, Unchanged())]
    run = Run(tmp_path, [*answers, *answers], period="20m")
    one = Validators('"1"')
    assert [validators for _, validators in run.server.asked] == [NO_VALIDATORS, one, one, NO_VALIDATORS, one, one]
    assert run.stored == [b"a", b"a"]


def test_validators_are_those_of_the_last_body_even_if_it_was_not_stored(tmp_path: Path) -> None:
    run = Run(tmp_path, [(0, ok(b"a", '"1"')), (0, ok(b"a", '"2"')), (0, Unchanged())])
    assert [validators for _, validators in run.server.asked] == [NO_VALIDATORS, Validators('"1"'), Validators('"2"')]


def test_after_a_restart_the_last_one_stored_in_the_hour_counts_as_the_one_before(tmp_path: Path) -> None:
    first = Run(tmp_path, [(0, ok(b"a")), (0, ok(b"b"))])
    again = Run(tmp_path, [(0, ok(b"b")), (0, ok(b"c"))], start=EIGHT + timedelta(minutes=5))
    assert again.server.asked[0][1] == NO_VALIDATORS
    assert again.stored == [b"a", b"b", b"c"]
    next_hour = Run(tmp_path, [(0, ok(b"c"))], start=EIGHT + timedelta(hours=1))
    assert next_hour.stored == [b"a", b"b", b"c", b"c"]
    assert first.attempts[0].note == "stored: the first of its hour"


def test_a_download_has_the_time_of_its_request_in_utc(tmp_path: Path) -> None:
    run = Run(tmp_path, [(5, ok(b"a"))], start=EIGHT - timedelta(seconds=1, microseconds=-1600))
    time = EIGHT - timedelta(milliseconds=999)
    assert run.attempts[0].stored == Download("subway", time, body_hash(b"a"), ".pb")
    assert [one.hour.text for one in run.downloads.before()] == ["20261115T07"]


def test_a_feed_that_is_fetched_once_an_hour_has_one_in_every_hour(tmp_path: Path) -> None:
    run = Run(
        tmp_path, [(1 + 2 * (n % 2), ok(b"a")) for n in range(5)], period="1h", start=EIGHT - timedelta(seconds=2)
    )
    hours = [one.hour.text for one in run.downloads.before()]
    assert hours == [f"20261115T{hour:02d}" for hour in range(7, 12)]


def test_a_body_that_cannot_be_stored_is_a_failure_and_is_asked_for_anew(tmp_path: Path) -> None:
    calls: list[int] = []

    def full_at_first(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    run = Run(tmp_path, [(0, ok(b"a", '"1"'))] * 2, downloads=Downloads(tmp_path, sync=full_at_first))
    assert run.attempts[0].note == "the body could not be stored: No space left on device"
    assert run.server.asked[1][1] == NO_VALIDATORS  # its validators are not believed
    assert run.stored == [b"a"]


def test_a_pause_leaves_ticks_out_and_the_grid_as_it_is(tmp_path: Path) -> None:
    run = Run(tmp_path, [(0, ok(b"a")), (0, ok(b"b"))], paused=lambda now: 5 < now < 45)
    assert run.server.times == [0, 50]
    assert [attempt.paused for attempt in run.attempts] == [0, 4]


def test_no_request_is_under_way_when_it_ended(tmp_path: Path) -> None:
    assert Run(tmp_path, [(0, ok(b"a"))]).sent is None

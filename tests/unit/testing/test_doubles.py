"""FakeClock and DyingBucket: do they do what tests rely on?"""

from __future__ import annotations

from datetime import timedelta

import pytest

from catchment.bucket.memory import MemoryBucket
from catchment.errors import Unreachable
from catchment.testing.clock import START, FakeClock
from catchment.testing.dying import Died, DyingBucket, lost_reply


def test_time_stands_still_until_it_is_moved() -> None:
    clock = FakeClock()
    assert clock.now() == clock.now() == START
    clock.sleep(5)
    clock.advance(1.5)
    assert clock.monotonic() == 6.5
    assert clock.now() - START == timedelta(seconds=6.5)
    assert clock.slept == [5]


def test_the_wall_clock_may_go_back_and_the_monotonic_one_may_not() -> None:
    clock = FakeClock()
    clock.advance(100)
    clock.set_wall(START)
    assert clock.monotonic() == 100
    with pytest.raises(ValueError, match="go back"):
        clock.advance(-1)


def test_dying_before_a_call_leaves_the_store_as_it_was() -> None:
    memory = MemoryBucket()
    bucket = DyingBucket(memory, at=2, when="before")
    bucket.put("a", b"")
    with pytest.raises(Died):
        bucket.put("b", b"")
    assert [entry.key for entry in memory.list()] == ["a"]


@pytest.mark.parametrize("error", [None, Died()])
def test_dying_after_a_call_leaves_what_it_did_and_the_dead_stay_dead(error: Died | None) -> None:
    memory = MemoryBucket()
    bucket = DyingBucket(memory, at=1, when="after", error=error)
    with pytest.raises(Died):
        bucket.put("a", b"")
    assert [entry.key for entry in memory.list()] == ["a"]
    for call in (lambda: bucket.put("b", b""), lambda: bucket.get("a"), lambda: list(bucket.list())):
        with pytest.raises(Died):
            call()
    assert bucket.log == ["put a"]


def test_a_lost_reply_fails_one_call_only() -> None:
    memory = MemoryBucket()
    bucket = DyingBucket(memory, at=1, when="after", error=lost_reply("a"))
    with pytest.raises(Unreachable):
        bucket.put("a", b"")
    assert bucket.get("a") == b""


def test_every_kind_of_call_counts() -> None:
    memory = MemoryBucket()
    memory.put("a", b"x")
    bucket = DyingBucket(memory, at=100)
    bucket.get("a")
    bucket.read("a")
    bucket.head("a")
    with bucket.open("a") as stream:
        stream.read()
    list(bucket.list())
    list(bucket.children())
    bucket.tags("a")
    bucket.tag("a", {})
    bucket.versions("a")
    bucket.copy("a", "b")
    bucket.delete("b")
    bucket.check()
    assert bucket.calls == 12

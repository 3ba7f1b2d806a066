"""The wrappers: what is tried again and what is not, what is counted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catchment.bucket.contract import ABSENT, Bucket, Entry
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Backoff, Counting, Retrying, Wrapper
from catchment.errors import BucketMissing, Conflict, Denied, NotFound, Transient
from catchment.testing.clock import FakeClock
from catchment.testing.dying import DyingBucket, lost_reply


def retrying(inner: Bucket, clock: FakeClock, attempts: int = 4) -> Retrying:
    return Retrying(inner, backoff=Backoff(attempts=attempts, first=1.0, longest=3.0), clock=clock, chance=lambda: 1.0)


def test_what_is_transient_is_tried_again() -> None:
    memory, clock = MemoryBucket(), FakeClock()
    bucket = retrying(DyingBucket(memory, at=1, error=lost_reply()), clock)
    bucket.put("k", b"x")
    assert memory.get("k") == b"x"
    assert clock.slept == [1.0]


class Broken(Wrapper):
    """Every call raises this."""

    def __init__(self, error: Exception) -> None:
        super().__init__(MemoryBucket())
        self.error, self.calls = error, 0

    def _call(self, operation: str, key: str, do: object) -> object:  # type: ignore[override]
        self.calls += 1
        raise self.error


@pytest.mark.parametrize(
    "error", [NotFound("x"), Conflict("x"), Denied("x"), BucketMissing("x"), OSError("a bug"), ValueError("a bug")]
)
def test_everything_else_is_raised_at_once(error: Exception) -> None:
    clock = FakeClock()
    inner = Broken(error)
    for call in (lambda b: b.get("k"), lambda b: list(b.list()), lambda b: b.put("k", b""), lambda b: b.delete("k")):
        inner.calls = 0
        with pytest.raises(type(error)):
            call(retrying(inner, clock))
        assert inner.calls == 1
    assert clock.slept == []


def test_it_gives_up_in_the_end_and_the_waits_grow_up_to_a_limit() -> None:
    clock = FakeClock()
    inner = Broken(lost_reply())
    with pytest.raises(Transient):
        retrying(inner, clock, attempts=5).get("k")
    assert inner.calls == 5
    assert clock.slept == [1.0, 2.0, 3.0, 3.0]


def test_waits_are_spread_by_chance() -> None:
    backoff = Backoff(first=1.0)
    assert backoff.wait(1, 0.0) == 0.5
    assert backoff.wait(1, 1.0) == 1.0
    assert backoff.wait(3, 0.5) == 3.0


class Stumbling(Wrapper):
    """Listings that break after every third entry."""

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[Entry]:
        for number, entry in enumerate(self.inner.list(prefix, after=after)):
            if number == 3:
                raise lost_reply()
            yield entry


def test_a_listing_goes_on_after_the_last_key_it_gave() -> None:
    memory = MemoryBucket()
    for n in range(10):
        memory.put(f"k{n}", b"")
    clock = FakeClock()
    assert [entry.key for entry in retrying(Stumbling(memory), clock, attempts=2).list()] == [
        f"k{n}" for n in range(10)
    ]
    assert clock.slept == [1.0, 1.0, 1.0]


def test_a_listing_that_cannot_be_read_to_its_end_raises() -> None:
    memory = MemoryBucket()
    for n in range(10):
        memory.put(f"k{n}", b"")
    seen = []
    with pytest.raises(Transient):
        for entry in Stumbling(memory).list():
            seen.append(entry.key)
    assert seen == ["k0", "k1", "k2"]


def test_opening_is_tried_again() -> None:
    memory, clock = MemoryBucket(), FakeClock()
    memory.put("k", b"x")
    with retrying(DyingBucket(memory, at=1, error=lost_reply()), clock).open("k") as stream:
        assert stream.read() == b"x"
    assert clock.slept == [1.0]


def test_an_error_of_the_reader_passes_through_open() -> None:
    memory = MemoryBucket()
    memory.put("k", b"x")
    bucket = Counting(Retrying(memory))
    with pytest.raises(KeyError), bucket.open("k"):
        raise KeyError
    with bucket.open("k") as stream:
        assert stream.read() == b"x"


def test_counting() -> None:
    bucket = Counting(MemoryBucket())
    bucket.put("k", b"12345")
    assert bucket.get("k") == b"12345"
    with bucket.open("k") as stream:
        assert stream.read(3) == b"123"
        assert stream.read() == b"45"
    list(bucket.list())
    bucket.delete("k")
    assert bucket.counts.sent == 5
    assert bucket.counts.received == 10
    assert dict(bucket.counts.requests) == {"put": 1, "get": 1, "open": 1, "list": 1, "delete": 1}
    assert bucket.counts.total == 5


def test_a_put_that_lost_sent_nothing_that_counts() -> None:
    bucket = Counting(MemoryBucket())
    bucket.put("k", b"12345")
    with pytest.raises(Conflict):
        bucket.put("k", b"12345", when=ABSENT)
    assert bucket.counts.sent == 5

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Counting
from catchment.errors import Unreachable
from catchment.monitor.owners import Owners, runs_here
from catchment.monitor.replica import Replica
from catchment.testing.clock import START, FakeClock
from catchment.testing.dying import DyingBucket
from tests.unit.topics.lakes import memory

OTHER = Replica("far-7-abc", "far", 7, "topics export", "1", START, 1, 10.0, "/w")


@pytest.fixture
def bucket() -> MemoryBucket:
    return memory()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def beat(bucket: MemoryBucket, number: int, replica: Replica = OTHER) -> None:
    bucket.put(replica.key, replace(replica, beat=number).body())


def test_a_process_without_a_record_is_gone(bucket: MemoryBucket, clock: FakeClock) -> None:
    assert Owners(bucket, clock=clock).gone(OTHER.id)


def test_a_record_that_vanished_means_a_clean_stop(bucket: MemoryBucket, clock: FakeClock) -> None:
    owners = Owners(bucket, clock=clock)
    beat(bucket, 1)
    assert not owners.gone(OTHER.id)
    bucket.delete(OTHER.key)
    clock.advance(5)
    assert owners.gone(OTHER.id)
    beat(bucket, 2)  # it was there after all
    assert not owners.gone(OTHER.id)


def test_a_record_that_stays_the_same_for_four_of_its_intervals_is_of_nobody(
    bucket: MemoryBucket, clock: FakeClock
) -> None:
    owners = Owners(bucket, clock=clock)
    beat(bucket, 1)
    found = []
    for _ in range(9):
        found.append(owners.gone(OTHER.id))
        clock.advance(5)
    assert found == [False] * 8 + [True]


def test_a_record_that_changes_is_of_a_living_process(bucket: MemoryBucket, clock: FakeClock) -> None:
    owners = Owners(bucket, clock=clock)
    for number in range(30):
        beat(bucket, number)
        assert not owners.gone(OTHER.id)
        clock.advance(10)


def test_who_looks_rarely_does_not_take_a_living_process_for_dead(bucket: MemoryBucket, clock: FakeClock) -> None:
    owners = Owners(bucket, clock=clock)
    beat(bucket, 1)
    owners.gone(OTHER.id)
    clock.advance(3600)
    beat(bucket, 361)
    assert not owners.gone(OTHER.id)


def test_a_wall_clock_that_is_set_plays_no_part(bucket: MemoryBucket, clock: FakeClock) -> None:
    owners = Owners(bucket, clock=clock)
    beat(bucket, 1)
    owners.gone(OTHER.id)
    clock.set_wall(START.replace(year=2031))
    assert not owners.gone(OTHER.id)


def test_one_read_at_most_in_half_an_interval(bucket: MemoryBucket, clock: FakeClock) -> None:
    counted = Counting(bucket)
    owners = Owners(counted, clock=clock)
    beat(bucket, 1)
    for _ in range(10):
        owners.gone(OTHER.id)
        clock.advance(1)
    assert dict(counted.counts.requests) == {"read": 2}


def test_a_process_of_this_machine_is_gone_as_soon_as_its_number_is_free(
    bucket: MemoryBucket, clock: FakeClock
) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    here = replace(OTHER, host=socket.gethostname(), pid=process.pid)
    beat(bucket, 1, here)
    owners = Owners(bucket, clock=clock)
    try:
        assert not owners.gone(here.id)
    finally:
        process.communicate(b"\n")
    assert owners.gone(here.id)


def test_a_process_of_another_machine_is_never_judged_by_its_number(bucket: MemoryBucket, clock: FakeClock) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert runs_here(socket.gethostname(), process.pid) is False
    assert runs_here("far", process.pid) is None
    beat(bucket, 1, replace(OTHER, pid=process.pid))
    assert not Owners(bucket, clock=clock).gone(OTHER.id)


def test_a_living_number_is_no_proof_of_life(bucket: MemoryBucket, clock: FakeClock) -> None:
    """Numbers are given out again: a record that stays the same counts more."""
    here = replace(OTHER, host=socket.gethostname(), pid=os.getpid())
    beat(bucket, 1, here)
    owners = Owners(bucket, clock=clock)
    assert not owners.gone(here.id)
    clock.advance(40)
    assert owners.gone(here.id)


def test_a_number_that_no_process_can_have_is_free() -> None:
    assert runs_here(socket.gethostname(), 1 << 70) is False


def test_a_bucket_that_does_not_answer_is_no_sign_of_death(bucket: MemoryBucket, clock: FakeClock) -> None:
    beat(bucket, 1)
    owners = Owners(DyingBucket(bucket, at=1, error=Unreachable("away")), clock=clock)
    with pytest.raises(Unreachable):
        owners.gone(OTHER.id)
    assert not owners.gone(OTHER.id)


def test_a_record_that_cannot_be_read_is_judged_by_its_changes(bucket: MemoryBucket, clock: FakeClock) -> None:
    owners = Owners(bucket, clock=clock)
    bucket.put(OTHER.key, b"?")
    assert not owners.gone(OTHER.id)
    clock.advance(59)
    assert not owners.gone(OTHER.id)
    clock.advance(1)
    assert owners.gone(OTHER.id)

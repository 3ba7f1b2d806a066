"""Leases on a fake clock: each row of the table in the module's docstring."""

from __future__ import annotations

import pytest

from catchment.bucket.lease import Held, Lease, Leases
from catchment.bucket.memory import MemoryBucket
from catchment.errors import BucketError, LeaseLost
from catchment.testing.clock import FakeClock


class World:
    """Two owners and one bucket, each owner with a clock of its own."""

    def __init__(self) -> None:
        self.bucket = MemoryBucket()
        self.clocks = {"a": FakeClock(), "b": FakeClock()}
        self.leases = {who: Leases(self.bucket, who, ttl=10, clock=self.clocks[who]) for who in "ab"}

    def take(self, who: str) -> Lease:
        lease = self.leases[who].acquire("lock")
        assert isinstance(lease, Lease)
        return lease

    def held(self, who: str) -> Held:
        held = self.leases[who].acquire("lock")
        assert isinstance(held, Held)
        return held


@pytest.fixture
def world() -> World:
    return World()


def test_an_absent_lease_is_taken(world: World) -> None:
    assert world.take("a").epoch == 1


def test_a_held_lease_is_not(world: World) -> None:
    world.take("a")
    held = world.held("b")
    assert (held.owner, held.epoch, held.wait) == ("a", 1, 10)


def test_a_free_lease_is_taken_with_the_next_epoch(world: World) -> None:
    world.leases["a"].free(world.take("a"))
    assert world.take("b").epoch == 2


def test_a_lease_that_does_not_change_for_its_ttl_on_the_watchers_clock_is_taken_over(world: World) -> None:
    world.take("a")
    assert world.held("b").wait == 10
    world.clocks["b"].advance(9.9)
    assert world.held("b").wait == pytest.approx(0.1)
    world.clocks["b"].advance(0.1)
    assert world.take("b").epoch == 2


def test_the_first_look_never_takes_over_however_old_the_record_is(world: World) -> None:
    world.take("a")
    world.clocks["b"].advance(1_000_000)
    assert world.held("b").wait == 10


def test_a_renewed_lease_is_not_taken_over(world: World) -> None:
    lease = world.take("a")
    for _ in range(5):
        world.held("b")
        world.clocks["b"].advance(9)
        lease = world.leases["a"].renew(lease)
    assert world.held("b").owner == "a"
    assert lease.epoch == 1


def test_a_wall_clock_that_jumps_changes_nothing(world: World) -> None:
    world.take("a")
    world.held("b")
    world.clocks["b"].set_wall(world.clocks["b"].now().replace(year=2099))
    assert world.held("b").wait == 10


def test_an_owner_that_was_taken_over_finds_out(world: World) -> None:
    lease = world.take("a")
    world.held("b")
    world.clocks["b"].advance(10)
    world.take("b")
    for use in (world.leases["a"].renew, world.leases["a"].free):
        with pytest.raises(LeaseLost) as caught:
            use(lease)
        assert "lock" in str(caught.value)
    assert world.held("a").owner == "b"


def test_a_renewal_whose_reply_was_lost_can_be_made_again(world: World) -> None:
    lease = world.take("a")
    world.leases["a"].renew(lease)  # took effect, but whoever asked for it never heard
    again = world.leases["a"].renew(lease)
    assert again.epoch == 1
    world.leases["a"].free(again)
    with pytest.raises(LeaseLost):
        world.leases["a"].renew(lease)


def test_the_owner_itself_does_not_get_it_twice(world: World) -> None:
    world.take("a")
    assert world.held("a").owner == "a"


def test_a_record_that_a_person_removed_is_free(world: World) -> None:
    lease = world.take("a")
    world.bucket.delete("lock")
    assert world.take("b").owner == "b"
    with pytest.raises(LeaseLost):
        world.leases["a"].renew(lease)


def test_a_note_is_shown_to_whoever_asks(world: World) -> None:
    lease = world.leases["a"].acquire("lock", note="batch 7")
    assert isinstance(lease, Lease)
    assert world.held("b").note == "batch 7"
    world.leases["a"].renew(lease, note="batch 8")
    assert world.held("b").note == "batch 8"


def test_the_owners_ttl_counts_and_not_the_watchers(world: World) -> None:
    impatient = Leases(world.bucket, "c", ttl=0.001, clock=world.clocks["b"])
    world.take("a")
    held = impatient.acquire("lock")
    assert isinstance(held, Held)
    assert held.wait == 10


@pytest.mark.parametrize("body", [b"{}", b'{"epoch": "one"}', b"[]", b"x"])
def test_something_else_at_the_leases_key_is_not_written_over(world: World, body: bytes) -> None:
    world.bucket.put("lock", body)
    with pytest.raises(BucketError):
        world.leases["a"].acquire("lock")
    assert world.bucket.get("lock") == body

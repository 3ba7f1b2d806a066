"""Which hours are copied, and with real archives that they arrive whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Counting
from catchment.feeds.delete import delete, plan_delete, revive
from catchment.feeds.hours import Listing, Span, Stored, list_hour
from catchment.feeds.names import Archive, Compression, set_hash
from catchment.feeds.reconcile import Rules
from catchment.feeds.replicate import Copy, Place, lacking, replicate
from catchment.feeds.scratch import scratch
from catchment.feeds.settle import settle
from catchment.feeds.upload import upload
from catchment.testing.clock import FakeClock
from tests.unit.feeds.archives import FEED, HOUR, hour_of, packed

GZIP, ZSTD = Compression.GZIP, Compression.ZSTD
SPAN = Span(HOUR, HOUR.next)


def listed(*names: str | None, deleted: bool = False, busy: tuple[str, ...] = ()) -> Listing:
    archives = [Archive(FEED, HOUR, None if name is None else set_hash(name), GZIP) for name in names]
    return Listing(FEED, HOUR, tuple(Stored(one.key, one, 1, None) for one in archives), deleted, busy)


@pytest.mark.parametrize(
    ("one", "two", "wanted"),
    [
        (listed("x"), listed(), ["one>two"]),
        (listed(), listed("x"), ["two>one"]),
        (listed(None), listed(), ["one>two"]),
        (listed("x", "y"), listed(), ["one>two"]),
        (listed("x"), listed("x"), []),
        (listed("x"), listed("y"), ["two>one", "one>two"]),
        (listed("x"), listed(None), []),  # a primary archive's name does not say what it holds
        (listed("x"), listed("x", "y"), []),  # two has to be reconciled first
        (listed("x"), listed(deleted=True), []),
        (listed("x", deleted=True), listed(), []),
        (listed("x"), listed(busy=("b",)), []),
        (listed(), listed(), []),
    ],
)
def test_what_is_lacking(one: Listing, two: Listing, wanted: list[str]) -> None:
    assert lacking({"one": one, "two": two}) == [Copy(FEED, HOUR, *pair.split(">")) for pair in wanted]


def test_of_three_storages_one_copy_each_is_enough() -> None:
    found = lacking({"one": listed("x"), "two": listed("x"), "three": listed()})
    assert found == [Copy(FEED, HOUR, "one", "three")]


class Storages:
    """Two of them, with real archives."""

    def __init__(self, tmp_path: Path, one: Rules, two: Rules) -> None:
        self.one, self.two = Counting(MemoryBucket()), Counting(MemoryBucket())
        self.places = {"one": Place(self.one, one), "two": Place(self.two, two)}
        self.codecs = scratch(tmp_path / "scratch")

    def replicate(self) -> list[Copy]:
        return replicate(self.places, FEED, SPAN, self.codecs)


def test_an_hour_is_copied_byte_for_byte_and_then_not_again(tmp_path: Path) -> None:
    done = packed(tmp_path, hour_of({1: b"one", 2: b"two"}))
    both = Storages(tmp_path, Rules(ZSTD), Rules(GZIP))
    upload(both.one, done.path)
    assert both.replicate() == [Copy(FEED, HOUR, "one", "two")]
    assert both.two.get(done.archive.key) == done.path.read_bytes()
    for bucket in (both.one, both.two):
        bucket.counts.requests.clear()
    assert both.replicate() == []
    assert both.one.counts.requests == both.two.counts.requests == {"list": 1}


@pytest.mark.parametrize("target", ["hashed", "primary"])
def test_a_primary_archive_is_copied_by_what_it_holds(tmp_path: Path, target: str) -> None:
    done = packed(tmp_path, hour_of({1: b"one", 2: b"two"}), GZIP)
    given = Rules(GZIP, "primary") if target == "primary" else Rules(GZIP, "hashed")
    both = Storages(tmp_path, Rules(GZIP, "primary"), given)
    upload(both.one, done.path)
    settle(both.one, FEED, HOUR, both.places["one"].rules, both.codecs)
    assert both.replicate() == [Copy(FEED, HOUR, "one", "two")]
    [stored] = list_hour(both.two, FEED, HOUR).archives
    assert stored.archive == (done.archive if target == "hashed" else Archive(FEED, HOUR, None, GZIP))
    assert both.two.get(stored.key) == done.path.read_bytes()


def test_an_hour_that_was_deleted_stays_deleted_until_it_is_revived(tmp_path: Path) -> None:
    done = packed(tmp_path, hour_of({1: b"one"}))
    both = Storages(tmp_path, Rules(ZSTD), Rules(ZSTD))
    upload(both.one, done.path)
    both.replicate()
    delete(both.two, plan_delete(both.two, [FEED], SPAN).hours, clock=FakeClock())
    assert both.replicate() == []
    assert list_hour(both.two, FEED, HOUR).archives == ()
    assert len(list_hour(both.one, FEED, HOUR).archives) == 1  # the other storage is left alone
    revive(both.two, [FEED], SPAN)
    assert len(both.replicate()) == 1
    assert len(list_hour(both.two, FEED, HOUR).archives) == 1


def test_damage_is_not_copied(tmp_path: Path) -> None:
    done = packed(tmp_path, hour_of({second: b"body %d" % second * 50 for second in range(20)}), GZIP)
    both = Storages(tmp_path, Rules(GZIP), Rules(GZIP))
    both.one.put(done.archive.key, done.path.read_bytes()[:-200])
    both.replicate()
    [stored] = list_hour(both.two, FEED, HOUR).archives
    assert stored.archive.hash != done.archive.hash
    with both.two.open(stored.key) as stream, both.codecs() as codec:
        found = codec.fetch(stored.archive, stream)
    assert not found.damaged
    assert set_hash(found.names) == stored.archive.hash
    assert found.names < frozenset(done.members)


def test_what_was_emptied_because_it_was_damaged_is_healed_from_the_other_storage(tmp_path: Path) -> None:
    """Without versions a damaged archive is emptied and keeps its key, which must not pass for its content."""
    done = packed(tmp_path, hour_of({second: b"body %d" % second * 50 for second in range(20)}), GZIP)
    both = Storages(tmp_path, Rules(GZIP), Rules(GZIP))
    both.two = Counting(MemoryBucket(versions=False))
    both.places["two"] = Place(both.two, Rules(GZIP))
    upload(both.one, done.path)
    both.two.put(done.archive.key, done.path.read_bytes()[:200])
    settle(both.two, FEED, HOUR, Rules(GZIP), both.codecs, thorough=True)
    assert both.two.head(done.archive.key).size == 0
    both.replicate()
    assert both.two.get(done.archive.key) == done.path.read_bytes()

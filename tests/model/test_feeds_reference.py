"""The decision tree of the reference design for `primary`, and the run in which a paused process loses data under it.

The tree is modelled as it is described: one task after each look; before copying a secondary archive to the primary key
it waits and checks that nothing has changed; before deleting the primary archive it checks once more (the poll in the
background). A model has no seconds. A wait is a place where others can go on, and so is any other call: a process that
is paused there (a stopped virtual machine, a swapped-out page, a slow network) looks the same to the bucket.
"""

from __future__ import annotations

import json

import pytest

from catchment.bucket.contract import Bucket, Entry
from catchment.errors import NotFound
from catchment.feeds.names import Archive, set_hash
from catchment.feeds.reconcile import Rules
from catchment.feeds.settle import settle
from catchment.testing.interleave import Interleaver, InvariantBroken
from tests.model.sets import FEED, GZIP, HOUR, encode, ends_in, nothing_is_lost, sets, upload_of

PRIMARY = Archive(FEED, HOUR, None, GZIP).key
CYCLES = 12


def reference(bucket: Bucket) -> None:
    """Repeat the decision tree until its last leaf: only the primary archive is left."""
    for _ in range(CYCLES):
        try:
            if one_cycle(bucket):
                return
        except NotFound:
            continue  # somebody else was at work: start the cycle again


def one_cycle(bucket: Bucket) -> bool:
    seen = look(bucket)
    secondaries = [entry.key for entry in seen if entry.key != PRIMARY]
    primary = any(entry.key == PRIMARY for entry in seen)
    if not secondaries:
        return True
    if len(secondaries) > 1:
        merge(bucket, secondaries, remove=secondaries)
        return False
    [only] = secondaries
    if not primary:
        # "waits five seconds, checks that the state of the hour's objects hasn't changed, and then copies"
        if look(bucket) == seen:
            bucket.copy(only, PRIMARY)
        return False
    mine, stable = names(bucket, only), names(bucket, PRIMARY)
    if mine <= stable:
        bucket.delete(only)
    elif stable < mine:
        # "a background process which polls the bucket every second"
        if look(bucket) == seen:
            bucket.delete(PRIMARY)
    else:
        merge(bucket, [only, PRIMARY], remove=[only])
    return False


def look(bucket: Bucket) -> list[Entry]:
    return list(bucket.list(HOUR.prefix(FEED)))


def names(bucket: Bucket, key: str) -> frozenset[str]:
    return frozenset(json.loads(bucket.get(key))["names"])


def merge(bucket: Bucket, keys: list[str], *, remove: list[str]) -> None:
    union = frozenset[str]().union(*(names(bucket, key) for key in keys))
    target = Archive(FEED, HOUR, set_hash(union), GZIP).key
    bucket.put(target, encode(union, GZIP))
    for key in remove:
        if key != target:
            bucket.delete(key)


def ours(bucket: Bucket) -> None:
    assert settle(bucket, FEED, HOUR, Rules(GZIP, "primary"), sets).settled


def late_upload(bucket: Bucket) -> None:
    """The hour has its primary archive, and a replica that was late has brought more."""
    bucket.put(PRIMARY, encode("x", GZIP))
    bucket.put(*upload_of("xy"))


def test_one_process_alone_works_through_the_tree() -> None:
    explored = Interleaver(
        {"a": reference}, setup=late_upload, relation=nothing_is_lost, final=ends_in("xy", key=PRIMARY)
    ).explore()
    assert explored.complete


def test_two_processes_lose_everything_when_one_is_paused_between_looking_and_deleting() -> None:
    explorer = Interleaver(
        {"other": reference, "paused": reference}, setup=late_upload, relation=nothing_is_lost, versions=False
    )
    with pytest.raises(InvariantBroken) as caught:
        explorer.explore()
    told = str(caught.value)
    print(f"\n{told}")
    assert told.startswith("lost ['x', 'y']")
    last = told.splitlines()[-1]
    assert last.endswith(f"delete {PRIMARY}")


def test_ours_keeps_everything_in_every_order_from_the_same_start() -> None:
    explored = Interleaver(
        {"a": ours, "b": ours},
        setup=late_upload,
        relation=nothing_is_lost,
        final=ends_in("xy", key=PRIMARY),
        crashes=1,
        versions=False,
    ).explore()
    print(f"\nprimary, from where the reference's tree loses data: {explored.states} distinct states")
    assert explored.complete

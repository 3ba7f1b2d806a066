"""Every order of the bucket calls of replicas that export one Kafka partition, with pauses, crashes and lost replies.

What holds at every moment: manifests never change and never overlap; whatever one lists is there, unchanged. And at
the end: every offset is in exactly one committed file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from catchment.bucket.contract import Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.errors import NotFound, Unreachable
from catchment.testing.clock import START
from catchment.testing.interleave import Interleaver
from catchment.testing.topics import FakeKafka
from catchment.topics import identity
from catchment.topics.names import Place
from catchment.topics.repair import repair
from tests.unit.topics.lakes import counter, export, exporter, manifests, messages

PLACE = Place("g", "events")
OLD: dict[str, Any] = {"generation": 1}
NEW: dict[str, Any] = {"generation": 2, "decode": "json"}


def kafka(number: int) -> FakeKafka:
    made = FakeKafka()
    made.create("events")
    made.append("events", 0, *messages(number))
    return made


def begun(bucket: Bucket) -> None:
    """Both generations are known already: registering is a swap like any other, and has tests of its own."""
    nonce = counter("setup")
    for values in (OLD, NEW):
        identity.register(bucket, PLACE, "id-1", export(**values), lambda: {0: 0}, nonce=nonce)


def nonce_of(bucket: Bucket) -> Callable[[], str]:
    """The nonces of one process: never the same one twice, also when it begins anew after a failure."""
    if not hasattr(bucket, "nonce"):
        bucket.nonce = counter(bucket.name)  # type: ignore[attr-defined]
    return bucket.nonce  # type: ignore[attr-defined,no-any-return]


def replica(number: int, cut: int, *, gone: bool = True, **values: Any) -> Callable[[Bucket], object]:
    """A process that exports what there is, cutting after so many messages. `gone`: it takes all others for dead."""

    made = export(policy={"max_messages": cut}, heartbeat="1d", **values)
    topics = kafka(number)  # only read from

    def task(bucket: Bucket) -> None:
        one = exporter(bucket, topics, owner=bucket.name, gone=lambda owner: gone, nonce=nonce_of(bucket), made=made)
        for _ in range(8):
            if not one.step(flush=True).again:
                return

    return task


def mending(bucket: Bucket) -> None:
    repair(bucket, PLACE, now=START, nonce=nonce_of(bucket))


def listed_is_there(bucket: MemoryBucket) -> None:
    covered: set[int] = set()
    expected = 0
    for manifest in manifests(bucket):
        assert manifest.first == expected, f"the chain breaks at {expected}"
        expected = manifest.next
        for file in manifest.files:
            try:
                assert bucket.head(file.key).etag == file.etag, f"{file.key} has changed"
            except NotFound:
                raise AssertionError(f"{file.key} is gone") from None
            held = set(json.loads(bucket.get(file.key))["offsets"])
            assert not held & covered, f"{held & covered} are there twice"
            covered |= held
    assert covered == set(range(expected)), f"{set(range(expected)) - covered} are missing"


def manifests_stay(before: MemoryBucket, after: MemoryBucket) -> None:
    for entry in before.list(PLACE.commits()):
        assert before.get(entry.key) == after.get(entry.key), f"{entry.key} has changed"


def complete(number: int) -> Callable[[MemoryBucket], None]:
    def check(bucket: MemoryBucket) -> None:
        done = [offset for manifest in manifests(bucket) for offset in range(manifest.first, manifest.next)]
        assert done == list(range(number)), f"committed: {done}"

    return check


def explorer(tasks: dict[str, Callable[[Bucket], object]], number: int, **more: Any) -> Interleaver:
    return Interleaver(
        tasks,
        setup=begun,
        invariant=listed_is_there,
        relation=manifests_stay,
        final=complete(number),
        versions=False,
        limit=3_000_000,
        **more,
    )


def explored(tasks: dict[str, Callable[[Bucket], object]], number: int, **more: Any) -> None:
    found = explorer(tasks, number, **more).explore()
    print(f"{', '.join(tasks)}: {found.states} distinct states, {found.runs} runs")
    assert found.complete
    assert found.states > 100


def test_two_replicas_with_two_cuts() -> None:
    explored({"a": replica(3, 2), "b": replica(3, 3)}, 3)


def test_one_that_respects_claims_and_one_that_does_not() -> None:
    """The second never takes over; what it leaves undone the first one does."""
    explored({"a": replica(3, 2), "b": replica(3, 3, gone=False)}, 3)


def test_two_definitions_side_by_side() -> None:
    explored({"old": replica(3, 2, **OLD), "new": replica(3, 3, **NEW)}, 3)


def test_repair_at_any_time() -> None:
    explored({"old": replica(1, 1, **OLD), "new": replica(1, 1, **NEW), "repair": mending}, 1)


def test_a_crash_anywhere() -> None:
    explored({"a": replica(1, 1), "b": replica(1, 1)}, 1, crashes=1)


def test_a_lost_reply_anywhere() -> None:
    # The exporter ends its step with the error, and the loop around it begins the next one: here, the process again.
    explored({"a": again(replica(1, 1)), "b": again(replica(1, 1))}, 1, lost=1)


@pytest.mark.soak
def test_two_definitions_two_cuts_repair_crashes_and_lost_replies_by_chance() -> None:
    """More than every order could be tried of: so many schedules by chance, each to its end."""
    tasks = {
        "old": again(replica(3, 2, **OLD)),
        "new": again(replica(3, 3, **NEW)),
        "third": again(replica(3, 1, **NEW)),
        "repair": again(mending),
    }
    found = explorer(tasks, 3, crashes=2, lost=1).sample(3000, seed=11)
    print(f"{', '.join(tasks)}: {found.states} distinct states in {found.runs} schedules by chance")
    assert found.states > 10_000


@pytest.mark.soak
def test_two_cuts_and_a_crash_by_chance() -> None:
    found = explorer({"a": replica(4, 1), "b": replica(4, 3)}, 4, crashes=2).sample(3000, seed=12)
    print(f"a, b: {found.states} distinct states in {found.runs} schedules by chance")
    assert found.states > 10_000


def again(task: Callable[[Bucket], object]) -> Callable[[Bucket], object]:
    """What a loop does: a step that failed is begun anew."""

    def persistent(bucket: Bucket) -> None:
        for _ in range(3):
            try:
                task(bucket)
            except Unreachable:
                continue
            return

    return persistent

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from catchment.bucket.contract import Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Counting
from catchment.errors import BucketError, ExportStopped, Unreachable
from catchment.testing.clock import START, FakeClock
from catchment.testing.dying import DyingBucket, lost_reply
from catchment.testing.topics import FakeKafka
from catchment.topics import offsets
from catchment.topics.manifest import Counts, Manifest
from catchment.topics.names import Place, Source
from catchment.topics.offsets import Busy, Claim, Hint, Known
from catchment.topics.repair import repair
from tests.unit.topics.lakes import bounds, exporter, memory, messages, run

PLACE = Place("g", "events")
SOURCE = Source(3)
KEY = PLACE.hint(SOURCE)
MOMENT = "2026-01-01T00:00:00.000Z"
LATER = "2026-01-02T00:00:00.000Z"


@pytest.fixture
def bucket() -> MemoryBucket:
    return memory()


def manifest(first: int, last: int, **more: Any) -> Manifest:
    gaps = Counts(0, last - first + 1, 0, 0, 0)
    holes = ((first, last),)
    return Manifest("events", "id", SOURCE, first, last, 1, "f", gaps, holes=holes, **more)


def claim(first: int, last: int, owner: str = "me", **more: Any) -> Claim:
    return Claim(first, last, owner, 1, "f", **more)


def put(bucket: Bucket, *ranges: tuple[int, int]) -> None:
    for first, last in ranges:
        offsets.commit(bucket, PLACE, manifest(first, last))


def hinted(bucket: Bucket, hint: Hint) -> Known:
    known = offsets.read_hint(bucket, PLACE, SOURCE, 0)
    return offsets.write_hint(bucket, known, hint, START)


def acquire(bucket: Bucket, known: Known, want: Claim, *, gone: bool = False, **more: Any) -> Known | Busy:
    return offsets.acquire(bucket, PLACE, SOURCE, known, want, lambda owner: gone, START, **more)


def read(bucket: Bucket) -> Hint:
    return offsets.read_hint(bucket, PLACE, SOURCE, 0).hint


# -- reading


def test_a_hint_is_read_as_it_was_written(bucket: MemoryBucket) -> None:
    hint = Hint(7, claim(7, 9, watermark=LATER, error="no"), MOMENT, None, 12.5)
    hinted(bucket, hint)
    assert read(bucket) == replace(hint, refreshed=MOMENT)


def test_without_a_hint_it_begins_at_the_start_of_the_export(bucket: MemoryBucket) -> None:
    known = offsets.load(bucket, PLACE, SOURCE, 17)
    assert (known.hint, known.document.exists) == (Hint(17), False)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"next": None},
        {"next": "x"},
        {"next": -1},
        {"next": 3, "claim": 5},
        {"next": 3, "claim": [1]},
        {"next": 3, "claim": {"first": 3}},
        {"next": 3, "claim": {"first": 3, "last": "9", "owner": "", "generation": 1, "fingerprint": "f"}},
        {"next": 3, "claim": {"first": 3, "last": 2, "owner": "", "generation": 1, "fingerprint": "f"}},
        {"next": 3, "claim": {"first": 2, "last": 9, "owner": "", "generation": 1, "fingerprint": "f"}},
        {
            "next": 3,
            "claim": {
                "first": 3,
                "last": 9,
                "owner": "",
                "generation": 1,
                "fingerprint": "f",
                "watermark": "yesterday",
            },
        },
        {"next": 3, "watermark": "soon"},
        {"next": 3, "watermark": "2026-01-01T00:00:00"},  # which zone?
        {"next": 3, "refreshed": 5},
        {"next": 3, "mean": "much"},
    ],
)
def test_what_is_not_a_hint_is_an_error_that_says_how_to_rebuild_it(bucket: MemoryBucket, value: object) -> None:
    bucket.put(KEY, json.dumps(value).encode())
    with pytest.raises(ExportStopped, match="catchment topics repair --group g --topic events"):
        offsets.read_hint(bucket, PLACE, SOURCE, 0)


def test_a_bucket_that_does_not_answer_is_not_a_broken_hint(bucket: MemoryBucket) -> None:
    with pytest.raises(Unreachable):
        offsets.read_hint(DyingBucket(bucket, at=1, error=Unreachable("away")), PLACE, SOURCE, 0)


def test_a_hint_that_is_behind_is_followed_by_the_chain_and_each_range_gets_its_duty(bucket: MemoryBucket) -> None:
    hinted(bucket, Hint(5))
    put(bucket, (0, 4), (5, 9), (10, 10), (11, 30), (40, 50))
    seen: list[int] = []
    counted = Counting(bucket)
    known = offsets.load(counted, PLACE, SOURCE, 0, lambda one: seen.append(one.first))
    assert known.hint.next == 31  # what comes after the gap is not reached
    assert seen == [5, 10, 11]
    assert dict(counted.counts.requests) == {"read": 5}


def test_a_hint_that_is_gone_is_found_by_names_whatever_else_lies_there(bucket: MemoryBucket) -> None:
    put(bucket, *((n, n) for n in range(2, 30)))
    bucket.put(f"{PLACE.commits(SOURCE)}notes.txt", b"from a person")
    bucket.put(f"{PLACE.commits(SOURCE)}{99:020d}.json.bak", b"from a person")
    counted = Counting(bucket)
    assert offsets.load(counted, PLACE, SOURCE, 2).hint.next == 30
    assert counted.counts.requests["read"] == 4  # and not one for each range


def test_a_manifest_that_cannot_be_read_is_never_gone_over(bucket: MemoryBucket) -> None:
    put(bucket, (0, 4))
    bucket.put(PLACE.commit(SOURCE, 5), b"{}")
    with pytest.raises(BucketError, match="not a manifest that can be read"):
        offsets.load(bucket, PLACE, SOURCE, 0)


# -- what a commit does to a hint


@pytest.mark.parametrize(
    "before, expected",
    [
        (Hint(0), Hint(10)),
        (Hint(0, claim(0, 9, watermark=LATER), MOMENT), Hint(10, None, LATER)),
        (Hint(0, claim(0, 9), MOMENT), Hint(10, None, MOMENT)),
        (Hint(0, claim(0, 12, watermark=LATER), MOMENT), Hint(10, None, MOMENT)),  # only a part of it came true
        (Hint(0, claim(0, 5, watermark=MOMENT), LATER), Hint(10, None, LATER)),  # it never goes back
        (Hint(10, claim(10, 12)), Hint(10, claim(10, 12))),
        (Hint(99), Hint(99)),
    ],
)
def test_a_committed_range_ends_claims_and_moves_watermarks(before: Hint, expected: Hint) -> None:
    assert offsets.after(before, manifest(0, 9)) == expected


def test_the_mean_of_a_message_comes_from_ranges_that_had_some() -> None:
    full = replace(manifest(0, 9), counts=Counts(0, 10, 0, 0, 0), raw_bytes=5)
    assert offsets.after(Hint(0, mean=7.0), full).mean == 7.0
    counts = Counts(4, 0, 0, 0, 4)
    read = Manifest("events", "id", SOURCE, 0, 3, 1, "f", counts, raw_bytes=100)
    assert offsets.after(Hint(0, mean=7.0), read).mean == 25.0


# -- claims


def test_a_claim_costs_one_swap(bucket: MemoryBucket) -> None:
    counted = Counting(bucket)
    got = acquire(counted, offsets.load(bucket, PLACE, SOURCE, 0), claim(0, 9))
    assert isinstance(got, Known)
    assert got.hint.claim == claim(0, 9) == read(bucket).claim
    assert dict(counted.counts.requests) == {"put": 1}


def test_of_two_who_claim_the_second_leaves_it_to_the_first(bucket: MemoryBucket) -> None:
    known = offsets.load(bucket, PLACE, SOURCE, 0)
    acquire(bucket, known, claim(0, 9, "one"))
    got = acquire(bucket, known, claim(0, 4, "two"))
    assert isinstance(got, Busy)
    assert got.owner == "one"
    assert read(bucket).claim == claim(0, 9, "one")


@pytest.mark.parametrize("owner, gone", [("one", True), ("", False)])
def test_a_claim_is_taken_over_with_its_bounds_and_its_promise(bucket: MemoryBucket, owner: str, gone: bool) -> None:
    old = claim(0, 9, owner, since=MOMENT, watermark=LATER, error="it failed")
    known = hinted(bucket, Hint(0, old))
    want = replace(claim(0, 4, "two"), generation=2, fingerprint="g", watermark=MOMENT)
    got = acquire(bucket, known, want, gone=gone)
    assert isinstance(got, Known)
    assert got.hint.claim == Claim(0, 9, "two", 2, "g", MOMENT, LATER, "")


def test_our_own_claim_is_ours_without_a_request(bucket: MemoryBucket) -> None:
    known = hinted(bucket, Hint(0, claim(0, 9)))
    counted = Counting(bucket)
    assert acquire(counted, known, claim(0, 4)) == known
    assert counted.counts.total == 0


def test_an_owner_that_died_between_commit_and_hint_is_followed_and_its_duty_done(bucket: MemoryBucket) -> None:
    known = hinted(bucket, Hint(0, claim(0, 9, "dead", watermark=LATER)))
    put(bucket, (0, 9))
    seen: list[int] = []
    got = acquire(bucket, known, claim(0, 4), gone=True, duty=lambda one: seen.append(one.first))
    assert isinstance(got, Known)
    assert got.hint == replace(known.hint, next=10, claim=None, watermark=LATER)
    assert seen == [0]


def test_who_claims_what_is_committed_already_is_told_so(bucket: MemoryBucket) -> None:
    stale = offsets.load(bucket, PLACE, SOURCE, 0)
    hinted(bucket, Hint(10))
    got = acquire(bucket, stale, claim(0, 4))
    assert isinstance(got, Known)
    assert (got.hint.next, got.hint.claim) == (10, None)


def test_a_hint_that_is_behind_what_we_know_moves_forward_with_our_claim(bucket: MemoryBucket) -> None:
    stale = hinted(bucket, Hint(0, claim(0, 9, "slow")))
    put(bucket, (0, 9))
    known = offsets.follow(bucket, PLACE, SOURCE, stale, lambda one: None)
    got = acquire(bucket, known, claim(10, 14))
    assert isinstance(got, Known)
    assert (read(bucket).next, read(bucket).claim) == (10, claim(10, 14))


def test_a_claim_that_begins_elsewhere_is_a_problem_and_does_not_keep_an_export_busy_for_ever() -> None:
    """Nobody writes such a hint. It could neither be worked on nor be gone over."""
    bucket, kafka = memory(), FakeKafka()
    kafka.create("events")
    kafka.append("events", 0, *messages(6))
    run(exporter(bucket, kafka))
    kafka.append("events", 0, *messages(6))
    key = PLACE.hint(Source(0))
    odd = Hint(0, claim(8, 9, "dead")).plain()["claim"]
    bucket.put(key, json.dumps(json.loads(bucket.get(key)) | {"claim": odd}).encode())
    [step] = run(exporter(bucket, kafka, owner="next", gone=lambda owner: True))
    assert "catchment topics repair" in step.problems[0]


# -- commits, and after them


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_reply_to_a_commit_is_settled_by_the_nonce(bucket: MemoryBucket, when: str) -> None:
    """The retry is told Conflict by its own first attempt, and must not take that for somebody else's."""

    class Again(DyingBucket):
        def put(self, *values: Any, **more: Any) -> Any:
            try:
                return super().put(*values, **more)
            except Unreachable:
                return super().put(*values, **more)

    failing = Again(bucket, at=1, when=when, error=lost_reply())
    assert offsets.commit(failing, PLACE, manifest(0, 9))[1]
    winner, ours = offsets.commit(bucket, PLACE, manifest(0, 4))
    assert (winner.last, ours) == (9, False)


def test_the_same_manifest_by_another_is_not_ours(bucket: MemoryBucket) -> None:
    offsets.commit(bucket, PLACE, manifest(0, 9, owner="one"))
    winner, ours = offsets.commit(bucket, PLACE, manifest(0, 9, owner="two"))
    assert (winner.owner, ours) == ("one", False)


def test_advancing_leaves_a_newer_hint_alone(bucket: MemoryBucket) -> None:
    stale = offsets.load(bucket, PLACE, SOURCE, 0)
    hinted(bucket, Hint(20, claim(20, 30, "other")))
    known = offsets.advance(bucket, PLACE, SOURCE, stale, manifest(0, 9), START)
    assert (known.hint.next, read(bucket).claim) == (20, claim(20, 30, "other"))


def test_letting_go_keeps_the_bounds_and_says_why(bucket: MemoryBucket) -> None:
    known = hinted(bucket, Hint(0, claim(0, 9, watermark=LATER)))
    offsets.let_go(bucket, known, "me", START, error="too bad")
    assert read(bucket).claim == claim(0, 9, "", watermark=LATER, error="too bad")


def test_only_its_owner_lets_go_of_a_claim_and_only_while_it_is_his(bucket: MemoryBucket) -> None:
    known = hinted(bucket, Hint(0, claim(0, 9, "other")))
    assert offsets.let_go(bucket, known, "me", START) is known
    mine = hinted(bucket, Hint(0, claim(0, 9)))
    hinted(bucket, Hint(0, claim(0, 9, "taker")))
    offsets.let_go(bucket, mine, "me", START)
    assert read(bucket).claim == claim(0, 9, "taker")


def test_a_heartbeat_never_takes_a_watermark_back(bucket: MemoryBucket) -> None:
    known = hinted(bucket, Hint(0, watermark=LATER))
    offsets.beat(bucket, PLACE, SOURCE, known, MOMENT, START)
    assert read(bucket).watermark == LATER


def test_a_heartbeat_that_comes_too_late_takes_what_is_there(bucket: MemoryBucket) -> None:
    stale = hinted(bucket, Hint(0))
    hinted(bucket, Hint(10, claim(10, 12, "other"), MOMENT))
    known = offsets.beat(bucket, PLACE, SOURCE, stale, LATER, START)
    assert known.hint == read(bucket)
    assert (read(bucket).watermark, read(bucket).next) == (MOMENT, 10)


@pytest.mark.parametrize("body", [b"not json", b"[]", b"{}"])
def test_a_hint_that_breaks_while_exporters_run_stops_its_own_kafka_partition_alone(body: bytes) -> None:
    bucket, kafka, clock = memory(), FakeKafka(), FakeClock()
    kafka.create("events", partitions=2)
    one = exporter(bucket, kafka, clock=clock, policy={"max_messages": 2})
    run(one)
    bucket.put(PLACE.hint(Source(0)), body)
    for partition in (0, 1):
        kafka.append("events", partition, *messages(4))
    for _ in range(3):
        step = one.step(flush=True)
        assert len(step.problems) == 1
        assert PLACE.hint(Source(0)) in step.problems[0]
        clock.advance(3)
    assert bounds(bucket) == [("1", 0, 1), ("1", 2, 3)]
    repair(bucket, PLACE, now=clock.now())
    [*_, last] = run(one)
    assert not last.problems
    assert bounds(bucket) == [("0", 0, 1), ("0", 2, 3), ("1", 0, 1), ("1", 2, 3)]


def test_a_hint_that_breaks_between_write_and_advance_costs_nothing_that_is_committed() -> None:
    bucket, kafka, clock = memory(), FakeKafka(), FakeClock()
    kafka.create("events")
    kafka.append("events", 0, *messages(4))

    def spoil(name: str) -> None:
        if name == "commit":
            bucket.put(PLACE.hint(Source(0)), b"{}")

    step = exporter(bucket, kafka, clock=clock, on_step=spoil).step(flush=True)
    assert "catchment topics repair" in step.problems[0]
    assert bounds(bucket) == [("0", 0, 3)]
    repair(bucket, PLACE, now=clock.now())
    assert offsets.load(bucket, PLACE, Source(0), 0).hint.next == 4

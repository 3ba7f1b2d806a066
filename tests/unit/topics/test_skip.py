from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Wrapper
from catchment.errors import UsageError
from catchment.testing.clock import START, FakeClock
from catchment.testing.topics import FakeKafka, PlainWriter
from catchment.topics import finalize, identity, offsets
from catchment.topics.export import RECHECK, Exporter
from catchment.topics.manifest import Counts, File, Manifest
from catchment.topics.names import Place, Source
from catchment.topics.offsets import Claim, Hint
from catchment.topics.skip import Skipped, skip
from catchment.topics.work import Reading, Refused, Work, Written
from tests.unit.topics.lakes import MONITOR, TOPIC, bounds, export, exporter, manifests, memory, messages, run
from tests.unit.topics.lakes import offsets as exported

PLACE = Place("g", "events")
ONLY = Source(0)


@pytest.fixture
def kafka() -> FakeKafka:
    """Exported up to 3; Kafka has [6, 10)."""
    made = FakeKafka()
    made.create("events")
    made.append("events", 0, *messages(3))
    return made


@pytest.fixture
def bucket(kafka: FakeKafka) -> MemoryBucket:
    made = memory()
    run(exporter(made, kafka))
    kafka.append("events", 0, *messages(7))
    kafka.expire("events", 0, before=6)
    return made


def over(bucket: Any, to: int, *, earliest: int = 6, made: Any = None, **more: Any) -> Skipped:
    known = identity.read(bucket, PLACE)
    assert known is not None
    how = {"why": "gone", "owner": "person", "now": START, **more}
    return skip(bucket, PLACE, made or export(), known, 0, to, earliest=earliest, **how)


def test_what_is_gone_is_gone_over_with_a_manifest_that_says_so(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    assert over(bucket, 6) == Skipped("g", "events", 0, 3, 5, "gone")
    [_, one] = manifests(bucket)
    assert (one.first, one.last, one.counts, one.holes) == (3, 5, Counts(0, 3, 0, 0, 0), ((3, 5),))
    assert (one.skipped, one.owner, one.committed, one.files) == ("gone", "person", "2026-01-01T00:00:00.000Z", ())
    assert offsets.read_hint(bucket, PLACE, ONLY, 0).hint.next == 6
    run(exporter(bucket, kafka, owner="next"))
    assert bounds(bucket) == [("0", 0, 2), ("0", 3, 5), ("0", 6, 9)]


@pytest.mark.parametrize("to", [0, 2, 3])
def test_there_is_nothing_to_go_over(bucket: MemoryBucket, to: int) -> None:
    with pytest.raises(UsageError, match="committed up to offset 2 already"):
        over(bucket, to)
    assert bounds(bucket) == [("0", 0, 2)]


def test_what_kafka_still_has_is_not_gone_over_unasked(bucket: MemoryBucket) -> None:
    with pytest.raises(UsageError, match="still has the messages from offset 6 on; use --to 6, or add --also-readable"):
        over(bucket, 7)
    with pytest.raises(UsageError, match="from offset 3 on; run: catchment topics export, or add --also-readable"):
        over(bucket, 7, earliest=0)
    assert bounds(bucket) == [("0", 0, 2)]
    over(bucket, 8, anything=True)
    assert bounds(bucket) == [("0", 0, 2), ("0", 3, 7)]


def test_what_is_not_written_yet_is_never_gone_over(bucket: MemoryBucket) -> None:
    """One digit too many must not leave out the messages of the years to come."""
    with pytest.raises(UsageError, match=r"Kafka's end is 10.*up to 10"):
        over(bucket, 100, anything=True, end=10)
    assert bounds(bucket) == [("0", 0, 2)]
    over(bucket, 10, anything=True, end=10)
    assert bounds(bucket) == [("0", 0, 2), ("0", 3, 9)]


class Racing(Wrapper):
    """Somebody commits [3, last] at the very moment at which the first manifest is to be put."""

    def __init__(self, inner: MemoryBucket, other: Manifest) -> None:
        super().__init__(inner)
        self._other: Manifest | None = other

    def put(self, key: str, *values: Any, **more: Any) -> Any:
        if "/_commits/" in key and self._other is not None:
            other, self._other = self._other, None
            offsets.commit(self.inner, PLACE, other)
        return super().put(key, *values, **more)


def theirs(last: int, **more: Any) -> Manifest:
    size = last - 3 + 1
    counts = more.pop("counts", Counts(0, size, 0, 0, 0))
    holes = more.pop("holes", ((3, last),))
    return Manifest("events", "id-1", ONLY, 3, last, 1, "f", counts, holes=holes, owner="exporter", **more)


def test_of_two_at_once_the_first_wins_and_the_rest_is_gone_over_after_it(bucket: MemoryBucket) -> None:
    assert over(Racing(bucket, theirs(4)), 6) == Skipped("g", "events", 0, 5, 5, "gone")
    assert [(one.first, one.last, one.owner) for one in manifests(bucket)][1:] == [(3, 4, "exporter"), (5, 5, "person")]


def test_if_the_other_one_has_it_all_there_is_nothing_left(bucket: MemoryBucket) -> None:
    with pytest.raises(UsageError, match="committed up to offset 5 already"):
        over(Racing(bucket, theirs(5)), 6)
    assert bounds(bucket) == [("0", 0, 2), ("0", 3, 5)]
    assert offsets.read_hint(bucket, PLACE, ONLY, 0).hint.next == 6


def test_who_moves_the_hint_past_a_range_of_another_does_what_that_one_owed(bucket: MemoryBucket) -> None:
    """It may have died between its manifest and the folders that are closed already."""
    made = export(split={"day": {"timestamp": True, "by": "day"}}, finalize={"lateness": "0s"})
    finalize.close(bucket, PLACE, made, START)
    key = f"{PLACE.prefix}day=2025-12-30/1_0_{3:020d}-{4:020d}_{'0' * 12}.json"
    stat = bucket.put(key, json.dumps({"offsets": [3, 4]}).encode())
    late = theirs(4, counts=Counts(2, 0, 2, 0, 0), holes=(), files=(File(key, stat.etag, stat.size, 2, 3, 4),))
    over(Racing(bucket, late), 6, made=made)
    listed = json.loads(bucket.get(PLACE.success("day=2025-12-30")))
    assert [file["key"] for file in listed["files"]] == [key]


def test_a_claim_on_what_is_gone_over_ends_with_it(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    known = offsets.load(bucket, PLACE, ONLY, 0)
    claim = Claim(3, 8, "slow", 1, "f", watermark="2026-01-01T00:00:00.000Z")
    offsets.write_hint(bucket, known, Hint(3, claim), START)
    over(bucket, 6)
    hint = offsets.read_hint(bucket, PLACE, ONLY, 0).hint
    assert (hint.next, hint.claim, hint.watermark) == (6, None, None)
    run(exporter(bucket, kafka, owner="next"))
    assert [offset for _, offset in exported(bucket)] == [0, 1, 2, 6, 7, 8, 9]


def test_a_recreated_topic_is_gone_over_in_its_new_life(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    kafka.delete("events")
    new = kafka.create("events")
    kafka.append("events", 0, *messages(4))
    identity.accept_recreated(bucket, PLACE, new, {0: 0})
    kafka.expire("events", 0, before=2)
    over(bucket, 2, earliest=2)
    run(exporter(bucket, kafka, owner="next"))
    assert bounds(bucket) == [("0", 0, 2), ("0r1", 0, 1), ("0r1", 2, 3)]


class Refusing(PlainWriter):
    """Cannot write what begins at 0."""

    def write(self, reading: Reading, works: Sequence[Work]) -> list[Written | Refused]:
        [work] = works
        if work.first == 0:
            return [Refused(work.topic, work.source, work.first, work.last, "too many dead letters", "do something")]
        return super().write(reading, works)


def test_a_process_that_could_not_write_a_range_goes_on_once_it_was_gone_over() -> None:
    """And not before: looking at the same range again would not help."""
    bucket, kafka, clock = memory(), FakeKafka(), FakeClock()
    kafka.create("events")
    kafka.append("events", 0, *messages(4))
    one = Exporter(
        TOPIC,
        export(policy={"max_messages": 2}),
        bucket=bucket,
        kafka=kafka,
        writer=Refusing(bucket, kafka),
        reading=Reading("localhost:9092", {}),
        owner="me",
        gone=lambda owner: False,
        monitor=MONITOR,
        clock=clock,
    )
    stopped = "g/events Kafka partition 0 [0, 1]: too many dead letters; do something"
    for _ in range(3):
        assert one.step(flush=True).problems == (stopped,)
        clock.advance(RECHECK)
    assert one.caught_up()  # as far as it can
    claim = offsets.read_hint(bucket, PLACE, ONLY, 0).hint.claim
    assert claim is not None
    assert (claim.owner, claim.error) == ("", stopped)
    over(bucket, 2, earliest=0, anything=True)
    clock.advance(RECHECK)
    [*_, last] = run(one)
    assert not last.problems
    assert bounds(bucket) == [("0", 0, 1), ("0", 2, 3)]

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from catchment.bucket.memory import MemoryBucket
from catchment.config.topics import Export
from catchment.monitor.history import History
from catchment.monitor.record import FAILED, OK, Monitor
from catchment.monitor.store import Store
from catchment.testing.clock import START, FakeClock
from catchment.testing.topics import FakeKafka, Message
from catchment.topics import offsets
from catchment.topics.kafka import Part, Peek
from catchment.topics.names import Place, Source
from catchment.topics.offsets import Claim
from catchment.topics.status import Standing, Status, status, together
from tests.unit.topics.lakes import TOPIC, export, exporter, memory, messages, run

PLACE = Place("g", "events")
BODY = messages(1)[0]


@pytest.fixture
def bucket() -> MemoryBucket:
    return memory()


@pytest.fixture
def kafka() -> FakeKafka:
    made = FakeKafka()
    made.create("events")
    return made


def append(kafka: FakeKafka, *seconds: float | None) -> None:
    """Messages written so many seconds after START; None is a gap."""
    at = START.timestamp()
    kafka.append("events", 0, *(None if one is None else Message(BODY, int((at + one) * 1000)) for one in seconds))


def look(
    bucket: MemoryBucket, kafka: FakeKafka, seconds: float = 0, *, store: Path = Path("/nowhere"), **alerts: Any
) -> Status:
    made: Export = export(alerts=alerts)
    return status(TOPIC, made, bucket, kafka, History(store), START + timedelta(seconds=seconds))


def only(found: Status) -> Standing:
    assert not found.problems
    [one] = found.standings
    return one


def claimed(bucket: MemoryBucket, last: int, error: str = "") -> None:
    known = offsets.load(bucket, PLACE, Source(0), 0)
    claim = Claim(known.hint.next, last, "" if error else "other", 1, "f", error=error)
    offsets.write_hint(bucket, known, offsets.Hint(known.hint.next, claim), START)


def test_before_the_first_export_everything_lags(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    append(kafka, 10, 20, 70)
    kafka.expire("events", 0, before=1)
    assert only(look(bucket, kafka, 100)) == Standing("g", "events", 0, None, 2, 2, 80.0, 50.0, None, None)


def test_an_empty_topic_is_well(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    assert only(look(bucket, kafka)) == Standing("g", "events", 0, None, None, 0, 0.0, 0.0, None, None)
    assert look(bucket, kafka).well


def test_caught_up(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    append(kafka, 10, 20)
    run(exporter(bucket, kafka))
    one = only(look(bucket, kafka, 10_000))
    assert (one.committed, one.latest, one.lag, one.lag_seconds, one.delay_seconds) == (1, 1, 0, 0.0, 0.0)
    assert one.watermark == "2026-01-01T00:00:00.000Z"


def test_lag_is_how_long_the_oldest_message_waits_and_delay_what_is_between_the_newest_two(
    bucket: MemoryBucket, kafka: FakeKafka
) -> None:
    append(kafka, 0, 60)
    run(exporter(bucket, kafka))
    append(kafka, 100, 200, 300)
    one = only(look(bucket, kafka, 1000))
    assert (one.committed, one.latest, one.lag, one.lag_seconds, one.delay_seconds) == (1, 4, 3, 900.0, 240.0)


def test_what_is_claimed_is_on_its_way_and_no_delay(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    append(kafka, 0, 100, 200, 300)
    claimed(bucket, 2)
    one = only(look(bucket, kafka, 1000))
    assert (one.committed, one.lag, one.lag_seconds, one.delay_seconds) == (None, 4, 1000.0, 100.0)
    claimed_all = memory()
    claimed(claimed_all, 3)
    assert only(look(claimed_all, kafka, 1000)).delay_seconds == 0.0


def test_gaps_are_stepped_over_on_both_sides(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    """Aborted transactions and compaction leave stretches without messages, longer than one look."""
    append(kafka, 0, 50, *[None] * 500)
    run(exporter(bucket, kafka))
    append(kafka, *[None] * 300, 100, *[None] * 200)
    one = only(look(bucket, kafka, 1000))
    assert (one.lag, one.lag_seconds, one.delay_seconds) == (501, 900.0, 50.0)


def test_nothing_but_gaps_waits(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    append(kafka, 10)
    run(exporter(bucket, kafka))
    append(kafka, *[None] * 40)
    one = only(look(bucket, kafka, 10_000))
    assert (one.lag, one.lag_seconds, one.delay_seconds) == (40, None, 0.0)
    assert not one.problems


def test_the_newest_message_is_found_though_one_look_shows_few(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    """Large messages: a look ends after about a megabyte."""

    class Large(FakeKafka):
        def peek(self, part: Part, offset: int, count: int = 100, *, until: int | None = None) -> list[Peek]:
            return super().peek(part, offset, min(count, 3), until=until)

    large = Large()
    large.create("events")
    append(large, *range(0, 1000, 100))
    claimed(bucket, 0)
    assert only(look(bucket, large, 1000)).delay_seconds == 900.0


@pytest.mark.parametrize("none", [0, -1])
def test_messages_without_a_timestamp_are_not_from_1970(bucket: MemoryBucket, kafka: FakeKafka, none: int) -> None:
    kafka.append("events", 0, Message(BODY, none), Message(BODY, none))
    one = only(look(bucket, kafka))
    assert (one.lag, one.lag_seconds, one.delay_seconds, one.problems) == (2, None, None, ())


@pytest.mark.parametrize("limit, problem", [("299s", "delay: 300 s behind Kafka, more than 299 s"), ("300s", None)])
def test_the_rule_of_delay(bucket: MemoryBucket, kafka: FakeKafka, limit: str, problem: str | None) -> None:
    append(kafka, 0, 300)
    claimed(bucket, 0)
    found = look(bucket, kafka, 1000, delay=limit)
    assert (only(found).problems, found.well) == ((problem,) if problem else (), problem is None)


@pytest.mark.parametrize("limit, problem", [(9, "uncommitted: 10 messages are claimed, more than 9"), (10, None)])
def test_the_rule_of_what_is_uncommitted(
    bucket: MemoryBucket, kafka: FakeKafka, limit: int, problem: str | None
) -> None:
    append(kafka, *[0] * 10)
    claimed(bucket, 9)
    found = look(bucket, kafka, uncommitted=limit)
    assert (only(found).problems, found.well) == ((problem,) if problem else (), problem is None)


@pytest.mark.parametrize("limit, problem", [("24%", "failed writes: 25% of 4, more than 24%"), ("25%", "")])
def test_the_rule_of_failed_writes(
    bucket: MemoryBucket, kafka: FakeKafka, tmp_path: Path, limit: str, problem: str
) -> None:
    clock = FakeClock()
    store = Store(tmp_path / "store", clock=clock)
    with Monitor(store, clock=clock) as monitor:
        for _ in range(9):
            monitor.record("topics/g/events", "write", FAILED)  # more than an hour ago
        clock.advance(4000)
        for outcome in (OK, OK, FAILED, OK):
            monitor.record("topics/g/events", "write", outcome)
        monitor.record("topics/g/events", "commit", FAILED)  # something else
        monitor.record("topics/g/eventually", "write", FAILED)  # of another topic
    found = look(bucket, kafka, 4001, store=tmp_path / "store", failed_writes=limit)
    [one] = found.writes
    assert (one.count, one.failures, one.problem) == (4, 1, problem)
    assert found.well == (not problem)


def test_a_history_that_cannot_be_read_hides_nothing_else(
    bucket: MemoryBucket, kafka: FakeKafka, tmp_path: Path
) -> None:
    (tmp_path / "store").write_bytes(b"not a database, by any means" * 100)
    found = look(bucket, kafka, store=tmp_path / "store")
    assert (len(found.standings), found.writes) == (1, ())


def test_a_retention_gap(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    append(kafka, 0, 10)
    run(exporter(bucket, kafka))
    append(kafka, 20, 30, 40)
    kafka.expire("events", 0, before=4)
    one = only(look(bucket, kafka, 100))
    assert one.problems == ("Kafka no longer has the offsets from 2 to 3",)
    assert (one.lag, one.lag_seconds) == (3, 60.0)


def test_everything_expired_and_nothing_came_is_no_gap(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    append(kafka, 0, 10)
    run(exporter(bucket, kafka))
    kafka.expire("events", 0, before=2)
    assert look(bucket, kafka, 100).well


def test_an_end_below_the_committed_offset(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    append(kafka, 0, 10, 20)
    run(exporter(bucket, kafka))
    del kafka._topics["events"][1][0].messages[1:]
    assert only(look(bucket, kafka)).problems == ("Kafka's end is 1, below the committed offset 3",)


def test_a_claim_that_could_not_be_written_says_why(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    append(kafka, 0, 10)
    claimed(bucket, 1, error="too many dead letters")
    one = only(look(bucket, kafka))
    assert one.problems == ("too many dead letters",)
    assert one.claim is not None


def test_a_topic_that_was_made_again(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    append(kafka, 0, 10)
    run(exporter(bucket, kafka))
    kafka.delete("events")
    kafka.create("events")
    found = look(bucket, kafka)
    assert found.standings == ()
    assert "deleted and made again" in found.problems[0]
    assert not found.well


def test_kafka_gives_no_answer(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    kafka.down = True
    found = look(bucket, kafka)
    assert found == Status((), (), ("g: no Kafka broker answers",))
    assert not found.well


def test_looking_changes_nothing(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    append(kafka, 0, 10)
    run(exporter(bucket, kafka))
    append(kafka, 20)
    before = [(entry.key, entry.etag) for entry in bucket.list()]
    look(bucket, kafka, 100)
    assert [(entry.key, entry.etag) for entry in bucket.list()] == before


def test_one_problem_of_one_export_is_a_problem_of_all(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    append(kafka, 0)
    well = look(bucket, kafka)
    ill = Status((), (), ("bad",))
    both = together([well, ill])
    assert (both.standings, both.problems, both.well) == (well.standings, ("bad",), False)
    assert together([]).well

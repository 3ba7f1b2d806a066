"""What a hostile reading of the protocol found: each was wrong once."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from catchment.bucket.contract import Bucket
from catchment.bucket.wrap import Counting
from catchment.cli.output import plain
from catchment.cli.topics import repair
from catchment.clock import Clock
from catchment.config.topics import Topic
from catchment.errors import BrokerError, CatchmentError
from catchment.monitor.history import History
from catchment.testing.clock import START, FakeClock
from catchment.testing.topics import FakeKafka, Message, PlainWriter
from catchment.topics import identity, offsets
from catchment.topics.export import Exporter, Writes
from catchment.topics.names import Place, Source
from catchment.topics.service import Progress, Service, Until
from catchment.topics.status import status
from catchment.topics.work import Reading, Refused, Work, Written
from tests.unit.topics.lakes import MONITOR, TOPIC, bounds, export, exporter, manifests, memory, messages, run, topic
from tests.unit.topics.lakes import offsets as exported

PLACE = Place("g", "events")
LONG = 60.0


@pytest.fixture
def kafka() -> FakeKafka:
    made = FakeKafka()
    made.create("events", partitions=2)
    return made


def with_writer(
    bucket: Bucket,
    kafka: FakeKafka,
    writer: Writes,
    *,
    config: Topic = TOPIC,
    owner: str = "me",
    clock: Clock | None = None,
    **values: Any,
) -> Exporter:
    return Exporter(
        config,
        export(**values),
        bucket=bucket,
        kafka=kafka,
        writer=writer,
        reading=Reading("localhost:9092", {}),
        owner=owner,
        gone=lambda owner: False,
        monitor=MONITOR,
        clock=clock or FakeClock(),
    )


# -- the loop around it


def test_an_export_that_fails_unexpectedly_is_noticed_whichever_it_is(kafka: FakeKafka) -> None:
    """The first one runs on for ever; nobody may have to wait for its end to hear of the second one's."""
    bucket = memory()
    kafka.append("events", 0, *messages(3))

    class Broken(PlainWriter):
        def write(self, reading: Reading, works: Sequence[Work]) -> list[Written | Refused]:
            raise ZeroDivisionError

    fine = with_writer(bucket, kafka, PlainWriter(bucket, kafka))
    broken = with_writer(bucket, kafka, Broken(bucket, kafka), group="h", policy={"max_messages": 3})
    service = Service([fine, broken], tick=0.01)
    failed: list[BaseException] = []

    def go() -> None:
        try:
            service.run()
        except ZeroDivisionError as error:
            failed.append(error)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    thread.join(10.0)
    hung = thread.is_alive()
    service.stop()
    thread.join(LONG)
    assert not hung
    assert failed


def test_until_caught_up_ends_with_a_problem_when_kafka_ends_below_a_claim(kafka: FakeKafka) -> None:
    bucket = memory()
    kafka.append("events", 0, *messages(4))

    class Off(PlainWriter):
        def write(self, reading: Reading, works: Sequence[Work]) -> list[Written | Refused]:
            raise CatchmentError("called off")

    one = with_writer(bucket, kafka, Off(bucket, kafka), owner="dead")
    with pytest.raises(CatchmentError):
        one.step(flush=True)
    one.let_go()
    del kafka._topics["events"][1][0].messages[2:]  # lost in an election
    steps: list[Progress] = []

    def seen(progress: Progress) -> None:
        steps.append(progress)
        if len(steps) > 50:
            service.stop()

    service = Service([with_writer(bucket, kafka, PlainWriter(bucket, kafka))], tick=0.0, on_progress=seen)
    [progress] = service.run(Until.CAUGHT_UP)
    assert len(steps) < 50
    assert "the offsets up to 3 are claimed" in progress.problems[0]


@pytest.mark.parametrize("policy", [{"max_age": "5m"}, {"max_age": "5m", "align": True}])
def test_a_few_messages_are_exported_by_processes_that_are_started_for_a_moment(
    kafka: FakeKafka, policy: dict[str, object]
) -> None:
    """`--once` from a timetable: none of them lives as long as the policy's age."""
    bucket, clock = memory(), FakeClock()
    at = int(START.timestamp() * 1000)
    kafka.append("events", 0, *(Message(body, at + n) for n, body in enumerate(messages(3))))
    for number in range(3):
        one = exporter(bucket, kafka, owner=f"run {number}", clock=clock, policy=policy)
        Service([one], tick=0.0).run(Until.DONE)
        clock.advance(600)
    assert [offset for _, offset in exported(bucket)] == [0, 1, 2]


# -- several replicas


def test_the_age_of_a_range_is_the_same_for_all_replicas(kafka: FakeKafka) -> None:
    """Whoever did not commit the last range must not take what came since for as old as that one was."""
    bucket, clock = memory(), FakeClock()
    both = [exporter(bucket, kafka, owner=owner, clock=clock, policy={"max_age": "5m"}) for owner in ("a", "b")]
    for one in both:
        one.step()
    for _ in range(1200):  # twenty minutes, with messages all the time
        clock.advance(1)
        for one in both:
            kafka.append("events", 0, *messages(1))
            while one.step().again:
                kafka.append("events", 0, *messages(1))
    sizes = [manifest.counts.read for manifest in manifests(bucket)]
    assert len(sizes) >= 3
    assert min(sizes) >= 500


def test_what_another_replica_is_writing_is_no_gap_although_kafka_has_it_no_longer(kafka: FakeKafka) -> None:
    """To skip it, as the advice for a gap says, would throw away what was read in time."""
    bucket = memory()
    kafka.append("events", 0, *messages(5))
    other = exporter(bucket, kafka, owner="other")
    seen = []

    def retention(name: str) -> None:
        if name == "write":
            kafka.expire("events", 0, before=3)
            seen.append(other.step(flush=True))
            assert not other.caught_up()

    exporter(bucket, kafka, owner="one", on_step=retention).step(flush=True)
    assert (seen[0].problems, seen[0].busy) == ((), 1)
    assert bounds(bucket) == [("0", 0, 4)]


def test_one_range_that_cannot_be_written_takes_no_others_with_it(kafka: FakeKafka) -> None:
    """A job fails as a whole. What is to blame is told by writing what failed alone."""
    bucket = memory()
    for partition in (0, 1):
        kafka.append("events", partition, *messages(6))

    class Crashing(PlainWriter):
        def write(self, reading: Reading, works: Sequence[Work]) -> list[Written | Refused]:
            if any(work.source == Source(0) and work.first == 2 for work in works):
                raise BrokerError("the worker crashed")
            return super().write(reading, works)

    one = with_writer(bucket, kafka, Crashing(bucket, kafka), policy={"max_messages": 2})
    for _ in range(20):
        try:
            one.step(flush=True)
        except BrokerError:
            continue
    assert bounds(bucket) == [("0", 0, 1), ("1", 0, 1), ("1", 2, 3), ("1", 4, 5)]


@pytest.mark.parametrize("parallelism", [1, 8])
def test_a_source_that_cannot_be_claimed_takes_no_place_from_others(kafka: FakeKafka, parallelism: int) -> None:
    bucket = memory()
    writer = PlainWriter(bucket, kafka, parallelism=parallelism)
    one = with_writer(bucket, kafka, writer)
    one.step(flush=True)
    for partition in (0, 1):
        kafka.append("events", partition, *messages(2))
    bucket.put(PLACE.hint(Source(0)), b"not json")
    for _ in range(3):
        step = one.step(flush=True)
    assert bounds(bucket) == [("1", 0, 1)]
    assert "Kafka partition 0" in step.problems[0]
    assert not step.again  # which would be a loop without a pause


# -- where an export begins


def test_what_kafka_no_longer_has_of_a_groups_offsets_is_a_gap(kafka: FakeKafka) -> None:
    """The group has not read it and neither have we: to begin after it without a word would be a silent loss."""
    bucket = memory()
    kafka.append("events", 0, *messages(9))
    kafka.expire("events", 0, before=5)
    kafka.groups["billing"] = {("events", 0): 2}
    [*_, step] = run(exporter(bucket, kafka, config=topic(start={"group": "billing"})))
    assert "no longer has the offsets from 2 to 4" in step.problems[0]
    assert not bounds(bucket)


def test_a_groups_offset_above_kafkas_end_is_refused_and_nothing_is_begun(kafka: FakeKafka) -> None:
    """Else all that comes below it would never be exported."""
    bucket, clock = memory(), FakeClock()
    kafka.append("events", 0, *messages(3))
    kafka.groups["billing"] = {("events", 0): 5}
    one = exporter(bucket, kafka, clock=clock, config=topic(start={"group": "billing"}))
    [*_, step] = run(one)
    assert "the consumer group billing is at offset 5, and Kafka's end is 3" in step.problems[0]
    assert identity.read(bucket, PLACE) is None
    kafka.append("events", 0, *messages(3))  # an open transaction has ended
    clock.advance(31)
    run(one)
    assert exported(bucket) == [("0", 5)]


def test_a_new_topic_begins_at_its_beginning_whatever_made_us_look(kafka: FakeKafka) -> None:
    bucket = memory()

    def recreate(name: str) -> None:
        if name == "write" and "evolution" not in kafka._topics:
            kafka.delete("events")
            kafka.create("events")
            kafka.create("evolution")
            kafka.append("evolution", 0, *messages(3))

    one = exporter(bucket, kafka, on_step=recreate, config=topic(match="ev.*", start="latest"))
    one.step(flush=True)
    kafka.append("events", 0, *messages(2))
    one.step(flush=True)  # finds that the topic is another one, and looks for topics at once
    run(one)
    assert len(exported(bucket, Place("g", "evolution"))) == 3


# -- topics that change


def test_a_topic_made_again_with_fewer_kafka_partitions_keeps_nothing_of_the_old_ones(kafka: FakeKafka) -> None:
    bucket, clock = memory(), FakeClock()
    for partition in (0, 1):
        kafka.append("events", partition, *messages(5))
    one = exporter(bucket, kafka, clock=clock)
    run(one)
    kafka.delete("events")
    new = kafka.create("events", partitions=1)
    identity.accept_recreated(bucket, PLACE, new, {0: 0})
    kafka.append("events", 0, *messages(2))
    clock.advance(31)
    run(one)
    assert [track.source for track in one.tracks] == [Source(0, 1)]
    assert one.caught_up()


def test_a_topic_that_is_no_longer_listed_is_not_left_out_without_a_word(
    kafka: FakeKafka, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    one = exporter(memory(), kafka, clock=clock)
    one.step()
    kafka.delete("events")
    clock.advance(31)
    with caplog.at_level(logging.WARNING):
        one.step()
    assert "no longer lists topic events" in caplog.text


# -- clocks


def test_a_clock_that_was_ahead_does_not_make_messages_wait(kafka: FakeKafka) -> None:
    bucket = memory()
    ahead = FakeClock(START + timedelta(days=300))
    run(exporter(bucket, kafka, owner="ahead", clock=ahead))
    kafka.append("events", 0, *messages(2))
    clock = FakeClock()
    one = exporter(bucket, kafka, owner="right", clock=clock, policy={"max_age": "5m"})
    one.step()
    clock.advance(301)
    assert one.step().committed


def test_a_clock_that_is_set_back_does_not_make_messages_wait(kafka: FakeKafka) -> None:
    bucket, clock = memory(), FakeClock(START + timedelta(days=1))
    one = exporter(bucket, kafka, clock=clock, policy={"max_age": "5m"})
    one.step()
    kafka.append("events", 0, *messages(2))
    clock.set_wall(START)
    one.step()
    clock.advance(301)
    assert one.step().committed


DAILY: dict[str, Any] = {"split": {"day": {"timestamp": True, "by": "day"}}, "finalize": {"lateness": "1h"}}


def test_a_watermark_of_a_clock_that_was_ahead_closes_nothing_and_is_told_anew(kafka: FakeKafka) -> None:
    bucket = memory()
    ahead = FakeClock(START + timedelta(days=300))
    run(exporter(bucket, kafka, owner="ahead", clock=ahead, split=DAILY["split"]))
    clock = FakeClock(START + timedelta(hours=3))
    one = exporter(bucket, kafka, owner="right", clock=clock, **DAILY)
    run(one)
    for source in (Source(0), Source(1)):
        assert offsets.read_hint(bucket, PLACE, source, 0).hint.watermark == "2026-01-01T03:00:00.000Z"
    found = bucket.get(PLACE.finalized())
    assert b"2026-01-01" in found
    assert b"2026-10" not in found


# -- what cannot be understood


class Jobs(PlainWriter):
    """Counts its jobs."""

    jobs = 0

    def write(self, reading: Reading, works: Sequence[Work]) -> list[Written | Refused]:
        self.jobs += 1
        return super().write(reading, works)


def test_a_success_of_somebody_else_does_not_make_a_range_be_written_again_and_again(kafka: FakeKafka) -> None:
    bucket, clock = memory(), FakeClock(START + timedelta(days=2))
    writer = Jobs(bucket, kafka, by="day")
    one = with_writer(bucket, kafka, writer, clock=clock, **DAILY)
    run(one)
    bucket.put(PLACE.success("day=2026-01-01"), b"")  # as other tools write it
    kafka.append("events", 0, b'{"day": "2026-01-01"}')
    for _ in range(5):
        step = one.step(flush=True)
        clock.advance(3)
    assert writer.jobs == 1
    assert PLACE.success("day=2026-01-01") in step.problems[0]
    bucket.delete(PLACE.success("day=2026-01-01"))
    run(one)
    kafka.append("events", 0, b'{"day": "2026-01-02"}')
    run(one)
    assert bounds(bucket) == [("0", 0, 0), ("0", 1, 1)]


def test_days_that_cannot_be_closed_do_not_stop_the_export_nor_other_topics(kafka: FakeKafka) -> None:
    bucket, clock = memory(), FakeClock(START + timedelta(hours=12))
    kafka.create("evolution")
    config = topic(match="ev.*", discover="1d")
    one = with_writer(bucket, kafka, PlainWriter(bucket, kafka, by="day"), config=config, clock=clock, **DAILY)
    kafka.append("events", 0, b'{"day": "2026-01-01"}')
    kafka.append("evolution", 0, b'{"day": "2026-01-01"}')
    run(one)
    bucket.put(PLACE.success("day=2026-01-01"), b"")
    clock.advance(86_400)
    step = one.step(flush=True)
    assert PLACE.success("day=2026-01-01") in step.problems[0]
    assert step.closed == ("day=2026-01-01",)  # of the other one
    counted = Counting(bucket)
    one._bucket = counted
    clock.advance(1)
    assert one.step().problems == step.problems
    assert counted.counts.total == 0  # it is not tried at every tick
    bucket.delete(PLACE.success("day=2026-01-01"))
    clock.advance(61)
    assert one.step().closed == ("day=2026-01-01",)


def test_a_hint_that_cannot_be_read_at_the_start_stops_its_own_kafka_partition_only(kafka: FakeKafka) -> None:
    bucket, clock = memory(), FakeClock(START + timedelta(days=2))
    run(exporter(bucket, kafka, **DAILY))
    for partition in (0, 1):
        kafka.append("events", partition, *messages(2))
    bucket.put(PLACE.hint(Source(0)), b"not json")
    counted = Counting(bucket)
    one = with_writer(counted, kafka, PlainWriter(counted, kafka), owner="next", clock=clock, **DAILY)
    [*_, step] = run(one)
    assert "catchment topics repair --group g --topic events" in step.problems[0]
    assert bounds(bucket) == [("1", 0, 1)]
    one.step()
    before = counted.counts.total
    clock.advance(1)
    one.step()
    assert counted.counts.total == before  # and is not looked at again at every tick


def test_a_hint_that_cannot_be_read_hides_no_other_kafka_partition_from_status(
    kafka: FakeKafka, tmp_path: Path
) -> None:
    bucket = memory()
    run(exporter(bucket, kafka))
    bucket.put(PLACE.hint(Source(0)), b"not json")
    found = status(TOPIC, export(), bucket, kafka, History(tmp_path / "none"), START)
    assert [one.kafka_partition for one in found.standings] == [1]
    assert "Kafka partition 0" in found.problems[0]
    assert not found.well
    json.dumps(plain(found))


def test_the_option_that_repair_tells_people_to_use_is_there() -> None:
    assert "--back" in [name for option in repair.params for name in option.opts]

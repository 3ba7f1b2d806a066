from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from catchment.bucket.contract import Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.errors import CatchmentError
from catchment.testing.clock import FakeClock
from catchment.testing.topics import FakeKafka, PlainWriter
from catchment.topics import offsets
from catchment.topics.export import Exporter, Step, Writes
from catchment.topics.names import Place, Source
from catchment.topics.service import Progress, Service, Until
from catchment.topics.work import Reading, Refused, Work, Written
from tests.unit.topics.lakes import MONITOR, TOPIC, bounds, export, manifests, memory, messages
from tests.unit.topics.lakes import offsets as exported

PLACE = Place("g", "events")
LONG = 60.0  # nothing here may take as long


@pytest.fixture
def bucket() -> MemoryBucket:
    return memory()


@pytest.fixture
def kafka() -> FakeKafka:
    made = FakeKafka()
    made.create("events")
    return made


def made(
    bucket: Bucket, kafka: Any, writer: Writes | None = None, *, owner: str = "me", clock: Any = None, **values: Any
) -> Exporter:
    return Exporter(
        TOPIC,
        export(**values),
        bucket=bucket,
        kafka=kafka,
        writer=writer or PlainWriter(bucket, kafka),
        reading=Reading("localhost:9092", {}),
        owner=owner,
        gone=lambda owner: False,
        monitor=MONITOR,
        clock=clock or FakeClock(),
    )


class Watched:
    """A Kafka, with something that happens before each question to it."""

    def __init__(self, kafka: FakeKafka, before: Callable[[str], object]) -> None:
        self._kafka, self._before = kafka, before

    def __getattr__(self, name: str) -> Any:
        self._before(name)
        return getattr(self._kafka, name)


class Slow(PlainWriter):
    """Begins to write, and ends when it is told to or called off."""

    def __init__(self, *values: Any) -> None:
        super().__init__(*values)
        self.writing, self.go_on, self.cancelled = threading.Event(), threading.Event(), threading.Event()

    def write(self, reading: Reading, works: Sequence[Work]) -> list[Written | Refused]:
        self.writing.set()
        assert self.go_on.wait(LONG)
        if self.cancelled.is_set():
            raise CatchmentError("writing was called off")
        return super().write(reading, works)

    def cancel(self) -> None:
        self.cancelled.set()
        self.go_on.set()


def in_background(service: Service, until: Until = Until.STOPPED) -> Callable[[], list[Progress]]:
    """Start it; the function that is returned waits for its end."""
    results: list[list[Progress]] = []
    thread = threading.Thread(target=lambda: results.append(service.run(until)))
    thread.start()

    def end() -> list[Progress]:
        thread.join(LONG)
        assert not thread.is_alive()
        return results[0]

    return end


def test_once_exports_what_is_due_and_ends(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    kafka.append("events", 0, *messages(5), b"bad", *messages(2, "b"))
    [progress] = Service([made(bucket, kafka, policy={"max_messages": 3})]).run(Until.DONE)
    assert bounds(bucket) == [("0", 0, 2), ("0", 3, 5)]  # what is young waits for a later run
    files = sum(len(bucket.get(key)) for key in _files(bucket))
    assert progress == Progress("g", "events", 2, 6, 5, 1, 0, 2, files)


def _files(bucket: Bucket) -> list[str]:
    return [entry.key for entry in bucket.list(f"{PLACE.prefix}type=")]


def test_until_caught_up_exports_what_was_there_at_the_start_whatever_its_age(
    bucket: MemoryBucket, kafka: FakeKafka
) -> None:
    kafka.append("events", 0, *messages(5))

    class Busy(PlainWriter):
        """Somebody writes to Kafka all the time."""

        def write(self, reading: Reading, works: Sequence[Work]) -> list[Written | Refused]:
            kafka.append("events", 0, *messages(1))
            return super().write(reading, works)

    one = made(bucket, kafka, Busy(bucket, kafka), policy={"max_messages": 2})
    [progress] = Service([one], tick=0.0).run(Until.CAUGHT_UP)
    assert not progress.problems
    assert len(exported(bucket)) >= 5


def test_until_caught_up_waits_for_what_others_are_writing(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    kafka.append("events", 0, *messages(5))
    slow = Slow(bucket, kafka)
    other = in_background(Service([made(bucket, kafka, slow, owner="other")]), Until.CAUGHT_UP)
    assert slow.writing.wait(LONG)
    steps = 0
    clock = FakeClock()

    def seen(progress: Progress) -> None:
        nonlocal steps
        steps += 1
        if steps == 3:
            slow.go_on.set()
            other()

    one = made(bucket, Watched(kafka, lambda name: clock.advance(3)), clock=clock)
    [progress] = Service([one], tick=0.0, on_progress=seen).run(Until.CAUGHT_UP)
    assert steps >= 3
    assert (progress.ranges, progress.problems) == (0, [])
    assert [manifest.owner for manifest in manifests(bucket)] == ["other"]


def test_a_stop_while_nothing_is_due_ends_it_at_once(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    stepped = threading.Event()
    service = Service([made(bucket, kafka)], tick=LONG, on_progress=lambda progress: stepped.set())
    end = in_background(service)
    assert stepped.wait(LONG)
    service.stop()
    service.stop()  # as often as a person presses the key
    assert end()[0].problems == []


def test_a_stop_while_it_waits_after_a_failure_ends_it_at_once(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    kafka.down = True
    asked = threading.Event()
    service = Service([made(bucket, Watched(kafka, lambda name: asked.set()))], tick=LONG)
    end = in_background(service)
    assert asked.wait(LONG)
    service.stop()
    assert "no Kafka broker answers" in end()[0].problems[0]


def test_a_stop_within_the_time_of_grace_lets_ranges_finish(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    kafka.append("events", 0, *messages(5))
    slow = Slow(bucket, kafka)
    service = Service([made(bucket, kafka, slow, policy={"max_messages": 5})], cancel=slow.cancel, grace=LONG)
    end = in_background(service)
    assert slow.writing.wait(LONG)
    service.stop()
    slow.go_on.set()
    [progress] = end()
    assert (progress.ranges, progress.messages) == (1, 5)
    assert not slow.cancelled.is_set()


def test_after_the_time_of_grace_what_is_written_is_called_off_and_left_to_others(
    bucket: MemoryBucket, kafka: FakeKafka
) -> None:
    kafka.append("events", 0, *messages(5))
    slow = Slow(bucket, kafka)
    service = Service([made(bucket, kafka, slow, policy={"max_messages": 5})], cancel=slow.cancel, grace=0.01)
    end = in_background(service)
    assert slow.writing.wait(LONG)
    service.stop()
    [progress] = end()
    assert slow.cancelled.is_set()
    assert (progress.ranges, progress.problems) == (0, [])  # stopping is no failure
    claim = offsets.read_hint(bucket, PLACE, Source(0), 0).hint.claim
    assert claim is not None
    assert (claim.owner, claim.first, claim.last) == ("", 0, 4)
    Service([made(bucket, kafka, owner="next")]).run(Until.DONE)  # nobody has to wait for anything
    assert bounds(bucket) == [("0", 0, 4)]


@pytest.mark.parametrize("until", [Until.DONE, Until.CAUGHT_UP])
def test_who_is_to_end_gives_up_after_some_failures(bucket: MemoryBucket, kafka: FakeKafka, until: Until) -> None:
    kafka.down = True
    [progress] = Service([made(bucket, kafka)], tick=0.0).run(until)
    assert progress.failures == 5
    assert "no Kafka broker answers" in progress.problems[0]


def test_a_failure_that_passes_is_no_problem_in_the_end(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    kafka.append("events", 0, *messages(5))
    failures = iter(range(3))

    class Unsteady(PlainWriter):
        def write(self, reading: Reading, works: Sequence[Work]) -> list[Written | Refused]:
            if next(failures, None) is not None:
                raise CatchmentError("not now")
            return super().write(reading, works)

    one = made(bucket, kafka, Unsteady(bucket, kafka), policy={"max_messages": 5})
    [progress] = Service([one], tick=0.0).run(Until.DONE)
    assert (progress.failures, progress.problems, progress.ranges) == (3, [], 1)


def test_kafka_may_be_away_for_as_long_as_it_likes(
    bucket: MemoryBucket, kafka: FakeKafka, caplog: pytest.LogCaptureFixture
) -> None:
    """Waiting twice as long each time must not outgrow what a number can hold."""
    caplog.set_level(logging.ERROR)
    kafka.append("events", 0, *messages(2))
    asked = 0

    def away(name: str) -> None:
        nonlocal asked
        asked += name == "topics"
        kafka.down = asked < 1200

    done = threading.Event()
    one = made(bucket, Watched(kafka, away), PlainWriter(bucket, kafka), policy={"max_messages": 2})
    service = Service([one], tick=0.0, on_progress=lambda progress: done.set())
    end = in_background(service)
    assert done.wait(LONG)
    service.stop()
    assert end()[0].failures == 1199


def test_a_problem_is_reported_and_said_once(
    bucket: MemoryBucket, kafka: FakeKafka, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.append("events", 0, *messages(3))
    Service([made(bucket, kafka)], tick=0.0).run(Until.CAUGHT_UP)
    kafka.append("events", 0, *messages(5))
    kafka.expire("events", 0, before=6)
    steps: list[Progress] = []
    enough = threading.Event()

    def seen(progress: Progress) -> None:
        steps.append(progress)
        if len(steps) > 5:
            enough.set()

    service = Service([made(bucket, kafka)], tick=0.0, on_progress=seen)
    end = in_background(service)
    assert enough.wait(LONG)
    service.stop()
    [progress] = end()
    assert "no longer has the offsets from 3 to 5" in progress.problems[0]
    assert len([one for one in caplog.records if "no longer has" in one.message]) == 1


def test_a_problem_that_is_solved_is_no_longer_reported() -> None:
    progress = Progress("g", "events")
    progress.add(Step(problems=("a",)))
    progress.add(Step())
    assert progress.problems == []


def test_what_never_comes_right_does_not_keep_an_export_that_is_to_end(bucket: MemoryBucket, kafka: FakeKafka) -> None:
    kafka.append("events", 0, *messages(3))

    class Wrong(PlainWriter):
        """Loses a message, and so nothing may be committed."""

        def write(self, reading: Reading, works: Sequence[Work]) -> list[Written | Refused]:
            [one] = super().write(reading, works)
            assert isinstance(one, Written)
            return [replace(one, counts=replace(one.counts, read=one.counts.read - 1))]

    [progress] = Service([made(bucket, kafka, Wrong(bucket, kafka))], tick=0.0).run(Until.CAUGHT_UP)
    assert "2 messages read and 0 missing are not the 3 offsets" in progress.problems[0]
    assert not bounds(bucket)


def test_one_export_that_fails_unexpectedly_ends_the_others_and_leaves_no_claim(
    bucket: MemoryBucket, kafka: FakeKafka
) -> None:
    kafka.append("events", 0, *messages(3))
    slow = Slow(bucket, kafka)

    class Broken(PlainWriter):
        def write(self, reading: Reading, works: Sequence[Work]) -> list[Written | Refused]:
            assert slow.writing.wait(LONG)
            raise ZeroDivisionError

    both = [
        made(bucket, kafka, Broken(bucket, kafka), policy={"max_messages": 3}),
        made(bucket, kafka, slow, group="h", policy={"max_messages": 3}),
    ]
    with pytest.raises(ZeroDivisionError):
        Service(both, cancel=slow.cancel, grace=0.01).run()
    for place in (PLACE, Place("h", "events")):
        claim = offsets.read_hint(bucket, place, Source(0), 0).hint.claim
        assert claim is not None
        assert claim.owner == ""


def test_a_bucket_that_is_away_at_the_end_does_not_hide_what_was_done(
    bucket: MemoryBucket, kafka: FakeKafka, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.append("events", 0, *messages(3))
    one = made(bucket, kafka, policy={"max_messages": 3})

    def away() -> None:
        raise CatchmentError("the bucket is away")

    one.let_go = away  # type: ignore[method-assign]
    [progress] = Service([one]).run(Until.DONE)
    assert progress.ranges == 1
    assert "could not let go of its claims (the bucket is away)" in caplog.text

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from catchment.bucket.wrap import Counting
from catchment.errors import BrokerError, Unreachable
from catchment.testing.clock import START, FakeClock
from catchment.testing.dying import Died, DyingBucket, lost_reply
from catchment.testing.topics import FakeKafka, Message
from catchment.topics import identity, offsets
from catchment.topics.names import Place, Source
from catchment.topics.skip import skip
from tests.unit.topics.lakes import (
    bounds,
    committed,
    export,
    exporter,
    manifests,
    memory,
    messages,
    run,
    topic,
)
from tests.unit.topics.lakes import offsets as exported

PLACE = Place("g", "events")


@pytest.fixture
def kafka() -> FakeKafka:
    made = FakeKafka()
    made.create("events", partitions=2)
    return made


def test_everything_there_is_exported_once_and_its_offsets_are_in_the_manifests(kafka: FakeKafka) -> None:
    bucket = memory()
    kafka.append("events", 0, *messages(5), None, *messages(2, "b"))
    kafka.append("events", 1, *messages(3))
    run(exporter(bucket, kafka))
    assert exported(bucket) == [*(("0", n) for n in (0, 1, 2, 3, 4, 6, 7)), ("1", 0), ("1", 1), ("1", 2)]
    first = next(manifests(bucket))
    assert (first.counts.read, first.counts.gaps, first.holes) == (7, 1, ((5, 5),))
    assert {file.key.split("/")[3] for file in first.files} == {"type=a", "type=b"}


def test_a_backlog_is_worked_off_in_ranges_of_the_configured_size(kafka: FakeKafka) -> None:
    bucket = memory()
    kafka.append("events", 0, *messages(10))
    run(exporter(bucket, kafka, policy={"max_messages": 4}))
    assert bounds(bucket) == [("0", 0, 3), ("0", 4, 7), ("0", 8, 9)]


def test_what_is_young_and_small_waits_for_its_age(kafka: FakeKafka) -> None:
    bucket, clock = memory(), FakeClock()
    one = exporter(bucket, kafka, clock=clock, policy={"max_age": "5m", "max_messages": 4})
    one.step()
    kafka.append("events", 0, *messages(6))
    assert [manifest.last for manifest in one.step().committed] == [3]
    clock.advance(299)
    assert not one.step().committed
    clock.advance(2)
    assert [manifest.last for manifest in one.step().committed] == [5]


def test_a_sample_tells_how_many_bytes_a_range_will_have(kafka: FakeKafka) -> None:
    bucket = memory()
    body = messages(1)[0]
    kafka.append("events", 0, *[body] * 10)
    run(exporter(bucket, kafka, policy={"max_bytes": f"{len(body) * 3}B"}))
    assert bounds(bucket) == [("0", 0, 2), ("0", 3, 5), ("0", 6, 8), ("0", 9, 9)]


def test_aligned_ranges_are_cut_where_the_clock_says(kafka: FakeKafka) -> None:
    bucket, clock = memory(), FakeClock(START + timedelta(minutes=2))
    one = exporter(bucket, kafka, clock=clock, policy={"max_age": "5m", "align": True})
    one.step()
    at = int(START.timestamp() * 1000)
    minutes = (3, 4, 6, 7)
    kafka.append("events", 0, *(Message(messages(1)[0], at + minute * 60_000) for minute in minutes))
    clock.advance(150)
    assert not one.step().committed
    clock.advance(200)  # 00:07:50: the boundary at 00:05 has passed
    one.step()
    assert bounds(bucket) == [("0", 0, 1)]
    one.step()
    assert bounds(bucket) == [("0", 0, 1)]  # what came after the boundary waits for the next one
    clock.advance(200)
    one.step()
    assert bounds(bucket) == [("0", 0, 1), ("0", 2, 3)]


def test_two_replicas_leave_each_others_ranges_alone(kafka: FakeKafka) -> None:
    bucket = memory()
    kafka.append("events", 0, *messages(4))
    seen = []
    other = exporter(bucket, kafka, owner="other")

    def between(name: str) -> None:
        if name == "claim":
            seen.append(other.step(flush=True))

    exporter(bucket, kafka, owner="one", on_step=between).step(flush=True)
    assert seen[0].busy == 1
    assert not seen[0].committed
    assert [manifest.owner for manifest in manifests(bucket)] == ["one"]


def test_a_claim_whose_owner_is_gone_is_taken_over_with_its_bounds(kafka: FakeKafka) -> None:
    bucket = memory()
    kafka.append("events", 0, *messages(10))

    def die(name: str) -> None:
        if name == "claim":
            raise Died

    with pytest.raises(Died):
        run(exporter(bucket, kafka, owner="dead", policy={"max_messages": 7}, on_step=die))
    run(exporter(bucket, kafka, owner="next", policy={"max_messages": 2}, gone=lambda owner: owner == "dead"))
    assert bounds(bucket) == [("0", 0, 6), ("0", 7, 8), ("0", 9, 9)]


def test_a_claim_that_was_let_go_of_is_taken_at_once(kafka: FakeKafka) -> None:
    bucket = memory()
    kafka.append("events", 0, *messages(3))
    kafka.down = True
    one = exporter(bucket, kafka, owner="one")
    with pytest.raises(BrokerError):
        one.step(flush=True)
    kafka.down = False

    class Broken(Exception):
        pass

    def fail(name: str) -> None:
        if name == "claim":
            raise Broken

    one = exporter(bucket, kafka, owner="one", on_step=fail)
    with pytest.raises(Broken):
        one.step(flush=True)
    one.let_go()
    other = exporter(bucket, kafka, owner="other")
    assert other.step().committed  # due whatever its age: it is claimed


@pytest.mark.parametrize(
    "start, expected",
    [
        ("earliest", [0, 1, 2, 3]),
        ("latest", []),
        ("2026-01-01T00:02:00Z", [2, 3]),
        ({"group": "billing"}, [1, 2, 3]),
    ],
)
def test_a_new_export_begins_where_it_is_told(kafka: FakeKafka, start: object, expected: list[int]) -> None:
    bucket = memory()
    at = int(START.timestamp() * 1000)
    kafka.append("events", 0, *(Message(body, at + n * 60_000) for n, body in enumerate(messages(4))))
    kafka.groups["billing"] = {("events", 0): 1}
    run(exporter(bucket, kafka, config=topic(start=start)))
    assert [offset for _, offset in exported(bucket)] == expected
    kafka.append("events", 0, messages(1)[0])
    run(exporter(bucket, kafka, config=topic(start="earliest"), owner="later"))
    assert [offset for _, offset in exported(bucket)] == [*expected, 4]  # the start is for a new export only


def test_new_kafka_partitions_and_new_topics_are_found_and_begin_at_their_beginning(kafka: FakeKafka) -> None:
    bucket, clock = memory(), FakeClock()
    one = exporter(bucket, kafka, clock=clock, config=topic(match="ev.*", start="latest", discover="30s"))
    one.step(flush=True)
    kafka.add_partition("events")
    kafka.append("events", 2, *messages(2))
    kafka.create("evolution")
    kafka.append("evolution", 0, *messages(3))
    kafka.create("other")
    kafka.append("other", 0, *messages(3))
    one.step(flush=True)
    assert not exported(bucket)
    clock.advance(30)
    run(one)
    assert exported(bucket) == [("2", 0), ("2", 1)]
    assert len(exported(bucket, Place("g", "evolution"))) == 3
    assert not list(bucket.list("topics/g/other"))


def test_a_kafka_partition_that_is_first_seen_after_retention_passed_it_is_a_gap(kafka: FakeKafka) -> None:
    bucket, clock = memory(), FakeClock()
    one = exporter(bucket, kafka, clock=clock)
    one.step(flush=True)
    kafka.add_partition("events")
    kafka.append("events", 2, *messages(5))
    kafka.expire("events", 2, before=3)
    clock.advance(31)
    assert "from 0 to 2" in one.step(flush=True).problems[0]


def test_a_retention_gap_stops_that_kafka_partition_and_says_how_to_go_on(kafka: FakeKafka) -> None:
    bucket, clock = memory(), FakeClock()
    kafka.append("events", 0, *messages(3))
    run(exporter(bucket, kafka))
    kafka.append("events", 0, *messages(7))
    kafka.append("events", 1, *messages(2))
    kafka.expire("events", 0, before=5)
    one = exporter(bucket, kafka, clock=clock)
    [*_, last] = run(one)
    assert last.problems == (
        "g/events Kafka partition 0: Kafka no longer has the offsets from 3 to 4; they were not exported;"
        " to go on after them, with that on record: catchment topics skip --group g --topic events"
        " --kafka-partition 0 --to 5",
    )
    assert bounds(bucket) == [("0", 0, 2), ("1", 0, 1)]  # the other one goes on
    known = identity.read(bucket, PLACE)
    assert known is not None
    skip(bucket, PLACE, export(), known, 0, 5, earliest=5, why="gone", owner="person", now=START)
    clock.advance(offsets_recheck())
    run(one)
    assert bounds(bucket) == [("0", 0, 2), ("0", 3, 4), ("0", 5, 9), ("1", 0, 1)]
    skipped = next(one for one in manifests(bucket) if one.first == 3)
    assert (skipped.counts.read, skipped.counts.gaps, skipped.skipped) == (0, 2, "gone")


def offsets_recheck() -> float:
    from catchment.topics.export import RECHECK

    return RECHECK


def test_a_topic_that_was_made_again_is_told_apart_even_when_it_has_outgrown_the_old_one(kafka: FakeKafka) -> None:
    bucket = memory()
    kafka.append("events", 0, *messages(3))
    run(exporter(bucket, kafka))
    kafka.delete("events")
    new = kafka.create("events", partitions=1)
    kafka.append("events", 0, *messages(9, "new"))
    [*_, last] = run(exporter(bucket, kafka, owner="second"))
    assert "deleted and made again" in last.problems[0]
    assert "skip --group g --topic events --recreated" in last.problems[0]
    assert bounds(bucket) == [("0", 0, 2)]
    identity.accept_recreated(bucket, PLACE, new, {0: 0})
    run(exporter(bucket, kafka, owner="third"))
    assert bounds(bucket) == [("0", 0, 2), ("0r1", 0, 8)]


def test_a_topic_made_again_while_its_messages_are_read_is_not_committed(kafka: FakeKafka) -> None:
    bucket = memory()
    kafka.append("events", 0, *messages(3))

    def recreate(name: str) -> None:
        if name == "write":
            kafka.delete("events")
            kafka.create("events", partitions=2)
            kafka.append("events", 0, *messages(3, "new"))

    step = exporter(bucket, kafka, on_step=recreate).step(flush=True)
    assert "made again" in step.problems[0]
    assert not list(manifests(bucket))


def test_the_same_generation_with_another_definition_is_refused_with_the_number_to_set(kafka: FakeKafka) -> None:
    bucket = memory()
    kafka.append("events", 0, *messages(3))
    run(exporter(bucket, kafka, generation=4))
    kafka.append("events", 0, *messages(3))
    changed: dict[str, Any] = {"decode": "json", "filter": "n > 1"}
    [step] = run(exporter(bucket, kafka, generation=4, **changed))
    assert "generation 4 of g/events was written with another definition (decode, filter changed)" in step.problems[0]
    assert "set generation: 5" in step.problems[0]
    run(exporter(bucket, kafka, generation=5, **changed))
    assert [(one.first, one.last, one.generation) for one in manifests(bucket)] == [(0, 2, 4), (3, 5, 5)]
    [step] = run(exporter(bucket, kafka, generation=3))
    assert "set generation: 6" in step.problems[0]


def test_old_and_new_generation_side_by_side_share_one_chain(kafka: FakeKafka) -> None:
    bucket = memory()
    kafka.append("events", 0, *messages(12))
    old = exporter(bucket, kafka, owner="old", policy={"max_messages": 2})
    new = exporter(bucket, kafka, owner="new", generation=2, decode="json", policy={"max_messages": 3})
    for _ in range(8):
        old.step(flush=True)
        new.step(flush=True)
    assert [offset for _, offset in exported(bucket)] == list(range(12))
    assert {one.generation for one in manifests(bucket)} == {1, 2}


def test_a_hint_that_cannot_be_read_is_an_error_with_the_command_that_mends_it(kafka: FakeKafka) -> None:
    bucket = memory()
    kafka.append("events", 0, *messages(3))
    run(exporter(bucket, kafka))
    for body in (b"not json", b"{}", b'{"next": "x"}', b'{"next": 3, "claim": {"first": 1}}'):
        bucket.put(PLACE.hint(Source(0)), body)
        [step] = run(exporter(bucket, kafka, owner="next"))
        assert "catchment topics repair --group g --topic events" in step.problems[0]
    assert bounds(bucket) == [("0", 0, 2)]


def test_a_hint_that_is_gone_is_found_again_from_the_manifests(kafka: FakeKafka) -> None:
    bucket = memory()
    kafka.append("events", 0, *messages(9))
    run(exporter(bucket, kafka, policy={"max_messages": 2}))
    bucket.delete(PLACE.hint(Source(0)))
    kafka.append("events", 0, *messages(2))
    run(exporter(bucket, kafka, owner="next"))
    assert [offset for _, offset in exported(bucket)] == list(range(11))


def test_a_hint_that_is_behind_costs_nothing_but_reads(kafka: FakeKafka) -> None:
    bucket = memory()
    kafka.append("events", 0, *messages(3))
    run(exporter(bucket, kafka))
    old = bucket.get(PLACE.hint(Source(0)))
    kafka.append("events", 0, *messages(6))
    run(exporter(bucket, kafka, owner="b", policy={"max_messages": 2}))
    bucket.put(PLACE.hint(Source(0)), old)
    kafka.append("events", 0, *messages(1))
    run(exporter(bucket, kafka, owner="c"))
    assert [offset for _, offset in exported(bucket)] == list(range(10))


def test_idle_kafka_partitions_stay_current_by_heartbeats(kafka: FakeKafka) -> None:
    bucket, clock = memory(), FakeClock()
    counted = Counting(bucket)
    kafka.append("events", 0, *messages(3))
    one = exporter(counted, kafka, clock=clock, heartbeat="5m")
    run(one)
    one.step()
    before = counted.counts.total
    for _ in range(29):
        clock.advance(10)
        one.step()
    assert counted.counts.total == before  # nothing at all between heartbeats
    clock.advance(10)
    one.step()
    assert counted.counts.total == before + 2  # one swap for each Kafka partition
    for source in (Source(0), Source(1)):
        hint = offsets.read_hint(bucket, PLACE, source, 0).hint
        assert hint.watermark == "2026-01-01T00:05:00.000Z"


def test_a_start_reads_twice_for_each_kafka_partition_and_lists_nothing(kafka: FakeKafka) -> None:
    bucket = memory()
    kafka.append("events", 0, *messages(100))
    run(exporter(bucket, kafka, policy={"max_messages": 1}), most=200)
    counted = Counting(bucket)
    exporter(counted, kafka, owner="next").step()
    assert counted.counts.requests["read"] == 1 + 2 * 2  # what the export is; hint and manifest of each
    assert not counted.counts.requests["list"] + counted.counts.requests["children"]


def test_a_range_costs_three_requests_beyond_its_files(kafka: FakeKafka) -> None:
    bucket = memory()
    kafka.append("events", 0, *messages(4))
    run(exporter(bucket, kafka))
    counted = Counting(bucket)
    one = exporter(counted, kafka, owner="next")
    one.step()
    kafka.append("events", 0, *messages(4))
    before = counted.counts.total
    [manifest] = one.step(flush=True).committed
    assert counted.counts.total - before == 3 + len(manifest.files)


def test_the_watermark_is_the_clock_before_the_ends_were_asked_for(kafka: FakeKafka) -> None:
    bucket, clock = memory(), FakeClock()
    kafka.append("events", 0, *messages(4))

    def pass_time(name: str) -> None:
        if name == "look":
            kafka.append("events", 0, *messages(1))  # arrives after the look
        clock.advance(60)

    exporter(bucket, kafka, clock=clock, on_step=pass_time).step(flush=True)
    hint = offsets.read_hint(bucket, PLACE, Source(0), 0).hint
    assert (hint.next, hint.watermark) == (4, "2026-01-01T00:00:00.000Z")


def test_a_range_that_does_not_reach_the_end_moves_no_watermark(kafka: FakeKafka) -> None:
    bucket = memory()
    kafka.append("events", 0, *messages(4))
    exporter(bucket, kafka, policy={"max_messages": 2}).step()
    assert offsets.read_hint(bucket, PLACE, Source(0), 0).hint.watermark is None


def test_an_end_below_the_committed_offset_is_a_problem_and_changes_nothing(kafka: FakeKafka) -> None:
    bucket = memory()
    kafka.append("events", 0, *messages(4))
    one = exporter(bucket, kafka)
    run(one)
    before = committed(bucket)
    del kafka._topics["events"][1][0].messages[2:]
    step = one.step(flush=True)
    assert "below the committed offset 4" in step.problems[0]
    assert committed(bucket) == before


@pytest.mark.parametrize("when", ["before", "after"])
def test_every_bucket_call_may_fail_once(kafka: FakeKafka, when: str) -> None:
    kafka.append("events", 0, *messages(5), b"bad", *messages(2, "b"))
    kafka.append("events", 1, *messages(3))
    clean = memory()
    run(exporter(clean, kafka, policy={"max_messages": 3}))
    at = 0
    while True:
        at += 1
        bucket = memory()
        error = lost_reply("x") if when == "after" else Unreachable("away")
        failing = DyingBucket(bucket, at=at, when=when, error=error)
        one = exporter(failing, kafka, policy={"max_messages": 3})
        for _ in range(3):
            try:
                run(one)
            except Unreachable:
                continue
            break
        assert committed(bucket) == committed(clean), failing.log[at - 1]
        if failing.calls < at:
            return


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_may_die_at_every_bucket_call(kafka: FakeKafka, when: str) -> None:
    kafka.append("events", 0, *messages(5), b"bad", *messages(2, "b"))
    kafka.append("events", 1, *messages(3))
    at = 0
    while True:
        at += 1
        bucket = memory()
        dying = DyingBucket(bucket, at=at, when=when)
        try:
            run(exporter(dying, kafka, owner="dead", policy={"max_messages": 3}))
        except Died:
            pass
        run(exporter(bucket, kafka, owner="next", policy={"max_messages": 2}, gone=lambda owner: True))
        assert exported(bucket) == [*(("0", n) for n in (0, 1, 2, 3, 4, 6, 7)), *(("1", n) for n in range(3))]
        if dying.calls < at:
            return


@pytest.mark.parametrize("step", ["look", "claim", "write"])
@pytest.mark.parametrize("other", [{}, {"generation": 2}, {"policy": {"max_messages": 2}}])
def test_a_process_that_wakes_late_changes_nothing_that_a_manifest_lists(
    kafka: FakeKafka, step: str, other: dict[str, Any]
) -> None:
    """Whether the one that took over had the same definition and cut or others."""
    bucket = memory()
    kafka.append("events", 0, *messages(6))
    overtaking = exporter(bucket, kafka, owner="other", gone=lambda owner: True, **other)
    before: list[object] = []

    def overtake(name: str) -> None:
        if name == step and not before:
            run(overtaking)
            before.append(committed(bucket))

    run(exporter(bucket, kafka, owner="slow", on_step=overtake))
    assert [committed(bucket)] == before
    assert [offset for _, offset in exported(bucket)] == list(range(6))


def test_a_claim_that_cannot_be_read_yet_waits(kafka: FakeKafka) -> None:
    """A claim over offsets that Kafka does not offer (a broker lags behind after an election) is left for later."""
    bucket = memory()
    kafka.append("events", 0, *messages(4))
    with pytest.raises(Died):
        run(exporter(bucket, kafka, owner="dead", on_step=lambda name: _die_at(name, "claim")))
    lost = kafka._topics["events"][1][0].messages
    kept = [lost.pop(), lost.pop()]
    one = exporter(bucket, kafka, owner="next", gone=lambda owner: True)
    assert not one.step(flush=True).committed
    lost += reversed(kept)
    run(one)
    assert bounds(bucket) == [("0", 0, 3)]


def _die_at(name: str, step: str) -> None:
    if name == step:
        raise Died


def test_manifests_say_when_and_by_whom(kafka: FakeKafka) -> None:
    bucket = memory()
    kafka.append("events", 0, *messages(1))
    run(exporter(bucket, kafka, clock=FakeClock(datetime(2026, 5, 5, tzinfo=UTC))))
    body = json.loads(bucket.get(PLACE.commit(Source(0), 0)))
    assert (body["owner"], body["committed"], body["topic_id"]) == ("me", "2026-05-05T00:00:00.000Z", "id-1")


def test_a_topic_that_is_not_there_is_a_problem_until_it_is(kafka: FakeKafka) -> None:
    bucket, clock = memory(), FakeClock()
    one = exporter(bucket, kafka, clock=clock, config=topic(match="evnets"))
    assert "no topic at localhost:9092 matches 'evnets'" in one.step().problems[0]
    kafka.create("evnets")
    clock.advance(31)
    assert not one.step().problems

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, TypeVar

import pytest

from catchment.bucket.contract import Bucket
from catchment.bucket.wrap import Counting, Wrapper
from catchment.config.topics import Export
from catchment.errors import UsageError
from catchment.testing.dying import Died, DyingBucket
from catchment.testing.topics import Message
from catchment.topics import committed, finalize, identity
from catchment.topics.backfill.run import Outcome
from catchment.topics.manifest import Manifest
from catchment.topics.names import Place, Source
from catchment.topics.period import Period
from catchment.topics.repair import repair
from catchment.topics.verify import verify
from tests.unit.topics.lake_of_files import NOW, TOPIC, Files

T = TypeVar("T")
DAY = datetime(2026, 11, 10, tzinfo=UTC)
PLACE = Place("events", TOPIC)
WRONG: dict[str, Any] = {  # the producer's `kind` is the type, and `type` an old field that is always "x"
    "group": "events",
    "decode": "json",
    "split": {"type": {"field": "type"}, "day": {"field": "ts", "unit": "ms", "by": "day"}},
    "policy": {"max_messages": 10},
    "finalize": {"lateness": "1h"},
}
RIGHT = {**WRONG, "generation": 2, "split": {**WRONG["split"], "type": {"field": "kind"}}}


def made(values: dict[str, Any], **more: Any) -> Export:
    return Export.model_validate({**values, **more})


def message(number: int) -> Message:
    when = DAY + timedelta(hours=number)
    body = {"type": "x", "kind": "ab"[number % 2], "ts": int(when.timestamp() * 1000), "n": number}
    return Message(json.dumps(body).encode(), timestamp=int(when.timestamp() * 1000), key=b"k%d" % number)


@pytest.fixture
def lake() -> Files:
    """Two Kafka partitions of 25 messages each over two days, exported by the wrong definition and to a backup."""
    files = Files()
    files.kafka.create(TOPIC, partitions=2)
    for partition in (0, 1):
        files.kafka.append(TOPIC, partition, *(message(n) for n in range(25)))
    files.export(made({"group": "backup", "policy": {"max_messages": 7}}))
    files.export(made(WRONG))
    return files


def kinds(rows: list[dict[str, Any]]) -> set[str]:
    return {row["folder"].split("/")[0] for row in rows}


def manifests(lake: Files, place: Place = PLACE) -> list[Manifest]:
    return list(committed.manifests(lake.bucket, place, workers=1))


def test_ranges_are_written_anew_from_the_backup_when_kafka_has_nothing_left(lake: Files) -> None:
    for partition in (0, 1):
        lake.kafka.expire(TOPIC, partition, 25)
    before = [(one.source, one.first, one.last) for one in manifests(lake)]
    assert kinds(lake.rows("events")) == {"type=x"}

    done = lake.backfill(made(RIGHT))

    assert not done.problems
    assert {one.outcome for one in done.ranges} == {Outcome.SWAPPED}
    assert [(one.source, one.first, one.last) for one in manifests(lake)] == before
    rows = lake.rows("events")
    assert sorted(row["n"] for row in rows) == sorted([*range(25)] * 2)
    assert all(row["folder"].startswith(f"type={row['kind']}/") for row in rows)
    assert {one.generation for one in manifests(lake)} == {2}
    assert verify(lake.bucket, PLACE).missing == 0


def test_a_second_run_has_nothing_to_do(lake: Files) -> None:
    lake.backfill(made(RIGHT))
    there = {entry.key: entry.etag for entry in lake.bucket.list()}
    again = lake.backfill(made(RIGHT))
    assert not again.ranges
    assert len(again.plan.current) == 6
    assert {entry.key: entry.etag for entry in lake.bucket.list()} == there


def test_from_kafka_it_is_the_same(lake: Files) -> None:
    other = Files(kafka=lake.kafka)
    other.export(made({"group": "backup", "policy": {"max_messages": 7}}))
    other.export(made(WRONG))
    lake.backfill(made(RIGHT))
    other.backfill(made(RIGHT), source=None)
    assert other.rows("events") == lake.rows("events")
    assert [one.files for one in manifests(other)] == [one.files for one in manifests(lake)]


def test_only_the_ranges_of_the_period_are_touched(lake: Files) -> None:
    done = lake.backfill(made(RIGHT), Period(Source(1), first=12, last=13))
    assert [(one.todo.source, one.todo.first, one.todo.last) for one in done.ranges] == [(Source(1), 10, 19)]
    assert [one.generation for one in manifests(lake)] == [1, 1, 1, 1, 2, 1]


def test_a_period_may_be_one_of_time(lake: Files) -> None:
    done = lake.backfill(made(RIGHT), Period(start=DAY + timedelta(hours=21)))
    assert [one.todo.first for one in done.ranges] == [20, 20]


def test_without_replace_readers_see_the_old_files_and_a_later_run_swaps(lake: Files) -> None:
    before = manifests(lake)
    done = lake.backfill(made(RIGHT), replace=False)
    assert {one.outcome for one in done.ranges} == {Outcome.PREPARED}
    assert manifests(lake) == before
    files = {entry.key: entry.etag for entry in lake.bucket.list(PLACE.prefix) if "/2_" in entry.key}
    assert files
    lake.backfill(made(RIGHT))
    assert {entry.key: entry.etag for entry in lake.bucket.list(PLACE.prefix) if "/2_" in entry.key} == files


def test_a_dry_run_names_files_and_rows_and_changes_nothing(lake: Files) -> None:
    there = {entry.key: entry.etag for entry in lake.bucket.list() if not entry.key.endswith("_export.json")}
    done = lake.backfill(made(RIGHT), dry_run=True)
    assert {entry.key: entry.etag for entry in lake.bucket.list() if not entry.key.endswith("_export.json")} == there
    first = done.ranges[0].todo
    assert first.before is not None
    assert sum(file.rows for file in first.before.files) == 10
    # The backup's ranges are of seven messages, so two of its files hold the ten.
    assert [read.rows for read in first.reads] == [7, 7]
    assert all(lake.bucket.head(read.what) for read in first.reads)


def test_what_the_backup_does_not_have_stays_as_it_is_and_is_told(lake: Files) -> None:
    gone = Place("backup", TOPIC).commit(Source(0), 14)
    lake.bucket.delete(gone)
    done = lake.backfill(made(RIGHT))
    assert len(done.problems) == 2
    assert "backup/events does not have the offsets from 14 to 19" in done.problems[0]
    assert [one.generation for one in manifests(lake)] == [2, 1, 1, 2, 2, 2]


def test_a_backup_that_went_over_offsets_is_no_source_for_them(lake: Files) -> None:
    key = Place("backup", TOPIC).commit(Source(0), 14)
    body = json.loads(lake.bucket.get(key))
    body |= {"files": [], "skipped": "by hand", "holes": [[14, 20]]}
    body["counts"] = {"read": 0, "gaps": 7, "written": 0, "dead": 0, "filtered": 0}
    lake.bucket.put(key, json.dumps(body).encode())
    done = lake.backfill(made(RIGHT))
    assert "went over the offsets 14 to 20" in done.problems[0]
    assert len(lake.rows("events")) == 50


def test_a_source_with_fewer_messages_than_the_range_was_made_of_is_refused(lake: Files) -> None:
    lake.kafka._topics[TOPIC][1][0].messages[3] = None  # compacted since
    done = lake.backfill(made(RIGHT), source=None)
    assert done.problems == [
        "Kafka partition 0 [0, 9]: 9 messages are left of 10 that the range was made of;"
        " read it from another place (--from)"
    ]
    assert [one.generation for one in manifests(lake)] == [1, 2, 2, 2, 2, 2]


def test_kafka_without_the_offsets_is_told(lake: Files) -> None:
    lake.kafka.expire(TOPIC, 0, 12)
    done = lake.backfill(made(RIGHT), source=None)
    assert [str(one) for one in done.plan.unavailable] == [
        "Kafka partition 0 [0, 9]: Kafka no longer has the offsets from 0 to 9",
        "Kafka partition 0 [10, 19]: Kafka no longer has the offsets from 10 to 11",
    ]


def test_a_topic_made_again_is_not_what_the_range_was_read_from(lake: Files) -> None:
    lake.kafka.delete(TOPIC)
    lake.kafka.create(TOPIC, partitions=2)
    for partition in (0, 1):
        lake.kafka.append(TOPIC, partition, *(message(n) for n in range(25)))
    done = lake.backfill(made(RIGHT), source=None)
    assert all("no longer has the topic" in problem for problem in done.problems)
    assert not done.ranges
    assert not lake.backfill(made(RIGHT)).problems  # the backup still has it


def test_an_earlier_life_of_the_topic_is_found_in_the_backup_by_its_id(lake: Files) -> None:
    lake.kafka.delete(TOPIC)
    id = lake.kafka.create(TOPIC)
    lake.kafka.append(TOPIC, 0, *(message(n) for n in range(4)))
    for group in ("backup", "events"):
        identity.accept_recreated(lake.bucket, Place(group, TOPIC), id, {0: 0})
    lake.export(made({"group": "backup", "policy": {"max_messages": 7}}))
    lake.export(made(WRONG))
    done = lake.backfill(made(RIGHT))
    assert not done.problems
    assert [str(one.todo.source) for one in done.ranges] == ["0", "0", "0", "0r1", "1", "1", "1"]
    assert len(lake.rows("events")) == 54


def test_a_range_that_was_gone_over_is_filled_from_the_backup(lake: Files) -> None:
    [old] = [one for one in manifests(lake) if (one.source, one.first) == (Source(0), 10)]
    body = json.loads(old.body("n")) | {"files": [], "skipped": "by hand", "holes": [[10, 19]]}
    body["counts"] = {"read": 0, "gaps": 10, "written": 0, "dead": 0, "filtered": 0}
    lake.bucket.put(PLACE.commit(Source(0), 10), json.dumps(body).encode())
    assert len(lake.rows("events")) == 40
    lake.backfill(made(WRONG))  # of the same generation: there is nothing that it would change but this
    assert len(lake.rows("events")) == 50
    assert not any(one.skipped for one in manifests(lake))


def test_too_many_dead_letters_leave_the_range_as_it_is(lake: Files) -> None:
    lost = made(RIGHT, split={**RIGHT["split"], "type": {"field": "nowhere"}})
    done = lake.backfill(lost)
    assert len(done.problems) == 6
    assert "above dead_letters.stop_above" in done.problems[0]
    assert {one.generation for one in manifests(lake)} == {1}


def test_an_export_that_decodes_is_no_backup(lake: Files) -> None:
    with pytest.raises(UsageError, match="is no backup: its generation 1 decodes"):
        lake.backfill(made(RIGHT), source="events")


def test_repair_removes_what_was_replaced_and_nothing_else(lake: Files) -> None:
    lake.backfill(made(RIGHT))
    old = {entry.key for entry in lake.bucket.list(PLACE.prefix) if "/1_" in entry.key}
    done = repair(lake.bucket, PLACE, now=NOW)
    assert set(done.removed) == old
    assert len(lake.rows("events")) == 50
    assert verify(lake.bucket, PLACE).findings == ()


# -- closed days


@pytest.fixture(params=["republish", "count"])
def closed(request: pytest.FixtureRequest, lake: Files) -> tuple[Files, Export]:
    """Both days are closed."""
    late = {"finalize": {"lateness": "1h", "late": request.param}}
    finalize.close(lake.bucket, PLACE, made(WRONG, **late), DAY + timedelta(days=3), workers=1)
    return lake, made(RIGHT, **late)


def published(bucket: Bucket) -> set[str]:
    """Every file that a `_SUCCESS` lists."""
    found = [entry.key for entry in bucket.list(PLACE.prefix) if entry.key.endswith("/_SUCCESS")]
    return {file["key"] for key in found for file in json.loads(bucket.get(key))["files"]}


def listed(lake: Files) -> set[str]:
    return {file.key for one in manifests(lake) for file in one.files}


def test_closed_days_list_the_new_files(closed: tuple[Files, Export]) -> None:
    lake, right = closed
    assert published(lake.bucket) == listed(lake)
    lake.backfill(right)
    assert published(lake.bucket) == listed(lake)
    assert verify(lake.bucket, PLACE).problems == ()
    repair(lake.bucket, PLACE, now=NOW)
    assert published(lake.bucket) == listed(lake)
    assert len(lake.rows("events")) == 50


def test_a_crash_before_publishing_is_mended_by_the_next_run(closed: tuple[Files, Export]) -> None:
    lake, right = closed

    def die(step: str) -> None:
        if step == "swap":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lake.backfill(right, on_step=die)
    assert published(lake.bucket) != listed(lake)
    again = lake.backfill(right)
    assert again.mended
    assert published(lake.bucket) == listed(lake)


def test_a_late_range_stays_late(lake: Files) -> None:
    late = {"finalize": {"lateness": "1h", "late": "count"}}
    finalize.close(lake.bucket, PLACE, made(WRONG, **late), DAY + timedelta(days=3), workers=1)
    lake.kafka.append(TOPIC, 0, message(2))
    lake.export(made({"group": "backup", "policy": {"max_messages": 7}}))
    lake.export(made(WRONG, **late))
    lake.backfill(made(RIGHT, **late))
    late_keys = [entry.key for entry in lake.bucket.list(PLACE.prefix) if entry.key.endswith("/_LATE")]
    in_late = {file["key"] for key in late_keys for file in json.loads(lake.bucket.get(key))["files"]}
    assert published(lake.bucket) | in_late == listed(lake)
    assert not published(lake.bucket) & in_late


# -- before the start


def test_what_lies_before_the_start_is_added(lake: Files) -> None:
    new = made({**WRONG, "group": "late"})
    lake.export(new, start="latest")
    lake.kafka.append(TOPIC, 0, *(message(n) for n in range(25, 30)))
    lake.export(new)
    assert sorted(row["n"] for row in lake.rows("late")) == [*range(25, 30)]

    assert not lake.backfill(new).ranges  # only when it is asked for
    done = lake.backfill(new, before_start=True)

    assert not done.problems
    assert {one.outcome for one in done.ranges} == {Outcome.ADDED}
    assert sorted(row["n"] for row in lake.rows("late")) == sorted([*range(25), *range(30)])
    place = Place("late", TOPIC)
    known = identity.read(lake.bucket, place)
    assert known is not None
    assert known.starts == {0: 0, 1: 0}
    assert verify(lake.bucket, place).problems == ()
    assert not lake.backfill(new, before_start=True).ranges


def test_what_is_added_has_no_hole_when_it_is_stopped(lake: Files) -> None:
    new = made({**WRONG, "group": "late"})
    lake.export(new, start="latest")
    lake.kafka.append(TOPIC, 0, message(25))
    lake.export(new)
    place = Place("late", TOPIC)
    for stop in ("swap", "publish"):
        for after in range(1, 4):
            left = after

            def die(step: str, stop: str = stop) -> None:
                nonlocal left
                left -= step == stop
                if not left:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                lake.backfill(new, before_start=True, on_step=die)
            spans = [(one.source, one.first, one.last) for one in manifests(lake, place)]
            for source in (Source(0), Source(1)):
                mine = [span for span in spans if span[0] == source]
                assert all(one[2] + 1 == other[1] for one, other in pairwise(mine))
    lake.backfill(new, before_start=True)
    assert sorted(row["n"] for row in lake.rows("late")) == sorted([*range(25), *range(26)])
    assert verify(lake.bucket, place).problems == ()


def test_from_kafka_only_what_it_has_is_added(lake: Files) -> None:
    new = made({**WRONG, "group": "late"})
    lake.export(new, start="latest")
    lake.kafka.expire(TOPIC, 0, 20)
    lake.backfill(new, source=None, before_start=True)
    assert sorted(row["n"] for row in lake.rows("late")) == sorted([*range(20, 25), *range(25)])


# -- whatever happens meanwhile


def copy_of(lake: Files) -> Files:
    other = Files(kafka=lake.kafka)
    for entry in lake.bucket.list():
        other.bucket.put(entry.key, lake.bucket.get(entry.key))
    return other


class Watched(Wrapper):
    """After every call somebody reads what manifests list: each message once, by the old or the new definition."""

    def _call(self, operation: str, key: str, do: Callable[[], T]) -> T:
        found = do()
        if operation in ("put", "delete"):
            rows = Files(bucket=self.inner).rows("events")
            assert sorted(row["n"] for row in rows) == sorted([*range(25)] * 2)
            for row in rows:
                assert row["folder"].split("/")[0] in ("type=x", f"type={row['kind']}")
        return found


def test_a_reader_sees_the_old_or_the_new_at_every_moment(lake: Files) -> None:
    lake.backfill(made(RIGHT), bucket=Watched(lake.bucket))
    assert "type=x" not in kinds(lake.rows("events"))


def test_dying_at_any_call_loses_nothing_and_a_second_run_ends_the_same(lake: Files) -> None:
    finalize.close(lake.bucket, PLACE, made(WRONG), DAY + timedelta(days=3), workers=1)
    clean = copy_of(lake)
    counting = Counting(clean.bucket)
    clean.backfill(made(RIGHT), Period(Source(0)), bucket=counting)
    wanted = {one.first: one.files for one in manifests(clean)}
    total = counting.counts.total
    assert total > 50
    for at in range(1, total + 1, 5):
        other = copy_of(lake)
        with suppress(Died):
            other.backfill(made(RIGHT), Period(Source(0)), bucket=DyingBucket(other.bucket, at=at))
        assert len(other.rows("events")) == 50
        other.backfill(made(RIGHT), Period(Source(0)))
        assert {one.first: one.files for one in manifests(other)} == wanted
        assert published(other.bucket) == listed(other)


def test_two_at_once_end_as_one(lake: Files) -> None:
    """The second one runs as a whole in the middle of the first, at each step of it."""
    for stop in range(1, 8):
        other = copy_of(lake)
        left = stop

        def second(step: str, other: Files = other) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                other.backfill(made(RIGHT))

        done = other.backfill(made(RIGHT), on_step=second)
        assert not done.problems
        assert {one.generation for one in manifests(other)} == {2}
        assert len(other.rows("events")) == 50


def test_a_later_definition_is_never_overwritten_by_an_earlier_one(lake: Files) -> None:
    third = made(RIGHT, generation=3, filter="n < 20")

    def overtake(step: str) -> None:
        if step == "plan":
            lake.backfill(third)

    done = lake.backfill(made(RIGHT), on_step=overtake)
    assert {one.outcome for one in done.ranges} == {Outcome.OVERTAKEN}
    assert {one.generation for one in manifests(lake)} == {3}
    assert len(lake.rows("events")) == 40
    assert lake.backfill(made(RIGHT)).plan.newer == 6


def test_the_live_export_goes_on_meanwhile(lake: Files) -> None:
    number = 25

    def live(step: str) -> None:
        nonlocal number
        if step == "swap" and number < 40:
            lake.kafka.append(TOPIC, 0, message(number))
            lake.export(made(RIGHT))
            number += 1

    done = lake.backfill(made(RIGHT), on_step=live)
    assert not done.problems
    rows = lake.rows("events")
    assert sorted(row["n"] for row in rows) == sorted([*range(25), *range(number)])
    assert "type=x" not in kinds(rows)
    assert verify(lake.bucket, PLACE).problems == ()

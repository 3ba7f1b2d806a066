from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from catchment.bucket.contract import Bucket
from catchment.config.storage import Storage
from catchment.config.topics import Export
from catchment.errors import BrokerError, CatchmentError, ExportStopped
from catchment.topics import committed, finalize, identity
from catchment.topics.backfill.backup import Backup, Replayed
from catchment.topics.backfill.rewrite import FromKafka, on_spark
from catchment.topics.backfill.run import Outcome
from catchment.topics.definition import fingerprint
from catchment.topics.manifest import Manifest
from catchment.topics.names import Place, Source
from catchment.topics.period import Period
from catchment.topics.recount import Recount, Recounter
from catchment.topics.repair import repair
from catchment.topics.verify import verify
from catchment.topics.work import Reading, Refused, Target, Work, Written
from tests.unit.topics.backfill.test_backfill import (
    DAY,
    PLACE,
    RIGHT,
    WRONG,
    listed,
    made,
    manifests,
    message,
    published,
)
from tests.unit.topics.lake_of_files import NOW, TOPIC, Files, RangeWriter

BACKUP = Place("backup", TOPIC)
LATE = Place("late", TOPIC)
NEW = made({**WRONG, "group": "late"})


@pytest.fixture
def lake() -> Files:
    """25 messages of one Kafka partition, exported by the wrong definition and to a backup of seven in a range."""
    files = Files()
    files.kafka.create(TOPIC)
    files.kafka.append(TOPIC, 0, *(message(n) for n in range(25)))
    files.export(made({"group": "backup", "policy": {"max_messages": 7}}))
    files.export(made(WRONG))
    return files


@pytest.fixture
def begun(lake: Files) -> Files:
    """With an export that begins at offset 25."""
    lake.export(NEW, start="latest")
    lake.kafka.append(TOPIC, 0, message(25))
    lake.export(NEW)
    lake.export(made({"group": "backup", "policy": {"max_messages": 7}}))
    return lake


def offsets(lake: Files, group: str = "late") -> list[int]:
    return sorted(row["_offset"] for row in lake.rows(group))


def stop_at(wanted: str) -> Any:
    def stop(step: str) -> None:
        if step == wanted:
            raise KeyboardInterrupt

    return stop


# -- before the start: one cut of it, whoever adds


def test_what_a_run_that_died_has_added_is_not_added_again_by_another_cut(begun: Files) -> None:
    with pytest.raises(KeyboardInterrupt):
        begun.backfill(NEW, before_start=True, on_step=stop_at("swap"))  # [21, 24] of the backup is committed
    begun.backfill(NEW, source=None, before_start=True)  # Kafka would cut [0, 24]
    assert offsets(begun) == [*range(26)]
    assert verify(begun.bucket, LATE).problems == ()
    known = identity.read(begun.bucket, LATE)
    assert known is not None
    assert known.starts == {0: 0}


@pytest.mark.parametrize("other", [{"source": None}, {"period": Period(first=23)}])
@pytest.mark.parametrize("step", ["plan", "write", "swap", "publish"])
def test_two_that_cut_otherwise_add_nothing_twice(begun: Files, step: str, other: dict[str, Any]) -> None:
    ran = False

    def second(now: str) -> None:
        nonlocal ran
        if now == step and not ran:
            ran = True
            begun.backfill(NEW, before_start=True, **other)

    begun.backfill(NEW, before_start=True, on_step=second)
    begun.backfill(NEW, before_start=True)
    assert offsets(begun) == [*range(26)]
    repair(begun.bucket, LATE, now=NOW)  # what the other wrote of it
    assert offsets(begun) == [*range(26)]
    assert verify(begun.bucket, LATE).findings == ()


def test_what_was_added_by_an_earlier_definition_and_not_finished_is_written_anew(begun: Files) -> None:
    with pytest.raises(KeyboardInterrupt):
        begun.backfill(NEW, before_start=True, on_step=stop_at("swap"))
    done = begun.backfill(made({**RIGHT, "group": "late"}), before_start=True)
    assert not done.problems
    assert {one.generation for one in manifests(begun, LATE)} == {2}
    assert offsets(begun) == [*range(26)]


def test_a_dry_run_after_one_that_died_plans_what_is_left_and_writes_nothing(begun: Files) -> None:
    with pytest.raises(KeyboardInterrupt):
        begun.backfill(NEW, before_start=True, on_step=stop_at("swap"))
    there = {entry.key: entry.etag for entry in begun.bucket.list()}
    done = begun.backfill(NEW, before_start=True, dry_run=True)
    assert [one.todo.first for one in done.ranges] == [14, 7, 0]
    assert {entry.key: entry.etag for entry in begun.bucket.list()} == there


def test_a_topic_that_is_made_again_meanwhile_gets_nothing_added(begun: Files) -> None:
    def again(step: str) -> None:
        if step == "plan":
            identity.accept_recreated(begun.bucket, LATE, "another", {0: 5})

    done = begun.backfill(NEW, before_start=True, on_step=again)
    assert {one.outcome for one in done.ranges} == {Outcome.FAILED}
    known = identity.read(begun.bucket, LATE)
    assert known is not None
    assert known.starts == {0: 5}
    assert offsets(begun) == [25]


def test_what_lies_above_the_period_is_not_added(begun: Files) -> None:
    done = begun.backfill(NEW, Period(last=10), before_start=True)
    assert offsets(begun) == [25]
    assert "the offsets from 14 to 24 have to be added first" in done.problems[0]


def test_fewer_messages_than_the_backup_counted_are_not_taken_for_gaps(begun: Files) -> None:
    """The manifest says that there were seven; its file is another one now."""
    [short] = [one for one in manifests(begun, BACKUP) if one.first == 21]
    [other] = [one for one in manifests(begun, BACKUP) if one.first == 0]
    assert short.counts.read == 4
    begun.bucket.put(other.files[0].key, begun.bucket.get(short.files[0].key))
    done = begun.backfill(NEW, before_start=True)
    assert len(done.problems) == 1
    assert offsets(begun) == [*range(7, 26)]


# -- the backup


def test_a_manifest_of_the_backup_that_cannot_be_read_concerns_its_own_ranges_only(lake: Files) -> None:
    lake.bucket.put(BACKUP.commit(Source(0), 21), b"no manifest")
    done = lake.backfill(made(RIGHT))
    assert [one.generation for one in manifests(lake)] == [2, 2, 1]
    assert "is not a manifest that can be read" in done.problems[0]


def test_a_life_that_was_begun_meanwhile_is_not_looked_for(lake: Files) -> None:
    known = identity.read(lake.bucket, PLACE)
    assert known is not None
    found = Backup(lake.bucket, BACKUP, known).reads(Source(0, 1), 0, 3)
    assert found == "backup/events does not have the offsets from 0 to 3"


# -- Kafka


class Failing(RangeWriter):
    """A range that cannot be written fails its job, as Spark does it."""

    partition = 0

    def write(self, reading: Reading, works: Any) -> list[Written | Refused]:
        if any(work.source.partition == self.partition for work in works):
            raise CatchmentError("it cannot be written")
        return super().write(reading, works)


def from_kafka(lake: Files) -> FromKafka:
    known = identity.read(lake.bucket, PLACE)
    assert known is not None
    return FromKafka(lake.kafka, TOPIC, known, lambda: Failing(lake.bucket, lake.kafka), Reading("", {}))


def works(export: Export, *partitions: int) -> list[Work]:
    return [Work(export, TOPIC, Source(one), 0, 3, fingerprint(export), "b") for one in partitions]


def test_a_range_that_cannot_be_written_does_not_take_others_with_it() -> None:
    files = Files()
    files.kafka.create(TOPIC, partitions=3)
    for partition in range(3):
        files.kafka.append(TOPIC, partition, *(message(n) for n in range(5)))
    files.export(made(WRONG))
    answers = [answer for _, answer in from_kafka(files).write(works(made(RIGHT), 0, 1, 2))]
    assert [type(answer) for answer in answers] == [CatchmentError, Written, Written]


def test_brokers_that_are_away_when_the_topic_is_asked_for_are_an_answer(
    lake: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = from_kafka(lake)
    monkeypatch.setattr(Failing, "partition", 7)

    def away(wanted: object) -> Any:
        raise BrokerError("no broker answers")

    monkeypatch.setattr(lake.kafka, "topics", away)
    [(_, answer)] = source.write(works(made(RIGHT), 0))
    assert isinstance(answer, BrokerError)


# -- closed days of an earlier definition


def closed(lake: Files, **late: str) -> None:
    export = made(WRONG, finalize={"lateness": "1h", **late})
    finalize.close(lake.bucket, PLACE, export, DAY + timedelta(days=3), workers=1)
    assert published(lake.bucket) == listed(lake)


def lists(bucket: Bucket) -> dict[str, set[str]]:
    found = [entry.key for entry in bucket.list(PLACE.prefix) if entry.key.endswith(("/_SUCCESS", "/_LATE"))]
    return {key: {file["key"] for file in json.loads(bucket.get(key))["files"]} for key in found}


@pytest.mark.parametrize(
    "new",
    [
        {"split": {"type": {"field": "kind"}, "date": {"field": "ts", "unit": "ms", "by": "day"}}},
        {"split": {"type": {"field": "kind"}, "day": {"field": "ts", "unit": "ms", "by": "hour"}}},
        {"split": {"type": {"field": "kind"}}, "finalize": None},
        {"finalize": None},
    ],
)
def test_no_list_of_a_closed_day_keeps_files_that_were_replaced(lake: Files, new: dict[str, Any]) -> None:
    closed(lake)
    done = lake.backfill(made(RIGHT, **new))
    assert not done.problems
    assert set().union(*lists(lake.bucket).values()) <= listed(lake)
    assert not [one for one in verify(lake.bucket, PLACE).problems if "which is not committed" in one.message]
    there = {entry.key: entry.etag for entry in lake.bucket.list()}
    lake.backfill(made(RIGHT, **new))
    assert {entry.key: entry.etag for entry in lake.bucket.list()} == there


def test_a_day_that_ends_otherwise_by_now_lists_no_replaced_files(lake: Files) -> None:
    """Closed by UTC; in the new zone its last day ends after all that is closed."""
    export = made(WRONG)
    finalize.close(lake.bucket, PLACE, export, DAY + timedelta(days=2, hours=1), workers=1)
    zone = {"field": "ts", "unit": "ms", "by": "day", "zone": "America/New_York"}
    lake.backfill(made(RIGHT, split={"type": {"field": "type"}, "day": zone}))
    assert set().union(*lists(lake.bucket).values()) <= listed(lake)


def test_late_files_are_replaced_also_if_late_files_go_elsewhere_by_now(lake: Files) -> None:
    count = {"finalize": {"lateness": "1h", "late": "count"}}
    closed(lake, late="count")
    lake.kafka.append(TOPIC, 0, message(2))
    lake.export(made({"group": "backup", "policy": {"max_messages": 7}}))
    lake.export(made(WRONG, **count))
    same = made(RIGHT, split=WRONG["split"], filter="n >= 0")
    lake.backfill(same)
    assert set().union(*lists(lake.bucket).values()) == listed(lake)


# -- what is asked for


def test_a_dry_run_is_refused_where_the_run_would_be(lake: Files) -> None:
    lake.export(made(RIGHT, generation=5))
    known = identity.read(lake.bucket, PLACE)
    assert known is not None
    for check in (
        lambda: identity.check_definition(PLACE, known, made(RIGHT, generation=4)),
        lambda: identity.register(lake.bucket, PLACE, known.topic_id, made(RIGHT, generation=4), dict),
    ):
        with pytest.raises(ExportStopped, match="which was never used"):
            check()


def test_ranges_of_the_backup_are_found_without_looking_at_all_of_them(lake: Files) -> None:
    known = identity.read(lake.bucket, PLACE)
    assert known is not None
    backup = Backup(lake.bucket, BACKUP, known)
    every = list(committed.manifests(lake.bucket, BACKUP))
    for first in range(25):
        for last in range(first, 25):
            found = backup.pieces(Source(0), first, last)
            assert not isinstance(found, str)
            wanted: list[Manifest] = [one for one in every if one.first <= last and one.last >= first]
            assert [piece.manifest for piece in found] == wanted


# -- closed days, and ranges that had no files


@pytest.mark.parametrize("late", ["republish", "count"])
def test_a_range_that_had_no_files_is_published_by_the_next_run_after_a_crash(lake: Files, late: str) -> None:
    how = {"finalize": {"lateness": "1h", "late": late}}
    [old] = [one for one in manifests(lake) if one.first == 10]
    body = json.loads(old.body("n")) | {"files": [], "skipped": "by hand", "holes": [[10, 19]]}
    body["counts"] = {"read": 0, "gaps": 10, "written": 0, "dead": 0, "filtered": 0}
    lake.bucket.put(PLACE.commit(Source(0), 10), json.dumps(body).encode())
    closed(lake, late=late)
    with pytest.raises(KeyboardInterrupt):
        lake.backfill(made(WRONG, **how), on_step=stop_at("swap"))
    lake.backfill(made(WRONG, **how))
    assert published(lake.bucket) == listed(lake)


def test_what_was_added_to_a_closed_day_is_published_after_a_crash_whatever_the_period(begun: Files) -> None:
    finalize.close(begun.bucket, LATE, NEW, DAY + timedelta(days=3), workers=1)
    with pytest.raises(KeyboardInterrupt):
        begun.backfill(NEW, before_start=True, on_step=stop_at("swap"))
    begun.backfill(NEW, Period(last=3), before_start=True)
    found = [entry.key for entry in begun.bucket.list(LATE.prefix) if entry.key.endswith("/_SUCCESS")]
    lists = {file["key"] for key in found for file in json.loads(begun.bucket.get(key))["files"]}
    assert lists == {file.key for one in manifests(begun, LATE) for file in one.files}


def test_verify_does_not_take_a_backfill_meanwhile_for_damage(lake: Files) -> None:
    closed(lake)

    def meanwhile(recounter: Recounter, ranges: Sequence[Manifest]) -> Iterator[Recount]:
        lake.backfill(made(RIGHT))
        repair(lake.bucket, PLACE, now=NOW)
        return map(recounter, ranges)

    assert verify(lake.bucket, PLACE, mapper=meanwhile).problems == ()


class FailingSpark:
    """Stands for Spark: a job that has the range from 0 fails as a whole; others tell their first offsets."""

    defaultParallelism = 2

    @property
    def sparkContext(self) -> FailingSpark:
        return self

    def parallelize(self, ranges: list[Replayed], slices: int) -> FailingSpark:
        self._ranges = ranges
        return self

    def map(self, task: object) -> FailingSpark:
        return self

    def collect(self) -> list[int]:
        if any(one.work.first == 0 for one in self._ranges):
            raise RuntimeError("a worker died")
        return [one.work.first for one in self._ranges]


def test_a_range_that_ends_its_spark_job_does_not_take_others_with_it() -> None:
    export = made(RIGHT)
    ranges = [Replayed(Work(export, TOPIC, Source(0), one, one + 3, ""), BACKUP, ()) for one in range(0, 40, 4)]
    found = list(on_spark(lambda: FailingSpark(), Target(Storage(id="main", path="x")))(ranges))  # type: ignore[arg-type, return-value]
    assert isinstance(found[0], CatchmentError)
    assert found[1:] == [*range(4, 40, 4)]

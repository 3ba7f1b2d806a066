"""Replay: what is sent, in which order, and that nothing is sent twice, whoever dies when. Kafka is a list here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.bucket.contract import Bucket
from catchment.errors import BucketError, ExportStopped, LeaseLost, UsageError
from catchment.testing.dying import Died, DyingBucket
from catchment.topics import identity
from catchment.topics.messages import Messages, Window, merged
from catchment.topics.names import Source
from catchment.topics.records import BACKED, DEAD
from catchment.topics.repair import repair
from catchment.topics.replay import Progress, Replay, Replayed, Sender, replay
from catchment.topics.transactions import Outgoing, Target
from catchment.topics.verify import verify
from tests.unit.topics.backups import Backup, Message
from tests.unit.topics.write.ranges import BEGIN
from tests.unit.topics.written import parquet, records

NOW = datetime.fromtimestamp(BEGIN / 1000, UTC) + timedelta(days=30)
ONE, TWO = Source(0), Source(1)
EVERYTHING = Window()
TARGET = Target("other", "other-id", "localhost:9092", (0, 1), {"retention.ms": "-1"})


class Stopped(Exception):
    """The process ends here."""


@dataclass
class Kafka:
    """What transactions leave behind, and when the process that makes them ends."""

    sent: list[Outgoing] = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)  # who opened a name last
    left: int = -1  # steps until the process ends; -1: it does not

    def open(self, name: str) -> Sender:
        self.step()
        self.owners[name] = self.owners.get(name, 0) + 1
        return Transaction(self, name, self.owners[name])

    def position(self, name: str) -> int | None:
        return self.positions.get(name)

    def step(self) -> None:
        if self.left == 0:
            raise Stopped
        self.left -= 1

    def at(self, partition: int) -> list[Outgoing]:
        return [one for one in self.sent if one.partition == partition]


@dataclass
class Transaction:
    kafka: Kafka
    name: str
    owner: int

    def position(self) -> int | None:
        self.kafka.step()
        return self.kafka.position(self.name)

    def commit(self, messages: Iterable[Outgoing], position: int) -> None:
        held = list(messages)
        self.kafka.step()
        if self.kafka.owners[self.name] != self.owner:
            raise LeaseLost("another took over")
        self.kafka.sent += held
        self.kafka.positions[self.name] = position
        self.kafka.step()

    def close(self) -> None:
        pass


def messages(number: int) -> list[Message]:
    return [
        Message(n, b"v%d" % n, None if n % 3 else b"k", BEGIN + n * 1000, (("h", b"%d" % n),) * (n % 3))
        for n in range(number)
    ]


def outgoing(made: Iterable[Message], partition: int = 0) -> list[Outgoing]:
    return [
        Outgoing(one.offset, one.value, one.key, list(one.headers) or None, one.timestamp, partition) for one in made
    ]


def backup(**values: Any) -> Backup:
    found = Backup(values=values).begin()
    made = messages(50)
    found.commit(0, 19, made)
    found.commit(20, 29, made)
    found.commit(30, 49, made)
    found.commit(0, 9, made, TWO)
    return found


def what(
    of: Backup,
    scratch: Path,
    window: Window = EVERYTHING,
    *,
    bucket: Bucket | None = None,
    **more: Any,
) -> Replay:
    known = identity.read(of.bucket, of.place)
    assert known is not None
    also_incomplete = more.pop("also_incomplete", False)
    read = Messages(bucket or of.bucket, of.place, known, window, scratch, also_incomplete)
    return Replay(read, more.pop("target", TARGET), **more)


def run(kafka: Kafka, one: Replay, **how: Any) -> Replayed:
    return replay(one, kafka.open, kafka.position, **{"now": NOW, "messages": 7, **how})


# What is sent


def test_everything_is_sent_in_order(tmp_path: Path) -> None:
    kafka = Kafka()
    done = run(kafka, what(backup(), tmp_path))
    assert kafka.at(0) == outgoing(messages(50))
    assert kafka.at(1) == outgoing(messages(10), 1)
    first, second = done.parts
    assert (first.messages, first.first, first.last, first.oldest, first.newest) == (50, 0, 49, BEGIN, BEGIN + 49_000)
    assert (first.bytes, second.messages) == (
        sum(len(one.value or b"") + len(one.key or b"") for one in messages(50)),
        10,
    )
    assert (done.messages, done.dry_run) == (60, False)


@pytest.mark.parametrize("first", [None, 0, 5, 19, 20, 45])
@pytest.mark.parametrize("last", [None, 4, 20, 48, 1000])
def test_a_window_of_offsets(tmp_path: Path, first: int | None, last: int | None) -> None:
    kafka = Kafka()
    run(kafka, what(backup(), tmp_path, Window(first, last)), kafka_partition=0)
    low, high = first or 0, 49 if last is None else last
    assert [one.offset for one in kafka.sent] == [n for n in range(50) if low <= n <= high]


def test_a_window_of_times_is_exact(tmp_path: Path) -> None:
    start = datetime.fromtimestamp(BEGIN / 1000, UTC) + timedelta(seconds=10)
    of, kafka = backup(), Kafka()
    run(kafka, what(of, tmp_path, Window(start=start, end=start + timedelta(seconds=25, milliseconds=1))))
    assert [one.offset for one in kafka.at(0)] == list(range(10, 36))
    kafka = Kafka()
    done = run(kafka, what(of, tmp_path, Window(40, start=start + timedelta(seconds=35))))
    assert [one.offset for one in kafka.sent] == list(range(45, 50))
    assert list(kafka.positions.values()) == [50]
    assert [one.kafka_partition for one in done.parts] == [0]


def test_nothing_chosen_is_noted_on_the_way(tmp_path: Path) -> None:
    of, kafka = Backup().begin(), Kafka()
    of.commit(0, 999, messages(1000))
    seen: list[Progress] = []
    run(kafka, what(of, tmp_path, Window(start=NOW)), messages=4, on_progress=seen.append)
    assert kafka.sent == []
    assert list(kafka.positions.values()) == [1000]
    assert len(seen) > 5
    assert (seen[-1].done, seen[-1].total, seen[-1].messages) == (1000, 1000, 0)


def test_files_of_several_folders_and_dead_letters_come_in_one_order(tmp_path: Path) -> None:
    values = {"split": {"who": {"header": "h"}}, "dead_letters": {"stop_above": "100%"}}
    of, kafka = Backup(values=values).begin(), Kafka()
    made = of.commit(0, 49, messages(50))
    assert len(made.files) > 5
    assert made.dead
    run(kafka, what(of, tmp_path))
    assert kafka.sent == outgoing(messages(50))


@given(st.lists(st.lists(st.integers(1, 5), max_size=6), max_size=6), st.randoms(use_true_random=False))
def test_merging_is_sorting(cuts: list[list[int]], chance: Any) -> None:
    """Files by chance, each in pieces by chance."""
    total = sum(map(sum, cuts))
    offsets = list(range(total))
    chance.shuffle(offsets)
    files: list[tuple[int, Callable[[], Iterator[pa.Table]]]] = []
    for sizes in cuts:
        mine, offsets = sorted(offsets[: sum(sizes)]), offsets[sum(sizes) :]
        pieces = [mine[sum(sizes[:n]) : sum(sizes[: n + 1])] for n in range(len(sizes))]
        tables = [pa.table({"offset": pa.array(one, pa.int64())}) for one in pieces]
        if mine:
            files.append((mine[0], lambda tables=tables: iter(tables)))  # type: ignore[misc]
    assert [one for table in merged(files) for one in table["offset"].to_pylist()] == list(range(total))


def test_files_are_opened_when_their_turn_comes() -> None:
    opened: list[int] = []

    def reads(first: int) -> Callable[[], Iterator[pa.Table]]:
        def tables() -> Iterator[pa.Table]:
            opened.append(first)
            yield pa.table({"offset": pa.array([first, first + 1], pa.int64())})

        return tables

    found = merged([(first, reads(first)) for first in (4, 0, 2)])
    next(found)
    assert opened == [0]
    assert len(list(found)) == 2


def test_large_messages_make_small_transactions(tmp_path: Path) -> None:
    of, kafka = Backup().begin(), Kafka()
    of.commit(0, 9, [Message(n, bytes(5_000_000), None, BEGIN) for n in range(10)])
    seen: list[int] = []
    run(kafka, what(of, tmp_path), messages=1000, on_progress=lambda now: seen.append(now.messages))
    assert seen == [3, 6, 9, 10]


def test_progress_is_told_over_all_kafka_partitions(tmp_path: Path) -> None:
    seen: list[Progress] = []
    run(Kafka(), what(backup(), tmp_path), on_progress=seen.append)
    assert [one.done for one in seen] == sorted(one.done for one in seen)
    assert (seen[-1].done, seen[-1].total, seen[-1].messages) == (60, 60, 60)


def test_a_dry_run_sends_nothing_and_counts_the_same(tmp_path: Path) -> None:
    of, kafka = backup(), Kafka()
    dry = run(kafka, what(of, tmp_path), dry_run=True)
    assert (kafka.sent, kafka.positions, kafka.owners) == ([], {}, {})
    assert not list(of.bucket.list(f"{of.place.prefix}_replays/"))
    assert replace(run(kafka, what(of, tmp_path)), dry_run=True) == dry
    again = run(kafka, what(of, tmp_path), dry_run=True)
    assert [(one.resumed, one.messages) for one in again.parts] == [(50, 0), (10, 0)]


def test_keys_choose(tmp_path: Path) -> None:
    kafka = Kafka()
    run(kafka, what(backup(), tmp_path, target=replace(TARGET, partitions=(0,)), by_key=True))
    assert {one.partition for one in kafka.sent} == {-1}


# Once, whoever dies when


def test_stopped_at_any_step_and_run_again_everything_is_there_once(tmp_path: Path) -> None:
    whole = 0
    for left in range(200):
        of, kafka = backup(), Kafka(left=left)
        try:
            run(kafka, what(of, tmp_path))
            whole += 1
        except Stopped:
            pass
        before = len(kafka.sent)
        kafka.left = -1
        done = run(kafka, what(of, tmp_path))
        assert kafka.at(0) == outgoing(messages(50))
        assert kafka.at(1) == outgoing(messages(10), 1)
        assert done.messages == 60 - before
        if whole:
            break
    assert left > 20


def test_a_bucket_that_fails_at_any_call_loses_nothing(tmp_path: Path) -> None:
    for calls in range(1, 200):
        of, kafka = backup(), Kafka()
        dying = DyingBucket(of.bucket, at=calls)
        try:
            run(kafka, what(of, tmp_path, bucket=dying))
        except Died:
            run(kafka, what(of, tmp_path))
            assert kafka.at(0) == outgoing(messages(50))
            assert kafka.at(1) == outgoing(messages(10), 1)
        else:
            break
    assert calls > 10


def test_what_was_opened_again_sends_nothing_more(tmp_path: Path) -> None:
    of, kafka = backup(), Kafka()
    first = True

    def taken_over(now: Progress) -> None:
        nonlocal first
        if first:
            first = False
            run(kafka, what(of, tmp_path))

    with pytest.raises(LeaseLost):
        run(kafka, what(of, tmp_path), on_progress=taken_over)
    assert kafka.at(0) == outgoing(messages(50))
    assert kafka.at(1) == outgoing(messages(10), 1)


def test_the_name_is_of_what_is_replayed_where(tmp_path: Path) -> None:
    one = what(backup(), tmp_path)
    assert one.name(ONE) == what(backup(), tmp_path).name(ONE)
    others = [
        replace(one, of=replace(one.of, window=Window(first=3))),
        replace(one, of=replace(one.of, window=Window(start=NOW))),
        replace(one, of=replace(one.of, window=Window(end=NOW))),
        replace(one, target=replace(TARGET, id="made-again")),
        replace(one, of=replace(one.of, known=replace(one.of.known, topic_id="made again", life=1))),
    ]
    assert len({other.name(ONE) for other in (one, *others)} | {one.name(TWO)}) == 7


def test_a_kafka_partition_alone_and_all_of_them_are_one_replay(tmp_path: Path) -> None:
    of, kafka = backup(), Kafka()
    run(kafka, what(of, tmp_path), kafka_partition=1)
    done = run(kafka, what(of, tmp_path))
    assert [(one.kafka_partition, one.resumed) for one in done.parts] == [(0, None), (1, 10)]
    assert kafka.at(1) == outgoing(messages(10), 1)


def test_a_position_that_kafka_forgot_is_not_replaced_by_the_beginning(tmp_path: Path) -> None:
    of, kafka = backup(), Kafka()
    run(kafka, what(of, tmp_path))
    kafka.positions.clear()
    with pytest.raises(ExportStopped, match="no longer knows how far it came") as caught:
        run(kafka, what(of, tmp_path))
    assert len(kafka.sent) == 60
    note = what(of, tmp_path).note(ONE)
    assert note in caught.value.hint
    of.bucket.put(note, b"cut o")
    with pytest.raises(ExportStopped):
        run(kafka, what(of, tmp_path))


# What is refused


def refused(of: Backup, scratch: Path, kafka: Kafka | None = None, **more: Any) -> str:
    found = kafka or Kafka()
    how = {name: more.pop(name) for name in ("kafka_partition", "now") if name in more}
    with pytest.raises(UsageError) as caught:
        run(found, what(of, scratch, **more), **how)
    assert not found.sent
    assert caught.value.hint
    return str(caught.value)


def test_a_target_that_is_the_source_or_of_an_earlier_life(tmp_path: Path) -> None:
    of = backup()
    assert "is the topic that" in refused(of, tmp_path, target=replace(TARGET, id="id"))
    identity.accept_recreated(of.bucket, of.place, "id-2", {})
    assert "is the topic that" in refused(of, tmp_path, target=replace(TARGET, id="id"))


def test_too_few_kafka_partitions(tmp_path: Path) -> None:
    said = refused(backup(), tmp_path, target=replace(TARGET, partitions=(0,)))
    assert "Kafka partition 1" in said
    assert "--partitions 2" in said
    assert "--by-key" in said


def test_a_kafka_partition_that_was_never_exported(tmp_path: Path) -> None:
    assert "it has of: 0, 1" in refused(backup(), tmp_path, kafka_partition=7)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"retention.ms": "86400000"}, "would drop the message of offset 0 at once"),
        ({"retention.ms": "86400000", "cleanup.policy": "compact,delete"}, "keeps messages for 1 day"),
        ({"message.timestamp.type": "LogAppendTime"}, "message.timestamp.type=CreateTime"),
    ],
)
def test_a_topic_that_would_not_keep_them(tmp_path: Path, settings: dict[str, str], said: str) -> None:
    assert said in refused(backup(), tmp_path, target=replace(TARGET, settings=settings))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"retention.ms": "-1"},
        {"retention.ms": "9223372036854775807"},
        {"retention.ms": "1000", "cleanup.policy": "compact"},
        {"retention.ms": str(31 * 86_400_000)},
    ],
)
def test_a_topic_that_keeps_them(tmp_path: Path, settings: dict[str, str]) -> None:
    assert run(Kafka(), what(backup(), tmp_path, target=replace(TARGET, settings=settings))).messages == 60


def test_decoded_rows_are_no_messages(tmp_path: Path) -> None:
    of = Backup(values={"group": "events", "decode": "json"}).begin()
    of.commit(0, 0, [Message(0, b"{}")])
    assert "replay a backup" in refused(of, tmp_path)


@pytest.mark.parametrize(
    ("format", "lost"), [("text", "no headers and no key and no timestamp"), ("sequence", "headers")]
)
def test_formats_that_keep_less_are_replayed_if_that_is_wanted(tmp_path: Path, format: str, lost: str) -> None:
    of, kafka = backup(format=format), Kafka()
    said = refused(of, tmp_path)
    assert lost in said
    assert "--also-incomplete" in said
    assert "replay it by offsets" in refused(of, tmp_path, window=Window(end=NOW), also_incomplete=True)
    run(kafka, what(of, tmp_path, also_incomplete=True))
    assert [(one.offset, one.value, one.headers, one.timestamp) for one in kafka.at(0)] == [
        (n, b"v%d" % n, None, 0) for n in range(50)
    ]


def test_what_is_incomplete_is_not_dropped_at_once_either(tmp_path: Path) -> None:
    soon = replace(TARGET, settings={"retention.ms": "86400000"})
    assert "would drop the message" in refused(backup(), tmp_path, target=soon, also_incomplete=True)
    arrival = replace(soon, settings={**soon.settings, "message.timestamp.type": "LogAppendTime"})
    assert run(Kafka(), what(backup(), tmp_path, target=arrival, also_incomplete=True)).messages == 60
    assert run(Kafka(), what(backup(format="text"), tmp_path, target=soon, also_incomplete=True)).messages == 60


def test_a_message_without_a_timestamp(tmp_path: Path) -> None:
    of = Backup().begin()
    of.commit(0, 1, [Message(0, b"a", timestamp=BEGIN), Message(1, b"b", timestamp=-1, timestamp_type=-1)])
    assert "the message of offset 1 has no timestamp" in refused(of, tmp_path)
    kafka = Kafka()
    run(kafka, what(of, tmp_path, also_incomplete=True))
    assert [one.timestamp for one in kafka.sent] == [BEGIN, 0]


def test_dead_letters_that_were_kept_without_headers(tmp_path: Path) -> None:
    values = {"split": {"who": {"header": "h"}}, "dead_letters": {"stop_above": "100%"}}
    of = Backup(values=values).begin()
    made = of.commit(0, 9, messages(10))
    (letters,) = made.dead
    assert set(BACKED.names) > set(DEAD.names) - {"reason"}
    of.bucket.put(letters.key, parquet(records([0, 3, 6, 9], DEAD)))
    assert "without their headers" in refused(of, tmp_path, target=replace(TARGET, settings={}))


def test_skipped_offsets_are_counted_and_gone_over(tmp_path: Path) -> None:
    of, kafka = Backup().begin(), Kafka()
    of.commit(0, 9, messages(10))
    gone = replace(of.write(10, 29, []), skipped="gone over by hand")
    of.bucket.put(of.place.commit(ONE, 10), gone.body("n"))
    of.commit(30, 39, messages(40))
    done = run(kafka, what(of, tmp_path))
    assert [one.offset for one in kafka.sent] == [*range(10), *range(30, 40)]
    assert done.parts[0].skipped == 20


def test_a_broken_chain_stops_it_where_it_breaks(tmp_path: Path) -> None:
    of, kafka = Backup().begin(), Kafka()
    of.commit(0, 9, messages(10))
    of.commit(20, 29, messages(30))
    with pytest.raises(ExportStopped, match="no manifest holds the offsets from 10 to 19") as caught:
        run(kafka, what(of, tmp_path))
    assert "--first-offset 20" in caught.value.hint
    of.commit(10, 24, messages(30))
    with pytest.raises(ExportStopped, match="two manifests hold the offsets from 20 to 24"):
        run(kafka, what(of, tmp_path))


def doubled(of: Backup, keys: Sequence[str]) -> None:
    of.bucket.put(keys[1], of.bucket.get(keys[0]))


def test_damaged_ranges_are_not_replayed(tmp_path: Path) -> None:
    of = Backup(values={"split": {"who": {"key": True, "default": "none"}}}).begin()
    made = of.commit(0, 9, messages(10))
    assert len(made.files) == 2
    doubled(of, [file.key for file in made.files])
    with pytest.raises(BucketError, match="an offset more than once"):
        run(Kafka(), what(of, tmp_path))
    of.bucket.put(of.place.commit(ONE, 0), b"{}")
    with pytest.raises(BucketError, match="not a manifest"):
        run(Kafka(), what(of, tmp_path))


def test_notes_of_replays_are_no_concern_of_verify_and_repair(tmp_path: Path) -> None:
    of, kafka = backup(), Kafka()
    run(kafka, what(of, tmp_path))
    notes = [one.key for one in of.bucket.list(f"{of.place.prefix}_replays/")]
    assert notes == [what(of, tmp_path).note(ONE), what(of, tmp_path).note(TWO)]
    assert verify(of.bucket, of.place).findings == ()
    repaired = repair(of.bucket, of.place, now=NOW)
    assert (repaired.removed, repaired.kept, repaired.problems) == ((), (), ())
    assert [one.key for one in of.bucket.list(f"{of.place.prefix}_replays/")] == notes

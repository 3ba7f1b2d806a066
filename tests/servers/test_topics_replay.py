"""Backups back into a real broker: what was in the topic is in the other one, once and in order."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from catchment.bucket.local import LocalBucket
from catchment.cli.app import run
from catchment.errors import BrokerError, ExportStopped, LeaseLost, UsageError
from catchment.testing.kafka import KafkaBroker, kafka_broker
from catchment.topics.messages import Window
from catchment.topics.names import Source
from catchment.topics.replay import Progress, Replayed, into_topic
from catchment.topics.transactions import Outgoing, Refused, Transactions, target
from tests.unit.topics.backups import Backup, Message

PROGRAM = Path(__file__).with_name("replay_program.py")
KEPT = {"retention.ms": "-1"}
EVERYTHING = Window()
BEGIN = 1_600_000_000_000  # 2020: older than what Kafka keeps by default


def message(offset: int, **more: Any) -> Message:
    return Message(offset, f"value {offset}".encode(), f"k{offset % 7}".encode(), BEGIN + offset * 1000, **more)


def messages(number: int) -> list[Message]:
    return [message(offset) for offset in range(number)]


Seen = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]


def seen(kafka: KafkaBroker, topic: str, partition: int = 0) -> list[Seen]:
    """What a reader of committed messages sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[Seen] = []
    end = time.monotonic() + 60
    while time.monotonic() < end:
        got: Any = consumer.poll(1.0)
        if got is None:
            continue
        if got.error() is not None:
            assert got.error().name() == "_PARTITION_EOF"
            consumer.close()
            return found
        headers = list(got.headers() or [])
        found.append((got.key(), got.value(), headers, got.timestamp()[1]))
    raise AssertionError("the end never came")


def as_sent(made: list[Message]) -> list[Seen]:
    return [(one.key, one.value, list(one.headers), one.timestamp) for one in made]


def replayed(
    kafka: KafkaBroker,
    backup: Backup,
    to: str,
    scratch: Path,
    window: Window = EVERYTHING,
    **how: Any,
) -> Replayed:
    now = how.pop("now", datetime.now(UTC))
    return into_topic(backup.bucket, backup.place, kafka.bootstrap, {}, to, window, scratch, now=now, **how)


def test_key_value_headers_and_timestamps_are_kept(kafka: KafkaBroker, tmp_path: Path) -> None:
    to = kafka.fresh_topic(partitions=2, config=KEPT)
    odd = [
        Message(0, None, b"deleted", BEGIN),
        Message(1, b"", b"", BEGIN + 5),
        Message(2, b"\x00\xff", None, BEGIN + 1, (("a", b"1"), ("b", b""), ("a", b"2"), ("ä", b"\xff"))),
        Message(4, b"later", b"k", BEGIN, (("null", None),)),  # type: ignore[arg-type]
    ]
    backup = Backup().begin()
    backup.commit(0, 5, odd)
    backup.commit(0, 9, messages(10), Source(1))
    done = replayed(kafka, backup, to, tmp_path)
    assert seen(kafka, to, 0) == as_sent(odd)
    assert seen(kafka, to, 1) == as_sent(messages(10))
    assert [(one.kafka_partition, one.first, one.last, one.resumed, one.messages) for one in done.parts] == [
        (0, 0, 5, None, 4),
        (1, 0, 9, None, 10),
    ]
    again = replayed(kafka, backup, to, tmp_path)
    assert [(one.resumed, one.messages) for one in again.parts] == [(6, 0), (10, 0)]
    assert len(seen(kafka, to, 0)) == 4


def test_what_is_committed_later_is_replayed_by_the_next_run(kafka: KafkaBroker, tmp_path: Path) -> None:
    to, backup = kafka.fresh_topic(config=KEPT), Backup().begin()
    backup.commit(0, 9, messages(30))
    replayed(kafka, backup, to, tmp_path)
    backup.commit(10, 29, messages(30))
    (part,) = replayed(kafka, backup, to, tmp_path).parts
    assert (part.resumed, part.messages) == (10, 20)
    assert seen(kafka, to) == as_sent(messages(30))


def test_a_window_of_times_goes_by_each_message(kafka: KafkaBroker, tmp_path: Path) -> None:
    to, backup = kafka.fresh_topic(config=KEPT), Backup().begin()
    backup.commit(0, 99, messages(100))
    start = datetime.fromtimestamp(BEGIN / 1000, UTC) + timedelta(seconds=20)
    window = Window(start=start, end=start + timedelta(seconds=30))
    assert replayed(kafka, backup, to, tmp_path, window, dry_run=True).messages == 30
    assert seen(kafka, to) == []
    replayed(kafka, backup, to, tmp_path, window, messages=7)
    assert seen(kafka, to) == as_sent(messages(50)[20:])


def test_keys_choose_the_kafka_partitions_if_asked(kafka: KafkaBroker, tmp_path: Path) -> None:
    to, backup = kafka.fresh_topic(partitions=2, config=KEPT), Backup().begin()
    backup.commit(0, 49, messages(50), Source(3))
    with pytest.raises(UsageError, match="has 2 Kafka partitions") as caught:
        replayed(kafka, backup, to, tmp_path)
    assert "--partitions 4" in caught.value.hint
    replayed(kafka, backup, to, tmp_path, by_key=True)
    both = [seen(kafka, to, number) for number in (0, 1)]
    assert sorted(both[0] + both[1], key=lambda one: one[3]) == as_sent(messages(50))
    assert not {one[0] for one in both[0]} & {one[0] for one in both[1]}


def test_the_command_replays_and_says_what_it_did(
    kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    topic = {"match": "clicks", "brokers": "127.0.0.1:1", "exports": [{"group": "backup"}]}
    config = {"object_storage": [{"id": "main", "path": "./lake"}], "topics": [topic]}
    (tmp_path / "catchment.yaml").write_text(json.dumps(config))
    backup = Backup(LocalBucket(tmp_path / "lake", create_below=tmp_path)).begin()
    backup.commit(0, 9, messages(10))
    to = kafka.fresh_topic(config=KEPT)
    # Where the topic was exported from is not asked: it may be what was lost.
    command = ["topics", "backfill", "--group", "backup", "--topic", "clicks", "--to-topic", to]
    command += ["--to-brokers", kafka.bootstrap, "--json"]
    assert run([*command, "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["parts"][0]["messages"] == 10
    assert run(command) == 0
    (part,) = json.loads(capsys.readouterr().out)["parts"]
    assert (part["kafka_partition"], part["messages"], part["resumed"]) == (0, 10, None)
    assert run(command) == 0
    (part,) = json.loads(capsys.readouterr().out)["parts"]
    assert (part["messages"], part["resumed"]) == (0, 10)
    assert seen(kafka, to) == as_sent(messages(10))


# What is refused


@pytest.mark.parametrize(
    ("config", "said", "advised"),
    [
        ({"message.timestamp.type": "LogAppendTime"}, "time of their arrival", "message.timestamp.type=CreateTime"),
        ({"retention.ms": "3600000"}, "would drop the message of offset 0", "retention.ms=-1"),
        ({}, "would drop the message of offset 0", "retention.ms=-1"),
    ],
)
def test_a_topic_that_cannot_keep_them_is_refused(
    kafka: KafkaBroker, tmp_path: Path, config: Mapping[str, str], said: str, advised: str
) -> None:
    to, backup = kafka.fresh_topic(config=config), Backup().begin()
    backup.commit(0, 9, messages(10))
    for dry_run in (True, False):
        with pytest.raises(UsageError, match=said) as caught:
            replayed(kafka, backup, to, tmp_path, dry_run=dry_run)
        assert advised in caught.value.hint
    assert kafka.end(to, committed=False) <= 1  # at most the mark of a transaction without messages


def test_the_exported_topic_itself_and_one_that_is_not_there_are_refused(kafka: KafkaBroker, tmp_path: Path) -> None:
    own = kafka.fresh_topic(config=KEPT)
    found = target(kafka.bootstrap, {}, own)
    assert found is not None
    backup = Backup(topic=own, topic_id=found.id).begin()
    backup.commit(0, 9, messages(10), Source(2))
    with pytest.raises(UsageError, match="is the topic that"):
        replayed(kafka, backup, own, tmp_path)
    with pytest.raises(UsageError, match="there is no topic nowhere") as caught:
        replayed(kafka, backup, "nowhere", tmp_path)
    assert "--create --topic nowhere --partitions 3" in caught.value.hint


def test_a_message_that_is_too_large_is_named_and_the_rest_follows(kafka: KafkaBroker, tmp_path: Path) -> None:
    to = kafka.fresh_topic(config=KEPT | {"max.message.bytes": "20000"})
    made = messages(30)
    made[20] = Message(20, random.Random(1).randbytes(50_000), b"k", BEGIN)
    backup = Backup().begin()
    backup.commit(0, 29, made)
    with pytest.raises(Refused, match="offset 20") as caught:
        replayed(kafka, backup, to, tmp_path, messages=10)
    assert f"max.message.bytes of {to}" in caught.value.hint
    assert seen(kafka, to) == as_sent(made[:20])
    change(kafka, to, "max.message.bytes", "1000000")
    (part,) = replayed(kafka, backup, to, tmp_path, messages=10).parts
    assert (part.resumed, part.messages) == (20, 10)
    assert seen(kafka, to) == as_sent(made)


def test_many_small_messages_are_no_large_batch(kafka: KafkaBroker, tmp_path: Path) -> None:
    to = kafka.fresh_topic(config=KEPT | {"max.message.bytes": "2000"})
    noise = random.Random(2)
    made = [Message(offset, noise.randbytes(300), None, BEGIN) for offset in range(300)]
    backup = Backup().begin()
    backup.commit(0, 299, made)
    replayed(kafka, backup, to, tmp_path)
    assert seen(kafka, to) == as_sent(made)


def change(kafka: KafkaBroker, topic: str, name: str, value: str) -> None:
    from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

    entry: Any = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource("topic", topic, incremental_configs=[entry])
    admin = kafka.admin()
    for done in admin.incremental_alter_configs([wanted]).values():
        done.result(30)


# Once, whatever happens


def test_a_topic_made_again_begins_anew(kafka: KafkaBroker, tmp_path: Path) -> None:
    to, backup = kafka.fresh_topic(config=KEPT), Backup().begin()
    backup.commit(0, 9, messages(10))
    replayed(kafka, backup, to, tmp_path)
    kafka.delete_topic(to)
    kafka.create_topic(to, config=KEPT)
    (part,) = replayed(kafka, backup, to, tmp_path).parts
    assert (part.resumed, part.messages) == (None, 10)
    assert seen(kafka, to) == as_sent(messages(10))


def test_a_topic_made_again_meanwhile_is_found_out(kafka: KafkaBroker, tmp_path: Path) -> None:
    to, backup = kafka.fresh_topic(config=KEPT), Backup().begin()
    backup.commit(0, 9, messages(10))

    def again(now: Progress) -> None:
        kafka.delete_topic(to)
        kafka.create_topic(to, config=KEPT)

    with pytest.raises(ExportStopped, match="made again while messages were sent"):
        replayed(kafka, backup, to, tmp_path, on_progress=again)


def test_what_kafka_forgot_is_not_begun_a_second_time(kafka: KafkaBroker, tmp_path: Path) -> None:
    to, backup = kafka.fresh_topic(config=KEPT), Backup().begin()
    backup.commit(0, 9, messages(10))
    replayed(kafka, backup, to, tmp_path)
    (note,) = [entry.key for entry in backup.bucket.list(f"{backup.place.prefix}_replays/")]
    name = note.rpartition("/")[2].removesuffix(".json")
    admin = kafka.admin()
    admin.delete_consumer_groups([name])[name].result(30)
    for dry_run in (True, False):
        with pytest.raises(ExportStopped, match="no longer knows how far it came") as caught:
            replayed(kafka, backup, to, tmp_path, dry_run=dry_run)
        assert note in caught.value.hint
    assert len(seen(kafka, to)) == 10


def test_the_newer_of_two_takes_over_and_nothing_is_there_twice(kafka: KafkaBroker, tmp_path: Path) -> None:
    to, backup = kafka.fresh_topic(config=KEPT), Backup().begin()
    backup.commit(0, 99, messages(100))
    steps: list[str] = []

    def step(name: str) -> None:
        steps.append(name)
        if steps.count("produced") == 4 and name == "produced":  # the first holds no message
            (part,) = replayed(kafka, backup, to, tmp_path).parts
            assert (part.resumed, part.messages) == (20, 80)

    with pytest.raises(LeaseLost, match="took over"):
        replayed(kafka, backup, to, tmp_path, messages=10, on_step=step)
    assert seen(kafka, to) == as_sent(messages(100))


def test_a_broker_that_goes_away_is_an_error_and_the_next_run_goes_on(kafka: KafkaBroker) -> None:
    to = kafka.fresh_topic(config=KEPT)
    one = Transactions(kafka.bootstrap, {}, f"test-{to}", to, timeout=3)
    one.commit([Outgoing(0, b"a", None, None, BEGIN, 0)], 1)
    kafka.pause()
    try:
        with pytest.raises(BrokerError, match="did not take a transaction"):
            one.commit([Outgoing(1, b"b", None, None, BEGIN, 0)], 2)
    finally:
        kafka.resume()
    one.close()
    two = Transactions(kafka.bootstrap, {}, f"test-{to}", to)
    came = two.position()
    assert came in (1, 2)
    if came == 1:
        two.commit([Outgoing(1, b"b", None, None, BEGIN, 0)], 2)
    two.close()
    assert [value for _, value, _, _ in seen(kafka, to)] == [b"a", b"b"]


def test_a_guarded_cluster_and_rights_that_are_missing(tmp_path: Path) -> None:
    rights = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }
    backup = Backup().begin()
    backup.commit(0, 9, messages(10))
    with kafka_broker(security=True, properties=rights) as broker:
        way = broker.sasl_ssl
        to = broker.fresh_topic(config=KEPT)
        about = (backup.bucket, backup.place, way.bootstrap, way.settings, to, EVERYTHING, tmp_path)
        admin = broker.admin()
        for kind, said in (
            (ResourceType.TRANSACTIONAL_ID, "did not begin a transaction"),
            (ResourceType.GROUP, "did not say how far the group"),
        ):
            reserved = (kind, "catchment-replay-", ResourcePatternType.PREFIXED, "User:bob", "*")
            right = AclBinding(*reserved, AclOperation.ALL, AclPermissionType.ALLOW)
            admin.create_acls([right])[right].result(30)
            with pytest.raises(BrokerError, match=said) as caught:
                Transactions(way.bootstrap, way.settings, "catchment-replay-x-0", to, timeout=5).position()
            assert "authorization failed" in caught.value.message
            ours = AclBindingFilter(*reserved, AclOperation.ANY, AclPermissionType.ANY)
            admin.delete_acls([ours])[ours].result(30)
        done = into_topic(*about, now=datetime.now(UTC))
        assert (done.parts[0].resumed, done.messages) == (None, 10)
        assert seen(broker, to) == as_sent(messages(10))


class Runs:
    """The same replay as processes, killed."""

    def __init__(self, kafka: KafkaBroker, folder: Path, partitions: int = 2, number: int = 400) -> None:
        self.kafka, self.number, self.partitions = kafka, number, partitions
        self.to = kafka.fresh_topic(partitions, KEPT)
        self.lake = folder / "lake"
        backup = Backup(LocalBucket(self.lake, create_below=folder)).begin()
        made = messages(number)
        for partition in range(partitions):
            for first in range(0, number, 150):
                backup.commit(first, min(first + 149, number - 1), made, Source(partition))

    def start(self, step: str = "never", number: int = 0) -> subprocess.Popen[str]:
        command = [sys.executable, str(PROGRAM), str(self.lake), self.kafka.bootstrap, "clicks", self.to]
        return subprocess.Popen([*command, step, str(number)], stdout=subprocess.PIPE, text=True)

    def killed(self, step: str, number: int) -> None:
        process = self.start(step, number)
        said, _ = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, said

    def ended(self) -> str:
        process = self.start()
        said, _ = process.communicate(timeout=120)
        assert process.returncode == 0, said
        return said

    def check(self) -> None:
        for partition in range(self.partitions):
            assert seen(self.kafka, self.to, partition) == as_sent(messages(self.number))


def test_killed_and_run_again_every_message_is_there_once(kafka: KafkaBroker, tmp_path: Path) -> None:
    runs = Runs(kafka, tmp_path)
    runs.killed("noted", 3)  # all of a transaction is sent, and it is not committed
    runs.killed("committed", 4)
    assert "resumed=" in runs.ended()
    runs.check()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_killed_at_any_time(kafka: KafkaBroker, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    runs = Runs(kafka, tmp_path, partitions=3, number=1500)
    for step in ("produced", "noted", "committed"):
        runs.killed(step, chance.randint(1, 5))
    for _ in range(8):
        process = runs.start()
        time.sleep(chance.uniform(0.3, 3))
        other = runs.start() if chance.random() < 0.3 else None  # two at once
        process.kill()
        process.communicate(timeout=60)
        if other is not None:
            other.communicate(timeout=120)
    runs.ended()
    runs.check()

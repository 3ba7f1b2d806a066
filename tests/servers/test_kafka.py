"""The broker for tests, used by a real client."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from catchment.errors import SetupError
from catchment.testing.kafka import COMPACTED, KafkaBroker, Message, kafka_broker


@contextlib.contextmanager
def consumer(broker: KafkaBroker) -> Iterator[Consumer]:
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    made = Consumer(settings)
    try:
        yield made
    finally:
        made.close()


def consume(broker: KafkaBroker, topic: str, count: int, partition: int = 0) -> list[tuple[int, bytes]]:
    """The first `count` messages, with their offsets."""
    with consumer(broker) as reader:
        reader.assign([TopicPartition(topic, partition, 0)])
        found: list[tuple[int, bytes]] = []
        while len(found) < count:
            messages = reader.consume(count - len(found), timeout=30)
            assert messages, f"{len(found)} of {count} messages"
            for message in messages:
                assert message.error() is None
                offset, value = message.offset(), message.value()
                assert offset is not None
                assert value is not None
                found.append((offset, value))
        return found


def test_what_is_produced_is_consumed(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic(partitions=2)
    kafka.produce(topic, [b"a", b"b"], partition=0)
    kafka.produce(topic, [b"c"], partition=1)
    assert consume(kafka, topic, 2) == [(0, b"a"), (1, b"b")]
    assert consume(kafka, topic, 1, partition=1) == [(0, b"c")]


def test_topics_have_the_partitions_and_config_asked_for_and_can_be_deleted(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic(partitions=3, config={"cleanup.policy": "compact"})
    admin = kafka.admin()
    assert sorted(admin.list_topics(topic, timeout=30).topics[topic].partitions) == [0, 1, 2]
    resource = ConfigResource(ResourceType.TOPIC, topic)
    assert admin.describe_configs([resource])[resource].result(30)["cleanup.policy"].value == "compact"
    kafka.delete_topic(topic)
    assert topic not in admin.list_topics(timeout=30).topics
    with pytest.raises(KafkaException):
        kafka.delete_topic(topic)


def test_a_topic_that_was_not_made_is_not_there(kafka: KafkaBroker) -> None:
    with pytest.raises(KafkaException), consumer(kafka) as reader:
        reader.get_watermark_offsets(TopicPartition("never-made", 0), timeout=10)


def test_a_message_is_produced_with_all_that_belongs_to_it(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic()
    stamp = int(time.time() * 1000) - 12_345
    kafka.produce(topic, [Message(b"v", key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=stamp)], partition=0)
    with consumer(kafka) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        found = reader.poll(30)
        assert found is not None
        assert (found.key(), found.value(), found.headers()) == (b"k", b"v", [("h", b"1"), ("h", None)])
        assert found.timestamp()[1] == stamp


def test_messages_without_a_place_go_by_their_key_in_order(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic(partitions=2)
    kafka.produce(topic, [Message(b"%d" % turn, key=b"same") for turn in range(50_000)])
    (where,) = [number for number in (0, 1) if kafka.end(topic, number)]
    found = consume(kafka, topic, 50_000, partition=where)
    assert found == [(turn, b"%d" % turn) for turn in range(50_000)]


def test_what_the_broker_does_not_take_is_an_error(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic(config={"max.message.bytes": "1000"})
    with pytest.raises(KafkaException):
        kafka.produce(topic, [b"small", bytes(5000)], partition=0)


def test_transactions_leave_gaps_that_committed_readers_skip(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic()
    with kafka.transaction() as dropped:
        dropped.produce(topic, [b"dropped"])
        dropped.abort()
    with kafka.transaction() as kept:
        kept.produce(topic, [b"kept"])
    assert consume(kafka, topic, 1) == [(2, b"kept")]
    assert kafka.end(topic) == 4


def test_a_transaction_that_is_open_hides_what_is_in_the_log(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic()
    with pytest.raises(ZeroDivisionError), kafka.transaction() as one:
        one.produce(topic, [b"a", b"b"])
        assert (kafka.end(topic), kafka.end(topic, committed=False)) == (0, 2)
        raise ZeroDivisionError
    assert (kafka.end(topic), one.open) == (3, False)
    kafka.produce(topic, [b"c"], partition=0)
    assert consume(kafka, topic, 1) == [(3, b"c")]


def test_records_are_deleted_from_the_start(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, [b"a", b"b", b"c"], partition=0)
    kafka.delete_records(topic, 0, before=2)
    with consumer(kafka) as reader:
        assert reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=30) == (2, 3)


def test_kafka_partitions_are_added_and_can_be_used_at_once(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic()
    kafka.add_partitions(topic, 3)
    kafka.produce(topic, [b"new"], partition=2)
    assert consume(kafka, topic, 1, partition=2) == [(0, b"new")]


def test_a_compacted_topic_keeps_the_newest_of_each_key(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic(config=COMPACTED)
    kafka.produce(topic, [Message(b"%d" % turn, key=b"ab"[turn % 2 :][:1]) for turn in range(6)], partition=0)
    kafka.compact(topic)
    assert consume(kafka, topic, 3) == [(4, b"4"), (5, b"5"), (6, b"")]


def test_a_broker_without_security_says_how_to_get_it(kafka: KafkaBroker) -> None:
    with pytest.raises(SetupError, match="security=True"):
        _ = kafka.sasl_ssl


@pytest.mark.parametrize("kill", [False, True])
def test_a_restart_keeps_data_and_address(kafka: KafkaBroker, *, kill: bool) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, [b"before"], partition=0)
    address, pid = kafka.bootstrap, kafka.process.pid
    kafka.restart(kill=kill)
    assert (kafka.bootstrap, kafka.process.pid == pid) == (address, False)
    kafka.produce(topic, [b"after"], partition=0)
    assert consume(kafka, topic, 2) == [(0, b"before"), (1, b"after")]


def test_a_paused_broker_does_not_answer_until_it_is_resumed(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, [b"x"], partition=0)
    with consumer(kafka) as reader:
        kafka.pause()
        try:
            with pytest.raises(KafkaException):
                reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=0.5)
        finally:
            kafka.resume()
        assert reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=60) == (0, 1)


def test_a_broker_that_cannot_start_shows_why_and_leaves_nothing() -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with (
        pytest.raises(SetupError, match=r"num\.io\.threads"),
        kafka_broker(properties={"num.io.threads": "nonsense"}),
    ):
        raise AssertionError("it started")
    assert {child.pid for child in psutil.Process().children(recursive=True)} == before

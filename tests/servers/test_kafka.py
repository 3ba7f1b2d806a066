"""The broker for tests, used by a real client."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from catchment.errors import SetupError
from catchment.testing.kafka import KafkaBroker, kafka_broker


def produce(broker: KafkaBroker, topic: str, values: list[bytes], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    failures: list[object] = []
    for value in values:
        producer.produce(
            topic,
            value,
            partition=partition,
            on_delivery=lambda error, message: failures.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert failures == []


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
    produce(kafka, topic, [b"a", b"b"])
    produce(kafka, topic, [b"c"], partition=1)
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


def test_transactions_leave_gaps_that_committed_readers_skip(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(60)
    for value, commit in ((b"dropped", False), (b"kept", True)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        if commit:
            producer.commit_transaction(60)
        else:
            producer.flush(60)
            producer.abort_transaction(60)
    assert consume(kafka, topic, 1) == [(2, b"kept")]


@pytest.mark.parametrize("kill", [False, True])
def test_a_restart_keeps_data_and_address(kafka: KafkaBroker, *, kill: bool) -> None:
    topic = kafka.fresh_topic()
    produce(kafka, topic, [b"before"])
    address, pid = kafka.bootstrap, kafka.process.pid
    kafka.restart(kill=kill)
    assert (kafka.bootstrap, kafka.process.pid == pid) == (address, False)
    produce(kafka, topic, [b"after"])
    assert consume(kafka, topic, 2) == [(0, b"before"), (1, b"after")]


def test_a_paused_broker_does_not_answer_until_it_is_resumed(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic()
    produce(kafka, topic, [b"x"])
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

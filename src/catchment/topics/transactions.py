"""Messages into a topic, each exactly once, whoever is killed when: Kafka's transactions, and a place to go on from.

A transaction holds messages and, as an offset of a consumer group that nobody joins, up to where its sender has come.
Both become visible together or not at all. Opening it under the same name again ends what an earlier process left open
(its messages are never seen), and shuts that process out if it still runs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import TimeoutError as TooLate
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, NoReturn

from catchment.errors import BrokerError, CatchmentError, LeaseLost
from catchment.topics.client import configuration, made, missing
from catchment.topics.kafka import Cluster

ATTEMPTS = 5  # at one transaction
_FOR_EVER = 1 << 60  # milliseconds; people write the greatest number there is
_FENCED = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
SLOT = 0  # the Kafka partition under which the position is kept: every topic has this one
_OWN = {
    "acks": "all",
    "enable.idempotence": "true",
    "message.max.bytes": "1000000000",  # what is too large is for the topic to say
    "queue.buffering.max.kbytes": "2097151",  # so that such a message fits
    "linger.ms": "5",
    "partitioner": "murmur2_random",  # as Java's client has it
}

_QUIET = logging.Logger("librdkafka")  # which writes to standard error what it also raises
_QUIET.addHandler(logging.NullHandler())


class Outgoing(NamedTuple):
    """One message to send."""

    offset: int  # where it comes from, for errors
    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    timestamp: int  # milliseconds since 1970; 0: the time of sending
    partition: int  # of Kafka; -1: by its key


class Refused(CatchmentError):
    """Kafka does not take a message. Nothing of its transaction can be seen."""


@dataclass(frozen=True)
class Target:
    """The topic that messages go to, as it is now."""

    topic: str
    id: str
    brokers: str
    partitions: tuple[int, ...]
    settings: Mapping[str, str] = field(default_factory=dict)  # of the topic, as Kafka says them

    def number(self, name: str, otherwise: int) -> int:
        """One of its settings."""
        return int(self.settings.get(name) or otherwise)

    @property
    def own_time(self) -> bool:
        """Whether Kafka writes the time of arrival over the timestamps."""
        return self.settings.get("message.timestamp.type") == "LogAppendTime"

    @property
    def kept_for(self) -> timedelta | None:
        """How old messages may be before Kafka drops them; None: it never does for their age."""
        millis = self.number("retention.ms", -1)
        deletes = "delete" in self.settings.get("cleanup.policy", "delete")
        return timedelta(milliseconds=millis) if deletes and 0 <= millis < _FOR_EVER else None


def target(brokers: str, settings: Mapping[str, str], topic: str, *, timeout: float = 30.0) -> Target | None:
    """What Kafka says of a topic; None if there is none. BrokerError if it does not answer or may not be asked."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import ConfigResource

    cluster = Cluster(brokers, settings, timeout=timeout)
    try:
        found = cluster.topics(lambda name: name == topic).get(topic)
    finally:
        cluster.close()
    if found is None:
        return None
    wanted, heard = configuration(brokers, settings, timeout)
    admin: Any = made(AdminClient, wanted)
    try:
        asked = admin.describe_configs([ConfigResource("topic", topic)], request_timeout=timeout)
        (told,) = (answer.result(timeout + 1) for answer in asked.values())
    except (KafkaException, TooLate) as error:
        why = heard.shown(error.args[0].str()) if isinstance(error, KafkaException) else heard.why("no answer")
        raise BrokerError(
            f"Kafka at {brokers} did not say how {topic} is set up ({why})",
            hint="see that it runs, and that we have the right DescribeConfigs on the topic",
        ) from None
    values = {name: str(entry.value) for name, entry in told.items() if entry.value is not None}
    return Target(topic, found.id, brokers, found.partitions, values)


def position(brokers: str, settings: Mapping[str, str], name: str, topic: str, *, timeout: float = 30.0) -> int | None:
    """Up to where the senders of a name have come; None: not begun. For who does not want to shut them out."""
    cluster = Cluster(brokers, settings, timeout=timeout)
    try:
        return cluster.group_offsets(name, [(topic, SLOT)]).get((topic, SLOT))
    finally:
        cluster.close()


class Transactions:
    """One sender. BrokerError if Kafka does not answer; LeaseLost once another was opened under this name."""

    def __init__(
        self,
        brokers: str,
        settings: Mapping[str, str],
        name: str,
        topic: str,
        *,
        most_bytes: int = 1_000_000,
        timeout: float = 60.0,
        on_step: Callable[[str], object] = lambda name: None,
    ) -> None:
        """`name` is the transactional id and the consumer group. `most_bytes`: of a batch, as the topic allows it."""
        try:
            from confluent_kafka import Consumer, Producer
        except ImportError:
            raise missing() from None
        self.brokers, self.name, self.topic = brokers, name, topic
        self._settings, self._timeout, self._step = settings, timeout, on_step
        compressed = {"compression.type", "compression.codec"} & set(settings)
        own = {
            **_OWN,
            **({} if compressed else {"compression.type": "zstd"}),
            "transactional.id": name,
            "transaction.timeout.ms": str(int(timeout * 1000) + 10_000),
            "batch.size": str(max(1, min(1_000_000, most_bytes))),
        }
        wanted, self._heard = configuration(brokers, settings, timeout, own)
        self._producer: Any = made(Producer, wanted | {"logger": _QUIET})
        group = {"group.id": name, "isolation.level": "read_committed", "enable.auto.commit": "false"}
        wanted, _ = configuration(brokers, settings, timeout, group)
        # It never joins: the group is only where the position is kept.
        self._consumer: Any = made(Consumer, wanted | {"error_cb": self._heard.listen})
        self._open = False
        try:
            with self._telling("did not begin a transaction"):
                self._again(self._producer.init_transactions)
        except BaseException:
            self.close()
            raise

    def position(self) -> int | None:
        """Up to where the senders of this name have come, as their last committed transaction says; None: not begun."""
        return position(self.brokers, self._settings, self.name, self.topic, timeout=self._timeout)

    def commit(self, messages: Iterable[Outgoing], position: int) -> None:
        """Send them in this order and note the position: both, or neither if it raises.

        If it raises BrokerError it may be both all the same: open another and ask for the position.
        """
        held = list(messages)
        for attempt in range(ATTEMPTS):
            with self._telling("did not take a transaction"):
                if self._tried(held, position, last=attempt == ATTEMPTS - 1):
                    return

    def close(self) -> None:
        """Let go of the connections. What is not committed will never be seen."""
        from confluent_kafka import KafkaException

        if self._open:  # else readers would wait for its end
            with suppress(KafkaException):
                self._producer.abort_transaction(5.0)
        self._consumer.close()

    def _tried(self, messages: list[Outgoing], position: int, *, last: bool) -> bool:
        """One attempt. False: it came to nothing, and may be made again."""
        from confluent_kafka import KafkaException

        failures: list[tuple[Outgoing, Any]] = []  # of this attempt: what was purged with the last one is told later
        try:
            self._producer.begin_transaction()
            self._open = True
            self._produce(messages, failures)
            self._step("produced")
            self._note(position)
            self._step("noted")
            self._again(self._producer.commit_transaction)
        except KafkaException as error:
            fault = error.args[0]
            if fault.fatal() or fault.name() in _FENCED or not (fault.txn_requires_abort() or failures):
                raise
            self._again(self._producer.abort_transaction)
            self._open = False
            if failures and fault.name() in _ADVICE:
                self._refuse(*failures[0])
            if last:
                raise
            return False
        self._open = False
        self._step("committed")
        return True

    def _produce(self, messages: list[Outgoing], failures: list[tuple[Outgoing, Any]]) -> None:
        """Returns when the broker has them all; else raises the first of `failures`, which it fills."""
        from confluent_kafka import KafkaException

        def told(message: Outgoing, error: Any, _: Any) -> None:
            if error is not None:
                failures.append((message, error))

        produce = self._producer.produce
        for number, one in enumerate(messages):
            more: dict[str, Any] = {"partition": one.partition} if one.partition >= 0 else {}
            if one.headers:
                more["headers"] = one.headers
            while True:
                try:
                    produce(
                        self.topic, one.value, one.key, timestamp=one.timestamp, on_delivery=partial(told, one), **more
                    )
                except BufferError:
                    self._producer.poll(0.1)  # its queue is full
                else:
                    break
            if number % 1000 == 0:
                self._producer.poll(0)
        end = time.monotonic() + self._timeout
        while self._producer.flush(1.0) and time.monotonic() < end and not failures:
            continue
        if failures:  # what follows the one that was refused is purged, and says so; the first is the cause
            raise KafkaException(failures[0][1])

    def _note(self, position: int) -> None:
        from confluent_kafka import TopicPartition

        where = [TopicPartition(self.topic, SLOT, position)]
        group = self._consumer.consumer_group_metadata()
        self._again(lambda left: self._producer.send_offsets_to_transaction(where, group, left))

    def _again(self, call: Callable[[float], Any]) -> None:
        """Call it, with how many seconds are left, until it does not ask to be called again."""
        from confluent_kafka import KafkaException

        end = time.monotonic() + self._timeout
        while True:
            try:
                call(max(0.05, end - time.monotonic()))
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() >= end:
                    raise
                time.sleep(0.05)
            else:
                return

    def _refuse(self, message: Outgoing, error: Any) -> NoReturn:
        size = len(message.value or b"") + len(message.key or b"")
        raise Refused(
            f"{self.topic} at {self.brokers} does not take the message of offset {message.offset}"
            f" ({size} bytes): {self._heard.shown(error.str())}",
            hint=f"{_ADVICE[error.name()].format(topic=self.topic)}; the same command then goes on where it stopped",
        )

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        """Turn what the client raises into errors of ours."""
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            with suppress(KafkaException):  # it raises what is fatal, again
                self._producer.poll(0)  # hands over what the client saw meanwhile
            fault = error.args[0]
            if fault.name() in _FENCED:
                raise LeaseLost(
                    f"another process replays the same into {self.topic}, and took over",
                    hint="let that one end; this one has left nothing behind that can be seen",
                ) from None
            why = self._heard.why(fault.str()) if fault.name() in _SILENCE else self._heard.shown(fault.str())
            hint = "see that it runs, and run the same command again: it goes on where it stopped"
            if fault.name().endswith("AUTHORIZATION_FAILED"):
                hint = f"get the rights Write and Describe on the transactional id, and Read on the group, {self.name}"
            raise BrokerError(f"Kafka at {self.brokers} {what} ({why})", hint=hint) from None


_SILENCE = {"_TIMED_OUT", "_TIMED_OUT_QUEUE", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_DESTROY_BROKER"}
_ADVICE = {  # by what Kafka says of a message that it will never take
    "MSG_SIZE_TOO_LARGE": "raise max.message.bytes of {topic}",
    "INVALID_TIMESTAMP": "raise message.timestamp.before.max.ms (or message.timestamp.after.max.ms) of {topic}",
    "INVALID_RECORD": "a compacted topic takes no message without a key: set cleanup.policy=delete on {topic}",
    "POLICY_VIOLATION": "see what rules the brokers have for {topic}",
    "TOPIC_AUTHORIZATION_FAILED": "get the right Write on {topic}",
}

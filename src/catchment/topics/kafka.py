"""What Catchment asks of a Kafka cluster: its topics, how far they go, what lies where. No JVM takes part.

All ends and offsets are those of a reader that sees committed messages only (`read_committed`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import TimeoutError as TooLate
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from catchment.errors import BrokerError
from catchment.topics.client import configuration, made, missing

Part = tuple[str, int]  # topic, Kafka partition

PEEK_BYTES = 1_000_000
_LEAST = 0.05  # seconds that a question gets even when the time is over
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PEEKING = {
    "group.id": "catchment",  # the client insists on one; nothing is ever committed to it and nobody joins it
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",  # retention may pass an offset between the question and the look
    "enable.partition.eof": "true",
    "fetch.wait.max.ms": "10",  # how long the end of a Kafka partition takes to show
    "fetch.message.max.bytes": str(PEEK_BYTES),
    "queued.max.messages.kbytes": "1024",
}
# What a broker, or the client for it, says of a topic that is not there. The client also says it from memory.
_UNKNOWN = {"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "_NOENT"}
# What is said while a leader takes over: for a moment after a topic is made or a broker started.
_UNSETTLED = {
    *("LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "OFFSET_NOT_AVAILABLE"),
    *("FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"),
}
# Errors that only say that there was no answer. Why is found in what the client heard meanwhile.
_SILENCE = {"_TIMED_OUT", "_TIMED_OUT_QUEUE", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_DESTROY_BROKER"}


@dataclass(frozen=True)
class TopicInfo:
    """A topic as it is now."""

    name: str
    id: str  # Kafka's UUID for this life of the topic: a topic deleted and made again has another
    partitions: tuple[int, ...]  # Kafka partitions, also those without a leader


@dataclass(frozen=True)
class Ends:
    """What can be read of one Kafka partition: [earliest, end)."""

    earliest: int  # the first offset that is still kept
    end: int  # where a reader of committed messages has to stop: the last stable offset


@dataclass(frozen=True)
class Peek:
    """One message, seen from outside."""

    offset: int
    timestamp: int  # milliseconds since 1970, as Kafka has it; 0 or less: it has none
    size: int  # bytes of key and value


class Kafka(Protocol):
    """What exporters ask of Kafka; `Cluster` answers, and so does `catchment.testing.topics.FakeKafka`."""

    def topics(self, wanted: Callable[[str], bool]) -> dict[str, TopicInfo]: ...
    def ends(self, parts: Collection[Part]) -> dict[Part, Ends]: ...
    def offsets_at(self, parts: Collection[Part], moment: datetime) -> dict[Part, int]: ...
    def group_offsets(self, group: str, parts: Collection[Part]) -> dict[Part, int]: ...
    def peek(self, part: Part, offset: int, count: int = 100, *, until: int | None = None) -> list[Peek]: ...


class Cluster:
    """What Catchment asks of one Kafka cluster. Changes nothing in it. Safe for threads.

    Every call ends within about `timeout` seconds: BrokerError if the cluster did not answer by then or refused.
    Secrets are in no message. SetupError at once for settings that the client does not take.
    """

    def __init__(self, brokers: str, settings: Mapping[str, str], *, timeout: float = 30.0) -> None:
        """`settings` as the user wrote them under `kafka:`, revealed."""
        try:
            from confluent_kafka.admin import AdminClient
        except ImportError:
            raise missing() from None
        self.brokers = brokers
        self._settings = dict(settings)
        self._timeout = timeout
        wanted, self._heard = configuration(brokers, settings, timeout)
        self._admin: Any = made(AdminClient, wanted)
        self._lock = threading.Lock()
        self._idle: list[Any] = []  # consumers that nobody peeks with just now
        self._closed = False

    def __repr__(self) -> str:
        return f"Cluster({self.brokers!r})"

    def topics(self, wanted: Callable[[str], bool]) -> dict[str, TopicInfo]:
        """The topics whose names are wanted; Kafka's own never. One that vanishes meanwhile is left out."""
        from confluent_kafka import TopicCollection

        with self._asking("which topics there are") as left:
            names = [
                name
                for name in self._admin.list_topics(timeout=left()).topics
                if not name.startswith("__") and wanted(name)
            ]
            if not names:
                return {}
            asked = self._admin.describe_topics(TopicCollection(names), request_timeout=left())
            found = {}
            for name, answer in asked.items():
                told = _result(answer, left, _UNKNOWN)
                if told is not None:
                    found[name] = TopicInfo(name, _uuid(told.topic_id), tuple(sorted(p.id for p in told.partitions)))
            return found

    def ends(self, parts: Collection[Part]) -> dict[Part, Ends]:
        """How far each goes. Those of a topic that is gone are left out. BrokerError if one has no leader."""
        from confluent_kafka.admin._listoffsets import OffsetSpec

        with self._asking("where its topics end") as left:
            specs: Any = OffsetSpec  # its methods have no types
            earliest, end = self._offsets(parts, (specs.earliest(), specs.latest()), left)
        # Both are asked at once: retention may have moved the start past the end that was read.
        return {part: Ends(start, max(start, end[part])) for part, start in earliest.items() if part in end}

    def offsets_at(self, parts: Collection[Part], moment: datetime) -> dict[Part, int]:
        """The first offset whose timestamp is not before the moment; the end if there is none. Gone ones are left out.

        Messages that arrive while this is asked are at or after what it says.
        """
        from confluent_kafka.admin._listoffsets import OffsetSpec

        spec = OffsetSpec.for_timestamp(max(0, -((_EPOCH - moment) // timedelta(milliseconds=1))))
        # The ends come first. Asked afterwards, they could lie behind a message that came between and is late enough.
        ends = self.ends(parts)
        with self._asking("what came when") as left:
            (found,) = self._offsets(ends, (spec,), left)
        return {part: offset if offset >= 0 else ends[part].end for part, offset in found.items()}

    def group_offsets(self, group: str, parts: Collection[Part]) -> dict[Part, int]:
        """The offsets that a consumer group has committed. What it has committed nothing for is left out."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        if not parts:
            return {}
        wanted = [TopicPartition(topic, partition) for topic, partition in parts]
        with self._asking(f"how far the group {group} is") as left:
            # A consumer that never joins. The admin client has the same question, but ends the whole process (by an
            # assertion in librdkafka) if the connection to the group's coordinator breaks at that moment.
            consumer = self._made(Consumer, _PEEKING | {"group.id": group})
            try:
                told = consumer.committed(wanted, timeout=left())
            except KafkaException:
                # That we have no right to the group is told apart from the answer, which only never comes.
                if (said := consumer.poll(0)) is not None and said.error() is not None:
                    raise KafkaException(said.error()) from None
                raise
            finally:
                consumer.close()
            found = {}
            for one in told:
                if one.error is not None and one.error.name() not in _UNKNOWN:
                    raise KafkaException(one.error)
                if one.error is None and one.offset >= 0:
                    found[one.topic, one.partition] = one.offset
            return found

    def peek(self, part: Part, offset: int, count: int = 100, *, until: int | None = None) -> list[Peek]:
        """The first messages at or after an offset, in order: at most `count`, and about one megabyte.

        Empty if there are none before `until` or the end. Messages of aborted transactions do not count.
        """
        ends = self.ends([part]).get(part)
        if ends is None:
            return []
        start = max(offset, ends.earliest)
        end = ends.end if until is None else min(until, ends.end)
        if start >= end or count < 1:
            return []
        with self._asking(f"what is in Kafka partition {part[1]} of {part[0]}") as left, self._consumer() as consumer:
            found: list[Peek] = []
            for message in _messages(consumer, part, start, left):
                if message.offset() >= end:
                    break
                size = len(message.key() or b"") + len(message.value() or b"")
                found.append(Peek(message.offset(), message.timestamp()[1], size))
                enough = len(found) >= count or sum(one.size for one in found) >= PEEK_BYTES
                if enough or message.offset() == end - 1:
                    break
            return found

    def close(self) -> None:
        """Let go of all connections. Fine to repeat; nothing can be asked afterwards."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for consumer in idle:
            consumer.close()
        self._admin = None

    def _offsets(
        self, parts: Iterable[Part], specs: tuple[Any, ...], left: Callable[[], float]
    ) -> tuple[dict[Part, int], ...]:
        """What each spec says for each part, without those that are gone."""
        from confluent_kafka import OFFSET_INVALID, IsolationLevel, TopicPartition

        found: tuple[dict[Part, int], ...] = tuple({} for _ in specs)
        open_parts = set(parts)
        while open_parts:
            wanted = [TopicPartition(topic, partition) for topic, partition in sorted(open_parts)]
            answers = [
                self._admin.list_offsets(
                    {part: spec for part in wanted},
                    isolation_level=IsolationLevel.READ_COMMITTED,
                    request_timeout=left(),
                )
                for spec in specs
            ]
            doubtful = set()
            for known, answer in zip(found, answers, strict=True):
                for part, future in answer.items():
                    told = _result(future, left, _UNKNOWN | _UNSETTLED)
                    # librdkafka fills in an offset that is none, and no error, if the broker did not answer.
                    if told is None or told.offset == OFFSET_INVALID:
                        doubtful.add((part.topic, part.partition))
                    else:
                        known[part.topic, part.partition] = told.offset
            open_parts = self._led(doubtful, left) if doubtful else set()
            if open_parts:
                _pause(left)  # they are there and will answer soon
        return found

    def _led(self, doubtful: set[Part], left: Callable[[], float]) -> set[Part]:
        """Those of them that are there after all. BrokerError if one has no leader, or may not be seen."""
        from confluent_kafka import TopicCollection

        topics = self._admin.list_topics(timeout=left()).topics  # also brings the client's memory up to date
        if absent := sorted({topic for topic, _ in doubtful if topic not in topics}):
            # What we have no right to is not in the list. Asked for by name, it is an error.
            for answer in self._admin.describe_topics(TopicCollection(absent), request_timeout=left()).values():
                _result(answer, left, _UNKNOWN)
        there = {
            (topic, partition): topics[topic].partitions[partition].leader
            for topic, partition in doubtful
            if topic in topics and partition in topics[topic].partitions
        }
        for (topic, partition), leader in sorted(there.items()):
            if leader < 0:
                raise BrokerError(
                    f"Kafka partition {partition} of {topic} has no leader at {self.brokers}",
                    hint="a broker is down; it is tried again",
                )
        return set(there)

    @contextmanager
    def _asking(self, what: str) -> Iterator[Callable[[], float]]:
        """Give out how many seconds are left, and turn what goes wrong into BrokerError."""
        from confluent_kafka import KafkaException

        if self._closed:
            raise BrokerError(f"the connection to Kafka at {self.brokers} was closed")
        end = time.monotonic() + self._timeout

        def left() -> float:
            return max(_LEAST, end - time.monotonic())

        try:
            yield left
        except KafkaException as error:
            self._admin.poll(0)  # hands over what the client saw meanwhile
            fault = error.args[0]
            why = self._heard.why(fault.str()) if fault.name() in _SILENCE else self._heard.shown(fault.str())
            raise self._failure(what, why) from None
        except TooLate:
            self._admin.poll(0)
            raise self._failure(what, self._heard.why(f"no answer within {self._timeout:g} seconds")) from None
        self._admin.poll(0)  # what it saw would pile up otherwise
        self._heard.forget()

    def _failure(self, what: str, why: str) -> BrokerError:
        return BrokerError(
            f"Kafka at {self.brokers} did not say {what} ({why})",
            hint="it is tried again; see that it runs, and that 'brokers' and the settings under 'kafka:' are right",
        )

    def _made(self, client: Callable[[dict[str, Any]], Any], own: Mapping[str, str]) -> Any:
        wanted, _ = configuration(self.brokers, self._settings, self._timeout, own)
        return made(client, wanted | {"error_cb": self._heard.listen})

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        """A consumer that nobody else uses meanwhile. One that failed is not used again."""
        from confluent_kafka import Consumer

        with self._lock:
            consumer = self._idle.pop() if self._idle else None
        if consumer is None:
            consumer = self._made(Consumer, _PEEKING)
        try:
            yield consumer
            consumer.unassign()
            with self._lock:
                if not self._closed:
                    self._idle.append(consumer)
                    consumer = None
        finally:
            if consumer is not None:
                consumer.close()


def _messages(consumer: Any, part: Part, start: int, left: Callable[[], float]) -> Iterator[Any]:
    """The messages from an offset to the end. TooLate if the end does not come in time."""
    from confluent_kafka import KafkaException, TopicPartition

    consumer.assign([TopicPartition(*part, start)])
    while (seconds := left()) > _LEAST:
        message = consumer.poll(seconds)
        if message is None:
            continue
        error = message.error()
        if error is None:
            if message.offset() < start:  # the topic was made anew and is shorter now: there is nothing at our offset
                return
            yield message
        elif error.name() == "_PARTITION_EOF" or error.name() in _UNKNOWN:
            return
        elif error.name() != "GROUP_AUTHORIZATION_FAILED":  # reading needs no group, so no right to one either
            raise KafkaException(error)
    raise TooLate


def _result(future: Any, left: Callable[[], float], expected: set[str]) -> Any:
    """What a future holds, or None if it failed with one of the errors that are expected."""
    from confluent_kafka import KafkaException

    try:
        return future.result(left() + 1)  # the client keeps to the time by itself, and says more
    except KafkaException as error:
        if error.args[0].name() not in expected:
            raise
        return None


def _pause(left: Callable[[], float]) -> None:
    """Before the same question is asked again. TooLate if there is no time for it."""
    if left() <= _LEAST:
        raise TooLate
    time.sleep(_LEAST)


def _uuid(held: Any) -> str:
    """As Kafka's own tools write it: base64 for URLs, which also fits into a file's name."""
    return str(held).replace("+", "-").replace("/", "_")

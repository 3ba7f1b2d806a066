"""Messages for a test broker: in bulk, or inside a transaction that the test ends as it likes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PATIENCE = 60.0


@dataclass(frozen=True)
class Message:
    """One message to produce. Plain bytes mean a message with that value and nothing else."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int = 0  # milliseconds since 1970; 0: the time of producing


class Transaction:
    """A transaction that is open until `commit` or `abort`. What it produced is in the log at once."""

    def __init__(self, bootstrap: str, name: str, marked: Callable[[str, int], int]) -> None:
        self._producer = producer(bootstrap, {"transactional.id": name})
        self._producer.init_transactions(PATIENCE)
        self._producer.begin_transaction()
        self._marked = marked
        self._parts: set[tuple[str, int]] = set()
        self.open = True

    def produce(self, topic: str, messages: Iterable[bytes | Message], partition: int = 0) -> None:
        """Returns when the broker has them."""
        send(self._producer, topic, messages, partition)
        self._parts.add((topic, partition))

    def commit(self) -> None:
        """Returns when readers of committed messages can see them."""
        self._end(self._producer.commit_transaction)

    def abort(self) -> None:
        """Returns when the mark that tells readers to skip them is in the log."""
        self._end(self._producer.abort_transaction)

    def _end(self, end: Callable[[float], None]) -> None:
        before = {part: self._marked(*part) for part in self._parts}
        end(PATIENCE)
        self.open = False
        # The coordinator has decided by now, and writes its marks into the topics a little later.
        wait(lambda: all(self._marked(*part) > was for part, was in before.items()), "the transaction left no mark")


def producer(bootstrap: str, extra: Mapping[str, str] | None = None) -> Any:
    """A producer that sends large batches, in order."""
    from confluent_kafka import Producer

    return Producer(
        {
            "message.max.bytes": 100_000_000,  # what is too large is for the topic to say
            "bootstrap.servers": bootstrap,
            "max.in.flight": 1,  # keeps the order; idempotence would too, and takes half a second to begin
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
            "error_cb": lambda error: None,
            **(extra or {}),
        }
    )


def send(client: Any, topic: str, messages: Iterable[bytes | Message], partition: int | None) -> None:
    """Produce them all and wait until the broker has them. KafkaException if it does not take one."""
    from confluent_kafka import KafkaException

    failures: list[Any] = []

    def told(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)

    place = {} if partition is None else {"partition": partition}
    for message in messages:
        one = message if isinstance(message, Message) else Message(message)
        more = place | ({"timestamp": one.timestamp} if one.timestamp else {})
        while True:
            try:
                client.produce(topic, one.value, one.key, headers=list(one.headers), on_delivery=told, **more)
            except BufferError:  # its queue is full
                client.poll(0.1)
            else:
                break
    left = client.flush(PATIENCE)
    if failures:
        raise KafkaException(failures[0])
    if left:
        raise TimeoutError(f"{left} messages for {topic} were not taken within {PATIENCE:g} seconds")


def wait(done: Callable[[], bool], otherwise: str) -> None:
    """Look until it is so. TimeoutError with `otherwise` if it does not come about."""
    end = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"{otherwise} after {PATIENCE:g} seconds")
        time.sleep(0.02)

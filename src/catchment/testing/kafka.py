"""A Kafka broker for tests: a real one, broker and controller in one process (KRaft), on loopback.

    with kafka_broker() as broker:
        topic = broker.fresh_topic(partitions=4)
        broker.produce(topic, [b"one", b"two"], partition=0)

    with kafka_broker(security=True) as broker:  # and listeners with passwords and certificates
        Consumer({"bootstrap.servers": broker.sasl_ssl.bootstrap, **broker.sasl_ssl.settings})

It is set up for tests: up in seconds, internal topics on one replica, no waiting for group members, and the
cleaning of old and compacted data looks every second, so that a test can see what retention does to a reader.
"""

from __future__ import annotations

import base64
import os
import secrets
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from catchment.errors import SetupError
from catchment.spark.java import find_java
from catchment.testing.kafka_messages import PATIENCE, Message, Transaction, producer, send, wait
from catchment.testing.kafka_security import PASSWORD, USER, Door, Guard
from catchment.testing.process import (
    HOST,
    PortTaken,
    ServerProcess,
    answers,
    free_port,
    private_folder,
    remove,
    started,
)

__all__ = ["COMPACTED", "Door", "KafkaBroker", "Message", "Transaction", "kafka_broker"]

# For a topic whose old messages with the same key are to go as soon as `compact` is called.
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0001",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "0",
    "segment.ms": "1000",
}


class KafkaBroker:
    """A running broker."""

    def __init__(self, home: Path, cluster: str, port: int, process: ServerProcess, guard: Guard | None = None) -> None:
        self.home = home
        self.cluster = cluster
        self.port = port
        self.process = process
        self._guard = guard

    @property
    def bootstrap(self) -> str:
        """What clients take as `bootstrap.servers`. Stays the same over a restart."""
        return f"{HOST}:{self.port}"

    @property
    def plain(self) -> Door:
        """SASL PLAIN without encryption."""
        return self._door("plain")

    @property
    def scram(self) -> Door:
        """SCRAM-SHA-512 without encryption."""
        return self._door("scram")

    @property
    def ssl(self) -> Door:
        """Encryption, and the client shows a certificate."""
        return self._door("ssl")

    @property
    def sasl_ssl(self) -> Door:
        """Encryption and SCRAM-SHA-512. It also takes PLAIN."""
        return self._door("sasl_ssl")

    def produce(self, topic: str, messages: Iterable[bytes | Message], partition: int | None = None) -> None:
        """Produce them, in order, and return when the broker has them all. By key if no Kafka partition is given."""
        send(producer(self.bootstrap), topic, messages, partition)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A transaction, open until the test ends it; at the end of the block it is committed, on an error aborted."""
        made = Transaction(
            self.bootstrap, f"test-{secrets.token_hex(6)}", lambda *part: self.end(*part, committed=False)
        )
        try:
            yield made
        except BaseException:
            if made.open:
                made.abort()
            raise
        if made.open:
            made.commit()

    def end(self, topic: str, partition: int = 0, *, committed: bool = True) -> int:
        """The offset after the last message that a reader can see: of committed messages, or of all."""
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin._listoffsets import OffsetSpec

        latest: Any = OffsetSpec
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        part = TopicPartition(topic, partition)
        admin = self.admin()
        admin.list_topics(topic, timeout=PATIENCE)  # a client that has to find the leader by itself dawdles for seconds
        found = admin.list_offsets({part: latest.latest()}, isolation_level=level, request_timeout=PATIENCE)
        return int(found[part].result(PATIENCE).offset)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Do what retention does: the log starts at `before` from now on."""
        from confluent_kafka import TopicPartition

        admin = self.admin()
        (done,) = admin.delete_records([TopicPartition(topic, partition, before)]).values()
        done.result(PATIENCE)

    def add_partitions(self, topic: str, total: int) -> None:
        """Make them `total`; returns when each has a leader."""
        from confluent_kafka.cimpl import NewPartitions

        admin = self.admin()
        admin.create_partitions([NewPartitions(topic, total)])[topic].result(PATIENCE)
        self._led(admin, topic, total)

    def compact(self, topic: str, partition: int = 0) -> None:
        """Return when every message that is in there now has been compacted. The topic was made with COMPACTED.

        Adds one message, with a key of its own, behind them: Kafka never touches the segment that it writes to.
        """
        end = self.end(topic, partition, committed=False)
        # A new segment begins with the message that is so much younger than the first of the old one.
        later = time.time_ns() // 1_000_000 + 60_000
        self.produce(topic, [Message(b"", key=secrets.token_bytes(8), timestamp=later)], partition)
        # The broker's own note of how far it has cleaned: a version, a count, then a line for each Kafka partition.
        note = self.home / "data" / "cleaner-offset-checkpoint"

        def cleaned() -> bool:
            lines = note.read_text().splitlines()[2:] if note.exists() else []
            return any(
                (name, number) == (topic, str(partition)) and int(offset) >= end
                for name, number, offset in (line.rsplit(" ", 2) for line in lines)
            )

        wait(cleaned, f"Kafka partition {partition} of {topic} was not compacted")

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Make a topic and return its name once every Kafka partition has a leader. Fails if it is there already."""
        from confluent_kafka.cimpl import NewTopic

        admin = self.admin()
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin.create_topics([topic])[name].result(PATIENCE)
        self._led(admin, name, partitions)
        return name

    def fresh_topic(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """A new topic with a name that nobody else uses, so that tests can share the broker."""
        return self.create_topic(f"test-{secrets.token_hex(6)}", partitions, config)

    def delete_topic(self, name: str) -> None:
        """Remove a topic; returns when the broker no longer knows it."""
        admin = self.admin()
        admin.delete_topics([name])[name].result(PATIENCE)
        wait(lambda: name not in admin.list_topics(timeout=10).topics, f"topic {name} is still there")

    def admin(self) -> Any:
        """A confluent-kafka AdminClient for everything else."""
        from confluent_kafka.admin import AdminClient

        # A broker that is away is part of many tests; librdkafka would print a line per attempt.
        quiet: dict[str, Any] = {"log_level": 0, "error_cb": lambda error: None}
        return AdminClient({"bootstrap.servers": self.bootstrap, **quiet})

    def pause(self) -> None:
        """Freeze it: clients stay connected and get no answer."""
        self.process.pause()

    def resume(self) -> None:
        """Let it go on."""
        self.process.resume()

    def stop(self, *, kill: bool = False) -> None:
        """Shut it down in order, or kill it. Data and port stay for `start`."""
        self.process.stop(grace=0 if kill else 30)

    def start(self) -> None:
        """Start it again after `stop`; returns when it answers."""
        self.process.start(self._ready, patience=PATIENCE)

    def restart(self, *, kill: bool = False) -> None:
        """Stop and start, with its data, on the same port."""
        self.stop(kill=kill)
        self.start()

    @contextmanager
    def joined(self) -> Iterator[KafkaBroker]:
        """A second broker of this cluster, node 2. What lies on it alone has no leader once it is stopped."""
        home = private_folder("kafka")
        java = self.process.command[:-2]
        file = home / "server.properties"

        def made(port: int) -> ServerProcess:
            ours = dict(line.split("=", 1) for line in (self.home / "server.properties").read_text().splitlines())
            theirs = _properties(home / "data", port, 0)
            theirs |= {"process.roles": "broker", "node.id": "2", "listeners": theirs["advertised.listeners"]}
            theirs["controller.quorum.voters"] = ours["controller.quorum.voters"]
            _write(file, theirs)
            if not (home / "data").exists():
                _format(java, file, self.cluster)
            return ServerProcess("kafka", [*java, "kafka.Kafka", str(file)], home)

        def ready(port: int) -> bool:
            return answers(port) and len(self.admin().list_topics(timeout=5).brokers) == 2

        try:
            process, port = started(made, ready, patience=PATIENCE)
            try:
                yield KafkaBroker(home, self.cluster, port, process)
            finally:
                process.stop()
        finally:
            remove(home)

    def _door(self, name: str) -> Door:
        if self._guard is None:
            raise SetupError(f"this broker has no listener '{name}'", hint="start it with security=True")
        return self._guard.doors()[name]

    def _led(self, admin: Any, topic: str, partitions: int) -> None:
        def led() -> bool:
            found = admin.list_topics(topic, timeout=10).topics[topic]
            return len(found.partitions) == partitions and all(one.leader >= 0 for one in found.partitions.values())

        wait(led, f"topic {topic} has no leader")

    def _ready(self) -> bool:
        from confluent_kafka import KafkaException

        if not answers(self.port):
            return False
        try:
            found = self.admin().list_topics(timeout=5)
        except KafkaException:
            return False
        # The cluster's id tells ours from another test run's broker that got the port first.
        return bool(found.brokers) and found.cluster_id == self.cluster


@contextmanager
def kafka_broker(
    *,
    security: bool = False,
    properties: Mapping[str, str] | None = None,
    java_options: Sequence[str] = ("-Xms128m", "-Xmx512m"),
    jars: Sequence[Path] | None = None,
) -> Iterator[KafkaBroker]:
    """A broker on free ports. SetupError if Java or its jars cannot be had, or it does not start.

    With `security` it also listens for passwords and certificates: `broker.plain`, `.scram`, `.ssl`, `.sasl_ssl`.
    `properties` are added to server.properties and win over those here; `{port}` and `{controller_port}` in their
    values are filled in. `jars` is another broker's class path.
    """
    home = private_folder("kafka")
    try:
        broker = _started(home, _class_path(jars), properties or {}, java_options, security=security)
        try:
            if security:
                _add_user(broker)
            yield broker
        finally:
            broker.process.stop()  # killed: nobody reads this data again
    finally:
        remove(home)


def _class_path(jars: Sequence[Path] | None) -> str:
    if jars is None:
        from catchment.spark.jars import kafka_broker as from_cache

        jars = from_cache()
    return os.pathsep.join(str(jar) for jar in jars)


def _started(
    home: Path, class_path: str, extra: Mapping[str, str], java_options: Sequence[str], *, security: bool
) -> KafkaBroker:
    java = [
        str(find_java().program),
        *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),  # a quick start and a small process
        *java_options,
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        *("-cp", class_path),
    ]
    # The zero byte makes it begin with an A: an id that began with a dash would look like an option.
    cluster = base64.urlsafe_b64encode(b"\0" + secrets.token_bytes(15)).rstrip(b"=").decode()
    for left in (4, 3, 2, 1, 0):
        port, controller = free_port(), free_port()
        guard = Guard.made(home / "certificates") if security else None
        guarded = guard.properties(port, controller) if guard else {}
        settings = _properties(home / "data", port, controller) | guarded
        settings |= {
            name: value.replace("{port}", str(port)).replace("{controller_port}", str(controller))
            for name, value in extra.items()
        }
        file = home / "server.properties"
        _write(file, settings)
        if not (home / "data").exists():
            _format(java, file, cluster)
        process = ServerProcess("kafka", [*java, "kafka.Kafka", str(file)], home)
        broker = KafkaBroker(home, cluster, port, process, guard)
        try:
            broker.start()
        except PortTaken:
            if left:
                continue
            raise
        return broker
    raise AssertionError("unreachable")


def _write(file: Path, properties: Mapping[str, str]) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


def _add_user(broker: KafkaBroker) -> None:
    """SCRAM's users live in the cluster; those of PLAIN stand in its properties."""
    from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    admin = broker.admin()  # held until the answer is there: a client that is let go of answers nothing
    (done,) = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, info, PASSWORD.encode())]).values()
    done.result(PATIENCE)


def _format(java: Sequence[str], file: Path, cluster: str) -> None:
    """Prepare the data folder, which a KRaft broker insists on."""
    command = [*java, "kafka.tools.StorageTool", "format", "--cluster-id", cluster, "--config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise SetupError(f"Kafka's data folder could not be prepared: {(done.stdout + done.stderr).strip()[-2000:]}")


def _properties(data: Path, port: int, controller: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",  # a test that misspells a topic should fail
        # One broker cannot hold three replicas.
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # Each partition of these costs time when it is first used.
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "group.initial.rebalance.delay.ms": "0",
        # A killed broker may come back when its old session is over; nine seconds is a long wait in a test.
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
        # What happens to old data happens while a test watches.
        "log.initial.task.delay.ms": "500",
        "log.retention.check.interval.ms": "1000",
        "log.cleaner.backoff.ms": "1000",
        "log.segment.delete.delay.ms": "500",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }

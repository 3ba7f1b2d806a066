"""A Kafka broker for tests: a real one, broker and controller in one process (KRaft), on loopback.

    with kafka_broker() as broker:
        topic = broker.fresh_topic(partitions=4)
        Producer({"bootstrap.servers": broker.bootstrap}).produce(topic, b"…")

It is set up for tests: up in seconds, internal topics on one replica, no waiting for group members, and the
cleaning of old and compacted data looks every second, so that a test can see what retention does to a reader.
"""

from __future__ import annotations

import base64
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from catchment.errors import SetupError
from catchment.spark.java import find_java
from catchment.testing.process import HOST, PortTaken, ServerProcess, answers, free_port, private_folder, remove

PATIENCE = 60.0  # seconds; a broker needs about three


class KafkaBroker:
    """A running broker."""

    def __init__(self, home: Path, cluster: str, port: int, process: ServerProcess) -> None:
        self.home = home
        self.cluster = cluster
        self.port = port
        self.process = process

    @property
    def bootstrap(self) -> str:
        """What clients take as `bootstrap.servers`. Stays the same over a restart."""
        return f"{HOST}:{self.port}"

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Make a topic and return its name once every Kafka partition has a leader. Fails if it is there already."""
        from confluent_kafka.cimpl import NewTopic

        admin = self.admin()
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin.create_topics([topic])[name].result(PATIENCE)

        def led() -> bool:
            found = admin.list_topics(name, timeout=10).topics[name]
            return len(found.partitions) == partitions and all(one.leader >= 0 for one in found.partitions.values())

        _wait(led, f"topic {name} has no leader")
        return name

    def fresh_topic(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """A new topic with a name that nobody else uses, so that tests can share the broker."""
        return self.create_topic(f"test-{secrets.token_hex(6)}", partitions, config)

    def delete_topic(self, name: str) -> None:
        """Remove a topic; returns when the broker no longer knows it."""
        admin = self.admin()
        admin.delete_topics([name])[name].result(PATIENCE)
        _wait(lambda: name not in admin.list_topics(timeout=10).topics, f"topic {name} is still there")

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
    properties: Mapping[str, str] | None = None,
    java_options: Sequence[str] = ("-Xms128m", "-Xmx512m"),
    jars: Sequence[Path] | None = None,
) -> Iterator[KafkaBroker]:
    """A broker on free ports. SetupError if Java or its jars cannot be had, or it does not start.

    `properties` are added to server.properties and win over those here; `{port}` and `{controller_port}` in their
    values are filled in. `jars` is another broker's class path.
    """
    home = private_folder("kafka")
    try:
        broker = _started(home, _class_path(jars), properties or {}, java_options)
        try:
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


def _started(home: Path, class_path: str, extra: Mapping[str, str], java_options: Sequence[str]) -> KafkaBroker:
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
        settings = _properties(home / "data", port, controller) | {
            name: value.replace("{port}", str(port)).replace("{controller_port}", str(controller))
            for name, value in extra.items()
        }
        file = home / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        if not (home / "data").exists():
            _format(java, file, cluster)
        broker = KafkaBroker(home, cluster, port, ServerProcess("kafka", [*java, "kafka.Kafka", str(file)], home))
        try:
            broker.start()
        except PortTaken:
            if left:
                continue
            raise
        return broker
    raise AssertionError("unreachable")


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


def _wait(done: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"{otherwise} after {PATIENCE:g} seconds")
        time.sleep(0.02)

"""Exporting processes that are killed, paused and stopped, on a real broker; every offset is counted afterwards."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catchment.testing.kafka import KafkaBroker
from tests.spark import programs
from tests.spark.exports import BACKUP, EVENTS, events, opened, text

STEPS = ("look", "claim", "write", "commit", "advance")
CLUSTER = {
    "master": "local-cluster[2,1,1200]",
    "conf": {
        "spark.speculation": "true",  # two attempts at one range at the same time
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.minTaskRuntime": "50ms",
        "spark.executor.cores": "1",
    },
}


def process(config: Path, *arguments: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return programs.process("tests.spark.export_program", str(config), *arguments)


def config(path: Path, kafka: KafkaBroker, topic: str, policy: dict[str, Any], **more: Any) -> Path:
    exports = [{**one, "policy": policy, "heartbeat": "2s"} for one in (EVENTS, BACKUP)]
    file = path / f"catchment-{len(list(path.glob('*.yaml')))}.yaml"
    file.write_text(text(kafka.bootstrap, topic, exports, {"path": str(path / "lake")}, path / "ws", **more))
    return file


def counted(file: Path, spark: SparkSession, messages: int) -> None:
    with opened(file.read_text(), spark) as topics:
        for name, one in topics.verify().items():
            assert (one.missing, one.twice, one.rows) == (0, 0, messages), (name, one)
            # Files of abandoned attempts may be left; nothing else may be wrong.
            assert {str(finding.kind) for finding in one.problems} <= {"unlisted"}, one.problems


def test_a_process_killed_after_each_step_while_another_works(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    """Every restart has another policy. The other replica and the successors take over what is left."""
    topic = kafka.fresh_topic(partitions=3)
    sent = 0
    steady = config(tmp_path, kafka, topic, {"max_age": "2s", "max_messages": 700})
    with process(steady, "stopped") as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        for number, step in enumerate(STEPS):
            for partition in range(3):
                kafka.produce(topic, events(range(sent, sent + 400)), partition)
                sent += 400
            victim = config(tmp_path, kafka, topic, {"max_age": "1s", "max_messages": 150 + 110 * number})
            with process(victim, "caught up", step) as dying:
                out, err = dying.communicate(timeout=120)
                # The other replica may have been quicker with everything; then there was no such step to die at.
                assert dying.returncode in (-signal.SIGKILL, 0), (out, err)
        end = time.monotonic() + 120
        with opened(steady.read_text(), spark) as topics:
            while any(one.lag for one in topics.status().standings):
                assert time.monotonic() < end, "the other one has not taken over everything"
                time.sleep(0.3)
        other.send_signal(signal.SIGTERM)
        _, err = other.communicate(timeout=90)
        assert other.returncode == 0, err
    counted(steady, spark, sent)


def test_a_process_stopped_by_sigterm_leaves_its_claims_to_others(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka.fresh_topic(partitions=2)
    for partition in (0, 1):
        kafka.produce(topic, events(range(partition * 6_000, partition * 6_000 + 6_000)), partition)
    file = config(tmp_path, kafka, topic, {"max_messages": 1000})
    with process(file, "stopped") as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        lake = tmp_path / "lake" / "topics"
        end = time.monotonic() + 60
        while not list(lake.rglob("_commits/*/*.json")) and time.monotonic() < end:
            time.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        _, err = running.communicate(timeout=90)
        assert running.returncode == 0, err
    with opened(file.read_text(), spark) as topics:
        for one in topics.status().standings:
            assert one.claim is None or one.claim.owner == ""
    with process(file, "caught up") as finishing:
        _, err = finishing.communicate(timeout=120)
        assert finishing.returncode == 0, err
    counted(file, spark, 12_000)


def test_two_attempts_at_one_range_at_the_same_time(spark: SparkSession, kafka: KafkaBroker, tmp_path: Path) -> None:
    """Speculative tasks, on two executors: the second attempt finds the first one's objects, or the other way round."""
    topic = kafka.fresh_topic(partitions=4)
    sizes = (500, 20_000, 40_000, 60_000)
    sent = 0
    for partition, size in enumerate(sizes):
        kafka.produce(topic, events(range(sent, sent + size)), partition)
        sent += size
    file = config(tmp_path, kafka, topic, {"max_messages": 30_000}, spark=CLUSTER)
    with process(file, "caught up") as running:
        _, err = running.communicate(timeout=240)
        assert running.returncode == 0, err
    counted(file, spark, sent)


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_twenty_random_kills_over_a_million_messages(spark: SparkSession, kafka: KafkaBroker, tmp_path: Path) -> None:
    chance = random.Random(int(os.environ.get("CATCHMENT_SEED", "7")))
    topic = kafka.fresh_topic(partitions=4)
    total = 1_000_000
    for partition in range(4):
        kafka.produce(topic, events(range(partition * total // 4, (partition + 1) * total // 4)), partition)
    kills = 0
    started: list[tuple[float, Any]] = []
    file = None
    while kills < 20:
        policy = {"max_age": "1s", "max_messages": chance.randrange(2_000, 60_000)}
        file = config(tmp_path, kafka, topic, policy, spark=CLUSTER if chance.random() < 0.5 else {})
        # Two replicas, one of which may be paused while the other goes on.
        with process(file, "caught up") as one, process(file, "caught up") as two:
            wait = chance.uniform(6, 25)
            end = time.monotonic() + wait
            paused = False
            while time.monotonic() < end and one.poll() is None:
                time.sleep(0.2)
                if not paused and time.monotonic() > end - wait / 2 and chance.random() < 0.3:
                    os.killpg(two.pid, signal.SIGSTOP)
                    paused = True
            for victim in (one, two):
                if victim.poll() is None:
                    if paused and victim is two:
                        os.killpg(victim.pid, signal.SIGCONT)
                    os.kill(victim.pid, signal.SIGKILL)
                    kills += 1
            time.sleep(chance.uniform(0, 1))
        started.append((wait, paused))
        if one.returncode == 0 or two.returncode == 0:  # all done: more to do
            kafka.produce(topic, events(range(total, total + 50_000)), chance.randrange(4))
            total += 50_000
    assert file is not None
    last = config(tmp_path, kafka, topic, {"max_messages": 100_000})
    with process(last, "caught up") as finishing:
        _, err = finishing.communicate(timeout=600)
        assert finishing.returncode == 0, err
    counted(last, spark, total)
    with opened(last.read_text(), spark) as topics:
        topics.repair()
        for found in topics.verify().values():
            assert not found.problems
    print(f"{kills} kills, {total} messages, 0 missing, 0 twice")

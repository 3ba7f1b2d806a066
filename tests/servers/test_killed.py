"""Three replicas, killed at random and started again: what landed on a disk is what comes out of the lake."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from catchment.feeds.hours import Span, list_hours
from catchment.feeds.names import body_hash
from catchment.feeds.union import read_span
from catchment.lake import Lake
from catchment.testing.http import FeedServer, Reply, Request
from catchment.testing.s3 import S3Server

PROGRAM = Path(__file__).with_name("collector_program.py")
FEEDS = {"slow": "1s", "quick": "200ms"}


class Replicas:
    """Processes that die often."""

    def __init__(self, folder: Path, config: Path, count: int, cut: float) -> None:
        self.folder, self.config, self.cut = folder, config, cut
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.count, self.kills = count, 0
        self.before: dict[int, int] = {}  # how much each had logged when it was started last

    def start(self, number: int) -> None:
        workspace, log = self.folder / f"workspace-{number}", self.log(number)
        self.before[number] = log.stat().st_size if log.exists() else 0
        with (self.folder / f"output-{number}").open("ab") as output:
            command = [sys.executable, str(PROGRAM), str(self.config), str(workspace), str(log), str(self.cut)]
            self.running[number] = subprocess.Popen(command, stdout=output, stderr=output)

    def log(self, number: int) -> Path:
        return self.folder / f"landed-{number}"

    def await_work(self, number: int) -> None:
        """Until it has stored something since it was started."""
        end = time.monotonic() + 60
        while not self.log(number).exists() or self.log(number).stat().st_size <= self.before[number]:
            assert time.monotonic() < end and self.running[number].poll() is None, self.said()
            time.sleep(0.05)

    def kill_one(self, number: int) -> None:
        victim = self.running.pop(number)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        self.kills += 1

    def stop(self) -> list[int]:
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        return [process.wait(timeout=60) for process in self.running.values()]

    def landed(self) -> set[str]:
        logs = [self.log(number) for number in range(self.count)]
        # The last line may have been cut off by a kill.
        return {line for log in logs if log.exists() for line in log.read_text().split("\n")[:-1]}

    def said(self) -> str:
        return "".join((self.folder / f"output-{number}").read_text()[-3000:] for number in range(self.count))


def storage(server: S3Server, id: str, algorithm: str) -> dict[str, Any]:
    bucket = server.fresh_bucket()
    return {"id": id, "bucket": bucket, "reconciliation_algorithm": algorithm, **server.connection}


def run(s3: S3Server, feed: FeedServer, folder: Path, *, seconds: float, seed: int) -> None:
    served: dict[str, bytes] = {}
    number = itertools.count()

    def answer(request: Request) -> Reply:
        body = f"{request.path} {next(number)} ".encode() * 200
        served[body_hash(body)] = body
        return Reply(200, body)

    for name in FEEDS:
        feed.script(f"/{name}", then=answer)
    compressions = {"slow": "gzip", "quick": "zstd"}
    config = folder / "catchment.yaml"
    declared = {
        "object_storage": [storage(s3, "one", "hashed") | {"state": True}, storage(s3, "two", "primary")],
        "feeds": [
            {"id": name, "url": feed.url(f"/{name}"), "periodicity": period, "compression": compressions[name]}
            for name, period in FEEDS.items()
        ],
        "collector": {"shutdown_deadline": "40s"},
    }
    config.write_text(yaml.safe_dump(declared))
    chance = random.Random(seed)
    replicas = Replicas(folder, config, 3, cut=2)
    for replica in range(3):
        replicas.start(replica)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        victim = chance.randrange(3)
        if chance.random() < 0.8:  # the others die while they start, with what was left to them
            replicas.await_work(victim)
        time.sleep(chance.uniform(0, 2))
        replicas.kill_one(victim)
        replicas.start(victim)
    for replica in range(3):
        replicas.await_work(replica)
    assert replicas.stop() == [0, 0, 0], replicas.said()

    landed = replicas.landed()
    left = [path for n in range(3) for part in ("downloads", "archives") for path in files(folder, n, part)]
    assert left == []
    with Lake.open(str(config)) as lake:
        lake.feeds.reconcile()
        for id in ("one", "two"):
            bucket = lake.storage(id)
            found: set[str] = set()
            for name in FEEDS:
                span = Span.of(datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))
                for listing in list_hours(bucket, name, span):
                    assert len(listing.live) == 1, f"{listing.hour} of {name} in {id} is not settled"
                for reading in read_span([bucket], name, None, None):
                    assert served[reading.hash] == reading.body
                found |= {download(name, reading) for reading in read_span([bucket], name, None, None)}
            assert landed <= found, f"{len(landed - found)} downloads are lost from {id}"
            print(f"{id}: {replicas.kills} kills, {len(landed)} landed, {len(found)} retrieved, 0 lost")
    assert replicas.kills >= 3
    assert len(landed) > 30


def download(feed: str, reading: Any) -> str:
    moment = reading.time
    return f"{feed}_{moment:%Y%m%dT%H%M%S}.{moment.microsecond // 1000:03d}_{reading.hash}"


def files(folder: Path, number: int, part: str) -> list[Path]:
    top = folder / f"workspace-{number}" / part
    return [Path(at) / name for at, _, names in os.walk(top) for name in names]


def test_three_replicas_killed_at_random_lose_nothing(s3: S3Server, feed: FeedServer, tmp_path: Path) -> None:
    run(s3, feed, tmp_path, seconds=10, seed=1)


@pytest.mark.soak
def test_three_replicas_killed_at_random_for_a_minute_lose_nothing(
    s3: S3Server, feed: FeedServer, tmp_path: Path
) -> None:
    run(s3, feed, tmp_path, seconds=60, seed=2)

"""Exports of a Kafka in memory to a bucket in memory, and what they committed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from catchment.bucket import swap
from catchment.bucket.contract import Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.clock import Clock
from catchment.config.topics import Export, Topic
from catchment.monitor.record import Monitor
from catchment.testing.clock import FakeClock
from catchment.testing.topics import FakeKafka, PlainWriter
from catchment.topics.export import Exporter, Step, Writes
from catchment.topics.manifest import Manifest
from catchment.topics.names import Place
from catchment.topics.work import Reading

PLACE = Place("g", "events")


def memory() -> MemoryBucket:
    return MemoryBucket(clock=FakeClock(), versions=False)


def counter(name: str) -> Callable[[], str]:
    """Nonces of one process, the same in each run."""
    made = 0

    def nonce() -> str:
        nonlocal made
        made += 1
        return f"{name}-{made}"

    return nonce


def messages(number: int, kind: str = "a") -> list[bytes]:
    return [json.dumps({"type": kind, "n": n}).encode() for n in range(number)]


def export(**values: Any) -> Export:
    return Export.model_validate({"group": "g", **values})


def topic(**values: Any) -> Topic:
    return Topic.model_validate({"match": "events", "brokers": "localhost:9092", "exports": [{"group": "g"}], **values})


TOPIC = topic()


def exporter(
    bucket: Bucket,
    kafka: FakeKafka,
    *,
    owner: str = "me",
    gone: Callable[[str], bool] = lambda owner: False,
    clock: Clock | None = None,
    config: Topic | None = None,
    on_step: Callable[[str], object] = lambda name: None,
    nonce: Callable[[], str] = swap.fresh,
    made: Export | None = None,
    writer: Writes | None = None,
    **values: Any,
) -> Exporter:
    """`values` are the export's, unless it is `made` already."""
    return Exporter(
        config or TOPIC,
        made or export(**values),
        bucket=bucket,
        kafka=kafka,
        writer=writer or PlainWriter(bucket, kafka),
        reading=Reading("localhost:9092", {}),
        owner=owner,
        gone=gone,
        monitor=MONITOR,
        clock=clock or FakeClock(),
        on_step=on_step,
        nonce=nonce,
    )


def run(one: Exporter, most: int = 50) -> list[Step]:
    """Steps until there is nothing more to do at once."""
    steps = []
    for _ in range(most):
        steps.append(one.step(flush=True))
        if not steps[-1].again:
            return steps
    raise AssertionError(f"there is more to do after {most} steps")


def manifests(bucket: Bucket, place: Place = PLACE) -> Iterator[Manifest]:
    for entry in bucket.list(place.commits()):
        yield _parsed(entry.key, bucket.get(entry.key))


_parsed = lru_cache(10_000)(Manifest.parse)
MONITOR = Monitor()


def bounds(bucket: Bucket, place: Place = PLACE) -> list[tuple[str, int, int]]:
    return [(str(one.source), one.first, one.last) for one in manifests(bucket, place)]


def offsets(bucket: Bucket, place: Place = PLACE) -> list[tuple[str, int]]:
    """Every offset in a committed file, as often as it is there."""
    return sorted(
        (str(one.source), offset)
        for one in manifests(bucket, place)
        for file in one.files
        for offset in json.loads(bucket.get(file.key))["offsets"]
    )


def committed(bucket: Bucket, place: Place = PLACE) -> list[tuple[Manifest, tuple[bytes, ...]]]:
    """All ranges with the content of their files; not who committed them, nor when."""
    return [
        (replace(one, owner="", committed=""), tuple(bucket.get(file.key) for file in (*one.files, *one.dead)))
        for one in manifests(bucket, place)
    ]

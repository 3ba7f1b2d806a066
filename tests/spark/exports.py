"""Lakes for tests of exports: a config for a broker and a bucket, messages, and what came of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import SparkSession

from catchment.clock import SYSTEM, Clock
from catchment.config.load import load_text
from catchment.lake import Lake
from catchment.lake.topics import Exported, Topics
from catchment.topics.service import Until

DAY = datetime(2026, 11, 10, tzinfo=UTC)
EVENTS: dict[str, Any] = {
    "group": "events",
    "decode": "json",
    "split": {"type": {"field": "type"}, "day": {"field": "ts", "unit": "ms", "by": "day"}},
    "dead_letters": {"stop_above": "50%"},
}
BACKUP: dict[str, Any] = {"group": "backup"}


def text(
    bootstrap: str, match: str, exports: Iterable[dict[str, Any]], storage: dict[str, Any], workspace: Path, **more: Any
) -> str:
    """A configuration, as YAML."""
    spark = more.pop("spark", {})
    topic = {"match": match, "brokers": bootstrap, "exports": list(exports), "discover": "1s", **more}
    return yaml.safe_dump(
        {
            "object_storage": [{"id": "main", **storage}],
            "workspace": str(workspace),
            "topics": [topic],
            **({"spark": spark} if spark else {}),
        },
        sort_keys=False,  # the order of splits is the order of folders
    )


@contextmanager
def opened(config: str, spark: SparkSession, clock: Clock = SYSTEM) -> Iterator[Topics]:
    """The topics of a lake, on a session that outlives it."""
    with Lake(load_text(config), spark=spark) as lake:
        yield Topics(lake, clock=clock)


def caught_up(config: str, spark: SparkSession, clock: Clock = SYSTEM, **how: Any) -> Exported:
    """Export all that is there, with a process (as others see it) of its own."""
    with opened(config, spark, clock) as topics:
        return topics.export(until=Until.CAUGHT_UP, beat=0.5, **how)


def event(number: int, kind: str = "a", when: datetime = DAY, **more: Any) -> bytes:
    return json.dumps({"type": kind, "ts": int(when.timestamp() * 1000), "n": number, **more}).encode()


def events(numbers: Iterable[int], kinds: int = 3, days: int = 3) -> list[bytes]:
    """Mixed types, days out of order."""
    return [event(n, f"t{n % kinds}", DAY + timedelta(days=(n * 7) % days, minutes=n % 1000)) for n in numbers]


class Later:
    """A clock ahead of the machine's."""

    def __init__(self, by: timedelta) -> None:
        self.by = by

    def now(self) -> datetime:
        return SYSTEM.now() + self.by

    def monotonic(self) -> float:
        return SYSTEM.monotonic()

    def sleep(self, seconds: float) -> None:
        SYSTEM.sleep(seconds)

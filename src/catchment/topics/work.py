"""What is handed to the task that writes a range, and what it hands back. Plain values that can be pickled."""

from __future__ import annotations

from dataclasses import dataclass, field

from catchment.config.storage import Storage
from catchment.config.topics import Export
from catchment.topics.manifest import Counts, File
from catchment.topics.names import Place, Source


@dataclass(frozen=True)
class Work:
    """One claimed range, to be written."""

    export: Export
    topic: str
    source: Source
    first: int
    last: int
    fingerprint: str  # of the definition
    owner: str = ""  # the process that asks; its tasks remember the schemas they read for it. Empty: they do not

    @property
    def place(self) -> Place:
        return Place(self.export.group, self.topic)

    @property
    def generation(self) -> int:
        return self.export.generation

    def __str__(self) -> str:
        return f"{self.place} Kafka partition {self.source} [{self.first}, {self.last}]"


@dataclass(frozen=True)
class Written:
    """What a task did with its range. All of its files are in place."""

    topic: str
    source: Source
    first: int
    last: int
    counts: Counts
    files: tuple[File, ...]
    dead: tuple[File, ...]
    holes: tuple[tuple[int, int], ...] | None
    raw_bytes: int
    reasons: tuple[tuple[str, int], ...] = ()  # why records are dead letters, the most frequent first, with how many
    seconds: tuple[tuple[str, float], ...] = ()  # where the time went: read, decode, split, write, put


@dataclass(frozen=True)
class Refused:
    """A range that was not written, and why. Nothing of it may be committed."""

    topic: str
    source: Source
    first: int
    last: int
    reason: str
    hint: str = ""
    again: bool = False  # True: try it again at once (a schema moved meanwhile); False: somebody must act


@dataclass(frozen=True)
class Reading:
    """Where ranges are read from."""

    brokers: str
    settings: dict[str, str] = field(repr=False)  # for Spark's client, secrets revealed: never logged


@dataclass(frozen=True)
class Target:
    """Where files are put."""

    storage: Storage
    memory: int = 256_000_000  # bytes of decoded rows that a task keeps before it spills to its disk

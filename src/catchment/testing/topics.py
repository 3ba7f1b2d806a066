"""Doubles for exporters: a Kafka in memory, and a writer that needs no Spark.

kafka = FakeKafka()
kafka.create("events", partitions=2)
kafka.append("events", 0, b'{"type": "a"}')
exporter = Exporter(..., kafka=kafka, writer=PlainWriter(bucket, kafka))
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from catchment.bucket.contract import ABSENT, Bucket
from catchment.clock import isoformat
from catchment.errors import BrokerError, Conflict, NotFound
from catchment.topics.kafka import Ends, Part, Peek, TopicInfo
from catchment.topics.manifest import Counts, File
from catchment.topics.names import FileName
from catchment.topics.work import Reading, Refused, Work, Written


@dataclass(frozen=True)
class Message:
    """One message. A gap (a transaction's mark, a compacted message) is None in its place."""

    value: bytes
    timestamp: int = 0
    key: bytes | None = None


@dataclass
class _Partition:
    messages: list[Message | None] = field(default_factory=list)
    earliest: int = 0


class FakeKafka:
    """A cluster in memory. Set `down` to have it refuse everything."""

    def __init__(self) -> None:
        self._topics: dict[str, tuple[str, list[_Partition]]] = {}
        self._made = 0
        self.groups: dict[str, dict[Part, int]] = {}
        self.down = False
        self.calls = 0

    def create(self, topic: str, partitions: int = 1) -> str:
        """A new topic, or a new life of one that was deleted; its id."""
        self._made += 1
        self._topics[topic] = (f"id-{self._made}", [_Partition() for _ in range(partitions)])
        return self._topics[topic][0]

    def delete(self, topic: str) -> None:
        """Remove a topic."""
        del self._topics[topic]

    def add_partition(self, topic: str) -> None:
        """One Kafka partition more."""
        self._topics[topic][1].append(_Partition())

    def append(self, topic: str, partition: int, *messages: bytes | Message | None) -> None:
        """Messages at the end; None for a gap."""
        there = self._topics[topic][1][partition].messages
        there += [Message(one) if isinstance(one, bytes) else one for one in messages]

    def expire(self, topic: str, partition: int, before: int) -> None:
        """What retention does."""
        self._topics[topic][1][partition].earliest = before

    def read(self, part: Part, first: int, last: int) -> Iterator[tuple[int, Message]]:
        """The messages of a range, without the gaps. BrokerError if some of it is gone."""
        found = self._part(part)
        if first < found.earliest or last >= len(found.messages):
            raise BrokerError(f"{part[0]} Kafka partition {part[1]} has no offsets {first} to {last}")
        for offset in range(first, last + 1):
            message = found.messages[offset]
            if message is not None:
                yield offset, message

    def topics(self, wanted: Callable[[str], bool]) -> dict[str, TopicInfo]:
        self._answer()
        return {
            name: TopicInfo(name, id, tuple(range(len(partitions))))
            for name, (id, partitions) in self._topics.items()
            if wanted(name)
        }

    def ends(self, parts: Collection[Part]) -> dict[Part, Ends]:
        self._answer()
        found = {}
        for topic, partition in parts:
            if topic in self._topics and partition < len(self._topics[topic][1]):
                one = self._topics[topic][1][partition]
                found[topic, partition] = Ends(one.earliest, len(one.messages))
        return found

    def offsets_at(self, parts: Collection[Part], moment: datetime) -> dict[Part, int]:
        self._answer()
        wanted = int(moment.timestamp() * 1000)
        found = {}
        for part in parts:
            one = self._part(part)
            later = (
                offset
                for offset, message in enumerate(one.messages)
                if offset >= one.earliest and message is not None and message.timestamp >= wanted
            )
            found[part] = next(later, len(one.messages))
        return found

    def group_offsets(self, group: str, parts: Collection[Part]) -> dict[Part, int]:
        self._answer()
        return {part: offset for part, offset in self.groups.get(group, {}).items() if part in parts}

    def peek(self, part: Part, offset: int, count: int = 100, *, until: int | None = None) -> list[Peek]:
        self._answer()
        one = self._part(part)
        end = len(one.messages) if until is None else min(until, len(one.messages))
        messages = ((at, one.messages[at]) for at in range(max(offset, one.earliest), end))
        return [
            Peek(at, message.timestamp, len(message.value) + len(message.key or b""))
            for at, message in messages
            if message is not None
        ][:count]

    def _part(self, part: Part) -> _Partition:
        return self._topics[part[0]][1][part[1]]

    def _answer(self) -> None:
        self.calls += 1
        if self.down:
            raise BrokerError("no Kafka broker answers")


class PlainWriter:
    """Writes ranges as small JSON objects `{offsets: […]}`, a folder for each value of a field (`by`) of the message.

    A message that is not JSON is a dead letter. Keeps the rules of the real one: names are fixed by bounds and
    fingerprint, and an object that is there already stays as it is.
    """

    def __init__(self, bucket: Bucket, kafka: FakeKafka, *, parallelism: int = 8, by: str = "type") -> None:
        self._bucket, self._kafka = bucket, kafka
        self.parallelism, self._by = parallelism, by

    def write(self, reading: Reading, works: Sequence[Work]) -> list[Written | Refused]:
        return [self._write(work) for work in works]

    def _write(self, work: Work) -> Written:
        folders: dict[str, list[int]] = {}
        dead: list[int] = []
        read = raw = 0
        seen: set[int] = set()
        for offset, message in self._kafka.read((work.topic, work.source.partition), work.first, work.last):
            read += 1
            raw += len(message.value)
            seen.add(offset)
            try:
                folders.setdefault(f"{self._by}={json.loads(message.value)[self._by]}", []).append(offset)
            except (ValueError, KeyError, TypeError):
                dead.append(offset)
        name = FileName(work.generation, work.source, work.first, work.last, work.fingerprint, "json")
        files = tuple(self._put(work.place.file(folder, name), found) for folder, found in sorted(folders.items()))
        set_aside = (self._put(work.place.dead(name), dead),) if dead else ()
        holes = tuple((offset, offset) for offset in range(work.first, work.last + 1) if offset not in seen)
        counts = Counts(read, work.last - work.first + 1 - read, read - len(dead), len(dead), 0)
        return Written(work.topic, work.source, work.first, work.last, counts, files, set_aside, holes, raw)

    def _put(self, key: str, found: list[int]) -> File:
        body = json.dumps({"offsets": found}).encode()
        try:
            stat = self._bucket.put(key, body, when=ABSENT)
        except Conflict:
            try:
                stat = self._bucket.head(key)
            except NotFound:  # removed since: nobody can have committed it
                stat = self._bucket.put(key, body)
        moment = isoformat(datetime.fromisoformat("2026-01-01T00:00:00Z"))
        return File(key, stat.etag, stat.size, len(found), found[0], found[-1], moment, moment)

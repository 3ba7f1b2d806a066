"""How each export fares, Kafka partition by Kafka partition, and three rules that say when something is wrong.

- **failed writes**: the share of the writes of the last hour that failed. Known to the workspace in which they ran.
- **delay**: seconds from the newest message that is committed or claimed to the newest message in Kafka.
- **uncommitted**: messages that are claimed and not committed yet.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from catchment.bucket.contract import Bucket
from catchment.config.topics import Alerts, Export, Topic
from catchment.errors import BucketError, CatchmentError, ExportStopped
from catchment.monitor.history import History
from catchment.topics import identity, offsets
from catchment.topics.kafka import Ends, Kafka, Part, Peek, TopicInfo
from catchment.topics.names import ROOT, Place, Source
from catchment.topics.offsets import Claim
from catchment.topics.track import passes

LOOK_BACK = timedelta(hours=1)


@dataclass(frozen=True)
class Standing:
    """One Kafka partition of one export."""

    group: str
    topic: str
    kafka_partition: int
    committed: int | None  # the newest committed offset; None: none yet
    latest: int | None  # the newest offset in Kafka; None: there is none, or Kafka gives no answer
    lag: int | None  # messages, counted by their offsets
    lag_seconds: float | None  # the age of the oldest message that is not committed; 0: caught up
    delay_seconds: float | None  # from the newest committable message to the newest in Kafka
    claim: Claim | None
    watermark: str | None  # everything that was in Kafka then is committed
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Writes:
    """What this workspace's processes wrote of one topic in the last hour."""

    group: str
    topic: str
    count: int
    failures: int
    problem: str = ""


@dataclass(frozen=True)
class Status:
    """Everything that was asked about."""

    standings: tuple[Standing, ...]
    writes: tuple[Writes, ...]
    problems: tuple[str, ...]  # of topics or clusters as a whole

    @property
    def well(self) -> bool:
        return not (
            self.problems or any(one.problems for one in self.standings) or any(one.problem for one in self.writes)
        )


def status(config: Topic, export: Export, bucket: Bucket, kafka: Kafka, history: History, now: datetime) -> Status:
    """One export of the topics that match. What cannot be asked is a problem, and hides nothing else."""
    try:
        topics = kafka.topics(config.matches)
        ends = kafka.ends([(topic.name, one) for topic in topics.values() for one in topic.partitions])
    except CatchmentError as error:
        return Status((), (), (f"{export.group}: {error}",))
    standings: list[Standing] = []
    problems: list[str] = []
    for topic in topics.values():
        try:
            standings += _topic(topic, export, bucket, kafka, ends, now, problems)
        except CatchmentError as error:
            problems.append(f"{export.group}/{topic.name}: {error}")
    return Status(tuple(standings), tuple(_writes(export, topics, history, now)), tuple(problems))


def _topic(
    topic: TopicInfo,
    export: Export,
    bucket: Bucket,
    kafka: Kafka,
    ends: Mapping[Part, Ends],
    now: datetime,
    problems: list[str],
) -> list[Standing]:
    place = Place(export.group, topic.name)
    known = identity.read(bucket, place)
    if known is not None and known.topic_id != topic.id:
        raise identity.recreated(place, known.topic_id, topic.id)
    found = []
    for partition in topic.partitions:
        end = ends.get((topic.name, partition))
        start = known.start(partition) if known else (end.earliest if end else 0)
        source = known.source(partition) if known else Source(partition)
        try:
            hint = offsets.load(bucket, place, source, start).hint
            found.append(_standing(place, export.alerts, hint, start, (topic.name, partition), end, kafka, now))
        except (ExportStopped, BucketError) as error:
            if passes(error):
                raise  # the bucket's own trouble: the others would fare no better
            problems.append(f"{place} Kafka partition {partition}: {error}")
    return found


def _standing(
    place: Place,
    alerts: Alerts,
    hint: offsets.Hint,
    start: int,
    part: Part,
    ends: Ends | None,
    kafka: Kafka,
    now: datetime,
) -> Standing:
    committable = hint.claim.last + 1 if hint.claim else hint.next
    lag = max(0, ends.end - hint.next) if ends else None
    lag_seconds = delay = None if ends is None else 0.0
    problems = []
    if ends is not None and lag:
        oldest = _timestamp(kafka, part, hint.next, ends.end)
        lag_seconds = max(0.0, now.timestamp() - oldest / 1000) if oldest is not None else None
        if committable < ends.end:
            delay = _delay(kafka, part, committable, ends)
    if ends is not None and ends.earliest > hint.next and ends.end > hint.next:
        problems.append(f"Kafka no longer has the offsets from {hint.next} to {ends.earliest - 1}")
    if ends is not None and ends.end < hint.next:
        problems.append(f"Kafka's end is {ends.end}, below the committed offset {hint.next}")
    if hint.claim is not None and hint.claim.error:
        problems.append(hint.claim.error)
    if delay is not None and delay > alerts.delay.total_seconds():
        problems.append(f"delay: {delay:.0f} s behind Kafka, more than {alerts.delay.total_seconds():.0f} s")
    claimed = hint.claim.last - hint.claim.first + 1 if hint.claim else 0
    if claimed > alerts.uncommitted:
        problems.append(f"uncommitted: {claimed} messages are claimed, more than {alerts.uncommitted}")
    return Standing(
        place.group,
        place.topic,
        part[1],
        hint.next - 1 if hint.next > start else None,
        ends.end - 1 if ends and ends.end > ends.earliest else None,
        lag,
        lag_seconds,
        delay,
        hint.claim,
        hint.watermark,
        tuple(problems),
    )


def _delay(kafka: Kafka, part: Part, committable: int, ends: Ends) -> float | None:
    """Seconds from the newest message below `committable` to the newest of all; gaps in between are stepped over."""
    newest = _newest(kafka, part, ends.earliest, ends.end)
    before = _newest(kafka, part, ends.earliest, min(committable, ends.end))
    if before is None:  # nothing was ever committable: from the oldest that waits
        before = _timestamp(kafka, part, committable, ends.end)
    return None if newest is None or before is None else max(0.0, (newest - before) / 1000)


def _newest(kafka: Kafka, part: Part, earliest: int, end: int) -> int | None:
    """The timestamp of the last message below `end`: found by looking back in steps that grow."""
    back = 16
    while end > earliest:
        start = max(earliest, end - back)
        if found := kafka.peek(part, start, count=back, until=end):
            while more := kafka.peek(part, found[-1].offset + 1, count=back, until=end):
                found = more  # one look ends after some bytes
            return _told(found[-1])
        if start == earliest or back > 1_000_000:
            return None
        back *= 8
    return None


def _timestamp(kafka: Kafka, part: Part, offset: int, end: int) -> int | None:
    found = kafka.peek(part, offset, count=1, until=end)
    return _told(found[0]) if found else None


def _told(message: Peek) -> int | None:
    return message.timestamp if message.timestamp > 0 else None  # old producers write none


def _writes(export: Export, topics: Mapping[str, TopicInfo], history: History, now: datetime) -> list[Writes]:
    try:
        summaries = {one.subject: one for one in history.summary(now - LOOK_BACK) if one.kind == "write"}
    except (sqlite3.Error, OSError, CatchmentError):
        return []  # no reason to hide what the lake says
    found = []
    for name in sorted(topics):
        one = summaries.get(f"{ROOT}/{Place(export.group, name)}")
        if one is None:
            continue
        share = one.failures / one.count
        limit = export.alerts.failed_writes
        problem = f"failed writes: {share:.0%} of {one.count}, more than {limit:.0%}" if share > limit else ""
        found.append(Writes(export.group, name, one.count, one.failures, problem))
    return found


def together(parts: list[Status]) -> Status:
    """Several exports as one answer."""
    return Status(
        tuple(one for part in parts for one in part.standings),
        tuple(one for part in parts for one in part.writes),
        tuple(one for part in parts for one in part.problems),
    )

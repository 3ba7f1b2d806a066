"""`lake.topics.backfill`: which export, and where its messages are read from again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from catchment.config.topics import Export, Topic
from catchment.errors import UsageError
from catchment.monitor.replica import this_replica
from catchment.topics import identity
from catchment.topics.backfill.backup import Backup
from catchment.topics.backfill.rewrite import FromBackup, FromKafka, Rewrites, on_spark
from catchment.topics.backfill.run import Backfilled, Progress, backfill
from catchment.topics.files.format import file_format
from catchment.topics.identity import Identity
from catchment.topics.kafka import Cluster
from catchment.topics.names import Place
from catchment.topics.period import Period
from catchment.topics.work import Reading, Target

if TYPE_CHECKING:
    from catchment.lake import Lake
    from catchment.topics.write.job import SparkWriter


@dataclass(frozen=True)
class Ask:
    """What a backfill is asked to do."""

    period: Period
    source: str | None = None  # the group of the backup; None: the only one there is, or Kafka if there is none
    kafka: bool = False
    replace: bool = False
    before_start: bool = False
    dry_run: bool = False


def run(
    lake: Lake,
    config: Topic,
    export: Export,
    topic: str,
    ask: Ask,
    *,
    cluster: Callable[[], Cluster],
    reading: Callable[[], Reading],
    now: Callable[[], datetime],
    on_progress: Callable[[Progress], object],
    on_step: Callable[[str], object],
) -> Backfilled:
    """Write a period of one export anew."""
    bucket, place = lake.bucket, Place(export.group, topic)
    known = identity.read(bucket, place)
    if known is None:
        raise UsageError(
            f"{place} was never exported, so there is nothing to go back to",
            hint=f"run: catchment topics export --once --group {place.group}, and then this again",
        )
    if ask.dry_run:
        identity.check_definition(place, known, export)
    else:
        known = identity.register(bucket, place, known.topic_id, export, dict)
    with _messages(lake, config, export, place, known, ask, cluster, reading) as messages:
        return backfill(
            bucket,
            place,
            export,
            known,
            ask.period,
            messages,
            replace=ask.replace,
            before_start=ask.before_start,
            dry_run=ask.dry_run,
            owner=this_replica("topics backfill").id,
            now=now,
            on_progress=on_progress,
            on_step=on_step,
        )


@contextmanager
def _messages(
    lake: Lake,
    config: Topic,
    export: Export,
    place: Place,
    known: Identity,
    ask: Ask,
    cluster: Callable[[], Cluster],
    reading: Callable[[], Reading],
) -> Iterator[Rewrites]:
    target = Target(lake.config.state_storage)
    group = ask.source if ask.source is not None or ask.kafka else _only_backup(lake, config, place)
    if group is not None:
        backup = Backup(lake.bucket, Place(group, place.topic), known)
        _enough(backup, export)
        yield FromBackup(backup, on_spark(lambda: lake.spark, target))
        return

    def writer() -> SparkWriter:
        from catchment.topics.write.job import SparkWriter

        return SparkWriter(lake.spark, target)

    kafka = cluster()
    try:
        yield FromKafka(kafka, place.topic, known, writer, reading())
    finally:
        kafka.close()


def _only_backup(lake: Lake, config: Topic, place: Place) -> str | None:
    """The backup of this topic; None if there is none. UsageError if there are several."""
    groups: Sequence[str] = [
        export.group
        for other in lake.config.topics
        if other.brokers == config.brokers and other.matches(place.topic)
        for export in other.exports
        if export.decode is None and export.group != place.group
    ]
    found = [group for group in dict.fromkeys(groups) if identity.read(lake.bucket, Place(group, place.topic))]
    if len(found) > 1:
        raise UsageError(
            f"topic {place.topic} has several backups: {', '.join(found)}",
            hint="choose one with --from, or --from-kafka",
        )
    return found[0] if found else None


def _enough(backup: Backup, export: Export) -> None:
    """UsageError if the export needs of a message what the backup does not keep."""
    lacks = backup.lacks()
    needs = set(file_format(export.format).keeps) if export.decode is None else set()
    for split in export.split.values():
        needs |= {"key"} if split.key else {"timestamp"} if split.timestamp else set()
        needs |= {"headers"} if split.header is not None else set()
    if export.decode is not None and export.decode.type_from is not None and export.decode.type_from.header is not None:
        needs.add("headers")
    missing = sorted(lacks & needs)
    if missing:
        raise UsageError(
            f"{backup.place} does not keep what {export.group} is made of ({', '.join(missing)} of messages)",
            hint="name a backup in Parquet with --from, or use --from-kafka",
        )

"""`lake.topics`: one method for each of `catchment topics …`, and `read`.

`groups` and `topics` narrow down what is meant: names of exports, names of Kafka topics. None means all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from catchment.bucket.probe import must_compare_and_set
from catchment.clock import SYSTEM, Clock
from catchment.config.topics import Export, Topic
from catchment.errors import SetupError, UsageError
from catchment.lake.backfill import Ask
from catchment.lake.backfill import run as rewrite
from catchment.lake.signals import stopped_by_signals
from catchment.monitor.history import History
from catchment.monitor.owners import Owners
from catchment.monitor.replica import INTERVAL, Beating, this_replica
from catchment.monitor.store import store_path
from catchment.topics import committed, finalize, identity, locate, security
from catchment.topics.backfill.run import Backfilled
from catchment.topics.backfill.run import Progress as Rewritten
from catchment.topics.committed import Committed
from catchment.topics.export import Exporter
from catchment.topics.files.format import format_of
from catchment.topics.frame import frame
from catchment.topics.kafka import Cluster
from catchment.topics.locate import Located
from catchment.topics.messages import Window
from catchment.topics.names import Place, Source
from catchment.topics.period import Period
from catchment.topics.repair import Progress as Repairing
from catchment.topics.repair import Repaired, repair
from catchment.topics.replay import Progress as Replaying
from catchment.topics.replay import Replayed, into_topic
from catchment.topics.service import Progress, Service, Until
from catchment.topics.show import LIMIT, Shown, show_file, show_offset
from catchment.topics.skip import Skipped, skip
from catchment.topics.status import Status, status, together
from catchment.topics.verify import Progress as Counted
from catchment.topics.verify import Verified, on_spark, verify
from catchment.topics.work import Reading, Target
from catchment.topics.write.scratch import scratch_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from catchment.lake import Lake


@dataclass(frozen=True)
class Exported:
    """What a run of the exporters did."""

    exports: tuple[Progress, ...]

    @property
    def problems(self) -> list[str]:
        return [problem for one in self.exports for problem in one.problems]


class Topics:
    """The topics of a lake."""

    def __init__(self, lake: Lake, *, clock: Clock = SYSTEM) -> None:
        self._lake = lake
        self._clock = clock

    def export(
        self,
        *,
        until: Until = Until.STOPPED,
        groups: Sequence[str] | None = None,
        topics: Sequence[str] | None = None,
        beat: float = INTERVAL,
        grace: float | None = None,
        on_progress: Callable[[Progress], object] = lambda progress: None,
        on_step: Callable[[str], object] = lambda name: None,
        on_ready: Callable[[Service], object] = lambda service: None,
    ) -> Exported:
        """Export until stopped, until nothing is due, or until caught up with what was in Kafka at the start.

        In the main thread SIGTERM and SIGINT stop it: what is being written is finished within `grace` seconds or
        abandoned cleanly. Any number of processes may do this at once.
        """
        from catchment.topics.write.job import SparkWriter

        chosen = self._chosen(groups, topics)
        if not chosen:
            raise UsageError("the configuration has no topics", hint="add some under 'topics:' in catchment.yaml")
        _understood(chosen)
        bucket = self._lake.bucket
        must_compare_and_set(self._lake.bucket, "exports rest on them")
        replica = this_replica("topics export", workspace=str(self._lake.workspace), interval=beat, clock=self._clock)
        with ExitStack() as stack:
            writer = SparkWriter(self._lake.spark, Target(self._lake.config.state_storage))
            stack.enter_context(Beating(bucket, replica))
            exporters = []
            for config, export in chosen:
                cluster = stack.enter_context(self._cluster(config))
                exporters.append(
                    Exporter(
                        config,
                        export,
                        bucket=bucket,
                        kafka=cluster,
                        writer=writer,
                        reading=self._reading(config),
                        owner=replica.id,
                        gone=Owners(bucket, clock=self._clock).gone,
                        monitor=self._lake.monitor,
                        clock=self._clock,
                        on_step=on_step,
                    )
                )
            more = {} if grace is None else {"grace": grace}
            service = Service(exporters, cancel=writer.cancel, on_progress=on_progress, **more)
            stack.enter_context(stopped_by_signals(service.stop))
            on_ready(service)
            return Exported(tuple(service.run(until)))

    def status(self, *, groups: Sequence[str] | None = None, topics: Sequence[str] | None = None) -> Status:
        """How far each Kafka partition is exported, who is at work on it, and what is wrong. Starts no JVM."""
        history = History(store_path(self._lake.workspace))
        found = []
        for config, export in self._chosen(groups, topics):
            with self._cluster(config) as cluster:
                found.append(status(config, export, self._lake.bucket, cluster, history, self._clock.now()))
        return together(found)

    def verify(
        self,
        *,
        groups: Sequence[str] | None = None,
        topics: Sequence[str] | None = None,
        kafka_partition: int | None = None,
        first_offset: int | None = None,
        last_offset: int | None = None,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        on_progress: Callable[[Counted], None] = lambda progress: None,
    ) -> dict[str, Verified]:
        """Count every offset of a period again from the files themselves, as Spark jobs; by `group/topic`.

        A Kafka partition is meant in the newest life of its topic.
        """
        found = {}
        for place, _ in self._places(groups, topics):
            source = None
            if kafka_partition is not None:
                known = identity.read(self._lake.bucket, place)
                source = known.source(kafka_partition) if known else Source(kafka_partition)
            found[str(place)] = verify(
                self._lake.bucket,
                place,
                Period(source, first_offset, last_offset, start_time, end_time),
                mapper=on_spark(self._lake.spark, self._lake.config.state_storage),
                on_progress=on_progress,
            )
        return found

    def repair(
        self,
        *,
        groups: Sequence[str] | None = None,
        topics: Sequence[str] | None = None,
        dry_run: bool = False,
        also_newer: bool = False,
        back: bool = False,
        on_progress: Callable[[Repairing], object] = lambda progress: None,
    ) -> dict[str, Repaired]:
        """Rebuild hints from the manifests, and remove files that no manifest lists or ever will; by `group/topic`.

        back: also take back hints that are ahead of their manifests. Only while no exporter of these topics runs.
        """
        must_compare_and_set(self._lake.bucket, "exports rest on them")
        bucket = self._lake.bucket
        found = {}
        for place, export in self._places(groups, topics):
            found[str(place)] = repair(
                bucket,
                place,
                now=self._clock.now(),
                dry_run=dry_run,
                also_newer=also_newer,
                back=back,
                duty=finalize.duty(bucket, place, export),
                workers=8,
                on_progress=on_progress,
            )
        return found

    def skip(
        self,
        group: str,
        topic: str,
        *,
        kafka_partition: int | None = None,
        to: int | None = None,
        recreated: bool = False,
        also_readable: bool = False,
    ) -> list[Skipped]:
        """Go on after offsets that Kafka no longer has, or with a topic that was made again."""
        [(config, export)] = self._chosen([group], [topic])
        place = Place(group, topic)
        bucket = self._lake.bucket
        must_compare_and_set(self._lake.bucket, "exports rest on them")
        with self._cluster(config) as cluster:
            listed = cluster.topics(lambda name: name == topic).get(topic)
            if listed is None:
                raise UsageError(f"there is no topic {topic} at {config.brokers}", hint="correct --topic")
            ends = cluster.ends([(topic, one) for one in listed.partitions])
            known = identity.read(bucket, place)
            if known is None:
                raise UsageError(f"{place} was never exported", hint="run: catchment topics export")
            if recreated:
                if known.topic_id == listed.id:
                    raise UsageError(
                        f"topic {topic} is the one that is exported; it was not made again",
                        hint="leave out --recreated",
                    )
                starts = {one: ends[topic, one].earliest for one in listed.partitions}
                identity.accept_recreated(bucket, place, listed.id, starts)
                return [
                    Skipped(group, topic, one, 0, ends[topic, one].earliest - 1, "the topic was made again")
                    for one in listed.partitions
                ]
            if known.topic_id != listed.id:
                raise identity.recreated(place, known.topic_id, listed.id)
            if kafka_partition is None or kafka_partition not in listed.partitions:
                raise UsageError(
                    f"topic {topic} has the Kafka partitions {', '.join(map(str, listed.partitions))}",
                    hint="name one with --kafka-partition",
                )
            earliest = ends[topic, kafka_partition].earliest
            return [
                skip(
                    bucket,
                    place,
                    export,
                    known,
                    kafka_partition,
                    earliest if to is None else to,
                    earliest=earliest,
                    end=ends[topic, kafka_partition].end,
                    why=f"gone over by hand; Kafka begins at {earliest}",
                    owner=this_replica("topics skip").id,
                    now=self._clock.now(),
                    anything=also_readable,
                )
            ]

    def backfill(
        self,
        group: str,
        topic: str,
        *,
        source: str | None = None,
        from_kafka: bool = False,
        kafka_partition: int | None = None,
        first_offset: int | None = None,
        last_offset: int | None = None,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        replace: bool = False,
        before_start: bool = False,
        dry_run: bool = False,
        on_progress: Callable[[Rewritten], object] = lambda progress: None,
        on_step: Callable[[str], object] = lambda name: None,
    ) -> Backfilled:
        """Write ranges of earlier generations anew by the current definition, from a backup or from Kafka.

        source: the group of the backup; by default the only one there is, or Kafka. replace: let readers see what was
        written; without it files are prepared. before_start: also add what lies before the export's start.
        """
        [(config, export)] = self._chosen([group], [topic])
        _understood([(config, export)])
        if not dry_run:  # which writes nothing, not even to try
            must_compare_and_set(self._lake.bucket, "exports rest on them")
        known = identity.read(self._lake.bucket, Place(group, topic))
        which = None if kafka_partition is None else known.source(kafka_partition) if known else Source(kafka_partition)
        period = Period(which, first_offset, last_offset, start_time, end_time)
        return rewrite(
            self._lake,
            config,
            export,
            topic,
            Ask(period, source, from_kafka, replace, before_start, dry_run),
            cluster=lambda: Cluster(str(config.brokers), config.settings()),
            reading=lambda: self._reading(config),
            now=self._clock.now,
            on_progress=on_progress,
            on_step=on_step,
        )

    def locate(
        self,
        topic: str,
        kafka_partition: int,
        offset: int,
        *,
        groups: Sequence[str] | None = None,
        life: int | None = None,
    ) -> list[Located]:
        """Which file holds this offset, in every group, from names and manifests alone."""
        places = [one for one in locate.places(self._lake.bucket, topic) if not groups or one.group in groups]
        if not places:
            raise UsageError(
                f"the lake has no export of the topic {topic!r}" + (f" in {', '.join(groups)}" if groups else ""),
                hint="correct --topic and --group, or run: catchment topics export",
            )
        return [locate.locate(self._lake.bucket, one, kafka_partition, offset, life=life) for one in places]

    def show(
        self, key: str, *, limit: int = LIMIT, first_offset: int | None = None, last_offset: int | None = None
    ) -> Shown:
        """The messages of one file, whatever its format, in the order of their offsets. Starts no JVM."""
        with scratch_folder() as scratch:
            return show_file(self._lake.bucket, key, scratch, limit=limit, first=first_offset, last=last_offset)

    def show_offset(
        self,
        topic: str,
        kafka_partition: int,
        offset: int,
        *,
        groups: Sequence[str] | None = None,
        life: int | None = None,
    ) -> list[Shown]:
        """The message of one offset, as every group has it; why not, where one has none."""
        found = self.locate(topic, kafka_partition, offset, groups=groups, life=life)
        with scratch_folder() as scratch:
            return [show_offset(self._lake.bucket, one, scratch) for one in found]

    def replay(
        self,
        group: str,
        topic: str,
        *,
        to_topic: str,
        kafka_partition: int | None = None,
        first_offset: int | None = None,
        last_offset: int | None = None,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        to_brokers: str | None = None,
        by_key: bool = False,
        also_incomplete: bool = False,
        dry_run: bool = False,
        on_progress: Callable[[Replaying], object] = lambda progress: None,
        on_step: Callable[[str], object] = lambda name: None,
    ) -> Replayed:
        """The messages of a backup into another Kafka topic, each once, also if it is killed and run again. No JVM.

        to_brokers: another cluster, with the settings of a topic of the configuration that has these brokers, or else
        of this one. by_key: their keys choose the Kafka partitions. also_incomplete: also what kept no timestamps or
        headers.
        """
        [(config, _)] = self._chosen([group], [topic])
        brokers = str(to_brokers or config.brokers)
        known = (one.settings() for one in self._lake.config.topics if str(one.brokers) == brokers)
        with scratch_folder() as scratch:
            return into_topic(
                self._lake.bucket,
                Place(group, topic),
                brokers,
                next(known, config.settings()),
                to_topic,
                Window(first_offset, last_offset, start_time, end_time),
                scratch,
                kafka_partition=kafka_partition,
                by_key=by_key,
                also_incomplete=also_incomplete,
                dry_run=dry_run,
                now=self._clock.now(),
                on_progress=on_progress,
                on_step=on_step,
            )

    def files(self, group: str, topic: str, **values: str | Sequence[str]) -> Iterator[Committed]:
        """The committed files, only those in folders with these values: `type="order", day=["2026-11-14", …]`."""
        return committed.files(self._lake.bucket, Place(group, topic), where=values)

    def read(self, group: str, topic: str, **values: str | Sequence[str]) -> DataFrame:
        """The committed rows, exactly those that manifests list, as a DataFrame; the splits are columns of text."""
        place, files = Place(group, topic), list(self.files(group, topic, **values))
        known = identity.read(self._lake.bucket, place) if files else None
        formats = {one: format_of(known, one) for one in {file.generation for file in files}} if known else {}
        return frame(self._lake.spark, self._lake.config.state_storage, place, files, formats)

    def _places(
        self, groups: Sequence[str] | None, topics: Sequence[str] | None
    ) -> Iterator[tuple[Place, Export | None]]:
        """What the lake has of the exports that are meant, declared or not any more."""
        declared = [(config, export) for config in self._lake.config.topics for export in config.exports]
        any_found = False
        for place in committed.places(self._lake.bucket):
            if (groups and place.group not in groups) or (topics and place.topic not in topics):
                continue
            any_found = True
            matching = (
                export for config, export in declared if export.group == place.group and config.matches(place.topic)
            )
            yield place, next(matching, None)
        if not any_found and (groups or topics):
            raise UsageError(
                "the lake has no such export", hint="correct --group and --topic, or run: catchment topics export"
            )

    def _chosen(self, groups: Sequence[str] | None, topics: Sequence[str] | None) -> list[tuple[Topic, Export]]:
        """The exports that are meant, each with its entry narrowed down to the topics. UsageError names a miss."""
        found = []
        declared = {export.group for config in self._lake.config.topics for export in config.exports}
        for group in groups or ():
            if group not in declared:
                raise UsageError(
                    f"no export has the group {group!r}", hint=f"use one of: {', '.join(sorted(declared)) or 'none'}"
                )
        for config in self._lake.config.topics:
            for export in config.exports:
                if groups and export.group not in groups:
                    continue
                if topics:
                    wanted = dict.fromkeys(topics)  # a name that is given twice is meant once
                    narrowed = [config.model_copy(update={"match": one}) for one in wanted if config.matches(one)]
                    found += [(one, export) for one in narrowed]
                else:
                    found.append((config, export))
        for topic in topics or ():
            if not any(config.matches(topic) for config, _ in found):
                raise UsageError(f"no export takes the topic {topic!r}", hint="correct it, or 'match' in the config")
        return found

    @contextmanager
    def _cluster(self, config: Topic) -> Iterator[Cluster]:
        cluster = Cluster(str(config.brokers), config.settings())
        try:
            yield cluster
        finally:
            cluster.close()

    def _reading(self, config: Topic) -> Reading:
        return Reading(str(config.brokers), security.for_java(config.settings(), _file))


def _file(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except OSError as error:
        raise SetupError(f"{path} cannot be read ({error.strerror})", hint="correct it under 'kafka:'") from error


def _understood(chosen: Sequence[tuple[Topic, Export]]) -> None:
    """What is wrong with a decoder is said before Spark is started."""
    from catchment.topics.decode.decoder import check_decoder

    for _, export in chosen:
        if export.decode is not None:
            check_decoder(export.decode)

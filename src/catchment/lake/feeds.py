"""`lake.feeds`: one method for each of `catchment feeds …`, and `read`.

Times are aware datetimes. Where a period is for whole hours, its start is rounded down and its end rounded up.
`object_storage_ids` and `feed_ids` are ids of the configuration; a feed that is no longer declared, but that a storage
still has something of, has an id too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from catchment.bucket.contract import Bucket, Support
from catchment.bucket.probe import probe
from catchment.clock import SYSTEM, Clock
from catchment.errors import BucketError, CatchmentError, UsageError
from catchment.feeds.audit import Audit, Subject, audit
from catchment.feeds.clean import Cleaned, clean
from catchment.feeds.collect import Collector, Ended
from catchment.feeds.cycle import Cycle, Report
from catchment.feeds.delete import Deletion, delete, plan_delete
from catchment.feeds.downloads import owned
from catchment.feeds.hours import Span, list_feeds, list_hours
from catchment.feeds.names import ROOT, Compression, Hour
from catchment.feeds.process import collect
from catchment.feeds.reconcile import Rules, rules, settled
from catchment.feeds.replicate import Place, replicate
from catchment.feeds.retrieve import Layout, Progress, Retrieved, retrieve
from catchment.feeds.scratch import scratch
from catchment.feeds.settle import Codecs, settle
from catchment.feeds.status import Status, status
from catchment.feeds.union import Flaw, OnFlaw, Reading, read_span, refuse, span_over
from catchment.monitor.history import History
from catchment.monitor.store import store_path

if TYPE_CHECKING:
    from catchment.lake import Lake

log = logging.getLogger(__name__)

# An hour is expected to be in place this long after its end: replicas upload at once, then merge.
SETTLING = timedelta(minutes=10)
LOOK_BACK = 24  # hours, where everything that is there is to be settled


@dataclass(frozen=True)
class Deleted:
    """What was to be deleted, by storage, and whether it was."""

    plans: dict[str, Deletion]
    done: bool
    removed: int = 0  # objects


class Feeds:
    """The feeds of a lake."""

    def __init__(self, lake: Lake, *, clock: Clock = SYSTEM) -> None:
        self._lake = lake
        self._config = lake.config
        self._clock = clock
        self._supports: dict[str, Support] = {}

    # -- collecting --------------------------------------------------------------------------------------------------

    def collect(self, *, monitoring_port: int | None = None) -> Ended:
        """Poll every feed until the process is told to stop; then clean. For the main thread of its process."""
        collector = Collector(
            self._config,
            self._lake.workspace,
            self._buckets(),
            self._lake.monitor,
            clock=self._clock,
            monitoring_port=monitoring_port,
            reload=self._lake.reload,
        )
        return collect(collector)

    def collect_once(self) -> Report:
        """Poll nothing: bring the hours that have ended from the workspace to the storages, and settle the last day."""
        with owned(self._lake.workspace):
            cycle = self._cycle()
            cycle.sweep()
            return cycle.run_once(self._this_hour(), look_back=LOOK_BACK)

    def archive(self) -> Report:
        """Pack the downloads of every hour that has ended."""
        report = Report()
        with owned(self._lake.workspace):
            self._cycle().archive(self._this_hour(), report)
        return report

    def upload(self) -> Report:
        """Put every archive of the workspace into every storage, and then remove it here."""
        report = Report()
        with owned(self._lake.workspace):
            self._cycle().upload(report)
        return report

    def clean(self) -> Cleaned:
        """Send all that is in the workspace to the storages, the current hour too."""
        with owned(self._lake.workspace):
            cycle = self._cycle()
            cycle.sweep()
            return clean(cycle)

    # -- in the storages ---------------------------------------------------------------------------------------------

    def reconcile(
        self,
        *,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        feed_ids: Sequence[str] | None = None,
        object_storage_ids: Sequence[str] | None = None,
    ) -> Report:
        """Make one archive of each hour in each storage, and bring hours to the storages that lack them."""
        report = Report()
        span = span_over(start_time, end_time)
        buckets = self._buckets(object_storage_ids)
        for feed in self._feeds(feed_ids, buckets.values(), report.problems):
            places: dict[str, Place] = {}
            for id, bucket in buckets.items():
                try:
                    places[id] = Place(bucket, self._rules(id, feed))
                    for listing in list_hours(bucket, feed, span):
                        if not settled(listing, places[id].rules):
                            self._settle(places[id], id, feed, listing.hour, report)
                except CatchmentError as error:
                    places.pop(id, None)
                    report.problems.append(f"{feed} in {id}: {error}")
            try:
                # The current hour is still on its way to all of them.
                for copy in replicate(places, feed, _until(span, Hour.of(self._clock.now())), self._codecs()):
                    report.uploaded.append(f"{feed} {copy.hour.text} from {copy.source} to {copy.target}")
            except CatchmentError as error:
                report.problems.append(f"{feed}: replicating: {error}")
        return report

    def delete(
        self,
        *,
        object_storage_ids: Sequence[str],
        start_time: datetime,
        end_time: datetime,
        feed_ids: Sequence[str] | None = None,
        confirm: Callable[[dict[str, Deletion]], bool] = lambda plans: True,
    ) -> Deleted:
        """Remove all archives of these hours from these storages, and see to it that they stay removed.

        The current hour is left out: it would stay removed with all that is still to be fetched in it. confirm: is
        shown what would go, by storage, and decides. An unknown feed or storage is a UsageError, and nothing is
        removed.
        """
        span = _until(Span.of(start_time, end_time), Hour.of(self._clock.now()))
        if span.first is not None and span.end is not None and span.first >= span.end:
            raise UsageError(
                "only hours that have ended can be deleted, and none of this period has",
                hint="wait for the hour's end, or give an earlier start_time",
            )
        if not object_storage_ids:
            raise UsageError("no object storage is named", hint="say which with object_storage_ids")
        buckets = self._buckets(object_storage_ids)
        unknown: list[str] = []
        feeds = self._feeds(feed_ids, buckets.values(), unknown)
        if unknown:
            raise UsageError("; ".join(unknown), hint="nothing was deleted")
        everywhere = self._buckets()
        plans = {
            id: plan_delete(bucket, feeds, span, elsewhere=[other for name, other in everywhere.items() if name != id])
            for id, bucket in buckets.items()
        }
        if not any(plan.hours for plan in plans.values()) or not confirm(plans):
            return Deleted(plans, done=False)
        removed = sum(delete(buckets[id], plan.hours, clock=self._clock) for id, plan in plans.items())
        return Deleted(plans, done=True, removed=removed)

    def audit(
        self,
        *,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        feed_ids: Sequence[str] | None = None,
        object_storage_ids: Sequence[str] | None = None,
        read: bool = True,
        fix: bool = False,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Audit:
        """Find hours that are unmerged, unreplicated, missing or corrupt, and mend what can be mended if asked to.

        Hours that ended in the last ten minutes, or have not ended, are left alone. A declared feed is expected to have
        every hour from the start, if one is given, or from the first that is there. read: False to go by listings only.
        A storage that gives no answer is a problem, and the others are seen to.
        """
        span = _until(span_over(start_time, end_time), Hour.of(self._clock.now() - SETTLING))
        buckets = self._buckets(object_storage_ids)
        problems: list[str] = []
        feeds = self._feeds(feed_ids, buckets.values(), problems)
        places: dict[str, dict[str, Place]] = {}  # by storage and feed
        for id, bucket in buckets.items():
            try:
                places[id] = {feed: Place(bucket, self._rules(id, feed, ask=fix)) for feed in feeds}
            except CatchmentError as error:  # once, and not for each feed: it may have taken a while
                problems.append(f"{id}: {error}")
        declared = {feed.id for feed in self._config.feeds}
        subjects = [
            Subject(feed, {id: by_feed[feed] for id, by_feed in places.items()}, feed in declared) for feed in feeds
        ]
        found = audit(subjects, span, self._codecs(), read=read, fix=fix, on_progress=on_progress)
        return Audit(found.hours, found.archives, found.findings, (*problems, *found.problems))

    def status(self, *, feed_ids: Sequence[str] | None = None, hours: int = 24) -> list[Status]:
        """How each feed fares, over the hours that ended last."""
        buckets = self._buckets()
        declared = {feed.id for feed in self._config.feeds}
        unknown: list[str] = []
        feeds = {feed: feed in declared for feed in self._feeds(feed_ids, buckets.values(), unknown)}
        if unknown:
            raise UsageError("; ".join(unknown))
        history = History(store_path(self._lake.workspace))
        return status(feeds, buckets, self._lake.workspace, history, self._clock.now(), back=hours)

    # -- getting data out --------------------------------------------------------------------------------------------

    def retrieve(
        self,
        target_directory: str | Path,
        *,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        feed_ids: Sequence[str] | None = None,
        collapse_feeds: bool = False,
        collapse_time: bool = False,
        no_extract: bool = False,
        fold: bool = False,
        object_storage_ids: Sequence[str] | None = None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> Retrieved:
        """Bring downloads, or archives with `no_extract`, to a directory of this machine: from the first storage, or
        from those that are named, all together.

        What cannot be had is among the result's problems, and the rest is done. What is there whole stays.
        """
        span = span_over(start_time, end_time)
        layout = Layout(
            Path(target_directory).absolute(),
            collapse_feeds=collapse_feeds,
            collapse_time=collapse_time,
            extract=not no_extract,
            fold=fold,
        )
        buckets = list(self._buckets(object_storage_ids or [self._config.object_storage[0].id]).values())
        unknown: list[str] = []
        feeds = self._feeds(feed_ids, buckets, unknown)
        done = retrieve(buckets, feeds, span, layout, on_progress=on_progress)
        flaws = tuple(Flaw("", None, "feed_ids", reason) for reason in unknown)
        return Retrieved(done.target, done.hours, done.kept, done.files, done.bytes, (*flaws, *done.problems))

    def read(
        self,
        feed: str,
        start: datetime | None = None,
        end: datetime | None = None,
        *,
        fold: bool = False,
        object_storage_ids: Sequence[str] | None = None,
        on_flaw: OnFlaw = refuse,
    ) -> Iterator[Reading]:
        """The downloads of a feed from start up to and not including end, in the order of time, each once, as
        (time, hash, body).

        fold: leave out a body that is equal to the one before it in its hour. Damage is a DamagedArchive, after all
        that is good in that hour; with an `on_flaw` of your own it is told to that instead.
        """
        buckets = list(self._buckets(object_storage_ids or [self._config.object_storage[0].id]).values())
        unknown: list[str] = []
        self._feeds([feed], buckets, unknown)
        if unknown:
            raise UsageError(unknown[0])
        return read_span(buckets, feed, start, end, fold=fold, on_flaw=on_flaw)

    # -- what all of them need ---------------------------------------------------------------------------------------

    def _buckets(self, ids: Sequence[str] | None = None) -> dict[str, Bucket]:
        wanted = [storage.id for storage in self._config.object_storage] if ids is None else ids
        return {id: self._lake.storage(id) for id in wanted}

    def _feeds(self, ids: Sequence[str] | None, buckets: Iterable[Bucket], unknown: list[str]) -> list[str]:
        """The feeds with these ids; all that are declared or that a storage has, if none are named. What there is no
        feed for goes to `unknown`, with a next step.
        """
        declared = [feed.id for feed in self._config.feeds]
        if ids is not None and set(ids) <= set(declared):
            return list(dict.fromkeys(ids))
        stored: set[str] = set()
        for bucket in buckets:
            try:
                stored.update(feed for feed in list_feeds(bucket) if feed[0].isalnum())
            except BucketError as error:
                if not declared:
                    raise
                log.info("which feeds %s has cannot be found out: %s", bucket.name, error)
        known = list(dict.fromkeys([*declared, *sorted(stored)]))
        for id in ids or ():
            if id not in known:
                unknown.append(f"no feed has the id {id!r}; use one of: {', '.join(known) or '(there are none)'}")
        return known if ids is None else [id for id in dict.fromkeys(ids) if id in known]

    def _rules(self, id: str, feed: str, *, ask: bool = True) -> Rules:
        """How a feed is reconciled in a storage. ask: find out what the storage supports, which takes writing to it."""
        storage = next(storage for storage in self._config.object_storage if storage.id == id)
        compression = next((Compression(one.compression) for one in self._config.feeds if one.id == feed), None)
        given = compression or Compression.GZIP
        if not ask:
            return Rules(given, storage.reconciliation_algorithm)
        if id not in self._supports:
            self._supports[id] = probe(self._lake.storage(id))
        return rules(storage.reconciliation_algorithm, given, self._supports[id], place=id)

    def _settle(self, place: Place, id: str, feed: str, hour: Hour, report: Report) -> None:
        try:
            with self._lake.monitor.timed(f"{ROOT}/{feed}", "reconcile") as work:
                work.note = f"{hour.text} in {id}"
                done = settle(place.bucket, feed, hour, place.rules, self._codecs())
                work.note += ": " + "; then ".join(cycle.why for cycle in done.cycles)
        except CatchmentError as error:
            report.problems.append(f"{feed} {hour.text} in {id}: {error}")
        else:
            if done.settled:
                report.reconciled.append(f"{feed} {hour.text} in {id}")
            else:
                report.problems.append(f"{feed} {hour.text} in {id}: not settled yet; others are at work on it")

    def _codecs(self) -> Codecs:
        # Not the collector's own scratch folder, which it empties when it starts.
        return scratch(self._lake.workspace / "by-hand")

    def _cycle(self) -> Cycle:
        return Cycle(self._config, self._lake.workspace, self._buckets(), self._lake.monitor, clock=self._clock)

    def _this_hour(self) -> datetime:
        return Hour.of(self._clock.now()).start


def _until(span: Span, end: Hour) -> Span:
    return Span(span.first, end if span.end is None else min(span.end, end))

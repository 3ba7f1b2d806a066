"""Collect: poll every feed, cut the hours, and see to it that they get into every object storage.

One process, one event loop. The loop polls; downloads are stored and recorded in a small pool of threads; a worker
thread runs the cycle (archive, upload, reconcile) at each cut; a look every so often watches the disk and the clock.

`cut` is how often the cycle runs: at multiples of it since 1970, so with the usual hour at each hour's end. It archives
what was fetched before that moment. Names and folders always go by real hours: a test that sets `cut` to seconds gets
several archives an hour, which reconciling merges, and everything else is as in production.

Stopping (a signal, `POST /shutdown`, `stop`) has three steps:

1. Polling ends: requests under way are dropped, and what is being stored is stored to the end.
2. `clean` brings everything in the workspace to the storages.
3. The record of this process and its connections go.

All of it within `collector.shutdown_deadline`: what is not done then stays in the workspace, and the next start picks
it up.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from catchment.bucket.contract import Bucket
from catchment.bucket.wrap import Counting
from catchment.clock import SYSTEM, Clock
from catchment.config import Config
from catchment.errors import CatchmentError
from catchment.feeds.background import Background
from catchment.feeds.clean import Cleaned, clean
from catchment.feeds.cycle import Cycle, Report
from catchment.feeds.downloads import Downloads, owned
from catchment.feeds.fetch import Body, Fetcher
from catchment.feeds.names import ROOT
from catchment.feeds.poll import Attempt, Poller
from catchment.feeds.schedule import Cuts, Ticks, phase
from catchment.feeds.serve import monitoring, served, shutdown
from catchment.feeds.tasks import Tasks
from catchment.monitor.record import FAILED, OK, Monitor
from catchment.monitor.replica import Beating, this_replica
from catchment.units import format_duration, format_share

log = logging.getLogger(__name__)

HOUR = timedelta(hours=1)
KINDS = ("download", "archive", "upload", "reconcile")
LOOK = 0.5  # seconds between looks at disk and clock
STUCK = 30.0  # seconds without a look after which the process is not healthy
LANDERS = 8  # threads that store downloads: they mostly wait for the disk
LOOK_BACK = 2  # hours that each cut reconciles besides its own: another replica may have died half-way
LOOK_BACK_AT_START = 24
SPREAD = 10.0  # seconds over which replicas spread their reconciling
LAST_WORDS = 2.0  # seconds of the deadline that are kept for letting go in order


@dataclass(frozen=True)
class Ended:
    """How a collector ended."""

    why: str
    clean: bool  # whether nothing is confined to the workspace
    problems: tuple[str, ...] = ()


def used_share(path: Path) -> float:
    """How full the disk below a path is, for a user who is not root, as `df` says it."""
    found = os.statvfs(path)
    used = found.f_blocks - found.f_bfree
    return used / max(1, used + found.f_bavail)


class Collector:
    """One replica. `run` it in an event loop, or `process.collect` with it in a process of its own."""

    def __init__(
        self,
        config: Config,
        workspace: Path,
        buckets: Mapping[str, Bucket],
        monitor: Monitor,
        *,
        clock: Clock = SYSTEM,
        cut: timedelta = HOUR,
        tasks: Tasks | None = None,
        monitoring_port: int | None = None,
        reload: Callable[[], Config] | None = None,
        disk: Callable[[Path], float] = used_share,
        chance: Callable[[], float] = random.random,
        report: Callable[[Attempt], None] = lambda attempt: None,
        sync: Callable[[int], None] = os.fsync,
    ) -> None:
        """`buckets` has one for each declared storage. `monitoring_port`: None means no server. `reload` gives the
        configuration anew. `report` is told of every attempt, in one of several threads. `sync` brings a download's
        open file to disk.
        """
        self.config = config
        self.ports: dict[str, int] = {}  # of the servers, by name, while it runs
        self._workspace, self._buckets, self._monitor, self.clock = workspace, buckets, monitor, clock
        self._cut, self._monitoring_port, self._load = cut, monitoring_port, reload
        self._disk, self._chance, self._also_report = disk, chance, report
        self._downloads = Downloads(workspace, sync=sync)
        self._stop_asked = threading.Event()
        self._cycle = Cycle(
            config, workspace, buckets, monitor, clock=clock, tasks=tasks, stopping=self._stop_asked.is_set
        )
        self._worker = Background("cycle")
        self._recorder = Background("record")
        self._pool = ThreadPoolExecutor(LANDERS, thread_name_prefix="landing")
        self._fetcher = Fetcher(per_host=config.collector.per_host, clock=clock)
        self._polling: dict[str, tuple[Poller, asyncio.Task[None]]] = {}
        self._paused = ""  # why, while it is
        self._seen = clock.monotonic()  # when the loop last had a look
        self._why = ""
        self.stop_asked_at: float | None = None  # monotonic
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()  # something was asked of us
        self._hurry = asyncio.Event()  # asked to stop twice: leave the rest to the next start
        self._reload_asked = False

    def stop(self, why: str) -> None:
        """End in order; asked a second time, at once. From any thread, and from a signal handler."""
        if self.stop_asked_at is None:
            self.stop_asked_at = self.clock.monotonic()

        def asked() -> None:
            if self._stop_asked.is_set():
                self._hurry.set()
            self._why = self._why or why
            self._stop_asked.set()
            self._wake.set()

        self._in_loop(asked)

    def reload(self) -> None:
        """Take up the configuration anew, soon. From any thread, and from a signal handler."""

        def asked() -> None:
            self._reload_asked = True
            self._wake.set()

        self._in_loop(asked)

    def health(self) -> tuple[bool, Mapping[str, object]]:
        """Whether this process does its work, and what there is to say about it. A pause is no reason to restart it."""
        quiet = self.clock.monotonic() - self._seen
        dead = sorted(name for name, (_, task) in list(self._polling.items()) if task.done())
        status = "paused" if self._paused else "ok"
        if self._stop_asked.is_set():
            status = "stopping"
        elif quiet > STUCK or dead:
            status = "stuck"
        values: dict[str, object] = {"status": status, "feeds": len(self._polling)}
        if self._paused:
            values["paused"] = self._paused
        if dead:
            values["not_polled"] = dead
        return status in ("ok", "paused"), values

    async def run(self) -> Ended:
        """Collect until asked to stop, then clean up and end. UsageError if workspace or port is somebody else's."""
        self._loop = asyncio.get_running_loop()
        if self._stop_asked.is_set():  # asked before there was a loop
            self._wake.set()
        with ExitStack() as stack:
            stack.enter_context(owned(self._workspace))
            self._serve(stack)
            beating = Beating(
                self._buckets[self.config.state_storage.id],
                this_replica("feeds collect", workspace=str(self._workspace), clock=self.clock),
                on_failure=self._monitor.metrics.replica_failures.inc,
            )
            beats = Background("replica")
            beats.submit(beating.start)
            self._begin()
            await self._poll(self.config)
            try:
                await self._watch()
            finally:
                ended = await self._end(beats, beating)
        return ended

    # -- while it runs -----------------------------------------------------------------------------------------------

    def _serve(self, stack: ExitStack) -> None:
        if self._monitoring_port is not None:
            routes = monitoring(self._monitor.metrics.render, self.health)
            bind = self.config.monitoring.bind
            self.ports["monitoring"] = stack.enter_context(
                served("monitoring", routes, self._monitoring_port, bind=bind)
            )
        if (port := self.config.collector.shutdown_port) is not None:
            routes = shutdown(lambda: self.stop("POST /shutdown"))
            self.ports["shutdown"] = stack.enter_context(served("shutdown", routes, port))

    def _begin(self) -> None:
        for name, bucket in self._buckets.items():
            if isinstance(bucket, Counting):
                self._monitor.metrics.watch_bucket(name, bucket.counts)
        swept = self._cycle.sweep()
        left = len(self._cycle.left())
        strangers = self._downloads.strangers()
        for path in strangers:
            log.warning("%s is not a download of its folder, and is left alone", path)
        note = f"{left} files are left of an earlier process; {swept} half-written ones were removed"
        self._monitor.record(ROOT, "start", OK, note=note, numbers={"left": left, "swept": swept})
        log.info("collecting %d feeds into %s; %s", len(self.config.feeds), self._workspace, note)

    async def _poll(self, config: Config) -> None:
        """Poll these feeds from now on. One whose declaration is the same goes on undisturbed."""
        wanted = {feed.id: feed for feed in config.feeds}
        ended = [name for name, (poller, _) in self._polling.items() if wanted.get(name) != poller.feed]
        tasks = [self._polling.pop(name)[1] for name in ended]
        for task in tasks:
            task.cancel()
        if tasks:  # to their ends, so that no feed is asked twice at once
            await asyncio.wait(tasks)
        new = [(index, feed) for index, feed in enumerate(config.feeds) if feed.id not in self._polling]
        await asyncio.get_running_loop().run_in_executor(self._pool, self._declare, [feed.id for _, feed in new])
        now = self.clock.monotonic()
        for index, feed in new:
            period = feed.periodicity.total_seconds()
            poller = Poller(
                feed,
                Ticks(now + phase(index, period), period),
                self._fetcher,
                self._downloads,
                report=self._report,
                pool=self._pool,
                paused=lambda: bool(self._paused),
                clock=self.clock,
                chance=self._chance,
            )
            self._polling[feed.id] = (poller, asyncio.create_task(poller.run(), name=f"poll {feed.id}"))

    def _declare(self, feeds: Iterable[str]) -> None:
        """Have the gauges of these feeds, before anything happens to them."""
        for feed in feeds:
            for kind in KINDS:
                self._monitor.declare(f"{ROOT}/{feed}", kind)

    def _report(self, attempt: Attempt) -> None:
        """Keep what an attempt did, soon: whoever stores a download does not wait for the monitor's file as well."""
        self._recorder.submit(lambda: self._record(attempt))
        self._also_report(attempt)

    def _record(self, attempt: Attempt) -> None:
        numbers = {"late": attempt.began - attempt.due}
        for name in ("missed", "held", "paused"):
            if count := getattr(attempt, name):
                numbers[name] = count
        if isinstance(attempt.result, Body):
            numbers |= {"bytes": len(attempt.result.body), "stored": int(attempt.stored is not None)}
        if attempt.stored is not None:
            numbers["landing"] = attempt.landed - attempt.ended
        self._monitor.record(
            f"{ROOT}/{attempt.feed}",
            "download",
            FAILED if attempt.failed else OK,
            duration=attempt.ended - attempt.began,
            numbers=numbers,
            note=attempt.note,
        )
        if attempt.errors == 1:
            log.warning("feed %s: %s; tried again with growing pauses", attempt.feed, attempt.note)

    async def _watch(self) -> None:
        """Look at disk and clock until asked to stop; run the cycle when an hour ends, and at the start."""
        cuts = Cuts(self._cut)
        look_back = LOOK_BACK_AT_START
        running: asyncio.Future[Report] | None = None
        while not self._stop_asked.is_set():
            self._seen = self.clock.monotonic()
            self._mind_the_disk()
            if running is not None and running.done():
                if (error := running.exception()) is not None:
                    log.error("a cycle failed unexpectedly, and is tried again", exc_info=error)
                well = error is None and running.result().well
                cuts.finished(self.clock.monotonic(), well=well)
                look_back = LOOK_BACK if well else look_back  # what could not be looked at is still to be
                running = None
            if running is None:
                cut = cuts.due(self.clock.now(), self.clock.monotonic(), self._under_way)
                if cut is not None:
                    running = self._run_cycle(cut, look_back)
            if self._reload_asked:
                self._reload_asked = False
                await self._reload()
            self._wake.clear()
            if not self._stop_asked.is_set() and not self._reload_asked:
                try:
                    async with asyncio.timeout(min(LOOK, self._cut.total_seconds() / 4)):
                        await self._wake.wait()
                except TimeoutError:
                    pass

    def _mind_the_disk(self) -> None:
        most = self.config.collector.disk_high_water
        try:
            share = self._disk(self._workspace)
        except OSError as error:
            log.warning("how full %s is cannot be found out: %s", self._workspace, error)
            return
        if share > most and not self._paused:
            self._paused = (
                f"the disk of {self._workspace} is {share:.1%} full, over disk_high_water ({format_share(most)}); "
                "polling pauses until there is space"
            )
            log.error("%s", self._paused)
            self._monitor.record(ROOT, "pause", FAILED, note=self._paused)
        elif share <= most and self._paused:
            self._paused = ""
            note = f"the disk of {self._workspace} is {share:.1%} full; polling goes on"
            log.warning("%s", note)
            self._monitor.record(ROOT, "pause", OK, note=note)

    async def _reload(self) -> None:
        if self._load is None:
            log.warning("asked to reload, and there is no configuration to load anew")
            return
        try:
            loaded = await asyncio.wrap_future(Background("reload").submit(self._load))
        except (CatchmentError, OSError) as error:
            log.error("the configuration stays as it was, since the new one is bad: %s", error)
            self._monitor.record(ROOT, "reload", FAILED, note=f"kept the old configuration: {error}")
            return
        fixed = ("object_storage", "workspace", "monitoring")
        kept = [name for name in fixed if getattr(loaded, name) != getattr(self.config, name)]
        if loaded.collector.shutdown_port != self.config.collector.shutdown_port:
            kept.append("collector.shutdown_port")
        config = loaded.model_copy(update={name: getattr(self.config, name) for name in fixed})
        note = f"{len(config.feeds)} feeds" + (f"; restart to change {', '.join(kept)}" if kept else "")
        self.config = self._cycle.config = config
        self._fetcher.limit(config.collector.per_host)
        await self._poll(config)
        log.warning("took up the configuration anew: %s", note)
        self._monitor.record(ROOT, "reload", OK, note=note)

    def _under_way(self, cut: datetime) -> bool:
        """Whether a request is under way whose download belongs before the cut."""
        return any(poller.sent is not None and poller.sent < cut for poller, _ in self._polling.values())

    def _run_cycle(self, cut: datetime, look_back: int) -> asyncio.Future[Report]:
        def pause() -> None:
            self._stop_asked.wait(self._chance() * min(SPREAD, self._cut.total_seconds() / 20))

        return asyncio.wrap_future(
            self._worker.submit(lambda: self._cycle.run_once(cut, look_back=look_back, pause=pause))
        )

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _end(self, beats: Background, beating: Beating) -> Ended:
        limit = self.config.collector.shutdown_deadline.total_seconds()
        began = self.stop_asked_at = self.clock.monotonic() if self.stop_asked_at is None else self.stop_asked_at
        end = began + limit - min(1.0, limit / 10)
        why = self._why or "an error"
        log.warning(
            "stopping (%s); at most %s are left for cleaning up", why, format_duration(timedelta(seconds=limit))
        )
        self._stop_asked.set()

        def left(reserve: float = 0.0) -> float:
            return max(0.0, end - min(reserve, limit / 4) - self.clock.monotonic())

        # 1 polling ends
        tasks = [task for _, task in self._polling.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=left(LAST_WORDS))
        recorded = asyncio.wrap_future(self._recorder.submit(lambda: None))  # and with it all before it
        await asyncio.wait([recorded], timeout=left(LAST_WORDS))
        # 2 everything goes to the storages. The worker takes it up after what it is at.
        cleaning = asyncio.wrap_future(self._worker.submit(self._clean))
        hurry = asyncio.create_task(self._hurry.wait())
        either: list[asyncio.Future[Any]] = [cleaning, hurry]
        await asyncio.wait(either, timeout=left(LAST_WORDS), return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        ended = self._told(why, cleaning)
        # 3 let go
        gone: asyncio.Future[None] = asyncio.wrap_future(beats.submit(beating.stop))
        await asyncio.wait([gone, asyncio.create_task(self._fetcher.aclose())], timeout=left())
        self._pool.shutdown(wait=False, cancel_futures=True)
        return ended

    def _clean(self) -> Cleaned:
        self._cycle.stopping = self._hurry.is_set  # so far it was told to stop; this is to be done
        return clean(self._cycle)

    def _told(self, why: str, cleaning: asyncio.Future[Cleaned]) -> Ended:
        if not cleaning.done():
            cleaning.cancel()
            problem = "there was no time to bring everything to the storages; the next start picks it up"
            ended = Ended(why, clean=False, problems=(problem,))
        elif (error := cleaning.exception()) is not None:
            ended = Ended(why, clean=False, problems=(f"cleaning failed: {error!r}",))
        else:
            done = cleaning.result()
            left = (f"{len(done.left)} files are left in the workspace; the next start picks them up",)
            ended = Ended(why, clean=done.clean, problems=(*done.report.problems, *(left if done.left else ())))
        for problem in ended.problems:
            log.error("%s", problem)
        self._monitor.record(ROOT, "stop", OK if ended.clean else FAILED, note="; ".join((why, *ended.problems)))
        return ended

    def _in_loop(self, do: Callable[[], None]) -> None:
        if self._loop is None:
            do()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(do)

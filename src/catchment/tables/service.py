"""The loop around publisher and subscriber: look, publish, apply, several tables (and batches) at a time.

`Round.run` is the task; nothing that is remembered from one round to the next matters but for requests that it saves.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from catchment.bucket.contract import Bucket
from catchment.clock import SYSTEM, Clock
from catchment.config.tables import Tables
from catchment.errors import CatchmentError
from catchment.tables.apply import Applier, Done
from catchment.tables.claim import Stage
from catchment.tables.landing import Landed, Landing
from catchment.tables.names import Batch, Table
from catchment.tables.settings import Configs, Settings
from catchment.tables.work import Engine

log = logging.getLogger(__name__)

TICK = 2.0  # seconds between two looks at a lake where nothing happens
LONGEST = 60.0  # between two looks at one that does not answer


@dataclass
class Progress:
    """What was done so far, and what stands in the way as of the last round."""

    applied: list[Done] = field(default_factory=list)
    late: list[Done] = field(default_factory=list)
    rounds: int = 0
    failures: int = 0  # rounds that the bucket or the engine ended
    stopped: dict[str, str] = field(default_factory=dict)  # table or batch → why, and what to do
    waiting: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Service:
    """Applies batches until it is told to stop. `stop` may be called from any thread or signal handler."""

    def __init__(
        self,
        bucket: Bucket,
        config: Tables,
        engine: Engine,
        *,
        owner: str,
        gone: Callable[[str], bool],
        only: frozenset[Table] | None = None,
        clock: Clock = SYSTEM,
        tick: float = TICK,
        on_step: Callable[[str], object] = lambda name: None,
        on_progress: Callable[[Progress], object] = lambda progress: None,
    ) -> None:
        """only: these tables; None: all."""
        self._bucket, self._config, self._engine, self._only = bucket, config, engine, only
        self._owner, self._gone, self._clock, self._tick = owner, gone, clock, tick
        self._on_step, self._on_progress = on_step, on_progress
        self._landing = Landing(bucket, config)
        self._over: set[str] = set()  # records of unordered batches that are settled
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._changed: set[Table | None] = set()  # of which something was said; None: of any
        self.progress = Progress()

    def stop(self) -> None:
        """Finish the batches that are being applied, and begin no more."""
        self._stopping.set()
        self._woken.set()

    def notify(self, key: str | None) -> None:
        """Something about this key was said to have changed: look at its table at once. None: at all. From any thread.

        Only a hint: what nobody says anything about is found by the next look at everything.
        """
        self._changed.add(None if key is None else self._landing.table_of(key))
        self._woken.set()

    def run(self, *, once: bool = False) -> Progress:
        """Rounds until stopped; with `once`, until there is nothing more to do at once.

        CatchmentError if the bucket or Spark fail in a run with `once`; otherwise it is tried again.
        """
        pause = self._tick
        only: frozenset[Table] | None = None  # at first, and when nobody said anything, all
        with ThreadPoolExecutor(self._config.parallelism, thread_name_prefix="tables") as threads:
            while not self._stopping.is_set():
                try:
                    more = self._round(threads, only)
                except CatchmentError as error:
                    if once:
                        raise
                    self.progress.failures += 1
                    log.warning("%s", error)
                    pause = min(LONGEST, pause * 2)
                    self._stopping.wait(pause)
                    continue
                pause = self._tick
                self.progress.rounds += 1
                self._on_progress(self.progress)
                if more:
                    continue
                if once:
                    break
                only = self._wait()
        return self.progress

    def _wait(self) -> frozenset[Table] | None:
        """Until somebody says that something changed, or for a while: what to look at then."""
        said = self._woken.wait(self._tick)
        self._woken.clear()  # before what was said is taken: what comes now is said again
        changed = set(self._changed)
        self._changed -= changed
        if not said or None in changed or self._stopping.is_set():
            return None
        return frozenset(table for table in changed if table is not None)

    def _round(self, threads: ThreadPoolExecutor, only: frozenset[Table] | None) -> bool:
        """Everything that is due now, once. Whether there may be more at once."""
        before = len(self.progress.applied) + len(self.progress.late)
        listing = self._landing.look(only)
        configs = Configs(self._bucket, listing.configs)
        applier = self._applier(configs)
        if only is None:
            self.progress.problems = list(listing.problems)
            self.progress.stopped, self.progress.waiting = {}, {}
        under_way: list[tuple[str, Future[Done]]] = []
        for table, landed in sorted(listing.tables.items()):
            if self._only is not None and table not in self._only:
                continue
            try:
                under_way += self._table(threads, applier, configs, landed)
            except CatchmentError as error:
                self.progress.problems.append(f"{table}: {error}")
        more = [self._take(name, one) for name, one in under_way]
        # Something may have landed while a batch was being applied.
        return any(more) or len(self.progress.applied) + len(self.progress.late) > before

    def _table(
        self, threads: ThreadPoolExecutor, applier: Applier, configs: Configs, landed: Landed
    ) -> Iterator[tuple[str, Future[Done]]]:
        item = self._config.item(str(landed.table))
        for path, entry in sorted(landed.closed.items()):
            known = self._landing.publication(entry, self._clock.now())
            if known is None:
                continue
            batch = Batch(landed.table, path, known)
            if configs.ordered(landed.table, path, item, base=landed.base):
                if batch.claim not in landed.claims and applier.publish(batch):
                    landed.pointers.append(path)
            elif batch.claim not in self._over:
                yield str(batch), threads.submit(self._unordered, applier, landed, batch)
        applier.wake(landed)
        if landed.pointers or landed.lock:
            yield str(landed.table), threads.submit(self._line, applier, landed)

    def _line(self, applier: Applier, landed: Landed) -> Done:
        """One batch after the other, as long as the line moves."""
        while True:
            done = applier.ordered(landed)
            self._note(done)
            if not done.again or self._stopping.is_set():
                return done

    def _unordered(self, applier: Applier, landed: Landed, batch: Batch) -> Done:
        done = applier.unordered(landed, batch)
        self._note(done)
        if done == Done() or done.stage is Stage.APPLIED:
            self._over.add(batch.claim)
        return done

    def _note(self, done: Done) -> None:
        if done.stage is Stage.APPLIED:
            self.progress.applied.append(done)
        elif done.stage is Stage.LATE:
            self.progress.late.append(done)
        if done.stage is not None:
            self._on_progress(self.progress)

    def _take(self, name: str, one: Future[Done]) -> bool:
        done = one.result()
        if done.stopped:
            self.progress.stopped[name] = done.stopped
        if done.waiting:
            self.progress.waiting[name] = done.waiting
        return done.again

    def _applier(self, configs: Configs) -> Applier:
        def settings(table: Table, path: str, base: str) -> Settings:
            return configs.settings(table, path, base, self._config.item(str(table)))

        return Applier(
            self._bucket,
            self._config,
            self._engine,
            settings,
            owner=self._owner,
            gone=self._gone,
            clock=self._clock,
            on_step=self._on_step,
        )

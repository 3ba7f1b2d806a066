"""`lake.tables`: one method for each of `catchment tables …`.

`tables` narrow down what is meant: names as `dataset/table`. None means all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from catchment.bucket.probe import must_compare_and_set
from catchment.clock import SYSTEM, Clock, isoformat
from catchment.errors import UsageError
from catchment.lake.listen import listening
from catchment.lake.signals import stopped_by_signals
from catchment.monitor.owners import Owners
from catchment.monitor.replica import INTERVAL, Beating, this_replica
from catchment.spark.uris import uri
from catchment.tables import control
from catchment.tables.history import Commit, history
from catchment.tables.landing import Landed, Landing
from catchment.tables.names import Batch, Table
from catchment.tables.service import TICK, Progress, Service
from catchment.tables.status import Status, status

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from catchment.lake import Lake
    from catchment.tables.delta import DeltaEngine

TICK_LISTENING = 60.0  # seconds between two looks at everything, where events tell what has changed


@dataclass(frozen=True)
class Acted:
    """What a person had done to a batch."""

    table: str
    batch: str
    what: str  # tried again, left out, goes on
    version: int | None = None  # of the table that keeps it out


class Tables:
    """The tables of a lake."""

    def __init__(self, lake: Lake, *, clock: Clock = SYSTEM) -> None:
        self._lake, self._clock = lake, clock

    def apply(
        self,
        *,
        tables: Sequence[str] | None = None,
        once: bool = False,
        listen: str | None = None,
        every: float | None = None,
        beat: float = INTERVAL,
        on_progress: Callable[[Progress], object] = lambda progress: None,
        on_step: Callable[[str], object] = lambda name: None,
        on_ready: Callable[[Service], object] = lambda service: None,
    ) -> Progress:
        """Apply batches as they close, until stopped; with `once`, all that there is now.

        listen: take bucket events at this address (host:port), as S3 sends them to a web hook. every: seconds between
        two looks at everything; 2, or 60 with `listen`. In the main thread SIGTERM and SIGINT stop it: what is being
        applied is finished. Any number of processes may do this at once.
        """
        bucket = self._lake.bucket
        must_compare_and_set(bucket, "locks rest on them")
        replica = this_replica("tables apply", workspace=str(self._lake.workspace), interval=beat, clock=self._clock)
        with ExitStack() as stack:
            engine = self._engine()
            stack.enter_context(Beating(bucket, replica))
            service = Service(
                bucket,
                self._lake.config.tables,
                engine,
                owner=replica.id,
                gone=Owners(bucket, clock=self._clock).gone,
                only=self._only(tables),
                clock=self._clock,
                tick=every or (TICK if listen is None else TICK_LISTENING),
                on_step=on_step,
                on_progress=on_progress,
            )
            if listen is not None:
                storage = self._lake.config.state_storage
                stack.enter_context(listening(listen, storage.bucket, storage.prefix, service.notify))
            stack.enter_context(stopped_by_signals(service.stop))
            on_ready(service)
            return service.run(once=once)

    def status(self, *, tables: Sequence[str] | None = None) -> Status:
        """What waits, who is at work, what was applied last, and why a line stands. Starts no JVM."""
        gone = Owners(self._lake.bucket, clock=self._clock).gone
        return status(self._lake.bucket, self._lake.config.tables, gone, only=self._only(tables))

    def retry(self, table: str, *, batch: str | None = None) -> list[Acted]:
        """Try again what failed: the batch at which an ordered line stands, or unordered batches."""
        bucket, landed = self._lake.bucket, self._landed(table)
        now = isoformat(self._clock.now())
        stands = control.failed(bucket, landed.table)
        if stands is not None and batch in (None, stands.path):
            return [Acted(table, control.retry(bucket, landed.table, now).path, "is tried again")]
        done = []
        for one in self._batches(landed, batch):
            try:
                done.append(Acted(table, control.retry_batch(bucket, one, now).path, "is tried again"))
            except UsageError:
                if batch is not None:
                    raise
        if not done:
            raise UsageError(f"nothing of {table} has failed", hint="look at it with: catchment tables status")
        return done

    def skip(self, table: str, *, batch: str | None = None) -> Acted:
        """Leave a batch out for good: the one at which the line stands, or the one that is named."""
        bucket, landed = self._lake.bucket, self._landed(table)
        stands = control.failed(bucket, landed.table)
        if batch is None and stands is None:
            raise UsageError(f"the line of {table} does not stand", hint="name the batch to leave out with --batch")
        if stands is not None and batch in (None, stands.path):
            found = stands
        else:
            [found] = self._batches(landed, batch)
        version = control.skip(bucket, self._engine(), landed, found, isoformat(self._clock.now()))
        return Acted(table, found.path, "is left out", version)

    def resume(self, table: str) -> Acted:
        """Go on after the lock was removed by hand, or with the next batch where each is validated."""
        control.resume(self._lake.bucket, self._landed(table).table)
        return Acted(table, "", "goes on")

    def history(self, table: str, *, limit: int | None = None) -> Iterator[Commit]:
        """Which batch made which version of the table, the newest first. Starts no JVM."""
        return islice(history(self._lake.bucket, _parsed(table)), limit)

    def read(self, table: str) -> DataFrame:
        """The table as it is now."""
        place = uri(self._lake.config.state_storage, _parsed(table).warehouse)
        return self._lake.spark.read.format("delta").load(place)

    def _engine(self) -> DeltaEngine:
        from catchment.tables.delta import DeltaEngine

        return DeltaEngine(self._lake.spark, self._lake.config.state_storage, bucket=self._lake.bucket)

    def _only(self, tables: Sequence[str] | None) -> frozenset[Table] | None:
        return None if tables is None else frozenset(_parsed(one) for one in tables)

    def _landed(self, table: str) -> Landed:
        found = Landing(self._lake.bucket, self._lake.config.tables).look().tables
        wanted = _parsed(table)
        if wanted not in found:
            raise UsageError(
                f"the lake has no table {table}", hint=f"use one of: {', '.join(map(str, sorted(found))) or 'none'}"
            )
        return found[wanted]

    def _batches(self, landed: Landed, path: str | None) -> list[Batch]:
        """The batches of a table as they are published now, or the one that is named."""
        if path is not None and path not in landed.closed:
            raise UsageError(f"{landed.table} has no closed batch {path!r}", hint="name its folder below the table's")
        landing = Landing(self._lake.bucket, self._lake.config.tables)
        now = self._clock.now()
        found = []
        for one in [path] if path is not None else sorted(landed.closed):
            known = landing.publication(landed.closed[one], now)
            found += [Batch(landed.table, one, known)] if known is not None else []
        return found


def _parsed(table: str) -> Table:
    try:
        return Table.parse(table)
    except ValueError as error:
        raise UsageError(str(error), hint="as in sales/orders") from error

"""A lake: what one configuration declares, wired. The public API; every command is one call of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from catchment.bucket.open import open_bucket
from catchment.bucket.wrap import Counting
from catchment.config import Config, load
from catchment.errors import UsageError
from catchment.lake.check import Finding, check
from catchment.lake.decoders import reachable, ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catchment.lake.feeds import Feeds
    from catchment.lake.tables import Tables
    from catchment.lake.topics import Topics
    from catchment.monitor.record import Monitor

__all__ = ["Finding", "Lake"]


class Lake:
    """Opens what it is asked for when it is first asked. Use it in a `with`, or close it."""

    def __init__(
        self,
        config: Config,
        *,
        workspace: Path | None = None,
        reload: Callable[[], Config] | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        """`reload` gives the configuration anew, for processes that run long. `spark` is a session of the caller's own,
        which stays as it is when the lake is closed; None: one is started when it is needed."""
        self.config = config
        self.reload = reload
        self.workspace = workspace or config.workspace
        self._buckets: dict[str, Counting] = {}
        self._lock = threading.Lock()
        self._given = spark
        self._spark: SparkSession | None = None
        reachable(config)

    @classmethod
    def open(cls, source: str | Path | None = None, *, workspace: str | Path | None = None) -> Lake:
        """The lake of the configuration at this path or https:// URL; None means ./catchment.yaml."""
        place = Path(workspace).absolute() if workspace else None
        named = None if source is None else str(source)
        config = load(named)
        if named is not None and "://" not in named:
            reachable(config, Path(named).expanduser().absolute().parent)
        return cls(config, workspace=place, reload=lambda: load(named))

    @property
    def bucket(self) -> Counting:
        """Where topics, tables, pipelines and `_catchment/` live."""
        return self.storage(self.config.state_storage.id)

    def storage(self, id: str) -> Counting:
        """The bucket of the object storage with this id. UsageError if there is none."""
        declared = self.config.storage(id)
        if declared is None:
            known = ", ".join(storage.id for storage in self.config.object_storage)
            raise UsageError(f"no object storage has the id {id!r}", hint=f"use one of: {known}")
        with self._lock:
            if id not in self._buckets:
                self._buckets[id] = open_bucket(declared)
            return self._buckets[id]

    @cached_property
    def monitor(self) -> Monitor:
        """What happened, kept in the workspace's logs/."""
        from catchment.monitor.metrics import Metrics
        from catchment.monitor.record import Monitor
        from catchment.monitor.store import Store, store_path

        return Monitor(Store(store_path(self.workspace), keep=self.config.monitoring.keep), Metrics())

    @cached_property
    def feeds(self) -> Feeds:
        """HTTP feeds: collecting them, and reading what was collected."""
        from catchment.lake.feeds import Feeds

        return Feeds(self)

    @cached_property
    def tables(self) -> Tables:
        """Delta tables: applying batches to them, and reading them."""
        from catchment.lake.tables import Tables

        return Tables(self)

    @cached_property
    def topics(self) -> Topics:
        """Kafka topics: exporting them, and reading what was exported."""
        from catchment.lake.topics import Topics

        return Topics(self)

    @property
    def spark(self) -> SparkSession:
        """The lake's Spark session, started when first asked for. SetupError if PySpark, Java or a jar is missing."""
        from catchment.spark.session import session
        from catchment.spark.settings import S3Access

        with self._lock:
            if self._spark is None:
                settings, buckets = self.config.spark, S3Access.of(self.config.object_storage)
                self._spark = self._given or session(settings.master, settings.conf, buckets)
                from catchment.feeds.source import register  # after `session`, which says so if PySpark is missing

                register(self._spark, self.config)
                ship(self._spark, self.config)
            return self._spark

    def check(self, *, spark: bool = True) -> list[Finding]:
        """Whether everything that the configuration names is there and can do what is needed of it."""
        return check(self.config, self.workspace, spark=spark)

    def close(self) -> None:
        """Let go of connections, files and Spark. Calling it twice is fine."""
        with self._lock:
            if self._spark is not None and self._given is None:
                self._spark.stop()
            self._spark = None
            for bucket in self._buckets.values():
                bucket.close()
            self._buckets.clear()
        with suppress(KeyError):
            self.__dict__.pop("monitor").close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

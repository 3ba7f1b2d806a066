"""Batches in a local directory, and what applies them, for tests of the Delta engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from catchment.bucket.contract import Bucket
from catchment.bucket.open import open_bucket
from catchment.config.storage import Storage
from catchment.tables.delta import DeltaEngine
from catchment.tables.names import Batch, Publication, Table
from catchment.tables.partition import columns_of
from catchment.tables.settings import Disposition, Load, Query, Read, Settings
from catchment.tables.work import Applied, DataFile, Job

ORDERS = Table("sales", "orders")
BASE = ORDERS.prefix


def load(
    disposition: Disposition = Disposition.APPEND,
    *,
    by: tuple[str, ...] = (),
    partition: Mapping[str, str] | None = None,
) -> Load:
    return Load(disposition, by, partition or {})


def query(statement: str, *views: str) -> Query:
    return Query(views, statement, f"{BASE}_config/change.sql")


@dataclass
class Lake:
    """One lake, and an engine on it."""

    spark: SparkSession
    storage: Storage
    bucket: Bucket
    engine: DeltaEngine
    published: Any = field(default_factory=count)

    @classmethod
    def of(cls, spark: SparkSession, storage: Storage) -> Lake:
        bucket = open_bucket(storage)
        return cls(spark, storage, bucket, DeltaEngine(spark, storage, bucket=bucket))

    @classmethod
    def at(cls, spark: SparkSession, folder: Path) -> Lake:
        return cls.of(spark, Storage(id="main", path=folder / "lake"))

    def job(
        self,
        path: str,
        files: Mapping[str, bytes | str],
        do: Load | Query | None = None,
        *,
        format: str = "json",
        options: Mapping[str, str] | None = None,
        schema: str | None = None,
        evolution: Any = "fail",
        zero: bool = False,
    ) -> Job:
        """A batch that has landed."""
        listed = []
        for name, body in files.items():
            key = f"{BASE}{path}/{name}"
            data = body.encode() if isinstance(body, str) else body
            stat = self.bucket.put(key, data)
            listed.append(DataFile(key, stat.etag, stat.size))
        publication = Publication(f"p{next(self.published)}", "2026-11-15T00:00:00Z")
        settings = Settings(Read(format, options or {}, schema), do or load(), columns_of(path), evolution, zero, ())
        return Job(Batch(ORDERS, path, publication), tuple(listed), settings, BASE)

    def apply(self, path: str, files: Mapping[str, Any], do: Load | Query | None = None, **how: Any) -> Applied:
        return self.engine.apply(self.job(path, files, do, **how))

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """The table, sorted."""
        found = self.spark.newSession().read.format("delta").load(self.engine._uri(ORDERS.warehouse))
        return sorted((tuple(row) for row in found.select(*columns or ("*",)).collect()), key=repr)

    def versions(self) -> int:
        return len(list(self.engine.history(ORDERS)))


def lines(*rows: Mapping[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)

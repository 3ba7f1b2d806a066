"""Batches applied to a Delta table against bare Delta writes of the same files in the same session.

append, MERGE      seconds of a batch against a bare append (MERGE) of the same file; bucket requests of a batch
1 000 in order     the last hundred against the first hundred
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from catchment.bucket.local import LocalBucket
from catchment.bucket.wrap import Counting
from catchment.config.storage import Storage
from catchment.config.tables import Tables
from catchment.spark.session import session
from catchment.tables.delta import DeltaEngine
from catchment.tables.names import Table
from catchment.tables.service import Service

BATCHES = 12
WARM = 4
ROWS = 2_000
MANY = 1_000
MERGE = """MERGE INTO {dest_dataset}.{dest_table} AS t USING batch AS b ON t.id = b.id
WHEN MATCHED THEN UPDATE SET t.amount = b.amount WHEN NOT MATCHED THEN INSERT *"""
LOAD = {"format": "csv", "options": {"header": True}, "schema": "id BIGINT, amount DOUBLE, note STRING"}


def main() -> None:
    spark = session("local[2]", app="bench-tables", conf={"spark.ui.enabled": "false"})
    try:
        for name in ("append", "MERGE"):
            with _lake(spark, merge=name == "MERGE") as lake:
                lake.compare(name)
        with _lake(spark, merge=False) as lake:
            lake.many()
    finally:
        spark.stop()


@contextmanager
def _lake(spark: SparkSession, *, merge: bool) -> Iterator[_Lake]:
    folder = Path(tempfile.mkdtemp())
    try:
        yield _Lake(spark, folder, merge=merge)
    finally:
        shutil.rmtree(folder)


class _Lake:
    def __init__(self, spark: SparkSession, folder: Path, *, merge: bool) -> None:
        self.spark, self.folder, self.merge = spark, folder, merge
        (folder / "lake").mkdir()
        self.bucket = Counting(LocalBucket(folder / "lake"))
        self.table = Table("sales", "orders")
        self.config = Tables.model_validate({"order_per_table": True, "allow_zero_rows": True})
        storage = Storage.model_validate({"id": "main", "path": str(folder / "lake")})
        self.engine = DeltaEngine(spark, storage, bucket=self.bucket)
        self.put("_config/load.json", json.dumps(LOAD))
        if merge:
            self.put("merge/_config/external.json", json.dumps(LOAD))
            self.put("merge/_config/merge.sql", MERGE)

    def put(self, name: str, text: str) -> None:
        self.bucket.put(f"{self.table.prefix}{name}", text.encode())

    def land(self, path: str, number: int) -> Path:
        rows = "\n".join(f"{number * ROWS + at},{at}.5,note {at}" for at in range(ROWS))
        self.put(f"{path}/part.csv", f"id,amount,note\n{rows}")
        self.put(f"{path}/_SUCCESS", "")
        return self.folder / "lake" / f"{self.table.prefix}{path}/part.csv"

    def service(self) -> Service:
        return Service(self.bucket, self.config, self.engine, owner="bench", gone=lambda owner: False)

    def compare(self, name: str) -> None:
        """Turn about: a batch by Catchment, the same file by Spark alone into a table of its own."""
        own = str(self.folder / "own")
        service = self.service()
        ours: list[float] = []
        bare: list[float] = []
        requests: list[int] = []
        for number in range(WARM + BATCHES):
            path = f"{'merge' if self.merge and number else 'append'}/{number:04d}"
            file = self.land(path, number)
            before, started = self.bucket.counts.total, time.perf_counter()
            done = service.run(once=True)
            ours.append(time.perf_counter() - started)
            requests.append(self.bucket.counts.total - before)
            assert not done.stopped, done.stopped
            started = time.perf_counter()
            self.alone(own, file, merge=self.merge and number > 0)
            bare.append(time.perf_counter() - started)
        one, other = median(ours[WARM:]), median(bare[WARM:])
        print(f"{name} of {ROWS:,} rows: {one / other:.2f}x a bare one  ({one:.3f} s against {other:.3f} s)")
        print(f"bucket requests of a batch, looking included: {median(requests[WARM:]):.0f}", flush=True)

    def alone(self, own: str, file: Path, *, merge: bool) -> None:
        rows = self.spark.read.schema(str(LOAD["schema"])).option("header", True).csv(str(file))
        if not merge:
            rows.write.format("delta").mode("append").save(own)
            return
        rows.createOrReplaceTempView("batch")
        self.spark.sql(MERGE.replace("{dest_dataset}.{dest_table}", f"delta.`{own}`")).collect()

    def many(self) -> None:
        """A thousand small batches in one line."""
        for number in range(MANY):
            self.put(f"append/{number:04d}/part.csv", f"id,amount,note\n{number},1.5,x")
            self.put(f"append/{number:04d}/_SUCCESS", "")
        ends: list[float] = []
        service = Service(
            self.bucket,
            self.config,
            self.engine,
            owner="bench",
            gone=lambda owner: False,
            on_step=lambda name: ends.append(time.perf_counter()) if name == "free" else None,
        )
        done = service.run(once=True)
        assert len(done.applied) == MANY
        first, last = ends[109] - ends[9], ends[-1] - ends[-101]  # without the very first, which warm up
        seconds = f"({last:.1f} s, {first:.1f} s)"
        print(f"{MANY:,} batches in order: the last hundred take {last / first:.2f}x the first  {seconds}")


if __name__ == "__main__":
    main()

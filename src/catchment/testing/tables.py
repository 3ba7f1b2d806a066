"""A table without Spark: a log of commits in the bucket, of which each version has one winner."""

from __future__ import annotations

import json

from catchment.bucket.contract import ABSENT, Bucket
from catchment.errors import Conflict
from catchment.tables.names import Batch, Table
from catchment.tables.work import Applied, BatchFailed, Job


class FakeEngine:
    """Keeps what `work.Engine` promises. `fail` are paths that cannot be applied."""

    def __init__(self, bucket: Bucket, *, fail: frozenset[str] = frozenset()) -> None:
        self._bucket, self.fail = bucket, fail

    def applied(self, batch: Batch) -> int | None:
        return self._log(batch.table).get(batch.transaction)

    def apply(self, job: Job) -> Applied:
        if job.batch.path in self.fail:
            raise BatchFailed(f"{job.batch} is bad", hint="mend it")
        return self._commit(job.batch, [file.key for file in job.files])

    def fence(self, batch: Batch) -> int:
        done = self._commit(batch, None)
        if done.already and self.rows(batch.table)[done.version or 0] is not None:
            raise BatchFailed(f"{batch} is in the table")
        assert done.version is not None
        return done.version

    def rows(self, table: Table) -> list[list[str] | None]:
        """What each version added; None: it only keeps a batch out."""
        found = []
        for entry in self._bucket.list(f"{table.warehouse}/_log/"):
            found.append(json.loads(self._bucket.get(entry.key))["rows"])
        return found

    def order(self, table: Table) -> list[str]:
        """The transactions, in the order of their versions."""
        return list(self._log(table))

    def _log(self, table: Table) -> dict[str, int]:
        found: dict[str, int] = {}
        for at, entry in enumerate(self._bucket.list(f"{table.warehouse}/_log/")):
            name = json.loads(self._bucket.get(entry.key))["transaction"]
            assert name not in found, f"{name} is in the table twice"
            found[name] = at
        return found

    def _commit(self, batch: Batch, rows: list[str] | None) -> Applied:
        while True:
            log = self._log(batch.table)
            if batch.transaction in log:
                return Applied(log[batch.transaction], already=True)
            key = f"{batch.table.warehouse}/_log/{len(log):020d}.json"
            body = json.dumps({"transaction": batch.transaction, "rows": rows}).encode()
            try:
                self._bucket.put(key, body, when=ABSENT)
            except Conflict:
                continue
            return Applied(len(log), len(rows or ()))

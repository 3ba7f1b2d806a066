"""Lines of batches in memory: landed, published and applied with an engine that needs no Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from catchment.bucket.contract import Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.config.tables import Tables
from catchment.tables.landing import Landed, Landing
from catchment.tables.names import Table
from catchment.tables.service import Progress, Service
from catchment.tables.status import Standing, status
from catchment.testing.clock import FakeClock
from catchment.testing.tables import FakeEngine

TABLE = Table("sales", "orders")
ORDERED: dict[str, Any] = {"order_per_table": True}
LOAD = b'{"format": "csv"}'


@dataclass
class Line:
    """One table, and everything that is done to it."""

    config: dict[str, Any] = field(default_factory=lambda: dict(ORDERED))
    clock: FakeClock = field(default_factory=FakeClock)
    bucket: Bucket = field(default_factory=lambda: MemoryBucket(clock=FakeClock(), versions=True))
    fail: frozenset[str] = frozenset()
    gone: Callable[[str], bool] = lambda owner: False

    def __post_init__(self) -> None:
        self.bucket.put(f"{TABLE.prefix}_config/load.json", LOAD)

    @property
    def tables(self) -> Tables:
        return Tables.model_validate(self.config)

    def land(self, path: str, *names: str) -> None:
        """Put a batch's files, then close it."""
        for name in names or ("part.csv",):
            self.bucket.put(f"{TABLE.prefix}{path}/{name}", b"1,2")
        self.bucket.put(f"{TABLE.prefix}{path}/_SUCCESS", b"")

    def apply(self, owner: str = "me", bucket: Bucket | None = None, **how: Any) -> Progress:
        there = bucket or self.bucket
        engine = FakeEngine(there, fail=self.fail)
        service = Service(there, self.tables, engine, owner=owner, gone=self.gone, clock=self.clock, **how)
        return service.run(once=True)

    @property
    def engine(self) -> FakeEngine:
        return FakeEngine(self.bucket, fail=self.fail)

    def applied(self) -> list[str]:
        """The paths in the order in which they came into the table; in brackets those that are kept out."""
        names = [one.removeprefix("catchment:").partition("@")[0] for one in self.engine.order(TABLE)]
        rows = self.engine.rows(TABLE)
        return [name if held is not None else f"({name})" for name, held in zip(names, rows, strict=True)]

    def backlog(self) -> list[str]:
        return [TABLE.parse_pointer(entry.key) for entry in self.bucket.list(TABLE.backlog)]

    def landed(self) -> Landed:
        return Landing(self.bucket, self.tables).look().tables[TABLE]

    def standing(self) -> Standing:
        [found] = status(self.bucket, self.tables, self.gone, workers=1).tables
        return found

"""The words of this room as keys: tables, batches, and the files that drive them.

    tables/<dataset>/<table>/historical/2026/11/15/00/part-0.csv
    tables/<dataset>/<table>/historical/2026/11/15/00/_SUCCESS                              the batch is closed
    tables/<dataset>/<table>/historical/2026/11/15/00/_claimed__SUCCESS_created_at_<time>…  what became of it
    tables/<dataset>/<table>/_backlog/historical/2026/11/15/00/_SUCCESS                     it waits for its turn
    tables/<dataset>/<table>/_BACKFILL                                                      wake up; or: go on
    tables/<dataset>/<table>/_lock                                                          who is at work on what
    tables/<dataset>/<table>/…/_config/                                                     how, at any level
    warehouse/<dataset>/<table>/                                                            the Delta table

Where a table's batches lie elsewhere in the bucket (`source`), all but the batches themselves is still here.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from catchment.clock import isoformat

ROOT = "tables"
WAREHOUSE = "warehouse"
SUCCESS = "_SUCCESS"
BACKFILL = "_BACKFILL"
LOCK = "_lock"
CONFIG = "_config"
BACKLOG = "_backlog"
CLAIMED = "_claimed_"
ORDERME = "ORDERME"
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)


@dataclass(frozen=True, order=True)
class Table:
    """One Delta table, and where everything about it lies."""

    dataset: str
    name: str

    def __str__(self) -> str:
        return f"{self.dataset}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> Table:
        """`sales/orders`. ValueError unless `str` of what is found is the text."""
        dataset, _, name = text.partition("/")
        if not (_PART.fullmatch(dataset) and _PART.fullmatch(name)):
            raise ValueError(f"{text[:120]!r} is not the name of a table; write it as dataset/table")
        return cls(dataset, name)

    @property
    def prefix(self) -> str:
        return f"{ROOT}/{self}/"

    @property
    def lock(self) -> str:
        return f"{self.prefix}{LOCK}"

    @property
    def wake(self) -> str:
        return f"{self.prefix}{BACKFILL}"

    @property
    def backlog(self) -> str:
        return f"{self.prefix}{BACKLOG}/"

    @property
    def warehouse(self) -> str:
        """Without a slash at the end."""
        return f"{WAREHOUSE}/{self}"

    def pointer(self, path: str) -> str:
        """In the backlog."""
        return f"{self.backlog}{path}/{SUCCESS}" if path else f"{self.backlog}{SUCCESS}"

    def parse_pointer(self, key: str) -> str:
        """The path of the batch that a pointer is for. ValueError if it is no pointer."""
        path = key.removeprefix(self.backlog).removesuffix(SUCCESS).rstrip("/")
        if self.pointer(path) != key:
            raise ValueError(f"{key} is no pointer to a batch")
        return path

    def claim(self, path: str, publication: Publication) -> str:
        """The record of one publication of one batch."""
        folder = f"{self.prefix}{path}/" if path else self.prefix
        return f"{folder}{CLAIMED}{SUCCESS}_created_at_{publication.stamp}"

    def consent(self, publication: Publication) -> str:
        """The record of one `_BACKFILL` that was used up."""
        return f"{self.prefix}{CLAIMED}{BACKFILL}_created_at_{publication.stamp}"


@dataclass(frozen=True)
class Publication:
    """One putting of a `_SUCCESS` (or a `_BACKFILL`): putting it again, equal or not, is another one."""

    id: str  # the version's id, or the time of modification where the store keeps no versions
    at: str  # when, by the store's clock, for people

    @classmethod
    def of(cls, version: str | None, modified: datetime) -> Publication:
        at = isoformat(modified)
        return cls(version if version is not None else modified.astimezone(UTC).isoformat(), at)

    @property
    def stamp(self) -> str:
        """As names have it: when, and of several at that moment which."""
        return f"{self.at}_{hashlib.sha256(self.id.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Batch:
    """A folder that was closed."""

    table: Table
    path: str  # below the table's folder, or below its `source`; empty: that folder itself
    publication: Publication

    @property
    def transaction(self) -> str:
        """What the table's own history says once the batch is in it."""
        return f"catchment:{self.path}@{self.publication.id}"

    @property
    def claim(self) -> str:
        return self.table.claim(self.path, self.publication)

    @property
    def pointer(self) -> str:
        return self.table.pointer(self.path)

    def __str__(self) -> str:
        return f"{self.table}/{self.path}" if self.path else str(self.table)

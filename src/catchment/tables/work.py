"""What is handed to the engine that applies a batch, and what it hands back. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from catchment.errors import CatchmentError
from catchment.tables.names import Batch

if TYPE_CHECKING:
    from catchment.tables.settings import Settings


@dataclass(frozen=True)
class DataFile:
    """One object of a batch, as it was when the batch was first taken up."""

    key: str
    etag: str
    size: int


@dataclass(frozen=True)
class Job:
    """One batch to be applied."""

    batch: Batch
    files: tuple[DataFile, ...]  # by key
    settings: Settings
    base: str  # the folder that hive-style columns (`name=value/`) are looked for below, ends in /


@dataclass(frozen=True)
class Applied:
    """What became of it: it is in the table, or there was nothing to change."""

    version: int | None  # of the table; None: a statement that changed no row makes no version
    rows: int | None = None  # added or changed, if the engine can tell
    seconds: float = 0.0
    already: bool = False  # it was there before: another attempt had made it
    numbers: dict[str, int] = field(default_factory=dict)  # Delta's own metrics


class BatchFailed(CatchmentError):
    """This batch cannot be applied as it is: a wrong statement, a file that cannot be read. Trying again is no use."""


class Engine(Protocol):
    """What applies batches; `tables.delta.DeltaEngine` does. Any number of processes may use one table at once.

    **At most one commit of the table carries a batch's transaction**, however often and by whomever it is applied.
    Whatever passes (a lost executor, a bucket that does not answer) raises another CatchmentError than BatchFailed.
    """

    def applied(self, batch: Batch) -> int | None:
        """The version of the table that this batch made, by the table's own history; None if it is not in it."""

    def apply(self, job: Job) -> Applied:
        """Apply the batch unless it is in the table already. BatchFailed if it cannot be."""

    def fence(self, batch: Batch) -> int:
        """See to it that the batch is never applied from now on: a commit without data. BatchFailed if it is in."""

"""Clean: all that is in the workspace goes to the object storages, and nothing is confined to this replica any more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from catchment.feeds.cycle import WORKERS, Cycle, Report


@dataclass(frozen=True)
class Cleaned:
    """What cleaning came to."""

    report: Report
    left: tuple[Path, ...]  # what is still only here

    @property
    def clean(self) -> bool:
        return not self.left


def clean(cycle: Cycle) -> Cleaned:
    """Archive everything, the current hour too; upload it to every storage; reconcile the hours it went to.

    For the owner of the workspace, with nothing landing in it meanwhile. Safe to repeat, and to cut off anywhere.
    """
    report = cycle.run_once(None, packers=WORKERS)
    return Cleaned(report, tuple(cycle.left()))

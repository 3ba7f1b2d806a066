"""What happened: kept on disk, counted for Prometheus, and who runs where.

A room writes `monitor.record("feeds/subway", "download", OK, duration=0.2, numbers={"bytes": 512})`; pages and commands
read it back, also from another process, through `History`.
"""

from __future__ import annotations

from catchment.monitor.history import History, Summary, Totals
from catchment.monitor.metrics import Metrics
from catchment.monitor.record import FAILED, OK, SKIPPED, Event, Monitor
from catchment.monitor.replica import Beating, Replica, Seen, Watch, this_replica
from catchment.monitor.store import Store, store_path

__all__ = [
    "FAILED",
    "OK",
    "SKIPPED",
    "Beating",
    "Event",
    "History",
    "Metrics",
    "Monitor",
    "Replica",
    "Seen",
    "Store",
    "Summary",
    "Totals",
    "Watch",
    "store_path",
    "this_replica",
]

"""One replica in a process of its own: config, workspace, a file for what landed, and the length of an hour in seconds.

Run by test_killed.py. The file gets the name of each download once it is on disk, before anybody can count on it.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from catchment.feeds.collect import Collector
from catchment.feeds.poll import Attempt
from catchment.feeds.process import collect
from catchment.lake import Lake


def main() -> int:
    config, workspace, log, cut = sys.argv[1:]
    with Lake.open(config, workspace=workspace) as lake, Path(log).open("a") as landed:

        def report(attempt: Attempt) -> None:
            if attempt.stored is not None:
                landed.write(f"{attempt.stored.name}\n")
                landed.flush()

        buckets = {storage.id: lake.storage(storage.id) for storage in lake.config.object_storage}
        collector = Collector(
            lake.config, lake.workspace, buckets, lake.monitor, cut=timedelta(seconds=float(cut)), report=report
        )
        return 0 if collect(collector).clean else 1


if __name__ == "__main__":
    sys.exit(main())

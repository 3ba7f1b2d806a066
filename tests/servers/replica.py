"""One collector as a process of its own, with hours as short as a test needs them.

    python replica.py CONFIG CUT_SECONDS [MONITORING_PORT]

Ends with 0 if nothing is left in the workspace, 1 otherwise, 2 if it could not start.
"""

from __future__ import annotations

import logging
import sys
from datetime import timedelta

from catchment.bucket.open import open_bucket
from catchment.config import load
from catchment.errors import CatchmentError
from catchment.feeds.collect import Collector
from catchment.feeds.process import collect
from catchment.monitor.record import Monitor
from catchment.monitor.store import Store, store_path


def main(source: str, cut: str, port: str = "") -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    config = load(source)
    collector = Collector(
        config,
        config.workspace,
        {storage.id: open_bucket(storage) for storage in config.object_storage},
        Monitor(Store(store_path(config.workspace))),
        cut=timedelta(seconds=float(cut)),
        monitoring_port=int(port) if port else None,
        reload=lambda: load(source),
    )
    try:
        ended = collect(collector)
    except CatchmentError as error:
        print(error, file=sys.stderr)
        return 2
    print(ended)
    return 0 if ended.clean else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Run the measurements that are named, or all of them."""

from __future__ import annotations

import sys
from importlib import import_module

ALL = ("startup", "bucket", "s3", "feeds", "feeds_schedule", "topics", "topics_requests", "tables")

for name in sys.argv[1:] or ALL:
    if name not in ALL:
        sys.exit(f"no measurement is called {name!r}; there are: {', '.join(ALL)}")
    print(f"\n== {name}", flush=True)
    import_module(f"bench.{name}").main()

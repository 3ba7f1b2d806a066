"""A process that applies batches and that a test can kill at a step: `python -m tests.spark.tables_program …`.

    CONFIG [STEP NTH]     end by SIGKILL right after the NTH time that STEP was done
    CONFIG read TABLE     print the rows of this table at the end, as JSON

Applies all that is there, prints `ready` once it runs and how many batches it applied at the end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter

from catchment.lake import Lake


def main(config: str, step: str = "", nth: str = "1") -> None:
    seen: Counter[str] = Counter()

    def on_step(name: str) -> None:
        seen[name] += 1
        if name == step and str(seen[name]) == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    with Lake.open(config) as lake:
        done = lake.tables.apply(
            once=True, beat=0.5, on_step=on_step, on_ready=lambda service: print("ready", flush=True)
        )
        print(len(done.applied), flush=True)
        if step == "read":
            print(json.dumps([row.asDict() for row in lake.tables.read(nth).collect()]), flush=True)
    for name, why in done.stopped.items():
        print(name, why, file=sys.stderr)
    sys.exit(1 if done.stopped else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])

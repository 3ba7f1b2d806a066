"""An exporting process that a test can kill at a step of the protocol: `python -m tests.spark.export_program …`.

    CONFIG UNTIL [STEP NTH]     end by SIGKILL right after the NTH time that STEP was done

Prints `ready` once it runs, and at the end the ranges and messages it committed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter

from catchment.lake import Lake
from catchment.topics.service import Until


def main(config: str, until: str, step: str = "", nth: str = "1") -> None:
    seen: Counter[str] = Counter()

    def on_step(name: str) -> None:
        seen[name] += 1
        if name == step and seen[name] == int(nth):
            os.kill(os.getpid(), signal.SIGKILL)

    with Lake.open(config) as lake:
        done = lake.topics.export(
            until=Until(until), beat=0.5, on_step=on_step, on_ready=lambda service: print("ready", flush=True)
        )
    print(sum(one.ranges for one in done.exports), sum(one.messages for one in done.exports), flush=True)
    for problem in done.problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if done.problems else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])

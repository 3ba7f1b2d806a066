"""One replay as a process of its own, which kills itself where it is told to.

    python replay_program.py LAKE BROKERS TOPIC TO_TOPIC STEP NUMBER

kills itself with SIGKILL the NUMBER-th time that it comes to STEP; with STEP "never" it runs to its end.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from catchment.bucket.local import LocalBucket
from catchment.errors import CatchmentError
from catchment.topics.messages import Window
from catchment.topics.names import Place
from catchment.topics.replay import into_topic


def main(lake: str, brokers: str, topic: str, to_topic: str, at: str, number: str) -> int:
    left = int(number)

    def step(name: str) -> None:
        nonlocal left
        left -= name == at
        if name == at and left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    bucket = LocalBucket(Path(lake))
    try:
        with TemporaryDirectory() as scratch:
            done = into_topic(
                bucket,
                Place("backup", topic),
                brokers,
                {},
                to_topic,
                Window(),
                Path(scratch),
                now=datetime.now(UTC),
                messages=50,
                on_step=step,
            )
    except CatchmentError as error:
        print(f"{type(error).__name__}: {error}")
        return 1
    print(done)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Whether the process that holds a claim is gone. A wrong guess costs work, never data."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from catchment.bucket.contract import Bucket
from catchment.clock import SYSTEM, Clock
from catchment.errors import NotFound
from catchment.monitor.replica import INTERVAL, MISSED, PREFIX, Replica


@dataclass(frozen=True)
class _Seen:
    etag: str
    since: float  # monotonic: when it was first seen as it is
    looked: float
    replica: Replica | None


class Owners:
    """Watches the records of the processes it is asked about, one read each, at most every few seconds.

    A process is gone when it has no record (it stopped cleanly), when its record has not changed for four of its own
    intervals on this clock, or when it ran on this machine and its process id is free.
    """

    def __init__(
        self, bucket: Bucket, *, clock: Clock = SYSTEM, running: Callable[[str, int], bool | None] | None = None
    ) -> None:
        """`running` says whether a process of a host runs; None: it cannot tell."""
        self._bucket = bucket
        self._clock = clock
        self._running = running or runs_here
        self._seen: dict[str, _Seen] = {}

    def gone(self, owner: str) -> bool:
        """Raises what the bucket raises: no answer is no sign of death."""
        now = self._clock.monotonic()
        seen = self._seen.get(owner)
        interval = seen.replica.interval if seen and seen.replica else INTERVAL
        if seen is None or now - seen.looked >= interval / 2:
            try:
                found = self._bucket.read(f"{PREFIX}{owner}.json")
            except NotFound:
                self._seen.pop(owner, None)
                return True
            same = seen is not None and seen.etag == found.stat.etag
            seen = _Seen(found.stat.etag, seen.since if seen and same else now, now, _parsed(found.body))
            self._seen[owner] = seen
        replica = seen.replica
        if replica is not None and self._running(replica.host, replica.pid) is False:
            return True
        return now - seen.since >= MISSED * (replica.interval if replica else INTERVAL)


def _parsed(body: bytes) -> Replica | None:
    try:
        return Replica.parse(body)
    except ValueError:
        return None


def runs_here(host: str, pid: int) -> bool | None:
    """Whether this machine's process runs; None for another machine's."""
    if host != socket.gethostname():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OverflowError:  # no machine has such a number
        return False
    except OSError:
        pass
    return True

"""Who runs where: each process keeps a small record in the bucket while it lives.

`_catchment/replicas/<id>.json` is put again every `interval` with a counter that goes up, and removed on a clean stop.
The id is new each time a process starts. A process is taken for gone when its record has not changed for long enough
*on the watcher's own monotonic clock*: wall clocks of different machines are never compared, so no wrong clock makes a
living process look dead. A wrong guess (a paused process, a bucket out of reach) costs work, never data.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from types import TracebackType

from catchment import __version__
from catchment.bucket.contract import Bucket
from catchment.clock import SYSTEM, Clock, isoformat
from catchment.errors import CatchmentError, NotFound

log = logging.getLogger(__name__)

PREFIX = "_catchment/replicas/"
INTERVAL = 15.0  # seconds between refreshes
MISSED = 4  # so many intervals without a change mean that a process is gone, unless the watcher says otherwise


@dataclass(frozen=True)
class Replica:
    """One running process, as its record tells."""

    id: str  # host-pid-random, new at each start
    host: str
    pid: int
    command: str  # which command it runs, for people: feeds collect
    version: str
    started: datetime  # on its own wall clock, for people
    beat: int  # goes up with each refresh
    interval: float  # seconds between refreshes
    workspace: str

    @property
    def key(self) -> str:
        return f"{PREFIX}{self.id}.json"

    def body(self) -> bytes:
        """The record as it is put."""
        return json.dumps(asdict(self) | {"started": isoformat(self.started)}, indent=1).encode()

    @classmethod
    def parse(cls, body: bytes) -> Replica:
        """The replica that a record tells of. ValueError if it is not such a record. Unknown fields are ignored."""
        try:
            found = json.loads(body)
            return cls(
                id=str(found["id"]),
                host=str(found["host"]),
                pid=int(found["pid"]),
                command=str(found["command"]),
                version=str(found["version"]),
                started=datetime.fromisoformat(found["started"]),
                beat=int(found["beat"]),
                interval=float(found["interval"]),
                workspace=str(found["workspace"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not the record of a replica: {error!r}") from error


def this_replica(command: str, *, workspace: str = "", interval: float = INTERVAL, clock: Clock = SYSTEM) -> Replica:
    """A new identity for this process. Call it once per start."""
    host = socket.gethostname()
    readable = re.sub(r"[^A-Za-z0-9]+", "-", host).strip("-")[:40] or "host"
    name = f"{readable}-{os.getpid()}-{secrets.token_hex(4)}"
    return Replica(name, host, os.getpid(), command, __version__, clock.now(), 0, interval, workspace)


class Beating:
    """Keeps a replica's record in the bucket fresh: `with Beating(bucket, replica): work()`.

    Trouble with the bucket never stops the work: logged when it begins, counted, and the next refresh tries again.
    """

    def __init__(self, bucket: Bucket, replica: Replica, *, on_failure: Callable[[], None] = lambda: None) -> None:
        """`on_failure` is called for each refresh that failed (a counter's `inc`)."""
        self._bucket = bucket
        self.replica = replica
        self.failures = 0
        self._on_failure = on_failure
        self._in_trouble = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"replica-{replica.id}", daemon=True)

    def refresh(self) -> bool:
        """Put the record with the next beat; whether that worked."""
        self.replica = replace(self.replica, beat=self.replica.beat + 1)
        try:
            self._bucket.put(self.replica.key, self.replica.body())
        except (CatchmentError, OSError) as error:
            self._failed("refreshed", error)
            return False
        if self._in_trouble:
            log.warning("the record of this process in %s is refreshed again", self._bucket.name)
            self._in_trouble = False
        return True

    def start(self) -> None:
        """Put the first record, then refresh it in the background."""
        self.refresh()
        self._thread.start()

    def stop(self) -> None:
        """Stop refreshing and remove the record. A refresh that hangs is not waited for longer than an interval."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(self.replica.interval)
        try:
            self._bucket.delete(self.replica.key)
        except (CatchmentError, OSError) as error:
            self._failed("removed", error)  # watchers will see that it no longer changes

    def _run(self) -> None:
        while not self._stopping.wait(self.replica.interval):
            try:
                self.refresh()
            except Exception:
                # Whatever it was, a process that works must not look dead because this thread ended.
                log.exception("refreshing the record of this process failed unexpectedly")

    def _failed(self, what: str, error: Exception) -> None:
        self.failures += 1
        self._on_failure()
        if not self._in_trouble:
            log.warning("the record of this process in %s cannot be %s: %s", self._bucket.name, what, error)
        self._in_trouble = True

    def __enter__(self) -> Beating:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@dataclass(frozen=True)
class Seen:
    """A record as a watcher sees it."""

    id: str
    replica: Replica | None  # None: the record cannot be read
    quiet: float  # seconds, on the watcher's clock, since it was first seen as it is now
    alive: bool


class Watch:
    """Watches the records of all processes. Look now and then: what it knows comes from comparing looks.

    At the first look every record counts as alive, since a single look cannot tell. Not for use from threads.
    """

    def __init__(self, bucket: Bucket, *, patience: float | None = None, clock: Clock = SYSTEM) -> None:
        """`patience` is how many seconds a record may stay the same; None: four of its own intervals."""
        self._bucket = bucket
        self._patience = patience
        self._clock = clock
        self._known: dict[str, _Known] = {}

    def look(self) -> list[Seen]:
        """All records there now, by id. Raises what the bucket raises: a failed listing is not "nobody there"."""
        current: dict[str, _Known] = {}
        for entry in self._bucket.list(PREFIX):
            if entry.key.endswith(".json"):
                try:
                    current[entry.key] = self._read(entry.key, entry.etag)
                except NotFound:
                    continue  # stopped cleanly since the listing
        self._known = current
        return [self._judge(key, known) for key, known in current.items()]

    def gone(self, id: str) -> bool:
        """Whether the process with this id is gone, by a new look: no record, or one that stays the same."""
        return not any(seen.alive for seen in self.look() if seen.id == id)

    def tidy(self, quiet: float) -> list[str]:
        """Remove records that have not changed for so many seconds, left by processes that were killed; their ids.

        If one lives after all, its next refresh puts the record back.
        """
        removed = [seen.id for seen in self.look() if not seen.alive and seen.quiet >= quiet]
        for name in removed:
            self._bucket.delete(f"{PREFIX}{name}.json")
            del self._known[f"{PREFIX}{name}.json"]
        return removed

    def _read(self, key: str, etag: str | None) -> _Known:
        now = self._clock.monotonic()
        if etag is None:
            etag = self._bucket.head(key).etag
        known = self._known.get(key)
        if known is not None and known.etag == etag:
            return known
        try:
            replica = Replica.parse(self._bucket.get(key))
        except ValueError:
            replica = None
        return _Known(etag, now, replica)

    def _judge(self, key: str, known: _Known) -> Seen:
        patience = self._patience
        if patience is None:
            patience = MISSED * (known.replica.interval if known.replica else INTERVAL)
        quiet = self._clock.monotonic() - known.since
        name = key.removeprefix(PREFIX).removesuffix(".json")
        return Seen(name, known.replica, quiet, quiet < patience)


@dataclass(frozen=True)
class _Known:
    etag: str
    since: float  # monotonic
    replica: Replica | None

"""A lease on a key: at most one owner at a time does the work, and whoever dies is followed by another.

The record is `{state: held|free, owner, epoch, ttl, beat, nonce, note}`, and every change of it is a `swap`:

    absent ──acquire──▶ held(epoch 1)
    free(e) ──acquire──▶ held(e+1)
    held(e) ──renew──▶ held(e)          by its owner; the beat goes up
    held(e) ──free──▶ free(e)           by its owner
    held(e) ──take over──▶ held(e+1)    by anyone who has seen it unchanged for ttl seconds on their own clock

Nobody compares clocks: a watcher counts seconds since *it* first saw the record as it is. A lease that is lost without
knowing (a paused process) is found out at the next `renew`, and the epoch, which only goes up, fences what its owner
wrote under it. The key is never deleted; a record that a person removed reads as absent, and its epoch starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from catchment.bucket.contract import Bucket
from catchment.bucket.swap import Document, fresh, read, swap
from catchment.clock import SYSTEM, Clock
from catchment.errors import BucketError, Conflict, LeaseLost


@dataclass(frozen=True)
class Held:
    """Somebody else has it. Ask again when `wait` seconds have passed: then, if unchanged, it may be taken over."""

    owner: str
    epoch: int
    wait: float
    note: str = ""


@dataclass(frozen=True)
class Lease:
    """We have it, as of `document`."""

    key: str
    owner: str
    epoch: int
    ttl: float
    document: Document = field(repr=False)
    note: str = ""


class Leases:
    """The leases of one process. Keep one of these for as long as the process lives: it remembers what it has seen."""

    def __init__(
        self, bucket: Bucket, owner: str, *, ttl: float, clock: Clock = SYSTEM, nonce: Callable[[], str] = fresh
    ) -> None:
        """owner: new each time a process starts. ttl: renew well within it; a third of it is a good interval."""
        self._bucket = bucket
        self._owner = owner
        self._ttl = ttl
        self._clock = clock
        self._nonce = nonce
        self._seen: dict[str, tuple[str | None, float]] = {}  # key → (ETag, when we first saw it)

    def acquire(self, key: str, *, note: str = "") -> Lease | Held:
        """Take the lease if it is free, absent, or its owner has gone; else say who has it. Never waits."""
        before = read(self._bucket, key)
        epoch = 0
        if before.exists:
            epoch = _epoch(before)
            if before.value.get("state") != "free":
                left = self._patience(before)
                if left > 0:
                    return Held(str(before.value.get("owner", "")), epoch, left, str(before.value.get("note", "")))
        try:
            after = swap(self._bucket, before, self._record("held", epoch + 1, note), nonce=self._nonce)
        except Conflict:
            now = read(self._bucket, key)
            if not now.exists or now.value.get("state") == "free":
                return Held("", _epoch(now) if now.exists else 0, 0.0)  # it moved twice: simply ask again
            return Held(
                str(now.value.get("owner", "")), _epoch(now), self._patience(now), str(now.value.get("note", ""))
            )
        self._seen.pop(key, None)
        return Lease(key, self._owner, epoch + 1, self._ttl, after, note)

    def renew(self, lease: Lease, *, note: str | None = None) -> Lease:
        """Show that the owner is alive. LeaseLost if it is somebody else's by now."""
        kept = lease.note if note is None else note
        beat = int(lease.document.value.get("beat", 0)) + 1
        after = self._change(lease, self._record("held", lease.epoch, kept, beat))
        return Lease(lease.key, lease.owner, lease.epoch, lease.ttl, after, kept)

    def free(self, lease: Lease) -> None:
        """Let go. LeaseLost if it was somebody else's already."""
        self._change(lease, self._record("free", lease.epoch, lease.note))

    def _change(self, lease: Lease, record: Mapping[str, Any]) -> Document:
        try:
            return swap(self._bucket, lease.document, record, nonce=self._nonce)
        except Conflict:
            # An earlier change of ours may have taken effect although every reply to it was lost.
            now = read(self._bucket, lease.key)
            if all(now.value.get(name) == record[name] for name in ("owner", "epoch")) and now.value["state"] == "held":
                with suppress(Conflict):
                    return swap(self._bucket, now, record, nonce=self._nonce)
            raise LeaseLost(
                f"the lease {lease.key} (epoch {lease.epoch}) is no longer held by {lease.owner}",
                hint="stop this work; whoever holds it now goes on",
            ) from None

    def _record(self, state: str, epoch: int, note: str, beat: int = 0) -> dict[str, Any]:
        return {"state": state, "owner": self._owner, "epoch": epoch, "ttl": self._ttl, "beat": beat, "note": note}

    def _patience(self, document: Document) -> float:
        """Seconds until a held lease that does not change may be taken over. Its own ttl counts, not ours."""
        now = self._clock.monotonic()
        etag, since = self._seen.get(document.key, (None, now))
        if etag != document.etag:
            since = now
        self._seen[document.key] = (document.etag, since)
        ttl = document.value.get("ttl")
        return max(0.0, since + (float(ttl) if isinstance(ttl, (int, float)) else self._ttl) - now)


def _epoch(document: Document) -> int:
    epoch = document.value.get("epoch")
    if not isinstance(epoch, int):
        raise BucketError(
            f"{document.key} is not a lease", key=document.key, hint="look at it, and move it away by hand"
        )
    return epoch

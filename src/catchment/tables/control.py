"""What a person does when a line stands: try it again, leave the batch out, or go on after the lock was removed.

The same can be done with nothing but a bucket browser: remove `_lock`; remove the pointer in `_backlog/` if the batch
is not to be applied; put an empty `_BACKFILL`. Only that road does not keep a forgotten process from applying the batch
after all, which `skip` does.
"""

from __future__ import annotations

from collections.abc import Callable

from catchment.bucket import swap
from catchment.bucket.contract import Bucket
from catchment.errors import Conflict, UsageError
from catchment.tables import claim as claims
from catchment.tables import lock as locks
from catchment.tables.backlog import unpoint
from catchment.tables.claim import Claim, Stage
from catchment.tables.landing import Landed
from catchment.tables.lock import State
from catchment.tables.names import Batch, Table
from catchment.tables.work import BatchFailed, Engine

Nonce = Callable[[], str]


def failed(bucket: Bucket, table: Table) -> Batch | None:
    """The batch at which the line of an ordered table stands."""
    lock = locks.read(bucket, table).lock
    return lock.batch(table) if lock.state is State.FAILED else None


def retry(bucket: Bucket, table: Table, now: str, *, nonce: Nonce = swap.fresh) -> Batch:
    """Free the lock of a line that stands; its batch is the first in the backlog, and is tried again.

    Its files are listed anew: whoever has mended them need not publish the batch again.
    """
    while True:
        held = locks.read(bucket, table)
        if held.lock.state is not State.FAILED:
            raise UsageError(f"the line of {table} does not stand", hint="look at it with: catchment tables status")
        try:
            held.change(bucket, held.lock.free(now), nonce=nonce)
        except Conflict:
            continue
        return held.lock.batch(table)


def retry_batch(bucket: Bucket, batch: Batch, now: str, *, nonce: Nonce = swap.fresh) -> Batch:
    """Let an unordered batch that failed be tried again."""
    while True:
        known = claims.read(bucket, batch)
        if known.claim is None or known.claim.stage is not Stage.FAILED:
            raise UsageError(f"{batch} has not failed", hint="look at it with: catchment tables status")
        try:
            claims.change(bucket, known, Claim(Stage.PUBLISHED, batch.publication.id, since=now), nonce=nonce)
        except Conflict:
            continue
        return batch


def skip(bucket: Bucket, engine: Engine, landed: Landed, batch: Batch, now: str, *, nonce: Nonce = swap.fresh) -> int:
    """Leave a batch out for good: the version of the table that keeps it out. UsageError if it is in already.

    1 fence the table, 2 record, 3 remove the pointer, 4 free the lock if it is about this batch. Safe to repeat.
    """
    try:
        version = engine.fence(batch)  # 1: from here on not even a forgotten process can apply it
    except BatchFailed as error:
        raise UsageError(
            f"{batch} is in the table already: {error.message}", hint="there is nothing to skip"
        ) from error
    skipped = Claim(Stage.SKIPPED, batch.publication.id, since=now, version=version)
    claims.settle(bucket, batch, skipped, nonce=nonce)  # 2
    unpoint(bucket, landed, batch)  # 3
    while True:
        held = locks.read(bucket, batch.table)
        if held.lock.state is not State.FAILED or held.lock.batch(batch.table) != batch:
            return version  # whoever is at work on it finds the record
        try:
            held.change(bucket, held.lock.free(now), nonce=nonce)  # 4
        except Conflict:
            continue
        return version


def resume(bucket: Bucket, table: Table) -> None:
    """Say what a person says with an empty `_BACKFILL`: go on. UsageError if the line stands."""
    batch = failed(bucket, table)
    if batch is not None:
        raise UsageError(
            f"the line of {table} stands at {batch}", hint=f"first: catchment tables retry {table}, or skip {table}"
        )
    bucket.put(table.wake, b"")

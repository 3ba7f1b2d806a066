"""Applying batches: the publisher and the subscriber of the reference design, one step at a time.

**Publisher** (`publish`), for every `_SUCCESS` of an ordered table that has no record yet:

    1 point     put `_backlog/<path>/_SUCCESS`, whose body is the publication
    2 record    put the claim "published", if there is none: from now on only a new publication is pointed to

**Subscriber** (`ordered`), for a table whose line does not stand:

    1 lock      compare-and-set: the first pointer's batch, its publication and its files; or take over a dead owner's
    2 apply     the table's own history decides whether it is in already; the commit carries the batch
    3 record    the claim says "applied"
    4 remove    the pointer, if it still names this publication; and if the batch was published again meanwhile, see
                to it that a pointer names that
    5 free      compare-and-set of the lock

**Unordered** (`unordered`): claim, apply, record; batches know nothing of each other.

Why nothing is applied twice: at most one commit of the table carries a batch's publication. Why nothing is lost: a
publication has a pointer before it has a record; a pointer goes only after its publication is in the table; and whoever
removes one looks at `_SUCCESS` afterwards, still under the lock, so a publication that came in between is pointed to
again by whoever completes this. Why the order is kept: whoever applies holds the lock, and a line that stands is not
passed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from catchment.bucket import swap
from catchment.bucket.contract import ABSENT, Bucket
from catchment.clock import SYSTEM, Clock, isoformat
from catchment.config.tables import TableItem, Tables
from catchment.errors import CatchmentError, Conflict, NotFound
from catchment.tables import claim as claims
from catchment.tables import lock as locks
from catchment.tables.backlog import point, pointed, unpoint
from catchment.tables.claim import Claim, Stage
from catchment.tables.landing import Landed, data_files, listed_files, publication
from catchment.tables.lock import Held, Lock, State
from catchment.tables.names import SUCCESS, Batch, Publication, Table
from catchment.tables.work import Applied, BatchFailed, DataFile, Engine, Job

if TYPE_CHECKING:
    from catchment.tables.settings import Settings

log = logging.getLogger(__name__)


class SettingsOf(Protocol):
    """How a batch is applied, by the `_config` folders on its way."""

    def __call__(self, table: Table, path: str, base: str) -> Settings:
        """BatchFailed that names the file and the place if it cannot be told."""


@dataclass(frozen=True)
class Done:
    """What one step did to one table."""

    batch: Batch | None = None  # that was applied, skipped over or failed
    stage: Stage | None = None
    version: int | None = None
    rows: int | None = None
    busy: str = ""  # who is at work on it
    stopped: str = ""  # why the line stands, and what to do
    waiting: str = ""  # what it waits for
    again: bool = False  # there is more to do at once


class Applier:
    """Applies batches with one engine. Any number of them, in any number of processes, may work on the same tables."""

    def __init__(
        self,
        bucket: Bucket,
        config: Tables,
        engine: Engine,
        settings: SettingsOf,
        *,
        owner: str,
        gone: Callable[[str], bool],
        clock: Clock = SYSTEM,
        nonce: Callable[[], str] = swap.fresh,
        on_step: Callable[[str], object] = lambda name: None,
    ) -> None:
        """`on_step` is told the name of each step right after it, for tests that stop the process there."""
        self._bucket, self._config, self._engine, self._settings = bucket, config, engine, settings
        self._owner, self._gone, self._clock, self._nonce = owner, gone, clock, nonce
        self._on_step = on_step

    # -- publisher

    def publish(self, batch: Batch) -> bool:
        """Put an ordered batch into the backlog, unless this publication was there once. Whether it was new."""
        if claims.read(self._bucket, batch).claim is not None:
            return False
        point(self._bucket, batch)  # 1
        self._on_step("point")
        record = Claim(Stage.PUBLISHED, batch.publication.id, since=self._now())
        with suppress(Conflict):
            self._bucket.put(batch.claim, _body(record.value(), self._nonce()), when=ABSENT)  # 2
        self._on_step("record")
        return True

    def wake(self, landed: Landed) -> None:
        """Post the first `_BACKFILL` of a table. Later ones are a person's."""
        if landed.pointers and not landed.begun and not landed.lock:
            with suppress(Conflict):
                self._bucket.put(landed.table.wake, json.dumps({"posted_by": "catchment"}).encode(), when=ABSENT)

    # -- subscriber

    def ordered(self, landed: Landed) -> Done:
        """The next batch of an ordered table."""
        table = landed.table
        held = locks.read(self._bucket, table)
        lock = held.lock
        if lock.state is State.FAILED:
            return Done(batch=lock.batch(table), stage=Stage.FAILED, stopped=f"{lock.error}; {lock.hint}")
        if lock.state is State.RUNNING:
            if lock.owner != self._owner and not self._gone(lock.owner):
                return Done(busy=lock.owner)
            taken = self._take(held, lock)
        else:
            next = self._next(landed, held)
            if isinstance(next, Done):
                return next
            taken = self._take(held, next)
        if taken is None:
            return Done(again=True)
        return self._apply(landed, taken)

    def _next(self, landed: Landed, held: Held) -> Lock | Done:
        """What the lock is to say of the first batch in the backlog; or why nothing is begun."""
        table, gate = landed.table, self._config.start_backfill_filename
        if gate is not None and not self._there(f"{table.prefix}{gate}"):
            return Done(waiting=f"{table.prefix}{gate} is not there: the history is not complete")
        while True:
            first = self._first(landed)
            if first is None:
                return Done()
            known = claims.read(self._bucket, first)
            if known.claim is not None and known.claim.stage.over:
                unpoint(self._bucket, landed, first)  # whoever was late put it there again
                continue
            files = self._files(landed, first)
            if files is not None:
                break
        consent = self._consent(landed, held)
        if isinstance(consent, Done):
            return consent
        lock = replace(held.lock, path=first.path, publication=first.publication, files=files)
        return replace(lock, consent=consent) if consent is not None else lock

    def _files(self, landed: Landed, batch: Batch) -> tuple[DataFile, ...] | None:
        """The files of a batch in the backlog; None if it was published anew or withdrawn, and the backlog says so."""
        now, listed = self._success(landed, batch.path)
        if now == batch.publication:
            return self._of(landed, batch, listed)
        if now is None:
            log.warning("%s is no longer closed by %s: it is not applied", batch, SUCCESS)
            self._bucket.delete(batch.pointer)
        else:
            point(self._bucket, replace(batch, publication=now))  # what it was before is not there any more
        return None

    def _success(self, landed: Landed, path: str) -> tuple[Publication | None, bytes]:
        """Which publication of a batch there is, and what its `_SUCCESS` says."""
        try:
            found = self._bucket.read(landed.success(path))
        except NotFound:
            return None, b""
        return Publication.of(found.stat.version, found.stat.modified), found.body

    def _of(self, landed: Landed, batch: Batch, listed: bytes) -> tuple[DataFile, ...]:
        """Those that `_SUCCESS` lists, as days of a topic have it, or all that lie in the folder."""
        named = listed_files(listed)
        if named is not None:
            return named
        return tuple(data_files(self._bucket, landed.base, batch.path, landed.closed))

    def _consent(self, landed: Landed, held: Held) -> Publication | Done | None:
        """The `_BACKFILL` to use up where one is needed; what it waits for if there is none; None: none is needed."""
        table, validate = landed.table, self._config.wait_for_validation
        if not validate and not held.absent:
            return None
        posted = self._posted(table)
        first = held.absent and not landed.begun and not self._begun(table)
        if posted is not None and (posted[1] or first or not validate) and not self._used(held, posted[0]):
            return posted[0]
        if first:
            return Done(waiting=f"{table.wake} is not there yet")
        why = "the batch before is to be validated" if not held.absent else "the lock was removed by hand"
        return Done(waiting=f"{why}: post an empty {table.wake} to go on")

    def _used(self, held: Held, posted: Publication) -> bool:
        """Whether this `_BACKFILL` was used up: the lock says so, or, where that was removed, the record beside it."""
        return posted == held.lock.consent or self._there(held.table.consent(posted))

    def _posted(self, table: Table) -> tuple[Publication, bool] | None:
        """The `_BACKFILL` that is there, and whether a person put it."""
        try:
            found = self._bucket.read(table.wake)
        except NotFound:
            return None
        person = b"posted_by" not in found.body
        return Publication.of(found.stat.version, found.stat.modified), person

    def _begun(self, table: Table) -> bool:
        prefix = table.consent(Publication("", "")).partition("_created_at_")[0]
        return next(iter(self._bucket.list(prefix)), None) is not None

    def _take(self, held: Held, lock: Lock) -> Held | None:
        """The lock as ours; None if somebody else was first."""
        mine = replace(lock, state=State.RUNNING, owner=self._owner, epoch=held.lock.epoch + 1, since=self._now())
        try:
            taken = held.change(self._bucket, mine, nonce=self._nonce)  # 1
        except Conflict:
            return None
        if mine.consent is not None:  # for when the lock is removed by hand
            record = _body({"owner": self._owner, "since": self._now()}, self._nonce())
            with suppress(Conflict):
                self._bucket.put(held.table.consent(mine.consent), record, when=ABSENT)
        self._on_step("lock")
        return taken

    def _apply(self, landed: Landed, held: Held) -> Done:
        table, lock = landed.table, held.lock
        batch = lock.batch(table)
        item = self._config.item(str(table))
        known = claims.read(self._bucket, batch).claim
        if known is not None and known.stage.over:
            return self._settled(landed, held, batch, known)
        try:
            if self._is_late(held, batch, item):
                late = Claim(Stage.LATE, batch.publication.id, since=self._now(), error="it came below the last one")
                return self._settled(landed, held, batch, late)
            done = self.run(batch, lock.files, landed.base, item)  # 2
        except BatchFailed as error:
            return self._fail(held, batch, error)
        self._on_step("apply")
        return self._settled(landed, held, batch, self._applied(batch, done))

    def _is_late(self, held: Held, batch: Batch, item: TableItem) -> bool:
        """Whether the batch is to be passed over. BatchFailed if it is refused."""
        last = held.lock.last
        if last is None or batch.path >= last or item.late == "apply" or self._again(batch):
            return False
        if item.late == "refuse":
            raise BatchFailed(
                f"{batch} came after {last} was applied, which is the greater name",
                hint="apply it all the same with 'retry' after setting late: apply, or leave it out with 'skip'",
            )
        return True

    def _again(self, batch: Batch) -> bool:
        """Whether another publication of this batch is in the table."""
        prefix = batch.claim.partition("_created_at_")[0]
        for entry in self._bucket.list(prefix):
            if entry.key != batch.claim:
                document = swap.read(self._bucket, entry.key)
                if document.exists and Claim.parse(entry.key, document.value).stage is Stage.APPLIED:
                    return True
        return False

    def run(self, batch: Batch, files: tuple[DataFile, ...], base: str, item: TableItem) -> Applied:
        """Apply it, again and again as long as what fails may pass. BatchFailed when it is no use."""
        size = sum(one.size for one in files)
        if item.max_batch_bytes is not None and size > item.max_batch_bytes:
            raise BatchFailed(
                f"{batch} has {size:,} bytes, more than max_batch_bytes ({item.max_batch_bytes:,})",
                hint="publish it in parts, or raise the limit",
            )
        job = Job(batch, files, self._settings(batch.table, batch.path, base), base)
        for attempt in range((item.max_retries or 0) + 1):
            try:
                return self._engine.apply(job)
            except BatchFailed:
                raise
            except CatchmentError as error:
                failed = error
                log.warning("%s: attempt %d failed: %s", batch, attempt + 1, error)
                self._clock.sleep(min(30.0, 2.0**attempt))
        raise BatchFailed(f"{batch} could not be applied: {failed.message}", hint=failed.hint) from failed

    def _settled(self, landed: Landed, held: Held, batch: Batch, claim: Claim) -> Done:
        claim = claims.settle(self._bucket, batch, claim, nonce=self._nonce)  # 3
        self._on_step("record")
        unpoint(self._bucket, landed, batch)  # 4
        self._on_step("remove")
        last = batch.path if claim.stage is Stage.APPLIED else None
        try:
            held.change(self._bucket, held.lock.free(self._now(), last=last), nonce=self._nonce)  # 5
        except Conflict:
            pass  # taken over meanwhile: whoever did so finds everything done
        self._on_step("free")
        return Done(batch, claim.stage, claim.version, claim.rows, again=True)

    def _fail(self, held: Held, batch: Batch, error: BatchFailed) -> Done:
        """The line stands: the lock says why, and what to do."""
        table = batch.table
        hint = "; ".join(
            one
            for one in (
                error.hint,
                f"then: catchment tables retry {table}",
                f"or, to leave it out: catchment tables skip {table}",
            )
            if one
        )
        failed = replace(held.lock, state=State.FAILED, error=error.message, hint=hint, since=self._now())
        try:
            held.change(self._bucket, failed, nonce=self._nonce)
        except Conflict:
            return Done(again=True)  # taken over meanwhile: it is theirs to say
        claim = Claim(Stage.FAILED, batch.publication.id, self._owner, self._now(), error=error.message, hint=hint)
        claims.settle(self._bucket, batch, claim, nonce=self._nonce)
        self._on_step("fail")
        log.error("%s: %s; %s", batch, error.message, hint)
        return Done(batch, Stage.FAILED, stopped=f"{error.message}; {hint}")

    # -- unordered

    def unordered(self, landed: Landed, batch: Batch) -> Done:
        """One batch of an unordered table."""
        known = claims.read(self._bucket, batch)
        claim = known.claim
        if claim is not None:
            if claim.stage.over:
                return Done()
            if claim.stage is Stage.FAILED:
                return Done(batch, Stage.FAILED, stopped=f"{claim.error}; {claim.hint}")
            if claim.stage is Stage.RUNNING and claim.owner != self._owner and not self._gone(claim.owner):
                return Done(busy=claim.owner)
        mine = Claim(Stage.RUNNING, batch.publication.id, self._owner, self._now())
        try:
            claims.change(self._bucket, known, mine, nonce=self._nonce)
        except Conflict:
            return Done(again=True)
        self._on_step("claim")
        item = self._config.item(str(batch.table))
        try:
            now, listed = self._success(landed, batch.path)
            if now != batch.publication:
                return Done(again=True)  # published anew since it was listed: the next look finds that
            done = self.run(batch, self._of(landed, batch, listed), landed.base, item)
        except BatchFailed as error:
            hint = "; ".join(one for one in (error.hint, f"then: catchment tables retry {batch.table}") if one)
            failed = Claim(Stage.FAILED, batch.publication.id, self._owner, self._now(), error=error.message, hint=hint)
            claims.settle(self._bucket, batch, failed, nonce=self._nonce)
            log.error("%s: %s; %s", batch, error.message, hint)
            return Done(batch, Stage.FAILED, stopped=f"{error.message}; {hint}")
        self._on_step("apply")
        claims.settle(self._bucket, batch, self._applied(batch, done), nonce=self._nonce)
        self._on_step("record")
        return Done(batch, Stage.APPLIED, done.version, done.rows, again=True)

    # -- small things

    def _applied(self, batch: Batch, done: Applied) -> Claim:
        return Claim(
            Stage.APPLIED, batch.publication.id, self._owner, self._now(), done.version, done.rows, done.seconds
        )

    def _first(self, landed: Landed) -> Batch | None:
        """The first batch in the backlog, which is listed now."""
        for entry in self._bucket.list(landed.table.backlog):
            try:
                path = landed.table.parse_pointer(entry.key)
            except ValueError:
                continue
            found = pointed(self._bucket, landed, path)
            if found is not None:
                return found
        return None

    def _there(self, key: str) -> bool:
        return publication(self._bucket, key) is not None

    def _now(self) -> str:
        return isoformat(self._clock.now())


def _body(value: dict[str, object], nonce: str) -> bytes:
    return json.dumps({**value, swap.NONCE: nonce}, sort_keys=True).encode()

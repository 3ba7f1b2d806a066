"""How each table stands: what waits, who is at work, what was applied last, and why a line stands."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from catchment.bucket import swap
from catchment.bucket.contract import Bucket
from catchment.config.tables import Tables
from catchment.errors import BucketError
from catchment.tables import lock as locks
from catchment.tables.claim import Claim, Stage
from catchment.tables.landing import Landed, Landing, unpadded
from catchment.tables.lock import State
from catchment.tables.names import SUCCESS, Table
from catchment.tables.settings import Configs

NAMED = 5  # so many names that do not sort as their numbers do are told


@dataclass(frozen=True)
class Standing:
    """One table."""

    table: str
    ordered: bool  # at least some of it
    batches: int  # closed folders
    backlog: int  # that wait for their turn
    next: str | None  # the first of them
    state: str  # free, running, failed; absent: no lock
    owner: str
    owner_gone: bool
    batch: str  # that is being applied, or at which the line stands
    since: str
    last: str | None  # the greatest name that was applied
    applied: int  # publications, by their records
    pending: int  # unordered batches that are not applied yet
    stopped: tuple[str, ...]  # why, and what to do
    suspicious: tuple[str, ...]  # names whose order is not that of their numbers
    late: tuple[str, ...]  # batches that came below the last one and were reported

    @property
    def well(self) -> bool:
        return not self.stopped


@dataclass(frozen=True)
class Status:
    """All tables."""

    tables: tuple[Standing, ...]
    problems: tuple[str, ...] = ()  # what closes nothing

    @property
    def well(self) -> bool:
        return not self.problems and all(one.well for one in self.tables)


def status(
    bucket: Bucket,
    config: Tables,
    gone: Callable[[str], bool],
    *,
    only: frozenset[Table] | None = None,
    workers: int = 8,
) -> Status:
    """One listing, the locks, and every record. Changes nothing and starts no JVM."""
    listing = Landing(bucket, config).look()
    configs = Configs(bucket, listing.configs)
    wanted = [one for table, one in sorted(listing.tables.items()) if only is None or table in only]
    with ThreadPoolExecutor(workers, thread_name_prefix="status") as pool:
        found = [_standing(bucket, config, configs, landed, gone, pool) for landed in wanted]
    return Status(tuple(found), tuple(listing.problems))


def _standing(
    bucket: Bucket,
    config: Tables,
    configs: Configs,
    landed: Landed,
    gone: Callable[[str], bool],
    pool: ThreadPoolExecutor,
) -> Standing:
    table, item = landed.table, config.item(str(landed.table))
    ordered = {path for path in landed.closed if configs.ordered(table, path, item, base=landed.base)}
    stopped: list[str] = []
    try:
        held = locks.read(bucket, table)
        lock, absent = held.lock, held.absent
    except BucketError as error:
        if not error.unreadable:
            raise
        lock, absent = locks.Lock(), True
        stopped.append(str(error))
    records = {
        key: claim
        for key, claim in zip(
            sorted(landed.claims), pool.map(lambda key: _claim(bucket, key), sorted(landed.claims)), strict=True
        )
        if claim is not None
    }
    if lock.state is State.FAILED:
        stopped.append(f"{lock.error}; {lock.hint}")
    settled = {_folder(key, table) for key, claim in records.items() if claim.stage.over}
    for key, claim in records.items():
        path = _folder(key, table)
        if claim.stage is Stage.FAILED and path not in ordered:
            stopped.append(f"{path}: {claim.error}; {claim.hint}")
    waiting = lock.state is not State.FREE
    return Standing(
        str(table),
        bool(ordered) or bool(landed.pointers),
        len(landed.closed),
        len(landed.pointers),
        min(landed.pointers, key=lambda path: f"{path}/{SUCCESS}", default=None),
        "absent" if absent else str(lock.state),
        lock.owner if lock.state is State.RUNNING else "",
        lock.state is State.RUNNING and gone(lock.owner),
        lock.path if waiting else "",
        lock.since,
        lock.last,
        sum(claim.stage is Stage.APPLIED for claim in records.values()),
        len({path for path in landed.closed if path not in ordered} - settled),
        tuple(stopped),
        tuple(f"{first} before {second}" for first, second in list(unpadded(ordered))[:NAMED]),
        tuple(_folder(key, table) for key, claim in records.items() if claim.stage is Stage.LATE),
    )


def _claim(bucket: Bucket, key: str) -> Claim | None:
    document = swap.read(bucket, key)
    if not document.exists or "stage" not in document.value:  # the record of a _BACKFILL has none
        return None
    return Claim.parse(key, document.value)


def _folder(key: str, table: Table) -> str:
    return key.removeprefix(table.prefix).rpartition("/")[0]

"""The lock of an ordered table: who is at work on which batch, or why the line stands.

    absent            never begun; or removed by a person, who says with a new _BACKFILL that it may go on
    free              nobody is at work
    running           `owner` applies `path`; if that process is gone, whoever finds it takes over
    failed            `path` could not be applied; the line stands until a person has acted

Every change is a compare-and-set. It keeps the work single; that no batch is applied twice rests on the table's own
history and not on this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from catchment.bucket import swap
from catchment.bucket.contract import Bucket
from catchment.bucket.swap import Document
from catchment.errors import BucketError
from catchment.tables.names import Batch, Publication, Table
from catchment.tables.work import DataFile


class State(StrEnum):
    """What a lock says."""

    FREE = "free"
    RUNNING = "running"
    FAILED = "failed"


@dataclass(frozen=True)
class Lock:
    """What `_lock` says."""

    state: State = State.FREE
    path: str = ""  # of the batch that is being applied, or could not be
    publication: Publication | None = None
    files: tuple[DataFile, ...] = ()  # of that batch, fixed before the first attempt
    owner: str = ""
    epoch: int = 0  # goes up with each owner
    since: str = ""  # when it came to this state, for people
    error: str = ""
    hint: str = ""  # what to run
    last: str | None = None  # the greatest path that was ever applied
    consent: Publication | None = None  # the last _BACKFILL that was used up

    def batch(self, table: Table) -> Batch:
        """The batch it is about. Only of one that is not free."""
        assert self.publication is not None
        return Batch(table, self.path, self.publication)

    def free(self, since: str, *, last: str | None = None) -> Lock:
        greatest = max((one for one in (self.last, last) if one is not None), default=None)
        return Lock(epoch=self.epoch, since=since, last=greatest, consent=self.consent)

    def value(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in ("state", "path", "owner", "epoch", "since", "error", "hint")}
        return {
            **found,
            "last": self.last,
            "publication": _plain(self.publication),
            "consent": _plain(self.consent),
            "files": [{"key": one.key, "etag": one.etag, "size": one.size} for one in self.files],
        }

    @classmethod
    def parse(cls, key: str, value: Mapping[str, Any]) -> Lock:
        """BucketError that names the key if it is no lock."""
        try:
            lock = cls(
                State(value["state"]),
                str(value.get("path", "")),
                _publication(value.get("publication")),
                tuple(DataFile(one["key"], one["etag"], int(one["size"])) for one in value.get("files", ())),
                str(value.get("owner", "")),
                int(value.get("epoch", 0)),
                str(value.get("since", "")),
                str(value.get("error", "")),
                str(value.get("hint", "")),
                value.get("last"),
                _publication(value.get("consent")),
            )
            if lock.state is not State.FREE and lock.publication is None:
                raise ValueError("it names no publication")
        except (KeyError, TypeError, ValueError) as error:
            raise BucketError(
                f"{key} is not a lock that can be read ({error})",
                key=key,
                hint=f"remove it, and then post an empty {key.rpartition('/')[0]}/_BACKFILL",
            ) from error
        return lock


def _plain(one: Publication | None) -> dict[str, str] | None:
    return None if one is None else {"id": one.id, "at": one.at}


def _publication(value: Any) -> Publication | None:
    return None if value is None else Publication(str(value["id"]), str(value["at"]))


@dataclass(frozen=True)
class Held:
    """The lock as it was read, or as we wrote it."""

    table: Table
    document: Document
    lock: Lock

    @property
    def absent(self) -> bool:
        return not self.document.exists

    def change(self, bucket: Bucket, lock: Lock, *, nonce: Callable[[], str] = swap.fresh) -> Held:
        """Write it in place of this one. Conflict if somebody else was first."""
        return replace(self, document=swap.swap(bucket, self.document, lock.value(), nonce=nonce), lock=lock)


def read(bucket: Bucket, table: Table) -> Held:
    """One read. A lock that a person removed is free, and remembers nothing."""
    document = swap.read(bucket, table.lock)
    return Held(table, document, Lock.parse(document.key, document.value) if document.exists else Lock())

"""The record of one publication of one batch: `_claimed__SUCCESS_created_at_…`, beside its `_SUCCESS`.

    published     it was put into the backlog, and waits for its turn (or a person took it out)
    running       an unordered batch, being applied by `owner`
    applied       it is in the table
    skipped       a person said that it is not to be applied
    late          it came below a batch that was applied, and the table reports such ones
    failed        it could not be applied

Once applied, skipped or late, it stays so. A record is what makes a listing enough to know which publications are new;
what is in the table, the table says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from catchment.bucket import swap
from catchment.bucket.contract import Bucket
from catchment.bucket.swap import Document
from catchment.errors import BucketError, Conflict
from catchment.tables.names import Batch


class Stage(StrEnum):
    """How far a publication is."""

    PUBLISHED = "published"
    RUNNING = "running"
    APPLIED = "applied"
    SKIPPED = "skipped"
    LATE = "late"
    FAILED = "failed"

    @property
    def over(self) -> bool:
        """Whether nothing more will be done about it."""
        return self in (Stage.APPLIED, Stage.SKIPPED, Stage.LATE)


@dataclass(frozen=True)
class Claim:
    """What a record says."""

    stage: Stage
    publication: str  # its id
    owner: str = ""
    since: str = ""  # for people
    version: int | None = None  # of the table, once it is in
    rows: int | None = None
    seconds: float | None = None
    error: str = ""
    hint: str = ""

    def value(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def parse(cls, key: str, value: Mapping[str, Any]) -> Claim:
        """BucketError that names the key if it is none."""
        try:
            known = {name: value[name] for name in cls.__dataclass_fields__ if name in value}
            return cls(**known | {"stage": Stage(known["stage"]), "publication": str(known["publication"])})
        except (KeyError, TypeError, ValueError) as error:
            raise BucketError(
                f"{key} cannot be understood ({error})", key=key, hint="remove it, and the batch is looked at again"
            ) from error


@dataclass(frozen=True)
class Known:
    """The record as it was read; None if there is none."""

    document: Document
    claim: Claim | None


def read(bucket: Bucket, batch: Batch) -> Known:
    """One read. BucketError if it is the record of another publication: names are made of a digest."""
    document = swap.read(bucket, batch.claim)
    if not document.exists:
        return Known(document, None)
    claim = Claim.parse(document.key, document.value)
    if claim.publication != batch.publication.id:
        raise BucketError(
            f"{document.key} is the record of another publication", key=document.key, hint="publish the batch again"
        )
    return Known(document, claim)


def change(bucket: Bucket, known: Known, claim: Claim, *, nonce: Callable[[], str] = swap.fresh) -> Known:
    """Write it in place of the one that was read. Conflict if somebody else was first."""
    return Known(swap.swap(bucket, known.document, claim.value(), nonce=nonce), claim)


def settle(bucket: Bucket, batch: Batch, claim: Claim, *, nonce: Callable[[], str] = swap.fresh) -> Claim:
    """Say what became of it, unless that is settled already: what is said of it then."""
    while True:
        known = read(bucket, batch)
        if known.claim is not None and known.claim.stage.over:
            return known.claim
        try:
            change(bucket, known, claim, nonce=nonce)
        except Conflict:
            continue
        return claim

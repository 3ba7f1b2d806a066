"""Going forward over what Kafka no longer has, with a manifest that says so."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from catchment.bucket import swap
from catchment.bucket.contract import Bucket
from catchment.clock import isoformat
from catchment.config.topics import Export
from catchment.errors import UsageError
from catchment.topics import finalize, offsets
from catchment.topics.definition import fingerprint
from catchment.topics.identity import Identity
from catchment.topics.manifest import Counts, Manifest
from catchment.topics.names import Place


@dataclass(frozen=True)
class Skipped:
    """What was gone over."""

    group: str
    topic: str
    kafka_partition: int
    first: int
    last: int
    why: str


def skip(
    bucket: Bucket,
    place: Place,
    export: Export,
    identity: Identity,
    partition: int,
    to: int,
    *,
    earliest: int,
    why: str,
    owner: str,
    now: datetime,
    end: int | None = None,
    anything: bool = False,
    nonce: offsets.Nonce = swap.fresh,
) -> Skipped:
    """Commit the range from the committed offset to `to` - 1 as gone over. UsageError if there is nothing to go over.

    Only what Kafka no longer has (below `earliest`) is gone over, unless `anything`; what it does not have yet (from
    `end` on) never is. A range that somebody commits at
    the same moment wins: the put-if-absent decides, and what is left is gone over after it.
    """
    source = identity.source(partition)
    duty = finalize.duty(bucket, place, export, nonce=nonce)
    while True:
        known = offsets.load(bucket, place, source, identity.start(partition), duty)
        first = known.hint.next
        if to <= first:
            raise UsageError(
                f"{place} Kafka partition {partition} is committed up to offset {first - 1} already",
                hint=f"give --to an offset above {first}, or just run: catchment topics export",
            )
        if to > earliest and not anything:
            advice = f"use --to {earliest}" if earliest > first else "run: catchment topics export"
            raise UsageError(
                f"Kafka still has the messages from offset {max(first, earliest)} on",
                hint=f"{advice}, or add --also-readable to leave out messages that could be exported",
            )
        if end is not None and to > end:
            raise UsageError(
                f"Kafka's end is {end}: offset {to} would leave out messages that are not written yet",
                hint=f"give --to an offset up to {end}",
            )
        manifest = Manifest(
            topic=place.topic,
            topic_id=identity.topic_id,
            source=source,
            first=first,
            last=to - 1,
            generation=export.generation,
            fingerprint=fingerprint(export),
            counts=Counts(0, to - first, 0, 0, 0),
            holes=((first, to - 1),),
            owner=owner,
            committed=isoformat(now),
            skipped=why,
        )
        there, ours = offsets.commit(bucket, place, manifest, nonce=nonce)
        duty(there)  # whoever was faster may have died right after
        offsets.advance(bucket, place, source, known, there, now, nonce=nonce)
        if ours:
            return Skipped(place.group, place.topic, partition, first, to - 1, why)

"""The backlog of an ordered table: a pointer for each batch that waits, `_backlog/<path>/_SUCCESS`.

Its body is the publication that it points to. Batches are applied in the order of the pointers' keys.
"""

from __future__ import annotations

import json
from dataclasses import replace

from catchment.bucket.contract import Bucket
from catchment.errors import BucketError, NotFound
from catchment.tables import claim as claims
from catchment.tables.landing import Landed, publication
from catchment.tables.names import Batch, Publication


def point(bucket: Bucket, batch: Batch) -> None:
    """Put the batch into the backlog."""
    value = {"id": batch.publication.id, "at": batch.publication.at}
    bucket.put(batch.pointer, json.dumps(value).encode())


def pointed(bucket: Bucket, landed: Landed, path: str) -> Batch | None:
    """What a pointer points to; None if there is none. An empty one, which a person put, means what is there now."""
    key = landed.table.pointer(path)
    try:
        body = bucket.read(key).body
        if not body.strip():
            now = publication(bucket, landed.success(path))
            return None if now is None else Batch(landed.table, path, now)
        value = json.loads(body)
        return Batch(landed.table, path, Publication(str(value["id"]), str(value["at"])))
    except NotFound:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise BucketError(
            f"{key} is no pointer that can be read ({error!r})", key=key, hint="remove it, and publish its batch again"
        ) from error


def unpoint(bucket: Bucket, landed: Landed, batch: Batch) -> None:
    """Remove the pointer to a batch that is settled. What was published since is pointed to again."""
    found = pointed(bucket, landed, batch.path)
    if found is not None and found.publication == batch.publication:
        bucket.delete(batch.pointer)
    now = publication(bucket, landed.success(batch.path))
    if now is None or now == batch.publication:
        return
    newer = replace(batch, publication=now)
    known = claims.read(bucket, newer).claim
    if known is None or not known.stage.over:
        point(bucket, newer)

"""What a store can do, found out by doing it. What its documentation says does not count."""

from __future__ import annotations

import secrets

from catchment.bucket.contract import ABSENT, Bucket, Support, matches
from catchment.errors import BucketError, Conflict, Denied, StorageFull, Transient, Unsupported

PREFIX = "_catchment/probe/"


def probe(bucket: Bucket) -> Support:
    """Write a few small objects under `_catchment/probe/`, see what happens, and remove them.

    Raises what a put raises if the bucket cannot be written at all. A store that ignores a precondition, or that
    refuses one with an error of its own, does not support it.
    """
    key = PREFIX + secrets.token_hex(8)
    stale = bucket.put(key, b"one").etag
    try:
        return Support(
            matches=_matches(bucket, key, stale),
            absent=_refused(bucket, key, stale_etag=None) and _accepted_absent(bucket, f"{key}-absent"),
            tags=_tags(bucket, key),
            versions=_versions(bucket, key),
        )
    finally:
        for name in (key, f"{key}-absent"):
            _remove(bucket, name)


def _accepted_absent(bucket: Bucket, key: str) -> bool:
    """A put-if-absent of a new key works once, and not twice."""
    try:
        bucket.put(key, b"one", when=ABSENT)
    except (Transient, Denied, StorageFull):
        raise
    except BucketError:
        return False
    return _refused(bucket, key, stale_etag=None)


def _matches(bucket: Bucket, key: str, etag: str) -> bool:
    """A put that matches the current ETag works, and the same again is refused because the ETag is stale by then."""
    try:
        bucket.put(key, b"two", when=matches(etag))
    except (Transient, Denied, StorageFull):
        raise
    except BucketError:
        return False
    return _refused(bucket, key, stale_etag=etag)


def _refused(bucket: Bucket, key: str, *, stale_etag: str | None) -> bool:
    when = ABSENT if stale_etag is None else matches(stale_etag)
    try:
        bucket.put(key, b"three", when=when)
    except Conflict:
        return True
    except (Transient, Denied, StorageFull):
        raise
    except BucketError:
        return False
    return False


def _tags(bucket: Bucket, key: str) -> bool:
    try:
        bucket.put(key, b"four", tags={"probe": "yes"})
        return bucket.tags(key) == {"probe": "yes"}
    except (Transient, StorageFull):
        raise
    except BucketError:
        return False


def _versions(bucket: Bucket, key: str) -> bool:
    try:
        return len(bucket.versions(key)) > 1
    except Transient:
        raise
    except BucketError:
        return False


def _remove(bucket: Bucket, key: str) -> None:
    try:
        for version in bucket.versions(key):
            bucket.delete(key, version=version.version)
    except BucketError:  # no versions here, or none that these credentials may list or remove
        bucket.delete(key)


def must_compare_and_set(bucket: Bucket, why: str) -> None:
    """Unsupported unless the store honours conditional writes; `why` says what they are needed for."""
    if not probe(bucket).compare_and_set:
        raise Unsupported(
            f"{bucket.name} does not honour conditional writes, and {why}",
            hint="use a local directory, or a store that honours If-None-Match and If-Match on put",
        )

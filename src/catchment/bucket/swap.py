"""Compare-and-set of small JSON objects: the step on which leases, claims, locks and commits rest.

Three rules, each learned from a failure seen on a real server:

- The body carries a fresh nonce. If the reply to a put is lost, the retry is told Conflict by its own first attempt.
  So on Conflict the object is read back, and if the nonce is ours, we won.
- Such a key is never deleted and never copied onto. Letting go of it is a put that says so.
- What was read is what is compared: `read` gives the document and the ETag that a following `swap` must match.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from catchment.bucket.contract import ABSENT, Bucket, matches
from catchment.errors import BucketError, Conflict, NotFound

NONCE = "nonce"


@dataclass(frozen=True)
class Document:
    """A JSON object as it was read, or as it was just written."""

    key: str
    etag: str | None  # None: nothing is there
    value: Mapping[str, Any]

    @property
    def exists(self) -> bool:
        return self.etag is not None


def read(bucket: Bucket, key: str) -> Document:
    """The document and its ETag; an absent one has no ETag. BucketError if it is not one of ours."""
    try:
        found = bucket.read(key)
    except NotFound:
        return Document(key, None, {})
    return Document(key, found.stat.etag, _parse(key, found.body))


def fresh() -> str:
    """A nonce that no other write ever had."""
    return secrets.token_hex(8)


def swap(bucket: Bucket, before: Document, value: Mapping[str, Any], *, nonce: Callable[[], str] = fresh) -> Document:
    """Write value in place of `before`, which must still be there. Conflict if somebody else was first."""
    mark = nonce()
    body = json.dumps({**value, NONCE: mark}, sort_keys=True).encode()
    when = ABSENT if before.etag is None else matches(before.etag)
    try:
        stat = bucket.put(before.key, body, when=when)
    except Conflict:
        now = read(bucket, before.key)
        if now.value.get(NONCE) != mark:
            raise
        return now  # the reply was lost, the write was not
    return Document(before.key, stat.etag, {**value, NONCE: mark})


def _parse(key: str, body: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise BucketError(
            f"{key} is not the JSON object that belongs there", key=key, hint="look at it, and move it away by hand"
        )
    return value

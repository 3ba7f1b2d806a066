"""The stores that keep the contract, each behind the same few lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from catchment.bucket.contract import Bucket
from catchment.bucket.local import LocalBucket
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.s3 import S3Bucket
from catchment.testing.s3 import S3Server

STORES = ["memory", "local", "moto", "versitygw"]


@dataclass(frozen=True)
class Store:
    """One place that objects are kept in. `open` gives a new client of it, as another process would have."""

    kind: str
    open: Callable[[], Bucket]
    server: S3Server | None = None
    bucket_name: str = ""
    root: Path | None = None


def make_store(request: pytest.FixtureRequest, kind: str, tmp_path: Path, *, versioning: bool = True) -> Store:
    if kind == "memory":
        memory = MemoryBucket()
        return Store(kind, lambda: memory)
    if kind == "local":
        root = tmp_path / "lake"
        root.mkdir()
        keep = 20 if versioning else 0
        return Store(kind, lambda: LocalBucket(root, keep_versions=keep, durable=False), root=root)
    server: S3Server = request.getfixturevalue("s3" if kind == "versitygw" else "moto")
    name = server.fresh_bucket(versioning=versioning)
    return Store(kind, lambda: s3_client(server, name), server=server, bucket_name=name)


def s3_client(server: S3Server, name: str, *, prefix: str = "some/prefix", page_size: int = 1000) -> S3Bucket:
    return server.bucket(name, prefix=prefix, page_size=page_size, timeout=30)

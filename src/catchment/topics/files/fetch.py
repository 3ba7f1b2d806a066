"""An object on this machine while it is read: in memory if it is small, else on disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO

from catchment.bucket.contract import Bucket

IN_MEMORY = 32_000_000  # bytes


@contextmanager
def fetched(bucket: Bucket, key: str, scratch: Path | None = None, *, etag: str | None = None) -> Iterator[IO[bytes]]:
    """The object, from its beginning, as long as the block runs. Raises what `bucket.open` raises.

    scratch: the folder for large ones.
    """
    if scratch is not None:
        scratch.mkdir(parents=True, exist_ok=True)
    with SpooledTemporaryFile(max_size=IN_MEMORY, dir=str(scratch) if scratch else None) as local:
        with bucket.open(key, etag=etag) as stream:
            shutil.copyfileobj(stream, local, 1 << 20)
        local.seek(0)
        yield local

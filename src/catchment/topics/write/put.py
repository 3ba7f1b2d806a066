"""Putting finished files under their final names, a few at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from catchment.bucket.contract import ABSENT, Body, Bucket, Stat
from catchment.errors import BucketError, Conflict, NotFound
from catchment.topics.files.fetch import fetched
from catchment.topics.files.format import Damaged, FileFormat

AT_ONCE = 4  # a put to S3 is mostly waiting; each holds one finished file


def put_file(bucket: Bucket, key: str, body: Body, rows: int, format: FileFormat, scratch: Path | None = None) -> Stat:
    """The object under this key: ours, or the one that another attempt at the same range put before us.

    A name says which rows its object has, so what is there already is left as it is: a manifest may list it.
    BucketError if it does not have as many rows after all; then somebody must look.
    """
    try:
        return bucket.put(key, body, when=ABSENT)
    except Conflict:
        try:
            there = bucket.head(key)
        except NotFound:  # some servers remember a deleted object for a while
            return bucket.put(key, body)
    size = len(body) if isinstance(body, bytes) else body.stat().st_size
    # Another version of the writer packs otherwise.
    if there.size != size and (found := _rows(bucket, there, format, scratch)) != rows:
        raise BucketError(
            f"{key} is there {'and cannot be read' if found is None else f'with {found} rows'}, and this attempt at the"
            f" same range has {rows}",
            key=key,
            hint="no manifest may list both: run 'catchment topics verify', and move the object away by hand",
        )
    return there


def _rows(bucket: Bucket, there: Stat, format: FileFormat, scratch: Path | None) -> int | None:
    """None: it cannot be read."""
    with fetched(bucket, there.key, scratch, etag=there.etag) as local:
        try:
            return format.count(local)
        except Damaged:
            return None


class Puts:
    """Puts in the background, at most a few at once. Local files are removed once they are put, or were not.

    The first failure is raised when the next file is added or in `wait`. Leaving the block waits for what is under way.
    """

    def __init__(self, bucket: Bucket, scratch: Path | None = None, *, at_once: int = AT_ONCE) -> None:
        self._bucket, self._scratch, self._at_once = bucket, scratch, at_once
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="put")
        self._under_way: deque[tuple[Future[Stat], Callable[[Stat], None]]] = deque()

    def __enter__(self) -> Puts:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._threads.shutdown(cancel_futures=True)

    def add(self, key: str, body: Body, rows: int, format: FileFormat, then: Callable[[Stat], None]) -> None:
        """Put this next. `then` is called here with what was put, in the order of adding."""
        while len(self._under_way) >= self._at_once:
            self._take()
        self._under_way.append((self._threads.submit(self._put, key, body, rows, format), then))

    def wait(self) -> None:
        """Until all is put."""
        while self._under_way:
            self._take()

    def _take(self) -> None:
        future, then = self._under_way.popleft()
        then(future.result())

    def _put(self, key: str, body: Body, rows: int, format: FileFormat) -> Stat:
        try:
            return put_file(self._bucket, key, body, rows, format, self._scratch)
        finally:
            if isinstance(body, Path):
                body.unlink(missing_ok=True)

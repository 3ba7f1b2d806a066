"""A bucket that fails at the n-th call: before it took effect, or after."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import BinaryIO, TypeVar

from catchment.bucket.contract import Bucket, Entry, Folder
from catchment.bucket.wrap import Wrapper
from catchment.errors import Unreachable

T = TypeVar("T")


class Died(BaseException):
    """The process is gone. Not an Exception, so that no `except Exception` of the code under test survives it."""


class DyingBucket(Wrapper):
    """Counts calls, and at call `at` (1, 2, …) raises: `before` it reached the store or `after` it took effect.

    With `error=Died` (the default) the process is gone, and every later call raises as well. With an instance of an
    Exception, such as a lost reply, only that one call fails:

        for at in count(1):
            bucket = DyingBucket(memory, at=at, when="after")
            with suppress(Died):
                task(bucket)
            if bucket.calls < at:
                break          # the task made fewer calls: every one of them has had its turn
            task(memory)       # start again, and compare with a clean run
    """

    def __init__(self, inner: Bucket, *, at: int, when: str = "before", error: BaseException | None = None) -> None:
        super().__init__(inner)
        if when not in ("before", "after"):
            raise ValueError("when is 'before' or 'after'")
        self.calls = 0
        self.log: list[str] = []  # what was called, in order
        self._at, self._when, self._error = at, when, error
        self._dead = False
        self._lock = threading.Lock()

    def _call(self, operation: str, key: str, do: Callable[[], T]) -> T:
        with self._lock:
            if self._dead:
                raise Died
            self.calls += 1
            self.log.append(f"{operation} {key}")
            mine = self.calls == self._at
            if mine and (self._error is None or isinstance(self._error, Died)):
                self._dead = True
        if mine and self._when == "before":
            raise self._error or Died
        result = do()
        if mine:
            raise self._error or Died
        return result

    @contextmanager
    def open(self, key: str, *, version: str | None = None, etag: str | None = None) -> Iterator[BinaryIO]:
        yield BytesIO(self._call("open", key, lambda: self.inner.get(key, version=version, etag=etag)))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[Entry]:
        return self._call("list", prefix, lambda: iter([*self.inner.list(prefix, after=after)]))

    def children(self, prefix: str = "", *, after: str = "") -> Iterator[Entry | Folder]:
        return self._call("children", prefix, lambda: iter([*self.inner.children(prefix, after=after)]))


def lost_reply(key: str = "") -> Unreachable:
    """What a client sees when a connection breaks before the answer: it cannot know whether the call took effect."""
    return Unreachable(f"{key or 'the call'}: the connection broke before the answer", key=key, hint="look, then retry")

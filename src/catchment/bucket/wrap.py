"""Buckets around buckets: `Counting(Retrying(S3Bucket(...)))`. Each does one thing and keeps the whole contract."""

from __future__ import annotations

import io
import logging
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeVar, cast

from catchment.bucket.contract import ANY, Body, Bucket, Entry, Folder, Object, Precondition, Stat, Tags, Version
from catchment.clock import SYSTEM, Clock
from catchment.errors import Transient

log = logging.getLogger(__name__)
T = TypeVar("T")


class Wrapper(Bucket):
    """Passes everything on, through `_call`. A wrapper overrides that one method, and streams where it has to."""

    def __init__(self, inner: Bucket) -> None:
        self.inner = inner
        self.name = inner.name

    def _call(self, operation: str, key: str, do: Callable[[], T]) -> T:
        return do()

    def put(self, key: str, body: Body, *, when: Precondition = ANY, tags: Tags | None = None) -> Stat:
        return self._call("put", key, lambda: self.inner.put(key, body, when=when, tags=tags))

    @contextmanager
    def open(self, key: str, *, version: str | None = None, etag: str | None = None) -> Iterator[BinaryIO]:
        with ExitStack() as opened:
            yield self._call(
                "open", key, lambda: opened.enter_context(self.inner.open(key, version=version, etag=etag))
            )

    def get(self, key: str, *, version: str | None = None, etag: str | None = None) -> bytes:
        return self._call("get", key, lambda: self.inner.get(key, version=version, etag=etag))

    def read(self, key: str, *, version: str | None = None) -> Object:
        return self._call("read", key, lambda: self.inner.read(key, version=version))

    def head(self, key: str, *, version: str | None = None) -> Stat:
        return self._call("head", key, lambda: self.inner.head(key, version=version))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[Entry]:
        return self._call("list", prefix, lambda: self.inner.list(prefix, after=after))

    def children(self, prefix: str = "", *, after: str = "") -> Iterator[Entry | Folder]:
        return self._call("children", prefix, lambda: self.inner.children(prefix, after=after))

    def delete(self, key: str, *, version: str | None = None) -> None:
        return self._call("delete", key, lambda: self.inner.delete(key, version=version))

    def copy(self, source: str, target: str, *, version: str | None = None, tags: Tags | None = None) -> Stat:
        return self._call("copy", target, lambda: self.inner.copy(source, target, version=version, tags=tags))

    def tags(self, key: str, *, version: str | None = None) -> dict[str, str]:
        return self._call("tags", key, lambda: self.inner.tags(key, version=version))

    def tag(self, key: str, tags: Tags, *, version: str | None = None) -> None:
        return self._call("tag", key, lambda: self.inner.tag(key, tags, version=version))

    def versions(self, key: str) -> Sequence[Version]:
        return self._call("versions", key, lambda: self.inner.versions(key))

    def check(self) -> None:
        return self._call("check", "", self.inner.check)

    def close(self) -> None:
        self.inner.close()


@dataclass(frozen=True)
class Backoff:
    """How long to go on trying, and how long to wait in between."""

    attempts: int = 6  # in all, the first one included
    first: float = 0.2  # seconds before the second attempt; each wait is up to twice the one before
    longest: float = 10.0

    def wait(self, attempt: int, chance: float) -> float:
        """Seconds to wait after this attempt (1, 2, …) failed: half of it fixed, half of it by chance in [0, 1)."""
        full = min(self.longest, self.first * 2.0 ** (attempt - 1))
        return full * (0.5 + chance / 2)


class Retrying(Wrapper):
    """Tries again what is Transient, with backoff and jitter. Everything else is raised at once.

    A put with a precondition whose reply was lost may be told Conflict by its own first attempt: `swap` reads back.
    A listing goes on after the last key it gave. A stream that breaks half-way raises, because the reader has already
    seen the first half; `get` starts over.
    """

    def __init__(
        self,
        inner: Bucket,
        *,
        backoff: Backoff | None = None,
        clock: Clock = SYSTEM,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(inner)
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._chance = chance

    def _call(self, operation: str, key: str, do: Callable[[], T]) -> T:
        attempt = 1
        while True:
            try:
                return do()
            except Transient as error:
                if attempt >= self._backoff.attempts:
                    raise
                self._pause(attempt, operation, error)
                attempt += 1

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[Entry]:
        return self._resumed("list", after, lambda start: self.inner.list(prefix, after=start))

    def children(self, prefix: str = "", *, after: str = "") -> Iterator[Entry | Folder]:
        return self._resumed("children", after, lambda start: self.inner.children(prefix, after=start))

    def _resumed(self, operation: str, after: str, listing: Callable[[str], Iterator[Any]]) -> Iterator[Any]:
        attempt = 1
        while True:
            try:
                for item in listing(after):
                    yield item
                    after, attempt = item.key, 1
                return
            except Transient as error:
                if attempt >= self._backoff.attempts:
                    raise
                self._pause(attempt, operation, error)
                attempt += 1

    def _pause(self, attempt: int, operation: str, error: Transient) -> None:
        seconds = self._backoff.wait(attempt, self._chance())
        log.info("%s failed (%s); attempt %d follows in %.1f s", operation, error, attempt + 1, seconds)
        self._clock.sleep(seconds)


@dataclass
class Counts:
    """What went over the wire. Safe to add to from threads."""

    requests: Counter[str] = field(default_factory=Counter)
    sent: int = 0  # bytes of bodies
    received: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, operation: str = "", *, sent: int = 0, received: int = 0) -> None:
        with self._lock:
            if operation:
                self.requests[operation] += 1
            self.sent += sent
            self.received += received

    @property
    def total(self) -> int:
        return sum(self.requests.values())


class Counting(Wrapper):
    """Counts bytes, and requests. An S3 bucket reports its requests by itself (`on_request`), pages and parts
    included; for the others a call is a request (`calls=True`)."""

    def __init__(self, inner: Bucket, counts: Counts | None = None, *, calls: bool = True) -> None:
        super().__init__(inner)
        self.counts = counts or Counts()
        self._calls = calls

    def _call(self, operation: str, key: str, do: Callable[[], T]) -> T:
        if self._calls:
            self.counts.add(operation)
        return do()

    def put(self, key: str, body: Body, *, when: Precondition = ANY, tags: Tags | None = None) -> Stat:
        stat = super().put(key, body, when=when, tags=tags)
        self.counts.add(sent=stat.size)
        return stat

    def get(self, key: str, *, version: str | None = None, etag: str | None = None) -> bytes:
        body = super().get(key, version=version, etag=etag)
        self.counts.add(received=len(body))
        return body

    def read(self, key: str, *, version: str | None = None) -> Object:
        found = super().read(key, version=version)
        self.counts.add(received=len(found.body))
        return found

    @contextmanager
    def open(self, key: str, *, version: str | None = None, etag: str | None = None) -> Iterator[BinaryIO]:
        with super().open(key, version=version, etag=etag) as stream:
            yield cast(BinaryIO, io.BufferedReader(_Counted(stream, self.counts), 1 << 16))


class _Counted(io.RawIOBase):
    def __init__(self, stream: BinaryIO, counts: Counts) -> None:
        super().__init__()
        self._stream, self._counts = stream, counts

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        chunk = self._stream.read(len(buffer))
        buffer[: len(chunk)] = chunk
        self._counts.add(received=len(chunk))
        return len(chunk)

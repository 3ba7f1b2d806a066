"""A bucket in memory: the reference behaviour, and what models and unit tests run on."""

from __future__ import annotations

import hashlib
import io
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import BinaryIO

from catchment.bucket.contract import (
    ANY,
    Body,
    Bucket,
    Entry,
    Folder,
    Object,
    Precondition,
    Stat,
    Tags,
    Version,
    check_key,
    check_tags,
    fold,
)
from catchment.clock import SYSTEM, Clock
from catchment.errors import NotFound, Unsupported


@dataclass(frozen=True)
class _Held:
    """One version of one key."""

    version: str | None  # None where no versions are kept
    content: bytes
    etag: str
    modified: datetime
    tags: dict[str, str] = field(default_factory=dict)
    deleted: bool = False


class MemoryBucket(Bucket):
    """All versions of everything, behind one lock. Nothing survives the process."""

    def __init__(self, *, name: str = "memory", clock: Clock = SYSTEM, versions: bool = True) -> None:
        """versions: False for a store that keeps only what is current."""
        self.name = name
        self._clock = clock
        self._versioned = versions
        self._lock = threading.RLock()
        self._keys: dict[str, list[_Held]] = {}  # oldest first; the last one is current
        self._made: Counter[str] = Counter()  # versions ever made of each key, so that no id comes twice

    def put(self, key: str, body: Body, *, when: Precondition = ANY, tags: Tags | None = None) -> Stat:
        check_key(key)
        held_tags = check_tags(tags)
        content = body if isinstance(body, bytes) else body.read_bytes()
        with self._lock:
            current = self._current(key)
            when.check(key, current.etag if current else None)
            return self._add(key, content, held_tags)

    @contextmanager
    def open(self, key: str, *, version: str | None = None, etag: str | None = None) -> Iterator[BinaryIO]:
        held = self._find(key, version)
        if etag is not None:
            Precondition(etag=etag).check(key, held.etag)
        yield io.BytesIO(held.content)

    def read(self, key: str, *, version: str | None = None) -> Object:
        held = self._find(key, version)
        return Object(_stat(key, held), held.content)

    def head(self, key: str, *, version: str | None = None) -> Stat:
        return _stat(key, self._find(key, version))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[Entry]:
        with self._lock:
            found = [
                Entry(key=key, size=len(held.content), modified=held.modified, etag=held.etag)
                for key in sorted(self._keys)
                if key.startswith(prefix) and key > after and (held := self._current(key)) is not None
            ]
        return iter(found)

    def children(self, prefix: str = "", *, after: str = "") -> Iterator[Entry | Folder]:
        return fold(self.list(prefix), prefix, after)

    def delete(self, key: str, *, version: str | None = None) -> None:
        check_key(key)
        with self._lock:
            if version is not None:
                left = [held for held in self._keys.get(key, []) if held.version != version]
                if left:
                    self._keys[key] = left
                else:
                    self._keys.pop(key, None)
            elif not self._versioned:
                self._keys.pop(key, None)
            elif self._current(key) is not None:
                self._keys[key].append(_Held(self._next(key), b"", "", self._clock.now(), deleted=True))

    def copy(self, source: str, target: str, *, version: str | None = None, tags: Tags | None = None) -> Stat:
        check_key(target)
        given = None if tags is None else check_tags(tags)
        with self._lock:
            held = self._find(source, version)
            return self._add(target, held.content, held.tags if given is None else given)

    def tags(self, key: str, *, version: str | None = None) -> dict[str, str]:
        return dict(self._find(key, version).tags)

    def tag(self, key: str, tags: Tags, *, version: str | None = None) -> None:
        given = check_tags(tags)
        with self._lock:
            found = self._find(key, version)
            self._keys[key] = [replace(held, tags=given) if held is found else held for held in self._keys[key]]

    def versions(self, key: str) -> Sequence[Version]:
        check_key(key)
        if not self._versioned:
            raise Unsupported(f"{self.name} keeps no versions", key=key)
        with self._lock:
            history = self._keys.get(key, [])
            return [
                Version(
                    key,
                    held.version or "",
                    len(held.content),
                    held.etag,
                    held.modified,
                    held is history[-1],
                    held.deleted,
                )
                for held in reversed(history)
            ]

    def check(self) -> None:
        """Memory is always there."""

    def fork(self) -> MemoryBucket:
        """Another bucket with the same content and history, which goes its own way from here."""
        with self._lock:
            other = MemoryBucket(name=self.name, clock=self._clock, versions=self._versioned)
            other._keys = {key: [*history] for key, history in self._keys.items()}
            other._made = self._made.copy()
            return other

    def state(self) -> tuple[tuple[str, bytes, tuple[tuple[str, str], ...]], ...]:
        """Every current object with its content and tags, hashable: what a model compares."""
        with self._lock:
            return tuple(
                (key, held.content, tuple(sorted(held.tags.items())))
                for key in sorted(self._keys)
                if (held := self._current(key)) is not None
            )

    def history(self) -> tuple[tuple[str, tuple[tuple[str | None, str, bool, tuple[tuple[str, str], ...]], ...]], ...]:
        """Every version of every key, hashable: all that a later call could see."""
        with self._lock:
            return tuple(
                (key, tuple((h.version, h.etag, h.deleted, tuple(sorted(h.tags.items()))) for h in self._keys[key]))
                for key in sorted(self._keys)
            )

    def _current(self, key: str) -> _Held | None:
        history = self._keys.get(key)
        return history[-1] if history and not history[-1].deleted else None

    def _find(self, key: str, version: str | None) -> _Held:
        check_key(key)
        with self._lock:
            if version is None:
                found = self._current(key)
            else:
                found = next((h for h in self._keys.get(key, []) if h.version == version and not h.deleted), None)
        if found is None:
            raise NotFound(f"{key} is not in {self.name}" + (f" as version {version}" if version else ""), key=key)
        return found

    def _add(self, key: str, content: bytes, tags: dict[str, str]) -> Stat:
        version = self._next(key) if self._versioned else None
        held = _Held(version, content, hashlib.sha256(content).hexdigest()[:32], self._clock.now(), tags)
        if self._versioned:
            self._keys.setdefault(key, []).append(held)
        else:
            self._keys[key] = [held]
        return _stat(key, held)

    def _next(self, key: str) -> str:
        self._made[key] += 1
        return f"v{self._made[key]:08d}"


def _stat(key: str, held: _Held) -> Stat:
    return Stat(key=key, size=len(held.content), etag=held.etag, modified=held.modified, version=held.version)

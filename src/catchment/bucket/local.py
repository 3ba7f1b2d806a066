"""A bucket in a local directory: keys are paths, any program can read them, several processes can write them.

Beside the objects there is one folder, `.catchment/`, for tags, old versions and locks: `beside.py` says what is in it.
"""

from __future__ import annotations

import io
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, cast

from catchment.bucket import files
from catchment.bucket.beside import Beside
from catchment.bucket.contract import (
    ANY,
    RESERVED,
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
from catchment.bucket.walk import walk
from catchment.errors import BadKey, BucketMissing, Conflict, NotFound, Unsupported

log = logging.getLogger(__name__)

_SETTLE_NS = 2_000_000_000  # a foreign file is taken up when it has not changed for this long
_LARGE = 1 << 20  # from this size on, an ETag is worth a file of its own


_Look = tuple[int, int, int, int]


class LocalBucket(Bucket):
    """The contract over a directory.

    keep_versions: how many old versions of each key to keep (0: none, and `versions` is Unsupported).
    durable: fsync each write before it counts. Turn it off only where a power cut may cost the last seconds.
    create_below: make the directory, and those above it up to this one, which has to be there. None: make nothing.
    """

    def __init__(
        self, root: Path | str, *, keep_versions: int = 20, durable: bool = True, create_below: Path | None = None
    ) -> None:
        self._root = Path(os.path.realpath(root))
        self.name = str(self._root)
        self._keep = keep_versions
        self._durable = durable
        self._beside = Beside(self._root / RESERVED, keep=keep_versions, durable=durable)
        self._etags: dict[_Look, str] = {}
        self._ready = False
        if create_below is not None and create_below.is_dir():
            with files.translated(self.name, ""):
                self._root.mkdir(parents=True, exist_ok=True)

    # -- the contract ------------------------------------------------------------------------------------------------

    def put(self, key: str, body: Body, *, when: Precondition = ANY, tags: Tags | None = None) -> Stat:
        path, given = self._path(key), check_tags(tags)
        if isinstance(body, bytes):
            return self._put(key, path, body, when, given)
        with body.open("rb") as stream:
            return self._put(key, path, stream, when, given)

    @contextmanager
    def open(self, key: str, *, version: str | None = None, etag: str | None = None) -> Iterator[BinaryIO]:
        with files.translated(self.name, key):
            raw = self._steady(key, version)
        with raw:
            if etag is not None:
                Precondition(etag=etag).check(key, self._etag(key, raw))
            raw.seek(0)
            # BufferedReader is what `open(path, "rb")` returns, and BinaryIO in all but name.
            yield cast(BinaryIO, io.BufferedReader(raw, files.CHUNK))

    def read(self, key: str, *, version: str | None = None) -> Object:
        with files.translated(self.name, key), self._steady(key, version) as raw:
            body = raw.readall()
            return Object(self._stat(key, raw.stat, files.digest_of(body)), body)

    def head(self, key: str, *, version: str | None = None) -> Stat:
        with files.translated(self.name, key), self._steady(key, version) as raw:
            return self._stat(key, raw.stat, self._etag(key, raw))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[Entry]:
        return self._listed(prefix, after, depth=0)

    def children(self, prefix: str = "", *, after: str = "") -> Iterator[Entry | Folder]:
        if prefix and not prefix.endswith("/"):
            yield from fold(self.list(prefix), prefix, after)
            return
        for entry in self._listed(prefix, "", depth=1):
            if entry.key <= after:
                continue
            if not entry.key.endswith("/"):
                yield entry
            elif next(iter(walk(self._root, entry.key, "")), None) is not None:  # it counts if it holds an object
                yield Folder(entry.key)

    def _listed(self, prefix: str, after: str, *, depth: int) -> Iterator[Entry]:
        self._must_be_there()
        begun = os.stat(self._root)
        known, fresh = self._etags.get, time.time_ns() - _SETTLE_NS
        for key, stat in walk(self._root, prefix, after, depth=depth):
            settled = stat.st_mtime_ns < fresh or files.stamped(stat)
            yield Entry(key, stat.st_size, _moment(stat), known(_look(stat)), settled)
        # Had the directory been moved or unmounted meanwhile, the rest of it would look empty.
        self._must_be_there()
        if not os.path.samestat(begun, os.stat(self._root)):
            raise BucketMissing(f"{self.name} was replaced while it was listed", hint="list it again")

    def delete(self, key: str, *, version: str | None = None) -> None:
        path = self._path(key)
        self._must_be_there()
        with files.translated(self.name, key), self._beside.locked(key):
            if version is not None:
                self._delete_version(key, path, version)
            elif (stat := _regular(path)) is not None:
                self._beside.archive(key, path)
                self._beside.mark_deleted(key)
                path.unlink()
                if self._keep == 0:
                    self._beside.drop_tags(key, files.identity(stat))
                self._beside.prune(key)
            if self._durable:
                files.sync_folder(path.parent)
            self._drop_empty_folders(path.parent)

    def _delete_version(self, key: str, path: Path, version: str) -> None:
        stat = _regular(path)
        top = self._beside.old(key)[-1:]
        self._beside.forget(key, version)  # also where a crash left the current one among the old
        left = self._beside.old(key)
        before = left[-1].path if left and not left[-1].deleted else None
        if stat is not None and files.identity(stat) == version:
            if before is not None:
                os.rename(before, path)  # the one before is current again, in one step
            else:
                path.unlink()
            self._beside.drop_tags(key, version)
        elif stat is None and top and top[0].version == version and top[0].deleted and before is not None:
            files.move(before, path, exclusive=False, durable=self._durable)  # the mark is gone: not deleted after all

    def copy(self, source: str, target: str, *, version: str | None = None, tags: Tags | None = None) -> Stat:
        path = self._path(target)
        given = None if tags is None else check_tags(tags)
        with files.translated(self.name, source):
            raw, kept = self._tagged(source, version)
        with raw:
            return self._put(target, path, raw, ANY, kept if given is None else given)

    def tags(self, key: str, *, version: str | None = None) -> dict[str, str]:
        with files.translated(self.name, key):
            raw, found = self._tagged(key, version)
        raw.close()
        return found

    def tag(self, key: str, tags: Tags, *, version: str | None = None) -> None:
        given = check_tags(tags)
        self._path(key)
        self._must_be_there()
        with files.translated(self.name, key), self._beside.locked(key), self._steady(key, version) as raw:
            self._beside.set_tags(key, self._tagged_as(raw.stat, partial(self._etag, key, raw)), given)

    def versions(self, key: str) -> Sequence[Version]:
        path = self._path(key)
        if self._keep == 0:
            raise Unsupported(
                f"{self.name} keeps no versions", key=key, hint="set versions: 20 on this object storage to keep some"
            )
        self._must_be_there()
        found: list[Version] = []
        with files.translated(self.name, key), self._beside.locked(key):
            if _regular(path) is not None:
                with self._steady(key, None) as raw:
                    stat, etag = raw.stat, self._etag(key, raw)
                found.append(Version(key, files.identity(stat), stat.st_size, etag, _moment(stat), True))
            seen = {version.version for version in found}
            for old in reversed(self._beside.old(key)):
                with files.SteadyFile(old.path, key) as raw:
                    moment = _moment(raw.stat)
                    if old.deleted:
                        found.append(Version(key, old.version, 0, "", moment, not found, deleted=True))
                    elif old.version not in seen and files.identity(raw.stat) == old.version:
                        etag = self._etag(key, raw)
                        found.append(Version(key, old.version, raw.stat.st_size, etag, moment, not found))
        return found

    def check(self) -> None:
        self._must_be_there()
        with files.translated(self.name, ""):
            os.listdir(self._root)

    # -- how ---------------------------------------------------------------------------------------------------------

    def _put(
        self, key: str, path: Path, body: bytes | IO[bytes] | io.RawIOBase, when: Precondition, tags: dict[str, str]
    ) -> Stat:
        self._must_be_there()
        with files.translated(self.name, key):
            aside = self._beside.aside()
            etag = files.write_aside(aside, body, durable=self._durable)
            try:
                with self._beside.locked(key):
                    # 1 judge
                    now = _regular(path)
                    if when is not ANY:
                        when.check(key, self._current_etag(key, path))
                    # 2 the file's time is its version: above every one that there was
                    stat = aside.stat()
                    if stat.st_mtime_ns <= (newest := self._newest(key, now)):
                        stat = files.stamp(aside, above=newest)
                    # 3 tags, under the new version's name
                    if tags or not files.stamped(stat):
                        self._beside.set_tags(key, self._tagged_as(stat, lambda: etag), tags)
                    # 4 keep what is there
                    if now is not None:
                        self._beside.archive(key, path)
                    # 5 rename: this is the put
                    try:
                        files.move(aside, path, exclusive=when.absent, durable=self._durable)
                    except FileExistsError:
                        if when.absent and path.is_file():
                            raise Conflict(f"{key} is there already", key=key) from None
                        raise
                    if now is not None and self._keep == 0:
                        self._beside.drop_tags(key, files.identity(now))
                    elif self._keep:
                        self._beside.prune(key)
                    self._remember(key, stat, etag)
            finally:
                aside.unlink(missing_ok=True)
        return self._stat(key, stat, etag)

    def _newest(self, key: str, now: os.stat_result | None) -> int:
        """The latest modification time that a version of this key has or had."""
        old = [int(one.version.partition("-")[0]) for one in self._beside.old(key)[-2:] if not one.deleted]
        return max([now.st_mtime_ns if now else 0, *old])

    def _path(self, key: str) -> Path:
        check_key(key)
        path = self._root / key
        # A symbolic link inside the directory must not lead a key out of it.
        if os.path.realpath(path.parent) != str(path.parent) or os.path.islink(path):
            real = os.path.realpath(path)
            inside = f"{self.name.rstrip('/')}/"
            if not real.startswith(inside) or f"{real}/".startswith(f"{self._beside.folder}/"):
                raise BadKey(
                    f"key {key!r} leads out of {self.name} through a symbolic link",
                    key=key,
                    hint="mount the other folder there, or make it a storage of its own",
                )
        return path

    def _steady(self, key: str, version: str | None) -> files.SteadyFile:
        """The file of a version (None: the current one), opened. NotFound if there is none."""
        path = self._path(key)
        self._must_be_there()
        # Several looks, because a version may move between the key and the old ones while we look at the other.
        for _ in range(5 if version else 1):
            with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                raw = files.SteadyFile(path, key)
                if version is None or files.identity(raw.stat) == version:
                    return raw
                raw.close()
            for old in self._beside.old(key) if version else ():
                if old.version == version and not old.deleted:
                    with suppress(FileNotFoundError):
                        raw = files.SteadyFile(old.path, key)
                        # A program that still wrote to the file when we kept it made it something else.
                        if files.identity(raw.stat) == version:
                            return raw
                        raw.close()
        raise NotFound(f"{key} is not in {self.name}" + (f" as version {version}" if version else ""), key=key)

    def _tagged(self, key: str, version: str | None) -> tuple[files.SteadyFile, dict[str, str]]:
        """The file of a version, opened, and its tags."""
        while True:
            raw = self._steady(key, version)
            found = self._beside.tags(key, self._tagged_as(raw.stat, partial(self._etag, key, raw)))
            if found or self._is_there(key, files.identity(raw.stat)):
                return raw, found
            raw.close()  # replaced and forgotten between the two looks: its tags went after it

    def _is_there(self, key: str, version: str) -> bool:
        try:
            self._steady(key, version).close()
        except NotFound:
            return False
        return True

    def _tagged_as(self, stat: os.stat_result, etag: Callable[[], str]) -> str:
        """What the tags of this file are called. Other programs can give new content an old time, so there the
        content counts too."""
        return files.identity(stat) if files.stamped(stat) else f"{files.identity(stat)}-{etag()}"

    def _stat(self, key: str, stat: os.stat_result, etag: str) -> Stat:
        version = files.identity(stat) if self._keep else None
        return Stat(key, stat.st_size, etag, _moment(stat), version)

    def _must_be_there(self) -> None:
        if self._ready and self._beside.folder.exists():
            return
        if not self._root.is_dir():
            raise BucketMissing(
                f"{self.name} is not a directory", hint="create it, mount it, or correct `path` in object_storage"
            )
        self._ready = True
        self._beside.sweep()

    # ETags

    def _current_etag(self, key: str, path: Path) -> str | None:
        try:
            with files.SteadyFile(path, key) as raw:
                return self._etag(key, raw)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def _etag(self, key: str, raw: files.SteadyFile) -> str:
        known = self._etags.get(_look(raw.stat))
        if known is None and raw.stat.st_size >= _LARGE and files.stamped(raw.stat):
            known = self._beside.etag(key, files.identity(raw.stat))
        if known is None:
            known = files.digest(raw)
            raw.seek(0)
            # A foreign file that changed just now could change again within the same tick of the kernel's clock.
            if not files.stamped(raw.stat) and time.time_ns() - raw.stat.st_mtime_ns < _SETTLE_NS:
                return known
            self._remember(key, raw.stat, known)
        return known

    def _remember(self, key: str, stat: os.stat_result, etag: str) -> None:
        if len(self._etags) > 200_000:
            self._etags.clear()
        self._etags[_look(stat)] = etag
        if stat.st_size >= _LARGE and files.stamped(stat):
            self._beside.keep_etag(key, files.identity(stat), etag)

    def _drop_empty_folders(self, folder: Path) -> None:
        with suppress(OSError):
            while folder != self._root:
                folder.rmdir()
                folder = folder.parent


def _regular(path: Path) -> os.stat_result | None:
    """The file's stat, or None if there is no file of this name."""
    try:
        return path.stat() if path.is_file() else None
    except (FileNotFoundError, NotADirectoryError):
        return None


def _look(stat: os.stat_result) -> _Look:
    """What tells two contents apart without reading them. A foreign file's time can be set by anyone, and its inode
    used again; when it last changed cannot. (Ours is left out: a second name for a file changes it too.)"""
    return stat.st_ino, stat.st_mtime_ns, 0 if files.stamped(stat) else stat.st_ctime_ns, stat.st_size


def _moment(stat: os.stat_result) -> datetime:
    return datetime.fromtimestamp(stat.st_mtime, UTC)

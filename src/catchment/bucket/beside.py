"""What a local directory keeps beside its objects, in `.catchment/`:

    tmp/                           files being written; renamed when whole
    locks/<ab>                     one lock for each 256th of the keys, held while a key changes
    tags/<key>/<version>.json      the tags of one version of one key
    versions/<key>/<n>_<version>   old contents, and `<n>_<time>.deleted` where the key was deleted
    etags/<key>                    the ETag of a large file, so that it is read once and not by every process

(`<key>` is a hash of the key.) Tags are written before their object and carry its version in their name, so a crash at
any point leaves old content with old tags or new content with new tags, and perhaps a tags file that nothing names.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from catchment.bucket import files

_OLD = re.compile(r"(\d{8})_(.+?)(\.deleted)?")
_STALE_S = 24 * 3600  # a file in tmp/ that is older was left by a process that died


@dataclass(frozen=True)
class Old:
    """One old version of a key."""

    number: int  # counts up; the order in which they were current
    version: str
    path: Path
    deleted: bool  # a mark: the key was deleted here


class Beside:
    """The folder. Whoever changes something of a key holds its lock."""

    def __init__(self, folder: Path, *, keep: int, durable: bool) -> None:
        self.folder = folder
        self._keep = keep
        self._durable = durable

    def locked(self, key: str) -> AbstractContextManager[None]:
        """Hold the key's lock: among threads and processes, and let go of it when the process dies."""
        return files.locked(self.folder / "locks" / _hash(key)[:2])

    def aside(self) -> Path:
        """A name for a new temporary file."""
        folder = self.folder / "tmp"
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{os.getpid()}-{secrets.token_hex(8)}"

    def sweep(self) -> None:
        """Remove what processes that died left in tmp/."""
        with suppress(FileNotFoundError, PermissionError), os.scandir(self.folder / "tmp") as items:
            for item in items:
                with suppress(FileNotFoundError, PermissionError):
                    if time.time() - item.stat().st_mtime > _STALE_S:
                        os.unlink(item.path)

    # tags

    def tags(self, key: str, version: str) -> dict[str, str]:
        """The tags of this version."""
        try:
            found: dict[str, str] = json.loads(self._tags_file(key, version).read_bytes())
        except FileNotFoundError:
            return {}
        return found

    def set_tags(self, key: str, version: str, tags: Mapping[str, str]) -> None:
        """Give this version these tags and no others."""
        path = self._tags_file(key, version)
        if tags:
            self._write(path, json.dumps(dict(tags), sort_keys=True).encode(), durable=self._durable)
        else:
            path.unlink(missing_ok=True)

    def drop_tags(self, key: str, version: str) -> None:
        """Remove the tags of this version, also those of a foreign file, whose name goes on with its content's ETag."""
        folder = self._tags_file(key, version).parent
        with suppress(FileNotFoundError):
            for name in os.listdir(folder):
                if name == f"{version}.json" or name.startswith(f"{version}-"):
                    (folder / name).unlink(missing_ok=True)

    def _tags_file(self, key: str, version: str) -> Path:
        return self.folder / "tags" / _spread(key) / f"{version}.json"

    # ETags

    def etag(self, key: str, version: str) -> str | None:
        """The ETag that was kept for this version, if one was."""
        with suppress(FileNotFoundError):
            name, _, etag = (self.folder / "etags" / _spread(key)).read_text().partition(" ")
            return etag if name == version and etag else None
        return None

    def keep_etag(self, key: str, version: str, etag: str) -> None:
        """Keep it for other processes. Only a cache: a read-only directory works without it."""
        with suppress(OSError):
            self._write(self.folder / "etags" / _spread(key), f"{version} {etag}".encode(), durable=False)

    # versions

    def old(self, key: str) -> Sequence[Old]:
        """Every old version, oldest first."""
        folder = self.folder / "versions" / _spread(key)
        try:
            names = sorted(os.listdir(folder))
        except FileNotFoundError:
            return []
        return [Old(int(m[1]), m[2], folder / name, bool(m[3])) for name in names if (m := _OLD.fullmatch(name))]

    def archive(self, key: str, path: Path) -> None:
        """Keep the current content as an old version: a second name for the same file, so it costs no space yet."""
        if self._keep:
            self._add(key, files.identity(path.stat()), path)

    def mark_deleted(self, key: str) -> None:
        """Note that the key was deleted now."""
        if self._keep:
            aside = self.aside()
            files.write_aside(aside, b"", durable=False)
            try:
                self._add(key, f"{time.time_ns():020d}.deleted", aside)
            finally:
                aside.unlink()

    def forget(self, key: str, version: str) -> None:
        """Remove an old version, or a mark, for good."""
        for old in self.old(key):
            if old.version == version:
                old.path.unlink()
                self.drop_tags(key, version)

    def _add(self, key: str, name: str, content: Path) -> None:
        before = self.old(key)
        if before and before[-1].path.name.endswith(f"_{name}"):
            return  # a process that died between keeping and renaming did this already
        folder = self.folder / "versions" / _spread(key)
        folder.mkdir(parents=True, exist_ok=True)
        self._second_name(content, folder / f"{before[-1].number + 1 if before else 1:08d}_{name}")

    def prune(self, key: str) -> None:
        """Remove the old versions that are too many."""
        old = self.old(key)
        for one in old[: max(0, len(old) - self._keep)]:
            self.forget(key, one.version)

    def _second_name(self, content: Path, path: Path) -> None:
        try:
            os.link(os.path.realpath(content), path)  # the file itself, should the key be a symbolic link to it
        except OSError as error:
            if error.errno not in files.NO_HARD_LINKS and error.errno != errno.EXDEV:
                raise
            aside = self.aside()
            shutil.copy2(content, aside)  # with its time, which is its version
            os.rename(aside, path)

    def _write(self, path: Path, content: bytes, *, durable: bool) -> None:
        aside = self.aside()
        files.write_aside(aside, content, durable=durable)
        files.move(aside, path, exclusive=False, durable=durable)


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _spread(key: str) -> str:
    name = _hash(key)
    return f"{name[:2]}/{name[:40]}"

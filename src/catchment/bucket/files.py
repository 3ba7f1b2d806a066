"""What the local directory needs of the file system: whole writes, locks between processes, steady reads.

A file's *identity* is its modification time in nanoseconds and its size. Every put of ours stamps a new one, so the
identity names a version, and whatever another program writes over a file of ours gets an identity of its own.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import IO, Any

from catchment.errors import BadKey, BucketError, Denied, NotFound, StorageFull, Transient

CHUNK = 1 << 20
# Times that the kernel stamps have arbitrary digits below the microsecond; ours always have these. So a process can
# tell at once that a fresh file is whole because we renamed it into place. (A wrong guess, one in a thousand, takes
# up a foreign file early: it is judged again when it changes.)
_MARK = 417
NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


def identity(stat: os.stat_result) -> str:
    """Which version of a key this file is. Sorts by time."""
    return f"{stat.st_mtime_ns:020d}-{stat.st_size}"


def stamped(stat: os.stat_result) -> bool:
    """Whether a put of ours made this file."""
    return stat.st_mtime_ns % 1000 == _MARK


def stamp(path: Path, *, above: int = 0) -> os.stat_result:
    """Give a finished file its modification time: now, and never one at or before `above`."""
    micros, step = max(time.time_ns(), above) // 1000, 1
    while True:
        os.utime(path, ns=(micros * 1000 + _MARK,) * 2)
        stat = os.stat(path)
        if stat.st_mtime_ns > above:
            return stat
        # Where times are coarser than ours (whole seconds, say), go as far ahead as it takes.
        micros, step = micros + step, step * 10


def digest(stream: io.RawIOBase) -> str:
    """The ETag of what the stream holds from its start."""
    stream.seek(0)
    state = hashlib.blake2b(digest_size=16)
    while chunk := stream.read(CHUNK):
        state.update(chunk)
    return state.hexdigest()


def digest_of(content: bytes) -> str:
    """The ETag of this content."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def write_aside(path: Path, body: bytes | IO[bytes] | io.RawIOBase, *, durable: bool) -> str:
    """Write body to this new file, stamped, and on disk when `durable`. Returns its ETag; on failure it is gone."""
    state = hashlib.blake2b(digest_size=16)
    try:
        with open(path, "xb") as out:
            if isinstance(body, bytes):
                state.update(body)
                out.write(body)
            else:
                while chunk := body.read(CHUNK):
                    state.update(chunk)
                    out.write(chunk)
            out.flush()
            stamp(path)
            if durable:
                os.fsync(out.fileno())
    except BaseException:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise
    return state.hexdigest()


def move(source: Path, target: Path, *, exclusive: bool, durable: bool) -> None:
    """Put a finished file under its name, making folders as needed. `exclusive`: FileExistsError if one is there."""
    for attempt in range(100):
        try:
            if exclusive:
                _link(source, target)
            else:
                os.rename(source, target)
            break
        except FileNotFoundError:
            # The folder is not there, or a delete just took it away because it was empty.
            if attempt == 99 or not source.exists():
                raise
            with suppress(FileNotFoundError, FileExistsError):  # deletes may win this race as well: try again
                target.parent.mkdir(parents=True, exist_ok=True)
    if durable:
        sync_folder(target.parent)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        # No hard links here. The key's lock is held, so only a program that is not Catchment could slip in between.
        if target.exists():
            raise FileExistsError(errno.EEXIST, "already there", str(target)) from None
        os.rename(source, target)
    else:
        source.unlink()


def sync_folder(folder: Path) -> None:
    """Make renames in a folder last through a power cut."""
    with suppress(FileNotFoundError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold this lock file alone: among threads and processes, and let go of it when the process dies."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)  # closing alone would not: a process forked meanwhile has the file open too
        os.close(handle)


class SteadyFile(io.RawIOBase):
    """A file that raises when another program changes it under the reader. (A put of ours leaves it as it was.)"""

    def __init__(self, path: Path, key: str) -> None:
        super().__init__()
        # Without waiting: to open a named pipe would be to wait for its writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._file = io.FileIO(handle, "rb")
        self._key = key
        self.stat = os.fstat(handle)
        if not S_ISREG(self.stat.st_mode):
            self.close()
            raise IsADirectoryError(errno.EISDIR, "not a file", str(path))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any, /) -> int | None:
        count = self._file.readinto(buffer)
        if identity(os.fstat(self._file.fileno())) != identity(self.stat):
            raise Transient(f"{self._key} is being written by another program", key=self._key, hint="try again later")
        return count

    def close(self) -> None:
        if hasattr(self, "_file"):  # else it could not be opened, and Python closes what is left of us
            self._file.close()
        super().close()


_WORDS: dict[int, tuple[type[BucketError], str, str]] = {
    errno.ENOENT: (NotFound, "is not there", ""),
    errno.EACCES: (Denied, "may not be touched by this user", "check the owner and the mode of the folder"),
    errno.EPERM: (Denied, "may not be touched by this user", "check the owner and the mode of the folder"),
    errno.EROFS: (Denied, "is on a read-only file system", "mount it writable, or use another path"),
    errno.ENOSPC: (StorageFull, "does not fit: no space left", "free some space; what was there before is intact"),
    errno.EDQUOT: (StorageFull, "does not fit: quota reached", "free some space; what was there before is intact"),
    errno.EFBIG: (StorageFull, "does not fit: file too large", "raise the limit; what was there before is intact"),
    errno.ENAMETOOLONG: (BadKey, "has a part that is too long for a file name", "keep each part under 255 bytes"),
    errno.ENOTDIR: (BadKey, "lies under a key that is a file here", "a local directory cannot hold both a and a/b"),
    errno.EISDIR: (BadKey, "is a folder here", "a local directory cannot hold both a and a/b"),
    errno.EEXIST: (BadKey, "is a folder here", "a local directory cannot hold both a and a/b"),
}


@contextmanager
def translated(root: str, key: str) -> Iterator[None]:
    """Turn an OSError into the BucketError that says what it means for this key."""
    try:
        yield
    except OSError as error:
        if not key:
            kind = _WORDS[error.errno][0] if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else BucketError
            raise kind(f"{root}: {error.strerror}", hint="correct `path` in object_storage") from error
        kind, what, hint = _WORDS.get(error.errno or 0, (BucketError, f"failed: {error.strerror or error}", ""))
        raise kind(f"{key} {what} (in {root})", key=key, hint=hint) from error

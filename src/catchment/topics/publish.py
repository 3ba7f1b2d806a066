"""`_SUCCESS` and `_LATE`: which committed files a closed folder has. Both are compare-and-set, and lists only grow.

`_SUCCESS` is there once its day (or hour) is closed, and lists every file of the folder that was committed by then.
What comes later is *late*: with `late: republish` it is added to `_SUCCESS`, which is then a new publication with the
next number, also in a folder that had none; with `late: count` the first publication stays as it is for good, and late
files are listed in `_LATE` beside it. (A file in both was in time: somebody who was closing had paused.) A list that
would not change is not written again, because readers take every version for a publication.

A range that a backfill swapped has its old files replaced in the list that they were in, whatever `late` says; what it
newly has in a closed folder is added to `_SUCCESS`.

Whoever publishes reads the list, adds to it, and writes it if it is still the one that was read; on Conflict, again
from the start. So nobody's files are lost, whatever the order. Only files that a manifest lists are ever added; size
and ETag are the manifest's. An entry is believed from then on, unless its range is the very one being published.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from catchment.bucket import swap
from catchment.bucket.contract import Bucket, Folder
from catchment.clock import isoformat
from catchment.errors import BucketError, Conflict, NotFound
from catchment.topics import committed
from catchment.topics.manifest import File, Manifest
from catchment.topics.names import DIGITS, FileName, Place, Source

Range = tuple[Source, int]  # which Kafka partition, and its first offset


@dataclass(frozen=True)
class Listed:
    """A committed file in `_SUCCESS` or `_LATE`."""

    key: str
    etag: str
    size: int
    rows: int
    first: int  # the file's own smallest offset
    last: int  # and its greatest
    source: str  # the Kafka partition
    late: bool  # it was not in the first publication, or the folder was closed before it had any


@dataclass(frozen=True)
class Publication:
    """What `_SUCCESS` or `_LATE` says."""

    folder: str
    end: str  # of its day or hour, as isoformat
    published: int  # 1, 2, …: how often the list has changed
    files: tuple[Listed, ...]  # by key

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def value(self) -> dict[str, Any]:
        late = [file for file in self.files if file.late]
        sums = {"rows": self.rows, "late_files": len(late), "late_rows": sum(file.rows for file in late)}
        return asdict(self) | sums

    @classmethod
    def parse(cls, key: str, value: Mapping[str, Any]) -> Publication:
        """BucketError that names the key if it is not one."""
        try:
            files = tuple(
                Listed(**{name: file[name] for name in Listed.__dataclass_fields__}) for file in value["files"]
            )
            return cls(value["folder"], value["end"], int(value["published"]), files)
        except (KeyError, TypeError, ValueError) as error:
            raise BucketError(
                f"{key} does not list the files of its folder as Catchment writes it ({error!r})",
                key=key,
                hint="restore the object's earlier version, or move it away by hand",
            ) from error


@dataclass(frozen=True)
class Published:
    """What one call did to one folder."""

    folder: str
    key: str = ""  # of the list that was written; empty: nothing had to be
    number: int = 0  # of the publication
    added: tuple[Listed, ...] = ()


class Ranges:
    """The files that manifests list, each manifest read once. Not for longer than one look at the bucket may be old."""

    def __init__(self, bucket: Bucket, place: Place) -> None:
        self._bucket, self._place = bucket, place
        self._files: dict[Range, dict[str, File]] = {}

    def add(self, manifest: Manifest) -> None:
        self._files[manifest.source, manifest.first] = {file.key: file for file in manifest.files}

    def load(self, keys: Iterable[str], pool: Executor | None = None) -> None:
        """Read the manifests of these files that are not known yet."""
        wanted = sorted({found for key in keys if (found := range_of(self._place, key))} - self._files.keys())
        for manifest in pool.map(self._read, wanted) if pool is not None else map(self._read, wanted):
            self._files[manifest[0]] = manifest[1]

    def committed(self, keys: Iterable[str]) -> list[tuple[Source, File]]:
        """Of these files those that a manifest lists."""
        keys = list(keys)
        self.load(keys)
        found = []
        for key in keys:
            which = range_of(self._place, key)
            file = self._files[which].get(key) if which else None
            if which and file:
                found.append((which[0], file))
        return found

    def _read(self, which: Range) -> tuple[Range, dict[str, File]]:
        try:
            return which, {file.key: file for file in committed.read(self._bucket, self._place, *which).files}
        except NotFound:  # not committed, or not under these bounds
            return which, {}


def published_end(bucket: Bucket, place: Place, folder: str) -> datetime | None:
    """When the folder's day (or hour) ended, by its `_SUCCESS` or `_LATE`; None if it has neither."""
    for key in (place.success(folder), place.late(folder)):
        document = swap.read(bucket, key)
        if document.exists:
            return datetime.fromisoformat(Publication.parse(key, document.value).end)
    return None


def range_of(place: Place, key: str) -> Range | None:
    """The range whose manifest would list this file; None if it is not named as a file of an export."""
    try:
        name: FileName = place.parse_file(key)[1]
    except ValueError:
        return None
    return name.source, name.first


def publish(
    bucket: Bucket,
    place: Place,
    folder: str,
    end: datetime,
    *,
    late: Literal["republish", "count"],
    closed: bool,
    own: Manifest | None = None,
    keys: Collection[str] | None = None,
    ranges: Ranges | None = None,
    nonce: Callable[[], str] = swap.fresh,
) -> Published:
    """See to it that the folder's committed files are listed: all of them, or once it is `closed`, those of `own`.

    own: a range that was just committed, perhaps in place of an earlier one at the same bounds.
    keys, ranges: what is known of the folder's files and their manifests, from after the closing was announced.
    """
    key = place.success(folder)
    while True:
        document = swap.read(bucket, key)
        before = Publication.parse(key, document.value) if document.exists else None
        kept = [file for file in before.files if not _replaced(place, file, own)] if before else []
        gone = [file for file in before.files if _replaced(place, file, own)] if before else []
        if before is not None or ranges is None:  # somebody published meanwhile: only a new look may add to that
            ranges = Ranges(bucket, place)
            if own is not None:
                ranges.add(own)
        if closed:
            names: Collection[str] = _of(place, folder, own)
        else:
            names = keys if keys is not None else _listed(bucket, place, folder)
        known = {file.key for file in kept}
        is_late = (closed or before is not None) and all(file.late for file in gone)
        found = [
            _entry(source, file, late=is_late)
            for source, file in ranges.committed(name for name in names if name not in known)
        ]
        if is_late and late == "count" and not (own and own.earlier and not _was_late(bucket, place, folder, own)):
            if before is not None:
                listed = {file.key for file in before.files}
                found = [file for file in found if file.key not in listed]
            return _set_aside(bucket, place, folder, end, found, own, nonce)
        _set_aside(bucket, place, folder, end, [], own, nonce)  # replaced files that were late are listed there
        files = tuple(sorted([*kept, *found], key=lambda file: file.key))
        if files == (before.files if before else ()):
            return Published(folder)
        after = Publication(folder, isoformat(end), before.published + 1 if before else 1, files)
        try:
            swap.swap(bucket, document, after.value(), nonce=nonce)
            return Published(folder, key, after.published, tuple(found))
        except Conflict:
            keys, ranges = None, None


def _set_aside(
    bucket: Bucket,
    place: Place,
    folder: str,
    end: datetime,
    found: list[Listed],
    own: Manifest | None,
    nonce: Callable[[], str],
) -> Published:
    """Late files into `_LATE`."""
    key = place.late(folder)
    while found or (own is not None and own.earlier):
        document = swap.read(bucket, key)
        before = Publication.parse(key, document.value) if document.exists else None
        kept = {file.key: file for file in before.files if not _replaced(place, file, own)} if before else {}
        added = tuple(file for file in found if file.key not in kept)
        files = tuple(sorted([*kept.values(), *added], key=lambda file: file.key))
        if files == (before.files if before else ()):
            break
        after = Publication(folder, isoformat(end), before.published + 1 if before else 1, files)
        try:
            swap.swap(bucket, document, after.value(), nonce=nonce)
            return Published(folder, key, after.published, added)
        except Conflict:
            continue
    return Published(folder)


def _was_late(bucket: Bucket, place: Place, folder: str, own: Manifest) -> bool:
    """Whether `_LATE` has a file of this range, of whatever generation."""
    document = swap.read(bucket, place.late(folder))
    files = Publication.parse(document.key, document.value).files if document.exists else ()
    return any(range_of(place, file.key) == (own.source, own.first) for file in files)


def _replaced(place: Place, file: Listed, own: Manifest | None) -> bool:
    """Whether the range that is being published once had this file, and has it no longer."""
    if own is None or f"_{own.source}_{own.first:0{DIGITS}d}-" not in file.key:  # which is soon told, of thousands
        return False
    if range_of(place, file.key) != (own.source, own.first):
        return False
    return all(file.key != mine.key for mine in own.files)


def _of(place: Place, folder: str, own: Manifest | None) -> list[str]:
    prefix = place.success(folder).rpartition("/")[0]
    return [file.key for file in own.files if file.key.rpartition("/")[0] == prefix] if own else []


def _listed(bucket: Bucket, place: Place, folder: str) -> list[str]:
    prefix = place.success(folder).rpartition("/")[0] + "/"
    return [entry.key for entry in bucket.children(prefix) if not isinstance(entry, Folder)]


def _entry(source: Source, file: File, *, late: bool) -> Listed:
    return Listed(file.key, file.etag, file.size, file.rows, file.first, file.last, str(source), late)

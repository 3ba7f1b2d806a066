"""What an export has committed, from its manifests alone. Whoever reads an export's files reads them by this.

A manifest is put once and never deleted, and everything that it lists was in place before it. So a listing of manifests
is a consistent view at any moment: what is committed meanwhile may or may not be in it, whole ranges at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from catchment.bucket.contract import Bucket, Folder
from catchment.errors import BadKey, BucketError, NotFound
from catchment.topics.manifest import File, Manifest
from catchment.topics.names import ROOT, FileName, Place, Source, values_of

Name = tuple[Source, int]  # of a manifest: source and first offset
WORKERS = 8  # manifests that are read at a time: each is a few kilobytes and one round trip


@dataclass(frozen=True)
class Unreadable:
    """Something under `_commits/` that is no manifest of its place, or no longer one."""

    key: str
    why: str
    name: Name | None = None  # its name is this manifest's, so that committed rows may be hidden behind it


class Range(Protocol):
    """What a chain is made of: manifests, or no more of them than this."""

    @property
    def source(self) -> Source: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...


@dataclass(frozen=True)
class Span:
    """The bounds of one manifest, for those who do not want to keep all of its files in memory."""

    source: Source
    first: int
    last: int


@dataclass(frozen=True)
class Break:
    """Two ranges of one source, one after the other, that do not meet."""

    source: Source
    first: int  # the offsets that are in no range, or in two
    last: int
    overlap: bool  # True: in two
    before: int | None  # the first offset of the range before; None: the export's own beginning
    after: int  # the first offset of the range after


@dataclass(frozen=True)
class Committed:
    """One file that readers may read."""

    key: str
    etag: str
    size: int
    rows: int
    folder: str
    values: Mapping[str, str]  # of the splits, as text
    source: Source
    first: int  # of its range
    last: int
    generation: int


def places(bucket: Bucket) -> Iterator[Place]:
    """Every export in the lake, sorted; a folder in which nothing was ever begun is none. A few listings for each."""
    for group in bucket.children(f"{ROOT}/"):
        if isinstance(group, Folder):
            for topic in bucket.children(group.key):
                if isinstance(topic, Folder):
                    place = Place(*topic.key.removesuffix("/").split("/")[1:])
                    if next(bucket.list(place.commits()), None) or _is_there(bucket, place.export()):
                        yield place


def _is_there(bucket: Bucket, key: str) -> bool:
    try:
        bucket.head(key)
    except NotFound:
        return False
    return True


def sources(bucket: Bucket, place: Place) -> list[Source]:
    """The sources that have a manifest, or had one, sorted. One listing of folders."""
    found = []
    for folder in bucket.children(place.commits()):
        if isinstance(folder, Folder):
            try:
                found.append(Source.parse(folder.key.removesuffix("/").rpartition("/")[2]))
            except ValueError:
                continue  # `each` names it
    return sorted(found)


def names(bucket: Bucket, place: Place, source: Source | None = None) -> Iterator[Name | Unreadable]:
    """Source and first offset of every manifest, by their names alone, in the order of their keys."""
    for entry in bucket.list(place.commits(source)):
        try:
            yield place.parse_commit(entry.key)
        except BadKey as error:
            yield Unreadable(entry.key, error.message)


def read(bucket: Bucket, place: Place, source: Source, first: int) -> Manifest:
    """One manifest. NotFound if it is not there; BucketError if it cannot be read, or is that of another range."""
    key = place.commit(source, first)
    found = Manifest.parse(key, bucket.read(key).body)
    if (found.topic, found.source, found.first) != (place.topic, source, first):
        raise BucketError(
            f"{key} is the manifest of another range"
            f" (Kafka partition {found.source} of {found.topic}, from offset {found.first})",
            key=key,
            hint="restore the object's earlier version",
        )
    return found


def each(
    bucket: Bucket,
    place: Place,
    source: Source | None = None,
    *,
    first: int | None = None,
    last: int | None = None,
    workers: int = WORKERS,
) -> Iterator[Manifest | Unreadable]:
    """Every range that has an offset in [first, last], and what cannot be read, source by source and in order.

    The names are listed once; of each source with a window only the manifests that can lie in it are read. What the
    bucket itself raises passes. With one worker, everything happens in the caller's thread.
    """
    wanted: list[Name] = []
    for name in names(bucket, place, source):
        if isinstance(name, Unreadable):
            yield name
        else:
            wanted.append(name)
    low = 0 if first is None else first
    for found in read_each(bucket, place, window(wanted, low, last), workers):
        if isinstance(found, Unreadable) or (found.last >= low and (last is None or found.first <= last)):
            yield found


def read_each(
    bucket: Bucket, place: Place, wanted: Sequence[Name], workers: int = WORKERS
) -> Iterator[Manifest | Unreadable]:
    """These manifests, in this order, a few read ahead. What the bucket itself raises passes."""

    def one(name: Name) -> Manifest | Unreadable:
        try:
            return read(bucket, place, *name)
        except BucketError as error:
            if not error.unreadable:  # the bucket's own trouble
                raise
            return Unreadable(error.key, error.message, name)

    if workers <= 1 or len(wanted) <= 1:
        yield from map(one, wanted)
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="manifests") as pool:
        ahead: deque[Future[Manifest | Unreadable]] = deque()  # never all of them: whoever asks may stop
        try:
            for name in wanted:
                ahead.append(pool.submit(one, name))
                if len(ahead) >= 2 * workers:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def window(names: Iterable[Name], low: int, last: int | None) -> list[Name]:
    """The names that begin in [low, last], sorted, and of each source the one before, which may reach into it. Pure."""
    found: list[Name] = []
    for _, group in groupby(sorted(names), key=lambda name: name[0]):
        ranges = list(group)
        firsts = [name[1] for name in ranges]
        end = len(ranges) if last is None else bisect_right(firsts, last)
        found += ranges[max(0, bisect_right(firsts, low) - 1) : end]
    return found


def manifests(
    bucket: Bucket,
    place: Place,
    source: Source | None = None,
    *,
    first: int | None = None,
    last: int | None = None,
    workers: int = WORKERS,
) -> Iterator[Manifest]:
    """Every committed range that has an offset in [first, last], source by source, in order.

    BucketError for a manifest that cannot be read: to leave it out would be to lose its rows silently. An object that
    is not named as manifests are is none.
    """
    for found in each(bucket, place, source, first=first, last=last, workers=workers):
        if isinstance(found, Manifest):
            yield found
        elif found.name:
            raise BucketError(
                found.why, key=found.key, hint=f"look at it with: catchment topics verify --group {place.group}"
            )


def files(
    bucket: Bucket,
    place: Place,
    source: Source | None = None,
    *,
    first: int | None = None,
    last: int | None = None,
    where: Mapping[str, str | Collection[str]] | None = None,
    workers: int = WORKERS,
) -> Iterator[Committed]:
    """The committed files of every range that has an offset in [first, last]; dead letters are not among them.

    where: only folders with these values of their splits; a file without such a level is left out.
    """
    for manifest in manifests(bucket, place, source, first=first, last=last, workers=workers):
        yield from listed(place, manifest, where or {})


def listed(place: Place, manifest: Manifest, where: Mapping[str, str | Collection[str]]) -> Iterator[Committed]:
    """The files of one manifest that match. BucketError if it lists what is no file of this export."""
    for file in manifest.files:
        try:
            folder, name = place.parse_file(file.key)
            values = values_of(folder)
        except ValueError as error:
            key = place.commit(manifest.source, manifest.first)
            raise BucketError(
                f"{key} lists {file.key}, which is no file of this export", key=key, hint="restore its earlier version"
            ) from error
        if all(_is_one_of(values.get(level), wanted) for level, wanted in where.items()):
            yield _committed(file, folder, values, name, manifest)


def chain(manifests: Iterable[Range], starts: Mapping[Source, int] | None = None) -> list[Break]:
    """Where the ranges of a source do not meet: offsets without a manifest, or with two. Pure.

    starts: where each source's first range must begin; of one that is not given, nothing is expected.
    """
    found: list[Break] = []
    ordered = sorted(manifests, key=lambda one: (one.source, one.first))
    for source, ranges in groupby(ordered, key=lambda one: one.source):
        end = None if starts is None or source not in starts else starts[source] - 1
        before: int | None = None
        for manifest in ranges:
            if end is not None and manifest.first > end + 1:
                found.append(Break(source, end + 1, manifest.first - 1, False, before, manifest.first))
            elif end is not None and before is not None and manifest.first <= end:
                found.append(Break(source, manifest.first, min(end, manifest.last), True, before, manifest.first))
            end = manifest.last if end is None else max(end, manifest.last)
            before = manifest.first
    return found


def _is_one_of(value: str | None, wanted: str | Collection[str]) -> bool:
    return value == wanted if isinstance(wanted, str) else value in wanted


def _committed(file: File, folder: str, values: Mapping[str, str], name: FileName, manifest: Manifest) -> Committed:
    return Committed(
        file.key,
        file.etag,
        file.size,
        file.rows,
        folder,
        values,
        manifest.source,
        manifest.first,
        manifest.last,
        name.generation,
    )

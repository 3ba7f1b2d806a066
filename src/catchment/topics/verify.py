"""Verify: every offset of a period counted again from the files. Changes nothing; may run next to exporters.

    missing      offsets that are in no file; uncommitted: between two ranges, in no manifest
    twice        offsets that are there more than once: in one range's files, or in two ranges
    misplaced    rows in a folder that is not theirs
    unlisted     files that no manifest lists
    absent, changed, unreadable, closed    objects that are not what manifests (or a `_SUCCESS`) say

What goes on meanwhile is not mistaken for damage: whatever looks wrong is looked at again, against the manifest as it
is then. What may be somebody's work in progress is a note and not a problem.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from catchment.bucket.contract import Bucket
from catchment.bucket.open import open_bucket
from catchment.config.decode import Format, Split
from catchment.config.storage import Storage
from catchment.config.topics import Export
from catchment.errors import BucketError, ExportStopped, NotFound, UsageError
from catchment.topics import committed, finalize, identity, offsets
from catchment.topics.closing import Unit, unit_of
from catchment.topics.files.format import format_of
from catchment.topics.manifest import Manifest
from catchment.topics.names import LATE, SUCCESS, FileName, Place, Source
from catchment.topics.period import Period, Plan, plan
from catchment.topics.recount import Finding, Formats, Kind, Recount, Recounter, Splits
from catchment.topics.repair import broken, kept_because, published_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Mapper = Callable[[Recounter, Sequence[Manifest]], Iterable[Recount]]


@dataclass(frozen=True)
class Progress:
    """How far it is."""

    done: int  # ranges
    total: int
    rows: int  # found so far


@dataclass(frozen=True)
class Verified:
    """What the files of a period hold, and everything that is wrong."""

    ranges: int = 0
    files: int = 0  # objects read, dead letters too
    rows: int = 0
    dead: int = 0
    filtered: int = 0
    gaps: int = 0
    findings: tuple[Finding, ...] = ()

    def plus(self, counted: Recount) -> Verified:
        """With one range more."""
        return Verified(
            self.ranges + 1,
            self.files + counted.files,
            self.rows + counted.rows,
            self.dead + counted.dead,
            self.filtered + counted.filtered,
            self.gaps + counted.gaps,
        )

    @property
    def problems(self) -> tuple[Finding, ...]:
        """Without the notes."""
        return tuple(one for one in self.findings if not one.note)

    @property
    def missing(self) -> int:
        """Offsets that are not there and should be, for whatever reason."""
        lost = (Kind.MISSING, Kind.UNCOMMITTED, Kind.ABSENT, Kind.UNREADABLE)
        return sum(one.offsets for one in self.problems if one.kind in lost)

    @property
    def twice(self) -> int:
        """Offsets that are there more than once."""
        return sum(one.offsets for one in self.problems if one.kind is Kind.TWICE)

    @property
    def good(self) -> bool:
        """Whether there is nothing but notes."""
        return not self.problems


def verify(
    bucket: Bucket,
    place: Place,
    period: Period = Period(),  # noqa: B008
    *,
    splits: Splits | None = None,
    mapper: Mapper | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    workers: int = committed.WORKERS,
) -> Verified:
    """Everything that is wrong with an export, in a period. Raises what the bucket raises.

    splits: of each generation; as `_export.json` has them, if not given. mapper: what runs the counting: threads here,
    or `on_spark`.
    """
    seen = _Seen(bucket, place)
    known = _identity(seen)
    closing = _Closing.of(seen, known)
    hints = _hints(seen)  # before the manifests are listed: these can only be further then
    todo = plan(bucket, place, period, workers=workers)
    seen.unreadable(todo)
    seen.chain(todo, known, hints)
    recounter = Recounter(place, _splits(known) if splits is None else splits, bucket, _formats(known))
    totals = Verified()
    for counted in (mapper or on_threads())(recounter, todo.ranges):
        seen.findings += counted.findings
        totals = totals.plus(counted)
        on_progress(Progress(totals.ranges, len(todo.ranges), totals.rows))
    seen.objects(todo, closing, hints)
    return replace(totals, findings=tuple(seen.findings))


def on_threads(workers: int = 4) -> Mapper:
    """Counts in this process, a few ranges at a time."""

    def count(recounter: Recounter, manifests: Sequence[Manifest]) -> Iterator[Recount]:
        with ThreadPoolExecutor(workers, thread_name_prefix="verify") as pool:
            yield from pool.map(recounter, manifests)

    return count


def on_spark(spark: SparkSession, storage: Storage) -> Mapper:
    """Counts as Spark jobs, a task for each range. Only values are sent: each task opens the bucket by itself."""

    def count(recounter: Recounter, manifests: Sequence[Manifest]) -> Iterator[Recount]:
        context = spark.sparkContext
        task = Task(replace(recounter, bucket=None), storage)
        wave = max(1, context.defaultParallelism) * 8  # between two waves there is progress to tell
        for at in range(0, len(manifests), wave):
            some = list(manifests[at : at + wave])
            yield from context.parallelize(some, len(some)).map(task).collect()

    return count


@dataclass(frozen=True)
class Task:
    """What a Spark task runs."""

    recounter: Recounter
    storage: Storage

    def __call__(self, manifest: Manifest) -> Recount:
        return replace(self.recounter, bucket=_opened(self.storage))(manifest)


@lru_cache(maxsize=4)
def _opened(storage: Storage) -> Bucket:
    """Kept for the tasks that this process runs next: making a client takes longer than counting a small range."""
    return open_bucket(storage, create=False)


def _hints(seen: _Seen) -> dict[Source, int]:
    """The next offset of each source, as the hints have it."""
    found: dict[Source, int] = {}
    prefix = f"{seen.place.prefix}_offsets/"
    for entry in seen.bucket.list(prefix):
        try:
            source = Source.parse(entry.key.removeprefix(prefix).removesuffix(".json"))
            found[source] = offsets.read_hint(seen.bucket, seen.place, source, 0).hint.next
        except ExportStopped as error:
            seen.add(Kind.UNREADABLE, entry.key, f"no exporter can go on: {error}")
        except ValueError:
            continue  # nobody reads it
    return found


def _identity(seen: _Seen) -> identity.Identity | None:
    try:
        return identity.read(seen.bucket, seen.place)
    except BucketError as error:
        if not error.unreadable:  # the bucket's own trouble
            raise
        seen.add(Kind.UNREADABLE, seen.place.export(), f"folders were not checked: {error}")
        return None


def _splits(known: identity.Identity | None) -> Splits:
    """The splits of each generation, as recorded. One that this program does not understand is left out."""
    found: dict[int, Mapping[str, Split]] = {}
    for number, what in (known.generations if known else {}).items():
        try:
            found[number] = {name: Split.model_validate(split) for name, split in what["split"]}
        except (KeyError, TypeError, ValueError):
            continue
    return found


def _formats(known: identity.Identity | None) -> Formats:
    """The format of each generation, as recorded, likewise."""
    found: dict[int, Format] = {}
    if known is not None:
        for number in known.generations:
            with suppress(UsageError):
                found[number] = format_of(known, number)
    return found


@dataclass(frozen=True)
class _Closing:
    """Which folders are closed, by what the export says of itself."""

    until: datetime | None  # all that ended by then
    units: tuple[Unit, ...]  # days or hours, of each generation

    @classmethod
    def of(cls, seen: _Seen, known: identity.Identity | None) -> _Closing:
        units: dict[Unit, None] = {}
        for what in known.generations.values() if known else ():
            try:
                given = {"group": seen.place.group, "decode": what["decode"], "split": dict(what["split"])}
                units[unit_of(Export.model_validate(given))] = None
            except (KeyError, TypeError, ValueError):
                continue  # it has no days, or is of a later release
        try:
            return cls(finalize.state(seen.bucket, seen.place).closed, tuple(units))
        except BucketError as error:
            if not error.unreadable:  # the bucket's own trouble
                raise
            seen.add(Kind.UNREADABLE, seen.place.finalized(), f"nothing more can be closed: {error}")
            return cls(None, ())

    def is_closed(self, folder: str) -> bool:
        """Whether its day (or hour) is over for this export."""
        ends = [end for unit in self.units if (end := unit.end(folder)) is not None]
        return self.until is not None and bool(ends) and max(ends) <= self.until


@dataclass
class _Seen:
    """What is wrong."""

    bucket: Bucket
    place: Place
    findings: list[Finding] = field(default_factory=list)

    def add(self, kind: Kind, key: str, message: str, offsets: int = 0, *, note: bool = False) -> None:
        self.findings.append(Finding(kind, key, message, offsets, note))

    def unreadable(self, todo: Plan) -> None:
        """Manifests that are none. How many offsets are behind one, the next one's name tells."""
        for one in todo.unreadable:
            size = 0
            if one.name:
                firsts = todo.names[one.name[0]]
                after = firsts[bisect_right(firsts, one.name[1]) :]
                size = after[0] - one.name[1] if after else 0
            self.add(Kind.UNREADABLE, one.key, one.why, size)

    def chain(self, todo: Plan, known: identity.Identity | None, hints: Mapping[Source, int]) -> None:
        """Ranges that do not meet."""
        starts: dict[Source, int] = {}
        if known is not None and not todo.period.first:
            starts = {one: known.start(one.partition) for one in todo.names if one.life == known.life}
        chosen = {(one.source, one.first) for one in todo.ranges}
        hidden = {one.name for one in todo.unreadable}
        for one in committed.chain(todo.known, starts):
            near = {(one.source, one.after)} | ({(one.source, one.before)} if one.before is not None else set())
            if near & chosen and (one.overlap or (one.source, one.first) not in hidden):
                kind = Kind.TWICE if one.overlap else Kind.UNCOMMITTED
                key = self.place.commit(one.source, one.after if one.overlap else one.first)
                self.add(kind, key, broken(self.place, one), one.last - one.first + 1)
        for source, next in sorted(hints.items() if todo.period.everything else ()):
            end = todo.ends.get(source, known.start(source.partition) if known and known.life == source.life else next)
            if next > end and not any(name and name[0] == source and name[1] >= end for name in hidden):
                text = f"there is none, but {self.place.hint(source)} says that everything below {next} is committed"
                self.add(Kind.UNCOMMITTED, self.place.commit(source, end), text, next - end)

    def objects(self, todo: Plan, closing: _Closing, hints: Mapping[Source, int]) -> None:
        """Everything that lies in the export's folders, against what is committed."""
        ranges: dict[Source, list[Manifest]] = defaultdict(list)
        unpublished: dict[str, dict[str, Manifest]] = defaultdict(dict)  # by folder
        for one in todo.ranges:
            ranges[one.source].append(one)
            for file in one.files:
                with suppress(ValueError):  # a name that is none of ours was found out by counting
                    unpublished[self.place.parse_file(file.key)[0]][file.key] = one
        listed = {file.key for one in todo.known for file in (*one.files, *one.dead)}
        closed: set[str] = set()
        for entry in self.bucket.list(self.place.prefix):
            folder, _, last = entry.key.removeprefix(self.place.prefix).rpartition("/")
            if last in (SUCCESS, LATE):
                closed.add(folder)
                for key in sorted(self._published(entry.key)):
                    unpublished[folder].pop(key, None)
                    if key not in listed and not self._is_committed(todo, key, ranges):
                        self.add(Kind.CLOSED, entry.key, f"lists {key}, which is not committed")
            elif entry.key not in listed:
                self._unlisted(todo, entry.key, ranges)
        for folder, files in sorted(unpublished.items()):
            if folder in closed or closing.is_closed(folder):
                for key, manifest in sorted(files.items()):
                    if not self._is_committed(todo, key, ranges):
                        continue  # it was replaced meanwhile
                    # The hint moves only after what is late was published.
                    busy = manifest.last >= hints.get(manifest.source, 0)
                    text = f"does not list {key}, which is committed" + (": may be in progress" if busy else "")
                    self.add(Kind.CLOSED, self.place.success(folder), text, note=busy)

    def _unlisted(self, todo: Plan, key: str, ranges: Mapping[Source, Sequence[Manifest]]) -> None:
        try:
            _, name = self.place.parse_file(key)
        except ValueError:
            hidden = any(part.startswith(("_", ".")) for part in key.removeprefix(self.place.prefix).split("/"))
            if not hidden and todo.period.everything:
                text = "is none of Catchment's; whoever reads this folder as it is reads it too: move it elsewhere"
                self.add(Kind.UNLISTED, key, text)
            return
        if not todo.period.concerns(name, ranges):
            return
        cover = self._cover(todo, name)
        if not isinstance(cover, Manifest):
            self.add(Kind.UNLISTED, key, f"no manifest lists it; {cover}", note=True)
        elif key not in {file.key for file in (*cover.files, *cover.dead)}:  # else it was committed meanwhile
            why = kept_because(key, name, cover, also_newer=False)
            if name.last >= todo.ends.get(name.source, 0):
                why = "it reaches above the committed offset: may be in progress"
            elif name.generation < cover.generation and (name.first, name.last) == (cover.first, cover.last):
                why = f"generation {cover.generation} is in its place: 'catchment topics repair' removes it"
            left = "left by an abandoned attempt: 'catchment topics repair' removes it"
            self.add(Kind.UNLISTED, key, f"no manifest lists it; {why or left}", note=bool(why))

    def _cover(self, todo: Plan, name: FileName) -> Manifest | str:
        """The manifest that holds the file's first offset, as it is now, or why there is none."""
        firsts = todo.names.get(name.source, ())
        at = bisect_right(firsts, name.first) - 1
        wanted = {name.first, firsts[at]} if at >= 0 else {name.first}  # the first may have been committed meanwhile
        for first in sorted(wanted, reverse=True):
            try:
                found = committed.read(self.bucket, self.place, name.source, first)
            except NotFound:
                continue
            except BucketError as error:
                if not error.unreadable:
                    raise
                return "the manifest of its range cannot be read"
            if name.first <= found.last:
                return found
        if name.first < todo.ends.get(name.source, 0):
            return "its range has no manifest"
        return "above the committed offset: may be in progress"

    def _published(self, key: str) -> frozenset[str]:
        try:
            return published_keys(self.bucket.read(key).body)
        except NotFound:
            return frozenset()  # gone since it was listed
        except ValueError as error:
            self.add(Kind.CLOSED, key, f"cannot be read ({error}); restore an earlier version of this object")
            return frozenset()

    def _is_committed(self, todo: Plan, key: str, ranges: Mapping[Source, Sequence[Manifest]]) -> bool:
        """As it is now; what is not in the period is not asked about."""
        try:
            _, name = self.place.parse_file(key)
        except ValueError:
            return False
        if not todo.period.concerns(name, ranges):
            return True
        try:
            found = committed.read(self.bucket, self.place, name.source, name.first)
        except BucketError as error:
            if type(error) not in (BucketError, NotFound):
                raise
            return False
        return any(file.key == key for file in found.files)

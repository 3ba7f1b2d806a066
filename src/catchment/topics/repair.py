"""Repair: hints rebuilt from the manifests, and files removed that no manifest lists and none ever will.

It may run at any time, next to any number of exporters, and be killed at any call: run again, it ends the same.

**Hints** are advice. Nothing that is exported rests on them, so writing one anew from the manifests can cost work (a
claim that is forgotten may be taken by two) and never a row. It is a swap like everybody's: who changed the hint
meanwhile wins, and it is looked at again. One thing is not done unasked: taking a hint *back*. A hint that is ahead of
its manifests means that manifests were removed; an exporter that runs goes on from where it knows it was, and another
that begins below it would export the same offsets a second time.

**A file that may still be committed is never removed.** Let K be a file of the range [f, l] that is removed, and M the
manifest that is read right before, with M.first ≤ f ≤ M.last.

1. A commit is a put-if-absent of the key that `f` names. If M.first = f that key is taken, and manifests are not
   deleted. If M.first < f, no exporter begins at f: each begins where a manifest ends, and M does not end below f.
2. A manifest that is there is replaced by a backfill only: by a put that matches the ETag it read, with the same
   bounds, and with files of a greater generation than the one before. K's generation is not greater than M's (files
   with a greater one are left alone), and M does not list K: so no later manifest of this range does.
3. Two attempts share a name only if they have the same bounds, generation, definition and schema. M would list K if M
   were such an attempt's; since it does not, whoever still writes K commits nothing with it. It may put K again after
   it was removed: then it is there until the next repair.

So l < next, which the names of the manifests give before any file is looked at, is asked for on top: what reaches
above the committed offset is somebody's work in progress, and is not even judged. Left alone are also files that a
`_SUCCESS` lists (whoever reads by it needs them until it is published again), and files in ranges that were skipped
because Kafka no longer had them: they may be the only copy.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from catchment.bucket import swap
from catchment.bucket.contract import Bucket, Entry
from catchment.bucket.swap import Document
from catchment.errors import BucketError, Conflict, ExportStopped, NotFound
from catchment.topics import committed, identity, offsets
from catchment.topics.committed import Break, Name, Span, Unreadable
from catchment.topics.manifest import Manifest
from catchment.topics.names import SUCCESS, FileName, Place, Source
from catchment.topics.offsets import Hint, Known, Nonce

ATTEMPTS = 100  # at one hint, before it is left to those who keep changing it


@dataclass(frozen=True)
class Progress:
    """How far it is: manifests that were read, then files that were judged. There may be more of these than known."""

    done: int
    total: int


@dataclass(frozen=True)
class Mended:
    """A hint that was written anew."""

    key: str
    before: int | None  # what it said was the next offset; None: it was absent, or could not be read
    after: int
    why: str


@dataclass(frozen=True)
class Kept:
    """A file that no manifest lists, and that was left alone."""

    key: str
    why: str


@dataclass(frozen=True)
class Repaired:
    """What was done; with `dry_run`, what would have been."""

    hints: tuple[Mended, ...]
    removed: tuple[str, ...]
    removed_bytes: int
    kept: tuple[Kept, ...]
    problems: tuple[str, ...]  # what a person has to look at
    dry_run: bool


@dataclass
class _Done:
    hints: list[Mended] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    size: int = 0
    kept: list[Kept] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def repair(
    bucket: Bucket,
    place: Place,
    *,
    now: datetime,
    dry_run: bool = False,
    files: bool = True,
    also_newer: bool = False,
    back: bool = False,
    duty: Callable[[Manifest], object] = lambda manifest: None,
    nonce: Nonce = swap.fresh,
    workers: int = 1,
    on_progress: Callable[[Progress], object] = lambda progress: None,
) -> Repaired:
    """Mend the hints of one export, then remove what was left behind. Raises what the bucket raises; run it again.

    files: False mends the hints only, from the names of the manifests and the last one of each source. Otherwise every
        manifest is read, and the chain is checked as well.
    also_newer: remove files of a greater generation than their range's manifest too. Only when no backfill is running.
    back: take back hints that are ahead of their manifests. Only when no exporter of this topic is running.
    duty: what is still to be done for a range that a hint did not know of yet, as exporters do it.
    workers: manifests read at a time; with one, everything happens in the caller's thread and in the same order.
    """
    done = _Done()
    firsts = _firsts(bucket, place, done)  # 1 what is committed, by names
    read = sum(map(len, firsts.values())) if files else len(firsts)

    def step(number: int, more: int = 0) -> None:
        on_progress(Progress(number, read + more))

    known = _read(bucket, place, firsts, workers, done, every=files, step=step)  # 2 and by the manifests
    listing = _Listing(bucket, place, known, done, prefix=place.prefix if files else _hints(place))  # 3 what is there
    mender = _Mender(bucket, place, now, dry_run, back, (lambda manifest: None) if dry_run else duty, nonce, done)
    for source in sorted({*firsts, *listing.hinted} - known.hidden):  # 4 hints
        mender.mend(source, known.newest.get(source))
    for number, (entry, name) in enumerate(listing.candidates, 1):  # 5 what no manifest lists, and none ever will
        listing.remove(entry, name, firsts[name.source], dry_run=dry_run, also_newer=also_newer)
        step(read + number, len(listing.candidates))
    return Repaired(
        tuple(done.hints), tuple(done.removed), done.size, tuple(done.kept), tuple(done.problems), dry_run=dry_run
    )


def _firsts(bucket: Bucket, place: Place, done: _Done) -> dict[Source, list[int]]:
    """The first offsets of the manifests of each source, in order: keys sort as numbers do."""
    found: dict[Source, list[int]] = {}
    for name in committed.names(bucket, place):
        if isinstance(name, Unreadable):
            done.problems.append(f"{name.why}; look at it, and move it away by hand")
        else:
            found.setdefault(name[0], []).append(name[1])
    return found


def _hints(place: Place) -> str:
    return f"{place.prefix}_offsets/"


@dataclass(frozen=True)
class _Mender:
    """Mends hints, one source at a time."""

    bucket: Bucket
    place: Place
    now: datetime
    dry_run: bool
    back: bool
    duty: Callable[[Manifest], object]
    nonce: Nonce
    done: _Done

    def mend(self, source: Source, newest: Manifest | None) -> None:
        """Leave the hint as it is if it is right, else write it anew. `newest` is the last manifest by name."""
        for _ in range(ATTEMPTS):
            document, hint = self._read(source)
            if newest is None:
                if (hint is None and not document.exists) or (hint is not None and hint.next == 0):
                    return  # not begun
                start = self._start(source)
                newest = None if start is None else offsets.read_manifest(self.bucket, self.place, source, start)
                if newest is None:
                    self._without_manifests(document, hint, start)
                    return
            if hint is not None and hint.next == newest.next:
                return
            while (more := offsets.read_manifest(self.bucket, self.place, source, newest.next)) is not None:
                newest = more  # committed since the names were listed
            if hint is not None and hint.next == newest.next:
                return
            if hint is not None and hint.next > newest.next and not self._may_go_back(document.key, hint, newest.next):
                return
            wanted, why = self._wanted(source, document, hint, newest)
            if self._write(document, hint, wanted, why):
                return
        self.done.problems.append(
            f"{self.place.hint(source)} changed {ATTEMPTS} times while it was being mended; run it again"
        )

    def _read(self, source: Source) -> tuple[Document, Hint | None]:
        """The hint as it is, and None if it is not there or cannot be read."""
        key = self.place.hint(source)
        try:
            found = self.bucket.read(key)
        except NotFound:
            return Document(key, None, {}), None
        document = Document(key, found.stat.etag, {})
        try:
            value = json.loads(found.body)
            return document, Hint.parse(self.place, source, value) if isinstance(value, dict) else None
        except (ValueError, AttributeError, RecursionError, ExportStopped):
            return document, None

    def _start(self, source: Source) -> int | None:
        """Where a source without manifests begins; None if nobody knows."""
        try:
            known = identity.read(self.bucket, self.place)
        except BucketError as error:
            if not error.unreadable:  # the bucket's own trouble
                raise
            self.done.problems.append(str(error))
            return None
        return known.start(source.partition) if known is not None and known.life == source.life else None

    def _without_manifests(self, document: Document, hint: Hint | None, start: int | None) -> None:
        if start is None:
            if hint is None:
                self.done.problems.append(
                    f"{document.key} cannot be read, and there is no manifest and no {self.place.export()} that says"
                    " where it began; move it away by hand"
                )
        elif hint is None or (hint.next > start and self._may_go_back(document.key, hint, start)):
            self._write(document, hint, Hint(start), "there is no manifest yet")

    def _may_go_back(self, key: str, hint: Hint, next: int) -> bool:
        if not self.back:
            self.done.problems.append(
                f"{key} says that everything below offset {hint.next} is committed, but the manifests end at"
                f" {next - 1}: some were removed; restore them, or stop every exporter of this topic and repair with"
                " --back to export these offsets again"
            )
        return self.back

    def _wanted(self, source: Source, document: Document, hint: Hint | None, newest: Manifest) -> tuple[Hint, str]:
        if hint is None:
            self.duty(newest)
            return offsets.after(Hint(newest.first), newest), "it cannot be read" if document.exists else "it was gone"
        if hint.next > newest.next:
            return Hint(newest.next), "it was ahead of the manifests"
        followed = offsets.follow(self.bucket, self.place, source, Known(document, hint), self.duty).hint
        return offsets.after(followed, newest), "it was behind"

    def _write(self, document: Document, before: Hint | None, hint: Hint, why: str) -> bool:
        """False if somebody else was first."""
        if not self.dry_run:
            try:
                offsets.write_hint(self.bucket, Known(document, hint), hint, self.now, self.nonce)
            except Conflict:
                return False
        self.done.hints.append(Mended(document.key, before.next if before else None, hint.next, why))
        return True


@dataclass(frozen=True)
class _Known:
    """What the manifests say, as they were read."""

    keys: Collection[str]  # every file that one lists
    newest: Mapping[Source, Manifest]  # the last of each source
    hidden: set[Source]  # sources whose last one cannot be read: nobody knows where they stand


def _read(
    bucket: Bucket,
    place: Place,
    firsts: Mapping[Source, list[int]],
    workers: int,
    done: _Done,
    *,
    every: bool,
    step: Callable[[int], None],
) -> _Known:
    keys: set[str] = set()
    newest: dict[Source, Manifest] = {}
    spans: list[Span] = []
    hidden: set[Name] = set()
    wanted = [(source, first) for source, each in firsts.items() for first in (each if every else each[-1:])]
    for number, found in enumerate(committed.read_each(bucket, place, wanted, workers), 1):
        step(number)
        if isinstance(found, Unreadable):
            done.problems.append(f"{found.why}; what it covers is left as it is")
            hidden.update([found.name] if found.name else [])
            continue
        keys.update(file.key for file in (*found.files, *found.dead))
        newest[found.source] = found
        spans.append(Span(found.source, found.first, found.last))
    for one in committed.chain(spans):
        if one.overlap or (one.source, one.first) not in hidden:
            done.problems.append(broken(place, one))
    unknown = {source for source, each in firsts.items() if (source, each[-1]) in hidden}
    return _Known(keys, {source: one for source, one in newest.items() if source not in unknown}, unknown)


def broken(place: Place, one: Break) -> str:
    """For people: what is wrong with the chain of one source."""
    what = "are in two manifests" if one.overlap else "are in no manifest, and later ones are committed"
    return f"{place} Kafka partition {one.source}: the offsets from {one.first} to {one.last} {what}"


class _Listing:
    """What lies in the export's folders. It is listed to its end before anything is changed."""

    def __init__(self, bucket: Bucket, place: Place, known: _Known, done: _Done, *, prefix: str) -> None:
        self._bucket, self._place, self._done = bucket, place, done
        self._closed: set[str] = set()  # every _SUCCESS
        self.hinted: set[Source] = set()  # the sources that have a hint
        self.candidates: list[tuple[Entry, FileName]] = []  # not listed, and wholly below the committed offset
        for entry in bucket.list(prefix):
            if entry.key in known.keys:
                continue
            if entry.key.endswith(f"/{SUCCESS}"):
                self._closed.add(entry.key)
            elif entry.key.startswith(_hints(place)):
                with suppress(ValueError):  # nobody reads one that is named otherwise
                    self.hinted.add(Source.parse(entry.key.removeprefix(_hints(place)).removesuffix(".json")))
            try:
                _, name = place.parse_file(entry.key)
            except ValueError:
                continue  # whatever it is, it is not ours to remove
            newest = known.newest.get(name.source)
            if newest is None or name.last >= newest.next:
                done.kept.append(Kept(entry.key, "reaches above the committed offset: may be in progress"))
            elif not entry.settled:
                done.kept.append(Kept(entry.key, "may still be being written"))
            else:
                self.candidates.append((entry, name))

    def remove(self, entry: Entry, name: FileName, firsts: list[int], *, dry_run: bool, also_newer: bool) -> None:
        """Remove one of the candidates, or note why it is left alone."""
        why = self._published(entry.key)
        if not why:
            cover = _cover(self._bucket, self._place, name, firsts)  # right before the delete: the argument rests on it
            why = cover if isinstance(cover, str) else kept_because(entry.key, name, cover, also_newer=also_newer)
        if why:
            self._done.kept.append(Kept(entry.key, why))
            return
        if not dry_run:
            self._bucket.delete(entry.key)
        self._done.removed.append(entry.key)
        self._done.size += entry.size

    def _published(self, key: str) -> str:
        """Whether the `_SUCCESS` of the file's folder lists it, or cannot be read."""
        success = f"{key.rpartition('/')[0]}/{SUCCESS}"
        if success not in self._closed:
            return ""
        try:
            published = published_keys(self._bucket.read(success).body)
        except NotFound:
            return ""
        except ValueError:
            return "is in a folder whose _SUCCESS cannot be read"
        return "is listed by its folder's _SUCCESS" if key in published else ""


def kept_because(key: str, name: FileName, cover: Manifest, *, also_newer: bool) -> str:
    """Why a file is left alone that lies below the committed offset; empty: it may go. Pure.

    cover: the manifest that holds the file's first offset, as it is now.
    """
    if any(file.key == key for file in (*cover.files, *cover.dead)):
        return "is committed by now"
    if cover.skipped:
        return "is in a range that was skipped: it may be the only copy of what Kafka no longer had"
    if name.generation > cover.generation and not also_newer:
        return f"is of generation {name.generation}, newer than its range's: a backfill may be about to commit it"
    return ""


def _cover(bucket: Bucket, place: Place, name: FileName, firsts: list[int]) -> Manifest | str:
    """The manifest of the range in which the file begins, read now; or why there is none."""
    at = bisect_right(firsts, name.first) - 1
    if at >= 0:
        try:
            found = committed.read(bucket, place, name.source, firsts[at])
        except NotFound:
            return "is in a range whose manifest was removed"
        except BucketError as error:
            if not error.unreadable:
                raise
            return "is in a range whose manifest cannot be read"
        if name.first <= found.last:
            return found
    return "begins in a range that has no manifest"


def published_keys(body: bytes) -> frozenset[str]:
    """The files that a `_SUCCESS` lists. ValueError if it is none of ours."""
    try:
        return frozenset(str(file["key"]) for file in json.loads(body)["files"])
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"it lists no files ({error!r})") from error

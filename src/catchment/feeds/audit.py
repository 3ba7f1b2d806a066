"""Audit: is every hour there, once, whole, and in every storage? And mending what can be mended.

`judge` and `gaps` say what is wrong, purely, from listings. Reading the archives finds the corrupt ones, and primary
archives that hold other downloads than another storage has, which their names do not tell. Mending uses what the
replicas themselves use: reconcile (which sets aside what is damaged), replicate, and writing an archive anew in its
feed's compression. Afterwards the hours are looked at again: what is then still wrong was not mended.

An archive is written in another compression only where the new key is the smaller one. Reconciling keeps the smaller
key of two that hold the same, everywhere and always, because no two replicas may ever disagree about which one goes.
Where nothing can be done about it, it is a note: shown, and nothing that anyone has to see to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from catchment.bucket.contract import Bucket
from catchment.errors import CatchmentError, Conflict, NotFound, Transient
from catchment.feeds.hours import Listing, Span, Stored, list_hour, list_hours
from catchment.feeds.names import Archive, Hour
from catchment.feeds.reconcile import settled
from catchment.feeds.replicate import Place, lacking, replicate_hour
from catchment.feeds.settle import Codecs, settle, union
from catchment.feeds.union import LOOKS, Flaw, check

WORKERS = 4
_ANY = Span()
_ROUNDS = 3  # of replicating: what was copied may be lacking in a third storage


class Kind(StrEnum):
    """What can be wrong with an hour."""

    UNMERGED = "unmerged"  # more than one archive, or archives of an hour that was deleted
    UNREPLICATED = "unreplicated"  # a storage lacks something of it that another one has
    MISSING = "missing"  # no storage has anything of it, though it was to be collected
    CORRUPT = "corrupt"  # an archive cannot be read whole, or is not what its name says
    COMPRESSION = "compression"  # an archive is not compressed as the feed's configuration says


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    kind: Kind
    feed: str
    hour: datetime
    storage: str  # its id; empty: all of them
    detail: str
    hours: int = 1  # how many, from `hour` on
    mended: bool = False
    note: bool = False  # it can never be mended, and does no harm


@dataclass(frozen=True)
class Audit:
    """What was looked at, and what is wrong."""

    hours: int
    archives: int  # that were read whole
    findings: tuple[Finding, ...]
    problems: tuple[str, ...] = ()  # what could not be looked at, or could not be mended because of an error

    @property
    def well(self) -> bool:
        """Whether nothing is wrong, or is wrong no more. Notes do not count."""
        return not self.problems and all(finding.mended or finding.note for finding in self.findings)


@dataclass(frozen=True)
class Subject:
    """One feed, and the storages that should have it."""

    feed: str
    places: Mapping[str, Place]  # by the storage's id
    declared: bool = True  # False: nobody says how it should be compressed, or that it is still collected


Views = Mapping[str, Listing]  # one hour, by the storage's id


def judge(subject: Subject, views: Views) -> list[Finding]:
    """What is wrong with one hour, as far as listings tell."""
    found = []

    def add(kind: Kind, storage: str, detail: str, *, note: bool = False) -> None:
        found.append(Finding(kind, subject.feed, next(iter(views.values())).hour.start, storage, detail, note=note))

    for id, listing in views.items():
        given = subject.places[id].rules
        if listing.deleted and listing.archives:
            came = ", ".join(stored.archive.name for stored in listing.archives)
            add(Kind.UNMERGED, id, f"the hour was deleted, and this came later: {came}")
        elif not settled(listing, given):
            busy = f", {len(listing.busy)} of them perhaps still being written" if listing.busy else ""
            many = len(listing.live) + len(listing.busy)
            one = "one archive, perhaps still being written" if listing.busy else "no primary archive yet"
            add(Kind.UNMERGED, id, f"{many} archives{busy}" if many > 1 else one)
        for stored in _other_compression(subject, id, listing):
            how = f"{stored.archive.name} is not {given.compression}"
            able = _smaller(subject, id, stored)
            add(Kind.COMPRESSION, id, how if able else f"{how}; it stays so, since {_why_kept(stored)}", note=not able)
    for copy in {copy.target: copy for copy in lacking(views)}.values():
        there = "lacks something" if views[copy.target].live else "has nothing"
        add(Kind.UNREPLICATED, copy.target, f"{there} of it that {copy.source} has")
    return found


def gaps(feed: str, present: Iterable[Hour], expected: Span = _ANY) -> list[Finding]:
    """The hours that are missing: between those that are there, and from there to the bounds of what is expected.

    Each run of hours is one finding. Where nothing is there and nobody says since when it should be, the last hour
    stands for all.
    """
    ordered = sorted(present)
    found = []

    def add(first: Hour, end: Hour, detail: str) -> None:
        count = (end.start - first.start) // timedelta(hours=1)
        if count > 0:
            found.append(Finding(Kind.MISSING, feed, first.start, "", detail, count))

    if not ordered:
        if expected.end is not None:
            first = expected.first or Hour(expected.end.start - timedelta(hours=1))
            since = f"from {first.text} " if expected.first else ""
            why = "it is not collected, or was declared only now"
            add(first, expected.end, f"nothing of it is there {since}up to {expected.end.text}: {why}")
        return found
    if expected.first is not None:
        why = "the feed, or all of its collectors, were down or not there yet"
        add(expected.first, ordered[0], f"nothing from {expected.first.text} up to {ordered[0].text}: {why}")
    for before, after in pairwise(ordered):
        why = "the feed, or all of its collectors, were down"
        add(before.next, after, f"nothing between {before.text} and {after.text}: {why}")
    if expected.end is not None:
        why = "the feed, or all of its collectors, are down"
        add(ordered[-1].next, expected.end, f"nothing after {ordered[-1].text} and up to {expected.end.text}: {why}")
    return found


def differing(contents: Mapping[str, frozenset[str]]) -> list[tuple[str, str]]:
    """Each storage that lacks downloads of an hour, and one that has them: (source, target), given what each holds."""
    return [
        (source, target)
        for target, mine in contents.items()
        for source, theirs in contents.items()
        if not theirs <= mine
    ]


def audit(
    subjects: Sequence[Subject],
    span: Span,
    codecs: Codecs,
    *,
    read: bool = True,
    fix: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Audit:
    """Look at every hour of the span, and mend what can be mended if asked to. One that fails stops no other.

    read: also read every archive whole. on_progress: hours done, of so many.
    """
    work = _Work(codecs, read=read)
    findings: list[Finding] = []
    jobs: list[tuple[Subject, Hour, Views]] = []
    for subject in subjects:
        subject, known = work.listed(subject, span)
        present = [hour for hour, views in known.items() if any(map(_there, views.values()))]
        # Where no storage answers, nobody knows what is there.
        findings += gaps(subject.feed, present, span if subject.declared and subject.places else _ANY)
        jobs += [(subject, hour, views) for hour, views in known.items()]
    with ThreadPoolExecutor(WORKERS, thread_name_prefix="audit") as pool:
        looked = pool.map(lambda job: work.look(job[0], job[2]), jobs)
        on_progress(0, len(jobs))
        for done, ((subject, hour, _), found) in enumerate(zip(jobs, looked, strict=True), start=1):
            findings += work.mend(subject, hour, found) if fix and found else found
            on_progress(done, len(jobs))
    order = sorted(findings, key=lambda finding: (finding.feed, finding.hour, finding.kind, finding.storage))
    return Audit(len(jobs), len(work.read), tuple(order), tuple(work.problems))


class _Work:
    """One call of `audit`."""

    def __init__(self, codecs: Codecs, *, read: bool) -> None:
        self.read: list[str] = []  # keys
        self.problems: list[str] = []
        self._codecs, self._whole = codecs, read

    def listed(self, subject: Subject, span: Span) -> tuple[Subject, dict[Hour, Views]]:
        """Every hour that a storage has something of. A storage that gives no answer is a problem, and left out."""
        listings: dict[str, dict[Hour, Listing]] = {}
        for id, place in subject.places.items():
            try:
                listings[id] = {listing.hour: listing for listing in list_hours(place.bucket, subject.feed, span)}
            except CatchmentError as error:
                self.problems.append(f"{subject.feed} in {id}: {error}")
        subject = replace(subject, places={id: subject.places[id] for id in listings})
        return subject, {
            hour: {id: found.get(hour, Listing(subject.feed, hour)) for id, found in listings.items()}
            for hour in sorted({hour for found in listings.values() for hour in found})
        }

    def look(self, subject: Subject, views: Views) -> list[Finding]:
        """All that is wrong with an hour."""
        found = judge(subject, views)
        if self._whole:
            corrupt, contents = self._inside(subject, views)
            found += corrupt
            known = {finding.storage for finding in found if finding.kind is Kind.UNREPLICATED}
            for target, source in {target: source for source, target in differing(contents)}.items():
                if target not in known:
                    hour, detail = views[target].hour.start, f"lacks downloads of it that {source} has"
                    found.append(Finding(Kind.UNREPLICATED, subject.feed, hour, target, detail))
        return found

    def mend(self, subject: Subject, hour: Hour, found: Sequence[Finding]) -> list[Finding]:
        """Do what can be done about an hour, then look again."""
        for step in (self._settle, self._recompress, self._replicate):
            try:
                step(subject, hour, found)
            except CatchmentError as error:
                self.problems.append(f"{subject.feed} {hour.text}: {error}")
        try:
            left = self.look(subject, self._again(subject, hour))
        except CatchmentError as error:
            self.problems.append(f"{subject.feed} {hour.text}: {error}")
            return list(found)
        still = {(finding.kind, finding.storage) for finding in left}
        return left + [replace(f, mended=True) for f in found if (f.kind, f.storage) not in still]

    def _settle(self, subject: Subject, hour: Hour, found: Sequence[Finding]) -> None:
        corrupt = {finding.storage for finding in found if finding.kind is Kind.CORRUPT}
        for id, place in subject.places.items():
            settle(place.bucket, subject.feed, hour, place.rules, self._codecs, thorough=id in corrupt)

    def _recompress(self, subject: Subject, hour: Hour, found: Sequence[Finding]) -> None:
        for id, place in subject.places.items():
            listing = list_hour(place.bucket, subject.feed, hour)
            for stored in _other_compression(subject, id, listing):
                if not _smaller(subject, id, stored):
                    continue
                with self._codecs() as codec:
                    with place.bucket.open(stored.key, etag=stored.etag) as stream:
                        fetched = codec.fetch(stored.archive, stream)
                    wanted = replace(stored.archive, compression=place.rules.compression)
                    place.bucket.put(wanted.key, union(codec, [fetched], wanted))
                settle(place.bucket, subject.feed, hour, place.rules, self._codecs)

    def _replicate(self, subject: Subject, hour: Hour, found: Sequence[Finding]) -> None:
        for _ in range(_ROUNDS):
            views = self._again(subject, hour)
            copies = [(copy.source, copy.target) for copy in lacking(views)]
            if self._whole and any(stored.primary for listing in views.values() for stored in listing.live):
                copies += differing(self._inside(subject, views)[1])  # what the names do not tell
            for source, target in dict.fromkeys(copies):
                places = subject.places
                replicate_hour(places[source].bucket, places[target], subject.feed, hour, self._codecs)
            if not copies:
                return

    def _again(self, subject: Subject, hour: Hour) -> dict[str, Listing]:
        return {id: list_hour(place.bucket, subject.feed, hour) for id, place in subject.places.items()}

    def _inside(self, subject: Subject, views: Views) -> tuple[list[Finding], dict[str, frozenset[str]]]:
        """What is wrong inside the archives of an hour; and, by storage, what the one archive holds that is whole."""
        found: list[Finding] = []
        contents: dict[str, frozenset[str]] = {}
        for id, listing in views.items():
            try:
                flaws, names = self._read(subject.places[id].bucket, listing)
            except CatchmentError as error:
                self.problems.append(f"{subject.feed} {listing.hour.text} in {id}: {error}")
                continue
            if flaws:
                more = f"; and {len(flaws) - 3} more" if len(flaws) > 3 else ""
                detail = "; ".join(map(str, flaws[:3])) + more
                found.append(Finding(Kind.CORRUPT, subject.feed, listing.hour.start, id, detail))
            elif names is not None:
                contents[id] = names
        return found, contents

    def _read(self, bucket: Bucket, listing: Listing) -> tuple[list[Flaw], frozenset[str] | None]:
        """Read the archives of an hour. If one changes meanwhile, or a connection breaks, look again.

        What is wrong with them; and what they hold if that is one archive, and not deleted or still to be reconciled.
        """
        for left in reversed(range(LOOKS)):
            flaws: list[Flaw] = []
            names: frozenset[str] = frozenset()
            archives = () if listing.deleted else listing.live
            try:
                for stored in archives:
                    wrong, held = check(bucket, stored)
                    flaws, names = flaws + wrong, names | held
                    self.read.append(stored.key)
                return flaws, names if len(archives) == 1 and not listing.busy else None
            except (NotFound, Conflict, Transient):
                if not left:
                    raise
            listing = list_hour(bucket, listing.feed, listing.hour)
        raise AssertionError("unreachable")


def _there(listing: Listing) -> bool:
    return bool(listing.live or listing.busy or listing.deleted)


def _other_compression(subject: Subject, id: str, listing: Listing) -> list[Stored]:
    if listing.deleted or not subject.declared:
        return []
    wanted = subject.places[id].rules.compression
    return [stored for stored in listing.live if stored.archive.compression is not wanted]


def _smaller(subject: Subject, id: str, stored: Stored) -> bool:
    """Whether the archive under its right name would be the one that is kept."""
    archive = stored.archive
    if archive.hash is None:
        return False
    return Archive(archive.feed, archive.hour, archive.hash, subject.places[id].rules.compression).key < stored.key


def _why_kept(stored: Stored) -> str:
    return "a primary archive keeps its key" if stored.primary else "the smaller key is the one that is kept"

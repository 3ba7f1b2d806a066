"""The hint of one source: the newest committed offset known, the current claim, the watermark. Never the truth.

The truth is the chain of manifests; a hint that is behind costs a read or two, a hint that is gone costs a listing.

    free(next) ──claim──▶ claimed(next, [next, last], owner)
    claimed ──take over──▶ claimed, bounds unchanged       by anyone, once the owner is gone or has let go of it
    claimed ──let go──▶ claimed without an owner           by its owner, when it stops or cannot write the range
    any ──advance──▶ free(last + 1)                        by whoever knows that the range is committed
    free ──heartbeat──▶ free, with a later watermark       when all that Kafka has is committed

Every change is a swap. The watermark is a moment up to which everything that was in Kafka is committed: the clock as it
was read *before* Kafka was asked for its end, valid once the committed offset reaches that end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from catchment.bucket import swap
from catchment.bucket.contract import ABSENT, Bucket, matches
from catchment.bucket.swap import Document
from catchment.clock import isoformat
from catchment.errors import BadKey, BucketError, Conflict, ExportStopped, NotFound
from catchment.topics.manifest import Manifest
from catchment.topics.names import Place, Source

Nonce = Callable[[], str]


@dataclass(frozen=True)
class Claim:
    """Who writes which range. Advice: it shares the work out, and no promise rests on it."""

    first: int
    last: int
    owner: str  # the replica's id; empty: let go of, anyone may take it
    generation: int
    fingerprint: str
    since: str = ""  # when it was first made, for people
    watermark: str | None = None  # valid once the range is committed; None: Kafka had more
    error: str = ""  # why its last owner could not write it


@dataclass(frozen=True)
class Hint:
    """What one source's document says."""

    next: int  # everything below is committed
    claim: Claim | None = None
    watermark: str | None = None
    refreshed: str | None = None  # when it was last changed, on that process's clock
    mean: float = 0.0  # bytes of a message, of the last range

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def parse(cls, place: Place, source: Source, value: Mapping[str, Any]) -> Hint:
        """ExportStopped if it cannot be understood: it says how to have it rebuilt."""
        try:
            claim = value.get("claim")
            if claim is not None:
                _moment(claim.get("watermark"))
            found = cls(
                next=int(value["next"]),
                claim=None if claim is None else Claim(**{name: claim[name] for name in _CLAIM if name in claim}),
                watermark=_moment(value.get("watermark")),
                refreshed=_moment(value.get("refreshed")),
                mean=float(value.get("mean", 0.0)),
            )
            if found.next < 0 or (found.claim and not found.next == found.claim.first <= found.claim.last):
                raise ValueError("its offsets make no sense")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise unreadable(place, source, str(error)) from error
        return found


_CLAIM = tuple(Claim.__dataclass_fields__)


def _moment(text: object) -> str | None:
    if text is None:
        return None
    if datetime.fromisoformat(str(text)).tzinfo is None:  # ValueError if it is no moment at all
        raise ValueError(f"{text!r} has no zone")
    return str(text)


def unreadable(place: Place, source: Source, why: str) -> ExportStopped:
    """The error for a hint that cannot be understood."""
    return ExportStopped(
        f"{place.hint(source)} cannot be read ({why})",
        hint=f"rebuild it from the manifests: catchment topics repair --group {place.group} --topic {place.topic}",
    )


@dataclass(frozen=True)
class Known:
    """A hint as it was read, and the document that a change must match."""

    document: Document
    hint: Hint


def read_hint(bucket: Bucket, place: Place, source: Source, start: int) -> Known:
    """One read. Where there is none yet, it begins at `start`. ExportStopped if it cannot be understood."""
    try:
        document = swap.read(bucket, place.hint(source))
    except BucketError as error:
        if not error.unreadable:  # the bucket's own trouble passes
            raise
        raise unreadable(place, source, "it is not JSON") from error
    if not document.exists:
        return Known(document, Hint(start))
    return Known(document, Hint.parse(place, source, document.value))


def write_hint(bucket: Bucket, known: Known, hint: Hint, now: datetime, nonce: Nonce = swap.fresh) -> Known:
    """One swap. Conflict if somebody else was first."""
    hint = replace(hint, refreshed=isoformat(now))
    return Known(swap.swap(bucket, known.document, hint.plain(), nonce=nonce), hint)


def read_manifest(bucket: Bucket, place: Place, source: Source, first: int) -> Manifest | None:
    """The manifest of the range that begins there; None if there is none yet. One read."""
    key = place.commit(source, first)
    try:
        found = bucket.read(key)
    except NotFound:
        return None
    return Manifest.parse(key, found.body)


def load(
    bucket: Bucket, place: Place, source: Source, start: int, duty: Callable[[Manifest], object] = lambda manifest: None
) -> Known:
    """Where a source stands: its hint, then the chain from there. Two reads when the hint is up to date.

    `duty` is done for every committed range that the hint does not know of yet: its committer may have died before it.
    """
    known = read_hint(bucket, place, source, start)
    if not known.document.exists and read_manifest(bucket, place, source, start) is not None:
        known = replace(known, hint=Hint(_last_named(bucket, place, source, start)))
    return follow(bucket, place, source, known, duty)


def follow(bucket: Bucket, place: Place, source: Source, known: Known, duty: Callable[[Manifest], object]) -> Known:
    """What is known, with every range that is committed after it. One read more than there are such ranges."""
    hint = known.hint
    while (manifest := read_manifest(bucket, place, source, hint.next)) is not None:
        duty(manifest)
        hint = after(hint, manifest)
    return replace(known, hint=hint)


def after(hint: Hint, manifest: Manifest) -> Hint:
    """The hint once this range is committed."""
    if manifest.next <= hint.next:
        return hint
    claim, watermark = hint.claim, hint.watermark
    if claim is not None and claim.first < manifest.next:
        if claim.last <= manifest.last:  # what was promised of it has come true
            watermark = later(watermark, claim.watermark)
        claim = None
    read = manifest.counts.read
    return replace(
        hint,
        next=manifest.next,
        claim=claim,
        watermark=watermark,
        mean=manifest.raw_bytes / read if read else hint.mean,
    )


def trusted(known: Known, until: str) -> Known:
    """Without watermarks later than `until`: they are of a clock that was ahead, and would close days early for good.

    What is left out is gone for everybody with the next change of the hint; a heartbeat tells it anew.
    """
    hint = known.hint
    if hint.watermark and hint.watermark > until:
        hint = replace(hint, watermark=None)
    if hint.claim and hint.claim.watermark and hint.claim.watermark > until:
        hint = replace(hint, claim=replace(hint.claim, watermark=None))
    return known if hint is known.hint else replace(known, hint=hint)


def later(one: str | None, other: str | None) -> str | None:
    """The later of two moments as `isoformat` writes them."""
    return max(filter(None, (one, other)), default=None)


def _last_named(bucket: Bucket, place: Place, source: Source, start: int) -> int:
    """The first offset of the newest manifest, by the names alone: for a hint that is gone."""
    first = start
    for entry in bucket.list(place.commits(source)):
        with suppress(BadKey):  # what somebody else put there is no manifest
            first = max(first, place.parse_commit(entry.key)[1])
    return first


def _from(hint: Hint, first: int) -> Hint:
    """The hint of somebody who did not know yet that everything below `first` is committed, with that added."""
    if hint.next >= first:
        return hint
    claim = hint.claim if hint.claim and hint.claim.first >= first else None
    return replace(hint, next=first, claim=claim)


@dataclass(frozen=True)
class Busy:
    """Somebody else has claimed it and seems alive."""

    known: Known
    owner: str


def acquire(
    bucket: Bucket,
    place: Place,
    source: Source,
    known: Known,
    want: Claim,
    gone: Callable[[str], bool],
    now: datetime,
    *,
    duty: Callable[[Manifest], object] = lambda manifest: None,
    nonce: Nonce = swap.fresh,
) -> Known | Busy:
    """Claim a range: the one wanted, or the one that somebody has claimed before, *bounds unchanged*.

    The claim got is in the result's hint. If the source has moved on meanwhile, the result's hint has no claim of ours:
    look again. One swap when nothing happened since `known`.
    """
    for _ in range(100):
        known = replace(known, hint=_from(known.hint, want.first))
        claim = known.hint.claim
        if known.hint.next > want.first:
            return known
        if claim is None:
            mine = want
        elif claim.owner == want.owner and claim.fingerprint == want.fingerprint:
            return known
        elif claim.owner in ("", want.owner) or gone(claim.owner):
            # Its owner may have died between the commit and the hint.
            followed = follow(bucket, place, source, known, duty)
            if followed.hint.next > want.first:
                return followed
            mine = replace(claim, owner=want.owner, generation=want.generation, fingerprint=want.fingerprint, error="")
        else:
            return Busy(known, claim.owner)
        try:
            return write_hint(bucket, known, replace(known.hint, claim=mine), now, nonce)
        except Conflict:
            known = read_hint(bucket, place, source, known.hint.next)
    return Busy(known, "many others")


def commit(bucket: Bucket, place: Place, manifest: Manifest, *, nonce: Nonce = swap.fresh) -> tuple[Manifest, bool]:
    """Put the manifest if there is none: the commit. The manifest that is there, and whether it is ours.

    One put. Everything that it lists must be in place before.
    """
    mark = nonce()
    key = place.commit(manifest.source, manifest.first)
    try:
        bucket.put(key, manifest.body(mark), when=ABSENT)
    except Conflict:
        found = bucket.read(key)
        winner = Manifest.parse(key, found.body)
        return winner, f'"nonce": "{mark}"'.encode() in found.body  # ours, if only the reply was lost
    return manifest, True


def exchange(bucket: Bucket, place: Place, before: Manifest, after: Manifest, *, nonce: Nonce = swap.fresh) -> Manifest:
    """Put a manifest in place of another of the same bounds, if that is still there: the one that is there then.

    One read and one put. Everything that it lists must be in place before. Readers see the one or the other.
    """
    key = place.commit(before.source, before.first)
    if (before.source, before.first, before.last) != (after.source, after.first, after.last):
        raise ValueError(f"{key} cannot be swapped for a range with other bounds")
    found = bucket.read(key)
    there = Manifest.parse(key, found.body)
    if there != before:
        return there
    mark = nonce()
    try:
        bucket.put(key, after.body(mark), when=matches(found.stat.etag))
    except Conflict:
        found = bucket.read(key)
        return Manifest.parse(key, found.body)  # ours, if only the reply was lost
    return after


def advance(
    bucket: Bucket,
    place: Place,
    source: Source,
    known: Known,
    manifest: Manifest,
    now: datetime,
    *,
    nonce: Nonce = swap.fresh,
) -> Known:
    """Say in the hint that this range is committed. One swap when nothing happened since `known`."""
    for _ in range(100):
        hint = after(known.hint, manifest)
        if hint == known.hint and known.document.exists:
            return known
        try:
            return write_hint(bucket, known, hint, now, nonce)
        except Conflict:
            known = read_hint(bucket, place, source, known.hint.next)
    return known  # the hint is behind, and whoever comes next follows the chain


def let_go(
    bucket: Bucket, known: Known, owner: str, now: datetime, *, error: str = "", nonce: Nonce = swap.fresh
) -> Known:
    """Leave our claim to whoever wants it, bounds unchanged. If it is no longer ours, nothing happens."""
    claim = known.hint.claim
    if claim is None or claim.owner != owner:
        return known
    try:
        return write_hint(bucket, known, replace(known.hint, claim=replace(claim, owner="", error=error)), now, nonce)
    except Conflict:
        return known


def beat(
    bucket: Bucket,
    place: Place,
    source: Source,
    known: Known,
    watermark: str | None,
    now: datetime,
    *,
    nonce: Nonce = swap.fresh,
) -> Known:
    """Say that everything up to `watermark` is committed (None: not known), or that a source is begun.

    One swap; somebody else's newer word is taken as it is.
    """
    try:
        return write_hint(
            bucket, known, replace(known.hint, watermark=later(known.hint.watermark, watermark)), now, nonce
        )
    except Conflict:
        return read_hint(bucket, place, source, known.hint.next)

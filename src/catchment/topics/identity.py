"""What an export is: which life of the topic it reads, where it began, and what each of its generations means.

One document per export and topic, `_export.json`, read once at start. It settles three things for all replicas:

- **The topic's id.** A topic that was deleted and made again has another one, even when it has outgrown the old
  offsets. Going on with it is a decision (`skip --recreated`); its sources then carry the number of the life: `3r1`.
- **Where it began**: the offsets that `start` meant when the export was first seen. Kafka partitions that are not
  listed came later, and everything in them is new: they begin at 0.
- **Generations**: one definition each. The same number with another definition is refused.

What lies before the start may be added, from there downwards. A manifest is named by its first offset, so two that cut
otherwise would both find their name free. Therefore the bounds of the next range are recorded here before it is
committed, and stay until it is: whoever adds takes these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from catchment.bucket import swap
from catchment.bucket.contract import Bucket
from catchment.config.topics import Export
from catchment.errors import BucketError, Conflict, ExportStopped
from catchment.topics.definition import definition, digest
from catchment.topics.names import Place, Source


@dataclass(frozen=True)
class Identity:
    """What `_export.json` says."""

    topic_id: str
    life: int
    starts: Mapping[int, int]  # Kafka partition → the offset at which the export began
    generations: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)  # number → definition
    past: tuple[str, ...] = ()  # the ids of earlier lives
    adding: Mapping[int, int] = field(default_factory=dict)  # Kafka partition → where a range begins that ends at start

    def source(self, partition: int) -> Source:
        return Source(partition, self.life)

    def start(self, partition: int) -> int:
        return self.starts.get(partition, 0)

    def plain(self) -> dict[str, Any]:
        return {
            "topic_id": self.topic_id,
            "life": self.life,
            "starts": {str(partition): first for partition, first in sorted(self.starts.items())},
            "generations": {str(number): what for number, what in sorted(self.generations.items())},
            "past": list(self.past),
            "adding": {str(partition): first for partition, first in sorted(self.adding.items())},
        }

    @classmethod
    def parse(cls, key: str, value: Mapping[str, Any]) -> Identity:
        """BucketError if it cannot be understood."""
        try:
            return cls(
                str(value["topic_id"]),
                int(value["life"]),
                {int(partition): int(first) for partition, first in value["starts"].items()},
                {int(number): dict(what) for number, what in value["generations"].items()},
                tuple(str(one) for one in value.get("past", ())),
                {int(partition): int(first) for partition, first in value.get("adding", {}).items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BucketError(
                f"{key} cannot be understood ({error!r})", key=key, hint="restore an earlier version of this object"
            ) from error


def read(bucket: Bucket, place: Place) -> Identity | None:
    """What is recorded; None if this export was never begun. One read."""
    document = swap.read(bucket, place.export())
    return Identity.parse(document.key, document.value) if document.exists else None


def register(
    bucket: Bucket,
    place: Place,
    topic_id: str,
    export: Export,
    starts: Callable[[], Mapping[int, int]],
    *,
    nonce: Callable[[], str] = swap.fresh,
) -> Identity:
    """Begin the export, or join it. ExportStopped if the topic or this generation's definition is another one.

    One read when everything is as recorded. `starts` is asked only if the export is new.
    """
    wanted = definition(export)
    while True:
        document = swap.read(bucket, place.export())
        if not document.exists:
            identity = Identity(topic_id, 0, starts(), {export.generation: wanted})
        else:
            identity = Identity.parse(document.key, document.value)
            _same_topic(place, identity, topic_id)
            known = identity.generations.get(export.generation)
            if known is not None:
                _same_definition(place, identity, export, known, wanted)
                return identity
            _not_behind(place, identity, export)
            identity = replace(identity, generations={**identity.generations, export.generation: wanted})
        try:
            swap.swap(bucket, document, identity.plain(), nonce=nonce)
        except Conflict:
            continue
        return identity


def accept_recreated(
    bucket: Bucket,
    place: Place,
    topic_id: str,
    starts: Mapping[int, int],
    *,
    nonce: Callable[[], str] = swap.fresh,
) -> Identity:
    """Go on with the topic as it is now: a new life, from these offsets. Nothing of the old one is touched."""
    while True:
        document = swap.read(bucket, place.export())
        if not document.exists:
            raise ExportStopped(f"{place} was never exported", hint="run: catchment topics export")
        before = Identity.parse(document.key, document.value)
        if before.topic_id == topic_id:
            return before
        past = (*before.past, before.topic_id)
        now = replace(before, topic_id=topic_id, life=before.life + 1, starts=dict(starts), past=past, adding={})
        try:
            swap.swap(bucket, document, now.plain(), nonce=nonce)
        except Conflict:
            continue
        return now


def reserve(
    bucket: Bucket, place: Place, source: Source, first: int, next: int, *, nonce: Callable[[], str] = swap.fresh
) -> bool:
    """Record that the range before the start, which is `next`, begins at `first`: before its manifest is put.

    False if the export begins elsewhere by now, or another cut of it was recorded before. Safe to repeat.
    """
    while True:
        document = swap.read(bucket, place.export())
        now = Identity.parse(document.key, document.value)
        there = now.adding.get(source.partition, first)
        if now.life != source.life or now.start(source.partition) != next or there != first:
            return False
        if source.partition in now.adding:
            return True
        now = replace(now, adding={**now.adding, source.partition: first})
        try:
            swap.swap(bucket, document, now.plain(), nonce=nonce)
        except Conflict:
            continue
        return True


def lowered(identity: Identity, partition: int, first: int) -> Identity:
    """The same export, begun at `first`: what lies between was added. Pure."""
    adding = {one: start for one, start in identity.adding.items() if one != partition}
    return replace(identity, starts={**identity.starts, partition: first}, adding=adding)


def lower_start(
    bucket: Bucket, place: Place, source: Source, first: int, next: int, *, nonce: Callable[[], str] = swap.fresh
) -> Identity:
    """Let the export begin at `first`, if it began at `next`: the range between them was added. Safe to repeat."""
    while True:
        document = swap.read(bucket, place.export())
        now = Identity.parse(document.key, document.value)
        if now.life != source.life or now.start(source.partition) != next:
            return now
        now = lowered(now, source.partition, first)
        try:
            swap.swap(bucket, document, now.plain(), nonce=nonce)
        except Conflict:
            continue
        return now


def recreated(place: Place, before: str, now: str) -> ExportStopped:
    """The error for a topic that is another one than before."""
    return ExportStopped(
        f"topic {place.topic} was deleted and made again: its id was {before} and is {now},"
        f" so offsets recorded for {place} mean other messages now",
        hint="to go on with the new topic from its beginning (what was exported of the old one stays):"
        f" catchment topics skip --group {place.group} --topic {place.topic} --recreated",
    )


def check_definition(place: Place, identity: Identity, export: Export) -> None:
    """ExportStopped if `register` would refuse this generation or its definition. Changes nothing."""
    known = identity.generations.get(export.generation)
    if known is not None:
        _same_definition(place, identity, export, known, definition(export))
    else:
        _not_behind(place, identity, export)


def _not_behind(place: Place, identity: Identity, export: Export) -> None:
    if export.generation < max(identity.generations):
        raise ExportStopped(
            f"{place} is at generation {max(identity.generations)}, and the config says {export.generation},"
            " which was never used",
            hint=f"set generation: {max(identity.generations) + 1}",
        )


def _same_topic(place: Place, identity: Identity, topic_id: str) -> None:
    if identity.topic_id != topic_id:
        raise recreated(place, identity.topic_id, topic_id)


def _same_definition(
    place: Place, identity: Identity, export: Export, known: Mapping[str, Any], wanted: Mapping[str, Any]
) -> None:
    if digest(known) == digest(wanted):
        return
    changed = [name for name in wanted if digest(known.get(name)) != digest(wanted[name])]
    what = ", ".join("the decoding code" if name == "code" else name for name in changed) or "its definition"
    raise ExportStopped(
        f"generation {export.generation} of {place} was written with another definition ({what} changed)",
        hint=f"set generation: {max(identity.generations) + 1}, or put back what was changed",
    )

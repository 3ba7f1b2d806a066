"""Which ranges a backfill writes: those of earlier generations in its period, and what lies before the export's start.

Bounds are never changed. A range that is committed is swapped as it is: whoever follows the chain, and whoever looks
for leftovers, counts on that. What lies before the start is added from the start downwards, so that the chain has no
hole at any moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from catchment.topics.committed import Span
from catchment.topics.identity import Identity
from catchment.topics.manifest import Manifest
from catchment.topics.names import Source
from catchment.topics.period import Period


@dataclass(frozen=True)
class Read:
    """Something that is read for a range."""

    what: str  # the key of an object, or a Kafka partition
    rows: int


@dataclass(frozen=True)
class Todo:
    """One range to be written."""

    source: Source
    first: int
    last: int
    before: Manifest | None  # what is committed there; None: nothing, since it lies before the export's start
    reads: tuple[Read, ...] = ()

    def __str__(self) -> str:
        return f"Kafka partition {self.source} [{self.first}, {self.last}]"


@dataclass(frozen=True)
class Unavailable:
    """A range that cannot be read again, and why."""

    source: Source
    first: int
    last: int
    why: str

    def __str__(self) -> str:
        return f"Kafka partition {self.source} [{self.first}, {self.last}]: {self.why}"


class Messages(Protocol):
    """Where messages are read from again: a backup, or Kafka."""

    def reads(self, source: Source, first: int, last: int) -> tuple[Read, ...] | str:
        """What is read for this range; or why it cannot be."""

    def before(self, source: Source, end: int, period: Period) -> Sequence[Span]:
        """Ranges of a good size below this offset that are in the period, in order. Some may be missing."""


@dataclass(frozen=True)
class Plan:
    """What a backfill does."""

    swaps: tuple[Todo, ...]  # in the order of their offsets
    adds: tuple[Todo, ...]  # from each source's start downwards
    current: tuple[Manifest, ...]  # ranges of the period that are as the definition wants them already
    newer: int  # ranges of the period that a later generation wrote
    unavailable: tuple[Unavailable, ...]

    @property
    def todo(self) -> tuple[Todo, ...]:
        return (*self.swaps, *self.adds)


def planned(
    ranges: Iterable[Manifest], generation: int, identity: Identity, period: Period, messages: Messages, *, before: bool
) -> Plan:
    """Decide. `ranges` are the committed ones of the period; `before`: also what lies before the export's start."""
    swaps: list[Todo] = []
    adds: list[Todo] = []
    current: list[Manifest] = []
    newer = 0
    out: list[Unavailable] = []
    for one in ranges:
        if one.generation > generation:
            newer += 1
        elif one.generation == generation and not one.skipped:
            current.append(one)
        else:
            _take(Todo(one.source, one.first, one.last, one), messages, swaps, out)
    for partition, start in sorted(identity.starts.items()) if before else ():
        source = identity.source(partition)
        if start and period.source in (None, source):
            _add(source, start, identity.adding.get(partition), period, messages, adds, out)
    return Plan(tuple(swaps), tuple(adds), tuple(current), newer, tuple(out))


def _take(todo: Todo, messages: Messages, into: list[Todo], out: list[Unavailable]) -> bool:
    reads = messages.reads(todo.source, todo.first, todo.last)
    if isinstance(reads, str):
        out.append(Unavailable(todo.source, todo.first, todo.last, reads))
        return False
    into.append(replace(todo, reads=reads))
    return True


def _add(
    source: Source,
    start: int,
    begun: int | None,
    period: Period,
    messages: Messages,
    adds: list[Todo],
    out: list[Unavailable],
) -> None:
    end = start
    if begun is not None:  # somebody is adding this range, or died: it is added with these bounds or not at all
        if not _take(Todo(source, begun, start - 1, None), messages, adds, out):
            return
        end = begun
    for span in reversed(messages.before(source, end, period)):
        if span.last != end - 1:
            why = f"the offsets from {span.last + 1} to {end - 1} have to be added first, and are not among these"
            out.append(Unavailable(source, span.first, span.last, why))
            return
        if not _take(Todo(source, span.first, span.last, None), messages, adds, out):
            return
        end = span.first

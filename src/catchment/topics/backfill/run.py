"""Backfill: ranges of an export written anew by the current definition, next to the live export.

For each range, with the numbers that docs/topics-backfill.md argues by:

    1 plan      the committed ranges of the period that an earlier generation wrote, and where to read them again
    2 write     all files of the new generation, under names that no other generation has
    3 swap      the manifest, put if it is still the one that was planned for (ETag): the truth
    4 publish   `_SUCCESS` of closed folders that list the range's files

A reader by manifests sees the old files before 3 and the new ones after it, never both and never neither: the old ones
stay where they are until `repair` removes what no manifest lists. A crash after 1 or 2 leaves files that the next run
finds in place; one after 3 leaves a `_SUCCESS` behind, which the next run mends. Ranges are swapped with their bounds
unchanged, so the live export, which works at the other end of the chain, takes no notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from catchment.bucket import swap
from catchment.bucket.contract import Bucket
from catchment.clock import isoformat
from catchment.config.topics import Export
from catchment.errors import CatchmentError
from catchment.topics import finalize, identity, offsets, period
from catchment.topics.backfill.plan import Plan, Todo, planned
from catchment.topics.backfill.rewrite import Answer, Rewrites
from catchment.topics.committed import WORKERS, Unreadable
from catchment.topics.definition import fingerprint
from catchment.topics.identity import Identity
from catchment.topics.manifest import Counts, Manifest
from catchment.topics.names import Place
from catchment.topics.period import Period
from catchment.topics.work import Refused, Work, Written

AGAIN = 5  # times that a range is written again because a schema moved meanwhile


class Outcome(StrEnum):
    """What became of a range."""

    PLANNED = "planned"  # a dry run: nothing was done
    PREPARED = "prepared"  # its files are in place, and readers still see the old ones
    SWAPPED = "swapped"
    ADDED = "added"
    OVERTAKEN = "overtaken"  # somebody else swapped it meanwhile; theirs stays
    FAILED = "failed"  # nothing was changed


@dataclass(frozen=True)
class Done:
    """One range, before and after."""

    todo: Todo
    outcome: Outcome
    counts: Counts | None = None  # as written now
    files: int = 0
    why: str = ""


@dataclass(frozen=True)
class Backfilled:
    """What a backfill did."""

    plan: Plan
    ranges: tuple[Done, ...]
    mended: int = 0  # folders of ranges swapped before, whose _SUCCESS was behind
    unreadable: tuple[Unreadable, ...] = ()  # manifests; what they cover is left as it is

    @property
    def problems(self) -> list[str]:
        failed = [f"{one.todo}: {one.why}" for one in self.ranges if one.outcome is Outcome.FAILED]
        return [*(one.why for one in self.unreadable), *map(str, self.plan.unavailable), *failed]


@dataclass(frozen=True)
class Progress:
    """How far it is."""

    done: int  # ranges
    total: int
    rows: int


def backfill(
    bucket: Bucket,
    place: Place,
    export: Export,
    known: Identity,
    when: Period,
    messages: Rewrites,
    *,
    replace: bool,
    before_start: bool = False,
    dry_run: bool = False,
    owner: str,
    now: Callable[[], datetime],
    nonce: Callable[[], str] = swap.fresh,
    on_step: Callable[[str], object] = lambda name: None,
    on_progress: Callable[[Progress], object] = lambda progress: None,
    workers: int = WORKERS,
) -> Backfilled:
    """Write the ranges of a period anew. Safe to repeat, and to run twice at once. Raises what the bucket raises.

    known: what the export is, with this generation registered. replace: swap what was written; without it files are
    only prepared. before_start: also add what lies before the export's start, which needs no `replace`. With one
    worker, everything but the writing happens in the caller's thread.
    """
    run = _Run(bucket, place, export, known, replace, owner, now, nonce, on_step, workers)
    found = period.plan(bucket, place, when, workers=workers)  # 1
    if before_start:
        known = run.begun(dry_run=dry_run)
    plan = planned(found.ranges, export.generation, known, when, messages, before=before_start)
    on_step("plan")
    if dry_run:
        return Backfilled(plan, tuple(Done(one, Outcome.PLANNED) for one in plan.todo), 0, found.unreadable)
    mended = sum(run.publish(one) for one in plan.current if one.earlier or before_start)
    done: list[Done] = []
    rows = 0
    on_progress(Progress(0, len(plan.todo), 0))
    for one in run.all(plan.todo, messages):
        done.append(one)
        rows += one.counts.written if one.counts else 0
        on_progress(Progress(len(done), len(plan.todo), rows))
    return Backfilled(plan, tuple(done), mended, found.unreadable)


@dataclass(frozen=True)
class _Run:
    bucket: Bucket
    place: Place
    export: Export
    known: Identity
    replace: bool
    owner: str
    now: Callable[[], datetime]
    nonce: Callable[[], str]
    on_step: Callable[[str], object]
    workers: int

    def begun(self, *, dry_run: bool) -> Identity:
        """What the export is now, with the start lowered to what others have added and did not live to say so."""
        known = identity.read(self.bucket, self.place) or self.known
        for partition, first in sorted(known.adding.items()):
            source = known.source(partition)
            there = offsets.read_manifest(self.bucket, self.place, source, first)
            if there is None or there.next != known.start(partition):
                continue
            if not dry_run:
                self.publish(there)
                identity.lower_start(self.bucket, self.place, source, first, there.next, nonce=self.nonce)
            known = identity.lowered(known, partition, first)
        return known

    def all(self, todo: Sequence[Todo], messages: Rewrites) -> Iterator[Done]:
        by_range = {(one.source, one.first): one for one in todo}
        mark = fingerprint(self.export)
        works = [Work(self.export, self.place.topic, one.source, one.first, one.last, mark, self.owner) for one in todo]
        stuck = set()  # sources of which a range could not be added: below it nothing may be
        for work, answer in messages.write(works):
            one = by_range[work.source, work.first]
            if one.before is None and one.source in stuck:
                done = Done(one, Outcome.FAILED, why="the range after it could not be added")
            else:
                for _ in range(AGAIN):
                    if not (isinstance(answer, Refused) and answer.again):
                        break
                    [(_, answer)] = messages.write([work])
                done = self._settle(one, work, answer)
            if one.before is None and done.outcome is Outcome.FAILED:
                stuck.add(one.source)
            yield done

    def _settle(self, one: Todo, work: Work, answer: Answer) -> Done:
        self.on_step("write")  # 2
        if isinstance(answer, Refused):
            hint = f"; {answer.hint}" if answer.hint else ""
            return Done(one, Outcome.FAILED, why=answer.reason + hint)
        if isinstance(answer, CatchmentError):
            return Done(one, Outcome.FAILED, why=str(answer))
        if one.before is not None and answer.counts.read < one.before.counts.read:
            why = f"{answer.counts.read} messages are left of {one.before.counts.read} that the range was made of"
            return Done(one, Outcome.FAILED, answer.counts, why=f"{why}; read it from another place (--from)")
        if one.before is not None and (why := self._worse(one.before.counts, answer)):
            return Done(one, Outcome.FAILED, answer.counts, why=why)
        try:
            manifest = self._manifest(one, work, answer)
        except CatchmentError as error:
            return Done(one, Outcome.FAILED, answer.counts, why=str(error))
        if one.before is None:
            return self._add(one, manifest)
        if not self.replace:
            return Done(one, Outcome.PREPARED, manifest.counts, len(manifest.files))
        there = offsets.exchange(self.bucket, self.place, one.before, manifest, nonce=self.nonce)  # 3
        self.on_step("swap")
        if there.generation < manifest.generation:
            why = "its manifest was changed meanwhile; run it again"
            return Done(one, Outcome.FAILED, manifest.counts, why=why)
        self.publish(there)  # 4, also for whoever was faster and may have died since
        outcome = Outcome.SWAPPED if there == manifest else Outcome.OVERTAKEN
        return Done(one, outcome, there.counts, len(there.files))

    def _worse(self, before: Counts, written: Written) -> str:
        """Why rows must not give way to dead letters: there are more than before, and more than the export stands.

        Here a short range is judged as it is: what it would replace is good.
        """
        dead, share = written.counts.dead, self.export.dead_letters.stop_above
        if dead <= before.dead or dead <= share * written.counts.read:
            return ""
        most = "; ".join(f"{number} × {reason}" for reason, number in written.reasons[:3])
        return (
            f"{dead} of {written.counts.read} messages would be dead letters, {before.dead} are now, above"
            f" dead_letters.stop_above ({share:g}): {most}"
        )

    def _add(self, one: Todo, manifest: Manifest) -> Done:
        bounds = (one.source, one.first, manifest.next)
        if identity.reserve(self.bucket, self.place, *bounds, nonce=self.nonce):
            there, ours = offsets.commit(self.bucket, self.place, manifest, nonce=self.nonce)  # 3
        else:
            found = offsets.read_manifest(self.bucket, self.place, one.source, one.first)
            if found is None:
                why = "what lies before the export's start was changed meanwhile; run it again"
                return Done(one, Outcome.FAILED, manifest.counts, why=why)
            there, ours = found, False
        self.on_step("swap")
        if there.next != manifest.next:
            why = f"a range from {there.first} to {there.last} is committed there"
            return Done(one, Outcome.FAILED, manifest.counts, why=why)
        self.publish(there)  # 4, before the start is lowered: until then the next run sees to it
        identity.lower_start(self.bucket, self.place, one.source, there.first, there.next, nonce=self.nonce)
        return Done(one, Outcome.ADDED if ours else Outcome.OVERTAKEN, there.counts, len(there.files))

    def publish(self, manifest: Manifest) -> int:
        """What is owed to closed folders: how many were published."""
        late = finalize.after_commit(
            self.bucket, self.place, self.export, manifest, nonce=self.nonce, workers=self.workers
        )
        self.on_step("publish")
        return len(late.published)

    def _manifest(self, one: Todo, work: Work, written: Written) -> Manifest:
        before = one.before
        earlier: set[str] = set()
        if before:  # a range that had no files is told from one that never was swapped by its own folders
            had = {self.place.parse_file(file.key)[0] for file in before.files} | {*before.earlier}
            earlier = had or {self.place.parse_file(file.key)[0] for file in written.files}
        return Manifest(
            topic=work.topic,
            topic_id=before.topic_id if before else self.known.topic_id,
            source=work.source,
            first=work.first,
            last=work.last,
            generation=work.generation,
            fingerprint=work.fingerprint,
            counts=written.counts,
            files=written.files,
            dead=written.dead,
            holes=written.holes,
            raw_bytes=written.raw_bytes,
            owner=self.owner,
            committed=isoformat(self.now()),
            earlier=tuple(sorted(earlier)),
        )

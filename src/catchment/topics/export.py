"""One export of the topics that one entry of the configuration matches: look, claim, write, commit.

`Exporter.step` is the task; the loop around it (`service.py`) knows nothing of offsets. The steps are numbered here as
they are in docs/topics.md, which says for each why a crash right after it loses nothing and repeats nothing:

    1 look      Kafka's ends, with the clock read before; the policy says what is due and where to cut
    2 claim     a swap of the hint fixes the bounds: advice
    3 write     files under their final names, named by bounds and fingerprint
    4 commit    the manifest, put if absent: the truth
    5 advance   the hint: advice again

Nothing that a process remembers matters for safety: it saves requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from catchment.bucket import swap
from catchment.bucket.contract import Bucket
from catchment.clock import SYSTEM, Clock, isoformat
from catchment.config.topics import Export, Topic
from catchment.errors import BucketError, CatchmentError, ExportStopped
from catchment.monitor.record import FAILED, OK, Monitor
from catchment.topics import finalize, identity, offsets
from catchment.topics.definition import fingerprint
from catchment.topics.identity import Identity
from catchment.topics.kafka import Ends, Kafka, Part, TopicInfo
from catchment.topics.manifest import Manifest, Unbalanced
from catchment.topics.names import ROOT, Place, Source
from catchment.topics.offsets import Busy, Claim, Known
from catchment.topics.policy import AtBoundary, Pending, cut
from catchment.topics.starts import starts
from catchment.topics.track import Due, Seen, Track, apart, once, passes
from catchment.topics.work import Reading, Refused, Work, Written

log = logging.getLogger(__name__)

_LONG_AGO = datetime.min.replace(tzinfo=UTC)
RECHECK = 2.0  # seconds between two looks at somebody else's claim, or at what a person has to mend
SKEW = timedelta(minutes=1)  # a watermark that is further ahead of this clock is of one that was wrong
AGAIN = 60.0  # seconds until closing is tried again after it met something that it could not understand


class Writes(Protocol):
    """What writes ranges; `topics.write.job.SparkWriter` does."""

    @property
    def parallelism(self) -> int: ...
    def write(self, reading: Reading, works: Sequence[Work]) -> list[Written | Refused]:
        """Write these ranges, and say what became of each, in their order.

        All are of one export and one cluster; at most one is of the same Kafka partition. Raises if they could not be
        written: BrokerError for what Kafka did, or what the bucket raised. Then nothing may be committed, and all of it
        can be tried again.
        """
        ...


@dataclass(frozen=True)
class Step:
    """What one step did."""

    committed: tuple[Manifest, ...] = ()
    problems: tuple[str, ...] = ()
    busy: int = 0  # sources that others are at work on
    again: bool = False  # there is more to do at once
    closed: tuple[str, ...] = ()  # folders that were published


class Exporter:
    """Not for use from threads; any number of them, in any number of processes, may work on the same export."""

    def __init__(
        self,
        config: Topic,
        export: Export,
        *,
        bucket: Bucket,
        kafka: Kafka,
        writer: Writes,
        reading: Reading,
        owner: str,
        gone: Callable[[str], bool],
        monitor: Monitor | None = None,
        clock: Clock = SYSTEM,
        on_step: Callable[[str], object] = lambda name: None,
        nonce: Callable[[], str] = swap.fresh,
    ) -> None:
        """`on_step` is told the name of each step right after it, for tests that stop the process there."""
        self.config, self.export = config, export
        self._bucket, self._kafka, self._writer, self._reading = bucket, kafka, writer, reading
        self._owner, self._gone = owner, gone
        self._monitor = monitor or Monitor()
        self._clock, self._on_step, self._nonce = clock, on_step, nonce
        self._fingerprint = fingerprint(export)
        self._identities: dict[str, Identity] = {}
        self._tracks: dict[Part, Track] = {}
        self._refused: dict[str, str] = {}  # topics, and Kafka partitions of them, that cannot be exported, and why
        self._listed: dict[str, TopicInfo] = {}
        self._targets: dict[Part, int] = {}  # Kafka's ends when they were first looked at
        self._discovered: float | None = None
        self._there: frozenset[str] | None = None  # the topics that were there when this process began
        self._held: dict[str, tuple[float, str]] = {}  # topic → when (monotonic) and why closing met an obstacle
        self._closed: dict[str, datetime] = {}  # topic → up to when its days (or hours) are closed
        self._asked: dict[str, float] = {}  # topic → monotonic: when others' watermarks were last read

    @property
    def tracks(self) -> Iterable[Track]:
        return self._tracks.values()

    def step(self, *, flush: bool = False) -> Step:
        """Everything that is due now, once, as far as tasks go. Raises when Kafka, Spark or the bucket fail.

        What one topic or Kafka partition cannot do is a problem in the result, and does not stop the others.
        """
        seen = Seen()
        self._discover(seen)
        at = self._clock.now()  # before the ends: the watermark rests on it
        ends = self._kafka.ends([track.part for track in self.tracks])
        for part, found in ends.items():
            self._targets.setdefault(part, found.end)
        self._on_step("look")  # 1
        due: list[Due] = []
        for track in self.tracks:
            with apart(track, seen):
                one = self._due(track, ends.get(track.part), at, seen, flush=flush)
                due += [one] if one else []
        works = self._claimed(due, max(1, self._writer.parallelism), seen)
        self._write(works, seen)
        self._beat(ends, at, seen)
        self._finalize(seen)
        return Step(
            tuple(seen.committed),
            tuple(seen.problems),
            seen.busy,
            seen.again or bool(seen.committed),
            tuple(seen.closed),
        )

    def caught_up(self) -> bool:
        """Whether everything that Kafka had at the first look is committed; a source that is stopped counts too."""
        return all(
            track.stopped or track.known.hint.next >= self._targets.get(part, 0) for part, track in self._tracks.items()
        )

    def let_go(self) -> None:
        """Leave the claims that are ours to others, because this process ends."""
        for track in self.tracks:
            track.known = offsets.let_go(self._bucket, track.known, self._owner, self._clock.now(), nonce=self._nonce)

    def close(self) -> None:
        """Forget everything: a later step begins anew."""
        self._tracks.clear()
        self._targets.clear()
        self._identities.clear()
        self._discovered = self._there = None

    # -- which topics and Kafka partitions there are

    def _discover(self, seen: Seen) -> None:
        now = self._clock.monotonic()
        if self._discovered is not None and now - self._discovered < self.config.discover.total_seconds():
            seen.problems += self._refused.values()
            return
        self._listed = self._kafka.topics(self.config.matches)
        if self._there is None:
            self._there = frozenset(self._listed)
        self._refused.clear()
        if not self._listed:
            self._refused[""] = (
                f"{self.export.group}: no topic at {self.config.brokers} matches {self.config.match!r}; it is looked"
                " for again and again: create it, or correct 'match' in the config"
            )
        for name in sorted(self._listed):
            try:
                self._join(self._listed[name], new=name not in self._there)
            except (ExportStopped, BucketError) as error:
                if passes(error):
                    raise
                self._refused[name] = str(error)
                self._forget(name)
        for name in sorted({part[0] for part in self._tracks} - self._listed.keys()):
            log.warning("%s: Kafka no longer lists topic %s: it is gone, or may not be seen", self.export.group, name)
            self._forget(name)  # if it comes back, its id tells whether it is the same
        self._discovered = now  # at the end: what failed half-way is looked for again
        seen.problems += self._refused.values()

    def _forget(self, topic: str, keep: Collection[int] = ()) -> None:
        for part in [part for part in self._tracks if part[0] == topic and part[1] not in keep]:
            del self._tracks[part]
            self._targets.pop(part, None)

    def _join(self, topic: TopicInfo, *, new: bool) -> None:
        place = Place(self.export.group, topic.name)
        joined = self._identities.get(topic.name)
        if joined is None or joined.topic_id != topic.id:
            joined = identity.register(
                self._bucket,
                place,
                topic.id,
                self.export,
                # A topic that appeared while we watched has nothing in it that is older than our start.
                lambda: starts(self._kafka, self.config, self.export, topic, new=new),
                nonce=self._nonce,
            )
            self._identities[topic.name] = joined
        self._forget(topic.name, keep=topic.partitions)  # a topic that was made again may have fewer
        for partition in topic.partitions:
            part = (topic.name, partition)
            source = joined.source(partition)
            if part not in self._tracks or self._tracks[part].source != source:
                self._targets.pop(part, None)
                try:
                    self._tracks[part] = self._track(place, source, joined.start(partition))
                except (ExportStopped, BucketError) as error:
                    if passes(error):
                        raise
                    self._refused[f"{topic.name} {partition}"] = f"{place} Kafka partition {source}: {error}"
                    self._tracks.pop(part, None)

    def _load(self, place: Place, source: Source, start: int) -> Known:
        known = offsets.load(self._bucket, place, source, start, self._duty(place))
        return offsets.trusted(known, isoformat(self._clock.now() + SKEW))

    def _track(self, place: Place, source: Source, start: int) -> Track:
        known = self._load(place, source, start)
        hint = known.hint
        told = hint.watermark or hint.refreshed
        since = datetime.fromisoformat(told) if told else self._clock.now()
        return Track(place, source, known, since, self._clock.monotonic())

    def _reload(self, track: Track) -> None:
        now = self._clock.monotonic()
        if now - track.looked >= RECHECK:
            start = self._identities[track.place.topic].start(track.source.partition)
            track.known = self._load(track.place, track.source, start)
            track.looked = now

    def _duty(self, place: Place) -> Callable[[Manifest], object]:
        return finalize.duty(self._bucket, place, self.export, nonce=self._nonce)

    # -- 1 look

    def _due(self, track: Track, ends: Ends | None, at: datetime, seen: Seen, *, flush: bool) -> Due | None:
        """The range of this source that is due now. Everything that stands in its way is a problem."""
        if ends is None:
            return None
        if track.stopped or self._gap(track, ends):
            self._reload(track)
            past = track.known.hint.next > track.tried  # nothing was tried, or somebody has committed or skipped it
            if self._others(track.known.hint.claim):  # who may have read what Kafka no longer has
                track.stopped = "" if past else track.stopped
                seen.busy += 1
                return None
            if past:
                track.stopped = self._gap(track, ends)
            if track.stopped:
                seen.problems.append(track.stopped)
                return None
        hint = track.known.hint
        if ends.end < hint.next:
            # A broker that was just elected may lag behind for a moment. If it stays so, messages are lost.
            seen.problems.append(
                f"{track.place} Kafka partition {track.source}: Kafka's end is {ends.end}, below the committed offset"
                f" {hint.next}; waiting for it to come back"
            )
            return None
        if hint.claim is not None:
            return self._claimed_before(track, hint.claim, ends, seen)
        if hint.watermark:  # others may have caught up since
            track.since = max(track.since, datetime.fromisoformat(hint.watermark))
        track.since = min(track.since, at)  # a clock that was set back must not make messages wait for it
        if ends.end == hint.next:
            track.since = at
            return None
        last = self._cut(track, ends, at, flush=flush)
        if last is None:
            return None
        return Due(track, last, isoformat(at) if last + 1 >= ends.end else None)

    def _gap(self, track: Track, ends: Ends) -> str:
        first = track.known.hint.next
        if ends.earliest <= first or ends.end <= first:
            return ""
        error = ExportStopped(
            f"{track.place} Kafka partition {track.source}: Kafka no longer has the offsets from {first} to"
            f" {ends.earliest - 1}; they were not exported",
            hint=f"to go on after them, with that on record: catchment topics skip --group {track.place.group}"
            f" --topic {track.place.topic} --kafka-partition {track.source.partition} --to {ends.earliest}",
        )
        return str(error)

    def _others(self, claim: Claim | None) -> bool:
        """Whether somebody else is at work on it, and seems alive."""
        return claim is not None and claim.owner not in ("", self._owner) and not self._gone(claim.owner)

    def _claimed_before(self, track: Track, claim: Claim, ends: Ends, seen: Seen) -> Due | None:
        """A claim that is there is due, whatever the policy says: ours, one let go of, or one whose owner is gone."""
        if claim.owner not in ("", self._owner):
            self._reload(track)
            now = track.known.hint.claim
            if now is None:
                seen.again = True  # it was committed
                return None
            if self._others(now):
                seen.busy += 1
                return None
            claim = now
        if claim.last >= ends.end:  # a broker that was just elected may lag behind for a moment
            seen.problems.append(
                f"{track.place} Kafka partition {track.source}: the offsets up to {claim.last} are claimed, and Kafka"
                " ends below that; waiting for it to come back"
            )
            return None
        return Due(track, claim.last, claim.watermark)

    def _cut(self, track: Track, ends: Ends, at: datetime, *, flush: bool) -> int | None:
        hint = track.known.hint
        if not hint.mean and not track.mean:
            sample = self._kafka.peek(track.part, hint.next, until=ends.end)
            track.mean = sum(one.size for one in sample) / len(sample) if sample else 1.0
        pending = Pending(hint.next, ends.end, track.since, hint.mean or track.mean)
        last = cut(self.export.policy, pending, at, flush=flush)
        if isinstance(last, AtBoundary):
            moment = last.moment
            first_after = self._kafka.offsets_at([track.part], moment).get(track.part, hint.next)
            if first_after > hint.next:
                return min(last.longest, first_after - 1)
            # Timestamps are the producers' word. Once one was dated far ahead, Kafka names that message for every
            # boundary, as long as it is kept; and if it is the next one, no boundary would ever let it through.
            head = self._kafka.peek(track.part, hint.next, count=1, until=ends.end)
            newest = at + self.export.policy.max_age
            if head and not moment.timestamp() <= head[0].timestamp / 1000 <= newest.timestamp():
                return last.longest
            track.since = moment  # all that waits came after the boundary
            return None
        return last

    # -- 2 claim

    def _claimed(self, due: Sequence[Due], most: int, seen: Seen) -> list[tuple[Track, Work]]:
        """As many as are written at once, those that wait longest first; of those that failed before, one at a time."""
        works: list[tuple[Track, Work]] = []
        for one in sorted(due, key=lambda one: (one.track.failed, one.track.since)):
            if len(works) >= most + (one.track.failed > 0) or (works and works[-1][0].failed):
                seen.again = True
                break
            with apart(one.track, seen):
                if (work := self._claim(one, seen)) is not None:
                    works.append((one.track, work))
                    self._on_step("claim")  # 2
        return works

    def _claim(self, one: Due, seen: Seen) -> Work | None:
        track, now = one.track, self._clock.now()
        want = Claim(
            track.known.hint.next,
            one.last,
            self._owner,
            self.export.generation,
            self._fingerprint,
            isoformat(now),
            one.watermark,
        )
        got = offsets.acquire(
            self._bucket,
            track.place,
            track.source,
            track.known,
            want,
            self._gone,
            now,
            duty=self._duty(track.place),
            nonce=self._nonce,
        )
        track.known, track.looked = got.known if isinstance(got, Busy) else got, self._clock.monotonic()
        claim = track.known.hint.claim
        if isinstance(got, Busy):
            seen.busy += 1
            return None
        if claim is None or claim.owner != self._owner or claim.first != track.known.hint.next:
            seen.again = True  # it has moved on: look again
            return None
        return Work(
            self.export, track.place.topic, track.source, claim.first, claim.last, self._fingerprint, self._owner
        )

    # -- 3 write, 4 commit, 5 advance

    def _write(self, works: Sequence[tuple[Track, Work]], seen: Seen) -> None:
        """A job for all of them, and one of its own for what failed before: it may be what made the others fail."""
        failures = []
        for job in ([one for one in works if not one[0].failed], [one for one in works if one[0].failed]):
            try:
                if job:
                    self._write_job(job, seen)
            except CatchmentError as error:
                for track, _ in job:
                    track.failed += 1
                failures.append(error)
        if failures and not seen.committed:
            raise failures[0]
        seen.problems += map(str, failures)

    def _write_job(self, works: Sequence[tuple[Track, Work]], seen: Seen) -> None:
        started = self._clock.monotonic()
        try:
            results = self._writer.write(self._reading, [work for _, work in works])
            self._on_step("write")  # 3
            # What was read is of the topic that we mean if it is still that one now: an id never comes back.
            listed = self._kafka.topics(self.config.matches)
        except CatchmentError as error:
            for track, work in works:
                self._record(track, "write", FAILED, f"{work}: {error}", {})
            raise
        taken = self._clock.monotonic() - started
        found = {(one.topic, one.source): one for one in results}
        for track, work in works:
            with apart(track, seen), once(track):
                self._settle(track, work, found.get((work.topic, work.source)), listed.get(work.topic), seen, taken)

    def _settle(
        self,
        track: Track,
        work: Work,
        result: Written | Refused | None,
        topic: TopicInfo | None,
        seen: Seen,
        taken: float,
    ) -> None:
        expected = self._identities[work.topic].topic_id
        if topic is None or topic.id != expected:
            self._discovered = None  # look at once what has become of it
            why = identity.recreated(track.place, expected, topic.id) if topic else f"topic {work.topic} is gone"
            seen.problems.append(str(why))
            return
        if result is None or isinstance(result, Refused):
            self._not_written(track, work, result, seen)
            return
        try:
            manifest = Manifest(
                topic=work.topic,
                topic_id=expected,
                source=work.source,
                first=work.first,
                last=work.last,
                generation=work.generation,
                fingerprint=work.fingerprint,
                counts=result.counts,
                files=result.files,
                dead=result.dead,
                holes=result.holes,
                raw_bytes=result.raw_bytes,
                owner=self._owner,
                committed=isoformat(self._clock.now()),
            )
        except Unbalanced as error:
            self._record(track, "write", FAILED, f"{work}: {error}", {})
            seen.problems.append(f"{work}: {error}")
            track.failed += 1
            return
        numbers = {"messages": result.counts.read, "rows": result.counts.written, "dead": result.counts.dead}
        self._record(track, "write", OK, str(work), numbers | {"bytes": sum(one.size for one in result.files)}, taken)
        track.failed = 0
        there, ours = offsets.commit(self._bucket, track.place, manifest, nonce=self._nonce)
        self._on_step("commit")  # 4
        self._duty(track.place)(there)
        claim = track.known.hint.claim
        track.known = offsets.advance(
            self._bucket, track.place, track.source, track.known, there, self._clock.now(), nonce=self._nonce
        )
        self._on_step("advance")  # 5
        if ours:
            seen.committed.append(there)
            self._record(track, "commit", OK, str(work), {"messages": result.counts.read})
            if claim is not None and claim.watermark:
                track.since = max(track.since, datetime.fromisoformat(claim.watermark))
        else:
            log.info("%s was committed by %s as [%d, %d]", work, there.owner, there.first, there.last)
            seen.again = True

    def _not_written(self, track: Track, work: Work, result: Refused | None, seen: Seen) -> None:
        if result is None:
            result = Refused(work.topic, work.source, work.first, work.last, "its task gave no answer", again=True)
        text = f"{work}: {result.reason}" + (f"; {result.hint}" if result.hint else "")
        if result.again:
            log.info("%s; it is written again", text)
            seen.again = True
            return
        self._record(track, "write", FAILED, text, {})
        seen.problems.append(text)
        track.stopped, track.tried = text, work.first
        track.known = offsets.let_go(
            self._bucket, track.known, self._owner, self._clock.now(), error=text[:2000], nonce=self._nonce
        )

    # -- heartbeats, and closing days

    def _beat(self, ends: Mapping[Part, Ends], at: datetime, seen: Seen) -> None:
        """Keep idle sources current: what is caught up says so, every `heartbeat`."""
        for track in self.tracks:
            track.known = offsets.trusted(track.known, isoformat(at + SKEW))
            hint, end = track.known.hint, ends.get(track.part)
            if end is None or hint.claim is not None or track.stopped:
                continue
            caught_up = end.end == hint.next
            if track.known.document.exists:
                if not caught_up:
                    continue
                if hint.watermark and at - datetime.fromisoformat(hint.watermark) < self.export.heartbeat:
                    continue
            # A new one says so too: else whoever is started for a moment again and again never sees its messages age.
            with apart(track, seen):
                track.known = offsets.beat(
                    self._bucket,
                    track.place,
                    track.source,
                    track.known,
                    isoformat(at) if caught_up else None,
                    self._clock.now(),
                    nonce=self._nonce,
                )
                track.looked = self._clock.monotonic()
                self._on_step("heartbeat")

    def _finalize(self, seen: Seen) -> None:
        if self.export.finalize is None:
            return
        for name in sorted({part[0] for part in self._tracks}):
            since, why = self._held.get(name, (float("-inf"), ""))
            if self._clock.monotonic() - since < AGAIN:
                seen.problems.append(why)
                continue
            self._held.pop(name, None)
            try:
                self._close(name, seen)
            except (ExportStopped, BucketError) as error:
                if passes(error):
                    raise
                why = f"{Place(self.export.group, name)}: days cannot be closed: {error}"
                self._held[name] = self._clock.monotonic(), why
                seen.problems.append(why)

    def _close(self, name: str, seen: Seen) -> None:
        possible = finalize.boundary_of(self.export, self._clock.now())
        if possible <= self._closed.get(name, _LONG_AGO):
            return
        watermark = self._watermark(name, possible, seen)
        if watermark is None or finalize.boundary_of(self.export, watermark) <= self._closed.get(name, _LONG_AGO):
            return
        # A Kafka partition that is not listed now, after the watermark, has nothing from before it.
        listed = self._kafka.topics(lambda topic: topic == name).get(name)
        missing = [one for one in listed.partitions if (name, one) not in self._tracks] if listed else []
        if listed is None or missing:
            known = any(f"{name} {one}" in self._refused for one in missing)  # for those a person has to act
            self._discovered = self._discovered if known else None
            return
        done = finalize.close(self._bucket, Place(self.export.group, name), self.export, watermark, nonce=self._nonce)
        self._closed[name] = done.closed
        seen.closed += [publication.folder for publication in done.published]
        self._on_step("finalize")

    def _watermark(self, name: str, possible: datetime, seen: Seen) -> datetime | None:
        """Up to when everything of this topic is committed: the earliest of all its Kafka partitions."""
        now = self._clock.monotonic()
        pause = min(60.0, self.export.heartbeat.total_seconds())
        ask = now - self._asked.get(name, float("-inf")) >= pause
        moments = []
        for track in [track for part, track in self._tracks.items() if part[0] == name]:
            told = track.known.hint.watermark
            if ask and (told is None or finalize.boundary_of(self.export, datetime.fromisoformat(told)) < possible):
                self._asked[name] = now
                with apart(track, seen):
                    self._reload(track)  # another replica may be at work on it
                told = track.known.hint.watermark
            if told is None:
                return None
            moments.append(datetime.fromisoformat(told))
        return min(moments, default=None)

    def _record(
        self,
        track: Track,
        kind: str,
        outcome: str,
        note: str,
        numbers: Mapping[str, float],
        duration: float | None = None,
    ) -> None:
        self._monitor.record(f"{ROOT}/{track.place}", kind, outcome, duration=duration, numbers=numbers, note=note)

"""Replay: the messages of a backup back into a Kafka topic, each once, in order, with key, headers and timestamp.

For each source, one after the other:

1. **Open** transactions under a name made of what is replayed where: export, life of its topic, Kafka partition,
   window, id of the target topic. A process that replays the same is shut out by this, and what it had not committed
   is never seen.
2. **Ask** how far the last committed transaction of that name came.
3. **Read** the committed ranges from there on, in the order of their offsets. Before the first message is sent, commit
   a position if there is none, then note in the lake that there is one (`_replays/<name>.json`).
4. **Commit** some messages and the offset after them, together, again and again.

Why no message is there twice, or not at all: the position is only ever written in the transaction of the messages that
it stands for, it is read after everybody else was shut out, and messages are taken in the order of their offsets. A
position is a *source* offset, kept under a name that nobody else uses: Kafka does not know what it means, and need not.
A target that was made again has another id, so another name, and begins anew; a position cannot outlive its messages.
Kafka forgets positions a week after the last commit (`offsets.retention.minutes`). That is what the note is for: with
a note and no position the replay is refused, and does not begin a second time.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.bucket.contract import Bucket
from catchment.clock import isoformat
from catchment.errors import BucketError, ExportStopped, NotFound, UsageError
from catchment.topics import committed, identity
from catchment.topics.definition import digest
from catchment.topics.files import read
from catchment.topics.files.format import file_format, format_of
from catchment.topics.identity import Identity
from catchment.topics.kafka import Cluster
from catchment.topics.manifest import File, Manifest
from catchment.topics.names import Place, Source
from catchment.topics.records import BACKED
from catchment.topics.transactions import SLOT, Outgoing, Target, Transactions, target

MESSAGES = 20_000  # of one transaction, at most
BYTES = 16_000_000  # likewise, about
LOOKS = 20  # so many times as many messages are looked at before it is noted that there was none to send
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE = frozenset({"timestamp", "key", "value", "headers"})
_NONE = BACKED.empty_table()


@dataclass(frozen=True)
class Window:
    """Which messages: all, or those with offsets in [first, last] and Kafka's timestamp in [start, end)."""

    first: int | None = None
    last: int | None = None
    start: datetime | None = None
    end: datetime | None = None

    @property
    def timed(self) -> bool:
        return self.start is not None or self.end is not None

    def chosen(self, messages: pa.Table) -> pa.Table:
        """Those of them that are in it, by time."""
        for moment, compare in ((self.start, pc.greater_equal), (self.end, pc.less)):
            if moment is not None:
                messages = messages.filter(compare(messages["timestamp"], _millis(moment)))
        return messages

    def plain(self) -> list[int | None]:
        return [
            self.first,
            self.last,
            None if self.start is None else _millis(self.start),
            None if self.end is None else _millis(self.end),
        ]


class Sender(Protocol):
    """What `Transactions` does, for one name."""

    def position(self) -> int | None: ...
    def commit(self, messages: Iterable[Outgoing], position: int) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Progress:
    """How far it is, in offsets of the sources."""

    done: int
    total: int
    messages: int
    bytes: int


@dataclass(frozen=True)
class Part:
    """What was replayed of one Kafka partition."""

    kafka_partition: int
    first: int  # the offsets that were looked at, committed ones only
    last: int
    resumed: int | None = None  # an earlier run had come to this offset; None: there was none
    messages: int = 0
    bytes: int = 0  # of keys and values
    oldest: int | None = None  # timestamps, in milliseconds since 1970
    newest: int | None = None
    skipped: int = 0  # offsets that the backup has gone over: Kafka no longer had them

    def plus(self, messages: pa.Table) -> Part:
        """With these, too."""
        if not messages.num_rows:
            return self
        span = pc.min_max(messages["timestamp"]).as_py()
        times = [one for one in (self.oldest, self.newest, *span.values()) if one is not None]
        return replace(
            self,
            messages=self.messages + messages.num_rows,
            bytes=self.bytes + sum(_sizes(messages)),
            oldest=min(times, default=None),
            newest=max(times, default=None),
        )


@dataclass(frozen=True)
class Replayed:
    """What was done; with `dry_run`, what would have been."""

    group: str
    topic: str
    to_topic: str
    parts: tuple[Part, ...]
    dry_run: bool

    @property
    def messages(self) -> int:
        return sum(one.messages for one in self.parts)


@dataclass(frozen=True)
class Replay:
    """What is replayed, and where to."""

    bucket: Bucket
    place: Place
    known: Identity
    target: Target
    window: Window
    scratch: Path
    by_key: bool = False
    also_incomplete: bool = False

    def name(self, source: Source) -> str:
        """Under which positions are kept. The same if it is the same, and no other's."""
        what = [str(self.place), self.known.topic_id, str(source), self.target.topic, self.target.id]
        return f"catchment-replay-{digest([*what, self.window.plain()])}-{source}"

    def note(self, source: Source) -> str:
        return f"{self.place.prefix}_replays/{self.name(source)}.json"


def into_topic(
    bucket: Bucket,
    place: Place,
    brokers: str,
    settings: Mapping[str, str],
    topic: str,
    window: Window,
    scratch: Path,
    *,
    kafka_partition: int | None = None,
    by_key: bool = False,
    also_incomplete: bool = False,
    dry_run: bool = False,
    now: datetime,
    messages: int = MESSAGES,
    on_progress: Callable[[Progress], object] = lambda progress: None,
    on_step: Callable[[str], object] = lambda name: None,
) -> Replayed:
    """`replay` into a topic of this cluster. UsageError if there is none, or the export was never begun."""
    known = identity.read(bucket, place)
    if known is None:
        raise UsageError(f"{place} was never exported", hint="run: catchment topics export")
    there = target(brokers, settings, topic)
    if there is None:
        number = max((one.partition for one in committed.sources(bucket, place)), default=0) + 1
        raise UsageError(
            f"there is no topic {topic} at {brokers}",
            hint=f"make one: kafka-topics.sh --bootstrap-server {brokers} --create --topic {topic}"
            f" --partitions {number} --config message.timestamp.type=CreateTime --config retention.ms=-1",
        )
    most = there.number("max.message.bytes", 1_000_000)

    def sender(name: str) -> Sender:
        return Transactions(brokers, settings, name, topic, most_bytes=most, on_step=on_step)

    def position(name: str) -> int | None:
        cluster = Cluster(brokers, settings)
        try:
            return cluster.group_offsets(name, [(topic, SLOT)]).get((topic, SLOT))
        finally:
            cluster.close()

    what = Replay(bucket, place, known, there, window, scratch, by_key, also_incomplete)
    return replay(
        what,
        sender,
        position,
        kafka_partition=kafka_partition,
        now=now,
        dry_run=dry_run,
        messages=messages,
        on_progress=on_progress,
    )


def replay(
    what: Replay,
    sender: Callable[[str], Sender],
    position: Callable[[str], int | None],
    *,
    kafka_partition: int | None = None,
    now: datetime,
    dry_run: bool = False,
    messages: int = MESSAGES,
    on_progress: Callable[[Progress], object] = lambda progress: None,
) -> Replayed:
    """Replay what is committed now, of one Kafka partition or all, in the newest life of the topic.

    sender: opens transactions under a name. position: how far a name is, for who must not open it.
    Killed anywhere and run again, it goes on; what is committed to the export later is replayed by running it again.
    """
    refuse(what)
    found = [part for source in _sources(what, kafka_partition) if (part := _committed(what, source)) is not None]
    _fits(what, [source for source, _, _ in found])
    total, done = sum(last - first + 1 for _, first, last in found), 0
    parts: list[Part] = []
    for source, first, last in found:

        def step(part: Part, at: int, first: int = first, done: int = done) -> None:
            every = [*parts, part]
            so_far = (sum(one.messages for one in every), sum(one.bytes for one in every))
            on_progress(Progress(done + at - first, total, *so_far))

        begun = Part(source.partition, first, last)
        if dry_run:
            found_at = position(what.name(source))
            _check_note(what, source, found_at)
            reached = replace(begun, resumed=found_at)
            for batch in _batches(what, source, first if found_at is None else found_at, last, messages):
                _check(what, batch.messages, now)
                reached = replace(reached.plus(batch.messages), skipped=reached.skipped + batch.skipped)
                step(reached, batch.next)
            parts.append(reached)
        else:
            open_sender = sender(what.name(source))  # 1 open: everybody else is out
            try:
                parts.append(_replay(what, open_sender, source, begun, now, messages, step))
            finally:
                open_sender.close()
        done += last - first + 1
    return Replayed(what.place.group, what.place.topic, what.target.topic, tuple(parts), dry_run)


def _replay(
    what: Replay,
    sender: Sender,
    source: Source,
    part: Part,
    now: datetime,
    most: int,
    step: Callable[[Part, int], None],
) -> Part:
    at = sender.position()  # 2 ask
    _check_note(what, source, at)
    part = replace(part, resumed=at)
    for batch in _batches(what, source, part.first if at is None else at, part.last, most):  # 3 read
        _check(what, batch.messages, now)
        if batch.messages.num_rows and not part.messages:
            if at is None:
                sender.commit([], part.first)  # a position that the note can rely on
            _put_note(what, source, now)
        sender.commit(_outgoing(what, source, batch.messages), batch.next)  # 4 commit
        part = replace(part.plus(batch.messages), skipped=part.skipped + batch.skipped)
        step(part, batch.next)
    return part


# What is refused


def refuse(what: Replay) -> None:
    """UsageError for what cannot be replayed as it should be, as far as it shows before anything is read."""
    target = what.target
    if target.id in (what.known.topic_id, *what.known.past):
        raise UsageError(
            f"{target.topic} is the topic that {what.place} is exported from",
            hint="replay into another topic: the export would take its own messages for new ones",
        )
    if target.settings.get("message.timestamp.type") == "LogAppendTime" and not what.also_incomplete:
        raise UsageError(
            f"{target.topic} gives messages the time of their arrival (message.timestamp.type=LogAppendTime)",
            hint="set message.timestamp.type=CreateTime on it, or add --also-incomplete if timestamps do not matter",
        )


def _fits(what: Replay, sources: Sequence[Source]) -> None:
    missing = sorted({one.partition for one in sources} - set(what.target.partitions))
    if missing and not what.by_key:
        wanted = max(one.partition for one in sources) + 1
        raise UsageError(
            f"{what.target.topic} has {len(what.target.partitions)} Kafka partitions, and there are messages of Kafka"
            f" partition {', '.join(map(str, missing))}",
            hint=f"give it more (kafka-topics.sh --alter --topic {what.target.topic} --partitions {wanted}), or add"
            " --by-key to have each message's Kafka partition chosen by its key",
        )


def _complete(what: Replay, manifest: Manifest) -> None:
    """UsageError if this range does not hold messages, or not all of them that matter."""
    definition = what.known.generations.get(manifest.generation, {})
    where = f"the range [{manifest.first}, {manifest.last}] of Kafka partition {manifest.source} of {what.place}"
    if definition.get("decode") is not None:
        raise UsageError(
            f"{where} holds decoded rows, and not the messages that they were made of",
            hint="replay a backup: an export without decode",
        )
    keeps = file_format(format_of(what.known, manifest.generation)).keeps
    if lost := sorted(_WHOLE - keeps):
        text = f"{where} is {format_of(what.known, manifest.generation).name}, which keeps no {' and no '.join(lost)}"
        if what.window.timed:
            raise UsageError(f"{text}: what was when cannot be told", hint="replay it by offsets")
        if not what.also_incomplete:
            raise UsageError(
                text, hint="add --also-incomplete to replay what it does keep; timestamps are those of the replay then"
            )


def _check(what: Replay, messages: pa.Table, now: datetime) -> None:
    """UsageError if Kafka would not keep one of these messages as it is."""
    if not messages.num_rows or what.also_incomplete:
        return
    times = messages["timestamp"]
    if times.null_count or pc.min(times).as_py() <= 0:
        at = messages.filter(pc.fill_null(pc.less_equal(times, 0), True))["offset"][0].as_py()
        raise UsageError(
            f"the message of offset {at} has no timestamp",
            hint="add --also-incomplete to replay it with the time of the replay",
        )
    kept_for = what.target.kept_for
    if kept_for is not None and (oldest := pc.min(times).as_py()) < _millis(now - kept_for):
        at = messages["offset"][pc.index(times, oldest).as_py()].as_py()
        raise UsageError(
            f"Kafka would drop the message of offset {at} at once: it is of {_moment(oldest)}, and {what.target.topic}"
            f" keeps messages for {kept_for} (retention.ms)",
            hint=f"set retention.ms=-1 on {what.target.topic}, then run the same command again",
        )


def _check_note(what: Replay, source: Source, position: int | None) -> None:
    """ExportStopped if this was begun before and Kafka does not know how far it came."""
    if position is not None:
        return
    key = what.note(source)
    try:
        begun = json.loads(what.bucket.read(key).body).get("begun", "")
    except NotFound:
        return
    except (ValueError, AttributeError):
        begun = ""
    raise ExportStopped(
        f"this replay into {what.target.topic} was begun{f' at {begun}' if begun else ''}, and Kafka no longer knows"
        f" how far it came: it forgets that after a time (offsets.retention.minutes)",
        hint=f"see what the last message in Kafka partition {source.partition} of {what.target.topic} is, and replay"
        f" what comes after it (--first-offset), or make the topic anew; to begin again all the same, remove {key}",
    )


def _put_note(what: Replay, source: Source, now: datetime) -> None:
    window = {name: isoformat(one) if isinstance(one, datetime) else one for name, one in asdict(what.window).items()}
    try:
        what.bucket.head(what.note(source))
    except NotFound:
        about = {"to_topic": what.target.topic, "to_topic_id": what.target.id, "brokers": what.target.brokers}
        note = {"begun": isoformat(now), "source": str(source), **about, "window": window}
        what.bucket.put(what.note(source), json.dumps(note, indent=1).encode())


# What is read


@dataclass(frozen=True)
class Batch:
    """Messages of one transaction, in order, and the source offset after all that was looked at for it."""

    messages: pa.Table
    next: int
    skipped: int = 0


def _sources(what: Replay, kafka_partition: int | None) -> list[Source]:
    found = [one for one in committed.sources(what.bucket, what.place) if one.life == what.known.life]
    if kafka_partition is None:
        return found
    if Source(kafka_partition, what.known.life) not in found:
        raise UsageError(
            f"{what.place} has nothing of Kafka partition {kafka_partition}",
            hint=f"it has of: {', '.join(str(one.partition) for one in found) or 'none'}",
        )
    return [Source(kafka_partition, what.known.life)]


def _committed(what: Replay, source: Source) -> tuple[Source, int, int] | None:
    """The committed offsets of the window, by the names of the manifests and the last one; None if there are none."""
    names = [
        one for one in committed.names(what.bucket, what.place, source) if not isinstance(one, committed.Unreadable)
    ]
    inside = committed.window(names, what.window.first or 0, what.window.last)
    if not inside:
        return None
    end = committed.read(what.bucket, what.place, *inside[-1]).last
    first = max(inside[0][1], what.window.first or 0)
    last = end if what.window.last is None else min(end, what.window.last)
    return (source, first, last) if first <= last else None


def _batches(what: Replay, source: Source, at: int, last: int, most: int) -> Iterator[Batch]:
    """Everything from an offset on, in order, in pieces for one transaction each. There may be empty ones."""
    if at > last:
        return
    held: list[pa.Table] = []
    looked = skipped = 0
    start = at
    for manifest in committed.manifests(what.bucket, what.place, source, first=at, last=last):
        if not manifest.first <= at <= manifest.last or (at > start and manifest.first < at):
            raise _broken(what, source, at, manifest)
        end = min(manifest.last, last)
        if manifest.skipped:
            skipped += end - at + 1
        else:
            _complete(what, manifest)
            for table in _messages(what, manifest, at, end):
                for some in _cut(table, most):
                    if (held and _too_many([*held, some], most)) or looked >= LOOKS * most:
                        yield Batch(pa.concat_tables([*held, _NONE]), some["offset"][0].as_py(), skipped)
                        held, looked, skipped = [], 0, 0
                    chosen = what.window.chosen(some)
                    held += [chosen] if chosen.num_rows else []
                    looked += some.num_rows
        at = end + 1
    yield Batch(pa.concat_tables([*held, _NONE]), at, skipped)


def _too_many(tables: Sequence[pa.Table], most: int) -> bool:
    rows, size = sum(one.num_rows for one in tables), sum(one.nbytes for one in tables)
    return bool(rows > most or size > BYTES)


def _broken(what: Replay, source: Source, at: int, manifest: Manifest) -> ExportStopped:
    bounds = f"from {min(at, manifest.first)} to {max(at, manifest.first) - 1}"
    how = "no manifest holds" if manifest.first > at else "two manifests hold"
    return ExportStopped(
        f"{what.place} Kafka partition {source}: {how} the offsets {bounds}",
        hint=f"run: catchment topics verify --group {what.place.group}; to leave them out, replay up to"
        f" --last-offset {at - 1}, and then from --first-offset {max(manifest.first, at)} on",
    )


def _messages(what: Replay, manifest: Manifest, first: int, last: int) -> Iterator[pa.Table]:
    """The messages of one range with offsets in [first, last], in order. BucketError if one is there twice."""
    files = [
        (file.first, lambda file=file: _records(what, manifest, file, first, last))
        for file in (*manifest.files, *manifest.dead)
        if file.first <= last and file.last >= first
    ]
    before, count = first - 1, 0
    for table in merged(files):
        offsets = table["offset"].to_numpy()
        if offsets[0] <= before or (np.diff(offsets) <= 0).any():
            key = what.place.commit(manifest.source, manifest.first)
            raise BucketError(
                f"{key} lists files that hold an offset more than once", key=key, hint="run: catchment topics verify"
            )
        before, count = int(offsets[-1]), count + len(offsets)
        yield table
    if (first, last) == (manifest.first, manifest.last) and count != manifest.counts.read:
        key = what.place.commit(manifest.source, manifest.first)
        raise BucketError(
            f"{key} lists files that hold {count} messages, and {manifest.counts.read} were read",
            key=key,
            hint="run: catchment topics verify",
        )


def _records(what: Replay, manifest: Manifest, file: File, first: int, last: int) -> Iterator[pa.Table]:
    format = format_of(what.known, manifest.generation)
    for table in read.records(what.bucket, what.place, manifest, file, format, what.scratch, first=first, last=last):
        # Earlier releases kept dead letters without headers.
        if file in manifest.dead and table["timestamp_type"].null_count and not what.also_incomplete:
            raise UsageError(
                f"{file.key} holds messages without their headers",
                hint="add --also-incomplete to replay what it does hold",
            )
        yield table


def merged(files: Sequence[tuple[int, Callable[[], Iterator[pa.Table]]]]) -> Iterator[pa.Table]:
    """Tables that are each in the order of their offsets, as one sequence of tables in that order.

    files: the first offset of each, and what reads it. Each is read when its turn comes, a table at a time.
    """
    waiting = deque(sorted(files, key=lambda one: one[0]))
    held: list[tuple[pa.Table, Iterator[pa.Table]]] = []
    while waiting or held:
        if not held:
            held += _opened(waiting.popleft()[1]())
            continue
        bound = min(table["offset"][-1].as_py() for table, _ in held)
        if waiting and waiting[0][0] <= bound:
            held += _opened(waiting.popleft()[1]())
            continue
        ready: list[pa.Table] = []
        rest: list[tuple[pa.Table, Iterator[pa.Table]]] = []
        for table, more in held:
            cut = int(np.searchsorted(table["offset"].to_numpy(), bound, side="right"))
            ready += [table.slice(0, cut)] if cut else []
            rest += [(table.slice(cut), more)] if cut < table.num_rows else _opened(more)
        held = rest
        yield ready[0] if len(ready) == 1 else pa.concat_tables(ready).sort_by("offset")


def _opened(tables: Iterator[pa.Table]) -> list[tuple[pa.Table, Iterator[pa.Table]]]:
    """The next table that has rows, and what gives those after it; empty if there is none."""
    return next(([(table, tables)] for table in tables if table.num_rows), [])


def _cut(table: pa.Table, most: int) -> Iterator[pa.Table]:
    """Pieces of at most so many rows, and about so many bytes."""
    rows = max(1, min(most, BYTES * table.num_rows // max(table.nbytes, 1)))
    for at in range(0, table.num_rows, rows):
        yield table.slice(at, rows)


# What is sent


def _outgoing(what: Replay, source: Source, messages: pa.Table) -> Iterator[Outgoing]:
    partition = -1 if what.by_key else source.partition
    headers = messages["headers"]
    lists = headers.to_pylist() if headers.null_count < len(headers) else [None] * len(headers)
    columns = (messages[name].to_pylist() for name in ("offset", "value", "key", "timestamp"))
    for offset, value, key, timestamp, held in zip(*columns, lists, strict=True):
        named = [(one["key"], one["value"]) for one in held] if held else None
        yield Outgoing(offset, value, key, named, max(timestamp or 0, 0), partition)


def _sizes(messages: pa.Table) -> tuple[int, int]:
    keys, values = (pc.sum(pc.binary_length(messages[name])).as_py() or 0 for name in ("key", "value"))
    return keys, values


def _millis(moment: datetime) -> int:
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


def _moment(millis: int) -> str:
    return isoformat(_EPOCH + timedelta(milliseconds=millis))

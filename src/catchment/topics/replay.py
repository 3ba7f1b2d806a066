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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from catchment.bucket.contract import Bucket
from catchment.clock import isoformat
from catchment.errors import ExportStopped, NotFound, UsageError
from catchment.topics import committed, identity
from catchment.topics.definition import digest
from catchment.topics.messages import EPOCH, Messages, Window, millis
from catchment.topics.names import Place, Source
from catchment.topics.transactions import Outgoing, Target, Transactions, position, target

MESSAGES = 20_000  # of one transaction, at most; and about `messages.BYTES`


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

    of: Messages
    target: Target
    by_key: bool = False  # keys choose the Kafka partitions

    @property
    def place(self) -> Place:
        return self.of.place

    def name(self, source: Source) -> str:
        """Under which positions are kept. The same if it is the same, and no other's."""
        what = [str(self.place), self.of.known.topic_id, self.target.topic, self.target.id]
        return f"catchment-replay-{digest([*what, self.of.window.plain()])}-{source}"

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

    what = Replay(Messages(bucket, place, known, window, scratch, also_incomplete), there, by_key)
    done = replay(
        what,
        sender,
        lambda name: position(brokers, settings, name, topic),
        kafka_partition=kafka_partition,
        now=now,
        dry_run=dry_run,
        messages=messages,
        on_progress=on_progress,
    )
    now_there = target(brokers, settings, topic)
    if now_there is None or now_there.id != there.id:
        raise ExportStopped(
            f"{topic} was deleted or made again while messages were sent to it: some may be in the new one",
            hint="delete it, make it once more, and run the same command again",
        )
    return done


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
    found = [part for source in what.of.sources(kafka_partition) if (part := what.of.committed(source)) is not None]
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
            for batch in what.of.batches(source, first if found_at is None else found_at, last, messages):
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
    for batch in what.of.batches(source, part.first if at is None else at, part.last, most):  # 3 read
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
    if target.id in (what.of.known.topic_id, *what.of.known.past):
        raise UsageError(
            f"{target.topic} is the topic that {what.place} is exported from",
            hint="replay into another topic: the export would take its own messages for new ones",
        )
    if target.own_time and not what.of.also_incomplete:
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


def _check(what: Replay, messages: pa.Table, now: datetime) -> None:
    """UsageError if Kafka would not keep one of these messages as it is."""
    times = messages["timestamp"]
    timeless = pc.fill_null(pc.less_equal(times, 0), True)
    if pc.any(timeless).as_py():
        if not what.of.also_incomplete:
            at = messages.filter(timeless)["offset"][0].as_py()
            raise UsageError(
                f"the message of offset {at} has no timestamp",
                hint="add --also-incomplete to replay it with the time of the replay",
            )
        messages = messages.filter(pc.invert(timeless))
        times = messages["timestamp"]
    kept_for = what.target.kept_for
    if kept_for is None or what.target.own_time or not messages.num_rows:
        return
    if (oldest := pc.min(times).as_py()) < millis(now - kept_for):
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
        begun = json.loads(what.of.bucket.read(key).body).get("begun", "")
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
    window = {
        name: isoformat(one) if isinstance(one, datetime) else one for name, one in asdict(what.of.window).items()
    }
    try:
        what.of.bucket.head(what.note(source))
    except NotFound:
        about = {"to_topic": what.target.topic, "to_topic_id": what.target.id, "brokers": what.target.brokers}
        note = {"begun": isoformat(now), "source": str(source), **about, "window": window}
        what.of.bucket.put(what.note(source), json.dumps(note, indent=1).encode())


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


def _moment(millis: int) -> str:
    return isoformat(EPOCH + timedelta(milliseconds=millis))

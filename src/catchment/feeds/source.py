"""Archives as a Spark source: `spark.read.format("catchment").option("feed", "subway")`.

    feed string, time timestamp, hash string, body binary

Options, all but the first may be left out:

    feed                 one id, or several with commas
    start, end           times, 2026-11-15T08:00:00Z; only the hours in between are fetched
    fold                 true: leave out a body that is equal to the one before it in its hour
    damaged              fail (the default), or skip
    object_storage_ids   the first one, if not given
    config               a path or URL, for a session that no lake has set up

One partition is one hour of one feed, read as the union of its archives, so that an hour that is not reconciled yet
counts once. Spark plans in a process of its own and reads in others, on other machines perhaps: what they need of the
configuration goes with the source as values. Options are shown in plans, so no secret is one. Machines that read need
what the base package needs (and Catchment itself, which `lake.spark` ships to them).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from catchment.bucket.contract import Bucket
from catchment.bucket.open import open_bucket
from catchment.config import Config, Storage, load
from catchment.errors import UsageError
from catchment.feeds.archive import Member
from catchment.feeds.hours import Listing, list_feeds
from catchment.feeds.union import Flaw, View, hours, read_hour, refuse, span_over

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

SCHEMA = "feed string, time timestamp, hash string, body binary"
BATCH_BYTES = 8_000_000  # of bodies in one Arrow batch, or as many
BATCH_ROWS = 10_000
_OPTIONS = ("feed", "start", "end", "fold", "damaged", "object_storage_ids", "config")


@dataclass(frozen=True)
class Known:
    """What the source needs of a configuration: no more than this leaves the driver."""

    storages: tuple[Storage, ...]
    feeds: tuple[str, ...]

    @classmethod
    def of(cls, config: Config) -> Known:
        return cls(config.object_storage, tuple(feed.id for feed in config.feeds))


@dataclass(frozen=True)
class Asked:
    """What is to be read."""

    storages: tuple[Storage, ...]
    feeds: tuple[str, ...]
    declared: tuple[str, ...]  # all feeds of the configuration
    start: datetime | None = None
    end: datetime | None = None
    fold: bool = False
    skip_damaged: bool = False


class ArchiveSource(DataSource):
    """The source without a lake: its `config` option names the configuration; ./catchment.yaml if it is not given."""

    known: ClassVar[Known | None] = None

    @classmethod
    def name(cls) -> str:
        return "catchment"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> HourReader:
        given = dict(self.options)
        place = given.get("config")
        known = self.known if self.known is not None and place is None else Known.of(load(place))
        return HourReader(asked(given, known))


def register(spark: SparkSession, config: Config) -> None:
    """Let this session read the archives of this configuration's storages as `catchment`."""

    # Made here, so that it is pickled with its values and not by its name.
    class LakeSource(ArchiveSource):
        known = Known.of(config)

    spark.dataSource.register(LakeSource)


def asked(options: Mapping[str, str], known: Known) -> Asked:
    """What these options ask for. UsageError if they cannot be understood."""
    given = {name.lower(): value for name, value in options.items()}
    if strange := sorted(set(given) - set(_OPTIONS)):
        raise UsageError(f"unknown option {strange[0]!r}", hint=f"use one of: {', '.join(_OPTIONS)}")
    feeds = _ids(given.get("feed", ""))
    if not feeds:
        raise UsageError("no feed is named", hint='add .option("feed", "…")')
    wanted = _ids(given.get("object_storage_ids", "")) or [known.storages[0].id]
    storages = {storage.id: storage for storage in known.storages}
    for id in wanted:
        if id not in storages:
            raise UsageError(f"no object storage has the id {id!r}", hint=f"use one of: {', '.join(storages)}")
    start, end = _moment(given, "start"), _moment(given, "end")
    span_over(start, end)  # judged here, and not first where it is read
    return Asked(
        storages=tuple(storages[id] for id in wanted),
        feeds=tuple(feeds),
        declared=known.feeds,
        start=start,
        end=end,
        fold=_choice(given, "fold", {"false": False, "true": True}),
        skip_damaged=_choice(given, "damaged", {"fail": False, "skip": True}),
    )


class HourPartition(InputPartition):
    """One hour of one feed, as it was listed in each storage that has something of it."""

    def __init__(self, feed: str, listings: Sequence[tuple[int, Listing]]) -> None:
        super().__init__(f"{feed} {listings[0][1].hour.text}")
        self.feed = feed
        self.listings = tuple(listings)  # with the number of the storage


class HourReader(DataSourceReader):
    """Plans the hours on the driver, and reads them wherever Spark likes."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked

    def partitions(self) -> list[InputPartition]:
        """The hours of the period that hold something, feed by feed, in order."""
        buckets = open_buckets(self.asked.storages)
        found: list[InputPartition] = []
        for feed in self.asked.feeds:
            before = len(found)
            for _, views in hours(buckets, feed, span_over(self.asked.start, self.asked.end)):
                if held := [(buckets.index(view.bucket), view.listing) for view in views if _holds(view.listing)]:
                    found.append(HourPartition(feed, held))
            if len(found) == before:
                self._must_exist(feed, buckets)
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The downloads of one hour that lie in the period."""
        if not isinstance(partition, HourPartition):
            return  # what Spark gives where there is none
        buckets = open_buckets(self.asked.storages)
        views = [View(buckets[number], listing) for number, listing in partition.listings]
        on_flaw = _skip if self.asked.skip_damaged else refuse
        yield from batches(partition.feed, self._wanted(read_hour(views, fold=self.asked.fold, on_flaw=on_flaw)))

    def _wanted(self, members: Iterator[Member]) -> Iterator[Member]:
        start, end = self.asked.start, self.asked.end
        for member in members:
            time = member.download.time
            if (start is None or start <= time) and (end is None or time < end):
                yield member

    def _must_exist(self, feed: str, buckets: Sequence[Bucket]) -> None:
        """A feed without a single hour may be new; one that nobody has heard of is a mistake."""
        stored = {name for bucket in buckets for name in list_feeds(bucket)}
        if feed not in stored and feed not in self.asked.declared:
            raise UsageError(f"no feed has the id {feed!r}", hint=f"use one of: {', '.join(sorted(stored))}")


def batches(feed: str, members: Iterator[Member]) -> Iterator[pa.RecordBatch]:
    """Downloads as Arrow, a few megabytes at a time."""
    import pyarrow as pa

    kind = pa.schema(
        [("feed", pa.string()), ("time", pa.timestamp("us", tz="UTC")), ("hash", pa.string()), ("body", pa.binary())]
    )

    def batch() -> pa.RecordBatch:
        columns = (
            [feed] * len(held),
            [member.download.time for member in held],
            [member.download.hash for member in held],
            [member.body for member in held],
        )
        return pa.record_batch([pa.array(c, type=f.type) for c, f in zip(columns, kind, strict=True)], schema=kind)

    held: list[Member] = []
    size = 0
    for member in members:
        held.append(member)
        size += len(member.body)
        if size >= BATCH_BYTES or len(held) >= BATCH_ROWS:
            yield batch()
            held, size = [], 0
    if held:
        yield batch()


@lru_cache(maxsize=8)
def open_buckets(storages: tuple[Storage, ...]) -> list[Bucket]:
    """One for each, kept for the tasks that this process runs next: making a client takes longer than a small hour."""
    return [open_bucket(storage, create=False) for storage in storages]


def _holds(listing: Listing) -> bool:
    return bool(listing.live or listing.busy) and not listing.deleted


def _skip(flaw: Flaw) -> None:
    log.warning("%s; skipped, since that was asked for", flaw)


def _ids(text: str) -> list[str]:
    return list(dict.fromkeys(id.strip() for id in text.split(",") if id.strip()))


def _moment(given: Mapping[str, str], name: str) -> datetime | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{name} {text!r} is not a time", hint="write it like 2026-11-15T08:00:00Z") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _choice(given: Mapping[str, str], name: str, choices: Mapping[str, bool]) -> bool:
    text = given.get(name, next(iter(choices)))
    if text.lower() not in choices:
        raise UsageError(f"{name} is {text!r}", hint=f"use one of: {', '.join(choices)}")
    return choices[text.lower()]

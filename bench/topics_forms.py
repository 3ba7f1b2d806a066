"""Messages per second of every decoder and every format against JSON to Parquet in the same run; and going back.

All decoders get the same eight fields, each in its own encoding, and split them by type and day. All formats get the
same JSON messages. A backfill from the backup is set against the same ranges read from Kafka.
"""

from __future__ import annotations

import io
import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import fastavro
import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import SparkSession

from catchment.bucket.local import LocalBucket
from catchment.clock import SYSTEM
from catchment.config.storage import Storage
from catchment.config.topics import Export
from catchment.testing.kafka import KafkaBroker
from catchment.testing.registry import SchemaRegistry, schema_registry
from catchment.topics import identity, offsets
from catchment.topics.backfill.backup import Backup
from catchment.topics.backfill.rewrite import FromBackup, FromKafka, on_spark
from catchment.topics.backfill.run import backfill
from catchment.topics.definition import fingerprint
from catchment.topics.kafka import Cluster
from catchment.topics.manifest import Manifest
from catchment.topics.names import Place, Source
from catchment.topics.period import Period
from catchment.topics.work import Reading, Target, Work, Written
from catchment.topics.write.job import SparkWriter

MESSAGES = 1_000_000
PARTITIONS = 2
ROUNDS = 3
PIECES = 4  # ranges of each Kafka partition, in the backfill
SPLIT = {"type": {"field": "type"}, "day": {"field": "ts", "unit": "ms", "by": "day"}}
KINDS = {
    "type": "string",
    "ts": "long",
    "id": "long",
    "user": "string",
    "amount": "double",
    "ok": "boolean",
    "country": "string",
    "note": "string",
}
PATTERN = " ".join(f"(?P<{name}>[^ ]*)" for name in KINDS)
AVRO = {"type": "record", "name": "Event", "fields": [{"name": name, "type": kind} for name, kind in KINDS.items()]}
JSON = "json to parquet"


def compare(spark: SparkSession, kafka: KafkaBroker) -> None:
    """Print all of it."""
    events = [event(number) for number in range(50_000)]
    with tempfile.TemporaryDirectory() as name, schema_registry() as registry:
        folder = Path(name)
        side = _Side(spark, kafka, folder)
        _decoders(side, events, registry)
        _formats(side)
        _going_back(side)


class _Side:
    def __init__(self, spark: SparkSession, kafka: KafkaBroker, folder: Path) -> None:
        self.spark, self.kafka, self.folder = spark, kafka, folder
        self.json = ""  # the topic with JSON messages

    def topic(self, bodies: list[bytes]) -> str:
        topic = self.kafka.fresh_topic(PARTITIONS, {"compression.type": "uncompressed"})
        for partition in range(PARTITIONS):
            self.kafka.produce(topic, repeated(bodies, MESSAGES // PARTITIONS), partition)
        return topic

    def lake(self, name: str = "lake") -> Storage:
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return Storage.model_validate({"id": "main", "path": str(path)})

    def write(self, topic: str, values: dict[str, Any]) -> None:
        export = Export.model_validate(values)
        writer = SparkWriter(self.spark, Target(self.lake()))
        last = MESSAGES // PARTITIONS - 1
        works = [
            Work(export, topic, Source(partition), 0, last, fingerprint(export), "bench")
            for partition in range(PARTITIONS)
        ]
        for one in writer.write(Reading(self.kafka.bootstrap, {}), works):
            assert isinstance(one, Written), one
            assert one.counts.written == last + 1, one.counts


def _decoders(side: _Side, events: list[dict[str, Any]], registry: SchemaRegistry) -> None:
    descriptor, made = _message()
    path = side.folder / "event.desc"
    path.write_bytes(descriptor)
    number = registry.register("events-value", json.dumps(AVRO))
    schema = fastavro.parse_schema(AVRO)
    frame = b"\0" + number.to_bytes(4, "big")
    avro = [_avro(schema, one) for one in events]
    ways: dict[str, tuple[list[bytes], Any]] = {
        JSON: ([json.dumps(one).encode() for one in events], "json"),
        "msgpack": ([msgspec.msgpack.encode(one) for one in events], "msgpack"),
        "avro": (avro, {"name": "avro", "schema": json.dumps(AVRO)}),
        "avro, registry": ([frame + one for one in avro], {"name": "avro", "registry": registry.url}),
        "protobuf": (
            [made(**one).SerializeToString() for one in events],
            {"name": "protobuf", "descriptor": str(path), "message": "bench.Event"},
        ),
        "regex": (
            [" ".join(str(one[name]) for name in KINDS).encode() for one in events],
            {"name": "regex", "pattern": PATTERN, "schemas": {"*": "ts BIGINT, id BIGINT, amount DOUBLE"}},
        ),
        "module:callable": ([json.dumps(one).encode() for one in events], "bench.decoder:events"),
    }
    topics = {name: side.topic(bodies) for name, (bodies, _) in ways.items()}
    side.json = topics[JSON]
    sizes = ", ".join(f"{name} {sum(map(len, some)) / len(some):.0f}" for name, (some, _) in ways.items())
    print(f"-- decoders: {MESSAGES:,} messages, by type and day, to Parquet; bytes of a message: {sizes}")
    turns(
        {
            name: partial(side.write, topics[name], {"group": "events", "decode": decode, "split": SPLIT})
            for name, (_, decode) in ways.items()
        }
    )


def _formats(side: _Side) -> None:
    decoded = {"group": "events", "decode": "json", "split": SPLIT}
    ways: dict[str, dict[str, Any]] = {JSON: decoded}
    forms: dict[str, Any] = {
        "text": "text",
        "text, gzip": {"name": "text", "compression": "gzip"},
        "text, zstd": {"name": "text", "compression": "zstd"},
        "sequence": "sequence",
        "sequence, msgpack keys": {"name": "sequence", "key": "msgpack"},
        "sequence, record, gzip": {"name": "sequence", "compression": "record"},
        "sequence, block, gzip": {"name": "sequence", "compression": "block"},
        "sequence, block, zstd": {"name": "sequence", "compression": "block", "codec": "zstd"},
    }
    ways["backup, parquet"] = {"group": "backup"}
    ways |= {f"backup, {name}": {"group": "backup", "format": form} for name, form in forms.items()}
    ways["json kept as text, zstd"] = {**decoded, "format": forms["text, zstd"]}
    ways["json kept as sequence, block, zstd"] = {**decoded, "format": forms["sequence, block, zstd"]}
    print("-- formats: the same JSON messages")
    turns({name: partial(side.write, side.json, values) for name, values in ways.items()})


def _going_back(side: _Side) -> None:
    """The same ranges written anew, from the backup and from Kafka."""
    old = Export.model_validate({"group": "events", "decode": "json", "split": SPLIT})
    new = old.model_copy(update={"generation": 2, "filter": "id >= 0"})
    copy = Export.model_validate({"group": "backup"})
    storage = side.lake("going-back")
    bucket = LocalBucket(Path(str(storage.path)))
    reading = Reading(side.kafka.bootstrap, {})
    writer = SparkWriter(side.spark, Target(storage))
    cluster = Cluster(side.kafka.bootstrap, {})
    info = cluster.topics(lambda name: name == side.json)[side.json]
    each = MESSAGES // PARTITIONS // PIECES
    for export in (copy, old):
        place = Place(export.group, side.json)
        identity.register(bucket, place, info.id, export, lambda: dict.fromkeys(range(PARTITIONS), 0))
        for piece in range(PIECES):
            works = [
                Work(export, side.json, Source(at), piece * each, (piece + 1) * each - 1, fingerprint(export), "bench")
                for at in range(PARTITIONS)
            ]
            for work, done in zip(works, writer.write(reading, works), strict=True):
                assert isinstance(done, Written)
                offsets.commit(bucket, place, _manifest(info.id, work, done))
    place = Place("events", side.json)
    known = identity.register(bucket, place, info.id, new, dict)

    def again(messages: Any) -> None:
        done = backfill(bucket, place, new, known, Period(), messages, replace=False, owner="bench", now=SYSTEM.now)
        assert not done.problems, done.problems
        assert sum(one.counts.written for one in done.ranges if one.counts) == MESSAGES
        for entry in list(bucket.list(place.prefix)):
            if "/2_" in entry.key:
                bucket.delete(entry.key)

    print(f"-- going back: {PIECES * PARTITIONS} ranges of {each:,} messages")
    turns(
        {
            "backfill from Kafka": lambda: again(FromKafka(cluster, side.json, known, lambda: writer, reading)),
            "backfill from the backup": lambda: again(
                FromBackup(
                    Backup(bucket, Place("backup", side.json), known), on_spark(lambda: side.spark, Target(storage))
                )
            ),
        }
    )
    cluster.close()


def turns(what: dict[str, Callable[[], object]]) -> None:
    """Time each of them, turn about, and print it against the first."""
    for do in what.values():
        do()  # warm
    times: dict[str, list[float]] = {name: [] for name in what}
    for _ in range(ROUNDS):
        for name, do in what.items():
            started = time.perf_counter()
            do()
            times[name].append(time.perf_counter() - started)
    found = {name: median(one) for name, one in times.items()}
    base = next(iter(found.values()))
    for name, one in found.items():
        print(f"{name}: {base / one:.2f}x  ({MESSAGES / one:,.0f} messages/s)", flush=True)


def event(number: int) -> dict[str, Any]:
    chance = random.Random(number)
    return {
        "type": f"type_{chance.randrange(10):02d}",
        "ts": 1_794_268_800_000 + chance.randrange(3 * 86_400_000),
        "id": number,
        "user": f"user-{chance.randrange(10_000)}",
        "amount": round(chance.random() * 1000, 2),
        "ok": chance.random() < 0.5,
        "country": chance.choice(("DE", "FR", "NL", "PL", "ES")),
        "note": "x" * chance.randrange(30),
    }


def _avro(schema: Any, one: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, one)
    return out.getvalue()


def _message() -> tuple[bytes, Any]:
    """A descriptor set with the message, and its class."""
    kinds = {"string": 9, "long": 3, "double": 1, "boolean": 8}
    file = descriptor_pb2.FileDescriptorProto(name="bench/event.proto", package="bench", syntax="proto3")
    message = file.message_type.add(name="Event")
    for at, (name, kind) in enumerate(KINDS.items()):
        message.field.add(name=name, number=at + 1, label=1, type=kinds[kind])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    both = descriptor_pb2.FileDescriptorSet(file=[file])
    return both.SerializeToString(), GetMessageClass(pool.FindMessageTypeByName("bench.Event"))


def _manifest(topic_id: str, work: Work, done: Written) -> Manifest:
    bounds = (work.topic, topic_id, work.source, work.first, work.last, work.generation, work.fingerprint)
    return Manifest(*bounds, done.counts, done.files, done.dead, done.holes, done.raw_bytes)


def repeated(bodies: Iterable[bytes], number: int) -> Iterator[bytes]:
    some = list(bodies)
    for at in range(number):
        yield some[at % len(some)]

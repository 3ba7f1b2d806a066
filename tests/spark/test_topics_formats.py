"""Files of every format, read by Spark's own Hadoop readers: they know nothing of Catchment."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import random
import zipfile
from collections.abc import Iterable
from collections.abc import Sequence as Many
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark import RDD
from pyspark.sql import SparkSession

from catchment.bucket.open import open_bucket
from catchment.config.storage import Storage
from catchment.config.topics import Export
from catchment.spark.jars import JarSet, resolve
from catchment.spark.uris import uri
from catchment.testing.kafka import KafkaBroker
from catchment.testing.kafka_messages import Message as Sent
from catchment.topics.committed import Committed
from catchment.topics.definition import fingerprint
from catchment.topics.files.format import About, file_format
from catchment.topics.files.read import rows as read_rows
from catchment.topics.files.sequence import BYTES, CODECS, LONG, Sequence
from catchment.topics.frame import frame
from catchment.topics.manifest import File
from catchment.topics.names import Place, Source, values_of
from catchment.topics.work import Reading, Target, Work, Written
from catchment.topics.write.job import SparkWriter
from tests.spark.programs import run
from tests.unit.topics.write.ranges import BEGIN, DAY, Message, batches, work, write, written

PLACE = Place("backup", "clicks")
TEXT = "org.apache.hadoop.io.Text"
NEW_TEXT = "org.apache.hadoop.mapreduce.lib.input.TextInputFormat"
NEW_SEQUENCE = "org.apache.hadoop.mapreduce.lib.input.SequenceFileInputFormat"
# Of a library that Spark brings along: Hadoop's own codec is in its native library, which PySpark has not.
ZSTD = "io.airlift.compress.zstd.ZstdCodec"
RECORD, BLOCK = {"compression": "record"}, {"compression": "block"}


def messages(number: int = 3000) -> list[Message]:
    """Of all sizes, with holes between them; some have no key, most are no text."""
    some = random.Random(1)
    sizes = (0, 1, 100, 127, 128, 255, 256, 300)
    found = []
    for n in range(number):
        key = None if n % 5 == 0 else some.randbytes(some.choice((0, 3, 200, 256)))
        value = some.randbytes(70_000 if n % 700 == 6 else some.choice(sizes)).replace(b"\n", b"\r")
        found.append(Message(n * 3 if n < 2000 else n << 30, value, key, timestamp=BEGIN + n % 2 * DAY))
    return found


class Site:
    """A lake in a folder, with one range of messages in it."""

    def __init__(self, folder: Path, format: dict[str, Any], given: Many[Message], **more: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.storage = Storage(id="main", path=folder / "lake")
        self.export = Export.model_validate(
            {"group": "backup", "format": format, "dead_letters": {"stop_above": "10%"}, **more}
        )
        bucket = open_bucket(self.storage)
        try:
            self.written = written(write(bucket, folder / "scratch", self.export, given, first=given[0].offset))
        finally:
            bucket.close()

    @property
    def uris(self) -> list[str]:
        return [uri(self.storage, one.key) for one in self.written.files]

    def files(self) -> list[Committed]:
        return [_committed(one) for one in self.written.files]


def _committed(file: File) -> Committed:
    folder, name = PLACE.parse_file(file.key)
    bounds = (Source(3), name.first, name.last, name.generation)
    return Committed(file.key, file.etag, file.size, file.rows, folder, values_of(folder), *bounds)


def fit(given: Iterable[Message], delimiter: bytes) -> list[bytes | None]:
    """The values that a text file can hold."""
    return [one.value for one in given if (one.value or b"") + delimiter == _first(one.value or b"", delimiter)]


def _first(value: bytes, delimiter: bytes) -> bytes:
    """A value with its delimiter, up to the first delimiter."""
    before, end, _ = (value + delimiter).partition(delimiter)
    return before + end


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("delimiter", ["\n", "||", "\r\n", "…"])
def test_text(spark: SparkSession, tmp_path: Path, compression: str, delimiter: str) -> None:
    given = messages()
    site = Site(tmp_path, {"name": "text", "compression": compression, "delimiter": delimiter}, given)
    wanted = fit(given, delimiter.encode())
    assert site.written.counts.written == len(wanted) > 2000
    lines = spark.read.option("lineSep", delimiter).option("io.compression.codecs", ZSTD).text(site.uris)
    assert [bytes(row[0]) for row in lines.selectExpr("CAST(value AS BINARY)").collect()] == wanted
    conf = {"textinputformat.record.delimiter": delimiter, "io.compression.codecs": ZSTD}
    assert spark.sparkContext.newAPIHadoopFile(site.uris[0], NEW_TEXT, LONG, TEXT, conf=conf).count() == len(wanted)


@pytest.mark.parametrize("compression", [{}, RECORD, BLOCK], ids=["none", "record", "block"])
@pytest.mark.parametrize("key", ["offset", "msgpack"])
def test_sequence(spark: SparkSession, tmp_path: Path, key: str, compression: dict[str, str]) -> None:
    given = messages()
    site = Site(tmp_path, {"name": "sequence", "key": key, **compression}, given)
    kind = LONG if key == "offset" else BYTES
    found: RDD[Any] = spark.sparkContext.sequenceFile(site.uris[0], kind, BYTES, minSplits=4)
    assert found.getNumPartitions() >= 4  # and each finds where the first record of its part begins
    pairs = [(_key(one, key), bytes(value)) for one, value in found.collect()]
    assert pairs == [(_wanted(one, key), one.value) for one in given]
    assert spark.sparkContext.newAPIHadoopFile(site.uris[0], NEW_SEQUENCE, kind, BYTES).count() == len(given)


def _key(found: Any, kind: str) -> Any:
    return found if kind == "offset" else msgspec.msgpack.decode(bytes(found))


def _wanted(one: Message, kind: str) -> Any:
    return one.offset if kind == "offset" else {1: one.offset} | ({} if one.key is None else {2: one.key})


READ_ZSTD = """
    import hashlib, json, sys
    from catchment.spark.session import session

    spark = session("local[2]", app="zstd")
    codec = spark.sparkContext._jvm.org.apache.hadoop.io.compress.ZStandardCodec
    assert codec.isNativeCodeLoaded(), "Hadoop's native library was not found"
    found = {}
    for path, kind in json.loads(sys.argv[1]):
        digest = hashlib.sha256()
        if kind:
            pairs = spark.sparkContext.sequenceFile(path, kind, "org.apache.hadoop.io.BytesWritable").collect()
        else:
            rows = spark.read.option("lineSep", "\\n").text(path).selectExpr("CAST(value AS BINARY)").collect()
            pairs = [(0, row[0]) for row in rows]
        for key, value in pairs:
            digest.update(repr((key if isinstance(key, int) else bytes(key), bytes(value))).encode())
        found[path] = [len(pairs), digest.hexdigest()]
    print(json.dumps(found))
    spark.stop()
"""


def test_zstd_by_hadoops_own_codec(tmp_path: Path) -> None:
    """It is in Hadoop's native library, which is not in PySpark: a Java of its own is started with it."""
    given = messages()
    asked, wanted = [], {}
    for at, (name, key, compression) in enumerate(
        [("text", "", ""), *(("sequence", key, how) for key in ("offset", "msgpack") for how in ("record", "block"))]
    ):
        options = {"key": key, "compression": compression, "codec": "zstd"} if key else {"compression": "zstd"}
        (path,) = Site(tmp_path / str(at), {"name": name, **options}, given).uris
        asked.append((path, {"": "", "offset": LONG, "msgpack": BYTES}[key]))
        pairs = [(_raw_key(one, key), one.value) for one in given]
        digest = hashlib.sha256("".join(repr(pair) for pair in pairs).encode())
        wanted[path] = [len(pairs), digest.hexdigest()]
    done = run(READ_ZSTD, json.dumps(asked), env={"LD_LIBRARY_PATH": str(native_library(tmp_path))})
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == wanted


def _raw_key(one: Message, key: str) -> int | bytes:
    if key == "msgpack":
        return msgspec.msgpack.encode(_wanted(one, key))
    return one.offset if key else 0


def native_library(folder: Path) -> Path:
    """Hadoop's native library for this machine, and the libzstd beside it under the name that it is looked for."""
    machine = {"x86_64": "amd64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    (jar,) = resolve(JarSet.NATIVE)
    target = folder / "native"
    target.mkdir()
    with zipfile.ZipFile(jar) as content:
        for name in ("libhadoop.so", "libzstd.so"):
            (target / name).write_bytes(content.read(f"nativelib/{platform.system()}-{machine}/{name}"))
    (target / "libzstd.so").rename(target / "libzstd.so.1")
    return target


@pytest.mark.parametrize("compression", ["NONE", "RECORD", "BLOCK"])
@pytest.mark.parametrize("key", ["offset", "msgpack"])
def test_sequence_files_are_those_that_hadoop_writes(
    spark: SparkSession, tmp_path: Path, key: str, compression: str
) -> None:
    """Byte for byte without compression; else our reader finds in Hadoop's file what Hadoop was given."""
    given = [one for one in messages(900) if len(one.value or b"") < 80_000]
    jvm, gateway = spark.sparkContext._jvm, spark.sparkContext._gateway
    assert jvm is not None
    assert gateway is not None
    hadoop = jvm.org.apache.hadoop.io
    export = Export.model_validate(
        {"group": "backup", "format": {"name": "sequence", "key": key, "compression": compression.lower()}}
    )
    about = About(work(export, given[-1].offset), "backup/file", len(given), 0)
    metadata = hadoop.SequenceFile.Metadata()
    for name, value in about.metadata.items():
        metadata.set(hadoop.Text(name), hadoop.Text(value))
    path = tmp_path / "theirs.seq"
    kind = jvm.java.lang.Class.forName(LONG if key == "offset" else BYTES)
    options = [
        hadoop.SequenceFile.Writer.file(jvm.org.apache.hadoop.fs.Path(str(path))),
        hadoop.SequenceFile.Writer.keyClass(kind),
        hadoop.SequenceFile.Writer.valueClass(jvm.java.lang.Class.forName(BYTES)),
        hadoop.SequenceFile.Writer.metadata(metadata),
        _compression(jvm, compression),
    ]
    array = gateway.new_array(getattr(hadoop, "SequenceFile$Writer$Option"), len(options))
    for at, option in enumerate(options):
        array[at] = option
    out = hadoop.SequenceFile.createWriter(jvm.org.apache.hadoop.conf.Configuration(), array)
    for one in given:
        raw = _raw_key(one, key)
        written_key = hadoop.LongWritable(raw) if isinstance(raw, int) else hadoop.BytesWritable(raw)
        out.append(written_key, hadoop.BytesWritable(one.value))
    out.close()
    theirs = path.read_bytes()
    ours = laid_out(export, given, about)
    marker = len(Sequence.of(export.format).header(about.metadata, b""))
    assert theirs[:marker] == ours[:marker]
    if compression == "NONE":
        assert theirs.replace(theirs[marker : marker + 16], ours[marker : marker + 16]) == ours
    rows = [row for table in file_format(export.format).read(io.BytesIO(theirs)) for row in table.to_pylist()]
    assert [(row["offset"], row["value"]) for row in rows] == [(one.offset, one.value) for one in given]
    assert [row.get("key") for row in rows] == [one.key if key == "msgpack" else None for one in given]


def _compression(jvm: Any, name: str) -> Any:
    kind = getattr(jvm.org.apache.hadoop.io, "SequenceFile$CompressionType").valueOf(name)
    if name == "NONE":
        return jvm.org.apache.hadoop.io.SequenceFile.Writer.compression(kind)
    codec = jvm.java.lang.Class.forName(CODECS["gzip"]).newInstance()
    codec.setConf(jvm.org.apache.hadoop.conf.Configuration())
    return jvm.org.apache.hadoop.io.SequenceFile.Writer.compression(kind, codec)


def laid_out(export: Export, given: Many[Message], about: About) -> bytes:
    format, sink = file_format(export.format), pa.BufferOutputStream()
    format.write(sink, [format.keep(pa.Table.from_batches(batches(given)))], about)
    return bytes(sink.getvalue())


BY_DAY = {"day": {"timestamp": True, "by": "day"}}


@pytest.mark.parametrize(
    ("format", "columns"),
    [
        ({"name": "text", "compression": "zstd", "delimiter": "\n\n"}, ["value"]),
        ({"name": "sequence", "compression": "block", "codec": "zstd"}, ["offset", "value"]),
        ({"name": "sequence", "key": "msgpack"}, ["offset", "key", "value"]),
    ],
)
def test_committed_messages_as_a_frame(
    spark: SparkSession, tmp_path: Path, format: dict[str, Any], columns: list[str]
) -> None:
    given = [Message(0, b"\xef\xbb\xbfa byte order mark", None), *messages(500)[1:]]
    site = Site(tmp_path, format, given, split=BY_DAY)
    assert len(site.files()) == 2
    found = frame(spark, site.storage, PLACE, site.files(), {1: site.export.format})
    assert found.columns == [*columns, "day"]
    rows = [{name: _plain(row[name]) for name in found.columns} for row in found.collect()]
    wanted = [
        {"offset": one.offset, "key": one.key, "value": one.value, "day": f"2024-10-0{4 + n % 2}"}
        for n, one in enumerate(given)
    ]
    assert sorted(map(repr, rows)) == sorted(repr({name: one[name] for name in rows[0]}) for one in wanted)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def test_a_level_of_folders_goes_before_a_column_of_its_name(spark: SparkSession, tmp_path: Path) -> None:
    given = [Message(n, b"%d" % n, key=b"ab"[n % 2 : n % 2 + 1]) for n in range(10)]
    site = Site(tmp_path, {"name": "sequence", "key": "msgpack"}, given, split={"key": {"key": True}})
    found = frame(spark, site.storage, PLACE, site.files(), {1: site.export.format})
    assert found.columns == ["offset", "value", "key"]
    assert sorted(tuple(row) for row in found.select("offset", "key").collect()) == [
        (n, "ab"[n % 2]) for n in range(10)
    ]


def test_generations_of_several_formats_as_one_frame(spark: SparkSession, tmp_path: Path) -> None:
    given = [Message(n, b"%d" % n) for n in range(6)]
    files, formats = [], {}
    for generation, (name, some) in enumerate(
        [("text", given[:2]), ("sequence", given[2:4]), ("parquet", given[4:])], start=1
    ):
        site = Site(tmp_path, {"name": name}, some, generation=generation)
        files += site.files()
        formats[generation] = site.export.format
    found = frame(spark, site.storage, PLACE, files, formats).select("offset", "value").collect()
    assert [(row[0], bytes(row[1])) for row in found] == [(None if n < 2 else n, b"%d" % n) for n in range(6)]


@pytest.mark.parametrize("name", ["text", "sequence"])
def test_from_kafka(spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, name: str) -> None:
    """What a format cannot hold arrives whole among the dead letters, as Kafka had it."""
    topic = kafka.fresh_topic()
    sent = [Sent(b"one", b"k", timestamp=1000), Sent(None, b"gone", (("h", b"1"), ("h", None)), 2000), Sent(b"")]
    kafka.produce(topic, sent, 0)
    storage = Storage(id="main", path=tmp_path / "lake")
    export = Export.model_validate({"group": "backup", "format": name, "dead_letters": {"stop_above": "1%"}})
    asked = Work(export, topic, Source(0), 0, 2, fingerprint(export))
    (found,) = SparkWriter(spark, Target(storage)).write(Reading(kafka.bootstrap, {}), [asked])
    assert isinstance(found, Written), found
    bucket = open_bucket(storage)
    try:
        (file,), (dead,) = found.files, found.dead
        rows = [row for table in read_rows(bucket, file, export.format, tmp_path) for row in table.to_pylist()]
        letters = [row for table in read_rows(bucket, dead, export.format, tmp_path) for row in table.to_pylist()]
    finally:
        bucket.close()
    assert [row["value"] for row in rows] == [b"one", b""]
    assert [row.get("offset") for row in rows] == ([None, None] if name == "text" else [0, 2])
    (letter,) = letters
    assert (letter["offset"], letter["timestamp"], letter["key"], letter["value"]) == (1, 2000, b"gone", None)
    assert letter["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert letter["timestamp_type"] == 0

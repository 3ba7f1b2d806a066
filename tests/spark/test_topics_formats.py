"""Files of every format, read by Spark's own Hadoop readers: they know nothing of Catchment."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import random
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from catchment.bucket.open import open_bucket
from catchment.config.storage import Storage
from catchment.config.topics import Export
from catchment.spark.jars import JarSet, resolve
from catchment.topics.committed import Committed
from catchment.topics.files.format import About, file_format
from catchment.topics.files.sequence import BYTES, CODECS, LONG
from catchment.topics.frame import ZSTD, frame, uri
from catchment.topics.manifest import File
from catchment.topics.names import Place, Source, values_of
from tests.spark.programs import run
from tests.unit.topics.write.ranges import BEGIN, DAY, Message, batches, work, write, written

PLACE = Place("backup", "clicks")
TEXT = "org.apache.hadoop.io.Text"
NEW_TEXT = "org.apache.hadoop.mapreduce.lib.input.TextInputFormat"
NEW_SEQUENCE = "org.apache.hadoop.mapreduce.lib.input.SequenceFileInputFormat"
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

    def __init__(self, folder: Path, format: dict[str, Any], given: Sequence[Message], **more: Any) -> None:
        self.storage = Storage(id="main", path=folder / "lake")
        self.export = Export.model_validate(
            {"group": "backup", "format": format, "dead_letters": {"stop_above": "10%"}, **more}
        )
        bucket = open_bucket(self.storage)
        try:
            self.written = written(write(bucket, folder / "scratch", self.export, given))
        finally:
            bucket.close()

    @property
    def uris(self) -> list[str]:
        return [uri(self.storage, one.key) for one in self.written.files]

    def files(self) -> list[Committed]:
        return [_committed(one) for one in self.written.files]


def _committed(file: File) -> Committed:
    folder, name = PLACE.parse_file(file.key)
    bounds = (Source(3), name.first, name.last, 1)
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
    found = spark.sparkContext.sequenceFile(site.uris[0], kind, BYTES, minSplits=4)
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
    return {"": 0, "offset": one.offset, "msgpack": msgspec.msgpack.encode(_wanted(one, key))}[key]


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
        out.append(
            hadoop.LongWritable(raw) if isinstance(raw, int) else hadoop.BytesWritable(raw), hadoop.BytesWritable(one.value)
        )
    out.close()
    theirs = path.read_bytes()
    ours = pa_written(export, given, about)
    marker = len(file_format(export.format).header(about.metadata, b""))  # type: ignore[attr-defined]
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


def pa_written(export: Export, given: Sequence[Message], about: About) -> bytes:
    import pyarrow as pa

    format, sink = file_format(export.format), pa.BufferOutputStream()
    format.write(sink, [format.keep(pa.Table.from_batches(batches(given)))], about)
    return bytes(sink.getvalue())

"""Committed rows as a DataFrame: exactly the files that manifests list, never a directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from catchment.bucket.open import open_bucket
from catchment.config.decode import Format
from catchment.config.storage import Storage
from catchment.spark.uris import uri
from catchment.topics.committed import Committed
from catchment.topics.files.format import file_format
from catchment.topics.files.read import rows
from catchment.topics.names import Place
from catchment.topics.records import BACKED
from catchment.topics.write.scratch import scratch_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 1 << 14


def frame(
    spark: SparkSession,
    storage: Storage,
    place: Place,
    files: Sequence[Committed],
    formats: Mapping[int, Format] | None = None,
) -> DataFrame:
    """The rows of these files, with the values of their folders as columns of text. No files: no columns.

    formats: of each generation; Parquet, if not given. Messages that were kept as they were have the columns that their
    format keeps, as bytes: value; offset and value; offset, key and value. Columns that only some files have are null
    elsewhere; one that is called like a level of folders gives way to it. A column that two generations have with
    different types cannot be read at once: Spark says which; read one generation then.
    """
    from pyspark.sql.types import StructType

    if not files:
        return spark.createDataFrame([], StructType([]))
    # In a session of its own: a folder `type=5` is text, and the user's settings stay as they are.
    session = spark.newSession()
    session.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    frames = []
    for generation in sorted({one.generation for one in files}):
        some = [one for one in files if one.generation == generation]
        format = (formats or {}).get(generation, Format())
        if format.name != "parquet":
            frames.append(_messages(session, storage, some, format))
            continue
        reader = session.read.option("mergeSchema", "true").option("basePath", uri(storage, place.prefix.rstrip("/")))
        frames.append(reader.parquet(*(uri(storage, one.key) for one in some)))
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def _messages(session: SparkSession, storage: Storage, files: Sequence[Committed], format: Format) -> DataFrame:
    """By our own readers, in Spark's tasks, a file at a time.

    Hadoop's reader of text drops a byte order mark from the first message of a file, and both of its readers need
    Hadoop's native library for zstd.
    """
    levels = list(files[0].values)
    keeps = file_format(format).keeps - {level.lower() for level in levels}
    kept = [name for name in BACKED.names if name in keeps]
    columns = [f"{name} {'BIGINT' if name == 'offset' else 'BINARY'}" for name in kept]
    texts = [f"`{name}` STRING" for name in levels]
    listed = session.createDataFrame(
        [(one.key, *(one.values[name] for name in levels)) for one in files], ", ".join(["`_key` STRING", *texts])
    )
    spread = min(len(files), 4 * session.sparkContext.defaultParallelism)
    return listed.repartition(spread).mapInArrow(_task(storage, format, kept, levels), ", ".join([*columns, *texts]))


def _task(storage: Storage, format: Format, kept: Sequence[str], levels: Sequence[str]) -> Any:
    """What runs on executors: for each listed file its rows, with the values of its folder."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for one in batch.to_pylist():
                yield from read_there(storage, format, one["_key"], kept, {name: one[name] for name in levels})

    return task


def read_there(
    storage: Storage, format: Format, key: str, kept: Sequence[str], values: Mapping[str, str | None]
) -> Iterator[pa.RecordBatch]:
    """The rows of one file: these columns, and its values. BucketError if it cannot be read."""
    bucket = open_bucket(storage, create=False)
    try:
        with scratch_folder() as scratch:
            for found in rows(bucket, key, format, scratch):
                table = found.select(kept)
                for name, value in values.items():
                    table = table.append_column(name, pa.repeat(pa.scalar(value, pa.string()), table.num_rows))
                yield from table.to_batches(max_chunksize=BATCH_ROWS)
    finally:
        bucket.close()

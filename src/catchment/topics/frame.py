"""Committed rows as a DataFrame: exactly the files that manifests list, never a directory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from catchment.config.storage import Storage
from catchment.topics.committed import Committed
from catchment.topics.names import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def uri(storage: Storage, key: str) -> str:
    """Where Spark finds an object of this storage."""
    inside = f"{storage.prefix}/{key}" if storage.prefix else key
    return f"s3a://{storage.bucket}/{inside}" if storage.bucket else f"{storage.path}/{inside}"


def frame(spark: SparkSession, storage: Storage, place: Place, files: Sequence[Committed]) -> DataFrame:
    """The rows of these files, with the values of their folders as columns of text. No files: no columns.

    Columns that only some files have are null elsewhere. A column that two generations have with different types cannot
    be read at once: Spark says which; read one generation then.
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
        reader = session.read.option("mergeSchema", "true").option("basePath", uri(storage, place.prefix.rstrip("/")))
        frames.append(reader.parquet(*(uri(storage, one.key) for one in some)))
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)

"""The rows of a batch: exactly its files, with the columns of its path.

What Spark would drop or guess in silence is an error here, unless the options say otherwise: a value that is not of its
column's type, a line that cannot be parsed, a header that is in another order. Columns that only some of the Parquet or
ORC files have are read from those.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from catchment.tables.partition import NULL
from catchment.tables.work import Job

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import DataType, StructType

STRICT: Mapping[str, Mapping[str, str]] = {
    "csv": {"mode": "FAILFAST", "enforceSchema": "false"},
    "json": {"mode": "FAILFAST"},
}
_TEXT = ("csv", "json")  # whose types are a guess
_MERGED = ("parquet", "orc")
_PATTERN = re.compile(r"[\\{}\[\]*?]")  # Spark takes paths for patterns, and a key may well have a [ in it


def prepare(session: SparkSession) -> SparkSession:
    """A session that is fit for reading batches: values of folders are text."""
    session.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    return session


def rows(session: SparkSession, job: Job, uri: Callable[[str], str], table: StructType | None) -> DataFrame | None:
    """The rows of the batch, lazily. None if it has no files and nothing says what its columns would be.

    `table` has the types of columns that are said nowhere else: of those of the path, and of CSV and JSON.
    """
    settings = job.settings
    types = _types(table)
    declared = _declared(settings.read.schema)
    types |= _types(declared)
    outside = {name.lower() for name in settings.columns}
    inside = _without(declared, outside)
    if not job.files:
        inside = inside or _without(table, outside)
        if inside is None:
            return None
        return _with_columns(session.createDataFrame([], inside), settings.columns, types)
    uris = [_PATTERN.sub(r"\\\g<0>", uri(file.key)) for file in job.files]
    reader = _reader(session, job, uri)
    if inside is not None:
        found = reader.schema(inside).load(uris)
    else:
        found = reader.load(uris)
        if settings.read.format in _TEXT and table is not None and not _guesses(settings.read.options):
            known = _as_in_table(found.schema, types)
            found = reader.schema(known).load(uris) if known != found.schema else found
    return _with_columns(found, settings.columns, types)


def _reader(session: SparkSession, job: Job, uri: Callable[[str], str]) -> DataFrameReader:
    read = job.settings.read
    options = dict(STRICT.get(read.format, {}))
    if read.format in _MERGED and len(job.files) > 1:
        options["mergeSchema"] = "true"
    folder = f"{job.base}{job.batch.path}" if job.batch.path else job.base.rstrip("/")
    if any("=" in file.key.removeprefix(folder).rpartition("/")[0] for file in job.files):
        options["basePath"] = uri(folder)
    said = {name.lower() for name in read.options}
    options = {name: value for name, value in options.items() if name.lower() not in said}
    return session.read.format(read.format).options(**options, **read.options)


def _guesses(options: Mapping[str, str]) -> bool:
    return any(name.lower() == "inferschema" and value.lower() == "true" for name, value in options.items())


def _declared(text: str | None) -> StructType | None:
    from pyspark.sql.types import StructType

    if text is None:
        return None
    found = StructType.fromDDL(text)
    return found if isinstance(found, StructType) else StructType().add("value", found)  # one type alone


def _types(schema: StructType | None) -> dict[str, DataType]:
    return {field.name.lower(): field.dataType for field in schema.fields} if schema is not None else {}


def _without(schema: StructType | None, names: set[str]) -> StructType | None:
    from pyspark.sql.types import StructType

    return StructType([one for one in schema.fields if one.name.lower() not in names]) if schema is not None else None


def _as_in_table(found: StructType, types: Mapping[str, DataType]) -> StructType:
    """The columns that were found, with the types that the table has them in."""
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [StructField(one.name, types.get(one.name.lower(), one.dataType), one.nullable) for one in found.fields]
    )


def _with_columns(frame: DataFrame, columns: Mapping[str, str], types: Mapping[str, DataType]) -> DataFrame:
    from pyspark.sql.functions import lit

    if not columns:
        return frame
    text: Any = "string"
    return frame.withColumns(
        {
            name: lit(None if value == NULL else value).cast(types.get(name.lower(), text))
            for name, value in columns.items()
        }
    )

"""How a batch is applied: what the `_config` folders on its way say, the nearest first.

- `load.json` or a `*.sql`, whichever is nearer, decides whether the batch is loaded or is queried by the statement.
- A load is told by all the `load.json` on the way, merged key by key.
- A query reads the batch as all the `external.json` on the way say, or, where there is none, as `load.json` does.
- Days of a topic (`source` below `topics/`) are Parquet and replace the partition that their path names, unless
  something else is said.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NoReturn

from catchment.bucket.contract import Bucket
from catchment.config.fields import meant
from catchment.config.tables import TableItem
from catchment.errors import Problem
from catchment.tables import documents, partition
from catchment.tables.documents import EXTERNAL, LOAD
from catchment.tables.levels import Level, Levels, start
from catchment.tables.names import Table
from catchment.tables.refusal import refusal
from catchment.tables.statement import script
from catchment.tables.work import BatchFailed

Evolution = Literal["fail", "add columns"]

TOPICS = "topics/"  # where the exports of the topics room lie
# A day may come to have no files: a backfill has found that its rows are of other types.
OF_TOPICS: documents.Document = {"format": "parquet", "write_disposition": "partition", "allow_zero_rows": True}
EXAMPLE = '{"format": "csv", "options": {"header": true}}'


class Disposition(StrEnum):
    """What a load does with the rows that are there."""

    APPEND = "append"  # they stay
    TRUNCATE = "truncate"  # they all go
    PARTITION = "partition"  # those of one partition go


@dataclass(frozen=True)
class Read:
    """How Spark reads the files of a batch."""

    format: str  # csv, json, parquet, avro, orc
    options: Mapping[str, str]  # of Spark's reader
    schema: str | None  # DDL; None: as Spark finds it


@dataclass(frozen=True)
class Load:
    """The rows of a batch go into the table as they are."""

    disposition: Disposition
    partition_by: tuple[str, ...]  # columns that a new table is divided by
    partition: Mapping[str, str]  # that is replaced: column → value; empty unless that is the disposition


@dataclass(frozen=True)
class Query:
    """A statement changes the table with what is in the view `batch`."""

    views: tuple[str, ...]  # statements, in order
    statement: str  # with {dest_dataset} and {dest_table} still in it, as in the views: `statement.fill` fills them
    file: str  # the key that it came from, for messages


@dataclass(frozen=True)
class Settings:
    """How one batch is applied."""

    read: Read
    do: Load | Query
    columns: Mapping[str, str]  # of the path, name → value; `partition.NULL` stands for null
    evolution: Evolution
    allow_zero_rows: bool
    used: tuple[str, ...]  # keys of the config objects that count, the farthest first


class Configs:
    """What the `_config` folders of one listing say. Any thread may ask. Each object is read once, when it is needed.

    Where the bucket cannot be read, or an object of the listing has gone, a BucketError says so: look again.
    """

    def __init__(self, bucket: Bucket, keys: Collection[str]) -> None:
        self._bucket, self._levels = bucket, Levels(keys)
        self._bodies: dict[str, bytes] = {}
        self._reading = threading.Lock()

    def ordered(self, table: Table, path: str, item: TableItem, *, base: str | None = None) -> bool:
        """Whether a batch waits for those before it: there is an ORDERME on its way, or its table says so.

        `base` is needed where a `naming` says which folders are batches.
        """
        return bool(item.order) or any(level.order for level in self._on_the_way(table, path, base, item))

    def settings(self, table: Table, path: str, base: str, item: TableItem) -> Settings:
        """How a batch is applied. BatchFailed that names the object and the place if it cannot be told."""
        levels = self._on_the_way(table, path, base, item)
        of_topic = f"{(item.source or '').strip('/')}/".startswith(TOPICS)
        at = next((at for at in reversed(range(len(levels))) if levels[at].load or levels[at].sql), None)
        if at is None and not of_topic:
            _nothing_said(table, levels)
        near = levels[at] if at is not None else None
        if near is not None and near.load and near.sql:
            raise BatchFailed(
                f"{near.load} says that the batch is loaded, and {' and '.join(near.sql)} that it is queried",
                hint=f"remove one; how a query reads the batch is said in {near.key(EXTERNAL)}",
            )
        sql = near.sql if near is not None else ()
        if not sql:
            _no_statement(levels, 0 if at is None else at)
        keys = _documents(levels, query=bool(sql))
        said = {**(OF_TOPICS if of_topic else {}), **documents.merge(self._document(key) for key in keys)}
        return Settings(
            read=_read(said, keys, sql),
            do=self._query(sql) if sql else _load(path, said, keys),
            columns=partition.columns_of(path),
            evolution=said.get("schema_evolution", item.schema_evolution or "fail"),
            allow_zero_rows=bool(said.get("allow_zero_rows", item.allow_zero_rows)),
            used=(*keys, *sql),
        )

    def _query(self, sql: Sequence[str]) -> Query:
        if len(sql) > 1:
            raise BatchFailed(
                f"there are {len(sql)} SQL files at one level: {', '.join(sql)}",
                hint="leave one there; it may have any number of temporary views before its statement",
            )
        (file,) = sql
        body = self._body(file)
        try:
            found = script(file, body.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            line = body.count(b"\n", 0, error.start) + 1
            raise refusal(file, [Problem(f"line {line}", "no UTF-8; save it as UTF-8")]) from None
        return Query(found.views, found.change, file)

    def _on_the_way(self, table: Table, path: str, base: str | None, item: TableItem) -> list[Level]:
        return self._levels.on_the_way(start(table, base, item.source), path)

    def _document(self, key: str) -> documents.Document:
        return documents.read(key, self._body(key))

    def _body(self, key: str) -> bytes:
        with self._reading:
            if key not in self._bodies:
                self._bodies[key] = self._bucket.read(key).body
            return self._bodies[key]


def _documents(levels: Sequence[Level], *, query: bool) -> list[str]:
    """The keys of those that count. A query takes `load.json` only where nothing was said for queries at all."""
    of_queries = [level.external for level in levels if level.external] if query else []
    return of_queries or [level.load for level in levels if level.load]


def _read(said: Mapping[str, Any], keys: Sequence[str], sql: Sequence[str]) -> Read:
    if "format" not in said:
        where = keys[-1] if keys else f"{sql[0].rpartition('/')[0]}/{EXTERNAL}"
        what = f"{where}: format: missing" if keys else f"no {EXTERNAL} says how the batch for {sql[0]} is read"
        raise BatchFailed(what, hint=f"write {where} as in {EXAMPLE}")
    return Read(said["format"], said.get("options", {}), said.get("schema"))


def _load(path: str, said: Mapping[str, Any], keys: Sequence[str]) -> Load:
    disposition = Disposition(said.get("write_disposition", Disposition.APPEND))
    by: tuple[str, ...] | None = said.get("partition_by")
    if disposition is Disposition.PARTITION:
        return Load(disposition, *partition.replaced(path, by))
    decorator = partition.decorator_of(path)
    if disposition is Disposition.TRUNCATE and decorator is not None:
        # To the reference this replaces one partition. Here it would empty the table, day after day.
        raise BatchFailed(
            f"the path {path} names the partition {decorator}, and truncate replaces the whole table",
            hint=f'write "write_disposition": "partition" into {keys[-1]}, or take ${decorator} out of the path',
        )
    return Load(disposition, by or (), {})


def _nothing_said(table: Table, levels: Sequence[Level]) -> NoReturn:
    """With the object to add, and those that were perhaps meant to be it."""
    _no_statement(levels, 0)
    at = next((level for level in levels if level.folder == table.prefix), levels[-1])
    near = [
        f"{level.key(name)} (did you mean {meaning}?)"
        for level in levels
        for name in level.others
        if (meaning := meant(name, (LOAD, EXTERNAL)))
    ]
    found = f"; there is {', '.join(near)}" if near else ""
    raise BatchFailed(
        f"no {LOAD} and no *.sql on the way to {levels[-1].folder} says how its batch is applied{found}",
        hint=f"put {at.key(LOAD)}, for example {EXAMPLE}",
    )


def _no_statement(levels: Sequence[Level], at: int) -> None:
    """A nearer `external.json` than what decides: it would count for nothing, and somebody put it there."""
    found = next((level for level in reversed(levels[at:]) if level.external), None)
    if found is not None:
        raise BatchFailed(
            f"{found.external} says how a query reads the batch, and there is no *.sql for it",
            hint=f"put {found.key('merge.sql')}, or rename it to {LOAD} if the batch is to be loaded as it is",
        )

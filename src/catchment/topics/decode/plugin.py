"""`module:callable`: a decoder of one's own.

    def orders(records: pa.Table, options: Mapping[str, str]) -> pa.Table: ...

It gets records (`records.py`, with headers) and gives one row for each, in the same order, under any names and types
that `arrow_kinds.py` knows. An optional column `_error` of text, null where all is well, makes dead letters. How many
records it gets at a time is not for it to rely on: a row must not depend on the rows around it.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from catchment.errors import ExportStopped
from catchment.topics.decode.arrays import struct, whole
from catchment.topics.decode.arrow_kinds import Unknown, columns_of
from catchment.topics.decode.columns import Parsed
from catchment.topics.decode.letters import others
from catchment.topics.decode.modules import Plugin, said
from catchment.topics.decode.schema import Kind, Schema
from catchment.topics.records import HEADERS, RECORDS_WITH_HEADERS

ERROR = "_error"
_NONE_WRITTEN = "nothing of the range was written"


class PluginParser:
    """A `Parser`. All that the callable does wrong is an ExportStopped that names it."""

    def __init__(self, plugin: Plugin, options: Mapping[str, str]) -> None:
        self._plugin, self._options = plugin, dict(options)

    def parse(self, records: pa.Table) -> tuple[list[Parsed], dict[int, str]]:
        given = _given(records)
        found = self._called(given)
        if isinstance(found, pa.RecordBatch):
            found = pa.Table.from_batches([found])
        if not isinstance(found, pa.Table):
            raise self._wrong(f"gave a {type(found).__name__}", "let it give a pyarrow.Table or RecordBatch")
        if found.num_rows != given.num_rows:
            raise self._wrong(
                f"gave {found.num_rows} rows for {given.num_rows} messages",
                f"let it give one row for each, with a reason in {ERROR} where there is none",
            )
        self._named_once(found.column_names)
        dead = self._errors(found)
        if ERROR in found.column_names:
            found = found.drop_columns([ERROR])
        return self._shaped(found, dead), dead

    def _called(self, given: pa.Table) -> object:
        try:
            return self._plugin.call(given, dict(self._options))
        except (Exception, SystemExit) as error:
            span = f"{given['offset'][0]} to {given['offset'][-1]}" if given.num_rows else "none"
            raise self._wrong(
                f"failed on offsets {span}: {said(error, self._plugin.file)}",
                "correct it, in a new generation, or let it say in _error which message it cannot read",
            ) from error

    def _errors(self, found: pa.Table) -> dict[int, str]:
        if ERROR not in found.column_names:
            return {}
        try:
            column = whole(found[ERROR]).cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise self._wrong(f"gave {ERROR} as {found.schema.field(ERROR).type}", "let it be text") from None
        rows = pc.indices_nonzero(pc.is_valid(column))
        return dict(zip(rows.to_pylist(), column.take(rows).to_pylist(), strict=True))

    def _shaped(self, found: pa.Table, dead: Mapping[int, str]) -> list[Parsed]:
        rows = pa.array(others(found.num_rows, dead))
        try:
            kind, values = _columns(found, rows if dead else None)
        except Unknown as error:
            raise self._wrong(f"gave a column that cannot be used: {error}", "change the column") from None
        if why := Schema(kind.fields).misnamed():
            raise self._wrong(f"gave {why}", "rename the column")
        return [Parsed(rows, values, kind)]

    def _named_once(self, names: list[str]) -> None:
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise self._wrong(f"gave two columns named {twice!r}", "rename one of them")

    def _wrong(self, why: str, hint: str) -> ExportStopped:
        return ExportStopped(f"the decoder {self._plugin.name} {why}", hint=f"{hint}; {_NONE_WRITTEN}")


def _given(records: pa.Table) -> pa.Table:
    """The records as documented."""
    if "headers" not in records.column_names:
        records = records.append_column("headers", pa.nulls(records.num_rows, HEADERS))
    return records.select(RECORDS_WITH_HEADERS.names).cast(RECORDS_WITH_HEADERS).replace_schema_metadata(None)


def _columns(table: pa.Table, rows: pa.Array | None) -> tuple[Kind, pa.StructArray]:
    """These rows (None: all) as our columns. What is in the others counts for nothing. Unknown if there is none."""
    if rows is None:
        return columns_of(_struct(table))
    try:
        return columns_of(_struct(table.take(rows)))
    except pa.ArrowNotImplementedError:  # some types of Arrow's have no `take`, which what they become has
        kind, values = columns_of(_struct(table))
        return kind, values.take(rows)


def _struct(table: pa.Table) -> pa.StructArray:
    return struct([whole(column) for column in table.columns], table.column_names, table.num_rows)

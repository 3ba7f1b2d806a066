"""Decoding for whatever reads messages into columns: growing the schema, making values fit, dead letters, order.

A parser knows one format. It says of each record either which columns it has, together with all other records of the
same shape, or why it is a dead letter. What follows is the same for all formats:

- A field that is new is added to the schema as the shape has it, in the order of the first records of each shape.
- A field that is recorded or declared keeps its kind. Values that fit are cast (`cast.py`); a record with one that
  does not is a dead letter.
- A shape whose names cannot be columns, or that brings the type beyond MAX_FIELDS, makes dead letters of its records.

All of this depends on a record, its shape and the recorded schema alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from catchment.topics.decode.arrays import struct_of, whole
from catchment.topics.decode.cast import Casting
from catchment.topics.decode.decoder import Decoded, Typed
from catchment.topics.decode.letters import letters, others
from catchment.topics.decode.read import Reader
from catchment.topics.decode.schema import MAX_FIELDS, TOO_MANY, Kind, Schema, SchemaClash
from catchment.topics.decode.schemas import Schemas
from catchment.topics.decode.widen import finished, rows_of
from catchment.topics.split import texts_of

_PARSED = "__parsed_"  # begins the names of columns with what `types` has read already, one for each shape
_MOST_SHAPES = 4  # that are handed on so; records of more shapes are read again


@dataclass(frozen=True)
class Parsed:
    """Records that were read with one shape."""

    rows: pa.Array  # int64, ascending: the numbers of these records within the table that was parsed
    values: pa.StructArray  # one for each of them, in that order, never null; of the type `kind.arrow()`
    kind: Kind  # a STRUCT: what the fields are


class Parser(Protocol):
    """Reads messages of one format. Not for two threads at a time."""

    def parse(self, records: pa.Table) -> tuple[list[Parsed], dict[int, str]]:
        """What the records hold, each in one Parsed, and why the others are dead letters, by their number.

        What is said of a record does not depend on the others. May raise ExportStopped or RegistryError.
        """


class ColumnDecoder:
    """A `Decoder` over a parser."""

    def __init__(self, parser: Parser, schemas: Schemas) -> None:
        self._parser, self._schemas = parser, schemas
        self._reader = Reader()
        self._shapes: dict[Kind, str] = {}  # the columns of those that were handed on

    def types(self, records: pa.Table, field: str) -> Typed:
        """What this field says in each record, `a.b` for a field of a field: text as it is, numbers as in JSON."""
        records = records.combine_chunks()
        parsed, dead = self._parser.parse(records)
        parsed = _by_shape(parsed)
        texts = [texts_of(pa.Table.from_struct_array(one.values), field) for one in parsed]
        found = _in_order(parsed, texts) if parsed else pa.array([], pa.string())
        lost = letters(records, dead)
        records = self._with(records, parsed)
        if dead:
            records = records.take(pa.array(others(records.num_rows, dead)))
        return Typed(records, found, lost)

    def decode(self, type_name: str, records: pa.Table, keep: Sequence[str] = ()) -> Decoded:
        """Rows of one type. New fields are grown in the schemas; a record that does not fit is a dead letter."""
        records = records.combine_chunks()
        parsed, dead = self._parsed(records)
        parsed = self._grown(type_name, parsed, dead)
        want = self._schemas.of(type_name).kind
        present = {name for one in parsed for name in one.values.type.names}
        columns = [one for one in want.arrow() if one.name in present]
        cast = [self._cast(one, want, pa.struct(columns), dead) for one in parsed]
        left = [one for one in cast if len(one.rows)]
        values = _in_order(left, [one.values for one in left]) if left else struct_of({}, 0)
        lost = letters(records, dead)
        if dead:
            records = records.take(pa.array(others(records.num_rows, dead)))
        return Decoded(rows_of(values, records, keep), lost)

    def finish(self, type_name: str, table: pa.Table) -> pa.Table:
        """A table decoded earlier, with the columns of the final schema; then Kafka's own and what was kept."""
        return finished(table, self._schemas.of(type_name))

    def _with(self, records: pa.Table, parsed: list[Parsed]) -> pa.Table:
        """The records together with what was read of them, null where it is of another shape."""
        if len(self._shapes.keys() | {one.kind for one in parsed}) > _MOST_SHAPES:
            return records
        for one in parsed:
            column = self._shapes.setdefault(one.kind, f"{_PARSED}{len(self._shapes)}")
            values: pa.Array = one.values
            if len(values) != records.num_rows:
                at = np.full(records.num_rows, -1)
                at[one.rows.to_numpy()] = np.arange(len(values))
                values = values.take(pa.array(at, mask=at < 0))
            records = records.append_column(column, values)
        return records

    def _parsed(self, records: pa.Table) -> tuple[list[Parsed], dict[int, str]]:
        """What is known of the records already, and of the rest what the parser says."""
        found = []
        known = np.zeros(records.num_rows, dtype=bool)
        for kind, column in self._shapes.items():
            if column in records.column_names:
                values = whole(records[column])
                valid = values.is_valid().to_numpy(zero_copy_only=False)
                known |= valid
                rows = pa.array(np.flatnonzero(valid))
                found.append(Parsed(rows, values if len(rows) == len(values) else values.take(rows), kind))
        if known.all():
            return [one for one in found if len(one.rows)], {}
        plain = records.select([name for name in records.column_names if not name.startswith(_PARSED)])
        rest = np.flatnonzero(~known)
        if len(rest) == len(known):
            return self._parser.parse(plain)
        parsed, dead = self._parser.parse(plain.take(pa.array(rest)))
        found += [Parsed(pa.array(rest[one.rows.to_numpy()]), one.values, one.kind) for one in parsed]
        return [one for one in found if len(one.rows)], {int(rest[at]): why for at, why in dead.items()}

    def _grown(self, type_name: str, parsed: list[Parsed], dead: dict[int, str]) -> list[Parsed]:
        """Those whose shape is in the schema now, in the order of their first records. The others are dead."""
        left = []
        for one in sorted((one for one in parsed if len(one.rows)), key=lambda one: one.rows[0].as_py()):
            if why := self._grow(type_name, Schema(one.kind.fields)):
                dead |= {at: why for at in one.rows.to_pylist()}
            else:
                left.append(one)
        return left

    def _grow(self, type_name: str, found: Schema) -> str | None:
        if why := found.misnamed():
            return why
        try:
            grown = self._schemas.of(type_name).keeping(found)
        except SchemaClash as clash:
            return f"{clash.path}: differs only in case from the field {clash.theirs}; rename one of them"
        if grown.count() > MAX_FIELDS:
            return TOO_MANY
        self._schemas.grow(type_name, grown)
        return None

    def _cast(self, one: Parsed, want: Kind, whole_type: pa.StructType, dead: dict[int, str]) -> Parsed:
        casting = Casting(self._reader)
        found = casting.columns(one.values, one.kind, want)
        columns = {
            field.name: found[field.name] if field.name in found else pa.nulls(len(one.rows), field.type)
            for field in whole_type
        }
        values, rows = struct_of(columns, len(one.rows)), one.rows
        if casting.misfits:
            numbers = rows.to_numpy()
            dead |= {int(numbers[at]): why for at, why in casting.misfits.items()}
            good = pa.array(others(len(rows), casting.misfits))
            values, rows = values.take(good), rows.take(good)
        return Parsed(rows, values, want)


def _by_shape(parsed: list[Parsed]) -> list[Parsed]:
    """One for each shape: two schemas of a registry may differ in nothing that is a column."""
    shapes: dict[Kind, list[Parsed]] = {}
    for one in parsed:
        shapes.setdefault(one.kind, []).append(one)
    return [
        some[0]
        if len(some) == 1
        else Parsed(_in_order(some, [one.rows for one in some]), _in_order(some, [one.values for one in some]), kind)
        for kind, some in shapes.items()
    ]


def _in_order(parsed: Sequence[Parsed], each: Sequence[pa.Array]) -> pa.Array:
    """What belongs to each of the rows, together, in the order of the rows."""
    if len(each) == 1:
        return each[0]
    rows = np.concatenate([one.rows.to_numpy() for one in parsed])
    return pa.concat_arrays(list(each)).take(pa.array(np.argsort(rows, kind="stable")))

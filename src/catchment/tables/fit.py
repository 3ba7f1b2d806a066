"""Whether rows fit into a table: its columns, and their types. Pure, over Spark's schemas.

a column that the table does not have     an error, or added, as the config says
one that the batch does not have          null, as Delta does it
a number that fits into a wider one       widened
any other type                            an error
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from catchment.tables.work import BatchFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


@dataclass(frozen=True)
class Difference:
    """One column that is not as in the table."""

    column: str  # with the way to it: address.street
    found: DataType
    wanted: DataType | None  # None: the table has no such column

    def __str__(self) -> str:
        if self.wanted is None:
            return f"{self.column} ({self.found.simpleString()})"
        return f"{self.column} ({self.found.simpleString()} instead of {self.wanted.simpleString()})"


def differences(found: StructType, table: StructType, at: str = "") -> Iterator[Difference]:
    """Columns that are new or of another type, by name without regard to case."""
    from pyspark.sql.types import StructType

    known = {field.name.lower(): field.dataType for field in table.fields}
    for field in found.fields:
        name, wanted = f"{at}{field.name}", known.get(field.name.lower())
        if wanted is None:
            yield Difference(name, field.dataType, None)
        elif isinstance(wanted, StructType) and isinstance(field.dataType, StructType):
            yield from differences(field.dataType, wanted, f"{name}.")
        elif wanted.simpleString().lower() != field.dataType.simpleString().lower():
            yield Difference(name, field.dataType, wanted)


def widens(found: DataType, wanted: DataType) -> bool:
    """Whether every value of one type is one of the other."""
    from pyspark.sql.types import DecimalType

    one, other = found.simpleString(), wanted.simpleString()
    if one in _WHOLE and other in _WHOLE:
        return _WHOLE.index(one) <= _WHOLE.index(other)
    if isinstance(wanted, DecimalType):
        whole = wanted.precision - wanted.scale
        if isinstance(found, DecimalType):
            return found.scale <= wanted.scale and found.precision - found.scale <= whole
        return one in _DIGITS and _DIGITS[one] <= whole
    return (one, other) in (("float", "double"), ("int", "double"), ("smallint", "double"), ("void", other))


def fitted(frame: DataFrame, table: StructType, *, add: bool) -> tuple[DataFrame, bool]:
    """The rows as the table takes them, and whether it gets new columns. BatchFailed that names what does not fit."""
    found = list(differences(frame.schema, table))
    wide = [one for one in found if one.wanted is not None and "." not in one.column and widens(one.found, one.wanted)]
    new = [one for one in found if one.wanted is None]
    other = [one for one in found if one.wanted is not None and one not in wide]
    if other:
        raise BatchFailed(
            f"{_named(other)} of another type than the table's",
            hint="say in `schema` how the batch is to be read, or change the table's column",
        )
    if new and not add:
        raise BatchFailed(
            f"the table has no {_named(new, verb=False)}",
            hint='leave them out, or let the table grow with "schema_evolution": "add columns"',
        )
    if wide:
        frame = frame.withColumns({one.column: frame[f"`{one.column}`"].cast(one.wanted) for one in wide if one.wanted})
    return frame, bool(new)


def _named(found: Sequence[Difference], *, verb: bool = True) -> str:
    noun = "column" if len(found) == 1 else "columns"
    tail = (" is" if len(found) == 1 else " are") if verb else ""
    return f"{noun} {', '.join(map(str, found))}{tail}"

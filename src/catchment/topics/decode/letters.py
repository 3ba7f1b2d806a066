"""Why records are dead letters, and the records as such. Shared by all decoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.topics.decode.wire import texts
from catchment.topics.records import DEAD

EMPTY = "the message has no value"
NOT_TEXT = "not valid UTF-8"


class Reasons:
    """Why rows are dead letters, by their number. The first reason stays."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.found: dict[int, str] = {}

    def where(self, mask: pa.Array, reason: str) -> None:
        """The same reason for all these rows."""
        if pc.any(mask).as_py():
            for at in np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False)):
                self.found.setdefault(int(at), reason)

    def without_value(self, values: pa.BinaryArray) -> None:
        """Null and nothing are no message."""
        self.where(pc.equal(pc.fill_null(pc.binary_length(values), 0), 0), EMPTY)

    def texts(self, values: pa.BinaryArray) -> pa.StringArray:
        """The values as text: null where there is none, or where it is not UTF-8, which is noted."""
        found, bad = texts(values)
        self.where(pa.array(bad), NOT_TEXT)
        return found

    def good(self) -> pa.Array:
        """The numbers of the others, ascending."""
        return pa.array(others(self.rows, self.found))


def others(rows: int, dead: Mapping[int, str]) -> np.ndarray[Any, Any]:
    """The numbers of rows that are not dead, ascending."""
    return np.delete(np.arange(rows), sorted(dead)) if dead else np.arange(rows)


def letters(records: pa.Table, reasons: Mapping[int, str]) -> pa.Table:
    """Those of the records that have a reason, in their order."""
    if not reasons:
        return DEAD.empty_table()
    at = sorted(reasons)
    lost = records.select(DEAD.names[:-1]).take(at)
    columns = [lost["offset"], lost["timestamp"], lost["key"], lost["value"].cast(pa.binary())]
    return pa.table([*columns, pa.array([reasons[one] for one in at], pa.string())], schema=DEAD)

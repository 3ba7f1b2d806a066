"""Messages that say what JSON can say in other bytes: written as JSON, they are decoded as JSON is.

So schemas grow, values fit and records die by the same rules, and a topic may change from one format to the other. A
dead letter has the bytes that came from Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from catchment.topics.decode.arrays import whole
from catchment.topics.decode.decoder import Decoded, Typed
from catchment.topics.decode.json import JsonDecoder
from catchment.topics.decode.letters import letters, others
from catchment.topics.decode.schemas import Schemas

_JSON = "__json"  # on records that `types` gave: what their values say, as JSON


class Translation(Protocol):
    """Writes messages of one format as JSON."""

    def json(self, values: pa.BinaryArray) -> tuple[pa.BinaryArray, dict[int, str]]:
        """The JSON texts of those values that have one, in their order, and why the others have none, by number.

        What is said of a value does not depend on the others. May raise ExportStopped or RegistryError.
        """


class TranslatedDecoder:
    """A `Decoder` for such messages."""

    def __init__(self, translation: Translation, schemas: Schemas) -> None:
        self._translation = translation
        self._decoder = JsonDecoder(schemas)

    def types(self, records: pa.Table, field: str) -> Typed:
        """What this field says in each record, `a.b` for a field of a field: text as it is, numbers as in JSON."""
        good, dead = self._translated(records)
        typed = self._decoder.types(_swapped(good), field)
        return Typed(_swapped(typed.records), typed.types, _both(dead, _original(typed.dead, good)))

    def decode(self, type_name: str, records: pa.Table, keep: Sequence[str] = ()) -> Decoded:
        """Rows of one type. New fields are grown in the schemas; a record that does not fit is a dead letter."""
        good, dead = self._translated(records)
        decoded = self._decoder.decode(type_name, _swapped(good), keep)
        return Decoded(decoded.table, _both(dead, _original(decoded.dead, good)))

    def finish(self, type_name: str, table: pa.Table) -> pa.Table:
        """A table decoded earlier, with the columns of the final schema; then Kafka's own and what was kept."""
        return self._decoder.finish(type_name, table)

    def _translated(self, records: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The records with their JSON, which may be there already, and those that have none as dead letters."""
        records = records.combine_chunks()
        if _JSON in records.column_names:
            return records, letters(records, {})
        texts, reasons = self._translation.json(whole(records["value"]))
        good = records.take(pa.array(others(records.num_rows, reasons))) if reasons else records
        return good.append_column(_JSON, texts), letters(records, reasons)


def _swapped(records: pa.Table) -> pa.Table:
    """The same with the JSON in the place of the value, and the other way round."""
    names = [{"value": _JSON, _JSON: "value"}.get(name, name) for name in records.column_names]
    return records.rename_columns(names)


def _original(dead: pa.Table, records: pa.Table) -> pa.Table:
    """Dead letters with what their values were."""
    if not dead.num_rows:
        return dead
    at = np.searchsorted(records["offset"].to_numpy(), dead["offset"].to_numpy())
    return dead.set_column(dead.schema.get_field_index("value"), "value", records["value"].take(pa.array(at)))


def _both(some: pa.Table, more: pa.Table) -> pa.Table:
    """Dead letters together, in the order of the records."""
    if not some.num_rows or not more.num_rows:
        return some if some.num_rows else more
    return pa.concat_tables([some, more]).sort_by("offset")

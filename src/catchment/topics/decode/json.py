"""Messages that are JSON objects become rows, many at a time, and those that cannot become dead letters.

All of them are read in one go (`read.py`). If one does not fit, or brings a new field, they are surveyed (`chunk.py`):
the schema grows, the dead letters are taken out, and the rest is read in one go.

What becomes of a message depends on the message and on the schema, and never on its neighbours:

- Of two fields with the same name in one object, the first counts.
- NaN, Infinity and -Infinity are taken as numbers, though JSON does not have them.
- An integer beyond 64 bits is a DOUBLE, if that is exactly the same number.
- Fractions of a second beyond microseconds are cut off. Times that name no zone are in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.topics.decode.arrays import whole
from catchment.topics.decode.chunk import MALFORMED, Chunk
from catchment.topics.decode.decoder import Decoded, Typed
from catchment.topics.decode.letters import Reasons, letters, others
from catchment.topics.decode.read import How, Reader
from catchment.topics.decode.schemas import Schemas
from catchment.topics.decode.widen import finished, rows_of
from catchment.topics.records import DEAD

MAX_DEPTH = 100  # objects and arrays inside each other
_LOOKED_AT = {b"catchment": b"each value is a JSON object"}  # on tables whose values `types` has checked


class JsonDecoder:
    """Decodes for one task. Not for two threads at a time."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._reader = Reader()
        self._how: dict[str, How] = {}

    def types(self, records: pa.Table, field: str) -> Typed:
        """What this field says in each record, `a.b` for a field of a field: text as it is, numbers as written."""
        path = "$" + "".join(f'."{part}"' for part in re.sub(r'(["\\])', r"\\\1", field).split("."))
        good, dead, found = self._sound(records, path)
        odd = pc.or_kleene(pc.starts_with(found, "{"), pc.starts_with(found, "["))
        if pc.any(odd).as_py():  # an object, or a text that looks like one
            nested = self._reader.column("json_type(text, ?) IN ('OBJECT', 'ARRAY')", _texts(good), path)
            found = pc.if_else(pc.fill_null(nested, False), pa.scalar(None, pa.string()), found)
        return Typed(good, found, dead)

    def decode(self, type_name: str, records: pa.Table, keep: Sequence[str] = ()) -> Decoded:
        """Rows of one type. New fields are grown in the schemas; a record that does not fit is a dead letter."""
        good, dead = records, DEAD.empty_table()
        if not (records.schema.metadata or {}).items() >= _LOOKED_AT.items():
            good, dead, _ = self._sound(records)
        chunk = Chunk(self._reader, self._schemas.of(type_name), _texts(good), self._how.get(type_name, How()))
        read = chunk.read()
        self._how[type_name] = chunk.how
        self._schemas.grow(type_name, chunk.schema)
        if chunk.dead:
            lost = letters(good, chunk.dead)
            dead = pa.concat_tables([dead, lost]).sort_by("offset") if dead.num_rows else lost
            good = good.take(others(good.num_rows, chunk.dead))
        return Decoded(rows_of(read, good, keep), dead)

    def finish(self, type_name: str, table: pa.Table) -> pa.Table:
        """A table decoded earlier, with the columns of the final schema; then Kafka's own and what was kept."""
        return finished(table, self._schemas.of(type_name))

    def _sound(self, records: pa.Table, path: str | None = None) -> tuple[pa.Table, pa.Table, pa.Array]:
        """The records whose values are JSON objects, the others, and what is at this path in the first."""
        records = records.combine_chunks()
        values = whole(records["value"])
        reasons = Reasons(len(values))
        reasons.without_value(values)
        texts = reasons.texts(values)
        found = self._parsed(texts, reasons, path)
        texts = _emptied(texts, reasons)
        bare = texts if pc.all(pc.starts_with(texts, "{")).as_py() else pc.utf8_ltrim_whitespace(texts)
        reasons.where(pc.invert(pc.starts_with(bare, "{")), "not a JSON object")
        _too_deep(_emptied(texts, reasons), reasons)
        good = records.replace_schema_metadata(_LOOKED_AT)
        if not reasons.found:
            return good, DEAD.empty_table(), found
        rest = reasons.good()
        return good.take(rest), letters(records, reasons.found), found.take(rest)

    def _parsed(self, texts: pa.StringArray, reasons: Reasons, path: str | None) -> pa.Array:
        """What is at the path; on the way it is found out which texts are not JSON."""
        if path is not None:
            try:
                return self._reader.column("json_extract_string(text, ?)", _emptied(texts, reasons), path)
            except duckdb.InvalidInputException:
                pass
        valid = self._reader.column("json_valid(text)", _emptied(texts, reasons))
        reasons.where(pc.invert(valid), MALFORMED)
        return valid if path is None else self._parsed(texts, reasons, path)


def _emptied(texts: pa.StringArray, reasons: Reasons) -> pa.StringArray:
    """The texts, with an empty object in place of those that are dead already."""
    if not reasons.found:
        return texts
    mask = np.zeros(reasons.rows, dtype=bool)
    mask[list(reasons.found)] = True
    return pc.if_else(pa.array(mask), "{}", texts)


def _too_deep(texts: pa.StringArray, reasons: Reasons) -> None:
    """Objects and arrays deeper than MAX_DEPTH: no reader has to follow them."""
    long = pc.greater(pc.binary_length(texts), 2 * MAX_DEPTH)
    if not pc.any(long).as_py():
        return
    opened = pc.add(pc.count_substring(texts, "{"), pc.count_substring(texts, "["))
    for at in np.flatnonzero(pc.greater(opened, MAX_DEPTH).to_numpy(zero_copy_only=False)):
        if _depth(texts[int(at)].as_py()) > MAX_DEPTH:
            reasons.found.setdefault(int(at), f"nested more than {MAX_DEPTH} levels deep")


_TEXTS = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)  # possessive: what is matched is not kept track of


def _depth(text: str) -> int:
    marks = np.frombuffer(_TEXTS.sub(b"", text.encode()), dtype=np.uint8)
    opened = ((marks == ord("{")) | (marks == ord("["))).astype(np.int32)
    closed = ((marks == ord("}")) | (marks == ord("]"))).astype(np.int32)
    return int(np.cumsum(opened - closed).max(initial=0))


def _texts(records: pa.Table) -> pa.StringArray:
    """The values, which were looked at: nothing is copied, nor checked again."""
    values = whole(records["value"])
    return pa.StringArray.from_buffers(len(values), *values.buffers()[1:], None, 0, values.offset)

"""Rows that a decoder makes of messages: grouped by type first, so that each type is decoded by its own schema.

The raw records of a type are held back until there are many of them. So a frequent type is decoded in large pieces, and
six hundred rare ones are decoded once each.
"""

from __future__ import annotations

import platform

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.bucket.contract import Bucket
from catchment.bucket.swap import Document
from catchment.errors import ExportStopped
from catchment.topics.decode.decoder import decoder_of
from catchment.topics.decode.modules import find, is_plugin
from catchment.topics.decode.schemas import SchemaMoved, Schemas
from catchment.topics.definition import digest, fingerprint, with_schema
from catchment.topics.files.format import file_format
from catchment.topics.filter import Condition
from catchment.topics.records import DEAD, OFFSET
from catchment.topics.split import RECORD_HEADERS, RECORD_KEY, Splitter
from catchment.topics.work import Work
from catchment.topics.write.heaps import Heaps
from catchment.topics.write.rows import Unwritable, fit
from catchment.topics.write.spool import Run, runs
from catchment.topics.write.tally import Watch

PIECE = 8 << 20  # bytes of raw records that are decoded in one go
MOST_TYPES = 10_000  # in one range
# A worker that is used again by the same process knows the schemas that it read before. They only grow, so an old one
# costs a swap at most.
_KNOWN: dict[tuple[str, str, str], dict[str, Document]] = {}


class Decoded:
    """What becomes of the records of a decoded export."""

    def __init__(self, work: Work, bucket: Bucket, heaps: Heaps, watch: Watch, memory: int) -> None:
        export = work.export
        assert export.decode is not None
        _same_code(work)
        self._work, self._heaps, self._watch, self._memory = work, heaps, watch, memory
        self._splitter = Splitter(export.split)
        self._condition = Condition(export.filter) if export.filter else None
        known = _KNOWN.setdefault((work.owner, bucket.name, work.place.prefix), {}) if work.owner else {}
        self._schemas = Schemas(bucket, work.place, export.decode.schemas, export.generation, known=known)
        self._decoder = decoder_of(export.decode, self._schemas)
        self._held: dict[str, list[pa.Table]] = {}
        self._sizes: dict[str, int] = {}
        self._keep = [name for name, needed in _KEPT.items() if getattr(self._splitter, needed)]
        self._format = file_format(export.format)

    def take(self, records: pa.Table) -> None:
        records, types = self._typed(records)
        coded = types.dictionary_encode()
        order, found = runs(coded.indices)
        with self._watch("types"):
            for run in found:
                # A copy for each type: a slice would hold the whole batch as long as its rarest type is held back.
                mine = records if order is None and len(found) == 1 else records.take(_rows(order, run))
                type_name = coded.dictionary[run.code].as_py()
                if why := self._splitter.unnamable(type_name):
                    self._heaps.bury(mine, pa.repeat(pa.scalar(why), mine.num_rows))
                else:
                    self._hold(type_name, mine)
        for type_name in [name for name, size in self._sizes.items() if size >= PIECE]:
            self._decode(type_name)
        self._make_room()

    def _make_room(self) -> None:
        """Decode the largest ones first, until what is held back leaves room for what is to come."""
        held = sum(self._sizes.values())
        if held <= self._memory // 2:
            return
        for type_name in sorted(self._sizes, key=lambda name: (-self._sizes[name], name)):
            if held <= self._memory // 4:
                return
            held -= self._sizes[type_name]
            self._decode(type_name)

    def end(self) -> None:
        for type_name in list(self._held):
            self._decode(type_name)

    def settle(self) -> None:
        try:
            # Types without a row are left out: their names may be what nobody would call a type.
            self._schemas.settle(self._heaps.types())
        except SchemaMoved as moved:
            raise Unwritable(moved.message, hint=moved.hint, again=True) from None

    def finish(self, type_name: str, table: pa.Table) -> pa.Table:
        return self._decoder.finish(type_name, table) if self._format.typed else table

    def fingerprint(self, type_name: str) -> str:
        # With its type: two of them (the texts 1 and 1.0) may share a folder, and must not share a name.
        return with_schema(self._work.fingerprint, [type_name, self._schemas.of(type_name).plain()])

    def dead_fingerprint(self) -> str:
        return digest([self._work.fingerprint, sorted(self.fingerprint(name) for name in self._sizes)])

    def _typed(self, records: pa.Table) -> tuple[pa.Table, pa.Array]:
        """The records that have a type, and it. Those that cannot have one are dead letters."""
        with self._watch("types"):
            if self._splitter.type_split is None:
                return records, pa.repeat(pa.scalar(""), records.num_rows)
            name, split = self._splitter.type_split
            if split.field is None:
                types = self._splitter.type_values(records)
            else:
                try:
                    typed = self._decoder.types(records, split.field)
                except ExportStopped as error:
                    raise Unwritable(error.message, hint=error.hint) from None
                records, types = typed.records, typed.types
                if typed.dead.num_rows:
                    self._bury(typed.dead)
            missing = pc.or_kleene(pc.is_null(types), pc.equal(types, ""))
            if not pc.any(missing).as_py():
                return records, types
            if split.default is not None:
                return records, pc.if_else(missing, split.default, types)
            where = (
                "field " + repr(split.field) if split.field else "key" if split.key else "header " + repr(split.header)
            )
            lost = records.filter(missing)
            self._heaps.bury(lost, pa.repeat(pa.scalar(f"{name}: no {where}"), lost.num_rows))
            there = pc.invert(missing)
            return records.filter(there), types.filter(there)

    def _hold(self, type_name: str, records: pa.Table) -> None:
        if type_name not in self._sizes and len(self._sizes) >= MOST_TYPES:
            raise Unwritable(
                f"there are more than {MOST_TYPES:,} types in one range",
                hint="split by a field that has fewer values, in a new generation",
            )
        self._held.setdefault(type_name, []).append(records)
        self._sizes[type_name] = self._sizes.get(type_name, 0) + records.nbytes

    def _decode(self, type_name: str) -> None:
        pieces = self._held.pop(type_name, None)
        self._sizes[type_name] = 0
        if not pieces:
            return
        # A decoder may have added other columns to each: what it saw in them.
        records = pa.concat_tables(pieces, promote_options="default").combine_chunks()
        try:
            with self._watch("decode"):
                decoded = self._decoder.decode(type_name, records, self._keep)
            if decoded.dead.num_rows:
                self._bury(decoded.dead)
            rows = decoded.table
            if self._condition is not None:
                with self._watch("filter"):
                    rows = self._condition.keep(rows)
                self._heaps.filtered += decoded.table.num_rows - rows.num_rows
        except ExportStopped as error:
            raise Unwritable(error.message, hint=error.hint) from None
        if not self._format.typed:
            held = fit(_of_rows(records, rows), self._format, self._heaps)
            if held.num_rows < rows.num_rows:
                rows = rows.take(np.searchsorted(rows[OFFSET].to_numpy(), held["offset"].to_numpy()))
        with self._watch("split"):
            folders = self._splitter.folders(rows)
        if folders.bad.num_rows:
            self._heaps.bury(_of_rows(records, rows.take(folders.bad["row"])), folders.bad["reason"])
        if self._format.typed:
            drop = [name for name in (RECORD_KEY, RECORD_HEADERS) if name in rows.column_names]
            kept = rows.drop_columns(drop) if drop else rows
        else:  # the message as it was; what was decoded of it has said where it goes
            kept = self._format.keep(held)
        self._heaps.add(type_name, kept, rows[OFFSET], folders)

    def _bury(self, dead: pa.Table) -> None:
        self._heaps.bury(dead.select(DEAD.names[:-1]), dead["reason"])


def _of_rows(records: pa.Table, rows: pa.Table) -> pa.Table:
    """The records that these rows were made of."""
    if rows.num_rows == records.num_rows:
        return records
    return records.take(np.searchsorted(records["offset"].to_numpy(), rows[OFFSET].to_numpy()))


def _same_code(work: Work) -> None:
    """ExportStopped if the export's own decoder is another one here than where the export was started."""
    assert work.export.decode is not None
    name = work.export.decode.name
    if is_plugin(name) and fingerprint(work.export) != work.fingerprint:
        where = f"{find(name).file} on {platform.node()}"
        raise ExportStopped(
            f"{work}: the code of {name} in {where} is not what the export was started with",
            hint="remove the old copy from the workers, or restart the export; nothing was written",
        )


def _rows(order: pa.Array | None, run: Run) -> pa.Array:
    """Which rows a run is made of."""
    return pa.array(np.arange(run.start, run.start + run.rows)) if order is None else order.slice(run.start, run.rows)


_KEPT = {"key": "needs_key", "headers": "needs_headers"}

"""The rows of a range by type and folder, and what its manifest will say of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from catchment.topics.records import REASON
from catchment.topics.split import Folders
from catchment.topics.write.bounds import Bounds
from catchment.topics.write.dead import DeadLetters
from catchment.topics.write.spool import Heap, Spool, runs
from catchment.topics.write.tally import Watch


class Heaps:
    """Rows by (type, folder) and dead letters, on disk where they are too many."""

    def __init__(self, scratch: Path, memory: int, watch: Watch, letters: pa.Schema) -> None:
        """letters: the columns of dead letters, `records.DEAD` or a backup's."""
        self._spool: Spool[tuple[str, str]] = Spool(scratch / "rows", memory)
        self._bounds: dict[tuple[str, str], Bounds] = {}
        self._watch = watch
        self.dead = DeadLetters(scratch / "dead", memory // 4, letters)
        self.written = 0
        self.filtered = 0

    def add(self, type_name: str, rows: pa.Table, offsets: pa.ChunkedArray, folders: Folders) -> None:
        """Rows of one type, in the order of their offsets. Those that have no folder are left out."""
        with self._watch("split"):
            order, found = runs(folders.codes)
            times = folders.times
            if order is not None:
                rows, offsets = rows.take(order), offsets.take(order)
                times = None if times is None else times.take(order)
            for run in found:
                key = (type_name, folders.names[run.code])
                self._spool.add(key, rows.slice(run.start, run.rows))
                first, last = offsets[run.start].as_py(), offsets[run.start + run.rows - 1].as_py()
                bounds = self._bounds.setdefault(key, Bounds(first, last))
                bounds.widen(first, last, None if times is None else times.slice(run.start, run.rows))
                self.written += run.rows
        with self._watch("spill"):
            self._spool.spill_if_over()

    def bury(self, records: pa.Table, reasons: pa.ChunkedArray | pa.Array) -> None:
        """Records that are dead letters, each with its reason."""
        self.dead.add(records.append_column(REASON, reasons))

    def each(self) -> Iterator[tuple[str, str, Heap, Bounds]]:
        """Every folder with its rows, by type and name. Each is let go of once the next is asked for."""
        for key in sorted(self._spool.keys()):
            yield *key, self._spool[key], self._bounds[key]
            self._spool.drop(key)

    def types(self) -> list[str]:
        """The types that have rows."""
        return sorted({type_name for type_name, _ in self._bounds})

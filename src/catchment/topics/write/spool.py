"""Rows gathered by folder, in bounded memory.

What is over the budget goes to this machine's disk: one file per spill, in which each folder's rows lie together. Rows
come back folder by folder, in the order in which they were added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

SPILL_ROWS = 1 << 14  # rows that come back from a spill at a time

Key = TypeVar("Key")


@dataclass(frozen=True)
class _Spilled:
    path: Path
    at: int  # where in the file a stream of Arrow batches begins


@dataclass
class Heap:
    """What was gathered under one key."""

    rows: int = 0
    size: int = 0  # bytes, as Arrow holds them
    _pieces: list[pa.Table | _Spilled] = field(default_factory=list)

    def tables(self) -> Iterator[pa.Table]:
        """All its rows, in the order in which they were added, a part at a time."""
        for piece in self._pieces:
            if isinstance(piece, _Spilled):
                with pa.OSFile(str(piece.path)) as source:
                    source.seek(piece.at)
                    for batch in pa.ipc.open_stream(source):
                        yield pa.Table.from_batches([batch])
            else:
                yield piece


class Spool(Generic[Key]):
    """Tables by key. `budget` is how many bytes stay in memory; the folder is its own, and is removed with the task."""

    def __init__(self, folder: Path, budget: int) -> None:
        self._folder, self._budget = folder, budget
        self._heaps: dict[Key, Heap] = {}
        self._held = 0
        self.spills = 0

    def add(self, key: Key, table: pa.Table) -> None:
        heap = self._heaps.setdefault(key, Heap())
        size = table.nbytes
        heap.rows += table.num_rows
        heap.size += size
        heap._pieces.append(table)
        self._held += size

    def spill_if_over(self) -> None:
        """Call it between tables, not between the slices of one: a slice holds all of its table."""
        if self._held > self._budget:
            self._spill()

    def keys(self) -> list[Key]:
        """In the order in which they were first seen."""
        return list(self._heaps)

    def __getitem__(self, key: Key) -> Heap:
        return self._heaps[key]

    def drop(self, key: Key) -> None:
        """Let go of what is in memory; what was spilled goes with the folder."""
        del self._heaps[key]

    def _spill(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"spill-{self.spills}.arrows"
        with pa.OSFile(str(path), "wb") as sink:
            for heap in self._heaps.values():
                heap._pieces = [*_spilled(heap._pieces, path, sink)]
        self._held = 0
        self.spills += 1


def _spilled(pieces: list[pa.Table | _Spilled], path: Path, sink: pa.NativeFile) -> Iterator[_Spilled]:
    """The pieces with those in memory written out. Neighbours with one schema share a stream."""
    schema: pa.Schema | None = None
    writer: pa.RecordBatchStreamWriter | None = None
    for piece in pieces:
        if isinstance(piece, _Spilled):
            yield piece
            continue
        if writer is None or piece.schema != schema:
            if writer is not None:
                writer.close()
            yield _Spilled(path, sink.tell())
            schema = piece.schema
            writer = pa.ipc.new_stream(sink, schema)
        writer.write_table(piece, max_chunksize=SPILL_ROWS)
    if writer is not None:
        writer.close()


@dataclass(frozen=True)
class Run:
    """Neighbouring rows of one code."""

    code: int
    start: int
    rows: int


def runs(codes: pa.Array) -> tuple[pa.Array | None, list[Run]]:
    """How to order rows so that those of one code are neighbours, and where each code's are then.

    The order is None if they are already in order. Rows of one code stay in their order; those without a code come
    after all runs.
    """
    if len(codes) == 0:
        return None, []
    counted = pc.value_counts(codes)
    counts = {
        code: number
        for code, number in zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)
        if code is not None
    }
    found, start = [], 0
    for code in sorted(counts):
        found.append(Run(code, start, counts[code]))
        start += counts[code]
    if start == len(codes) and (len(found) == 1 or pc.all(pc.less_equal(codes[:-1], codes[1:])).as_py()):
        return None, found
    return pc.sort_indices(codes), found  # stable, and nulls come last

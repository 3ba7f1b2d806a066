"""Dead letters of a range: records that no row could be made of, each with its reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from catchment.topics.work import Work
from catchment.topics.write.bounds import Bounds
from catchment.topics.write.spool import Heap, Spool

TOP = 10  # reasons that are reported
_KINDS = 1000  # reasons that are told apart at all
_OTHERS = "other reasons"
# What a reason quotes of a message. The names of fields and headers and a delimiter are quoted too, and stay.
_VALUE = re.compile(r"""(?<!field )(?<!header )(?<!delimiter )('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")


class DeadLetters:
    """Gathered in bounded memory; they come back in the order of their offsets, whatever order they came in."""

    def __init__(self, folder: Path, budget: int, schema: pa.Schema) -> None:
        self._spool: Spool[None] = Spool(folder, budget)
        self._budget, self._schema = budget, schema
        self._reasons: Counter[str] = Counter()
        self.bounds = Bounds(1 << 62, 0)
        self.count = 0

    def add(self, letters: pa.Table) -> None:
        """With the columns that these dead letters have; others are left out."""
        if not letters.num_rows:
            return
        self.count += letters.num_rows
        span = pc.min_max(letters["offset"])
        self.bounds.widen(span["min"].as_py(), span["max"].as_py(), None)
        counted = pc.value_counts(letters["reason"])
        for reason, number in zip(
            counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True
        ):
            kind = general(reason)
            self._reasons[kind if kind in self._reasons or len(self._reasons) < _KINDS else _OTHERS] += number
        self._spool.add(None, letters.select(self._schema.names).cast(self._schema))
        self._spool.spill_if_over()

    @property
    def reasons(self) -> tuple[tuple[str, int], ...]:
        """The most frequent ones with how often they occur; of equally frequent ones, as the alphabet has them."""
        return tuple(sorted(self._reasons.items(), key=lambda one: (-one[1], one[0]))[:TOP])

    @property
    def heap(self) -> Heap:
        """All of them, as they came. There is at least one."""
        return self._spool[None]

    def tables(self, work: Work) -> Iterator[pa.Table]:
        """All of them by offset, read again for each stretch of offsets if there are more than fit in memory."""
        stretches = -(-self.heap.size // max(self._budget, 1))
        width = -(-(work.last - work.first + 1) // stretches)
        for start in range(work.first, work.last + 1, width):
            parts = [
                table.filter(
                    pc.and_(
                        pc.greater_equal(table["offset"], start), pc.less(table["offset"], min(start + width, 1 << 62))
                    )
                )
                for table in self.heap.tables()
            ]
            found = pa.concat_tables(parts)
            if found.num_rows:
                yield found.sort_by("offset")


def general(reason: str) -> str:
    """A reason without what it quotes of its message, so that equal ones can be counted."""
    return _VALUE.sub("…", reason)


def too_many(work: Work, dead: int, read: int, reasons: tuple[tuple[str, int], ...]) -> str:
    """What to say if there are more dead letters than the export stands; empty if there are not.

    A short range counts as one of a thousand messages, so that one bad message in ten stops nothing.
    """
    share = work.export.dead_letters.stop_above
    if dead <= share * max(read, 1000):
        return ""
    most = "; ".join(f"{number} × {reason}" for reason, number in reasons[:3])
    return f"{dead} of {read} messages of {work} could not be used, above dead_letters.stop_above ({share:g}): {most}"

"""What was read of a range: how many messages, how many bytes, and which offsets had none."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from catchment.errors import CatchmentError
from catchment.topics.manifest import MAX_HOLES
from catchment.topics.work import Work


class Misread(CatchmentError):
    """Messages came that are not of the range, or not in their order. Nothing was written."""


class Tally:
    """Counts what passes, and makes sure that it is the range: offsets only grow and stay within it."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._next = work.first  # the offset that would leave no gap
        self._holes: list[tuple[int, int]] = []
        self._many = False
        self.read = 0
        self.raw_bytes = 0

    def see(self, records: pa.Table | pa.RecordBatch) -> None:
        """The next records, of which there is at least one."""
        offsets = records["offset"]
        steps = pc.min_max(pc.pairwise_diff(offsets)) if len(offsets) > 1 else None
        first, last = offsets[0].as_py(), offsets[len(offsets) - 1].as_py()
        if first < self._next or last > self._work.last or (steps is not None and steps["min"].as_py() < 1):
            raise Misread(
                f"{self._work}: after offset {self._next - 1} came messages from {first} to {last}, not in order or not"
                " of this range",
                hint="nothing was written; it is tried again",
            )
        self._hole(self._next, first - 1)
        if steps is not None and steps["max"].as_py() > 1:
            before = pc.indices_nonzero(pc.greater(pc.fill_null(pc.pairwise_diff(offsets), 1), 1))
            for end, start in zip(
                offsets.take(before).to_pylist(), offsets.take(pc.subtract(before, 1)).to_pylist(), strict=True
            ):
                self._hole(start + 1, end - 1)
                if self._many:
                    break
        self._next = last + 1
        self.read += len(offsets)
        for name in ("key", "value"):
            if name in records.schema.names:
                self.raw_bytes += pc.sum(pc.binary_length(records[name])).as_py() or 0

    def finish(self) -> tuple[int, tuple[tuple[int, int], ...] | None]:
        """The number of offsets without a message, and the stretches that they make (None: too many to name)."""
        self._hole(self._next, self._work.last)
        gaps = self._work.last - self._work.first + 1 - self.read
        return gaps, None if self._many else tuple(self._holes)

    def _hole(self, start: int, end: int) -> None:
        if start <= end:
            self._many = self._many or len(self._holes) >= MAX_HOLES
            if not self._many:
                self._holes.append((start, end))


class Watch:
    """Where the time goes."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.spent[name] += time.perf_counter() - start  # type: ignore[assignment]

    def seconds(self) -> tuple[tuple[str, float], ...]:
        return tuple((name, round(float(spent), 3)) for name, spent in self.spent.items())

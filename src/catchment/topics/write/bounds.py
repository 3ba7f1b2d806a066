"""What rows span: offsets and event times."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Bounds:
    """What the rows of a folder span."""

    first: int  # offsets
    last: int
    oldest: int | None = None  # event times, in milliseconds since 1970
    newest: int | None = None

    def widen(self, first: int, last: int, times: pa.Array | None) -> None:
        """Take in more rows."""
        self.first, self.last = min(self.first, first), max(self.last, last)
        if times is not None:
            span = pc.min_max(times)
            oldest, newest = span["min"].as_py(), span["max"].as_py()
            if oldest is not None:
                self.oldest = oldest if self.oldest is None else min(self.oldest, oldest)
                self.newest = newest if self.newest is None else max(self.newest, newest)


def moment(millis: int | None) -> str | None:
    """As a manifest has it. What no calendar has is left out."""
    try:
        return None if millis is None else (_EPOCH + timedelta(milliseconds=millis)).isoformat()
    except OverflowError:
        return None

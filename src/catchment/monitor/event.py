"""One thing that happened."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

OK = "ok"  # ends a row of errors, and is the "last success"
FAILED = "failed"  # the next of a row of errors
SKIPPED = "skipped"  # nothing was to be done, or it was left to somebody else

MAX_NOTE = 4000  # characters: a note is for reading, and a body that a server sent along with its error is not


@dataclass(frozen=True)
class Event:
    """One thing that happened to a subject.

    `ok` and `failed` have a meaning of their own; other outcomes are free short words ("late", "refused"): they are
    counted under their name and neither end nor lengthen a row of errors.
    """

    time: datetime  # when it ended, in UTC
    subject: str  # room and thing: feeds/subway, tables/sales/orders
    kind: str  # what was done, one verb: download, upload, commit
    outcome: str
    duration: float | None = None  # seconds; None where it makes no sense
    numbers: Mapping[str, float] = field(default_factory=dict)  # by name, such as bytes and rows; totals add them up
    note: str = ""  # for people; the reason of a failure

    @property
    def room(self) -> str:
        """The subject's first part: feeds, topics, tables, pipelines."""
        return self.subject.partition("/")[0]


def tidy(event: Event) -> Event:
    """The event as it can be kept: no number that is not finite, no endless note."""
    numbers = {name: float(value) for name, value in event.numbers.items() if math.isfinite(value)}
    duration = event.duration
    if duration is not None and not (math.isfinite(duration) and duration >= 0):
        duration = None
    note = event.note if len(event.note) <= MAX_NOTE else event.note[: MAX_NOTE - 1] + "…"
    # Text with lone surrogates (a file name that is no UTF-8) cannot be stored as it is.
    subject, kind, outcome, note = (
        text.encode(errors="backslashreplace").decode() for text in (event.subject, event.kind, event.outcome, note)
    )
    return Event(event.time, subject, kind, outcome, duration, numbers, note)

"""What is said of an object in a `_config` folder that cannot be used: all that is wrong, each with its place."""

from __future__ import annotations

from collections.abc import Sequence

from catchment.errors import Problem
from catchment.tables.work import BatchFailed


def refusal(key: str, problems: Sequence[Problem]) -> BatchFailed:
    """One problem is one line; of several, each has its own."""
    if len(problems) == 1:
        text = f"{key}: {problems[0]}"
    else:
        text = f"{key}: {len(problems)} problems" + "".join(f"\n  {problem}" for problem in problems)
    return BatchFailed(text, hint=f"put a corrected {key}")

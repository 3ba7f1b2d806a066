"""Timing two things side by side: turn about, so that what else the machine does hits both."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median


def seconds(do: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    do()
    return time.perf_counter() - start


def against(what: str, ours: Callable[[], object], baseline: Callable[[], object], *, rounds: int = 5) -> float:
    """Print how many times as long `ours` takes as `baseline`, by the medians of `rounds` turns each."""
    pairs = [(seconds(baseline), seconds(ours)) for _ in range(rounds)]
    base, own = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
    print(f"{what}: {own / base:.2f}x  ({own:.3f} s against {base:.3f} s)", flush=True)
    return own / base

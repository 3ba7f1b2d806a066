"""Where jars and programs are kept between runs.

That is $CATCHMENT_CACHE, else $XDG_CACHE_HOME/catchment, else ~/.cache/catchment. Everything in it can be made
again, so it is always safe to remove.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """The cache's folder, absolute; it may not exist yet."""
    if own := os.environ.get("CATCHMENT_CACHE"):
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "catchment"


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Hold the cache's lock of this name: one process builds, the others wait and then find it built.

    The lock goes with its process, however that ends.
    """
    folder = cache_folder() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

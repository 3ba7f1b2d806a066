"""A folder of a task's own on its machine's disk."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OURS = re.compile(r"catchment-range-(\d+)-")


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder where Spark keeps its own files, which go when it ends; removed when the block ends.

    A task that is called off is killed and removes nothing, so what such tasks have left is removed here.
    """
    places = [place for place in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if place]
    root = Path(places[os.getpid() % len(places)]) if places else Path(tempfile.gettempdir())
    for left in root.glob("catchment-range-*"):
        found = _OURS.match(left.name)
        if found and not _runs(int(found[1])):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"catchment-range-{os.getpid()}-", dir=root) as name:
        yield Path(name)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True

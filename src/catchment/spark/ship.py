"""Catchment itself as one file, for executors: a cluster's workers need Python and PyArrow, but no Catchment."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import catchment
from catchment.cache import cache_folder

_SKIP = {"__pycache__", "testing", "web", "cli"}  # nothing that runs in a task needs these


def package_zip() -> Path:
    """The zip, made if it is not in the cache yet. The same code gives the same name and the same bytes."""
    root = Path(catchment.__file__).parent
    files = {
        f"{root.name}/{path.relative_to(root).as_posix()}": path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not _SKIP.intersection(path.relative_to(root).parts)
    }
    digest = hashlib.sha256()
    for name, body in files.items():
        digest.update(f"{name}\0{len(body)}\0".encode() + body)
    target = cache_folder() / "package" / f"catchment-{digest.hexdigest()[:16]}.zip"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_suffix(f".{os.getpid()}.new")
        with zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as out:
            for name, body in files.items():
                out.writestr(
                    zipfile.ZipInfo(name), body, zipfile.ZIP_DEFLATED
                )  # no time, no owner: same bytes anywhere
        aside.replace(target)
    return target

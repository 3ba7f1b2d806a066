"""Code as one file, for executors: a cluster's workers need Python and PyArrow, but no Catchment and no own modules."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import catchment
from catchment.cache import cache_folder

_SKIP = {"testing", "web", "cli"}  # of Catchment: nothing that runs in a task needs these
_COMPILED = (".so", ".pyd", ".dylib")


def package_zip() -> Path:
    """Catchment's zip, made if it is not in the cache yet. The same code gives the same name and the same bytes."""
    root = Path(catchment.__file__).parent
    return _zipped(
        root.name,
        {name: path for name, path in _below(root) if not _SKIP.intersection(path.relative_to(root).parts)},
    )


def module_zip(name: str) -> Path | None:
    """Likewise, of an outermost package or module that can be imported here. None if it cannot be had in this way.

    That is so if it is not made of files, or if some of them are compiled: install such a package on the executors.
    """
    spec = find_spec(name)
    if spec is None:
        return None
    if spec.submodule_search_locations is not None:
        files = dict(one for root in spec.submodule_search_locations for one in _below(Path(root)))
        if spec.origin is None:  # a folder without __init__.py may be anything: only what can be imported is taken
            files = {name: path for name, path in files.items() if path.suffix == ".py"}
    else:
        files = {Path(spec.origin).name: Path(spec.origin)} if spec.origin and Path(spec.origin).is_file() else {}
    compiled = any(path.name.endswith(_COMPILED) for path in files.values())
    return _zipped(name, files) if files and not compiled else None


def _below(root: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"{root.name}/{path.relative_to(root).as_posix()}", path


def _zipped(name: str, files: Mapping[str, Path]) -> Path:
    bodies = {inside: path.read_bytes() for inside, path in files.items()}
    digest = hashlib.sha256()
    for inside, body in bodies.items():
        digest.update(f"{inside}\0{len(body)}\0".encode() + body)
    target = cache_folder() / "package" / f"{name}-{digest.hexdigest()[:16]}.zip"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_suffix(f".{os.getpid()}.new")
        with zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as out:
            for inside, body in {**_folders(bodies), **bodies}.items():
                # No time, no owner: same bytes anywhere.
                out.writestr(zipfile.ZipInfo(inside), body, zipfile.ZIP_DEFLATED)
        aside.replace(target)
    return target


def _folders(bodies: Mapping[str, bytes]) -> dict[str, bytes]:
    """Entries for folders: without one, a folder that has no __init__.py is not found."""
    return {f"{folder.as_posix()}/": b"" for inside in bodies for folder in Path(inside).parents if folder.name}

"""A directory tree in the order of its keys, without holding more than one folder of each level in memory."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from stat import S_ISREG

from catchment.bucket.contract import MAX_KEY_BYTES, RESERVED
from catchment.bucket.files import translated

log = logging.getLogger(__name__)
_FOLDER = os.stat(os.sep)  # any will do: a folder's own times say nothing about the keys in it
_key = itemgetter(0)
_LOOKS = 4
_LONG = MAX_KEY_BYTES // 4  # characters that could be too many bytes
_NOT_TEXT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")  # surrogates stand for bytes that are not UTF-8


def walk(root: Path, prefix: str, after: str, *, depth: int = 0) -> Iterator[tuple[str, os.stat_result]]:
    """Key and stat of each file below root whose key starts with prefix and is greater than after, in order.

    With depth=1 folders are not entered but given as keys that end in `/`. A folder that vanishes meanwhile held
    nothing; one that cannot be read raises.
    """
    start, _, first = prefix.rpartition("/")
    if prefix.startswith("/") or _NOT_TEXT.search(prefix) or not _inside(root, start):
        return  # a prefix such as ../x is not an error: no key starts with it
    stack = [iter(_read(root, f"{start}/" if start else "", first, after))]
    while stack:
        for key, stat in stack[-1]:
            if stat is not None:
                yield key, stat
            elif depth:
                yield key, _FOLDER
            elif key > after or after.startswith(key):
                stack.append(iter(_read(root, key, "", after)))
                break
        else:
            stack.pop()


def _inside(root: Path, folder: str) -> bool:
    """Whether keys can lie in this folder: it leads nowhere else, and is not our own."""
    parts = folder.split("/")
    if not folder:
        return True
    if parts[0] == RESERVED or not {"", ".", ".."}.isdisjoint(parts):
        return False
    return os.path.realpath(f"{root}/{folder}") == f"{root}/{folder}"


def _read(root: Path, folder: str, first: str, after: str) -> list[tuple[str, os.stat_result | None]]:
    """What is in one folder, in order: files with their stat, folders as keys that end in `/`."""
    found: dict[str, os.stat_result | None] = {}
    path = f"{root}/{folder}"
    with translated(str(root), folder):
        try:
            # Some file systems (tmpfs) leave out files that stay where they are while others are renamed around them:
            # look again as long as the folder changes, and take what any look saw.
            changed = os.stat(path).st_mtime_ns
            for _ in range(_LOOKS):
                _scan(root, folder, first, after, found)
                before, changed = changed, os.stat(path).st_mtime_ns
                if changed == before:
                    break
        except (FileNotFoundError, NotADirectoryError):
            pass
    return sorted(found.items(), key=_key)  # a folder sorts with its slash, which is where the keys below it belong


def _scan(root: Path, folder: str, first: str, after: str, found: dict[str, os.stat_result | None]) -> None:
    with os.scandir(f"{root}/{folder}") as entries:
        for entry in entries:
            name = entry.name
            if first and not name.startswith(first):
                continue
            if (entry.is_symlink() or not name.isprintable()) and not _ours(root, folder, entry):
                continue
            if entry.is_dir():
                if folder or name != RESERVED:
                    found[f"{folder}{name}/"] = None
            elif (key := folder + name) > after:
                if len(key) > _LONG and len(key.encode()) > MAX_KEY_BYTES:
                    log.warning("%.80s… is too long for a key and is left out", key)
                    continue
                try:
                    stat = entry.stat()
                except FileNotFoundError:
                    continue  # deleted meanwhile
                if S_ISREG(stat.st_mode):
                    found[key] = stat


def _ours(root: Path, folder: str, entry: os.DirEntry[str]) -> bool:
    """Leave out what cannot be a key, and say so: a link that leads out, a name that is not text."""
    if entry.is_symlink():
        real = os.path.realpath(entry.path)
        if not real.startswith(f"{root}/") or f"{real}/".startswith(f"{root}/{RESERVED}/"):
            log.warning("%s%s leads out of %s and is left out", folder, entry.name, root)
            return False
        return entry.is_file()  # a link to a folder could go round in circles
    if _NOT_TEXT.search(entry.name):
        log.warning("%s%r cannot be a key and is left out", folder, entry.name)
        return False
    return True

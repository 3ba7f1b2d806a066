"""The `_config` folders on the way to a batch, and what lies in them, by their names alone.

    tables/_config/                                     the farthest
    tables/<dataset>/_config/
    tables/<dataset>/<table>/_config/
    tables/<dataset>/<table>/<folder>/…/_config/        each folder of the batch's path; the nearest is the batch's own

A table whose batches lie elsewhere (`source`) has its levels here, too, as if they lay below its own folder. Where a
`naming` says which folders are batches, the levels are the folders on the way to the batch as they are.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from catchment.tables.documents import EXTERNAL, LOAD
from catchment.tables.names import CONFIG, ORDERME, ROOT, Table


@dataclass(frozen=True)
class Level:
    """One folder on the way, and the keys of what its `_config` has."""

    folder: str  # ends in /
    load: str | None = None
    external: str | None = None
    sql: tuple[str, ...] = ()
    order: str | None = None
    others: tuple[str, ...] = ()  # that mean nothing

    def key(self, name: str) -> str:
        return f"{self.folder}{CONFIG}/{name}"


class Levels:
    """Of all tables, from one listing."""

    def __init__(self, keys: Collection[str]) -> None:
        """`keys` are those of all objects in `_config` folders; others do no harm."""
        names: dict[str, list[str]] = {}
        for key in sorted(keys):
            folder, _, name = key.rpartition("/")
            if folder.endswith(f"/{CONFIG}"):
                names.setdefault(folder.removesuffix(CONFIG), []).append(name)
        self._levels = {folder: _level(folder, found) for folder, found in names.items()}

    def on_the_way(self, start: str, path: str) -> list[Level]:
        """From the farthest to the nearest, also those without a `_config`. `start` ends in `/`."""
        folders = [f"{ROOT}/"]
        for part in f"{start.removeprefix(folders[0])}{path}".split("/"):
            if part:
                folders.append(f"{folders[-1]}{part}/")
        return [self._levels.get(folder, Level(folder)) for folder in folders]


def start(table: Table, base: str | None, source: str | None) -> str:
    """The folder below which a batch's path is looked up."""
    by_naming = source is None and base == f"{ROOT}/"
    return f"{ROOT}/" if by_naming else table.prefix


def _level(folder: str, names: list[str]) -> Level:
    def key(name: str) -> str | None:
        return f"{folder}{CONFIG}/{name}" if name in names else None

    # As with data, names that begin with . or _ are nobody's: editors and file managers leave such ones behind.
    sql = tuple(name for name in names if name.lower().endswith(".sql") and not name.startswith((".", "_")))
    others = tuple(name for name in names if name not in (LOAD, EXTERNAL, ORDERME, *sql))
    of_sql = tuple(f"{folder}{CONFIG}/{name}" for name in sql)
    return Level(folder, key(LOAD), key(EXTERNAL), of_sql, key(ORDERME), others)

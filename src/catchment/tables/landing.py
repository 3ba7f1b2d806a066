"""What has landed: one listing of `tables/` (and of every `source`), sorted by table.

A `_SUCCESS` closes the folder that it is in. Its publication is told by `head`; what a process has seen once it does
not ask for again while the listing shows the same time, size and ETag, unless that time is so recent that another one
may share it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from catchment.bucket.contract import Bucket, Entry
from catchment.config.tables import Tables
from catchment.errors import NotFound
from catchment.tables.names import BACKFILL, BACKLOG, CLAIMED, CONFIG, LOCK, ROOT, SUCCESS, Publication, Table
from catchment.tables.work import DataFile

RECENT = timedelta(minutes=1)  # stores that tell times in seconds, and clocks that differ, are within this


@dataclass
class Landed:
    """What the listing shows of one table."""

    table: Table
    base: str  # the folder that its batches lie below, ends in /
    closed: dict[str, Entry] = field(default_factory=dict)  # path → its _SUCCESS
    claims: set[str] = field(default_factory=set)  # keys of records
    pointers: list[str] = field(default_factory=list)  # paths in the backlog, in order
    gates: set[str] = field(default_factory=set)  # names of files at the top of the table's folder
    begun: bool = False  # a _BACKFILL was used up once
    lock: bool = False  # there is one

    def success(self, path: str) -> str:
        """The key of a batch's `_SUCCESS`."""
        return f"{self.base}{path}/{SUCCESS}" if path else f"{self.base}{SUCCESS}"


@dataclass
class Listing:
    """What one look found."""

    tables: dict[Table, Landed] = field(default_factory=dict)
    configs: set[str] = field(default_factory=set)  # keys of all objects in _config folders
    problems: list[str] = field(default_factory=list)  # _SUCCESS files that close nothing, and why


class Landing:
    """Looks, again and again. Not for two threads at a time."""

    def __init__(self, bucket: Bucket, config: Tables) -> None:
        self._bucket, self._config = bucket, config
        self._naming = re.compile(config.naming) if config.naming else None
        self._sources = {
            Table.parse(item.table): f"{item.source.rstrip('/')}/" for item in config.items if item.source is not None
        }
        self._seen: dict[str, tuple[Entry, Publication]] = {}

    def look(self, only: Collection[Table] | None = None) -> Listing:
        """One listing of everything; with `only`, of these tables and of what is said above them."""
        found = Listing()
        declared = {Table.parse(item.table) for item in self._config.items}
        for table in declared if only is None else only:
            self._landed(found, table)
        for prefix in self._prefixes(only):
            for entry in self._bucket.list(prefix):
                self._sort(found, entry)
        for table, source in self._sources.items():
            if only is not None and table not in only:
                continue
            landed = self._landed(found, table)
            for entry in self._bucket.list(source):
                folder, _, name = entry.key.removeprefix(source).rpartition("/")
                if name == SUCCESS and entry.settled and not hidden(folder):
                    landed.closed[folder] = entry
        return found

    def _prefixes(self, only: Collection[Table] | None) -> Iterator[str]:
        if only is None or self._naming is not None:  # batches may lie anywhere then
            yield f"{ROOT}/"
            return
        yield f"{ROOT}/{CONFIG}/"
        yield from sorted({f"{ROOT}/{table.dataset}/{CONFIG}/" for table in only})
        yield from sorted(table.prefix for table in only)

    def table_of(self, key: str) -> Table | None:
        """The table that a change of this key may be about; None if it may be about any."""
        for table, source in self._sources.items():
            if key.startswith(source):
                return table
        parts = key.split("/")
        if self._naming is not None or parts[0] != ROOT or len(parts) < 4:
            return None
        return _table("/".join(parts[1:3]))

    def publication(self, entry: Entry, now: datetime) -> Publication | None:
        """Which putting of this `_SUCCESS` there is now; None if it has gone. Often without a request."""
        seen = self._seen.get(entry.key)
        if seen is not None and seen[0] == entry and abs(now - entry.modified) > RECENT:
            return seen[1]
        found = publication(self._bucket, entry.key)
        if found is not None:
            self._seen[entry.key] = entry, found
        return found

    def _landed(self, found: Listing, table: Table) -> Landed:
        base = self._sources.get(table) or (f"{ROOT}/" if self._naming else table.prefix)
        return found.tables.setdefault(table, Landed(table, base))

    def _sort(self, found: Listing, entry: Entry) -> None:
        folder, _, name = entry.key.removeprefix(f"{ROOT}/").rpartition("/")
        parts = folder.split("/")
        if CONFIG in parts:
            if parts[-1] == CONFIG:
                found.configs.add(entry.key)
            return
        owner = _table("/".join(parts[:2]))
        if owner is not None and len(parts) >= 2:
            if len(parts) > 2 and parts[2] == BACKLOG:
                if name == SUCCESS:
                    self._landed(found, owner).pointers.append(owner.parse_pointer(entry.key))
                return
            if name.startswith(CLAIMED):
                landed = self._landed(found, owner)
                landed.claims.add(entry.key)
                landed.begun = landed.begun or name.startswith(f"{CLAIMED}{BACKFILL}")
                return
            if len(parts) == 2 and name in (LOCK, BACKFILL):
                landed = self._landed(found, owner)
                landed.lock = landed.lock or name == LOCK
                return
            if len(parts) == 2:
                self._landed(found, owner).gates.add(name)
        if name == SUCCESS and entry.settled:
            self._close(found, folder, entry)

    def _close(self, found: Listing, folder: str, entry: Entry) -> None:
        if hidden(folder):
            return
        if self._naming is not None:
            match = self._naming.fullmatch(folder)
            table = _table(f"{match['dataset']}/{match['table']}") if match else None
            path = folder
        else:
            dataset, _, rest = folder.partition("/")
            name, _, path = rest.partition("/")
            table = _table(f"{dataset}/{name}")
        if table is None or table in self._sources:
            why = "its table takes its batches from elsewhere (source)" if table else "its folder names no table"
            found.problems.append(f"{entry.key} closes nothing: {why}; batches lie in {ROOT}/<dataset>/<table>/…")
            return
        self._landed(found, table).closed[path] = entry


def publication(bucket: Bucket, key: str) -> Publication | None:
    """Which putting of this file there is now; None if there is none."""
    try:
        stat = bucket.head(key)
    except NotFound:
        return None
    return Publication.of(stat.version, stat.modified)


def data_files(bucket: Bucket, base: str, path: str, closed: Iterable[str]) -> Iterator[DataFile]:
    """The files of a batch, by key: not what begins with `.` or `_`, not empty ones, and not those of batches within.

    One listing, and a `head` where it tells no ETag.
    """
    folder = f"{base}{path}/" if path else base
    inner = [f"{base}{other}/" for other in closed if other != path and f"{base}{other}/".startswith(folder)]
    for entry in bucket.list(folder):
        rest = entry.key.removeprefix(folder)
        if not entry.size or hidden(rest) or any(entry.key.startswith(one) for one in inner):
            continue
        yield DataFile(entry.key, entry.etag or bucket.head(entry.key).etag, entry.size)


def listed_files(body: bytes) -> tuple[DataFile, ...] | None:
    """The files that a `_SUCCESS` lists, as closed days of topics have it; None if it lists none."""
    try:
        files = json.loads(body)["files"]
        return tuple(sorted((DataFile(str(one["key"]), str(one["etag"]), int(one["size"])) for one in files), key=_key))
    except (ValueError, KeyError, TypeError):
        return None


def _key(file: DataFile) -> str:
    return file.key


def hidden(path: str) -> bool:
    """Whether a folder or a file on the way is not data: its name begins with `.` or `_`."""
    return any(part.startswith((".", "_")) for part in path.split("/"))


def unpadded(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Pairs of paths whose order as text is not that of their numbers: 10 before 9. Pure."""
    last: dict[tuple[str, ...], tuple[int, str]] = {}
    for path in sorted(paths):
        parts = path.split("/")
        for at, part in enumerate(parts):
            number = re.fullmatch(r"(.*?)(\d+)", part)
            if number is None:
                continue
            where = (*parts[:at], number[1])
            before = last.get(where)
            if before is not None and before[0] > int(number[2]):
                yield before[1], path
            last[where] = int(number[2]), path


def _table(text: str) -> Table | None:
    try:
        return Table.parse(text)
    except ValueError:
        return None

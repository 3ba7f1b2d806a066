"""The history of a Delta table, by its log in the bucket: no Spark is needed to read it.

Each commit of ours says in `userMetadata` which batch it is of, and carries the batch's transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from catchment.bucket.contract import Bucket
from catchment.errors import BucketError, NotFound
from catchment.tables.names import Table

_READ = (b'{"commitInfo"', b'{"txn"')  # of the actions of a commit; files may be many
_SUFFIX = ".json"
_DIGITS = 20


@dataclass(frozen=True)
class Note:
    """What a commit of ours says about itself."""

    batch: str  # its path
    publication: str  # its id
    attempt: str = ""  # which of several attempts at the same batch this one was
    began: int = 0  # when, in milliseconds since 1970
    why: str = ""  # of a commit without data: "skipped", "void"
    zero: bool = False  # whether it may well change no row

    def text(self) -> str:
        return json.dumps({name: value for name, value in vars(self).items() if value or name == "batch"})

    @classmethod
    def parse(cls, text: object) -> Note | None:
        """None if it is not ours."""
        try:
            value = json.loads(str(text))
            return cls(**value)
        except (ValueError, TypeError):
            return None


@dataclass(frozen=True)
class Commit:
    """One version of a table."""

    version: int
    at: datetime
    operation: str  # as Delta calls it: WRITE, MERGE, …
    note: Note | None = None  # None: not one of ours
    rows: int | None = None  # added or changed; None if Delta does not say
    seconds: float | None = None  # from the beginning of the attempt to the commit
    numbers: Mapping[str, int] = field(default_factory=dict)  # Delta's own metrics
    transactions: Mapping[str, int] = field(default_factory=dict)  # that this commit carries

    @property
    def counts(self) -> bool:
        """Whether the batch is in the table by this commit: it changed something, or need not have."""
        if self.note is not None and (self.note.why or self.note.zero):
            return not self.note.why
        return self.rows != 0 or bool(self.numbers.get("numRemovedFiles"))


def history(bucket: Bucket, table: Table) -> Iterator[Commit]:
    """Newest first; each is read when it is asked for. Empty if there is no table."""
    versions = []
    for entry in bucket.list(f"{_log(table)}/"):
        name = entry.key.rpartition("/")[2]
        if name.endswith(_SUFFIX) and len(name) == _DIGITS + len(_SUFFIX) and name[:_DIGITS].isdigit():
            versions.append(int(name[:_DIGITS]))
    for version in reversed(versions):
        found = commit(bucket, table, version)
        if found is not None:
            yield found


def commit(bucket: Bucket, table: Table, version: int) -> Commit | None:
    """One version. None if there is none, or none any more: Delta keeps its log for a month."""
    key = f"{_log(table)}/{version:0{_DIGITS}}{_SUFFIX}"
    info: dict[str, Any] = {}
    transactions: dict[str, int] = {}
    try:
        with bucket.open(key) as lines:
            for line in lines:
                if line.startswith(_READ):
                    action = json.loads(line)
                    info = action.get("commitInfo") or info
                    if carried := action.get("txn"):
                        transactions[carried["appId"]] = carried["version"]
    except NotFound:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BucketError(f"{key} cannot be understood ({error!r})", key=key, hint="restore the table's log") from error
    numbers = {name: int(value) for name, value in (info.get("operationMetrics") or {}).items() if str(value).isdigit()}
    note, when = Note.parse(info.get("userMetadata")), int(info.get("timestamp", 0))
    return Commit(
        version,
        datetime.fromtimestamp(when / 1000, UTC),
        str(info.get("operation", "")),
        note,
        _rows(numbers),
        max(0, when - note.began) / 1000 if note is not None and note.began else None,
        numbers,
        transactions,
    )


def _rows(numbers: Mapping[str, int]) -> int | None:
    """Added or changed, by the metrics of any operation; rows that only moved to another file do not count."""
    for names in (
        ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"),
        ("numUpdatedRows",),
        ("numOutputRows",),
        ("numDeletedRows",),
    ):
        if names[0] in numbers:
            copied = numbers.get("numCopiedRows", 0) if names[0] == "numOutputRows" else 0
            return sum(numbers.get(name, 0) for name in names) - copied
    return None


def _log(table: Table) -> str:
    return f"{table.warehouse}/_delta_log"

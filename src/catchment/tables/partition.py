"""What the path of a batch says about its rows: columns (`day=2026-11-15`), and the partition that they replace.

Names and values are escaped as Hive and Spark do it (`%2F` is a slash). `$20261115` names the one partition of a table
that has one `partition_by` column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from catchment.tables.work import BatchFailed

NULL = "__HIVE_DEFAULT_PARTITION__"  # the value of a folder that stands for null
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")


def unescape(text: str) -> str:
    """As Hive reads the name of a folder: what is no `%XX` stays as it is."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def columns_of(path: str) -> dict[str, str]:
    """The columns that a path names, in its order. BatchFailed if one has no name, no value, or is there twice."""
    found: dict[str, str] = {}
    for part in path.split("/"):
        name, equals, value = part.partition("=")
        if not equals or part.startswith("$"):
            continue
        name = unescape(name)
        if not name or not value:
            raise BatchFailed(
                f"{part!r} in the path {path} is no column and its value",
                hint=f"name the folder as in day=2026-11-15; {NULL} stands for null",
            )
        if name.lower() in map(str.lower, found):
            raise BatchFailed(f"column {name!r} is twice in the path {path}", hint="name its folders differently")
        found[name] = unescape(value)
    return found


def decorator_of(path: str) -> str | None:
    """The `$value` of a path; None without one. BatchFailed if there are several, or it is empty."""
    found = [part for part in path.split("/") if part.startswith("$")]
    if not found:
        return None
    if len(found) > 1 or found == ["$"]:
        what = "names no partition" if found == ["$"] else f"names {len(found)} partitions, {' and '.join(found)}"
        raise BatchFailed(f"the path {path} {what}", hint="name one, as in $20261115")
    return unescape(found[0][1:])


def replaced(path: str, partition_by: Sequence[str] | None) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """The columns that the table is divided by, and the partition that this batch replaces: column → value.

    Without `partition_by` the columns of the path are meant, all of them. Where it names more than the path does, the
    path names the first of them, and all that lies below is replaced. BatchFailed if it cannot be told.
    """
    columns, decorator = columns_of(path), decorator_of(path)
    if decorator is not None:
        return _decorated(path, decorator, partition_by, columns)
    if not columns:
        raise BatchFailed(
            f"the path {path or '(the folder of the table)'} names no partition that the batch could replace",
            hint='name its folders as in day=2026-11-15 or $20261115, or set "write_disposition" to append or truncate',
        )
    if partition_by is None:
        return tuple(columns), columns
    by_name = {name.lower(): value for name, value in columns.items()}
    known = [name.lower() in by_name for name in partition_by]
    named = known.count(True)
    if not all(known[:named]) or not named:
        # hour=07 without a day would be the seventh hour of every day.
        raise BatchFailed(
            f"the path {path} does not name {partition_by[known.index(False)]}, a column that partition_by has first",
            hint=f"name the folders {'/'.join(f'{name}=…' for name in partition_by)}, or change partition_by",
        )
    return tuple(partition_by), {name: by_name[name.lower()] for name in partition_by[:named]}


def _decorated(
    path: str, value: str, partition_by: Sequence[str] | None, columns: Mapping[str, str]
) -> tuple[tuple[str, ...], Mapping[str, str]]:
    if partition_by is None or len(partition_by) != 1:
        has = f"{len(partition_by)} of them" if partition_by else "none"
        raise BatchFailed(
            f"${value} in the path {path} is the value of one partition_by column, and there is {has}",
            hint='set "partition_by" to one column, or name the folders as in day=2026-11-15/hour=07',
        )
    (name,) = partition_by
    also = next((other for column, other in columns.items() if column.lower() == name.lower()), value)
    if also != value:
        raise BatchFailed(f"the path {path} names two values of {name}: {value} and {also}", hint="remove one")
    return (name,), {name: value}

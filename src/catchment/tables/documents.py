"""`load.json` and `external.json`: read, checked, and merged key by key over the levels, the nearest wins.

A key with null takes back what a level farther away says, so that its default counts again. `options` are merged name
by name in the same way; their names are Spark's, for which case does not matter.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from catchment.config.fields import meant, quoted
from catchment.config.section import Wrong, kind, path_text
from catchment.errors import Problem
from catchment.tables.refusal import refusal

LOAD = "load.json"
EXTERNAL = "external.json"
FORMATS = ("csv", "json", "parquet", "avro", "orc")
DISPOSITIONS = ("append", "truncate", "partition")
EVOLUTIONS = ("fail", "add columns")
_OURS = ("path", "paths", "basepath")  # options that say which files are read: the batch does
_OF_LOADS = ("write_disposition", "partition_by")

Document = Mapping[str, Any]  # what was checked: None is null


def read(key: str, body: bytes) -> Document:
    """What an object says. BatchFailed with everything that is wrong with it, each with its place."""
    found = _json(key, body)
    if not isinstance(found, _Pairs):
        raise refusal(key, [Problem("", f'expected {{"format": …}}, found {kind(found)}')])
    problems: list[Problem] = []
    checked: dict[str, Any] = {}
    for name, value in found:
        place = path_text((name,))
        if name not in _CHECKS:
            problems.append(Problem(place, _unknown(name)))
        elif name in _OF_LOADS and key.rpartition("/")[2] == EXTERNAL:
            problems.append(Problem(place, f"belongs into {LOAD}; remove it: the statement says what is written"))
        elif name in checked:
            problems.append(Problem(place, "is there twice; remove one"))
        else:
            checked[name] = None
            try:
                checked[name] = None if value is None else _CHECKS[name](value)
            except _Several as several:
                problems += [Problem(path_text((name, below)), what) for below, what in several.found]
            except Wrong as wrong:
                problems.append(Problem(place, str(wrong)))
    if problems:
        raise refusal(key, problems)
    return checked


def merge(documents: Iterable[Document]) -> dict[str, Any]:
    """From the farthest to the nearest. What is null in the end is left out; `options` is there, maybe empty."""
    merged: dict[str, Any] = {}
    options: dict[str, tuple[str, str | None]] = {}  # by their names in lower case
    for document in documents:
        merged |= document
        if "options" in document and document["options"] is None:
            options = {}
        for name, value in (document.get("options") or {}).items():
            options[name.lower()] = name, value
    merged["options"] = {name: value for name, value in options.values() if value is not None}
    return {key: value for key, value in merged.items() if value is not None}


# -- reading ---------------------------------------------------------------------------------------------------------


class _Pairs(list[tuple[str, Any]]):
    """An object of JSON, with keys that are there twice."""


class _Several(ValueError):
    def __init__(self, found: Iterable[tuple[str, str]]) -> None:
        self.found = tuple(found)
        super().__init__(f"{len(self.found)} problems")


def _json(key: str, body: bytes) -> object:
    def constant(name: str) -> NoReturn:
        raise Wrong(f"{name} is no JSON", "write a number, or put quotes around it")

    try:
        text = body.decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=_Pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        what = f"broken JSON: {error.msg}" if text.strip() else 'it is empty; write {"format": "csv"} or the like'
        problem = Problem(where if text.strip() else "", what)
    except UnicodeDecodeError as error:
        lines = body[: error.start].split(b"\n")
        problem = Problem(f"line {len(lines)}, column {len(lines[-1]) + 1}", "no UTF-8; save it as UTF-8")
    except RecursionError:
        problem = Problem("", "broken JSON: objects or lists within one another without end")
    except ValueError as error:  # a number with thousands of digits, NaN
        problem = Problem("", f"broken JSON: {error}")
    raise refusal(key, [problem])


def _unknown(name: str) -> str:
    near = meant(name, tuple(_CHECKS))
    return f"unknown key; did you mean {near!r}?" if near else f"unknown key; use one of: {', '.join(_CHECKS)}"


# -- values ----------------------------------------------------------------------------------------------------------


def _choice(*allowed: str) -> Callable[[object], str]:
    def check(raw: object) -> str:
        if raw in allowed:
            return str(raw)
        near = meant(raw, allowed) if isinstance(raw, str) else None
        found = quoted(raw) if isinstance(raw, str) else _kind(raw)
        raise Wrong(f"{found} is not a choice here", f"write {near!r}" if near else f"one of: {', '.join(allowed)}")

    return check


def _flag(raw: object) -> bool:
    if not isinstance(raw, bool):
        raise Wrong(f"expected true or false, found {_kind(raw)}", "write true or false, without quotes")
    return raw


def _schema(raw: object) -> str:
    if not isinstance(raw, str) or not raw.strip():
        found = "an empty text" if isinstance(raw, str) else _kind(raw)
        raise Wrong(f"expected columns and their types, found {found}", "write a text as 'id BIGINT, name STRING'")
    return raw


def _columns(raw: object) -> tuple[str, ...]:
    names = (raw,) if isinstance(raw, str) else raw
    if isinstance(names, _Pairs) or not isinstance(names, list | tuple) or not names:
        raise Wrong(
            f"expected columns, found {_kind(raw) if raw != [] else 'none'}",
            'write a name, or names as in ["day", "hour"]',
        )
    for name in names:
        if not isinstance(name, str) or not name.strip():
            found = "an empty text" if isinstance(name, str) else _kind(name)
            raise Wrong(f"expected the name of a column, found {found}", 'write one as in "day"')
    twice = next((name for at, name in enumerate(names) if name.lower() in map(str.lower, names[:at])), None)
    if twice is not None:
        raise Wrong(f"column {quoted(twice)} is there twice", "remove one")
    return tuple(names)


def _options(raw: object) -> dict[str, str | None]:
    if not isinstance(raw, _Pairs):
        raise Wrong(f"expected names and values, found {_kind(raw)}", 'write {"header": true} or the like')
    found: list[tuple[str, str]] = []
    checked: dict[str, str | None] = {}
    for name, value in raw:
        if name.lower() in map(str.lower, checked):
            found.append((name, "is there twice, upper and lower case are the same here; remove one"))
        elif name.lower() in _OURS:
            found.append((name, "says which files are read, and the batch does that; remove it"))
        elif not re.fullmatch(r"[!-~]{1,200}", name):
            found.append((name, "the name is not that of an option; write one like header"))
        else:
            try:
                checked[name] = None if value is None else _option(value)
            except Wrong as wrong:
                found.append((name, str(wrong)))
    if found:
        raise _Several(found)
    return checked


def _option(raw: object) -> str:
    """As Spark's reader takes it."""
    if isinstance(raw, bool):
        return str(raw).lower()
    if not isinstance(raw, str | int | float) or (isinstance(raw, float) and not math.isfinite(raw)):
        raise Wrong(f"expected text, a number, true or false, found {_kind(raw)}", 'write it as "name": value')
    return str(raw)


def _kind(raw: object) -> str:
    return kind(dict(raw) if isinstance(raw, _Pairs) else raw)


_CHECKS: Mapping[str, Callable[[object], Any]] = {
    "format": _choice(*FORMATS),
    "options": _options,
    "schema": _schema,
    "write_disposition": _choice(*DISPOSITIONS),
    "partition_by": _columns,
    "allow_zero_rows": _flag,
    "schema_evolution": _choice(*EVOLUTIONS),
}

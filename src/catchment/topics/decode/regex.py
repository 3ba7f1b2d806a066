"""Messages that are lines of text: one regular expression, whose named groups are the fields.

The expression is RE2's, which takes time in proportion to the text, whatever the expression. It is looked for anywhere
in the text, unless it is anchored (`^`, `$`). Fields are STRING unless they are declared.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from catchment.errors import UsageError
from catchment.topics.decode.arrays import struct_of, whole
from catchment.topics.decode.columns import Parsed
from catchment.topics.decode.letters import Reasons
from catchment.topics.decode.schema import TEXT, Field, Kind, Schema

_HINT = (
    "change decode.pattern: it cannot look ahead or behind ((?=, (?!, (?<=), refer back (\\1, (?P=name)) or use"
    " possessive and atomic groups; write (?: for a group that is no field, and $ for the end of the text"
)


class RegexParser:
    """A `Parser`. UsageError if RE2 does not know the expression."""

    def __init__(self, pattern: str) -> None:
        self._pattern, groups = _without_unnamed(pattern)
        none = pa.array([], pa.string())
        try:
            names = pc.extract_regex(none, pattern=self._pattern).type.names
        except pa.ArrowInvalid as error:
            why = str(error).removeprefix("Invalid regular expression: ")
            raise UsageError(f"decode.pattern {pattern[:200]!r} cannot be used: {why}", hint=_HINT) from None
        # What took no part is empty text, as what matched nothing is. Where only the first can be, it is null.
        self._certain = {name for name in names if name in groups and not _matches_nothing(groups[name])}
        fields = Schema(tuple(Field(name, Kind(TEXT)) for name in names))
        if why := fields.misnamed() or _in_two_cases(names):
            raise UsageError(f"decode.pattern {pattern[:200]!r} cannot be used: {why}", hint="rename the group")
        self._kind = fields.kind

    def parse(self, records: pa.Table) -> tuple[list[Parsed], dict[int, str]]:
        values = whole(records["value"])
        reasons = Reasons(len(values))
        reasons.without_value(values)
        texts = reasons.texts(values)
        found = pc.extract_regex(texts, pattern=self._pattern)
        reasons.where(pc.is_null(found), "does not match decode.pattern")
        rows = reasons.good()
        found = found.take(rows) if reasons.found else found
        columns = {
            name: _null_if_empty(column) if name in self._certain else column
            for name, column in zip(found.type.names, found.flatten(), strict=True)
        }
        return [Parsed(rows, struct_of(columns, len(rows)), self._kind)], reasons.found


def _in_two_cases(names: list[str]) -> str:
    """What to say of names that differ in case alone, which cannot both be columns."""
    folded: dict[str, str] = {}
    pairs = ((folded.setdefault(name.lower(), name), name) for name in names)
    return next((f"{one} and {two} differ only in case" for one, two in pairs if one != two), "")


def _null_if_empty(column: pa.StringArray) -> pa.StringArray:
    empty = pc.equal(column, "")
    return pc.if_else(empty, pa.scalar(None, pa.string()), column) if pc.any(empty).as_py() else column


def _matches_nothing(group: str) -> bool:
    return bool(pc.match_substring_regex(pa.array([""]), pattern=f"^(?:{group})$")[0].as_py())


def _without_unnamed(pattern: str) -> tuple[str, dict[str, str]]:
    """The expression with its unnamed groups made non-capturing, and what is inside of each named one."""
    written: list[str] = []
    opened: list[tuple[str, int]] = []  # names of groups that are open, and where their inside begins in `written`
    groups: dict[str, str] = {}
    for token in _tokens(pattern):
        if token == "(":
            token = "(?:"
        if token == ")" and opened:
            name, start = opened.pop()
            if name:
                groups[name] = "".join(written[start:])
        written.append(token)
        if token.startswith("("):
            named = token.startswith("(?P<") and token.endswith(">")
            opened.append((token[4:-1] if named else "", len(written)))
    return "".join(written), groups


def _tokens(pattern: str) -> Iterator[str]:
    """What may open or close a group, and everything else as it is: escapes, sets of characters, single ones."""
    at = 0
    while at < len(pattern):
        end = at + 1
        if pattern[at] == "\\":
            end = at + 2
        elif pattern[at] == "[":
            end = _set_end(pattern, at)
        elif pattern.startswith("(?P<", at):
            end = pattern.find(">", at) + 1 or len(pattern)
        elif pattern.startswith("(?", at):
            end = at + 2
        yield pattern[at:end]
        at = end


def _set_end(pattern: str, at: int) -> int:
    end = at + 1
    end += pattern[end : end + 1] == "^"
    end += pattern[end : end + 1] == "]"  # the first one is a character
    while end < len(pattern) and pattern[end] != "]":
        if pattern.startswith("[:", end) and ":]" in pattern[end + 2 :]:  # a class, as in [[:alpha:]_]
            end = pattern.index(":]", end + 2) + 1
        end += 2 if pattern[end] == "\\" else 1
    return end + 1

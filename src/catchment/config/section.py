"""What every part of the configuration is: strict, frozen, closed to unknown keys, and careful in what it says.

Errors inside models are two: `Wrong` about one value, `Findings` about several places below one model. `explain.py`
turns both into Problems with whole paths. A `Loc` is a place in the tree: ("feeds", 0, "periodicity").
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, model_validator

from catchment.config.secret import Filled

Loc = tuple[str | int, ...]

_PLAIN = re.compile(r"[A-Za-z0-9_$-]{1,80}", re.ASCII)


class Wrong(ValueError):
    """One value that cannot stand: what is wrong, and what to write instead."""

    def __init__(self, what: str, instead: str) -> None:
        super().__init__(f"{what}; {instead}")
        self.what = what
        self.instead = instead


class Findings(ValueError):
    """Several things wrong below one model, each with its place relative to that model."""

    def __init__(self, found: Iterable[tuple[Loc, str]]) -> None:
        self.found = tuple(found)
        super().__init__("; ".join(f"{path_text(loc)}: {message}" for loc, message in self.found))


def refuse(found: Iterable[tuple[Loc, str]]) -> None:
    """Raise Findings if anything was found."""
    listed = tuple(found)
    if listed:
        raise Findings(listed)


def path_text(loc: Loc) -> str:
    """A place as people write it: feeds[0].headers.x-api-key, topics[0].kafka["security.protocol"]."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += '["' + ascii(part[:80])[1:-1].replace('"', '\\"') + '"]'
    return text


class Section(BaseModel):
    """Keys and values with known names. A key without a value (empty, or filled with nothing) counts as not given."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,
        populate_by_name=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _given(cls, raw: object) -> object:
        if isinstance(raw, cls):
            return raw
        if not isinstance(raw, dict):
            raise Wrong(
                f"expected keys and values, found {kind(raw)}", "indent its keys below it, one 'key: value' a line"
            )
        return {
            key: value
            for key, value in raw.items()
            if value is not None and not (isinstance(value, Filled) and not value)
        }


def kind(raw: object) -> str:
    """What a value is, in the words of someone who writes YAML, without showing it."""
    match raw:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list() | tuple():
            return "a list"
        case dict():
            return "keys and values"
        case _:
            return f"a {type(raw).__name__}"

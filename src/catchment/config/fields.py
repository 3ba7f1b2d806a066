"""The kinds of value a configuration is made of. Each refuses what cannot work, and says what to write instead.

A check sees the value as it was written, says `Wrong(what, instead)`, and never quotes it: `quoted` does, and leaves
out what came from the environment or stands in a secret place. Values that already have their type (a timedelta, a
Path, a Secret: from Python code and not from YAML) pass through the same checks of range.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, PlainSerializer

from catchment import units
from catchment.config.secret import Filled
from catchment.config.section import Wrong, kind

T = TypeVar("T")
Check = Callable[[str], T]


def quoted(raw: str, *, hide: bool = False) -> str:
    """A value as an error may show it."""
    if isinstance(raw, Filled):
        return "the value of " + " and ".join(f"${{{name}}}" for name in dict.fromkeys(raw.names))
    return "the value" if hide else ascii(raw if len(raw) <= 60 else raw[:57] + "...")


def of_text(check: Check[T], *, hide: bool = False, ready: type[object] | None = None) -> Callable[[object], T]:
    """A validator from a check of text. `ready` is the type of values that need no parsing."""

    def validate(raw: object) -> T:
        if ready is not None and isinstance(raw, ready):
            return raw  # type: ignore[return-value]  # T is what `ready` names
        if not isinstance(raw, str):
            advice = "put quotes around it" if isinstance(raw, int | float) else "write a text"
            raise Wrong(f"expected text, found {kind(raw)}", advice)
        try:
            return check(str(raw))
        except Wrong as wrong:
            raise Wrong(f"{quoted(raw, hide=hide)} {wrong.what}", wrong.instead) from None

    return validate


def of_pattern(pattern: str, what: str, instead: str) -> Check[str]:
    """A check that the whole text has a form."""
    compiled = re.compile(pattern, re.ASCII)

    def check(text: str) -> str:
        if compiled.fullmatch(text) is None:
            raise Wrong(what, instead)
        return text

    return check


def meant(word: str, allowed: tuple[str, ...]) -> str | None:
    """The allowed word that was probably meant."""
    lowered = {name.lower(): name for name in reversed(allowed)}
    close = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    return lowered[close[0]] if close else None


def choice(*allowed: str) -> BeforeValidator:
    """One of a few words."""

    def check(text: str) -> str:
        if text not in allowed:
            raise Wrong("is not a choice here", f"write one of: {', '.join(allowed)}")
        return text

    return BeforeValidator(of_text(check))


def whole(minimum: int, maximum: int | None = None) -> BeforeValidator:
    """A whole number within bounds."""
    bounds = f"from {minimum} to {maximum}" if maximum is not None else f"of {minimum} or more"

    def validate(raw: object) -> int:
        if isinstance(raw, Filled) and re.fullmatch(r"-?[0-9]{1,18}", raw, re.ASCII):
            number: object = int(raw)
        elif isinstance(raw, Filled):
            raise Wrong(f"{quoted(raw)} is not a whole number", f"set it to one {bounds}")
        else:
            number = raw
        if not isinstance(number, int) or isinstance(number, bool):
            raise Wrong(f"expected a whole number, found {kind(raw)}", f"write one {bounds}, without quotes")
        if number < minimum or (maximum is not None and number > maximum):
            shown = quoted(raw) if isinstance(raw, Filled) else str(number)
            raise Wrong(f"{shown} is out of range", f"write a whole number {bounds}")
        return number

    return BeforeValidator(validate)


def _flag(raw: object) -> bool:
    if isinstance(raw, Filled) and raw in ("true", "false"):
        return raw == "true"
    if not isinstance(raw, bool):
        shown = quoted(raw) if isinstance(raw, str) else kind(raw)
        raise Wrong(f"expected true or false, found {shown}", "write true or false, without quotes")
    return raw


def _many(raw: object) -> object:
    if isinstance(raw, list | tuple):
        return tuple(raw)
    raise Wrong(f"expected a list, found {kind(raw)}", "write one entry a line, each after '- '")


def _one_or_many(raw: object) -> object:
    return (raw,) if isinstance(raw, str) else _many(raw)


Flag = Annotated[bool, BeforeValidator(_flag)]
Many = Annotated[tuple[T, ...], BeforeValidator(_many)]
OneOrMany = Annotated[tuple[T, ...], BeforeValidator(_one_or_many)]
Count = Annotated[int, whole(1)]
CountOrZero = Annotated[int, whole(0)]
Port = Annotated[int, whole(1, 65535)]


# -- durations, sizes, shares, times ---------------------------------------------------------------------------------


def duration(*, least: str = "", most: str = "", zero: bool = False) -> BeforeValidator:
    """A duration within bounds that are given as text."""

    def check(text: str) -> timedelta:
        if re.match(r"-\s*[0-9.]", text):
            raise Wrong("is negative", units.DURATION_FORM)
        try:
            return units.parse_duration(text)
        except ValueError:
            raise Wrong("is not a duration", units.DURATION_FORM) from None

    parse = of_text(check, ready=timedelta)

    def validate(raw: object) -> timedelta:
        if isinstance(raw, int | float) and not isinstance(raw, bool):
            raise Wrong(f"{raw} has no unit", units.DURATION_FORM)
        value = parse(raw)
        if value < timedelta(0) or (not value and not zero):
            raise Wrong("must be more than zero", units.DURATION_FORM)
        if least and value < units.parse_duration(least):
            raise Wrong(f"is shorter than {least}", f"write {least} or more")
        if most and value > units.parse_duration(most):
            raise Wrong(f"is longer than {most}", f"write {most} or less")
        return value

    return BeforeValidator(validate)


def _size(raw: object) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        raise Wrong(f"{raw} has no unit", units.SIZE_FORM)

    def check(text: str) -> int:
        try:
            size = units.parse_size(text)
        except ValueError:
            raise Wrong("is not a size", units.SIZE_FORM) from None
        if not size:
            raise Wrong("must be more than zero", units.SIZE_FORM)
        return size

    return of_text(check)(raw)


def _share(raw: object) -> float:
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        raise Wrong(f"{raw} has no percent sign", units.SHARE_FORM)

    def check(text: str) -> float:
        try:
            return units.parse_share(text)
        except ValueError:
            raise Wrong("is not a share", units.SHARE_FORM) from None

    return of_text(check)(raw)


def _time(text: str) -> datetime:
    try:
        return units.parse_time(text)
    except ValueError:
        raise Wrong("is not a time with a zone", units.TIME_FORM) from None


_SHOWN_DURATION = PlainSerializer(units.format_duration, return_type=str, when_used="json")
Period = Annotated[timedelta, duration(), _SHOWN_DURATION]
Wait = Annotated[timedelta, duration(zero=True), _SHOWN_DURATION]
FeedPeriod = Annotated[timedelta, duration(least="10ms", most="1h"), _SHOWN_DURATION]
Size = Annotated[int, BeforeValidator(_size), PlainSerializer(units.format_size, return_type=str, when_used="json")]
Share = Annotated[
    float, BeforeValidator(_share), PlainSerializer(units.format_share, return_type=str, when_used="json")
]
Moment = Annotated[
    datetime,
    BeforeValidator(of_text(_time, ready=datetime)),
    PlainSerializer(units.format_time, return_type=str, when_used="json"),
]

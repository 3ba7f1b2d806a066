"""Maps that are open to any name: headers, client settings, environment. Values hide themselves where they must."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, PlainSerializer, PlainValidator

from catchment.config.fields import Check, of_pattern, of_text
from catchment.config.names import NAME_FORM
from catchment.config.secret import Filled, Secret
from catchment.config.section import Loc, Wrong, kind, refuse

T = TypeVar("T")
_SCALAR = str | int | float | bool


def scalar_text(raw: object) -> str:
    """A text, number or true/false as the text that a client takes."""
    if isinstance(raw, bool):
        return str(raw).lower()
    if isinstance(raw, _SCALAR):
        return str(raw)
    raise Wrong(f"expected text, a number or true or false, found {kind(raw)}", "write 'name: value'")


def open_map(check_name: Check[object], check_value: Callable[[str, object], T]) -> PlainValidator:
    """A map whose names and values are each checked, with every problem at its own place."""

    def validate(raw: object) -> Mapping[str, T]:
        if not isinstance(raw, Mapping):
            raise Wrong(
                f"expected names and values, found {kind(raw)}", "indent them below it, one 'name: value' a line"
            )
        found: list[tuple[Loc, str]] = []
        checked: dict[str, T] = {}
        for name, value in raw.items():
            try:
                check_name(name)
                checked[name] = check_value(name, value)
            except Wrong as wrong:
                found.append(((name,), str(wrong)))
        refuse(found)
        return checked

    return PlainValidator(validate)


def secret_text(raw: object) -> Secret:
    """A text that hides itself, and that fits into one line of a request or a setting."""

    def check(text: str) -> Secret:
        if not text:
            raise Wrong("is empty", "write a text, or leave the key out")
        if not text.isprintable():
            raise Wrong(
                "has a line break or control character in it", "remove it; a trailing newline is often the cause"
            )
        return Secret(text)

    return of_text(check, hide=True, ready=Secret)(raw)


def _header_value(_: str, raw: object) -> Secret:
    secret = secret_text(raw)
    if not secret.reveal().isascii() or secret.reveal() != secret.reveal().strip():
        raise Wrong("the value cannot be sent in a header", "use ASCII characters, without spaces at the ends")
    return secret


_TELLTALE = re.compile(r"password|passphrase|secret|key|token|jaas|credential|sasl\.user|auth", re.IGNORECASE)


def _setting(name: str, raw: object) -> str | Secret:
    if isinstance(raw, Secret):
        return raw
    if not isinstance(raw, _SCALAR):
        raise Wrong(f"expected text, a number or true or false, found {kind(raw)}", "write 'name: value'")
    if "\0" in (text := scalar_text(raw)):
        raise Wrong("the value has a NUL character in it", "remove it")
    # What came from the environment is hidden whatever the name is: we cannot know better.
    return Secret(text) if isinstance(raw, Filled) or _TELLTALE.search(name) else text


def _show(value: object) -> object:
    return {name: str(held) for name, held in value.items()} if isinstance(value, Mapping) else str(value)


_SHOWN_MAP = PlainSerializer(_show, when_used="json")
_header_name = of_pattern(
    r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}", "the name is not that of a header", "write one like x-api-key"
)
_setting_name = of_pattern(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", "the name is not that of a setting", "write one like fetch.max.bytes"
)
_variable = of_pattern(r"[A-Za-z_][A-Za-z0-9_]{0,127}", "the name is not that of a variable", NAME_FORM)

SecretText = Annotated[Secret, BeforeValidator(secret_text), PlainSerializer(str, return_type=str, when_used="json")]
Headers = Annotated[Mapping[str, Secret], open_map(_header_name, _header_value), _SHOWN_MAP]
Settings = Annotated[Mapping[str, str | Secret], open_map(_setting_name, _setting), _SHOWN_MAP]
Environment = Annotated[
    Mapping[str, Secret],
    open_map(_variable, lambda _, raw: raw if isinstance(raw, Secret) else Secret(scalar_text(raw))),
    _SHOWN_MAP,
]

"""Values that hide themselves: in repr, str, f-strings, logs, JSON and errors. Only `reveal()` gives them away."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

HIDDEN = "***"


class Secret:
    """A text that shows itself as `***`. Equal to another one with the same text; can be pickled for executors."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The text itself. Hand it to the client that needs it, and nowhere else."""
        return self._value

    def __str__(self) -> str:
        return HIDDEN

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{self}')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and type(other) is type(self) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


class Url(Secret):
    """A URL that shows itself without user, password, query and fragment: https://***@host/path?***."""

    __slots__ = ()

    def __str__(self) -> str:
        return shown_url(self._value)


class Filled(str):
    """A text that came, at least in part, out of the environment: a secret, for all we know."""

    names: tuple[str, ...]  # of the variables

    def __new__(cls, value: str, names: tuple[str, ...]) -> Filled:
        filled = super().__new__(cls, value)
        filled.names = names
        return filled


def shown_url(url: str) -> str:
    """What of a URL may be printed. A text that cannot be read as a URL is hidden whole."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        port = parts.port
    except ValueError:
        return HIDDEN
    if not host:
        return HIDDEN
    user = f"{HIDDEN}@" if "@" in parts.netloc else ""
    place = (f"[{host}]" if ":" in host else host) + ("" if port is None else f":{port}")
    tail = f"?{HIDDEN}" if parts.query or parts.fragment else ""
    return f"{parts.scheme}://{user}{place}{parts.path}{tail}"


def revealed(settings: Mapping[str, str | Secret]) -> dict[str, str]:
    """Open settings as plain text, for the client they are meant for."""
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in settings.items()}

"""The line in which Java's Kafka client takes a login: `sasl.jaas.config`."""

from __future__ import annotations

import re
from collections.abc import Mapping

_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
MECHANISMS = tuple(_MODULES)  # those that log in with a name and a password
_FLAGS = ("required", "requisite", "sufficient", "optional")
# As Java's tokenizer cuts it: comments, texts in double or single quotes, words, and the two signs.
_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | "(?P<double>(?:\\.|[^"\\\r\n])*)" | '(?P<single>(?:\\.|[^'\\\r\n])*)'
    | (?P<word>[^\W\d][\w$.-]*|[$-][\w$.-]*) | (?P<sign>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_NAMED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def jaas(mechanism: str, username: str, password: str) -> str:
    """The line for this login. KeyError if the mechanism is not one of MECHANISMS."""
    return f"{_MODULES[mechanism]} required username={_quoted(username)} password={_quoted(password)};"


def options(line: str) -> Mapping[str, str]:
    """The options of the one login in the line. ValueError, which does not quote it, if it is not such a line."""
    tokens = _tokens(line)
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS or tokens[-1] != ";" or ";" in tokens[:-1]:
        raise ValueError("it is not one login")
    rest = tokens[2:-1]
    if len(rest) % 3 or any(sign != "=" for sign in rest[1::3]):
        raise ValueError("its options are not name=value")
    return dict(zip(rest[0::3], (_Text.value(text) for text in rest[2::3]), strict=True))


class _Text(str):
    """What stood in quotes; never mistaken for a sign."""

    held: str

    @classmethod
    def quoted(cls, raw: str) -> _Text:
        text = cls(f'"{raw}"')
        text.held = _ESCAPE.sub(lambda found: _meant(found[1]), raw)
        return text

    @staticmethod
    def value(token: str) -> str:
        return token.held if isinstance(token, _Text) else token


def _tokens(line: str) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(line):
        token = _TOKEN.match(line, at)
        if token is None:
            raise ValueError("it cannot be read")
        at = token.end()
        if token.lastgroup in ("double", "single"):
            found.append(_Text.quoted(token[token.lastgroup]))
        elif token.lastgroup:
            found.append(token[token.lastgroup])
    return found


def _meant(escaped: str) -> str:
    return chr(int(escaped, 8)) if escaped.isdigit() and escaped < "8" else _NAMED.get(escaped, escaped)


def _quoted(text: str) -> str:
    kept = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{kept}"'

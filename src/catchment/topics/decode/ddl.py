"""Declared schemas: columns as in CREATE TABLE, in Spark's words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from catchment.errors import UsageError
from catchment.topics.decode.schema import ARRAY, MAP, STRUCT, Field, Kind, Schema

_WORDS = {
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "TINYINT",
    "BYTE": "TINYINT",
    "SMALLINT": "SMALLINT",
    "SHORT": "SMALLINT",
    "INT": "INT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "LONG": "BIGINT",
    "FLOAT": "FLOAT",
    "REAL": "FLOAT",
    "DOUBLE": "DOUBLE",
    "STRING": "STRING",
    "BINARY": "BINARY",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMP_NTZ": "TIMESTAMP_NTZ",
}
_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>\w+)|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<mark>[<>(),:]))"
)


def parse(ddl: str) -> Schema:
    """The declared fields. UsageError says what is wrong and where; NOT NULL is refused, COMMENT is ignored."""
    reader = _Reader(ddl)
    fields = reader.fields(end="")
    schema = Schema(fields)
    if why := schema.misnamed():
        raise reader.wrong(why)
    return schema


@dataclass
class _Reader:
    ddl: str
    at: int = 0

    def wrong(self, why: str) -> UsageError:
        return UsageError(
            f"a declared schema is wrong near {self.ddl[max(self.at - 20, 0) : self.at + 20]!r}: {why}",
            hint="write columns as in CREATE TABLE: id BIGINT, tags ARRAY<STRING>, price DECIMAL(10,2)",
        )

    def peek(self) -> tuple[str, str]:
        """What kind of token comes next, and its text. ("", "") at the end."""
        if not self.ddl[self.at :].strip():
            return "", ""
        found = _TOKEN.match(self.ddl, self.at)
        if found is None or found.lastgroup is None:
            raise self.wrong("this cannot be read")
        return found.lastgroup, found[found.lastgroup]

    def next(self) -> tuple[str, str]:
        token = self.peek()
        found = _TOKEN.match(self.ddl, self.at)
        self.at = found.end() if found and token[0] else len(self.ddl)
        return token

    def take(self, mark: str) -> bool:
        """Whether this mark came next; if so it is gone over."""
        if self.peek()[1] == mark and self.peek()[0] in ("mark", ""):
            self.next()
            return True
        return False

    def need(self, mark: str) -> None:
        if not self.take(mark):
            raise self.wrong(f"{mark!r} is missing" if mark else "there is something after the last column")

    def fields(self, end: str) -> tuple[Field, ...]:
        found: dict[str, Field] = {}
        while not (end and not found and self.take(end)):
            name = self.name()
            self.take(":")
            if name.lower() in found:
                raise self.wrong(f"{name} is declared twice (names that differ only in case are the same)")
            found[name.lower()] = Field(name, self.kind())
            self.extras()
            if not self.take(","):
                self.need(end)
                break
        return tuple(found.values())

    def name(self) -> str:
        group, text = self.next()
        if group == "quoted":
            return text[1:-1].replace("``", "`")
        if group != "word":
            raise self.wrong("the name of a column is missing; put unusual names in `backquotes`")
        return text

    def kind(self) -> Kind:
        group, text = self.next()
        word = text.upper()
        if group != "word":
            raise self.wrong("the type of a column is missing")
        if word in _WORDS:
            return Kind(_WORDS[word])
        if word in ("DECIMAL", "NUMERIC", "DEC"):
            return Kind("DECIMAL", digits=self.digits())
        if word == "STRUCT":
            self.need("<")
            return Kind(STRUCT, fields=self.fields(">"))
        if word == "ARRAY":
            self.need("<")
            item = self.kind()
            self.need(">")
            return Kind(ARRAY, item=item)
        if word == "MAP":
            self.need("<")
            if self.kind() != Kind("STRING"):
                raise self.wrong("the keys of a MAP are STRING, because names of fields are text")
            self.need(",")
            item = self.kind()
            self.need(">")
            return Kind(MAP, item=item)
        raise self.wrong(
            f"{text} is not a type; use one of: {', '.join(sorted({*_WORDS.values()}))}, DECIMAL(p,s), ..."
        )

    def digits(self) -> tuple[int, int]:
        if not self.take("("):
            return 10, 0
        numbers = [self.number()]
        if self.take(","):
            numbers.append(self.number())
        self.need(")")
        precision, scale = numbers[0], numbers[1] if len(numbers) > 1 else 0
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise self.wrong(f"DECIMAL({precision},{scale}) has a precision from 1 to 38 and a scale up to it")
        return precision, scale

    def number(self) -> int:
        group, text = self.next()
        if group != "word" or not text.isascii() or not text.isdigit():
            raise self.wrong("a number is missing")
        return int(text)

    def extras(self) -> None:
        while self.peek()[0] == "word":
            word = self.next()[1].upper()
            if word == "COMMENT" and self.peek()[0] == "text":
                self.next()
            elif word == "NOT":
                raise self.wrong("NOT NULL cannot be promised for messages of others; remove it")
            else:
                raise self.wrong(f"{word} is not known here")

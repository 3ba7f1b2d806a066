"""What the objects of an export are called. A name is its value, and parsing proves it: `str(parse(text)) == text`.

    topics/<group>/<topic>/<name>=<value>/…/<generation>_<source>_<first>-<last>_<fingerprint>.<ext>   an export file
    topics/<group>/<topic>/_commits/<source>/<first>.json    the manifest of one range; its put-if-absent is the commit
    topics/<group>/<topic>/_offsets/<source>.json            the hint: newest committed offset known, claim, heartbeat
    topics/<group>/<topic>/_dead/<file name>                 records that could not be used: always Parquet
    topics/<group>/<topic>/_schemas/<type>.json              the schema recorded for a type
    topics/<group>/<topic>/_export.json                      which topic this is, where it began, its generations
    topics/<group>/<topic>/_finalized.json                   up to when days (or hours) are closed
    topics/<group>/<topic>/<name>=<value>/…/_SUCCESS         this folder is closed; lists its files

Offsets have 20 digits, so that names sort as numbers do. A source is a Kafka partition of one life of the topic: `3`,
and once the topic was deleted, made again and accepted as its successor, `3r1`: offsets begin anew, names never clash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from catchment.errors import BadKey

ROOT = "topics"
DIGITS = 20
SUCCESS = "_SUCCESS"
LATE = "_LATE"
DEAD = "_dead"
FINGERPRINT = 12  # characters of a fingerprint in a name

_SOURCE = re.compile(r"(?P<partition>0|[1-9]\d{0,9})(?:r(?P<life>[1-9]\d{0,5}))?", re.ASCII)
_FILE = re.compile(
    rf"(?P<generation>[1-9]\d*)_(?P<source>[0-9r]+)_(?P<first>\d{{{DIGITS}}})-(?P<last>\d{{{DIGITS}}})"
    rf"_(?P<fingerprint>[0-9a-f]{{{FINGERPRINT}}})\.(?P<ext>[a-z0-9.]+)",
    re.ASCII,
)
# What Hive and Spark escape in the value of a folder, so that both read it back.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")
_ESCAPED = re.compile(r"%([0-9A-F]{2})")


@dataclass(frozen=True, order=True)
class Source:
    """One Kafka partition, in one life of its topic."""

    partition: int
    life: int = 0

    def __str__(self) -> str:
        return f"{self.partition}r{self.life}" if self.life else str(self.partition)

    @classmethod
    def parse(cls, text: str) -> Source:
        """ValueError unless `str` of what is found is the text."""
        found = _SOURCE.fullmatch(text)
        if found is None:
            raise ValueError(f"{text[:60]!r} is not a Kafka partition; write its number, as in 3")
        return cls(int(found["partition"]), int(found["life"] or 0))


@dataclass(frozen=True)
class FileName:
    """The last part of an export file's key. The same in all folders that one range fills, but for the fingerprint."""

    generation: int
    source: Source
    first: int  # of the range, not of the file
    last: int
    fingerprint: str
    ext: str

    def __str__(self) -> str:
        bounds = f"{self.first:0{DIGITS}d}-{self.last:0{DIGITS}d}"
        return f"{self.generation}_{self.source}_{bounds}_{self.fingerprint}.{self.ext}"

    @classmethod
    def parse(cls, text: str) -> FileName:
        """ValueError unless `str` of what is found is the text."""
        found = _FILE.fullmatch(text)
        if found is None:
            raise ValueError(f"{text[:120]!r} is not the name of an export file")
        name = cls(
            int(found["generation"]),
            Source.parse(found["source"]),
            int(found["first"]),
            int(found["last"]),
            found["fingerprint"],
            found["ext"],
        )
        if name.first > name.last:
            raise ValueError(f"{text[:120]!r} ends before it begins")
        return name


@dataclass(frozen=True, order=True)
class Place:
    """Where one export of one topic lives: the keys of everything it has."""

    group: str
    topic: str

    @property
    def prefix(self) -> str:
        return f"{ROOT}/{self.group}/{self.topic}/"

    def __str__(self) -> str:
        return f"{self.group}/{self.topic}"

    def export(self) -> str:
        return f"{self.prefix}_export.json"

    def finalized(self) -> str:
        return f"{self.prefix}_finalized.json"

    def hint(self, source: Source) -> str:
        return f"{self.prefix}_offsets/{source}.json"

    def commits(self, source: Source | None = None) -> str:
        """The prefix of the manifests of one source, or of all."""
        return f"{self.prefix}_commits/" + (f"{source}/" if source else "")

    def commit(self, source: Source, first: int) -> str:
        return f"{self.commits(source)}{first:0{DIGITS}d}.json"

    def schemas(self) -> str:
        return f"{self.prefix}_schemas/"

    def schema(self, type_name: str) -> str:
        """Of one type; the empty name is of an export that is not split by anything but time."""
        return f"{self.schemas()}{escape(type_name) or '_'}.json"

    def file(self, folder: str, name: FileName) -> str:
        """`folder` is `type=a/day=2026-11-15`, or empty."""
        return f"{self.prefix}{folder}/{name}" if folder else f"{self.prefix}{name}"

    def dead(self, name: FileName) -> str:
        return f"{self.prefix}{DEAD}/{name}"

    def success(self, folder: str) -> str:
        return f"{self.prefix}{folder}/{SUCCESS}" if folder else f"{self.prefix}{SUCCESS}"

    def late(self, folder: str) -> str:
        return f"{self.prefix}{folder}/{LATE}" if folder else f"{self.prefix}{LATE}"

    def parse_commit(self, key: str) -> tuple[Source, int]:
        """The source and the first offset of a manifest's key. BadKey if it is not one."""
        parts = key.removeprefix(self.commits()).split("/")
        if key.startswith(self.commits()) and len(parts) == 2 and re.fullmatch(rf"\d{{{DIGITS}}}\.json", parts[1]):
            try:
                source, first = Source.parse(parts[0]), int(parts[1][:DIGITS])
            except ValueError:
                pass
            else:
                if self.commit(source, first) == key:
                    return source, first
        raise BadKey(f"{key} is not the name of a manifest", key=key, hint="look at it, and move it away by hand")

    def parse_file(self, key: str) -> tuple[str, FileName]:
        """The folder and the name of an export file's key. ValueError if it is not one.

        The folder is empty, `_dead`, or made of `name=value` parts: a schema's name can look like a file's.
        """
        folder, _, text = key.removeprefix(self.prefix).rpartition("/")
        name = FileName.parse(text)
        if folder != DEAD:
            values_of(folder)
        if self.file(folder, name) != key:
            raise ValueError(f"{key[:200]!r} is not the name of an export file under {self.prefix}")
        return folder, name


def escape(value: str) -> str:
    """A value as the name of a folder, as Hive and Spark write it: what could leave or confuse the path becomes %XX."""
    text = _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", value)
    if text in (".", ".."):  # these would leave the folder
        return text.replace(".", "%2E")
    if text[:1] in ("_", ".") or text != text.strip():  # hidden files to Spark; spaces that people do not see
        first = f"%{ord(text[0]):02X}" if text[0] in "_. " else text[0]
        text = first + text[1:]
        if text.endswith(" "):
            text = text[:-1] + "%20"
    return text


def unescape(text: str) -> str:
    """What `escape` was given."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def folder_of(values: Iterable[tuple[str, str]]) -> str:
    """`type=a/day=2026-11-15` from the names and values of the splits; values are escaped here."""
    return "/".join(f"{name}={escape(value)}" for name, value in values)


def values_of(folder: str) -> dict[str, str]:
    """The names and values of a folder, in order. ValueError if it is not made of `name=value` parts."""
    found: dict[str, str] = {}
    for part in folder.split("/") if folder else ():
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{folder[:200]!r} is not made of name=value parts")
        found[name] = unescape(value)
    return found

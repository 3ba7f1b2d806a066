"""The fields of one type of message: names, types, and how they grow.

A kind is what a field holds. Its word in a document is the one that people write in DDL, with three more:

    STRING   declared: text as it is, and anything else as its JSON text. Inferred (`word` is "string"): text only
    json     values of different kinds were seen in this field: every value is kept as its JSON text, strings in quotes
    void     only null was seen so far. There is no column yet: it appears when a value does

An object without fields and an array of nulls are known as STRUCT<> and ARRAY<void>, and have no column either. What
was seen decides what a later value may be, so a row does not depend on which rows were decoded with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from catchment.errors import CatchmentError
from catchment.topics.records import OWN

KEPT = "__record_"  # begins the names of a record's own columns, where they go along with decoded ones
MAX_FIELDS = 2000  # of one type, nested ones included
TOO_MANY = f"more than {MAX_FIELDS} fields; declare the one that grows as MAP<STRING, …> or STRING"
STRUCT, ARRAY, MAP = "STRUCT", "ARRAY", "MAP"
VOID, JSON, TEXT = "void", "json", "string"
BOOLEAN, BIGINT, DOUBLE = "BOOLEAN", "BIGINT", "DOUBLE"

_LEAVES: dict[str, pa.DataType] = {
    VOID: pa.null(),
    JSON: pa.string(),
    TEXT: pa.string(),
    "STRING": pa.string(),
    BOOLEAN: pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    BIGINT: pa.int64(),
    "FLOAT": pa.float32(),
    DOUBLE: pa.float64(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}


class SchemaClash(CatchmentError):
    """A field has another type elsewhere. `path` names it."""

    def __init__(self, path: str, ours: str, theirs: str) -> None:
        super().__init__(f"{path} is {ours} here and {theirs} there")
        self.path, self.ours, self.theirs = path, ours, theirs


@dataclass(frozen=True)
class Kind:
    """What a field holds."""

    word: str  # STRUCT, ARRAY, MAP, DECIMAL or a leaf
    fields: tuple[Field, ...] = ()  # of a STRUCT
    item: Kind | None = None  # of an ARRAY, or the values of a MAP
    digits: tuple[int, int] = (0, 0)  # of a DECIMAL: precision and scale
    by_name: dict[str, Field] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {one.name: one for one in self.fields})

    def __str__(self) -> str:
        """As DDL, for people."""
        if self.word == STRUCT:
            return f"STRUCT<{', '.join(f'{one.name}: {one.kind}' for one in self.fields)}>"
        if self.word == ARRAY:
            return f"ARRAY<{self.item}>"
        if self.word == MAP:
            return f"MAP<STRING, {self.item}>"
        if self.word == "DECIMAL":
            return f"DECIMAL({self.digits[0]},{self.digits[1]})"
        return {TEXT: "STRING", JSON: "STRING (as JSON text)"}.get(self.word, self.word)

    @property
    def open(self) -> bool:
        """Whether there is no column yet: nothing but null, {} and [] was seen."""
        if self.word == STRUCT:
            return all(one.kind.open for one in self.fields)
        if self.word in (ARRAY, MAP):
            return self.inner.open
        return self.word == VOID

    @property
    def inner(self) -> Kind:
        """Of an ARRAY or a MAP."""
        assert self.item is not None
        return self.item

    def below(self, name: str) -> Kind:
        """Of a field of a STRUCT; void if there is no such field."""
        known = self.by_name.get(name)
        return known.kind if known is not None else Kind(VOID)

    def arrow(self, *, hidden: bool = False) -> pa.DataType:
        """The type of the column. With `hidden` it also holds that an object or an array was there, though open."""
        if self.word == STRUCT:
            shown = [one for one in self.fields if not (one.kind.word == VOID if hidden else one.kind.open)]
            return pa.struct([pa.field(one.name, one.kind.arrow(hidden=hidden)) for one in shown])
        if self.word == ARRAY:
            return pa.list_(pa.field("element", self.inner.arrow(hidden=hidden)))
        if self.word == MAP:
            return pa.map_(pa.string(), pa.field("value", self.inner.arrow(hidden=hidden)))
        if self.word == "DECIMAL":
            return pa.decimal128(*self.digits)
        return _LEAVES[self.word]

    def plain(self) -> object:
        if self.word == STRUCT:
            return {"struct": [[one.name, one.kind.plain()] for one in self.fields]}
        if self.word == ARRAY:
            return {"array": self.inner.plain()}
        if self.word == MAP:
            return {"map": self.inner.plain()}
        if self.word == "DECIMAL":
            return {"decimal": list(self.digits)}
        return self.word

    @classmethod
    def parse(cls, plain: Any) -> Kind:
        """ValueError if it is not what `plain` gives."""
        match plain:
            case str() if plain in _LEAVES:
                return cls(plain)
            case {"struct": list(fields)}:
                return cls(STRUCT, fields=tuple(Field(str(name), cls.parse(kind)) for name, kind in fields))
            case {"array": item}:
                return cls(ARRAY, item=cls.parse(item))
            case {"map": item}:
                return cls(MAP, item=cls.parse(item))
            case {"decimal": [int(precision), int(scale)]}:
                return cls("DECIMAL", digits=(precision, scale))
        raise ValueError(f"{str(plain)[:100]!r} is not the type of a field")


@dataclass(frozen=True)
class Field:
    """One field and what it holds."""

    name: str
    kind: Kind


@dataclass(frozen=True)
class Schema:
    """The fields of one type, in the order of their first appearance, declared ones first."""

    fields: tuple[Field, ...] = ()

    @property
    def kind(self) -> Kind:
        return Kind(STRUCT, fields=self.fields)

    def arrow(self) -> pa.Schema:
        """The columns of the message's fields alone: those of which a value was seen or that are declared."""
        return pa.schema(list(self.kind.arrow()))

    def plain(self) -> object:
        """As JSON takes it; stable. `parse` gives the schema back."""
        return [[one.name, one.kind.plain()] for one in self.fields]

    @classmethod
    def parse(cls, plain: Any) -> Schema:
        """ValueError if it is not what `plain` gives."""
        if not isinstance(plain, list):
            raise ValueError(f"{str(plain)[:100]!r} is not a list of fields")
        try:
            return cls(tuple(Field(str(name), Kind.parse(kind)) for name, kind in plain))
        except TypeError as error:
            raise ValueError(f"{str(plain)[:100]!r} is not a list of fields") from error

    def grown(self, found: Schema) -> Schema:
        """Both: our fields, then those that only the other has. SchemaClash if a field has another type there.

        What is open takes the other's type. Which of the two is asked changes the order alone.
        """
        return Schema(_united(self.fields, found.fields, "", _exact))

    def mixed(self, found: Schema) -> Schema:
        """As `grown`, for fields that are not recorded yet: where types differ, one is found that holds both.

        SchemaClash only if two of the fields differ in case alone; where their own fields do, they are JSON text.
        """
        return Schema(_united(self.fields, found.fields, "", _either))

    def agreed(self, found: Schema) -> Schema:
        """As `mixed`, but SchemaClash where nothing short of JSON text would hold both."""
        return Schema(_united(self.fields, found.fields, "", _alike))

    def keeping(self, found: Schema) -> Schema:
        """As `grown`, but where types differ ours stays. SchemaClash only if names differ in case alone."""
        return Schema(_united(self.fields, found.fields, "", _ours))

    def without_clash(self, other: Schema) -> Schema:
        """Ours, and those fields of the other that do not clash with it."""
        ours = self
        for one in other.fields:
            try:
                ours = ours.grown(Schema((one,)))
            except SchemaClash:
                continue
        return ours

    def count(self) -> int:
        """How many fields, nested ones included."""
        return sum(1 for _ in _walk(self.kind))

    def misnamed(self) -> str | None:
        """Why a name cannot be a column, if there is such a one: it is one of our own."""
        taken = (one.name for one in self.fields if one.name.lower() in OWN or one.name.lower().startswith(KEPT))
        return next(
            (f"{shown(name)}: this name is taken by a column of our own; rename the field" for name in taken), None
        )


def shown(name: str, most: int = 60) -> str:
    """The name of a field in a sentence: whole, or shortened; in quotes if it would not be seen otherwise."""
    short = name if len(name) <= most else name[: most - 1] + "…"
    return short if short and short.isprintable() and " " not in short else repr(short)


def within(path: str, name: str) -> str:
    """The path of a field of a field."""
    return f"{path}.{shown(name)}" if path else shown(name)


def structured(fields: Iterable[Field]) -> Kind:
    """The kind of an object that nobody has seen. JSON text if names in it differ in case alone: no STRUCT has both."""
    found = tuple(fields)
    return Kind(STRUCT, fields=found) if len({one.name.lower() for one in found}) == len(found) else Kind(JSON)


def _walk(kind: Kind) -> Iterator[Field]:
    for one in kind.fields:
        yield one
        yield from _walk(one.kind)
    if kind.item is not None:
        yield from _walk(kind.item)


def _united(ours: Iterable[Field], theirs: Iterable[Field], path: str, leaf: Any) -> tuple[Field, ...]:
    found = {one.name: one for one in ours}
    folded = {name.lower(): name for name in found}
    for one in theirs:
        known = folded.setdefault(one.name.lower(), one.name)
        if known != one.name:
            raise SchemaClash(within(path, one.name), "a name in another case", shown(known))
        if one.name in found:
            kind = _both(found[one.name].kind, one.kind, within(path, one.name), leaf)
            found[one.name] = replace(found[one.name], kind=kind)
        else:
            found[one.name] = one
    return tuple(found.values())


def _both(ours: Kind, theirs: Kind, path: str, leaf: Any) -> Kind:
    if ours == theirs or theirs.word == VOID:
        return ours
    if ours.word == VOID:
        return theirs
    if ours.word == theirs.word == STRUCT:
        try:
            return Kind(STRUCT, fields=_united(ours.fields, theirs.fields, path, leaf))
        except SchemaClash:
            if leaf is not _either:
                raise
            return Kind(JSON)
    if ours.word == theirs.word == ARRAY:
        return Kind(ARRAY, item=_both(ours.inner, theirs.inner, f"{path}[]", leaf))
    if ours.word == theirs.word == MAP:
        return Kind(MAP, item=_both(ours.inner, theirs.inner, f"{path}[]", leaf))
    kind: Kind = leaf(ours, theirs, path)
    return kind


def _exact(ours: Kind, theirs: Kind, path: str) -> Kind:
    raise SchemaClash(path, str(ours), str(theirs))


def _ours(ours: Kind, theirs: Kind, path: str) -> Kind:
    return ours


def _alike(ours: Kind, theirs: Kind, path: str) -> Kind:
    kind = _either(ours, theirs, path)
    if kind.word == JSON and ours.word != JSON:
        raise SchemaClash(path, str(ours), str(theirs))
    return kind


def _either(ours: Kind, theirs: Kind, path: str) -> Kind:
    return Kind(DOUBLE) if {ours.word, theirs.word} == {BIGINT, DOUBLE} else Kind(JSON)

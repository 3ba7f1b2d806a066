"""What DuckDB says about the structure of a message, compared with a kind: sure, or in doubt.

`json_structure` names the kinds of all fields of a text and is the same for all texts that look alike, so a chunk has
few of them. Its words are not exact: "JSON" stands for {} and for an array of different things, names that come twice
are folded into one, and great numbers do not show. What is in doubt is looked at by itself (`value.py`).
"""

from __future__ import annotations

import json
from typing import Any

from catchment.topics.decode.schema import (
    ARRAY,
    BIGINT,
    BOOLEAN,
    DOUBLE,
    JSON,
    MAP,
    STRUCT,
    TEXT,
    VOID,
    Field,
    Kind,
    Schema,
    SchemaClash,
)

GREAT = r"9[2-9]\d{17}|\d{20}"  # in a text that may hold an integer beyond 64 bits; its structure does not tell
_WHOLE = ("UBIGINT", "BIGINT", "HUGEINT")
_SURE = {  # the words that fit a kind, whatever the value is
    BOOLEAN: ("BOOLEAN",),
    BIGINT: _WHOLE,
    DOUBLE: (*_WHOLE, "DOUBLE"),  # the reader minds great numbers
    TEXT: ("VARCHAR",),
}
_FOUND = {"BOOLEAN": BOOLEAN, **dict.fromkeys(_WHOLE, BIGINT), "DOUBLE": DOUBLE, "VARCHAR": TEXT, "NULL": VOID}


class Doubt(Exception):
    """The structure does not tell."""


def studied(kind: Kind, structure: str) -> Kind:
    """What texts of this structure bring, as `value.brings` says it of one. Doubt if they may not fit."""
    return _brought(kind, json.loads(structure))


def _brought(kind: Kind, found: Any) -> Kind:
    if found == "NULL":
        return Kind(VOID)
    if kind.word in (JSON, "STRING"):
        return kind
    if kind.word == VOID:
        return _new(found)
    if kind.word == STRUCT and isinstance(found, dict):
        fields = [Field(name, _brought(kind.below(name), one)) for name, one in found.items()]
        return _checked(kind, Kind(STRUCT, fields=tuple(fields)))
    if kind.word == ARRAY and isinstance(found, list):
        return Kind(ARRAY, item=_brought(kind.inner, found[0]))
    if kind.word == MAP and isinstance(found, dict):
        items = Schema((Field("", Kind(VOID)),))
        for one in found.values():
            items = items.mixed(Schema((Field("", _brought(kind.inner, one)),)))
        return Kind(MAP, item=items.fields[0].kind)
    if isinstance(found, str) and found in _SURE.get(kind.word, ()):
        return kind
    raise Doubt


def _checked(kind: Kind, brought: Kind) -> Kind:
    """Doubt if names differ in case alone."""
    try:
        Schema(kind.fields).grown(Schema(brought.fields))
    except SchemaClash:
        raise Doubt from None
    return brought


def _new(found: Any) -> Kind:
    if isinstance(found, dict):
        return _checked(Kind(STRUCT), Kind(STRUCT, fields=tuple(Field(name, _new(one)) for name, one in found.items())))
    if isinstance(found, list):
        return Kind(ARRAY, item=_new(found[0]))
    if found not in _FOUND:
        raise Doubt
    return Kind(_FOUND[found])

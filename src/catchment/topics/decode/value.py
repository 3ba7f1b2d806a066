"""One message looked at by itself: why it does not fit, or what it brings. Exact, and slow: for the few that need it.

Numbers are kept as they were written, so nothing is lost before it is judged.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Iterator
from datetime import date
from decimal import Decimal

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
    shown,
    structured,
    within,
)

ADVICE = "declare another type for it (decode.schemas) in a new generation"
DATE = r"(?:000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})-\d\d-\d\d"
CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?"
TIMESTAMP = rf"{DATE}(?:[T ]{CLOCK}(?:Z|[+-](?:0\d|1[0-4])(?::?[0-5]\d)?)?)?"
WALL = rf"{DATE}(?:[T ]{CLOCK})?"  # a time without a zone
BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
DECIMAL = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?"
_DATE, _TIMESTAMP, _WALL, _BASE64, _DECIMAL = (
    re.compile(one, re.ASCII) for one in (DATE, TIMESTAMP, WALL, BASE64, DECIMAL)
)
_INTEGERS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, BIGINT: 63}
_GREATEST_FLOAT = 3.4028234663852886e38


class Number(str):
    """A number as it was written."""

    @property
    def whole(self) -> bool:
        return self.lstrip("-").isdigit()


class Repeated(dict[str, object]):
    """An object in which a name comes more than once. As a dict it has the first of each; `pairs` has all."""

    pairs: list[tuple[str, object]]


def parse(text: str) -> object:
    """The value of a JSON text. ValueError if it is none."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeated = Repeated(reversed(pairs))
    repeated.pairs = pairs
    return repeated


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=Number, parse_int=Number, parse_constant=Number)


def dump(value: object, kind: Kind | None) -> str:
    """The text of a value, without the names that come again; where JSON text is kept, they stay."""
    if isinstance(value, Number):  # as text, a long fraction is not rounded by those who read it
        return f'"{value}"' if kind is not None and kind.word == "DECIMAL" else str(value)
    if isinstance(value, list):
        inner = kind if kind is not None and kind.word in (JSON, "STRING") else kind.item if kind is not None else None
        return f"[{','.join(dump(one, inner) for one in value)}]"
    if isinstance(value, dict):
        verbatim = kind is not None and kind.word in (JSON, "STRING")
        pairs = value.pairs if verbatim and isinstance(value, Repeated) else value.items()
        return f"{{{','.join(f'{json.dumps(name)}:{dump(one, _below(kind, name))}' for name, one in pairs)}}}"
    return json.dumps(value)


def _below(kind: Kind | None, name: str) -> Kind | None:
    if kind is None or kind.word in (JSON, "STRING"):
        return kind
    if kind.word == MAP:
        return kind.item
    known = kind.by_name.get(name)
    return known.kind if known else None


def repeats(value: object, kind: Kind | None) -> bool:
    """Whether a name comes again in an object, outside of what is kept as JSON text."""
    if kind is not None and kind.word in (JSON, "STRING"):
        return False
    if isinstance(value, list):
        return any(repeats(one, kind.item if kind is not None else None) for one in value)
    if isinstance(value, dict):
        return isinstance(value, Repeated) or any(repeats(one, _below(kind, name)) for name, one in value.items())
    return False


def adds(kind: Kind, value: object) -> bool:
    """Whether `brings` would say anything new."""
    if value is None:
        return False
    if kind.word == STRUCT and isinstance(value, dict):
        return any(name not in kind.by_name or adds(kind.below(name), one) for name, one in value.items())
    if kind.word == ARRAY and isinstance(value, list):
        return any(adds(kind.inner, one) for one in value)
    if kind.word == MAP and isinstance(value, dict):
        return any(adds(kind.inner, one) for one in value.values())
    return kind.word == VOID


def brings(kind: Kind, value: object) -> Kind:
    """The kind with what this value adds to it: fields that were not known. It must fit."""
    if kind.word == VOID:
        return inferred(value)
    if kind.word == STRUCT and isinstance(value, dict):
        added = [Field(name, brings(kind.below(name), one)) for name, one in value.items()]
        return Kind(STRUCT, fields=tuple(added))
    if kind.word == ARRAY and isinstance(value, list):
        return Kind(ARRAY, item=_all(brings(kind.inner, one) for one in value))
    if kind.word == MAP and isinstance(value, dict):
        return Kind(MAP, item=_all(brings(kind.inner, one) for one in value.values()))
    return kind


def inferred(value: object) -> Kind:
    """The kind of a value in a field that nobody has seen."""
    match value:
        case None:
            return Kind(VOID)
        case bool():
            return Kind(BOOLEAN)
        case Number():
            return Kind(BIGINT if value.whole and -(2**63) <= _int(value) < 2**63 else DOUBLE)
        case str():
            return Kind(TEXT)
        case list():
            return Kind(ARRAY, item=_all(inferred(one) for one in value))
        case dict():
            return structured(Field(name, inferred(one)) for name, one in value.items())
    raise TypeError(type(value))


def _all(kinds: Iterator[Kind]) -> Kind:
    found = Schema((Field("", Kind(VOID)),))
    for kind in kinds:
        found = found.mixed(Schema((Field("", kind),)))
    return found.fields[0].kind


def _int(number: str) -> int:
    return int(number) if len(number) < 400 else 10**400  # longer ones fit nowhere, and take long to read


def misfit(kind: Kind, value: object, path: str = "") -> str | None:
    """Why this value cannot be stored in a field of this kind. None if it can. Unknown fields do not matter here."""
    if value is None or kind.word in (VOID, JSON, "STRING"):
        return None
    if kind.word == STRUCT and isinstance(value, dict):
        return next(_misfits(kind, value, path), None)
    if kind.word == ARRAY and isinstance(value, list):
        return next((why for one in value if (why := misfit(kind.inner, one, f"{path}[]"))), None)
    if kind.word == MAP and isinstance(value, dict):
        return next((why for one in value.values() if (why := misfit(kind.inner, one, f"{path}[]"))), None)
    if kind.word not in (STRUCT, ARRAY, MAP) and _FITS[kind.word](kind, value):
        return None
    return f"{path}: {_short(value)} is not {_named(kind)}; {ADVICE}"


def _misfits(kind: Kind, value: dict[str, object], path: str) -> Iterator[str]:
    folded = {one.name.lower(): one.name for one in kind.fields}
    for name, one in value.items():
        known = folded.setdefault(name.lower(), name)
        if known != name:
            yield f"{within(path, name)}: differs only in case from the field {shown(known)}; rename one of them"
        if why := misfit(kind.below(name), one, within(path, name)):
            yield why


def _named(kind: Kind) -> str:
    return {STRUCT: "an object", ARRAY: "an array", MAP: "an object"}.get(kind.word, str(kind))


def _short(value: object) -> str:
    text = dump(value, None) if not isinstance(value, dict | list) else ("{…}" if isinstance(value, dict) else "[…]")
    return text if len(text) <= 40 else text[:39] + "…"


def _integer(kind: Kind, value: object) -> bool:
    limit = 1 << _INTEGERS[kind.word]
    return isinstance(value, Number) and value.whole and -limit <= _int(value) < limit


def _double(kind: Kind, value: object) -> bool:
    if not isinstance(value, Number):
        return False
    number = float(value)
    if value.whole:
        return math.isfinite(number) and int(number) == _int(value)
    return math.isfinite(number) or not value[-1].isdigit()  # 1e999 is not infinity, Infinity is


def _float(kind: Kind, value: object) -> bool:
    if not _double(kind, value):
        return False
    number = float(str(value))
    if not math.isfinite(number):
        return True
    if abs(number) > _GREATEST_FLOAT:
        return False
    return not value.whole or struct.unpack("f", struct.pack("f", number))[0] == number  # type: ignore[attr-defined]


def fits_decimal(kind: Kind, value: object) -> bool:
    """Whether a number, or a text that says one, is a DECIMAL of this kind without rounding."""
    if isinstance(value, bool) or not isinstance(value, str) or not _DECIMAL.fullmatch(value):
        return False
    precision, scale = kind.digits
    _, digits, exponent = Decimal(str(value)).as_tuple()
    written = "".join(map(str, digits)).lstrip("0")
    if not written:
        return True
    trimmed = written.rstrip("0")
    assert isinstance(exponent, int)
    exponent += len(written) - len(trimmed)
    return -exponent <= scale and len(trimmed) + exponent <= precision - scale


def _date(kind: Kind, value: object) -> bool:
    return _calendar(value, _DATE)


def _timestamp(kind: Kind, value: object) -> bool:
    return _calendar(value, _TIMESTAMP)


def _wall(kind: Kind, value: object) -> bool:
    return _calendar(value, _WALL)


def _calendar(value: object, form: re.Pattern[str]) -> bool:
    if isinstance(value, Number) or not isinstance(value, str) or not form.fullmatch(value):
        return False
    try:
        date.fromisoformat(value[:10])
    except ValueError:
        return False
    return True


def _binary(kind: Kind, value: object) -> bool:
    if isinstance(value, Number) or not isinstance(value, str) or not _BASE64.fullmatch(value):
        return False
    base64.b64decode(value)
    return True


_FITS = {
    BOOLEAN: lambda kind, value: isinstance(value, bool),
    TEXT: lambda kind, value: isinstance(value, str) and not isinstance(value, Number),
    **dict.fromkeys(_INTEGERS, _integer),
    DOUBLE: _double,
    "FLOAT": _float,
    "DECIMAL": fits_decimal,
    "DATE": _date,
    "TIMESTAMP": _timestamp,
    "TIMESTAMP_NTZ": _wall,
    "BINARY": _binary,
}

"""Columns of one kind as columns of another: of the kind that is recorded or declared for a field.

A value goes over only if nothing of it is lost: a whole number into another width or a DOUBLE that holds exactly it, a
text that says a number or a time, bytes that are UTF-8. A fraction may be rounded to the nearest DOUBLE or FLOAT.
What does not fit is noted with its path and its row, and is null in the result. Null fits everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.topics.decode import value
from catchment.topics.decode.arrays import list_of, map_of, offsets_of, struct_of
from catchment.topics.decode.read import PARSED, Reader
from catchment.topics.decode.schema import ARRAY, BIGINT, BOOLEAN, DOUBLE, JSON, MAP, STRUCT, TEXT, VOID, Kind, within
from catchment.topics.decode.wire import texts

_INTEGERS = {"TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), BIGINT: pa.int64()}
_SQL = {"INT": "INTEGER"}
_NESTED = (STRUCT, ARRAY, MAP)
_WHOLE = r"[+-]?[0-9]+"
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_SPECIAL = r"[+-]?(?i:nan|inf|infinity)"
_LONG = {DOUBLE: r"^[+-]?[0-9]{16,}$", "FLOAT": r"^[+-]?[0-9]{8,}$"}  # whole numbers that they may not hold
_MOST_DAYS = (2**63 - 1) // 86_400_000_000
_GREATEST_FLOAT = 3.4028234663852886e38
_SHOWN = 40  # characters of a value that a reason quotes

Rows = np.ndarray[Any, Any]
Leaf = Callable[["Casting", pa.Array, Kind, Kind], pa.Array]


class Casting:
    """Casts columns of the same rows. `misfits` says why a row cannot be stored, by its number; the first one stays."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.misfits: dict[int, str] = {}

    def columns(self, values: pa.StructArray, have: Kind, want: Kind) -> dict[str, pa.Array]:
        """The fields of these rows, as `want` has them. Fields of which there is no column yet are left out."""
        return self._fields(values, have, want, "", np.arange(len(values)))

    def _fields(self, values: pa.StructArray, have: Kind, want: Kind, path: str, rows: Rows) -> dict[str, pa.Array]:
        there = values.flatten() if values.type.num_fields else []  # null where the whole is
        found = {}
        for one, column in zip(values.type, there, strict=True):
            wanted = want.below(one.name)
            cast = self._cast(column, have.below(one.name), wanted, within(path, one.name), rows)
            if not wanted.open:
                found[one.name] = cast
        return found

    def _cast(self, array: pa.Array, have: Kind, want: Kind, path: str, rows: Rows) -> pa.Array:
        if have == want or (have.word == TEXT and want.word == "STRING"):
            return array
        if have.word == VOID:
            return pa.nulls(len(array), want.arrow())
        if have.word == want.word == STRUCT:
            found = self._fields(array, have, want, path, rows)
            columns = {
                one.name: found[one.name] if one.name in found else pa.nulls(len(array), one.type)
                for one in want.arrow()
            }
            return struct_of(columns, len(array), array.is_null())
        if have.word == want.word == ARRAY:
            lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
            items = self._cast(array.flatten(), have.inner, want.inner, f"{path}[]", np.repeat(rows, lengths))
            return list_of(offsets_of(array), items, array.is_null())
        if have.word == want.word == MAP:
            lists = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
            lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
            keys, items = lists.flatten().flatten()
            items = self._cast(items, have.inner, want.inner, f"{path}[]", np.repeat(rows, lengths))
            return map_of(offsets_of(lists), keys, items, array.is_null())
        return self._leaf(array, have, want, path, rows)

    def _leaf(self, array: pa.Array, have: Kind, want: Kind, path: str, rows: Rows) -> pa.Array:
        way = _text if want.word in (JSON, "STRING") else _WAYS.get((have.word, want.word))
        found = way(self, array, have, want) if way else pa.nulls(len(array), want.arrow())
        if found.null_count != array.null_count:
            lost = pc.and_(pc.is_null(found), pc.is_valid(array)).to_numpy(zero_copy_only=False)
            for at in map(int, np.flatnonzero(lost)):
                why = f"{path}: {shown(_python(array[at]), have)} is not {_named(want)}; {value.ADVICE}"
                self.misfits.setdefault(int(rows[at]), why)
        return found


def _python(one: pa.Scalar) -> object:
    try:
        return one.as_py()
    except (OverflowError, ValueError):  # a time that Python has no year for
        return one.value


def shown(given: object, kind: Kind) -> str:
    """A value in a sentence."""
    if kind.word in _NESTED:
        return "[…]" if kind.word == ARRAY else "{…}"
    text = json.dumps(given) if isinstance(given, bool | int | float | str) else str(given)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _named(kind: Kind) -> str:
    return {STRUCT: "an object", ARRAY: "an array", MAP: "an object"}.get(kind.word, str(kind))


def _only(array: pa.Array, mask: pa.Array) -> pa.Array:
    return pc.if_else(mask, array, pa.scalar(None, array.type))


# Each way gives an array of the wanted type, null where the value is null or does not fit.


def _integer(casting: Casting, array: pa.Array, have: Kind, want: Kind) -> pa.Array:
    kind = _INTEGERS[want.word]
    wide = array.cast(pa.int64())
    limit = 1 << (kind.bit_width - 1)
    return _only(wide, pc.and_(pc.greater_equal(wide, -limit), pc.less_equal(wide, limit - 1))).cast(kind)


def _exact(casting: Casting, array: pa.Array, have: Kind, want: Kind) -> pa.Array:
    """Whole numbers that the floating-point kind holds exactly."""
    whole = array.cast(pa.int64())
    found = whole.cast(want.arrow(), safe=False)
    wide = found.cast(pa.float64())
    back = _only(wide, pc.less(wide, 2.0**63)).cast(pa.int64(), safe=False)  # the greatest are rounded up to it
    return _only(found, pc.fill_null(pc.equal(back, whole), False))


def _float(casting: Casting, array: pa.Array, have: Kind, want: Kind) -> pa.Array:
    fits = pc.or_(pc.invert(pc.is_finite(array)), pc.less_equal(pc.abs(array), _GREATEST_FLOAT))
    return _only(array, fits).cast(pa.float32(), safe=False)


def _whole(casting: Casting, array: pa.Array, have: Kind, want: Kind) -> pa.Array:
    """Floating-point numbers without a fraction."""
    wide = array.cast(pa.float64())
    limit = 2.0 ** (_INTEGERS[want.word].bit_width - 1)
    fits = pc.and_(pc.greater_equal(wide, -limit), pc.less(wide, limit))
    whole = pc.and_(fits, pc.equal(pc.trunc(wide), wide))
    return _only(wide, whole).cast(pa.int64(), safe=False).cast(_INTEGERS[want.word])


def _decimals(casting: Casting, array: pa.Array, have: Kind, want: Kind) -> pa.Array:
    """Numbers as DECIMAL, by the shortest text that says them."""
    return _decimal(casting, array.cast(pa.string()), have, want)


def _decimal(casting: Casting, array: pa.Array, have: Kind, want: Kind) -> pa.Array:
    precision, scale = want.digits
    before, after = precision - scale, rf"\.[0-9]{{1,{scale}}}" if scale else ""
    short = rf"[0-9]{{1,{before}}}" + (f"(?:{after})?" if after else "") if before else after
    plain = pc.match_substring_regex(array, f"^-?(?:{short})$")
    found = _only(array, plain).cast(want.arrow())
    odd = pc.fill_null(pc.invert(plain), False)
    if not pc.any(odd).as_py():
        return found
    unit, wide = Decimal(1).scaleb(-scale), Context(prec=100)
    fits = [
        Decimal(text).quantize(unit, context=wide) if value.fits_decimal(want, text) else None
        for text in array.filter(odd).to_pylist()
    ]
    return pc.replace_with_mask(found, odd, pa.array(fits, want.arrow()))


def _from_decimal(casting: Casting, array: pa.Array, have: Kind, want: Kind) -> pa.Array:
    if want.word in _INTEGERS:
        wide = array.cast(pa.decimal256(76, array.type.scale))  # what has no digit before its point has no room for 0
        whole = _only(wide, pc.equal(pc.trunc(wide), wide)).cast(pa.decimal128(38, 0))
        return _number(casting, whole.cast(pa.string()), have, want)
    return _floating(casting, array.cast(pa.string()), have, want)  # Arrow's own cast is not to the nearest


def _number(casting: Casting, array: pa.Array, have: Kind, want: Kind) -> pa.Array:
    """Whole numbers written as text."""
    word = _SQL.get(want.word, want.word)
    sql = f"CASE WHEN regexp_full_match(text, ?) THEN TRY_CAST(text AS {word}) END"
    return casting.reader.column(sql, array, _WHOLE).cast(want.arrow())


def _floating(casting: Casting, array: pa.Array, have: Kind, want: Kind) -> pa.Array:
    """Numbers written as text: a whole one has to be held exactly, and a great one is not infinity."""
    sql = "CASE WHEN regexp_full_match(text, ?) THEN TRY_CAST(text AS DOUBLE) END"
    found = casting.reader.column(sql, array, f"{_NUMBER}|{_SPECIAL}")
    said = pc.fill_null(pc.match_substring_regex(array, f"^(?:{_NUMBER})$"), False)
    found = _only(found, pc.invert(pc.and_(said, pc.fill_null(pc.is_inf(found), False))))
    if want.word == "FLOAT":
        found = _float(casting, found, have, want)
    long = pc.fill_null(pc.match_substring_regex(array, _LONG[want.word]), False)
    if not pc.any(long).as_py():
        return found
    exact = [
        number if number is not None and number == Decimal(text) else None
        for text, number in zip(array.filter(long).to_pylist(), found.filter(long).to_pylist(), strict=True)
    ]
    return pc.replace_with_mask(found, long, pa.array(exact, found.type))


def _boolean(casting: Casting, array: pa.Array, have: Kind, want: Kind) -> pa.Array:
    lower = pc.utf8_lower(array)
    return _only(pc.equal(lower, "true"), pc.is_in(lower, pa.array(["true", "false"])))


def _moment(casting: Casting, array: pa.Array, have: Kind, want: Kind) -> pa.Array:
    form, expression = PARSED[want.word]
    found = casting.reader.column(f"CASE WHEN regexp_full_match(text, ?) THEN {expression} END", array, form)
    return found.cast(want.arrow())


def _midnight(casting: Casting, array: pa.Array, have: Kind, want: Kind) -> pa.Array:
    days = array.cast(pa.int32()).cast(pa.int64())
    held = pc.less_equal(pc.abs(days), _MOST_DAYS)  # by 64 bits of microseconds
    return _only(array, held).cast(pa.timestamp("us")).cast(want.arrow())


def _in_utc(casting: Casting, array: pa.Array, have: Kind, want: Kind) -> pa.Array:
    return array.cast(want.arrow())


def _bytes(casting: Casting, array: pa.Array, have: Kind, want: Kind) -> pa.Array:
    return array.cast(pa.binary())


def _utf8(casting: Casting, array: pa.Array, have: Kind, want: Kind) -> pa.Array:
    return texts(array)[0]


def _text(casting: Casting, array: pa.Array, have: Kind, want: Kind) -> pa.Array:
    """Anything as text: what is not text itself as its JSON text; where everything is JSON text, texts in quotes."""
    if have.word == "BINARY" and want.word == "STRING":
        return _utf8(casting, array, have, want)
    plain = _plain(casting, array, have)
    if pa.types.is_string(plain.type) and want.word == "STRING":
        return plain
    if not pa.types.is_nested(plain.type) and not pa.types.is_string(plain.type):
        return plain.cast(pa.string()) if not pa.types.is_floating(plain.type) else _numerals(plain)
    found = casting.reader.column("to_json(text)::VARCHAR", plain)
    return _only(found, array.is_valid())


def _numerals(array: pa.Array) -> pa.Array:
    distinct = array.dictionary_encode()
    shortest = distinct.dictionary.cast(pa.string())
    return pa.array([json.dumps(float(one)) for one in shortest.to_pylist()], pa.string()).take(distinct.indices)


def _plain(casting: Casting, array: pa.Array, kind: Kind) -> pa.Array:
    """The same values in types that JSON has."""
    if kind.word == STRUCT:
        columns = {
            one.name: _plain(casting, column, kind.below(one.name))
            for one, column in zip(array.type, array.flatten(), strict=True)
        }
        return struct_of(columns, len(array), array.is_null())
    if kind.word == ARRAY:
        return list_of(offsets_of(array), _plain(casting, array.flatten(), kind.inner), array.is_null())
    if kind.word == MAP:
        lists = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
        keys, items = lists.flatten().flatten()
        return map_of(offsets_of(lists), keys, _plain(casting, items, kind.inner), array.is_null())
    if kind.word == "BINARY":
        return casting.reader.column("to_base64(text)", array)
    if kind.word == "TIMESTAMP":
        return pc.strftime(array, "%Y-%m-%dT%H:%M:%SZ")
    if kind.word == "TIMESTAMP_NTZ":
        return pc.strftime(array, "%Y-%m-%dT%H:%M:%S")
    return array.cast(pa.string()) if kind.word == "DATE" else array


_WAYS: Mapping[tuple[str, str], Leaf] = {
    **{(have, want): _integer for have in _INTEGERS for want in _INTEGERS},
    **{(have, want): _exact for have in _INTEGERS for want in (DOUBLE, "FLOAT")},
    **{(have, want): _whole for have in (DOUBLE, "FLOAT") for want in _INTEGERS},
    **{(have, "DECIMAL"): _decimals for have in (*_INTEGERS, DOUBLE, "FLOAT", "DECIMAL")},
    **{("DECIMAL", want): _from_decimal for want in (*_INTEGERS, DOUBLE, "FLOAT")},
    **{(TEXT, want): _number for want in _INTEGERS},
    **{(TEXT, want): _floating for want in (DOUBLE, "FLOAT")},
    **{(TEXT, want): _moment for want in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")},
    (TEXT, "DECIMAL"): _decimal,
    (TEXT, BOOLEAN): _boolean,
    (TEXT, "BINARY"): _bytes,
    ("BINARY", TEXT): _utf8,
    (DOUBLE, "FLOAT"): _float,
    ("FLOAT", DOUBLE): lambda casting, array, have, want: array.cast(pa.float64()),
    ("DATE", "TIMESTAMP"): _midnight,
    ("DATE", "TIMESTAMP_NTZ"): _midnight,
    ("TIMESTAMP", "TIMESTAMP_NTZ"): _in_utc,
    ("TIMESTAMP_NTZ", "TIMESTAMP"): _in_utc,
}

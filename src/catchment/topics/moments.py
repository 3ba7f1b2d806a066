"""Columns of times, however they are written, as milliseconds since 1970 UTC.

    s ms us ns   numbers, and numbers written as text, fractions too. A negative one is no time: it stands for "none".
    auto         the same, told apart by size: below 2e10 seconds, below 2e13 milliseconds, below 2e16 microseconds,
                 else nanoseconds. Right for every time from 1970-08-21 to 2262, whatever its unit.
    iso          ISO 8601 text: a date, or a date and a time after `T` or a space, with or without seconds, fraction,
                 zone.
    (no unit)    numbers and text made of digits as `auto`, other text as `iso`.
    pattern      text, or whole numbers, as strptime reads it, names of months and days in English. `%Z` reads UTC, GMT
                 and Z alone: other abbreviations mean different zones to different people.

TIMESTAMP and DATE columns are times already. What names no zone is in the split's zone; a wall time that happens twice
is the first of the two, one that clocks skip is as long after the jump. Times outside the years 1 to 9999, in the
split's zone as well, are none. What is finer than a millisecond is cut off, never rounded up into the next day; but a
floating-point number is first rounded to the microsecond that it stands for.

A value means the same whatever other values are in its column: fast ways are taken only for forms on which all agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catchment.config.decode import Split
from catchment.topics.times import SECONDS, format_value, zone_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
LOWEST = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // _MS
HIGHEST = (datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC) - EPOCH) // _MS
_DAY = 86_400
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_AUTO = (("s", 2 * 10**10), ("ms", 2 * 10**13), ("us", 2 * 10**16), ("ns", 1 << 64))

_NUMBER = re.compile(r"\d{1,30}(?:\.\d{1,30})?", re.ASCII)
_WHOLE = r"^[0-9]{1,18}$"
_ISO = re.compile(
    r"(?P<date>\d{4}-?(?:\d\d-?\d\d|W\d\d-?\d))"
    r"(?:[Tt ](?P<time>(?:[01]\d|2[0-3])(?::?\d\d(?::?\d\d(?:[.,]\d+)?)?)?) ?(?P<zone>[Zz]|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_ISO_FAST = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_ISO_ZONED = _ISO_FAST + r"(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])$"
_ISO_PLAIN = _ISO_FAST + "$"
UNITS = tuple(_PER_SECOND)
_FEW = 1000  # distinct texts that are read one by one before a faster way is worth its first step
_SHORT = {"%T": "%H:%M:%S", "%F": "%Y-%m-%d", "%e": "%d"}


def milliseconds(column: pa.Array, split: Split) -> pa.Array:
    """int64, one for each value of the column; null where the value is null or is no time."""
    found = _range(_read(column, split))
    if split.zone == "UTC":
        return found
    wall = _range(to_wall(found, split.zone))  # the calendar's first and last hours have no wall time everywhere
    return pc.if_else(pc.is_valid(wall), found, pa.scalar(None, pa.int64()))


def to_wall(times: pa.Array, zone: str) -> pa.Array:
    """Milliseconds since 1970 UTC as what clocks show there, counted likewise."""
    if zone == "UTC":
        return times
    return pc.add(times, pc.multiply(_offsets(_floor(times, 1000), partial(_offset_at, zone_of(zone))), 1000))


def from_wall(times: pa.Array, zone: str) -> pa.Array:
    """The other way."""
    if zone == "UTC":
        return times
    return pc.subtract(times, pc.multiply(_offsets(_floor(times, 1000), partial(_offset_of, zone_of(zone))), 1000))


def folders(times: pa.Array, split: Split) -> tuple[pa.Array, list[str]]:
    """Which of the folders each time is in (int32, null where it is null), and their values. Each value once."""
    assert split.by is not None
    size = SECONDS[split.by] * 1000
    units = _floor(to_wall(times, split.zone), size).dictionary_encode()
    begin = EPOCH.replace(tzinfo=None)
    values = [format_value(begin + unit * size * _MS, split.by) for unit in units.dictionary.to_pylist()]
    return units.indices, values


def _read(column: pa.Array, split: Split) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind):
        size = _PER_SECOND[kind.unit] // 1000
        found = _floor(column.cast(pa.int64()), size) if size else _seconds(column)
        return found if kind.tz else from_wall(_range(found), split.zone)
    if pa.types.is_date(kind):
        return from_wall(_range(_seconds(column.cast(pa.timestamp("s")))), split.zone)
    if split.pattern is not None:
        return _texts(column.cast(pa.string()) if pa.types.is_integer(kind) else column, split)
    if split.unit != "iso":
        if pa.types.is_uint64(kind):
            column = pc.if_else(pc.less(column, pa.scalar(1 << 63, kind)), column, pa.scalar(None, kind))
        if pa.types.is_integer(kind):
            return _whole(column.cast(pa.int64()), split.unit or "auto")
        if pa.types.is_floating(kind):
            return _fractions(column.cast(pa.float64()), split.unit or "auto")
        if pa.types.is_decimal(kind):
            return _each(column, lambda value: _decimal(value, split.unit or "auto"))
    return _texts(column, split)


def _texts(column: pa.Array, split: Split) -> pa.Array:
    if not pa.types.is_string(column.type):
        return pa.nulls(len(column), pa.int64())
    distinct = column.dictionary_encode()
    texts = distinct.dictionary
    one = partial(_strptime if split.pattern is not None else _text, split=split)
    if len(texts) <= _FEW or split.pattern is not None:
        return _each(texts, one).take(distinct.indices)
    return _many(texts, split, one).take(distinct.indices)


def _many(texts: pa.Array, split: Split, one: Callable[[str], int | None]) -> pa.Array:
    """The same as one by one, but the usual forms all at once."""
    found = pa.nulls(len(texts), pa.int64())
    left = pc.is_valid(texts)
    forms: list[tuple[str, Callable[[pa.Array], pa.Array]]] = []
    if split.unit != "iso":
        forms.append((_WHOLE, lambda some: _whole(some.cast(pa.int64()), split.unit or "auto")))
    if split.unit in ("iso", None):
        forms.append((_ISO_ZONED, lambda some: _floor(some.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1000)))
        forms.append((_ISO_PLAIN, lambda some: _plain(some, split)))
    for form, way in forms:
        fits = pc.and_(left, pc.match_substring_regex(texts, form))
        if pc.any(fits).as_py():
            try:
                found = pc.replace_with_mask(found, fits, way(texts.filter(fits)))
            except pa.ArrowInvalid:  # a 30th of February among them: these are read one by one
                continue
            left = pc.and_not(left, fits)
    if pc.any(left).as_py():
        found = pc.replace_with_mask(found, left, _each(texts.filter(left), one))
    return found


def _plain(texts: pa.Array, split: Split) -> pa.Array:
    wall = _floor(texts.cast(pa.timestamp("us")).cast(pa.int64()), 1000)
    return from_wall(_range(wall), split.zone)


def _text(text: str, split: Split) -> int | None:
    if split.unit != "iso" and _NUMBER.fullmatch(text):
        return _decimal(Decimal(text), split.unit or "auto")
    if split.unit not in ("iso", None):
        return None
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    zone = (found["zone"] or "").upper()
    try:
        moment = datetime.fromisoformat(f"{found['date']}T{found['time'] or '00'}{zone}")
        return _count(moment, split)
    except (ValueError, OverflowError):
        return None


def _strptime(text: str, split: Split) -> int | None:
    for pattern, is_utc in _patterns(split.pattern or ""):
        try:
            moment = datetime.strptime(text, pattern)  # noqa: DTZ007 (the split's zone is its zone)
            return _count(moment.replace(tzinfo=UTC) if is_utc and moment.tzinfo is None else moment, split)
        except (ValueError, OverflowError):
            continue
    return None


@lru_cache(maxsize=64)
def _patterns(pattern: str) -> tuple[tuple[str, bool], ...]:
    """In the words that Python has, one for each name of a zone; and whether that zone is UTC."""

    def told(zone: str) -> str:
        words = _SHORT | {"%Z": zone}
        return re.sub("%.", lambda found: words.get(found[0], found[0]), pattern)

    plain = told("")
    return ((plain, False),) if plain == told("?") else tuple((told(zone), True) for zone in ("UTC", "GMT", "Z"))


def _count(moment: datetime, split: Split) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone_of(split.zone))
    return (aware - EPOCH) // _MS


def _decimal(value: Decimal, unit: str) -> int | None:
    if not 0 <= value < 1 << 64:
        return None
    if unit == "auto":
        unit = next(name for name, limit in _AUTO if value < limit)
    return int(value * 1000 / _PER_SECOND[unit])


def _whole(values: pa.Array, unit: str) -> pa.Array:
    """Of int64, in a unit."""
    values = _between(values, 0, None)
    if unit == "auto":
        found = _whole(values, "ns")
        for name, limit in reversed(_AUTO[:-1]):
            found = pc.if_else(pc.less(values, limit), _whole(_between(values, 0, limit), name), found)
        return found
    if unit == "s":
        return pc.multiply(_between(values, 0, HIGHEST // 1000), 1000)
    return _floor(values, _PER_SECOND[unit] // 1000)


def _fractions(values: pa.Array, unit: str) -> pa.Array:
    """Of doubles, in a unit."""
    values = _between(pc.if_else(pc.is_finite(values), values, pa.scalar(None, pa.float64())), 0, 1 << 62)
    if unit == "auto":
        found = _fractions(values, "ns")
        for name, limit in reversed(_AUTO[:-1]):
            found = pc.if_else(pc.less(values, float(limit)), _fractions(_between(values, 0, limit), name), found)
        return found
    # Multiplied and not divided where possible, so that whole numbers stay whole.
    if unit == "ns":
        micros = pc.floor(pc.divide(values, 1000.0))
    else:
        micros = pc.round(pc.multiply(values, float(10**6 // _PER_SECOND[unit])))
    return _floor(_between(micros, 0, HIGHEST * 1000).cast(pa.int64()), 1000)


def _seconds(column: pa.Array) -> pa.Array:
    return pc.multiply(_between(column.cast(pa.int64()), LOWEST // 1000, HIGHEST // 1000), 1000)


def _range(times: pa.Array) -> pa.Array:
    return _between(times, LOWEST, HIGHEST)


def _between(values: pa.Array, lowest: int, highest: int | None) -> pa.Array:
    """The values themselves, null where they are outside."""
    number = float if pa.types.is_floating(values.type) else int
    most = number(highest) if highest is not None else None
    found = pc.min_max(values).as_py()
    if found["min"] is None or (found["min"] >= lowest and (most is None or found["max"] <= most)):
        return values  # as nearly always
    fits = pc.greater_equal(values, pa.scalar(number(lowest), values.type))
    if most is not None:
        fits = pc.and_(fits, pc.less_equal(values, pa.scalar(most, values.type)))
    return pc.if_else(fits, values, pa.scalar(None, values.type))


def _floor(values: pa.Array, size: int) -> pa.Array:
    """How many whole sizes, rounded down; Arrow's own division rounds towards zero."""
    if size == 1:
        return values
    quotient = pc.divide(values, size)
    if (pc.min(values).as_py() or 0) >= 0:
        return quotient
    short = pc.greater(pc.multiply(quotient, size), values)
    return pc.subtract(quotient, short.cast(pa.int64()))


def _each(values: pa.Array, one: Callable[[Any], int | None]) -> pa.Array:
    """One by one; what is no number of 64 bits is null."""
    found = [None if value is None else one(value) for value in values.to_pylist()]
    fits = [value if value is not None and LOWEST <= value <= HIGHEST else None for value in found]
    return pa.array(fits, pa.int64())


def _offsets(seconds: pa.Array, at: Callable[[int], int], sizes: tuple[int, ...] = (_DAY, 900, 1)) -> pa.Array:
    """The offset of each, in seconds, asked once for each day that has one offset, and more finely for others.

    Nowhere were clocks ever set twice within three days, so a day that begins and ends with one offset has no other.
    """
    size = sizes[0]
    blocks = _floor(seconds, size).dictionary_encode()
    found: list[int | None] = []
    for block in blocks.dictionary.to_pylist():
        offset = at(block * size)
        found.append(offset if size == 1 or at(block * size + size - 1) == offset else None)
    offsets = pa.array(found, pa.int64()).take(blocks.indices)
    finer = pc.and_(pc.is_null(offsets), pc.is_valid(seconds))
    if None in found:
        offsets = pc.replace_with_mask(offsets, finer, _offsets(seconds.filter(finer), at, sizes[1:]))
    return offsets


def _offset_at(zone: tzinfo, second: int) -> int:
    """At a second since 1970 UTC."""
    moment = (EPOCH + timedelta(seconds=_inner(second))).astimezone(zone)
    return _whole_seconds(moment)


def _offset_of(zone: tzinfo, second: int) -> int:
    """Of a wall time, counted as if it were UTC."""
    return _whole_seconds((EPOCH + timedelta(seconds=_inner(second))).replace(tzinfo=zone))


def _whole_seconds(moment: datetime) -> int:
    offset = moment.utcoffset()
    assert offset is not None
    return offset // timedelta(seconds=1)


def _inner(second: int) -> int:
    """The first and the last day of the calendar have their neighbours' offsets: theirs cannot be asked for."""
    return min(max(second, LOWEST // 1000 + 2 * _DAY), HIGHEST // 1000 - 2 * _DAY)

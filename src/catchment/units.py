"""Quantities as people write them: 5s, 1h30m, 128MB, 1%, 2026-11-15T08:00:00Z. Pure functions, exact in both ways.

Each `parse_*` raises ValueError with a message that quotes the text and says what to write instead; a caller that must
not quote the text (it may be a secret) writes its own sentence around the `*_FORM` that goes with it. Each `format_*`
gives the shortest exact text, so that `parse(format(x)) == x`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

DURATION_FORM = "write a number and a unit (ms, s, m, h, d), as in 500ms, 5s, 2h or 1h30m"
SIZE_FORM = "write a number and a unit (B, kB, MB, GB, TB, or KiB, MiB, GiB, TiB), as in 50MB or 1GiB"
SHARE_FORM = "write a percentage from 0% to 100%, as in 1% or 0.5%"
TIME_FORM = "write a time with its zone, as in 2026-11-15T08:00:00Z"

_DAY = 86_400_000_000
_DURATION_UNITS = {"d": _DAY, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}  # in µs
_DURATION = re.compile(
    "".join(rf"(?:(?P<{unit}>[0-9]{{1,15}}(?:\.[0-9]{{1,6}})?){unit})?" for unit in _DURATION_UNITS), re.ASCII
)
_LONGEST = timedelta(days=36_500)

_SIZE_UNITS = {
    "TiB": 1 << 40,
    "TB": 10**12,
    "GiB": 1 << 30,
    "GB": 10**9,
    "MiB": 1 << 20,
    "MB": 10**6,
    "KiB": 1 << 10,
    "kB": 10**3,
    "B": 1,
}
_SIZE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,12})?) ?([A-Za-z]{1,3})", re.ASCII)
_LARGEST = 1 << 60

_SHARE = re.compile(r"[0-9]{1,3}(\.[0-9]{1,15})?%", re.ASCII)


def parse_duration(text: str) -> timedelta:
    """`1h30m` → 90 minutes. Parts go from large to small, each unit once. Never negative; zero is `0s`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ValueError(f"{text[:60]!r} is not a duration; {DURATION_FORM}")
    micros = sum((Fraction(part) * _DURATION_UNITS[unit] for unit, part in match.groupdict("0").items()), Fraction(0))
    if micros.denominator != 1:
        raise ValueError(f"{text[:60]!r} is finer than a microsecond; {DURATION_FORM}")
    if micros > _LONGEST // timedelta(microseconds=1):
        raise ValueError(f"{text[:60]!r} is longer than {_LONGEST.days} days; {DURATION_FORM}")
    return timedelta(microseconds=int(micros))


def format_duration(duration: timedelta) -> str:
    """90 minutes → `1h30m`. ValueError for a negative one, which has no text."""
    left = duration // timedelta(microseconds=1)
    if left < 0:
        raise ValueError("a negative duration has no text; give one of zero or more")
    parts: list[str] = []
    for unit, size in _DURATION_UNITS.items():
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_size(text: str) -> int:
    """`128MB` → 128 000 000 bytes, `1GiB` → 1 073 741 824. Only whole bytes; KB means kB."""
    match = _SIZE.fullmatch(text.strip())
    unit = match[2] if match else ""
    factor = _SIZE_UNITS.get("kB" if unit == "KB" else unit)
    if match is None or factor is None:
        raise ValueError(f"{text[:60]!r} is not a size; {SIZE_FORM}")
    size = Fraction(match[1]) * factor
    if size.denominator != 1 or size > _LARGEST:
        raise ValueError(f"{text[:60]!r} is not a whole number of bytes up to {format_size(_LARGEST)}; {SIZE_FORM}")
    return int(size)


def format_size(size: int) -> str:
    """128 000 000 → `128MB`: the largest unit that divides it, so that nothing is rounded."""
    if size < 0:
        raise ValueError("a negative size has no text; give one of zero or more")
    for unit, factor in _SIZE_UNITS.items():
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return "0B"


def parse_share(text: str) -> float:
    """`1%` → 0.01. From 0% to 100%."""
    stripped = text.strip()
    if _SHARE.fullmatch(stripped) is None or (percent := Decimal(stripped[:-1])) > 100:
        raise ValueError(f"{text[:60]!r} is not a share; {SHARE_FORM}")
    return float(percent / 100)


def format_share(share: float) -> str:
    """0.01 → `1%`."""
    if not 0 <= share <= 1:
        raise ValueError(f"{share} is not a share; give a number from 0 to 1")
    percent = f"{Decimal(repr(float(share))) * 100:f}"
    return (percent.rstrip("0").rstrip(".") if "." in percent else percent) + "%"


def parse_time(text: str) -> datetime:
    """`2026-11-15T08:00:00Z` → that moment in UTC. Without a zone it would mean another moment elsewhere: refused."""
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            raise ValueError("no zone")
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:60]!r} is not a time with a zone; {TIME_FORM}") from None


def format_time(moment: datetime) -> str:
    """A moment in UTC → `2026-11-15T08:00:00Z`, with a fraction of a second only if there is one."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")

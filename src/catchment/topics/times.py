"""The names of days, hours and minutes as folders, and the moments at which they end. Pure functions.

    by: day      2026-11-15
    by: hour     2026-11-15T08
    by: minute   2026-11-15T08-05

They sort as time does, hold nothing that a path would have to escape, and are wall time in the split's zone. When
clocks go back, the hour (or the minutes) that happen twice share one folder, which ends when the second one does: what
people there call two o'clock is in one place, and every day has the folders that they expect. When clocks go forward,
the folders of the hour that does not happen are never made.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

SECONDS = {"day": 86_400, "hour": 3_600, "minute": 60}
LATEST = datetime.max.replace(tzinfo=UTC)  # what ends after the year 9999 ends here, and so is never closed
_EARLIEST = datetime.min.replace(tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_TICK = timedelta(microseconds=1)
_FORMS = {
    "day": re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII),
    "hour": re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d)", re.ASCII),
    "minute": re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d)-(\d\d)", re.ASCII),
}


@lru_cache(maxsize=64)
def zone_of(name: str) -> tzinfo:
    """The zone of this name. UTC needs no tz database."""
    return UTC if name == "UTC" else ZoneInfo(name)


def format_value(wall: datetime, by: str) -> str:
    """The folder of a wall time, whose zone (if it has one) plays no part."""
    text = f"{wall.year:04d}-{wall.month:02d}-{wall.day:02d}"  # strftime's %Y has no leading zeros on some systems
    if by == "day":
        return text
    return f"{text}T{wall.hour:02d}" if by == "hour" else f"{text}T{wall.hour:02d}-{wall.minute:02d}"


def parse_value(value: str, by: str) -> datetime:
    """The wall time, without a zone, at which a folder begins. ValueError unless `format_value` makes the same text."""
    found = _FORMS[by].fullmatch(value)
    if found is None:
        raise ValueError(f"{value[:60]!r} is not the folder of a{'n hour' if by == 'hour' else f' {by}'}")
    return datetime(*(int(part) for part in found.groups()))  # type: ignore[arg-type]  # noqa: DTZ001


def value_at(moment: datetime, by: str, zone: str) -> str:
    """The folder of a moment. OverflowError for one whose wall time there is outside the years 1 to 9999."""
    return format_value(moment.astimezone(zone_of(zone)), by)


def end_of(value: str, by: str, zone: str) -> datetime:
    """The moment (UTC) from which no time belongs to this folder any more; ValueError if it is not a folder's value.

    Moments before it may belong to a later folder (some zones set their clocks back just after midnight); moments from
    it on never belong to this one. Ends grow with values. LATEST if it is after the year 9999.
    """
    begin = parse_value(value, by)
    try:
        return _last(begin + timedelta(seconds=SECONDS[by]), zone_of(zone))
    except OverflowError:
        return LATEST if begin.year > 1 else _EARLIEST


def boundary(watermark: datetime, lateness: timedelta, by: str, zone: str) -> datetime:
    """The latest moment B that ends a day (or hour) and has B + lateness <= watermark: all that ends by then may close.

    Always the end of some folder, or of one that clocks going forward left out.
    """
    until = watermark.astimezone(UTC) - lateness
    wall = until.astimezone(zone_of(zone)).replace(tzinfo=None)
    begin = parse_value(format_value(wall, by), by)
    step = timedelta(seconds=SECONDS[by])
    # The folder of `until` has not ended, nor has any after it, as ends grow with values. The first before it that has
    # is the one: nearly always the next, and a few more where clocks go back across the end of a folder.
    while (end := end_of(format_value(begin, by), by, zone)) > until:
        begin -= step
    return end


def _last(wall: datetime, zone: tzinfo) -> datetime:
    """The moment from which clocks always show this wall time or a later one."""
    first, second = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    latest = max(first, second)
    if latest.astimezone(zone).replace(tzinfo=None) == wall:
        # Of a wall time that happens twice the second, unless clocks were set back to just there: then nothing earlier
        # happens in between.
        return latest if (latest - _TICK).astimezone(zone).replace(tzinfo=None) < wall else first
    # Clocks skip this wall time. They jump between the two, which are the same moment seen with either offset.
    before, after = min(first, second), latest
    while after - before > _SECOND:
        middle = before + (after - before) // _SECOND // 2 * _SECOND
        if middle.astimezone(zone).replace(tzinfo=None) >= wall:
            after = middle
        else:
            before = middle
    return after

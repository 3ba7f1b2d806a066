"""Values as people write them on a command line: times, and lists of ids. Callbacks for Click's options."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click


def moment(ctx: click.Context, option: click.Parameter, value: str | None) -> datetime | None:
    """`2026-11-15T08:00:00Z`. A time without a zone is UTC, as all times of Catchment are; a day is its midnight."""
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a time; write it like 2026-11-15T08:00:00Z", ctx, option) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def ids(ctx: click.Context, option: click.Parameter, value: Sequence[str]) -> list[str] | None:
    """`--feed-ids a,b --feed-ids c`. None if none are given."""
    return [id.strip() for part in value for id in part.split(",") if id.strip()] or None

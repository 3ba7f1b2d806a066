"""What commands print: a table for people or one JSON document for programs, from the same value."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from catchment.errors import CatchmentError, ConfigError, UsageError

if TYPE_CHECKING:
    from catchment.lake import Lake

F = TypeVar("F", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True)
class Given:
    """The options that every command takes."""

    config: str | None
    workspace: str | None
    as_json: bool

    def show(self, value: object, people: Callable[[], None]) -> None:
        """Print the value: as JSON if asked, else as `people` prints it."""
        if self.as_json:
            click.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))
        else:
            people()

    def lake(self) -> AbstractContextManager[Lake]:
        """The lake that is meant. It is closed at the end of the block."""
        from catchment.lake import Lake

        return Lake.open(self.config, workspace=self.workspace)


def options(command: F) -> F:
    """Give a command `--config`, `--workspace` and `--json`, as one argument `given`."""

    def call(*args: Any, config: str | None, workspace: str | None, as_json: bool, verbose: int, **more: Any) -> Any:
        _log(verbose)
        return command(*args, given=Given(config, workspace, as_json), **more)

    call.__doc__ = command.__doc__
    call.__name__ = command.__name__
    for decorate in (
        click.option("-v", "--verbose", count=True, help="Say more on standard error; twice for everything."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text."),
        click.option("--workspace", metavar="DIR", help="Use this folder instead of the config's workspace."),
        click.option("--config", metavar="PATH|URL", help="The configuration. [default: catchment.yaml]"),
    ):
        call = decorate(call)
    return call  # type: ignore[return-value]


def plain(value: object) -> Any:
    """Any value of ours as JSON knows it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Path) else value


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str] = ()) -> None:
    """A table on standard output, coloured (a style for each row) where that is a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Files and pipes have no width: a line is as long as it has to be.
    console = Console(width=None if sys.stdout.isatty() else 400)
    shown = Table(box=None, pad_edge=False, show_edge=False)
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row, style in zip(rows, styles or [""] * len(rows), strict=True):
        shown.add_row(*(Text(cell, style=style if number == 0 else "") for number, cell in enumerate(row)))
    console.print(shown)


def count(number: int, noun: str) -> str:
    """So many of something, for people."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def say(text: str) -> None:
    """A line for people, on standard error."""
    click.echo(text, err=True)


def tell_error(error: CatchmentError, *, as_json: bool) -> int:
    """Print an error where its reader looks, and return the exit status that goes with it."""
    if as_json:
        problem: dict[str, Any] = {"kind": type(error).__name__, "message": error.message, "hint": error.hint}
        if isinstance(error, ConfigError):
            problem["problems"] = plain(error.problems)
        click.echo(json.dumps({"error": problem}, indent=2, ensure_ascii=False))
    click.echo(f"catchment: {error.message}" + (f"\n  → {error.hint}" if error.hint else ""), err=True)
    return 2 if isinstance(error, (ConfigError, UsageError)) else 1


def _log(verbose: int) -> None:
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("catchment").setLevel(level)

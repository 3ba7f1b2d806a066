"""Progress, for people who watch: a bar on standard error, and nothing where that is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console


class Step(Protocol):
    """Says how far it is: so many done of so many, and bytes where they are known."""

    def __call__(self, done: int, total: int, size: int = 0, size_total: int = 0, /) -> None:
        """May be called as often as one likes."""


@contextmanager
def bars(what: str, *, console: Console | None = None) -> Iterator[Step]:
    """A bar that counts `what`, gone at the end; nothing unless standard error (or `console`) is a terminal."""
    if console is None and not sys.stderr.isatty():
        yield _silent
        return
    from rich.console import Console
    from rich.filesize import decimal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[size]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console or Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(what, total=None, size="")

        def step(done: int, total: int, size: int = 0, size_total: int = 0, /) -> None:
            sizes = f"{decimal(size)} of {decimal(size_total)}" if size_total else ""
            progress.update(bar, completed=done, total=total, size=sizes)

        yield step


@contextmanager
def telling() -> Iterator[Callable[[str], None]]:
    """A line on the terminal that says how far something is; nothing where nobody looks."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as shown:
        yield shown.update


def _silent(done: int, total: int, size: int = 0, size_total: int = 0, /) -> None:
    pass

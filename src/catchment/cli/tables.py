"""`catchment tables …`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from catchment.cli.output import Given, count, options, plain, say, table
from catchment.cli.values import ids

if TYPE_CHECKING:
    from catchment.tables.history import Commit
    from catchment.tables.service import Progress
    from catchment.tables.status import Standing

_some = click.option("--table", "tables", metavar="NAME,…", multiple=True, callback=ids, help="Only these tables.")


@click.command()
@click.option("--once", is_flag=True, help="Apply all that is there now, then end.")
@click.option("--listen", metavar="HOST:PORT", help="Take bucket events there, as S3 sends them to a web hook.")
@click.option(
    "--every", type=click.FloatRange(0.1), metavar="SECONDS", help="Look at everything so often. [default: 2]"
)
@_some
@options
def apply(*, given: Given, **how: Any) -> None:
    """Apply every closed batch to its Delta table, exactly once: as it closes, or in order where that is asked for.

    A batch is a folder below tables/<dataset>/<table>/ with a _SUCCESS in it. Any number of these may run at once, on
    any number of machines. SIGTERM or SIGINT: the batches that are being applied are finished. Exit status 1 if a line
    stands, or a batch could not be applied; what it is, and what to do, is said on standard error.
    """
    with given.lake() as lake, _counting() as step:
        done = lake.tables.apply(on_progress=step, **how)

    def people() -> None:
        for one in done.applied:
            rows = "" if one.rows is None else f", {count(one.rows, 'row')}"
            version = "no row changed" if one.version is None else f"version {one.version}"
            click.echo(f"{one.batch}: applied, {version}{rows}")
        for one in done.late:
            click.echo(f"{one.batch}: late, and not applied")
        if not done.applied and not done.late:
            say("There was nothing to apply.")

    told = {**plain(done), "applied": [_plain(one) for one in done.applied], "late": [_plain(one) for one in done.late]}
    given.show(told, people)
    for name, why in done.waiting.items():
        say(f"{name} waits: {why}")
    problems = [*(f"{name} stands: {why}" for name, why in done.stopped.items()), *done.problems]
    for problem in problems:
        say(f"catchment: {problem}")
    if problems:
        raise click.exceptions.Exit(1)


@click.command()
@_some
@options
def status(*, given: Given, **which: Any) -> None:
    """Show what waits, who is at work, what was applied last, and why a line stands.

    Names whose order as text is not that of their numbers (10 before 9) are told as suspicious. Exit status 1 if a line
    stands or a batch has failed.
    """
    with given.lake() as lake:
        found = lake.tables.status(**which)

    def people() -> None:
        if found.tables:
            columns = ("", "table", "batches", "applied", "backlog", "next", "lock", "owner", "batch", "last applied")
            table(
                columns,
                [_row(one) for one in found.tables],
                ["green" if one.well else "bold red" for one in found.tables],
            )
        else:
            say("There are no tables.")
        for one in found.tables:
            for why in one.stopped:
                say(f"{one.table}: {why}")
            for pair in one.suspicious:
                say(f"{one.table}: suspicious order: {pair}; pad the numbers with zeros")
            for late in one.late:
                say(f"{one.table}: {late} came late and was not applied")
        for problem in found.problems:
            say(problem)

    given.show({"well": found.well, **plain(found)}, people)
    if not found.well:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("name", metavar="TABLE")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="So many versions.")
@options
def history(*, given: Given, name: str, limit: int) -> None:
    """Show which batch made which version of a table, with its rows and how long it took; the newest first."""
    with given.lake() as lake:
        found = list(lake.tables.history(name, limit=limit))

    def people() -> None:
        columns = ("version", "when", "operation", "batch", "publication", "rows", "seconds")
        table(columns, [_made(one) for one in found])

    given.show(found, people)


@click.command()
@click.argument("name", metavar="TABLE")
@click.option("--batch", metavar="PATH", help="Only this batch, by its folder below the table's.")
@options
def retry(*, given: Given, name: str, batch: str | None) -> None:
    """Try again what failed: free the lock of a line that stands and keep its pointer, or let unordered batches run.

    The batch's files are listed anew, so it need not be published again after they were mended.
    """
    with given.lake() as lake:
        done = lake.tables.retry(name, batch=batch)
    given.show(done, lambda: click.echo("\n".join(f"{one.table}/{one.batch} {one.what}" for one in done)))


@click.command()
@click.argument("name", metavar="TABLE")
@click.option("--batch", metavar="PATH", help="This batch. [default: the one at which the line stands]")
@options
def skip(*, given: Given, name: str, batch: str | None) -> None:
    """Leave a batch out for good: an empty commit under its name keeps even a forgotten process from applying it."""
    with given.lake() as lake:
        done = lake.tables.skip(name, batch=batch)
    given.show(done, lambda: click.echo(f"{done.table}/{done.batch} {done.what} (version {done.version})"))


@click.command()
@click.argument("name", metavar="TABLE")
@options
def resume(*, given: Given, name: str) -> None:
    """Go on after the lock was removed by hand, or with the next batch where each is validated: posts _BACKFILL."""
    with given.lake() as lake:
        done = lake.tables.resume(name)
    given.show(done, lambda: click.echo(f"{done.table} {done.what}"))


def _row(one: Standing) -> list[str]:
    return [
        "ok" if one.well else "stands",
        one.table,
        f"{one.batches:,}",
        f"{one.applied:,}",
        f"{one.backlog:,}" if one.ordered else f"{one.pending:,} not ordered",
        one.next or "",
        one.state,
        f"{one.owner} (gone)" if one.owner_gone else one.owner,
        one.batch,
        one.last or "",
    ]


def _made(one: Commit) -> list[str]:
    note = one.note
    batch = (note.batch, note.publication) if note else ("", "")
    seconds = None if one.seconds is None else f"{one.seconds:.1f}"
    values = (one.version, one.at.isoformat(timespec="seconds"), one.operation, *batch, one.rows, seconds)
    return ["" if value is None else str(value) for value in values]


def _plain(one: Any) -> dict[str, Any]:
    return {"batch": str(one.batch), "version": one.version, "rows": one.rows}


@contextmanager
def _counting() -> Iterator[Callable[[Progress], None]]:
    """Says how many batches were applied."""
    from catchment.cli.bars import telling

    with telling() as tell:

        def step(progress: Progress) -> None:
            stands = f", {len(progress.stopped)} stand" if progress.stopped else ""
            tell(f"{count(len(progress.applied), 'batch')} applied{stands}".replace("batchs", "batches"))

        yield step

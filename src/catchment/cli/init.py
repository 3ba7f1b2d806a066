"""`catchment init`."""

from __future__ import annotations

from pathlib import Path

import click

from catchment.cli.output import Given, options, say


@click.command()
@click.option("--force", is_flag=True, help="Write over a file that is there already.")
@options
def init(*, given: Given, force: bool) -> None:
    """Write a commented catchment.yaml to start from.

    It goes to ./catchment.yaml, or to the path that --config names, and works as it is.
    """
    from catchment.lake.begin import begin

    path = begin(Path(given.config or "catchment.yaml"), force=force)
    given.show({"config": path}, lambda: click.echo(str(path)))
    say("Read it, change it, then try: catchment check")

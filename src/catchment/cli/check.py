"""`catchment check`."""

from __future__ import annotations

import click

from catchment.cli.output import Given, options, say, table

_STYLES = {"ok": "green", "limited": "yellow", "failed": "bold red", "unused": "dim"}


@click.command()
@click.option("--spark/--no-spark", default=True, help="Start Spark and run a small job.", show_default=True)
@options
def check(*, given: Given, spark: bool) -> None:
    """Say whether what the configuration names is in reach, and what it can do.

    Each object storage is probed by writing, reading and removing a few small objects under _catchment/probe/. Exit
    status 1 if a part that is needed failed.
    """
    from catchment.lake import Lake

    with Lake.open(given.config, workspace=given.workspace) as lake:
        findings = lake.check(spark=spark)

    def people() -> None:
        rows = [(str(f.verdict), f.part, f.name, f.detail) for f in findings]
        table(("", "part", "name", "found"), rows, [_STYLES[f.verdict] for f in findings])
        for finding in findings:
            if finding.hint and finding.verdict != "unused":
                say(f"{finding.part} {finding.name}: {finding.hint}")

    given.show(findings, people)
    if any(finding.verdict == "failed" for finding in findings):
        raise click.exceptions.Exit(1)

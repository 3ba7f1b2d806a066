"""`catchment feeds …`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from catchment.cli.output import Given, count, options, say, table
from catchment.cli.values import ids, moment

if TYPE_CHECKING:
    from catchment.feeds.cycle import Report
    from catchment.feeds.delete import Deletion
    from catchment.feeds.status import Doing, Status
    from catchment.feeds.union import Flaw

F = TypeVar("F", bound=Callable[..., Any])


def _choice(name: str, words: str, *, required: bool = False) -> Callable[[F], F]:
    """Give a command an option for ids."""
    return click.option(name, metavar="ID,…", multiple=True, callback=ids, required=required, help=words)


_FEEDS = _choice("--feed-ids", "Only these feeds.")
_STORAGES = _choice("--object-storage-ids", "Only these object storages.")


def _period(*, required: bool = False) -> Callable[[F], F]:
    """Give a command `--start-time` and `--end-time`."""

    def decorate(command: F) -> F:
        for name, words in (
            ("--end-time", "The end of the period, rounded up to the hour."),
            ("--start-time", "The start of the period, rounded down to the hour."),
        ):
            command = click.option(name, metavar="TIME", callback=moment, required=required, help=words)(command)
        return command

    return decorate


@click.command()
@click.option(
    "--monitoring-port", type=click.IntRange(0, 65535), metavar="PORT", help="Serve /metrics and /healthz here."
)
@click.option("--once", is_flag=True, help="Poll nothing: settle what is there, then end.")
@options
def collect(*, given: Given, monitoring_port: int | None, once: bool) -> None:
    """Poll every feed on its period; archive, upload and reconcile each hour when it ends.

    SIGTERM or SIGINT: stop polling, send what is in the workspace to the object storages, and end within the
    configuration's shutdown_deadline. SIGHUP: take up the configuration anew. Exit status 1 if something is left in the
    workspace at the end.
    """
    with given.lake() as lake:
        if once:
            _told(given, lake.feeds.collect_once())
        ended = lake.feeds.collect(monitoring_port=monitoring_port)

    def people() -> None:
        state = "nothing is left in the workspace" if ended.clean else "something is left in the workspace"
        click.echo(f"ended ({ended.why}); {state}")

    given.show(ended, people)
    if not ended.clean:
        raise click.exceptions.Exit(1)


@click.command()
@options
def archive(*, given: Given) -> None:
    """Pack the downloads of every hour that has ended into archives, in the workspace."""
    with given.lake() as lake:
        _told(given, lake.feeds.archive())


@click.command()
@options
def upload(*, given: Given) -> None:
    """Put the archives of the workspace into every object storage, and then remove them here."""
    with given.lake() as lake:
        _told(given, lake.feeds.upload())


@click.command()
@_period()
@_FEEDS
@_STORAGES
@options
def reconcile(*, given: Given, **which: Any) -> None:
    """Merge the archives of each hour into one, and bring hours to the storages that lack them.

    Safe to run at any time, next to collectors and to itself. All hours, unless a period is given.
    """
    with given.lake() as lake:
        _told(given, lake.feeds.reconcile(**which))


@click.command()
@options
def clean(*, given: Given) -> None:
    """Send all that is in the workspace to the object storages, the current hour too.

    Afterwards nothing is confined to this machine. Exit status 1 if something could not be sent.
    """
    with given.lake() as lake:
        done = lake.feeds.clean()

    def people() -> None:
        _report(done.report)
        click.echo("nothing is left in the workspace" if done.clean else f"left here: {count(len(done.left), 'file')}")

    given.show(done, people)
    _tell(done.report.problems)
    if done.report.problems or not done.clean:
        raise click.exceptions.Exit(1)


@click.command()
@click.option(
    "--target-directory", type=click.Path(path_type=Path, file_okay=False), required=True, help="Where the files go."
)
@_period()
@_FEEDS
@click.option("--collapse-feeds", is_flag=True, help="Put the files of all feeds for the same hour in one folder.")
@click.option("--collapse-time", is_flag=True, help="Put the files of all hours in one folder.")
@click.option("--no-extract", is_flag=True, help="Keep the archives as they are, one for each hour.")
@click.option("--fold", is_flag=True, help="Leave out a body that is equal to the one before it in its hour.")
@_STORAGES
@options
def retrieve(*, given: Given, target_directory: Path, **how: Any) -> None:
    """Copy downloads from object storage to this machine, each body checked against its hash.

    From the first object storage, unless others are named; all feeds and all hours, unless some are. Hours that are not
    reconciled yet are read as one. Repeat it to get what is missing: what is there whole is not fetched again. Exit
    status 1 if something could not be had; everything else is in place.
    """
    from catchment.cli.bars import bars

    with given.lake() as lake, bars("hours") as step:
        done = lake.feeds.retrieve(
            target_directory,
            on_progress=lambda now: step(now.hours, now.hours_total, now.bytes, now.bytes_total),
            **how,
        )

    def people() -> None:
        kept = f", {done.kept} of them from before" if done.kept else ""
        written = f"{count(done.files, 'file')} written, {count(done.bytes, 'byte')}"
        click.echo(f"{count(done.hours, 'hour')} in {done.target}{kept}; {written}")

    given.show(done, people)
    _tell(done.problems)
    if done.problems:
        raise click.exceptions.Exit(1)


@click.command()
@_period(required=True)
@_FEEDS
@_choice("--object-storage-ids", "Delete from these object storages.", required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@options
def delete(
    *,
    given: Given,
    start_time: datetime,
    end_time: datetime,
    feed_ids: list[str] | None,
    object_storage_ids: list[str],
    yes: bool,
) -> None:
    """Remove the archives of a period from the object storages that are named, so that they stay removed.

    Shows what would go, and asks. Hours deleted from one storage are neither uploaded nor copied to it again. The
    current hour is left out. To have an hour back, remove its _deleted.json from the storage.
    """

    def confirm(plans: dict[str, Deletion]) -> bool:
        for id, plan in plans.items():
            for feed in dict.fromkeys(doomed.feed for doomed in plan.hours):
                hours = [doomed for doomed in plan.hours if doomed.feed == feed]
                archives, size = sum(len(doomed.archives) for doomed in hours), sum(doomed.size for doomed in hours)
                first, last = hours[0].hour.text, hours[-1].hour.text
                what = f"{count(archives, 'archive')}, {count(size, 'byte')}"
                say(f"{id}: {feed}: {count(len(hours), 'hour')}, {first} to {last}: {what}")
        try:
            return yes or click.confirm("Delete them for good?", default=False, err=True)
        except click.Abort:  # nobody is there to answer
            return False

    with given.lake() as lake:
        done = lake.feeds.delete(
            object_storage_ids=object_storage_ids,
            start_time=start_time,
            end_time=end_time,
            feed_ids=feed_ids,
            confirm=confirm,
        )
    hours = sum(len(plan.hours) for plan in done.plans.values())

    def people() -> None:
        if not hours:
            click.echo("there is nothing to delete in that period")
        else:
            gone = f"{count(hours, 'hour')} deleted, {count(done.removed, 'object')} removed"
            click.echo(gone if done.done else "nothing was deleted")

    given.show(done, people)
    if hours and not done.done:
        raise click.exceptions.Exit(1)


@click.command()
@_period()
@_FEEDS
@_STORAGES
@click.option("--quick", is_flag=True, help="Go by listings only: find no corrupt archives.")
@click.option("--fix", is_flag=True, help="Mend what can be mended.")
@options
def audit(*, given: Given, quick: bool, fix: bool, **which: Any) -> None:
    """Find hours that are unmerged, unreplicated, missing or corrupt, or compressed otherwise than configured.

    Every archive is read whole, unless --quick is given. --fix reconciles, sets damaged downloads aside, and copies
    from one storage to another. Exit status 1 if something is wrong that was not mended; a note is nothing wrong.
    """
    from catchment.cli.bars import bars

    with given.lake() as lake, bars("hours") as step:
        found = lake.feeds.audit(read=not quick, fix=fix, on_progress=step, **which)

    def people() -> None:
        if found.findings:
            rows = [
                (
                    "mended" if finding.mended else "note" if finding.note else str(finding.kind),
                    str(finding.kind) if finding.mended or finding.note else "",
                    finding.feed,
                    f"{finding.hour:%Y-%m-%dT%H}" + (f" +{finding.hours - 1}" if finding.hours > 1 else ""),
                    finding.storage or "all",
                    finding.detail,
                )
                for finding in found.findings
            ]
            styles = [
                "green" if finding.mended else "yellow" if finding.note else "bold red" for finding in found.findings
            ]
            table(("", "kind", "feed", "hour", "storage", "found"), rows, styles)
        looked = f"{count(found.hours, 'hour')} looked at, {count(found.archives, 'archive')} read"
        click.echo(f"{looked}, {count(len(found.findings), 'finding')}")

    given.show(found, people)
    _tell(found.problems)
    if not found.well:
        raise click.exceptions.Exit(1)


@click.command()
@_FEEDS
@click.option("--hours", type=click.IntRange(1), default=24, show_default=True, help="How many hours to look back.")
@options
def status(*, given: Given, feed_ids: list[str] | None, hours: int) -> None:
    """Show how each feed fares: what the storages have of its last hours, and what this workspace's replica did.

    Exit status 1 if something has failed since it last worked.
    """
    with given.lake() as lake:
        found = lake.feeds.status(feed_ids=feed_ids, hours=hours)

    def people() -> None:
        if not found:
            say("There are no feeds, neither in the configuration nor in the storages.")
            return
        columns = ("feed", "last download", "archive", "upload", "reconcile", "waiting here", *_storages_of(found))
        table(columns, [_row(one, hours) for one in found], ["bold red" if one.failing else "green" for one in found])
        for one in found:
            for stock in one.stock:
                if stock.error:
                    say(f"{one.feed} in {stock.storage}: {stock.error}")

    given.show(found, people)
    if any(one.failing for one in found):
        raise click.exceptions.Exit(1)


def _row(one: Status, hours: int) -> list[str]:
    waiting = f"{count(one.waiting_downloads, 'download')}, {count(one.waiting_archives, 'archive')}"
    row = [one.feed + ("" if one.declared else " (not declared)")]
    row += [_doing(doing) for doing in (one.download, one.archive, one.upload, one.reconcile)]
    row.append(waiting if one.waiting_downloads or one.waiting_archives else "nothing")
    for stock in one.stock:
        merged = f", {stock.unmerged} unmerged" if stock.unmerged else ""
        held = f"{stock.hours}/{count(hours, 'hour')}{merged}, {count(stock.bytes, 'byte')}"
        row.append("no answer" if stock.error else held)
    return row


def _doing(doing: Doing) -> str:
    when = f"{doing.last_success:%Y-%m-%d %H:%M:%S}" if doing.last_success else "never"
    return when + (f" ({count(doing.errors_in_a_row, 'error')} since)" if doing.errors_in_a_row else "")


def _storages_of(found: Sequence[Status]) -> list[str]:
    return [f"in {stock.storage}" for stock in found[0].stock]


def _told(given: Given, report: Report) -> None:
    given.show(report, lambda: _report(report))
    _tell(report.problems)
    raise click.exceptions.Exit(0 if report.well else 1)


def _report(report: Report) -> None:
    made, sent, settled = len(report.archived), len(report.uploaded), len(report.reconciled)
    click.echo(f"{count(made, 'archive')} made, {count(sent, 'upload')}, {count(settled, 'hour')} reconciled")


def _tell(problems: Sequence[str | Flaw]) -> None:
    for problem in problems:
        say(f"catchment: {problem}")

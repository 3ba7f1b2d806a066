"""`catchment topics …`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from catchment.cli.output import Given, count, options, plain, say, table
from catchment.cli.values import ids, moment

if TYPE_CHECKING:
    from catchment.topics.service import Progress
    from catchment.topics.status import Standing

F = TypeVar("F", bound=Callable[..., Any])


def _chosen(command: F) -> F:
    """Give a command `--group` and `--topic`, each for one or several."""
    for name, key, words in (
        ("--topic", "topics", "Only these Kafka topics."),
        ("--group", "groups", "Only these exports."),
    ):
        command = click.option(name, key, metavar="NAME,…", multiple=True, callback=ids, help=words)(command)
    return command


@click.command()
@click.option("--once", is_flag=True, help="Export what is due now, as the policy sees it, then end.")
@click.option("--until-caught-up", is_flag=True, help="Export all that is in Kafka now, whatever its age, then end.")
@_chosen
@options
def export(*, given: Given, once: bool, until_caught_up: bool, **which: Any) -> None:
    """Export every topic that matches, exactly once: look, claim, write, commit, again and again.

    Any number of these may run at once, on any number of machines. SIGTERM or SIGINT: the ranges that are being written
    are finished within 20 seconds, or left to the next process. Exit status 1 if something could not be exported; what
    it is, and what to do, is said on standard error.
    """
    from catchment.topics.service import Until

    if once and until_caught_up:
        raise click.UsageError("--once and --until-caught-up do not go together; choose one")
    until = Until.DONE if once else Until.CAUGHT_UP if until_caught_up else Until.STOPPED
    with given.lake() as lake, _counting() as step:
        done = lake.topics.export(until=until, on_progress=step, **which)

    def people() -> None:
        for one in done.exports:
            click.echo(_line(one))

    given.show({"problems": done.problems, **plain(done)}, people)
    for problem in done.problems:
        say(f"catchment: {problem}")
    if done.problems:
        raise click.exceptions.Exit(1)


@click.command()
@_chosen
@options
def status(*, given: Given, **which: Any) -> None:
    """Show how far each Kafka partition is exported, who is at work on it, and what is wrong.

    Three rules are checked against the export's `alerts`: the share of this workspace's writes of the last hour that
    failed, the delay from the newest committable message to the newest in Kafka, and how much is claimed but not
    committed. Exit status 1 if one is broken, or an export cannot go on.
    """
    with given.lake() as lake:
        found = lake.topics.status(**which)

    def people() -> None:
        if found.standings:
            columns = ("", "group", "topic", "Kafka partition", "committed", "latest", "lag", "lag s", "claim", "owner")
            rows = [_row(one) for one in found.standings]
            table(columns, rows, ["bold red" if one.problems else "green" for one in found.standings])
        else:
            say("No topic matches.")
        for one in found.standings:
            for problem in one.problems:
                say(f"{one.group}/{one.topic} Kafka partition {one.kafka_partition}: {problem}")
        for wrote in found.writes:
            if wrote.problem:
                say(f"{wrote.group}/{wrote.topic}: {wrote.problem}")
        for problem in found.problems:
            say(problem)

    given.show({"well": found.well, **plain(found)}, people)
    if not found.well:
        raise click.exceptions.Exit(1)


@click.command()
@_chosen
@click.option("--kafka-partition", type=click.IntRange(0), metavar="N", help="Only this one.")
@click.option("--first-offset", type=click.IntRange(0), metavar="N", help="From this offset on.")
@click.option("--last-offset", type=click.IntRange(0), metavar="N", help="Up to this offset.")
@click.option("--start-time", metavar="TIME", callback=moment, help="Ranges with events at or after this time.")
@click.option("--end-time", metavar="TIME", callback=moment, help="Ranges with events before this time.")
@options
def verify(*, given: Given, **which: Any) -> None:
    """Count every offset again from the files: missing, twice, misplaced, or in a file that no manifest lists.

    Reads every file of the period. Where an export is not split by a time, a period goes by when ranges were committed.
    Exit status 1 if something is wrong; a note is nothing wrong.
    """
    from catchment.cli.bars import bars

    with given.lake() as lake, bars("ranges") as step:
        found = lake.topics.verify(on_progress=lambda now: step(now.done, now.total), **which)

    def people() -> None:
        rows = [
            (
                "note" if one.note else str(one.kind),
                place,
                one.key,
                f"{one.offsets:,}" if one.offsets else "",
                one.message,
            )
            for place, verified in found.items()
            for one in verified.findings
        ]
        if rows:
            table(
                ("", "export", "object", "offsets", "found"),
                rows,
                ["yellow" if row[0] == "note" else "bold red" for row in rows],
            )
        for place, one in found.items():
            counted = f"{count(one.ranges, 'range')}, {count(one.files, 'file')}, {count(one.rows, 'row')}"
            more = f"{count(one.dead, 'dead letter')}, {one.filtered:,} filtered out, {count(one.gaps, 'gap')}"
            click.echo(f"{place}: {counted}, {more}: {one.missing:,} missing, {one.twice:,} twice")
        if not found:
            say("The lake has no exports.")

    told = {
        place: {"good": one.good, "missing": one.missing, "twice": one.twice, **plain(one)}
        for place, one in found.items()
    }
    given.show(told, people)
    if any(one.problems for one in found.values()):
        raise click.exceptions.Exit(1)


@click.command()
@_chosen
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--also-newer", is_flag=True, help="Also files of a newer generation: only while nothing is backfilled.")
@click.option("--back", is_flag=True, help="Also hints that are ahead of their manifests: only while no export runs.")
@options
def repair(*, given: Given, **how: Any) -> None:
    """Rebuild the hints of exports from their manifests, and remove files that no manifest lists.

    Safe at any time, next to running exports: only files wholly below the committed offset go, which no manifest can
    come to list any more. Exit status 1 if something has to be looked at by a person.
    """
    from catchment.cli.bars import bars

    with given.lake() as lake, bars("objects") as step:
        found = lake.topics.repair(on_progress=lambda now: step(now.done, now.total), **how)

    def people() -> None:
        for place, one in found.items():
            would = "would be " if one.dry_run else ""
            for hint in one.hints:
                click.echo(f"{hint.key}: {would}set from {hint.before} to {hint.after} ({hint.why})")
            for key in one.removed:
                click.echo(f"{key}: {would}removed")
            gone = f"{count(len(one.removed), 'file')} {would}removed ({count(one.removed_bytes, 'byte')})"
            kept = f"{count(len(one.kept), 'unlisted file')} kept"
            click.echo(f"{place}: {count(len(one.hints), 'hint')} {would}rebuilt, {gone}, {kept}")
        if not found:
            say("The lake has no exports.")

    given.show(found, people)
    problems = [problem for one in found.values() for problem in one.problems]
    for problem in problems:
        say(f"catchment: {problem}")
    if problems:
        raise click.exceptions.Exit(1)


@click.command()
@click.option("--group", required=True, metavar="NAME", help="The export.")
@click.option("--topic", required=True, metavar="NAME", help="The Kafka topic.")
@click.option("--kafka-partition", type=click.IntRange(0), metavar="N", help="The Kafka partition.")
@click.option("--to", type=click.IntRange(0), metavar="OFFSET", help="Go on at this offset. [default: Kafka's first]")
@click.option("--also-readable", is_flag=True, help="Go over messages that Kafka still has, too.")
@click.option("--recreated", is_flag=True, help="Go on with a topic that was deleted and made again, from its start.")
@options
def skip(*, given: Given, group: str, topic: str, **how: Any) -> None:
    """Go forward over offsets that Kafka no longer has, with a manifest that says so.

    With --recreated, go on with a topic that was deleted and made again: its offsets begin anew, under names of their
    own, and what was exported of the old one stays.
    """
    if how["recreated"] and (how["kafka_partition"] is not None or how["to"] is not None):
        raise click.UsageError("--recreated is about the whole topic; leave out --kafka-partition and --to")
    with given.lake() as lake:
        done = lake.topics.skip(group, topic, **how)

    def people() -> None:
        for one in done:
            over = f"offsets {one.first} to {one.last}" if one.last >= one.first else "nothing"
            click.echo(f"{one.group}/{one.topic} Kafka partition {one.kafka_partition}: went over {over} ({one.why})")

    given.show(done, people)


def _row(one: Standing) -> list[str]:
    claim = one.claim
    return [
        "problem" if one.problems else "ok",
        one.group,
        one.topic,
        str(one.kafka_partition),
        "none" if one.committed is None else f"{one.committed:,}",
        "none" if one.latest is None else f"{one.latest:,}",
        "" if one.lag is None else f"{one.lag:,}",
        "" if one.lag_seconds is None else f"{one.lag_seconds:,.0f}",
        f"{claim.first:,} to {claim.last:,}" if claim else "",
        (claim.owner or "nobody") if claim else "",
    ]


def _line(one: Progress) -> str:
    dead = f", {count(one.dead, 'dead letter')}" if one.dead else ""
    filtered = f", {one.filtered:,} filtered out" if one.filtered else ""
    closed = f", {count(len(one.closed), 'folder')} closed" if one.closed else ""
    written = f"{count(one.rows, 'row')} in {count(one.files, 'file')}, {count(one.bytes, 'byte')}"
    done = f"{count(one.ranges, 'range')}, {count(one.messages, 'message')}"
    return f"{one.group} ({one.match}): {done}, {written}{dead}{filtered}{closed}"


@contextmanager
def _counting() -> Iterator[Callable[[Progress], None]]:
    """Says how far the exports are."""
    from catchment.cli.bars import telling

    known: dict[str, str] = {}
    with telling() as tell:

        def step(progress: Progress) -> None:
            known[progress.group] = f"{progress.group}: {progress.messages:,} messages in {progress.ranges:,} ranges"
            tell(" · ".join(known.values()))

        yield step

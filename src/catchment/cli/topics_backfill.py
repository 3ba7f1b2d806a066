"""`catchment topics backfill`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from catchment.cli.output import Given, count, options, plain, say
from catchment.cli.values import moment

if TYPE_CHECKING:
    from catchment.topics.backfill.run import Backfilled, Done


@click.command()
@click.option("--group", required=True, metavar="NAME", help="The export to write anew; with --to-topic, the backup.")
@click.option("--topic", required=True, metavar="NAME", help="The Kafka topic.")
@click.option("--from", "source", metavar="GROUP", help="Read from this backup. [default: the only one, else Kafka]")
@click.option("--from-kafka", is_flag=True, help="Read from Kafka.")
@click.option("--kafka-partition", type=click.IntRange(0), metavar="N", help="Only this one.")
@click.option("--first-offset", type=click.IntRange(0), metavar="N", help="From this offset on.")
@click.option("--last-offset", type=click.IntRange(0), metavar="N", help="Up to this offset.")
@click.option(
    "--start-time",
    metavar="TIME",
    callback=moment,
    help="Ranges with events at or after this time; with --to-topic, messages.",
)
@click.option(
    "--end-time",
    metavar="TIME",
    callback=moment,
    help="Ranges with events before this time; with --to-topic, messages.",
)
@click.option("--replace", is_flag=True, help="Let readers see the new files in place of the old ones.")
@click.option("--before-start", is_flag=True, help="Also add what lies before the offset at which the export began.")
@click.option("--dry-run", is_flag=True, help="Only say which ranges, files and rows are meant.")
@click.option("--to-topic", metavar="NAME", help="Send the backup's messages to this Kafka topic, and write no files.")
@click.option("--to-brokers", metavar="HOST:PORT,…", help="With --to-topic: in another cluster.")
@click.option("--by-key", is_flag=True, help="With --to-topic: let keys choose the Kafka partitions.")
@click.option("--also-incomplete", is_flag=True, help="With --to-topic: also without timestamps or headers.")
@options
def backfill(*, given: Given, group: str, topic: str, **how: Any) -> None:
    """Write ranges of an export anew by its current definition, next to the live export.

    Set a new `generation` for the changed definition first. Every committed range of an earlier generation that lies in
    the period is read again, from the backup or from Kafka, and written with its bounds unchanged. Without --replace
    the new files are only prepared; with it, each range is swapped in one step: readers by manifests see the old files
    or the new ones. Old files stay until 'catchment topics repair' removes them. Safe to stop and to run again. Exit
    status 1 if a range could not be written; the others are.

    With --to-topic, the messages of the backup --group are sent to another Kafka topic instead, each to the Kafka
    partition of the same number, with key, headers and timestamp, and each once, also if it is stopped and run again.
    """
    from catchment.cli.bars import bars

    kafka = {name: how.pop(name) for name in ("to_topic", "to_brokers", "by_key", "also_incomplete")}
    if kafka["to_topic"] is not None:
        _replay(given, group, topic, {**kafka, **how})
        return
    if any(kafka.values()):
        raise click.UsageError("--to-brokers, --by-key and --also-incomplete go with --to-topic")
    if how["source"] and how["from_kafka"]:
        raise click.UsageError("--from and --from-kafka do not go together; choose one")
    with given.lake() as lake, bars("ranges") as step:
        done = lake.topics.backfill(group, topic, on_progress=lambda now: step(now.done, now.total), **how)
    given.show(_document(done) if given.as_json else None, lambda: _tell(f"{group}/{topic}", done, dry=how["dry_run"]))
    for problem in done.problems:
        say(f"catchment: {problem}")
    if done.problems:
        raise click.exceptions.Exit(1)


def _replay(given: Given, group: str, topic: str, how: dict[str, Any]) -> None:
    from catchment.cli.bars import bars

    for name in ("source", "from_kafka", "replace", "before_start"):
        if how.pop(name):
            option = {"source": "--from"}.get(name, "--" + name.replace("_", "-"))
            raise click.UsageError(f"{option} does not go with --to-topic, which sends what the backup --group has")
    with given.lake() as lake, bars("offsets") as step:
        done = lake.topics.replay(group, topic, on_progress=lambda now: step(now.done, now.total), **how)

    def people() -> None:
        would = "would be sent" if done.dry_run else "sent"
        for one in done.parts:
            resumed = f", after those up to offset {one.resumed - 1} that an earlier run sent" if one.resumed else ""
            click.echo(f"Kafka partition {one.kafka_partition}: {count(one.messages, 'message')} {would}{resumed}")
        click.echo(f"{group}/{topic} to {done.to_topic}: {count(done.messages, 'message')} {would}")

    given.show(done, people)


def _document(done: Backfilled) -> dict[str, Any]:
    """Each range once: the plan has them too, and with all that is current already they may be many."""
    plan = {"current": len(done.plan.current), "newer": done.plan.newer, "unavailable": plain(done.plan.unavailable)}
    told = {"ranges": plain(done.ranges), "mended": done.mended, "unreadable": plain(done.unreadable)}
    return {"problems": done.problems, **plan, **told}


def _tell(place: str, done: Backfilled, *, dry: bool) -> None:
    for one in done.ranges:
        click.echo(_line(one))
        if dry:
            for file in (*one.todo.before.files, *one.todo.before.dead) if one.todo.before else ():
                click.echo(f"  in place of {file.key} ({count(file.rows, 'row')})")
            for read in one.todo.reads:
                click.echo(f"  from {read.what} ({count(read.rows, 'message')})")
    outcomes: dict[str, int] = {}
    for one in done.ranges:
        outcomes[one.outcome] = outcomes.get(one.outcome, 0) + 1
    told = ", ".join(f"{count(number, 'range')} {outcome}" for outcome, number in outcomes.items()) or "nothing to do"
    current = f", {count(len(done.plan.current), 'range')} current already" if done.plan.current else ""
    newer = f", {count(done.plan.newer, 'range')} of a newer generation" if done.plan.newer else ""
    click.echo(f"{place}: {told}{current}{newer}")
    if "prepared" in outcomes:
        say("Readers still see the old files: run it again with --replace.")
    if "swapped" in outcomes:
        say("The old files are still there for whoever is reading them: 'catchment topics repair' removes them.")


def _line(one: Done) -> str:
    before = one.todo.before
    was = f"{before.counts.written:,} rows, {before.counts.dead:,} dead" if before else "nothing"
    now = f" → {one.counts.written:,} rows, {one.counts.dead:,} dead" if one.counts else ""
    return f"{one.todo}: {one.outcome}, {was}{now}"

"""The command line: `catchment …`. This module answers `--help` and `--version` and leaves the rest to `app.py`.

A person who asks what there is should not wait for a parser to load, so this one imports nothing but the standard
library: `catchment --help` costs about what starting Python costs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

from catchment import __version__

# By name: where the command is (module:attribute), or the commands below it; and what it does.
Table: TypeAlias = dict[str, tuple["str | Table", str]]

FEEDS: Table = {
    "collect": ("catchment.cli.feeds:collect", "Poll every feed, and bring each hour to the object storages."),
    "archive": ("catchment.cli.feeds:archive", "Pack the downloads of the hours that have ended."),
    "upload": ("catchment.cli.feeds:upload", "Put the archives of the workspace into every object storage."),
    "reconcile": ("catchment.cli.feeds:reconcile", "Merge the archives of each hour into one, in every storage."),
    "clean": ("catchment.cli.feeds:clean", "Send all that is in the workspace to the object storages."),
    "retrieve": ("catchment.cli.feeds:retrieve", "Copy downloads or archives to this machine."),
    "delete": ("catchment.cli.feeds:delete", "Remove hours from an object storage, for good."),
    "audit": ("catchment.cli.feeds:audit", "Find hours that are unmerged, unreplicated, missing or corrupt."),
    "status": ("catchment.cli.feeds:status", "Show how each feed fares."),
}
TOPICS: Table = {
    "export": ("catchment.cli.topics:export", "Export Kafka topics, exactly once."),
    "status": ("catchment.cli.topics:status", "Show how far each Kafka partition is exported."),
    "verify": ("catchment.cli.topics:verify", "Count every offset again from the files."),
    "locate": ("catchment.cli.topics_look:locate", "Say which file holds an offset, in every group."),
    "show": ("catchment.cli.topics_look:show", "Show the messages of a file, or of an offset."),
    "backfill": ("catchment.cli.topics_backfill:backfill", "Write ranges anew, from a backup or from Kafka."),
    "skip": ("catchment.cli.topics:skip", "Go forward over what Kafka no longer has."),
    "repair": ("catchment.cli.topics:repair", "Rebuild hints, and remove what abandoned attempts left."),
}
TABLES: Table = {
    "apply": ("catchment.cli.tables:apply", "Apply batches to Delta tables, each exactly once."),
    "status": ("catchment.cli.tables:status", "Show what waits, who is at work, and why a line stands."),
    "history": ("catchment.cli.tables:history", "Show which batch made which version of a table."),
    "retry": ("catchment.cli.tables:retry", "Try again what failed."),
    "skip": ("catchment.cli.tables:skip", "Leave a batch out for good."),
    "resume": ("catchment.cli.tables:resume", "Go on after the lock was removed, or with the next batch."),
}
COMMANDS: Table = {
    "init": ("catchment.cli.init:init", "Write a commented catchment.yaml to start from."),
    "check": ("catchment.cli.check:check", "Say whether buckets, Spark and brokers are in reach."),
    "demo": ("catchment.cli.demo:demo", "Show a small lake on this machine, from nothing to a query."),
    "feeds": (FEEDS, "Collect HTTP feeds hour by hour, and get them back."),
    "topics": (TOPICS, "Export Kafka topics to files, by type and day, exactly once."),
    "tables": (TABLES, "Apply batches that land in the bucket to Delta tables, in order."),
}
VERSION = f"catchment {__version__}"
_ABOUT = "Fill a data lake from HTTP feeds, Kafka topics and dropped batches, and keep it honest."


def help_text(*path: str) -> str:
    """What `catchment --help` prints, or `catchment PATH --help` where the path leads to a group of commands."""
    table, about = _group(path) or COMMANDS, COMMANDS[path[0]][1] if path else _ABOUT
    width = max(map(len, table))
    commands = "\n".join(f"  {name:{width}}  {words}" for name, (_, words) in table.items())
    version = "" if path else "  --version   Show the version and exit.\n"
    first = "" if path else "\n  Start with: catchment init"
    return f"""Usage: {" ".join(("catchment", *path))} COMMAND [OPTIONS]

  {about}

Commands:
{commands}

Options:
{version}  -h, --help  Show this message and exit.

  Every command has its own --help, and takes --config, --workspace and --json.{first}"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    asked = given[-1:] in (["-h"], ["--help"])
    path = given[:-1] if asked else given
    if given == ["--version"] or _group(path) is not None:
        with suppress(BrokenPipeError):  # whoever asked has gone
            sys.stdout.write((VERSION if given == ["--version"] else help_text(*path)) + "\n")
            sys.stdout.flush()
        sys.exit(0 if asked or given == ["--version"] else 2)
    from catchment.cli.app import run

    sys.exit(run(given))


def _group(path: Sequence[str]) -> Table | None:
    """The group of commands that these words, and no more, lead to."""
    table = COMMANDS
    for name in path:
        below = table.get(name, ("", ""))[0]
        if isinstance(below, str):
            return None
        table = below
    return table

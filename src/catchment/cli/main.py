"""The command line: `catchment …`. This module answers `--help` and `--version` and leaves the rest to `app.py`.

A person who asks what there is should not wait for a parser to load, so this one imports nothing but the standard
library: `catchment --help` costs about what starting Python costs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

from catchment import __version__

COMMANDS = {  # name → (where it is, what it does)
    "init": ("catchment.cli.init:init", "Write a commented catchment.yaml to start from."),
    "check": ("catchment.cli.check:check", "Say whether buckets, Spark and brokers are in reach."),
    "demo": ("catchment.cli.demo:demo", "Show a small lake on this machine, from nothing to a query."),
}
VERSION = f"catchment {__version__}"


def help_text() -> str:
    """What `catchment --help` prints."""
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:{width}}  {words}" for name, (_, words) in COMMANDS.items())
    return f"""Usage: catchment COMMAND [OPTIONS]

  Fill a data lake from HTTP feeds, Kafka topics and dropped batches, and keep it honest.

Commands:
{commands}

Options:
  --version   Show the version and exit.
  -h, --help  Show this message and exit.

  Every command has its own --help, and takes --config, --workspace and --json.
  Start with: catchment init"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given in ([], ["-h"], ["--help"], ["--version"]):
        with suppress(BrokenPipeError):  # whoever asked has gone
            sys.stdout.write((VERSION if given == ["--version"] else help_text()) + "\n")
            sys.stdout.flush()
        sys.exit(0 if given else 2)
    from catchment.cli.app import run

    sys.exit(run(given))

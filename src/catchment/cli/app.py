"""The commands, behind Click. The pattern that each of them follows:

- It parses, calls one function of the Python API, prints one value. `--json` is another printer, never another path.
- Its module is imported when it is called.
- Results go to standard output; people's text, progress and logs go to standard error.
- Exit status: 0 done, 1 the work found a problem that it reports, 2 wrong usage or configuration.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from catchment.cli.main import COMMANDS, VERSION, Table, help_text
from catchment.cli.output import tell_error
from catchment.errors import CatchmentError, UsageError


class Lazy(click.Group):
    """A group whose commands are named in a table (name → module:attribute) and imported when they are called.

    In place of a command there may be a table again: a group within the group.
    """

    def __init__(self, table: Table, *path: str) -> None:
        """`path` has the names that lead to this group from `catchment` on."""
        version = click.Option(["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_version)
        super().__init__(
            name=path[-1] if path else None,
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
            params=[] if path else [version],
        )
        self._table = table
        self._path = path

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        entry = self._table[cmd_name][0]
        if not isinstance(entry, str):
            return Lazy(entry, *self._path, cmd_name)
        module, _, name = entry.partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def get_help(self, ctx: click.Context) -> str:
        return help_text(*self._path)


def _version(ctx: click.Context, option: click.Parameter, value: object) -> None:
    if value:
        click.echo(VERSION)
        ctx.exit()


def run(arguments: Sequence[str]) -> int:
    """Run one command and return the exit status. Errors of ours are told, not raised."""
    try:
        status = Lazy(COMMANDS).main(args=list(arguments), prog_name="catchment", standalone_mode=False)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "catchment"
        usage = UsageError(error.format_message(), hint=f"see: {path} --help")
        return tell_error(usage, as_json="--json" in arguments)
    except CatchmentError as error:
        return tell_error(error, as_json="--json" in arguments)
    except (KeyboardInterrupt, click.Abort):
        click.echo("stopped", err=True)
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone. Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status if isinstance(status, int) else 0

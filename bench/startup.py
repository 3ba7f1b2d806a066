"""How long the command line takes to answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.measure import against

CATCHMENT = str(Path(sys.executable).with_name("catchment"))


def run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    def nothing() -> None:
        run(sys.executable, "-c", "pass")

    against("catchment --help, against python -c pass", lambda: run(CATCHMENT, "--help"), nothing, rounds=21)
    against("catchment --version, against python -c pass", lambda: run(CATCHMENT, "--version"), nothing, rounds=21)
    # What a heavier command line would cost: the frameworks that many use, imported and nothing more.
    against(
        "(import click, rich.console alone)", lambda: run(sys.executable, "-c", "import click, rich.console"), nothing
    )


if __name__ == "__main__":
    main()

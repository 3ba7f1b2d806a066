"""Programs that tests run in a process of their own: one process has one Spark, and is quiet or not as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress


def run(
    program: str, *arguments: str, env: Mapping[str, str] | None = None, input: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run Python text and give back what it said and how it ended."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        input=input,
        check=False,
        env={**os.environ, **(env or {})},
    )


@contextmanager
def process(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A module that runs as a program; it and all that it started is killed at the end of the block."""
    running = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate()

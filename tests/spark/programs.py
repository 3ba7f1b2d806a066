"""Programs that tests run in a process of their own: one process has one Spark, and is quiet or not as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping


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

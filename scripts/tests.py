"""Run all tests, in two processes at a time: those with Spark in one, all others in the other.

Arguments go to both. What the second one says is printed when it has ended. Exit status 1 if a test failed in either.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

HALVES = (("tests/unit", "tests/contract", "tests/model", "tests/servers"), ("tests/spark",))
NOTHING = 5  # pytest's exit status when no test was chosen


def main(arguments: list[str]) -> int:
    """The exit status."""
    here, aside = ([sys.executable, "-m", "pytest", *half, *arguments] for half in HALVES)
    with tempfile.TemporaryFile() as said:
        # A cache of its own would be fought over.
        other = subprocess.Popen([*aside, "-p", "no:cacheprovider"], stdout=said, stderr=subprocess.STDOUT)
        try:
            first = subprocess.run(here, check=False).returncode
            second = other.wait()
        except BaseException:
            other.terminate()
            other.wait()
            raise
        finally:
            said.seek(0)
            sys.stdout.buffer.write(b"\n" + said.read())
            sys.stdout.flush()
    return 0 if {first, second} <= {0, NOTHING} and first + second < 2 * NOTHING else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

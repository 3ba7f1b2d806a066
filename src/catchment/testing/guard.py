"""Runs one server and ends it when its owner is gone. Started by process.py as a script of its own; stdlib only.

    python -I -S guard.py HOME LOG COMMAND…

Writes the server's pid to standard output. Standard input is the lifeline: the line `stop SECONDS` ends the server
(SIGTERM, then SIGKILL that many seconds later; 0 kills at once) and keeps HOME. When the lifeline breaks or the parent
changes, the owner died without a word: the server is killed and HOME removed. Exits with the server's status.

A process of its own, since the other ways do not hold: an exit hook does not run when the owner is killed, and Linux's
parent-death signal fires already when the *thread* that started the server ends.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

LOOK_EVERY = 0.1  # seconds between looks at server and parent; a fork of the owner can hold the lifeline open


def main(home: str, log: str, command: list[str]) -> int:
    """Run the command until it ends or has to."""
    owner = os.getppid()
    with Path(log).open("ab", buffering=0) as out:
        try:
            server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=home, start_new_session=True
            )
        except OSError as error:
            out.write(f"cannot run {command[0]}: {error}\n".encode())
            _say(0)
            return 127
    _say(server.pid)
    said = b""
    while server.poll() is None:
        ready, _, _ = select.select([0], [], [], LOOK_EVERY)
        got = os.read(0, 100) if ready else b""
        said += got
        if said.endswith(b"\n"):
            return _stop(server, float(said.split()[1]))
        if (ready and not got) or os.getppid() != owner:
            _stop(server, 0)
            shutil.rmtree(home, ignore_errors=True)
            return 1
    return server.returncode


def _say(pid: int) -> None:
    sys.stdout.write(f"{pid}\n")
    sys.stdout.flush()


def _stop(server: subprocess.Popen[bytes], grace: float) -> int:
    """SIGTERM, wait, SIGKILL. A paused server is woken, or it could not hear the first."""
    if grace > 0:
        server.terminate()
        os.kill(server.pid, signal.SIGCONT)
        end = time.monotonic() + grace
        while time.monotonic() < end:
            if server.poll() is not None:
                return server.returncode
            time.sleep(0.02)
    server.kill()
    return server.wait()


if __name__ == "__main__":
    # Ctrl-C is for the owner, which then stops us in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))

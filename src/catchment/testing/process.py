"""A server as a process: started, waited for, ended by its pid, and never left behind.

A small guard process (guard.py) stands between us and the server and ends it even if we are killed. What the server
wrote is kept in `log`, and its end is shown when starting fails.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from catchment.errors import SetupError

HOST = "127.0.0.1"
GUARD = Path(__file__).with_name("guard.py")
# Below the ports that systems hand out to clients, so that no client of ours sits on one that we picked.
PORTS = range(20_000, 32_000)


class PortTaken(SetupError):
    """Somebody else got the port between our look and the server's start. Pick another and start again."""


def free_port() -> int:
    """A port on which nobody listens now. It may be taken before it is used: be ready to pick again."""
    for port in random.sample(PORTS, 200):
        with socket.socket() as probe:
            # What servers do too; without it a port with connections that were closed a minute ago looks taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise SetupError(f"no free port among {PORTS.start} to {PORTS.stop}", hint="end some servers on this machine")


def answers(port: int) -> bool:
    """Whether something accepts connections there."""
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False


def private_folder(name: str) -> Path:
    """A new folder for one server. The guard removes it if we die."""
    return Path(tempfile.mkdtemp(prefix=f"catchment-{name}-"))


class ServerProcess:
    """One server. `start` returns when it answers; `stop` when it is gone."""

    def __init__(self, name: str, command: Sequence[str], home: Path, *, env: Mapping[str, str] | None = None) -> None:
        """`home` is its private folder, absolute: its working directory, and removed if our process dies."""
        self.name = name
        self.command = tuple(command)
        self.home = home
        self.log = home / "server.log"
        self._env = dict(env or {})
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._began = 0  # where in the log this start's lines begin

    @property
    def pid(self) -> int:
        """The server's own process id; 0 if it is not running."""
        return self._pid

    @property
    def running(self) -> bool:
        return self._guard is not None and self._guard.poll() is None

    def start(self, ready: Callable[[], bool], *, patience: float = 60) -> None:
        """Start it and wait until `ready` says so. SetupError, with the end of its log, if it ends first or never is.

        `ready` must know this server from a stranger who got its port first and answers on it. PortTaken if the log
        says that this happened.
        """
        if self._guard is not None:
            raise SetupError(f"{self.name} is running already", hint="stop it first")
        self._began = self.log.stat().st_size if self.log.exists() else 0
        # Only the guard may hold the lifeline: Popen's pipes are not inherited by what we start later.
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), str(self.home), str(self.log), *self.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **self._env},
            start_new_session=True,  # Ctrl-C in the terminal must not end servers before the tests let go of them
        )
        try:
            assert self._guard.stdout is not None
            self._pid = int(self._guard.stdout.readline() or b"0")
            end = time.monotonic() + patience
            while not ready():
                if not self.running:
                    raise self._failure(f"ended with status {self._guard.returncode} instead of starting")
                if time.monotonic() > end:
                    raise self._failure(f"gave no answer within {patience:g} seconds")
                time.sleep(0.02)
        except BaseException:
            self.stop()
            raise

    def stop(self, *, grace: float = 0) -> None:
        """End it: SIGTERM and `grace` seconds to comply, then SIGKILL. The folder stays. Fine to repeat."""
        guard, self._guard = self._guard, None
        pid, self._pid = self._pid, 0
        if guard is None:
            return
        assert guard.stdin is not None
        assert guard.stdout is not None
        with suppress(BrokenPipeError):  # the server may have ended by itself, and its guard after it
            guard.stdin.write(f"stop {grace}\n".encode())
            guard.stdin.flush()
        try:
            guard.wait(grace + 10)
        except subprocess.TimeoutExpired:
            # The guard is its parent and has not reaped it, so this pid is still its own.
            if pid:
                os.kill(pid, signal.SIGKILL)
            guard.kill()
            guard.wait()
        with suppress(BrokenPipeError):
            guard.stdin.close()
        guard.stdout.close()

    def pause(self) -> None:
        """Freeze it as it is: connections stay open and nothing answers. SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`. SIGCONT."""
        self._signal(signal.SIGCONT)

    def log_tail(self, lines: int = 30) -> str:
        """The end of what it wrote since it was last started."""
        try:
            with self.log.open("rb") as stream:
                stream.seek(0, os.SEEK_END)
                stream.seek(max(self._began, stream.tell() - 64_000))
                text = stream.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        if not self.running or not self._pid:
            raise SetupError(f"{self.name} is not running", hint=f"its log: {self.log}")
        os.kill(self._pid, number)

    def _failure(self, what: str) -> SetupError:
        tail = self.log_tail()
        kind = PortTaken if "in use" in tail.lower() else SetupError
        shown = "".join(f"\n    {line}" for line in tail.splitlines()) or " (it wrote nothing)"
        return kind(f"{self.name} {what}. The end of its log:{shown}")


def started(
    make: Callable[[int], ServerProcess], ready: Callable[[int], bool], *, patience: float = 60, tries: int = 5
) -> tuple[ServerProcess, int]:
    """A running server on a free port, and that port; tries others while somebody else is quicker."""
    for left in reversed(range(tries)):
        port = free_port()
        process = make(port)
        try:
            process.start(lambda port=port: ready(port), patience=patience)  # type: ignore[misc]
        except PortTaken:
            if left:
                continue
            raise
        return process, port
    raise AssertionError("unreachable")


def remove(home: Path) -> None:
    """Remove a server's private folder, as far as possible."""
    shutil.rmtree(home, ignore_errors=True)

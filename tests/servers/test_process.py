"""Servers as processes: they start, say why not, and never outlive their owner."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from catchment.errors import SetupError
from catchment.testing.process import HOST, PortTaken, ServerProcess, answers, free_port, started

LISTEN = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    server.accept()[0].close()
"""
READY_FILE = """
import pathlib, signal, sys, time
def end(*_):
    pathlib.Path("ended").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, {handler})
pathlib.Path("ready").touch()
while True:
    time.sleep(0.05)
"""


def listener(home: Path, port: int) -> ServerProcess:
    return ServerProcess("listener", [sys.executable, "-c", LISTEN, str(port)], home)


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_it_starts_and_is_gone_after_stop(tmp_path: Path) -> None:
    process, port = started(lambda port: listener(tmp_path, port), answers)
    pid = process.pid
    assert (process.running, answers(port), gone(pid)) == (True, True, False)
    process.stop()
    process.stop()
    assert (process.running, process.pid, answers(port), gone(pid)) == (False, 0, False, True)
    assert tmp_path.exists()
    process.start(lambda: answers(port))
    assert answers(port)
    process.stop()


def test_a_server_that_ends_at_once_shows_its_log(tmp_path: Path) -> None:
    broken = [sys.executable, "-c", "import sys; print('config line 3 is wrong'); sys.exit(4)"]
    with pytest.raises(SetupError, match=r"(?s)status 4.*config line 3 is wrong") as caught:
        ServerProcess("thing", broken, tmp_path).start(lambda: False)
    assert not isinstance(caught.value, PortTaken)


def test_only_what_this_start_wrote_counts(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("an earlier one said: address already in use\n")
    with pytest.raises(SetupError, match="something else") as caught:
        ServerProcess("thing", ["sh", "-c", "echo something else; exit 1"], tmp_path).start(lambda: False)
    assert not isinstance(caught.value, PortTaken)
    assert "earlier" not in str(caught.value)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"cannot run .*no-such-program"):
        ServerProcess("thing", [str(tmp_path / "no-such-program")], tmp_path).start(lambda: False)


def test_a_server_that_never_answers_is_ended(tmp_path: Path) -> None:
    process = ServerProcess("sleeper", ["sleep", "600"], tmp_path)
    seen: list[int] = []

    def ready() -> bool:
        seen.append(process.pid)
        return False

    with pytest.raises(SetupError, match=r"no answer within 0\.1 seconds"):
        process.start(ready, patience=0.1)
    assert seen[0] > 0
    assert gone(seen[0])


def test_another_port_is_tried_while_somebody_is_quicker(tmp_path: Path) -> None:
    made: list[ServerProcess] = []
    with socket.create_server((HOST, 0)) as stranger:
        taken = stranger.getsockname()[1]

        def make(port: int) -> ServerProcess:
            made.append(listener(tmp_path, port if len(made) == 2 else taken))
            return made[-1]

        process, port = started(make, lambda port: len(made) == 3 and answers(port))
        try:
            assert (process, answers(port), port == taken) == (made[2], True, False)
        finally:
            process.stop()
        made.clear()
        with pytest.raises(PortTaken, match="in use"):
            started(make, lambda port: False, tries=2)


def test_a_free_port_is_free() -> None:
    with socket.create_server((HOST, free_port())) as server:
        assert server.getsockname()[1] > 0


@pytest.mark.parametrize(
    ("handler", "grace", "in_order"), [("end", 30, True), ("end", 0, False), ("signal.SIG_IGN", 0.2, False)]
)
def test_grace_lets_a_server_end_in_order_and_no_longer(
    tmp_path: Path, handler: str, grace: float, *, in_order: bool
) -> None:
    program = READY_FILE.replace("{handler}", handler)
    process = ServerProcess("graceful", [sys.executable, "-c", program], tmp_path)
    process.start((tmp_path / "ready").exists)
    pid = process.pid
    process.pause()  # also a paused one hears that it should end
    process.stop(grace=grace)
    assert gone(pid)
    assert (tmp_path / "ended").exists() == in_order


def test_pause_and_resume(tmp_path: Path) -> None:
    process, _ = started(lambda port: listener(tmp_path, port), answers)
    try:
        process.pause()
        eventually(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
        process.resume()
        eventually(lambda: psutil.Process(process.pid).status() != psutil.STATUS_STOPPED)
    finally:
        process.stop()
    with pytest.raises(SetupError, match="not running"):
        process.pause()


OWNER = """
import os, pathlib, sys, time
from catchment.testing.process import ServerProcess
process = ServerProcess("orphan", ["sleep", "600"], pathlib.Path(sys.argv[1]))
process.start(lambda: True)
if sys.argv[2] == "fork" and os.fork() == 0:
    time.sleep(600)  # holds copies of everything its parent had open
print(process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("way", ["plain", "fork"])
def test_a_killed_owner_takes_its_server_along(tmp_path: Path, way: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(home), way], stdout=subprocess.PIPE, start_new_session=True
    )
    children: list[psutil.Process] = []
    try:
        assert owner.stdout is not None
        server = int(owner.stdout.readline())
        children = psutil.Process(owner.pid).children()
        assert not gone(server)
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        eventually(lambda: gone(server))
        eventually(lambda: not home.exists())
    finally:
        owner.kill()
        owner.wait()
        for child in children:
            if child.is_running():
                child.kill()
        assert owner.stdout is not None
        owner.stdout.close()

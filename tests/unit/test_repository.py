"""The repository keeps its own rules."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_has_a_hash_for_everything_and_no_address(lock: Path) -> None:
    text = lock.read_text()
    assert "//" not in text
    blocks = re.split(r"\n(?=\S)", text.strip())
    assert blocks
    for block in blocks:
        assert re.match(r"[a-z0-9.\-\[\]]+==\S+", block), block
        assert "--hash=sha256:" in block, block


def needed() -> list[str]:
    project = PROJECT["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values(), PROJECT["dependency-groups"]["dev"]]
    return [re.split(r"[\[<>=]", line)[0] for found in lists for line in found]


@pytest.mark.parametrize("name", needed())
def test_a_dependency_is_locked_and_has_its_reason(name: str) -> None:
    assert re.search(rf"^{name.lower()}==", (ROOT / "requirements" / "dev.txt").read_text(), re.MULTILINE)
    assert name in (ROOT / "docs" / "dependencies.md").read_text()


def test_tools_and_packages_agree_on_shared_versions() -> None:
    """Both lists go into one environment."""
    tools, packages = (
        dict(re.findall(r"^(\S+)==(\S+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE))
        for name in ("tools.txt", "dev.txt")
    )
    shared = tools.keys() & packages.keys()
    assert {name: tools[name] for name in shared} == {name: packages[name] for name in shared}


def test_set_up_refuses_a_purpose_that_it_does_not_know() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "setup.py", "tea"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "'tea'" in done.stderr and "demo" in done.stderr

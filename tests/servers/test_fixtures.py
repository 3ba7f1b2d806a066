"""The fixtures as another project would use them, on a machine where no Go is to be had."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUITE = """
pytest_plugins = ["catchment.testing.fixtures"]

def test_s3(s3, moto):
    assert s3 is moto
    assert s3.fresh_bucket() != s3.fresh_bucket()

def test_feed(feed):
    assert feed.requests() == []
"""


def run(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(SUITE.split("\n\n")[0])
    (folder / "test_lake.py").write_text(SUITE.split("\n\n", 1)[1])
    (folder / "pytest.ini").write_text("[pytest]\n")
    kept = {"HOME": os.environ.get("HOME", ""), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    lonely = {"PATH": str(folder), "CATCHMENT_CACHE": str(folder / "cache"), "PIP_NO_INDEX": "1", "UV_NO_INDEX": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(folder)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env={**kept, **lonely, **env}
    )


def test_without_go_moto_stands_in_and_the_summary_says_so(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    assert "S3 was tested on moto alone" in done.stdout
    assert "install Go" in done.stdout


def test_in_ci_that_is_an_error(tmp_path: Path) -> None:
    done = run(tmp_path, CI="true")
    assert done.returncode == 1
    assert "1 passed, 1 error" in done.stdout
    assert "install Go" in done.stdout

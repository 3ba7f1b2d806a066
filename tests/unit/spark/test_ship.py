from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from catchment.spark.ship import package_zip


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CATCHMENT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_same_code_gives_the_same_name_and_bytes() -> None:
    first = package_zip()
    body = first.read_bytes()
    first.unlink()
    assert package_zip() == first
    assert first.read_bytes() == body


def test_it_is_made_once_and_nothing_is_left_beside_it(own_cache: Path) -> None:
    made = package_zip().stat()
    assert package_zip().stat().st_ino == made.st_ino
    assert [path.name for path in (own_cache / "package").iterdir()] == [package_zip().name]


def test_it_holds_the_package_without_tests_and_caches() -> None:
    with zipfile.ZipFile(package_zip()) as content:
        names = content.namelist()
    assert "catchment/errors.py" in names and "catchment/spark/jars.lock" in names
    assert not [name for name in names if "__pycache__" in name or "/testing/" in name]


def test_a_python_that_knows_nothing_else_can_import_it() -> None:
    # -I: no PYTHONPATH and no user's packages; -S: no site-packages.
    program = f"import sys; sys.path.insert(0, {str(package_zip())!r}); import catchment.errors as e; print(e.__file__)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(package_zip()))

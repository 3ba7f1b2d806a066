from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from catchment.spark.ship import module_zip, package_zip


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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where modules of one's own lie."""
    monkeypatch.syspath_prepend(str(tmp_path / "own"))
    for name in (
        "alone.py",
        "whole/__init__.py",
        "whole/inner.py",
        "whole/data.txt",
        "loose/inner.py",
        "loose/big.csv",
    ):
        place = tmp_path / "own" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"here = {name!r}\n")
    return tmp_path / "own"


@pytest.mark.parametrize(
    "name, module, names",
    [
        ("alone", "alone", {"alone.py"}),
        ("whole", "whole.inner", {"whole/", "whole/__init__.py", "whole/inner.py", "whole/data.txt"}),
        ("loose", "loose.inner", {"loose/", "loose/inner.py"}),
    ],
)
def test_a_module_of_ones_own_can_be_imported_from_its_zip_alone(
    folder: Path, name: str, module: str, names: set[str]
) -> None:
    made = module_zip(name)
    assert made is not None and made.name.startswith(f"{name}-")
    assert module_zip(name) == made
    with zipfile.ZipFile(made) as content:
        assert set(content.namelist()) == names
    program = f"import sys; sys.path.insert(0, {str(made)!r}); import {module} as m; print(m.here)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == module.replace(".", "/") + ".py"
    (folder / (module.replace(".", "/") + ".py")).write_text("here = 'changed'\n")
    assert module_zip(name) != made


def test_what_is_no_file_or_is_compiled_is_not_sent(folder: Path) -> None:
    (folder / "whole" / "fast.cpython-311-x86_64-linux-gnu.so").write_bytes(b"")
    assert module_zip("whole") is None
    assert module_zip("sys") is None
    assert module_zip("no_such_module") is None

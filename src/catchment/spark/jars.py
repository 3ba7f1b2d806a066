"""The jars that PySpark does not bring, fetched once from Maven Central into the cache.

    python -m catchment.spark.jars demo|test        fetches what is missing

`ROOTS` pins what is wanted; `jars.lock`, made from it by `make lock`, names every jar with its SHA-256, without those
that Spark has itself. Ivy, which lies inside PySpark, does the fetching. A set of jars is one folder in the cache,
there whole or not at all, also when two processes want it at once or one is killed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies
from xml.sax.saxutils import quoteattr

from catchment.cache import alone, cache_folder
from catchment.errors import CatchmentError, SetupError
from catchment.spark.java import find_java

LOCK = Path(__file__).with_name("jars.lock")
MIRROR = "CATCHMENT_MAVEN"  # an environment variable: the URL of a mirror of Maven Central


class JarSet(StrEnum):
    """Jars that are wanted together."""

    DELTA = "delta"
    KAFKA = "kafka"  # Spark's side of it
    AVRO = "avro"
    S3 = "s3"  # its bundle of Amazon's client is half a gigabyte: only for lakes on S3
    BROKER = "broker"  # a whole Kafka broker, for tests; runs in a Java of its own
    NATIVE = "native"  # Hadoop's native library inside a jar, for tests: without it Hadoop reads no zstd
    COMPILE = "compile"  # a Java compiler and what our own classes are compiled against; nothing runs with it

    def folder(self) -> Path:
        """Where its jars are or will be. A changed lock means another folder."""
        text = "".join(f"{jar}\n" for jar in locked()[self])
        return cache_folder() / "jars" / f"{self.value}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def there(self) -> bool:
        """Whether nothing has to be fetched."""
        return self.folder().is_dir()


ROOTS = {
    JarSet.DELTA: ("io.delta:delta-spark_4.0_2.13:4.4.0",),
    JarSet.KAFKA: ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",),
    JarSet.AVRO: ("org.apache.spark:spark-avro_2.13:4.0.0",),
    JarSet.S3: ("org.apache.hadoop:hadoop-aws:3.4.1",),  # the Hadoop that PySpark carries
    # Without slf4j-simple a broker that cannot start does so in silence.
    JarSet.BROKER: ("org.apache.kafka:kafka_2.13:4.3.1", "org.slf4j:slf4j-simple:1.7.36"),
    JarSet.NATIVE: ("io.trino.hadoop:hadoop-apache:3.2.0-18",),  # the last with zstd; libraries for Linux and macOS
    # In S3's set the client is half a gigabyte; the compiler reads these few of its parts, in the same version.
    JarSet.COMPILE: (
        "org.eclipse.jdt:ecj:3.40.0",
        "org.apache.hadoop:hadoop-aws:3.4.1",
        *(f"software.amazon.awssdk:{name}:2.24.6" for name in ("aws-core", "s3", "sdk-core", "utils")),
    ),
}

SETS_FOR = {"demo": (JarSet.DELTA, JarSet.KAFKA, JarSet.AVRO), "test": tuple(JarSet)}


@dataclass(frozen=True)
class Jar:
    """One jar and what its bytes must be."""

    organisation: str
    name: str
    revision: str
    sha256: str

    @classmethod
    def parse(cls, line: str) -> Jar:
        """From a line of the lock, or a coordinate alone."""
        coordinate, _, sha256 = line.partition(" ")
        organisation, name, revision = coordinate.split(":")
        return cls(organisation, name, revision, sha256.strip())

    @property
    def coordinate(self) -> str:
        return f"{self.organisation}:{self.name}:{self.revision}"

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.revision}.jar"

    def __str__(self) -> str:
        return f"{self.coordinate} {self.sha256}"


def resolve(*sets: JarSet) -> list[Path]:
    """The jars of these sets, fetched first if the cache lacks them. SetupError names a jar that is not to be had."""
    found: dict[str, Path] = {}
    for jar_set in sets:
        folder = jar_set.folder()
        if not folder.is_dir():
            with alone(f"jars-{jar_set.value}"):
                if not folder.is_dir():  # else another process fetched it while we waited
                    _fetch(locked()[jar_set], folder)
        found |= {jar.file_name: folder / jar.file_name for jar in locked()[jar_set]}
    return list(found.values())


def kafka_broker() -> list[Path]:
    """The class path of a Kafka broker."""
    return resolve(JarSet.BROKER)


@cache
def locked() -> dict[JarSet, tuple[Jar, ...]]:
    """What the lock says."""
    found: dict[JarSet, list[Jar]] = {jar_set: [] for jar_set in JarSet}
    current = JarSet.DELTA
    for line in LOCK.read_text().splitlines():
        if line.startswith("["):
            current = JarSet(line.strip("[]"))
        elif line and not line.startswith("#"):
            found[current].append(Jar.parse(line))
    return {jar_set: tuple(jars) for jar_set, jars in found.items()}


def spark_home() -> Path:
    """PySpark's folder, found without importing it. SetupError if it is not installed."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetupError("PySpark is not installed", hint="run: pip install 'catchment[spark]'")
    return Path(spec.origin).parent


def ivy(folder: Path, jars: Iterable[Jar], *, transitive: bool = False) -> str:
    """Fetch jars into `folder`, each as organisation/name/revision/file, and give back what Ivy said.

    A jar that is not to be had is no error here: its file is not there afterwards.
    """
    programs = sorted((spark_home() / "jars").glob("ivy-*.jar"))
    if not programs:
        raise SetupError("there is no Ivy inside PySpark", hint="install PySpark again: pip install 'catchment[spark]'")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".ivy-") as scratch:
        settings, wanted = Path(scratch) / "settings.xml", Path(scratch) / "ivy.xml"
        settings.write_text(_settings(Path(scratch), poms=transitive))
        wanted.write_text(_wanted(jars, transitive=transitive))
        command = [
            *(str(find_java().program), *_proxies(), "-jar", str(programs[-1])),
            *("-settings", str(settings), "-ivy", str(wanted), "-confs", "default", "-types", "jar", "bundle"),
            *("-retrieve", f"{folder}/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=scratch, check=False)
    return done.stdout + done.stderr


def _fetch(jars: Sequence[Jar], folder: Path) -> None:
    """Fetch aside, check every byte, rename."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    for stale in folder.parent.glob(f".{folder.name}-*"):  # we hold the lock, so its maker was killed
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as name:
        aside, whole = Path(name) / "fetched", Path(name) / "whole"
        aside.mkdir()
        whole.mkdir()
        said = ivy(aside, jars)
        got = {jar: aside / jar.organisation / jar.name / jar.revision / jar.file_name for jar in jars}
        if missing := [jar.coordinate for jar, path in got.items() if not path.exists()]:
            raise _not_to_be_had(missing, said)
        for jar, path in got.items():
            if sha256(path) != jar.sha256:
                raise SetupError(
                    f"{jar.coordinate} was fetched, but its bytes are not the ones in {LOCK.name}",
                    hint=f"try again; if it stays so, the mirror in {MIRROR} or a proxy changes what it passes on",
                )
            path.rename(whole / jar.file_name)
        whole.rename(folder)


def _not_to_be_had(missing: Sequence[str], said: str) -> SetupError:
    more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
    # Ivy's last words on it, without the addresses it tried.
    reasons = [line.strip() for line in said.splitlines() if "Exception" in line and "at " not in line[:8]]
    why = f": {reasons[-1][:200]}" if reasons else ""
    return SetupError(
        f"cannot fetch the jar {missing[0]}{more} from Maven Central{why}",
        hint=f"connect to the network once, or set {MIRROR} to the URL of a mirror you can reach, and try again;"
        f" jars already fetched stay in {cache_folder()}",
    )


def sha256(path: Path) -> str:
    """The digest of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _settings(scratch: Path, *, poms: bool) -> str:
    """Ivy's settings: Maven Central or a mirror of it, a cache that goes with the scratch folder, no endless waits."""
    root = f"root={quoteattr(mirror.rstrip('/') + '/')}" if (mirror := os.environ.get(MIRROR)) else ""
    return f"""<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir={quoteattr(str(scratch / "cache"))}/>
  <timeout-constraints>
    <timeout-constraint name="patient" connectionTimeout="20000" readTimeout="60000"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="central" m2compatible="true" usepoms="{str(poms).lower()}" timeoutConstraint="patient" {root}/>
  </resolvers>
</ivysettings>"""


def _wanted(jars: Iterable[Jar], *, transitive: bool) -> str:
    lines = "".join(
        f"<dependency org={quoteattr(jar.organisation)} name={quoteattr(jar.name)} rev={quoteattr(jar.revision)}"
        f' transitive="{str(transitive).lower()}" conf="default->default{"(compile)" if transitive else ""}"/>\n'
        for jar in jars
    )
    return f"""<ivy-module version="2.0">
  <info organisation="catchment" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{lines}  </dependencies>
</ivy-module>"""


def _proxies() -> list[str]:
    """The environment's proxies, in Java's words."""
    found = []
    for scheme, address in getproxies().items():
        parts = urlsplit(address if "//" in address else f"//{address}")
        if scheme in ("http", "https") and parts.hostname:
            found += [f"-D{scheme}.proxyHost={parts.hostname}", f"-D{scheme}.proxyPort={parts.port or 80}"]
    return found


if __name__ == "__main__":
    try:
        resolve(*SETS_FOR[sys.argv[1]])
    except CatchmentError as problem:
        sys.exit(str(problem))

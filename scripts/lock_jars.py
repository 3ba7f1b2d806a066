"""Write src/catchment/spark/jars.lock: every jar that the pinned ones need, with its SHA-256. Run by `make lock`.

What Spark has itself is left out, whatever version the pinned jars would like: two versions of one class on Spark's
class path break it. The broker runs in a Java of its own and gets everything; compiling takes just what is pinned.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from catchment.spark.jars import LOCK, ROOTS, Jar, JarSet, ivy, sha256, spark_home

HEAD = "# Made by 'make lock' from ROOTS in jars.py. Every jar with its SHA-256.\n"


# In Spark under other names: jcl-over-slf4j, and a RoaringBitmap that has its shims inside.
REPLACED = {"commons-logging", "shims"}


def shipped(name: str) -> bool:
    """Whether PySpark has some version of this jar inside."""
    version = re.compile(re.escape(name) + r"-\d+\.[\w.\-]*\.jar")
    return name in REPLACED or any(version.fullmatch(path.name) for path in (spark_home() / "jars").iterdir())


def lock(jar_set: JarSet) -> list[Jar]:
    """All jars of one set."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "jars"
        folder.mkdir()
        said = ivy(folder, map(Jar.parse, ROOTS[jar_set]), transitive=jar_set is not JarSet.COMPILE)
        if "UNRESOLVED" in said or "FAILED DOWNLOADS" in said:
            sys.exit(f"{jar_set}: not everything could be resolved\n{said[-3000:]}")
        found = []
        for path in sorted(folder.glob("*/*/*/*.jar")):
            organisation, name, revision = path.relative_to(folder).parts[:3]
            if jar_set in (JarSet.BROKER, JarSet.COMPILE) or not shipped(name):
                found.append(Jar(organisation, name, revision, sha256(path)))
    return found


def main() -> None:
    """Resolve every set, then write the lock."""
    text = HEAD
    for jar_set in JarSet:
        print(f"resolving {jar_set.value} …", file=sys.stderr, flush=True)
        text += f"\n[{jar_set.value}]\n" + "".join(f"{jar}\n" for jar in lock(jar_set))
    LOCK.write_text(text)


if __name__ == "__main__":
    main()

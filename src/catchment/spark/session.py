"""The one place that starts Spark.

There is one Spark in a process. Asking again gives the same one, with access to the new buckets added to it.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from catchment.config.secret import Secret
from catchment.errors import SetupError
from catchment.spark import jars, logstore
from catchment.spark.jars import JarSet
from catchment.spark.java import Java, find_java
from catchment.spark.settings import AT_LAUNCH, S3Access, is_local, settings
from catchment.spark.ship import package_zip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ONE = threading.Lock()

# Said by Java itself, and by the logging inside Amazon's client, past everything that could quiet it.
_NOISE = (
    "WARNING: Using incubator modules",
    "SLF4J: Failed to load class",
    "SLF4J: Defaulting to no-operation",
    "SLF4J: See http",
)


def session(
    master: str = "local[*]",
    conf: Mapping[str, str | Secret] | None = None,
    buckets: Iterable[S3Access] = (),
    *,
    app: str = "catchment",
    java: Java | None = None,
) -> SparkSession:
    """A Spark session with Delta, Kafka and, if there are `buckets`, S3; `conf` wins over what is set here.

    Quiet: nothing is printed at start or stop but errors. Jars are fetched first if the cache lacks them. SetupError if
    PySpark, Java, a jar or the master is missing. End it with its own `stop()`.
    """
    buckets = tuple(buckets)
    conf = dict(conf or {})
    jars.spark_home()  # before the import, which would be an ImportError without a next step
    from pyspark import SparkConf, SparkContext
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    # It prints what is wrong with a statement; whoever catches the error says it.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    with _ONE:
        if SparkContext._active_spark_context is not None:
            return _joined(SparkSession.builder.getOrCreate(), buckets)
        found = java or find_java()
        _check_master(master)
        wanted = [JarSet.DELTA, JarSet.KAFKA, JarSet.AVRO, *([JarSet.S3] if buckets else [])]
        everything = settings(master, conf, buckets, [*jars.resolve(*wanted), logstore.jar()], memory=_memory())
        everything.setdefault("spark.app.name", app)
        _launch(found, {name: everything[name] for name in AT_LAUNCH if name in everything})
        try:
            context = SparkContext(conf=SparkConf().setAll(list(everything.items())))
        except Exception as error:
            raise _not_started(master, error, [value for value in conf.values() if isinstance(value, Secret)]) from None
        # Where the tasks' Python is this machine's, it is this one. A cluster's workers have their own.
        if python := everything.get("spark.pyspark.python", sys.executable if is_local(master) else None):
            context.pythonExec = python
        context.addPyFile(str(package_zip()))
        return SparkSession.builder.getOrCreate()


def _not_started(master: str, error: Exception, secrets: Iterable[Secret]) -> SetupError:
    """What Spark said, without the secrets: it likes to quote the setting that it does not understand."""
    java = getattr(error, "java_exception", None)
    said = str(java.toString() if java is not None else error).strip() or type(error).__name__
    for secret in secrets:
        said = said.replace(secret.reveal(), str(secret))
    return SetupError(
        f"Spark did not start on {master}: {said.splitlines()[0][:300]}",
        hint="check spark.master and spark.conf in the config, and the cluster's own log",
    )


def _joined(spark: SparkSession, buckets: tuple[S3Access, ...]) -> SparkSession:
    """The session that is running, able to reach these buckets too."""
    known = spark.sparkContext.getConf()
    places = (known.get(name) or "" for name in ("spark.jars", "spark.driver.extraClassPath"))
    if buckets and not any("hadoop-aws" in place for place in places):
        raise SetupError(
            "this process has a Spark session that was started without S3",
            hint="stop it first (spark.stop()), or open the lake that is on S3 before the others",
        )
    context: Any = spark.sparkContext
    for bucket in buckets:
        for name, value in bucket.settings().items():
            context._jsc.hadoopConfiguration().set(name.removeprefix("spark.hadoop."), value)
    return spark


def _launch(java: Java, conf: Mapping[str, str]) -> None:
    """Start the JVM, with what it needs to know at once, and pass on what it says."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        _end(SparkContext._gateway)
        SparkContext._gateway = SparkContext._jvm = None
    words = _Words()
    before = {name: os.environ.get(name) for name in ("JAVA_HOME", "SPARK_HOME")}
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["SPARK_HOME"] = str(jars.spark_home())  # not some other Spark of this machine
    try:
        with words.entrance() as stderr:
            at_launch = SparkConf(loadDefaults=False).setAll(list(conf.items()))
            gateway = launch_gateway(at_launch, {"stderr": stderr})  # type: ignore[no-untyped-call]
    except (PySparkRuntimeError, OSError) as error:
        raise SetupError(
            f"Spark's Java process ended before it was ready: {words.held()}",
            hint=f"check spark.conf in the config, and that '{java.program} -version' works",
        ) from error
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    words.pass_on()
    SparkContext._ensure_initialized(gateway=gateway)


def _end(gateway: Any) -> None:
    """End the JVM of a session that was stopped: its class path and memory were made for that one."""
    gateway.shutdown()
    if gateway.proc is not None:
        gateway.proc.stdin.close()  # what it lives by
        gateway.proc.wait(timeout=60)


class _Words:
    """What the JVM says on its standard error, without the noise: held back while it starts, then passed on to ours."""

    def __init__(self) -> None:
        self._held: list[str] | None = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._copy, name="spark-stderr", daemon=True)
        self._exit, self._entrance = os.pipe()

    @contextmanager
    def entrance(self) -> Iterator[int]:
        """The descriptor to start the JVM with. Ours is closed at the end, so that the JVM's end is seen as such."""
        self._thread.start()
        try:
            yield self._entrance
        finally:
            os.close(self._entrance)

    def held(self) -> str:
        """What it said, once it is gone."""
        self._thread.join(timeout=5)
        with self._lock:
            return " ".join(line.strip() for line in (self._held or [])[:5]) or "it did not say why"

    def pass_on(self) -> None:
        """From now on, and what was held back first."""
        with self._lock:
            for line in self._held or ():
                sys.stderr.write(line)
            self._held = None

    def _copy(self) -> None:
        with open(self._exit, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith(_NOISE):
                    continue
                with self._lock:
                    if self._held is not None:
                        self._held.append(line)
                    else:
                        sys.stderr.write(line)
                        sys.stderr.flush()


def _check_master(master: str) -> None:
    """SetupError if a standalone master does not answer: Spark itself would try for a minute and say little."""
    if not master.startswith("spark://"):
        return
    problems = []
    for place in master.removeprefix("spark://").split(","):
        parts = urlsplit(f"//{place}")
        try:
            with socket.create_connection((parts.hostname or "", parts.port or 7077), timeout=5):
                return
        except (OSError, ValueError) as error:
            problems.append(f"{place}: {error}")
    raise SetupError(
        f"no Spark master answers at {master} ({'; '.join(problems)})",
        hint="start it, or correct spark.master in the config; local[*] needs no cluster",
    )


def _memory() -> int:
    """The memory that this process may use, in bytes: the machine's, or its container's."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return machine
    return min(machine, int(limit)) if limit.isdigit() else machine

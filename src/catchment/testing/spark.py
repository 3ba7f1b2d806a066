"""A real Spark cluster for tests: a standalone master and its workers, as processes on loopback."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from catchment.errors import SetupError
from catchment.spark.jars import spark_home
from catchment.spark.java import find_java
from catchment.testing.process import HOST, ServerProcess, free_port, private_folder, remove, started


@dataclass(frozen=True)
class SparkCluster:
    """A running cluster."""

    master: str  # spark://127.0.0.1:<port>
    workers: tuple[ServerProcess, ...] = field(repr=False)

    @property
    def conf(self) -> dict[str, str]:
        """What a driver on this machine should set: the workers reach it on loopback, and are few."""
        return {
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
        }


@contextmanager
def spark_cluster(*, workers: int = 2, cores: int = 1, memory: str = "1200m") -> Iterator[SparkCluster]:
    """A master with `workers` registered workers. They have no PYTHONPATH, and so know nothing of Catchment."""
    with ExitStack() as stack:

        def daemon(name: str, *arguments: str, page: int) -> ServerProcess:
            home = private_folder(f"spark-{name}")
            stack.callback(remove, home)
            command = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}.{name.title()}"]
            command += ["--host", HOST, "--webui-port", str(page), *arguments]
            return ServerProcess(f"Spark's {name}", command, home, env=_environment(home))

        page = free_port()
        master, port = started(
            lambda port: daemon("master", "--port", str(port), page=page), lambda _: _alive(page) == 0
        )
        stack.callback(master.stop)
        address = f"spark://{HOST}:{port}"
        running = []
        for number in range(1, workers + 1):
            worker = daemon("worker", "--cores", str(cores), "--memory", memory, address, page=free_port())
            worker.start(lambda number=number: _alive(page) == number)  # type: ignore[misc]
            stack.callback(worker.stop, grace=10)  # it ends its executors when asked
            running.append(worker)
        yield SparkCluster(address, tuple(running))


def _environment(home: Path) -> dict[str, str]:
    """For Spark's daemons: little memory, everything they write in their own folder."""
    return {
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_LOCAL_DIRS": str(home / "local"),
        "SPARK_WORKER_DIR": str(home / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
        "PYTHONPATH": "",
        "PATH": os.environ.get("PATH", os.defpath),
    }


def _alive(page: int) -> int | None:
    """How many workers the master knows; None while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{page}/json/", timeout=2) as answer:
            said = json.load(answer)
    except (OSError, ValueError):
        return None
    if not isinstance(said.get("aliveworkers"), int):
        raise SetupError(
            "Spark's master does not say how many workers it has", hint="is this another version of Spark?"
        )
    return int(said["aliveworkers"])

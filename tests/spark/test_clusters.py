"""The same session on clusters: workers that know nothing of Catchment get it from the driver."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from catchment.testing.spark import spark_cluster
from tests.spark.programs import run

# Every task reports where Catchment was imported from and in which process; then a Delta table is written and read.
PROGRAM = """
    import json, sys
    from catchment.spark.session import session

    master, conf, table = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    spark = session(master, conf)

    def where(_):
        import os
        import time
        import catchment.units
        time.sleep(0.5)  # long enough for every executor to get its share
        return catchment.units.__file__, os.getppid(), str(catchment.units.parse_duration("5s"))

    found = spark.sparkContext.parallelize(range(8), 8).map(where).collect()
    spark.range(100).repartition(4).write.format("delta").save(table)
    total = spark.read.format("delta").load(table).selectExpr("sum(id)").first()[0]
    spark.stop()
    print(json.dumps({"places": found, "total": total}))
"""


def check(said: str) -> None:
    answer = json.loads(said)
    for place, _, five in answer["places"]:
        assert ".zip/catchment/" in place, place
        assert five == "0:00:05"
    assert len({parent for _, parent, _ in answer["places"]}) == 2, "both executors had tasks"
    assert answer["total"] == sum(range(100))


def bare_python() -> str:
    """The interpreter that .venv was made from: it cannot import Catchment by itself."""
    return str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")


@pytest.mark.parametrize("kind", ["local-cluster", "standalone"])
def test_executors_get_the_package_and_write_delta(kind: str, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    if kind == "local-cluster":
        done = run(PROGRAM, "local-cluster[2,1,1200]", json.dumps({"spark.pyspark.python": bare_python()}), table)
    else:
        with spark_cluster() as cluster:
            conf = {**cluster.conf, "spark.pyspark.python": bare_python()}
            done = run(PROGRAM, cluster.master, json.dumps(conf), table)
    assert done.returncode == 0, done.stderr
    check(done.stdout)
    assert done.stderr == ""

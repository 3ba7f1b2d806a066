"""The one session: Delta on a local directory, Python in tasks, silence, and what a wrong machine gets."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from catchment.config.secret import Secret
from catchment.errors import SetupError
from catchment.spark.session import session
from catchment.spark.settings import S3Access
from tests.spark.programs import run


def test_a_delta_table_is_written_read_changed_and_remembered(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "warehouse" / "sales" / "orders")
    spark.createDataFrame([(1, "new"), (2, "new")], "id int, state string").write.format("delta").save(table)
    spark.sql(f"UPDATE delta.`{table}` SET state = 'sent' WHERE id = 2")
    rows = spark.read.format("delta").load(table).orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(1, "new"), (2, "sent")]
    before = spark.read.format("delta").option("versionAsOf", 0).load(table)
    assert before.where("state = 'new'").count() == 2


def test_the_kafka_and_avro_sources_are_there(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.format("avro").save(str(tmp_path / "avro"))
    assert spark.read.format("avro").load(str(tmp_path / "avro")).count() == 3
    kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:1").option("subscribe", "t").load()
    assert "offset" in kafka.columns


def test_tasks_run_this_python_with_the_shipped_package(spark: SparkSession) -> None:
    def report(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        import catchment.errors

        for _ in batches:
            yield pa.RecordBatch.from_pylist([{"python": sys.executable, "place": catchment.errors.__file__}])

    (row,) = spark.range(1).mapInArrow(report, "python string, place string").collect()
    assert row.python == sys.executable
    assert ".zip/catchment/" in row.place


def test_times_are_utc_and_shuffles_small(spark: SparkSession) -> None:
    assert spark.sql("SELECT string(timestamp '2026-11-15 08:00:00Z')").first()[0] == "2026-11-15 08:00:00"  # type: ignore[index]
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_asking_again_gives_the_same_spark(spark: SparkSession) -> None:
    assert session("local[1]").sparkContext is spark.sparkContext


def test_a_session_without_s3_says_so_when_a_bucket_is_asked_for(spark: SparkSession) -> None:
    with pytest.raises(SetupError, match=r"without S3.*stop"):
        session("local[2]", buckets=[S3Access("lake", "http://127.0.0.1:1", None, Secret("k"), Secret("s"))])


def test_start_work_failure_and_stop_are_silent() -> None:
    done = run("""
        from catchment.spark.session import session
        from catchment.spark.progress import progress

        spark = session("local[2]")
        with progress(spark, "Counting"):
            print(spark.range(1000).repartition(4).count())
        try:
            spark.sparkContext.parallelize([0]).map(lambda x: 1 // x).collect()
        except Exception as error:
            print("ZeroDivisionError" in str(error))
        spark.stop()
        again = session("local[1]", {"spark.sql.shuffle.partitions": "7"})
        print(again.sparkContext.master, again.conf.get("spark.sql.shuffle.partitions"))
        """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1000\nTrue\nlocal[1] 7\n", "")


def test_secrets_are_not_in_the_list_of_processes() -> None:
    done = run(
        """
        import contextlib, os, pathlib, psutil
        from catchment.config.secret import Secret
        from catchment.spark.session import session

        spark = session("local[1]", {"spark.hadoop.my.password": Secret(os.environ["WORD"]), "spark.app.name": "named"})
        print(spark.sparkContext._jsc.hadoopConfiguration().get("my.password"), spark.sparkContext.appName)
        # By /proc, where a process that has just ended shows an empty line and is not an error.
        lines = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(FileNotFoundError):
                lines.append(pathlib.Path(f"/proc/{process.pid}/cmdline").read_text())
        print(any("java" in line for line in lines), any(os.environ["WORD"] in line for line in lines))
        """,
        env={"WORD": "hunter2"},
    )
    assert (done.stdout, done.stderr) == ("hunter2 named\nTrue False\n", "")


def test_a_jvm_that_cannot_start_says_why_and_what_to_check() -> None:
    done = run("""
        from catchment.errors import SetupError
        from catchment.spark.session import session

        try:
            session("local[1]", {"spark.driver.memory": "banana"})
        except SetupError as error:
            print(error)
        """)
    assert "heap size" in done.stdout and "spark.conf" in done.stdout
    assert done.stderr == ""


def test_a_setting_that_spark_does_not_understand_is_reported_without_its_value() -> None:
    done = run(
        """
        import os
        from catchment.config.secret import Secret
        from catchment.errors import SetupError
        from catchment.spark.session import session

        try:
            session("local[1]", {"spark.authenticate": Secret(os.environ["WORD"])})
        except SetupError as error:
            print(error)
        """,
        env={"WORD": "hunter2"},
    )
    assert "spark.authenticate" in done.stdout and "***" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr


def test_a_master_that_does_not_answer_is_named() -> None:
    done = run("""
        from catchment.errors import SetupError
        from catchment.spark.session import session

        try:
            session("spark://127.0.0.1:1")
        except SetupError as error:
            print(error)
        """)
    assert "spark://127.0.0.1:1" in done.stdout and "spark.master" in done.stdout


def test_no_java_is_a_clear_error(tmp_path: Path) -> None:
    done = run(
        """
        from catchment.errors import SetupError
        from catchment.spark import java
        from catchment.spark.session import session

        java.PLACES = ()
        try:
            session("local[1]")
        except SetupError as error:
            print(error)
        """,
        env={"JAVA_HOME": "", "PATH": str(tmp_path)},
    )
    assert "needs Java" in done.stdout and "install Java 17" in done.stdout

from __future__ import annotations

import io

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from catchment.spark.progress import progress


def test_a_bar_on_a_terminal_counts_the_tasks(spark: SparkSession) -> None:
    screen = io.StringIO()
    with progress(spark, "Writing events", console=Console(file=screen, force_terminal=True, width=100)):
        spark.sparkContext.parallelize(range(6), 6).count()
    assert "Writing events" in screen.getvalue()
    assert "6/6" in screen.getvalue()


def test_no_terminal_no_word(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    screen = io.StringIO()
    with progress(spark, "Writing events", console=Console(file=screen)), progress(spark, "Reading"):
        spark.sparkContext.parallelize(range(6), 6).count()
    assert screen.getvalue() == ""
    assert capfd.readouterr() == ("", "")


def test_a_failure_inside_is_the_callers_and_the_job_group_is_put_back(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setLocalProperty("spark.jobGroup.id", "mine")
    console = Console(file=io.StringIO(), force_terminal=True)
    try:
        with pytest.raises(ValueError, match="theirs"), progress(spark, "Work", console=console):
            assert context.getLocalProperty("spark.jobGroup.id") != "mine"
            raise ValueError("theirs")
        assert context.getLocalProperty("spark.jobGroup.id") == "mine"
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]

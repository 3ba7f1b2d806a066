"""Archives as a Spark source: on this machine, on S3, and on a cluster."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from catchment.bucket.open import open_bucket
from catchment.bucket.wrap import Counting
from catchment.config import Config, load
from catchment.feeds.names import Compression
from catchment.feeds.source import ArchiveSource, register
from catchment.testing.s3 import S3Server
from tests.spark.programs import run
from tests.unit.feeds.stores import FEED, HOUR, cut_short, download, hours_later, noise, store


class Site:
    """A lake in a folder, or on a server."""

    def __init__(self, root: Path, server: S3Server | None = None, **more: Any) -> None:
        storage: dict[str, Any] = {"id": "main", "path": str(root / "lake")}
        if server is not None:
            storage = {
                "id": "main",
                "bucket": server.fresh_bucket(),
                "prefix": "prod",
                "endpoint_url": server.endpoint,
                "region_name": server.region,
                "aws_access_key_id": server.access_key,
                "aws_secret_access_key": server.secret_key,
            }
        feeds = [{"id": FEED, "url": "https://feeds.example.com/?key=s3cret", "periodicity": "5s"}]
        self.path = root / "catchment.yaml"
        self.path.write_text(json.dumps({"object_storage": [storage], "feeds": feeds, **more}))
        self.config: Config = load(str(self.path))
        self.bucket: Counting = open_bucket(self.config.object_storage[0])


@pytest.fixture
def site(tmp_path: Path, spark: SparkSession) -> Site:
    made = Site(tmp_path)
    register(spark, made.config)
    return made


def archives(spark: SparkSession, **options: str) -> DataFrame:
    return spark.read.format("catchment").options(**{"feed": FEED, **options}).load()


def bodies(found: DataFrame) -> list[bytes]:
    return [bytes(row.body) for row in found.orderBy("time").collect()]


def test_rows_and_their_types(spark: SparkSession, site: Site) -> None:
    store(site.bucket, {1: b"a", 2: b"b"})
    found = archives(spark)
    assert [(field.name, field.dataType.simpleString()) for field in found.schema] == [
        ("feed", "string"),
        ("time", "timestamp"),
        ("hash", "string"),
        ("body", "binary"),
    ]
    one = download(1, b"a")
    row = found.where("body = X'61'").selectExpr("*", "unix_millis(time) AS millis").first()
    assert row is not None
    assert (row.feed, row.millis, row.hash) == (FEED, int(one.time.timestamp() * 1000), one.hash)


def test_an_hour_that_is_not_reconciled_counts_once(spark: SparkSession, site: Site) -> None:
    store(site.bucket, {1: b"a", 2: b"b"})
    store(site.bucket, {2: b"b", 3: b"c"}, compression=Compression.ZSTD)
    store(site.bucket, {1: b"d"}, hour=hours_later(1), primary=True)
    found = archives(spark)
    assert found.rdd.getNumPartitions() == 2
    assert bodies(found) == [b"a", b"b", b"c", b"d"]
    found.createOrReplaceTempView("archives")
    counted = spark.sql("SELECT hour(time), count(*) FROM archives GROUP BY 1").collect()
    assert sorted(row[1] for row in counted) == [1, 3]


def test_only_the_hours_of_the_period_are_fetched(spark: SparkSession, site: Site) -> None:
    for later in range(6):
        store(site.bucket, {0: b"%d" % later, 1800: b"half"}, hour=hours_later(later))
    broken = store(site.bucket, {1: noise(5000, 1)}, hour=hours_later(4))
    cut_short(site.bucket, broken)  # whoever reads it will say so
    start, end = (HOUR.start + timedelta(minutes=minutes) for minutes in (90, 210))
    found = archives(spark, start=start.isoformat(), end=end.isoformat())
    assert found.rdd.getNumPartitions() == 3
    assert bodies(found) == [b"half", b"2", b"half", b"3"]


def test_nothing_there_is_an_empty_table(spark: SparkSession, site: Site) -> None:
    assert archives(spark).count() == 0


def test_damage_is_told_unless_it_may_be_skipped(spark: SparkSession, site: Site) -> None:
    bad = store(site.bucket, {second: noise(50_000, second) for second in range(5)})
    cut_short(site.bucket, bad)
    with pytest.raises(PySparkException, match=bad.name):
        archives(spark).count()
    assert 0 < archives(spark, damaged="skip").count() < 5


@pytest.mark.parametrize(
    ("options", "words"), [({"feed": "tram"}, "tram"), ({"start": "soon"}, "soon"), ({"fed": "x"}, "fed")]
)
def test_wrong_options_say_what_to_write(spark: SparkSession, site: Site, options: dict[str, str], words: str) -> None:
    store(site.bucket, {1: b"a"})
    with pytest.raises(PySparkException, match=words):
        archives(spark, **options).count()


def test_the_configuration_by_an_option(spark: SparkSession, tmp_path: Path) -> None:
    made = Site(tmp_path)
    store(made.bucket, {1: b"a", 2: b"a"})
    spark.dataSource.register(ArchiveSource)
    assert bodies(archives(spark, config=str(made.path))) == [b"a", b"a"]
    assert bodies(archives(spark, config=str(made.path), fold="true")) == [b"a"]


def test_on_s3_with_no_secret_in_the_plan(spark: SparkSession, tmp_path: Path, s3: S3Server) -> None:
    made = Site(tmp_path, s3)
    wanted = {second: noise(30_000, second) for second in range(20)}
    store(made.bucket, wanted)
    store(made.bucket, {5: wanted[5], 30: b"late"}, compression=Compression.XZ)
    register(spark, made.config)
    found = archives(spark)
    assert bodies(found) == [*wanted.values(), b"late"]
    plan: Any = found._jdf
    jvm: Any = spark._jvm
    formatted = jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
    shown = plan.queryExecution().toString() + plan.queryExecution().explainString(formatted)
    assert "catchment" in shown
    for secret in (s3.secret_key, "s3cret"):
        assert secret not in shown
    made.bucket.close()


CLUSTER = """
    import json, sys
    import catchment

    with catchment.open(sys.argv[1]) as lake:
        found = lake.spark.read.format("catchment").option("feed", "subway").load()
        answer = found.selectExpr("count(*)", "count(DISTINCT hash)", "sum(length(body))").first()
        print(json.dumps({"rows": list(answer), "partitions": found.rdd.getNumPartitions()}))
"""


def test_on_a_cluster(tmp_path: Path, s3: S3Server) -> None:
    made = Site(
        tmp_path,
        s3,
        spark={"master": "local-cluster[2,1,1200]", "conf": {"spark.pyspark.python": sys.executable}},
    )
    for later in range(4):
        for part in range(2):
            store(made.bucket, {second: noise(1000, second) for second in range(part, 10)}, hour=hours_later(later))
    made.bucket.close()
    done = run(CLUSTER, str(made.path))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"rows": [40, 10, 40_000], "partitions": 4}
    assert done.stderr == ""

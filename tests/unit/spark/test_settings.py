from __future__ import annotations

from pathlib import Path

import pytest

from catchment.config.secret import Secret
from catchment.config.storage import Storage
from catchment.spark.settings import AT_LAUNCH, LOGGING, S3Access, cores, driver_memory, is_local, settings

GIB = 1 << 30
JARS = (Path("/cache/a.jar"), Path("/cache/b.jar"))


@pytest.mark.parametrize(
    "master, count",
    [
        ("local", 1),
        ("local[4]", 4),
        ("local[4,2]", 4),
        ("local-cluster[2,3,1024]", 6),
        ("spark://host:7077", 0),
        ("yarn", 0),
    ],
)
def test_cores_of_a_master(master: str, count: int) -> None:
    assert cores(master) == count
    assert is_local(master) == (count > 0)


def test_all_cores_are_the_machines() -> None:
    assert cores("local[*]") >= 1


@pytest.mark.parametrize("total, text", [(2 * GIB, "1024m"), (16 * GIB, "4096m"), (256 * GIB, "8192m")])
def test_driver_memory_is_a_share_of_the_machine(total: int, text: str) -> None:
    assert driver_memory(total) == text


def test_a_local_master_gets_small_shuffles_loopback_and_no_pages() -> None:
    found = settings("local[4]", {}, (), JARS, memory=8 * GIB)
    assert found["spark.sql.shuffle.partitions"] == "4"
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"
    assert found["spark.ui.enabled"] == "false"
    assert found["spark.driver.memory"] == "2048m"
    assert found["spark.driver.extraClassPath"] == "/cache/a.jar:/cache/b.jar"
    assert "spark.jars" not in found


def test_a_cluster_keeps_sparks_defaults() -> None:
    found = settings("spark://host:7077", {}, (), JARS, memory=8 * GIB)
    for name in ("spark.sql.shuffle.partitions", "spark.driver.host", "spark.ui.enabled", "spark.driver.memory"):
        assert name not in found
    assert found["spark.jars"] == "file:///cache/a.jar,file:///cache/b.jar"
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert "Delta" in found["spark.sql.extensions"]


def test_what_the_user_says_wins_and_jvm_options_and_jars_are_added() -> None:
    conf: dict[str, str | Secret] = {
        "spark.sql.shuffle.partitions": "7",
        "spark.driver.extraJavaOptions": "-Xss4m",
        "spark.jars": "/mine.jar",
        "spark.hadoop.password": Secret("hunter2"),
    }
    found = settings("local[4]", conf, (), JARS, memory=8 * GIB)
    assert found["spark.sql.shuffle.partitions"] == "7"
    assert found["spark.driver.extraJavaOptions"].endswith(" -Xss4m")
    assert LOGGING.as_uri() in found["spark.driver.extraJavaOptions"]
    assert found["spark.jars"] == "/mine.jar"
    assert settings("yarn", conf, (), JARS, memory=8 * GIB)["spark.jars"].endswith("/cache/b.jar,/mine.jar")
    assert found["spark.hadoop.password"] == "hunter2"


def test_each_bucket_has_settings_of_its_own() -> None:
    own = S3Access("one", "http://127.0.0.1:9000", None, Secret("key"), Secret("word"))
    amazons = S3Access("two", region="eu-west-1")
    found = settings("local[1]", {}, [own, amazons], (), memory=GIB)
    one, two = "spark.hadoop.fs.s3a.bucket.one.", "spark.hadoop.fs.s3a.bucket.two."
    assert found[one + "endpoint"] == "http://127.0.0.1:9000"
    assert found[one + "path.style.access"] == "true"
    assert found[one + "connection.ssl.enabled"] == "false"
    assert (found[one + "access.key"], found[one + "secret.key"]) == ("key", "word")
    assert "Simple" in found[one + "aws.credentials.provider"]
    assert found[two + "endpoint.region"] == "eu-west-1"
    assert "Default" in found[two + "aws.credentials.provider"]
    assert two + "endpoint" not in found and two + "secret.key" not in found


def test_secrets_hide_themselves_and_are_not_needed_at_launch() -> None:
    access = S3Access("one", "https://host", None, Secret("the-key"), Secret("the-word"))
    assert "the-" not in repr(access)
    assert not set(access.settings()) & set(AT_LAUNCH)


def test_storages_of_a_config_become_access_to_their_buckets() -> None:
    storages = [
        Storage(id="here", path="/data/lake"),  # type: ignore[arg-type]
        Storage.model_validate(
            {
                "id": "there",
                "bucket": "lake",
                "endpoint_url": "https://host:9000",
                "region_name": "eu-west-1",
                "aws_access_key_id": "key",
                "aws_secret_access_key": "word",
            }
        ),
    ]
    (access,) = S3Access.of(storages)
    assert access == S3Access("lake", "https://host:9000", "eu-west-1", Secret("key"), Secret("word"))

"""Which settings Spark gets: pure, from the master, the S3 buckets and what the user says."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from catchment.config.secret import Secret, revealed
from catchment.spark.logstore import log_stores

if TYPE_CHECKING:
    from catchment.config.storage import Storage

# What the JVM needs to know before it runs. Everything else is handed over through a private socket afterwards, since a
# command line can be read by every user of the machine.
AT_LAUNCH = (
    "spark.master",
    "spark.jars",
    "spark.submit.deployMode",
    "spark.driver.memory",
    "spark.driver.memoryOverhead",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraJavaOptions",
    "spark.driver.extraClassPath",
    "spark.driver.extraLibraryPath",
    "spark.log.level",
)

# Lists that both sides may give, with what stands between their parts; the user's come last.
_APPENDED = {"spark.driver.extraJavaOptions": " ", "spark.jars": ",", "spark.driver.extraClassPath": os.pathsep}

LOGGING = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True)
class S3Access:
    """How Spark reaches one bucket."""

    bucket: str
    endpoint: str | None = None  # None: AWS itself
    region: str | None = None
    access_key: Secret | None = None  # None: the usual chain (environment, profile, role)
    secret_key: Secret | None = None

    @classmethod
    def of(cls, storages: Iterable[Storage]) -> tuple[S3Access, ...]:
        """Those of a configuration's object storages that are on S3."""
        return tuple(
            cls(
                bucket=storage.bucket,
                endpoint=storage.endpoint_url,
                region=storage.region_name,
                access_key=storage.aws_access_key_id,
                secret_key=storage.aws_secret_access_key,
            )
            for storage in storages
            if storage.bucket is not None
        )

    def settings(self) -> dict[str, str]:
        """S3A's settings for this bucket alone, so that two buckets can be two services."""
        found = {
            "endpoint.region": self.region or ("us-east-1" if self.endpoint else ""),
            "aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
        }
        if self.endpoint:
            # Services other than AWS rarely have a host name per bucket.
            found |= {"endpoint": self.endpoint, "path.style.access": "true"}
            found["connection.ssl.enabled"] = str(self.endpoint.startswith("https:")).lower()
        if self.access_key and self.secret_key:
            found["aws.credentials.provider"] = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
            found |= {"access.key": self.access_key.reveal(), "secret.key": self.secret_key.reveal()}
        return {f"spark.hadoop.fs.s3a.bucket.{self.bucket}.{name}": value for name, value in found.items() if value}


def is_local(master: str) -> bool:
    """Whether everything runs on this machine: `local[…]` and `local-cluster[…]`."""
    return master.startswith("local")


def in_one_process(master: str) -> bool:
    """Whether driver and executor are one JVM."""
    return is_local(master) and not master.startswith("local-cluster")


def cores(master: str) -> int:
    """How many tasks run at once on a local master; 0 for a cluster, whose size we do not know."""
    machine = os.cpu_count() or 1
    if match := re.fullmatch(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?", master):
        return machine if match[1] == "*" else int(match[1] or 1)
    if match := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", master):
        return int(match[1]) * int(match[2])
    return 0


def driver_memory(total: int) -> str:
    """A quarter of the machine, from 1 to 8 GiB: on a local master the driver is where the work is done."""
    return f"{min(max(total // 4, 1 << 30), 8 << 30) >> 20}m"


def settings(
    master: str, conf: Mapping[str, str | Secret], buckets: Iterable[S3Access], jars: Sequence[Path], *, memory: int
) -> dict[str, str]:
    """Everything that Spark is told. `conf` wins over ours; its JVM options and jars are added to ours."""
    found = {
        "spark.master": master,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()} -Duser.timezone=UTC",
        "spark.ui.showConsoleProgress": "false",  # progress.py has our own
        "spark.log.structuredLogging.enabled": "false",
        **log_stores(conf),
    }
    if in_one_process(master):
        # As `spark.jars` they would be copied for each session, all 600 MB of them with S3.
        found["spark.driver.extraClassPath"] = os.pathsep.join(map(str, jars))
    else:
        found["spark.jars"] = ",".join(path.as_uri() for path in jars)
    if parallel := cores(master):
        found |= {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": driver_memory(memory),
            # For tables that have no place of their own. Spark's default is the folder that one happens to be in.
            "spark.sql.warehouse.dir": Path(tempfile.gettempdir(), "catchment-warehouse").as_uri(),
            # Made for clusters, the defaults (200 and 50) cost a second or more of empty tasks each time.
            "spark.sql.shuffle.partitions": str(max(parallel, 2)),
            "spark.databricks.delta.snapshotPartitions": "2",
        }
    for bucket in buckets:
        found |= bucket.settings()
    own = revealed(conf)
    for name, between in _APPENDED.items():
        if name in own:
            own[name] = between.join(filter(None, (found.get(name), own[name])))
    return found | own

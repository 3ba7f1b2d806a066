"""The log stores: whoever writes a version of a table with them is the only one that does, in whatever process."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catchment.spark import jars, logstore
from catchment.spark.jars import JarSet
from catchment.spark.java import find_java
from catchment.testing.s3 import S3Server
from tests.spark.programs import run

ROOT = Path(__file__).parents[2]
SOAK = pytest.mark.soak


@pytest.fixture(scope="session")
def racer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that races, as a jar."""
    target = tmp_path_factory.mktemp("race") / "race.jar"
    subprocess.run([sys.executable, ROOT / "scripts" / "build_jar.py", ROOT / "java" / "test", target], check=True)
    return target


class Racers:
    """Processes that all write the same versions below one address, each at the same time as the others."""

    def __init__(
        self, racer: Path, scheme: str, settings: Mapping[str, str] | None = None, *, name: str | None = None
    ) -> None:
        needed = jars.resolve(JarSet.DELTA, *([JarSet.S3] if scheme == "s3a" else []))
        path = [racer, logstore.jar(), *needed, jars.spark_home() / "jars" / "*"]
        options = ["-Xmx256m", "-cp", os.pathsep.join(map(str, path))]
        self._command = [str(find_java().program), *options, "catchment.delta.Race"]
        self._class = name or logstore.CLASSES[scheme]
        self._settings = [f"{name}={value}" for name, value in (settings or {}).items()]

    def race(self, folder: str, *, racers: int, versions: int, slot: int) -> list[dict[int, str]]:
        """The versions that each was told are its own, and what it wrote there. `slot`: µs from one to the next."""
        command = [*self._command, self._class, folder, str(versions), str(slot), *self._settings]
        pipe = subprocess.PIPE
        running = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(racers)]
        try:
            for process in running:
                assert process.stdout
                assert process.stdout.readline() == "ready\n", process.communicate()[1]
            start = f"{int(time.time() * 1000) + 500}\n"
            with ThreadPoolExecutor(racers) as pool:
                said = list(pool.map(lambda process: process.communicate(start, timeout=500), running))
        finally:
            for process in running:
                process.kill()
                process.wait()
        assert [process.returncode for process in running] == [0] * racers, [err for _, err in said]
        return [{int(line.split()[0]): line.split()[1] for line in out.splitlines()} for out, _ in said]


def body(mark: str) -> bytes:
    """What the race's program writes."""
    return f"{mark}\n{'x' * 2000}\n".encode()


def one_winner_each(won: list[dict[int, str]], versions: int) -> None:
    """Every version was won, and by one alone."""
    print([len(each) for each in won], "versions won by each")
    assert Counter(version for each in won for version in each) == Counter(range(versions))


@pytest.mark.parametrize("racers, versions", [(2, 200), pytest.param(4, 2000, marks=SOAK)])
def test_in_a_local_directory_each_version_has_one_winner(
    racer: Path, tmp_path: Path, racers: int, versions: int
) -> None:
    won = Racers(racer, "file").race(tmp_path.as_uri(), racers=racers, versions=versions, slot=2000)
    one_winner_each(won, versions)
    marks = {version: mark for each in won for version, mark in each.items()}
    for version, mark in marks.items():
        assert (tmp_path / f"{version:020}.json").read_bytes() == body(mark)
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith((".tmp", ".crc"))]


def s3a(server: S3Server, endpoint: str | None = None) -> dict[str, str]:
    return {
        "fs.s3a.endpoint": endpoint or server.endpoint,
        "fs.s3a.endpoint.region": server.region,
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "fs.s3a.access.key": server.access_key,
        "fs.s3a.secret.key": server.secret_key,
    }


def objects(server: S3Server, bucket: str) -> dict[int, bytes]:
    """What was put, by version."""
    with closing(server.client()) as client:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="log/0")
        keys = {int(entry["Key"][4:24]): entry["Key"] for page in pages for entry in page["Contents"]}
        return {version: client.get_object(Bucket=bucket, Key=key)["Body"].read() for version, key in keys.items()}


@pytest.mark.parametrize("racers, versions", [(2, 50), pytest.param(4, 500, marks=SOAK)])
def test_on_s3_each_version_has_one_winner(racer: Path, s3: S3Server, racers: int, versions: int) -> None:
    bucket = s3.fresh_bucket()
    # A loser also reads what is there: with less time, it would come too late for every next one.
    slot = 60_000 if racers == 2 else 120_000
    won = Racers(racer, "s3a", s3a(s3)).race(f"s3a://{bucket}/log", racers=racers, versions=versions, slot=slot)
    one_winner_each(won, versions)
    assert objects(s3, bucket) == {version: body(mark) for each in won for version, mark in each.items()}


@SOAK
def test_the_race_is_real_on_s3_since_with_deltas_own_store_both_win(racer: Path, s3: S3Server) -> None:
    own = Racers(racer, "s3a", s3a(s3), name="io.delta.storage.S3SingleDriverLogStore")
    one, other = own.race(f"s3a://{s3.fresh_bucket()}/log", racers=2, versions=50, slot=60_000)
    assert set(one) & set(other)


@contextmanager
def faulty(server: S3Server, faults: list[str]) -> Iterator[str]:
    """The endpoint of something before the server that treats each put of a version as the next of `faults` says.

    "lost": the put is done and no answer given. A number: that status is the answer, and nothing is done.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def pass_on(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = faults.pop(0) if self.command == "PUT" and ".json" in self.path and faults else ""
            if fault.isdigit():
                self.send_response(int(fault))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            with closing(http.client.HTTPConnection(server.endpoint.removeprefix("http://"), timeout=60)) as behind:
                behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() != "expect":
                        behind.putheader(name, value)
                behind.endheaders(sent)
                reply = behind.getresponse()
                content = reply.read()
            if fault == "lost":
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in reply.getheaders():
                if name.lower() not in ("date", "server", "transfer-encoding"):
                    self.send_header(name, value)
            if "Content-Length" not in reply.headers:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_PUT = do_GET = do_HEAD = do_POST = do_DELETE = pass_on

    front = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=front.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{front.server_port}"
    finally:
        front.shutdown()
        thread.join()
        front.server_close()


FAULTS = [
    ["lost", "done"],  # the repetition is told 412 because of our own first put
    ["lost", "lost", "503", "done"],
    ["409", "409", "done"],  # another's put was under way, and failed
    ["lost", "409", "done"],
    ["500", "done"],
    ["done"],
]


def test_whoever_put_it_is_told_so_even_if_the_first_answer_was_lost(racer: Path, s3: S3Server) -> None:
    bucket, faults = s3.fresh_bucket(), [fault for version in FAULTS for fault in version]
    versions = len(FAULTS)
    with faulty(s3, faults) as endpoint:
        racers = Racers(racer, "s3a", s3a(s3, endpoint))
        (won,) = racers.race(f"s3a://{bucket}/log", racers=1, versions=versions, slot=0)
    assert not faults
    assert set(won) == set(range(versions))
    assert objects(s3, bucket) == {version: body(mark) for version, mark in won.items()}


def test_what_is_there_stays_and_its_writer_alone_has_won(racer: Path, s3: S3Server, tmp_path: Path) -> None:
    bucket = s3.fresh_bucket()
    with closing(s3.client()) as client:
        client.put_object(Bucket=bucket, Key=f"log/{0:020}.json", Body=b"before")
    (tmp_path / f"{0:020}.json").write_bytes(b"before")
    with faulty(s3, ["409"]) as endpoint:
        (there,) = Racers(racer, "s3a", s3a(s3, endpoint)).race(f"s3a://{bucket}/log", racers=1, versions=1, slot=0)
    (here,) = Racers(racer, "file").race(tmp_path.as_uri(), racers=1, versions=1, slot=0)
    assert (there, here) == ({}, {})
    assert objects(s3, bucket) == {0: b"before"}
    assert (tmp_path / f"{0:020}.json").read_bytes() == b"before"


def in_use(spark: SparkSession, place: str) -> str:
    """The class that Delta writes the log of a table at this place with."""
    context: Any = spark.sparkContext
    delta = context._jvm.org.apache.spark.sql.delta.storage.DelegatingLogStore(context._jsc.hadoopConfiguration())
    found = delta.getDelegate(context._jvm.org.apache.hadoop.fs.Path(place))
    return str(found.logStoreImpl().getClass().getName())


def test_a_session_uses_them_and_deltas_own_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    assert in_use(spark, tmp_path.as_uri()) == "catchment.delta.LinkLogStore"
    assert in_use(spark, "hdfs://host/table") == "io.delta.storage.HDFSLogStore"
    assert in_use(spark, "abfss://container@account/table") == "io.delta.storage.AzureLogStore"


def test_a_checksum_that_hadoop_kept_of_another_file_does_not_spoil_a_commit(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "orders"
    spark.range(3).write.format("delta").save(str(table))
    context: Any = spark.sparkContext
    for name in (f"{1:020}.json", "_last_checkpoint"):
        path = context._jvm.org.apache.hadoop.fs.Path(str(table / "_delta_log" / name))
        file = path.getFileSystem(context._jsc.hadoopConfiguration()).create(path)
        file.writeBytes("{}" + " " * 5000)
        file.close()
        (table / "_delta_log" / name).unlink()
        assert (table / "_delta_log" / f".{name}.crc").exists()
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    spark.range(4).write.format("delta").mode("append").save(str(table))
    assert (table / "_delta_log" / "_last_checkpoint").exists()
    lines = spark.read.text(str(table / "_delta_log" / "*.json")).count()
    assert lines == sum(len(path.read_text().splitlines()) for path in (table / "_delta_log").glob("*.json"))
    context._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert spark.read.format("delta").load(str(table)).count() == 7


DRIVER = """
    import json, pathlib, sys, time
    from catchment.config.secret import Secret
    from catchment.spark.session import session
    from catchment.spark.settings import S3Access

    bucket, endpoint, region, key, secret, table, own, other = json.loads(sys.stdin.read())
    access = [S3Access(bucket, endpoint, region, Secret(key), Secret(secret))] if bucket else []
    spark = session("local[1]", {"spark.driver.memory": "700m"}, buckets=access)

    def meet(where):
        pathlib.Path(f"{own}-{where}").touch()
        while not pathlib.Path(f"{other}-{where}").exists():
            if pathlib.Path(f"{other}-ended").exists():
                sys.exit("the other has ended")
            time.sleep(0.005)

    try:
        if own.endswith("one"):
            spark.range(0).write.format("delta").save(table)
        for turn in range(5):
            meet(turn)
            spark.range(100 * turn, 100 * turn + 100).write.format("delta").mode("append").save(table)
        meet("done")
    finally:
        pathlib.Path(f"{own}-ended").touch()
    twice = spark.read.format("delta").load(table).groupBy("id").count().where("count = 2").count()
    log = spark.read.text(f"{table}/_delta_log/*.json")
    marks = log.selectExpr("get_json_object(value, '$.commitInfo.txnId') AS mark").where("mark IS NOT NULL")
    print(twice, marks.count(), marks.distinct().count())
    spark.stop()
"""


@SOAK
@pytest.mark.parametrize("where", ["s3a", "file"])
def test_two_drivers_that_append_at_once_lose_no_row(s3: S3Server, tmp_path: Path, where: str) -> None:
    bucket = s3.fresh_bucket()
    table = f"s3a://{bucket}/warehouse/sales/orders" if where == "s3a" else (tmp_path / "orders").as_uri()
    access = [bucket if where == "s3a" else "", s3.endpoint, s3.region, s3.access_key, s3.secret_key, table]
    names = [str(tmp_path / "one"), str(tmp_path / "other")]
    with ThreadPoolExecutor() as pool:
        inputs = [json.dumps([*access, *names]), json.dumps([*access, *reversed(names)])]
        both = list(pool.map(lambda text: run(DRIVER, input=text), inputs))
    assert [(done.stdout, done.stderr) for done in both] == [("500 11 11\n", "")] * 2

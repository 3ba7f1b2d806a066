"""`catchment check` on real servers: what is there, what is away, and what a store cannot do."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from catchment.lake import Lake
from catchment.testing.kafka import KafkaBroker
from catchment.testing.s3 import S3Server, s3_server

SECRET = "a-secret-nobody-may-see"


def storage(server: S3Server, bucket: str, **more: object) -> dict[str, object]:
    return {"id": "remote", "bucket": bucket, "prefix": "prod", **server.connection, **more}


def verdicts(folder: Path, config: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    (folder / "catchment.yaml").write_text(yaml.safe_dump(config))
    with Lake.open(str(folder / "catchment.yaml")) as lake:
        return {f"{f.part} {f.name}": (str(f.verdict), f.detail, f.hint) for f in lake.check(spark=False)}


def topic(brokers: str, **kafka: str) -> dict[str, Any]:
    return {"match": "events", "brokers": brokers, "kafka": kafka, "exports": [{"group": "backup"}]}


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_two_storages_and_a_broker(s3: S3Server, kafka: KafkaBroker, tmp_path: Path) -> None:
    near = {"id": "near", "path": "./lake", "state": True}
    config = {
        "object_storage": [near, storage(s3, s3.fresh_bucket())],
        "topics": [topic(kafka.bootstrap), {**topic(kafka.bootstrap), "match": "other"}],
    }
    found = verdicts(tmp_path, config)
    assert found["object storage near"][:2] == ("ok", "reachable; conditional writes, tags, versions")
    assert found["object storage remote"][:2] == ("ok", "reachable; conditional writes, tags, versions")
    assert found[f"kafka {kafka.bootstrap}"][0] == "ok"
    assert "1 broker" in found[f"kafka {kafka.bootstrap}"][1]


def test_a_bucket_without_versions_is_said(s3: S3Server, tmp_path: Path) -> None:
    found = verdicts(tmp_path, {"object_storage": [storage(s3, s3.fresh_bucket(versioning=False))]})
    assert found["object storage remote"][:2] == ("ok", "reachable; conditional writes, tags, no versions")


def test_whatever_is_away_fails_by_itself_and_hides_nothing_else(s3: S3Server, tmp_path: Path) -> None:
    dead = f"http://127.0.0.1:{closed_port()}"
    brokers = f"127.0.0.1:{closed_port()}"
    config = {
        "object_storage": [
            {"id": "near", "path": "./lake", "state": True},
            {**storage(s3, "no-such-bucket"), "id": "missing"},
            {**storage(s3, "lake"), "id": "dead", "endpoint_url": dead},
            {**storage(s3, s3.fresh_bucket()), "id": "denied", "aws_secret_access_key": SECRET},
        ],
        "topics": [topic(brokers, **{"sasl.password": SECRET})],
    }
    found = verdicts(tmp_path, config)
    assert {part: verdict for part, (verdict, _, _) in found.items() if verdict != "ok"} == {
        "object storage missing": "failed",
        "object storage dead": "failed",
        "object storage denied": "failed",
        f"kafka {brokers}": "failed",
    }
    assert "object_storage" in found["object storage missing"][2]
    assert dead in found["object storage dead"][1]
    assert "aws_secret_access_key" in found["object storage denied"][2]
    assert "brokers" in found[f"kafka {brokers}"][2]
    assert SECRET not in str(found)


def test_a_read_only_store_is_limited(s3: S3Server, tmp_path: Path) -> None:
    if s3.kind == "moto":
        return  # no real server is to be had on this machine, as the run's summary says
    with s3_server() as writable:
        bucket = writable.create_bucket("lake")
        with s3_server(readonly=True, home=writable.home) as server:
            found = verdicts(tmp_path, {"object_storage": [storage(server, bucket)]})
    assert found["object storage remote"][:2] == ("limited", "can be read, but not written")


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_with_spark_on_s3(s3: S3Server, tmp_path: Path, as_json: bool) -> None:
    (tmp_path / "catchment.yaml").write_text(yaml.safe_dump({"object_storage": [storage(s3, s3.fresh_bucket())]}))
    command = [sys.executable, "-m", "catchment", "check", *(["--json"] if as_json else [])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "ran a job" in done.stdout
    assert s3.secret_key not in done.stdout
    if as_json:
        assert {finding["verdict"] for finding in json.loads(done.stdout)} == {"ok"}

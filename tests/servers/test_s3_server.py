"""The S3 servers for tests do what the rooms build on. Where they differ from S3: catchment/testing/s3.py."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from catchment.errors import SetupError
from catchment.testing.s3 import S3Server, s3_server


@pytest.fixture(params=["s3", "moto"])
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def client(server: S3Server) -> Iterator[Any]:
    with contextlib.closing(server.client(config=Config(max_pool_connections=16))) as client:
        yield client


@contextlib.contextmanager
def refused(status: int) -> Iterator[None]:
    with pytest.raises(ClientError) as caught:
        yield
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status


@pytest.mark.parametrize("versioning", [True, False])
def test_conditional_puts(server: S3Server, client: Any, *, versioning: bool) -> None:
    bucket = server.fresh_bucket(versioning=versioning)
    first = client.put_object(Bucket=bucket, Key="a/b", Body=b"1", IfNoneMatch="*")
    with refused(412):
        client.put_object(Bucket=bucket, Key="a/b", Body=b"2", IfNoneMatch="*")
    client.put_object(Bucket=bucket, Key="a/b", Body=b"2", IfMatch=first["ETag"])
    with refused(412):
        client.put_object(Bucket=bucket, Key="a/b", Body=b"3", IfMatch=first["ETag"])
    with refused(404):
        client.put_object(Bucket=bucket, Key="none", Body=b"3", IfMatch=first["ETag"])
    assert client.get_object(Bucket=bucket, Key="a/b")["Body"].read() == b"2"


def test_of_many_writers_one_wins(server: S3Server, client: Any) -> None:
    bucket = server.fresh_bucket()

    def put(number: int) -> bool:
        try:
            client.put_object(Bucket=bucket, Key="race", Body=str(number).encode(), IfNoneMatch="*")
        except ClientError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        won = [number for number, first in enumerate(pool.map(put, range(16))) if first]
    assert len(won) == 1
    assert client.get_object(Bucket=bucket, Key="race")["Body"].read() == str(won[0]).encode()


def test_versions_keep_content_and_tags(server: S3Server, client: Any) -> None:
    bucket = server.fresh_bucket()
    old = client.put_object(Bucket=bucket, Key="k", Body=b"old", Tagging="run=1")["VersionId"]
    new = client.put_object(Bucket=bucket, Key="k", Body=b"new", Tagging="run=2")["VersionId"]
    listed = client.list_object_versions(Bucket=bucket, Prefix="k")["Versions"]
    assert [(one["VersionId"], one["IsLatest"]) for one in listed] == [(new, True), (old, False)]
    assert client.get_object(Bucket=bucket, Key="k", VersionId=old)["Body"].read() == b"old"
    assert client.get_object_tagging(Bucket=bucket, Key="k", VersionId=old)["TagSet"] == [{"Key": "run", "Value": "1"}]
    client.delete_object(Bucket=bucket, Key="k")
    with refused(404):
        client.get_object(Bucket=bucket, Key="k")
    assert client.get_object(Bucket=bucket, Key="k", VersionId=new)["Body"].read() == b"new"


def test_a_bucket_without_versions_keeps_none(server: S3Server, client: Any) -> None:
    bucket = server.fresh_bucket(versioning=False)
    for body in (b"old", b"new"):
        assert "VersionId" not in client.put_object(Bucket=bucket, Key="k", Body=body)
    assert [one["VersionId"] for one in client.list_object_versions(Bucket=bucket)["Versions"]] == ["null"]


def test_buckets_are_apart(server: S3Server, client: Any) -> None:
    one, other = server.fresh_bucket(), server.fresh_bucket()
    client.put_object(Bucket=one, Key="k", Body=b"")
    assert client.list_objects_v2(Bucket=other)["KeyCount"] == 0
    assert client.list_objects_v2(Bucket=one)["KeyCount"] == 1


def test_the_secret_is_not_shown(server: S3Server) -> None:
    assert server.secret_key not in repr(server)
    assert server.secret_key not in " ".join(server.process.command)


def test_a_read_only_server_serves_and_refuses_changes(tmp_path: Path, s3: S3Server) -> None:
    if s3.kind == "moto":  # it stood in, and has no such mode: asking for one must say what is missing
        with pytest.raises(SetupError, match="install Go"), s3_server(home=tmp_path, readonly=True):
            raise AssertionError("it started")
        return
    with s3_server(home=tmp_path, region="eu-west-1") as writable:
        bucket = writable.create_bucket("lake")
        with contextlib.closing(writable.client()) as client:
            client.put_object(Bucket=bucket, Key="k", Body=b"kept")
    with (
        s3_server(home=tmp_path, region="eu-west-1", readonly=True) as frozen,
        contextlib.closing(frozen.client()) as client,
    ):
        assert client.get_object(Bucket=bucket, Key="k")["Body"].read() == b"kept"
        with refused(403):
            client.put_object(Bucket=bucket, Key="k", Body=b"changed")
        with refused(403):
            client.delete_object(Bucket=bucket, Key="k")
    assert (tmp_path / "data" / "lake" / "k").read_bytes() == b"kept"


def test_wrong_credentials_are_refused_by_the_real_server_alone(server: S3Server) -> None:
    with contextlib.closing(server.client(aws_secret_access_key="wrong")) as client:
        if server.kind == "moto":
            assert "Buckets" in client.list_buckets()
        else:
            with refused(403):
                client.list_buckets()

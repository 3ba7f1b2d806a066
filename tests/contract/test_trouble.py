"""S3 that is away, missing, denied, read-only or confused: a clear error each, and never an empty bucket."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from botocore.exceptions import ConnectionClosedError

from catchment.bucket.contract import Bucket
from catchment.bucket.probe import probe
from catchment.bucket.s3 import S3Bucket
from catchment.bucket.wrap import Backoff, Counting, Counts, Retrying
from catchment.errors import BucketMissing, Denied, NotFound, Unreachable
from catchment.testing.clock import FakeClock
from catchment.testing.s3 import S3Server, s3_server
from tests.contract.stores import s3_client

SERVERS = ["s3", "moto"]


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found


def every_call(bucket: Bucket) -> list[Callable[[], object]]:
    return [
        lambda: list(bucket.list()),
        lambda: list(bucket.list("some/prefix", after="x")),
        lambda: list(bucket.children()),
        lambda: bucket.get("k"),
        lambda: bucket.read("k"),
        lambda: bucket.open("k").__enter__(),
        lambda: bucket.head("k"),
        lambda: bucket.put("k", b"x"),
        lambda: bucket.copy("k", "l"),
        lambda: bucket.tags("k"),
        lambda: bucket.tag("k", {"a": "b"}),
        lambda: bucket.versions("k"),
        lambda: bucket.delete("k"),
        bucket.check,
    ]


def test_a_missing_bucket_is_an_error_and_never_an_empty_one(server: S3Server) -> None:
    for number in range(14):
        # A new client each time: what one call learned must not help the next.
        with closing(s3_client(server, "no-such-bucket")) as bucket:
            with pytest.raises(BucketMissing) as caught:
                every_call(bucket)[number]()
            assert "no-such-bucket" in str(caught.value)
            assert "object_storage" in caught.value.hint


@pytest.fixture
def dead_endpoint() -> Iterator[str]:
    """A port that nobody listens on: bound, so that nobody else gets it, and never accepting."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def dead(endpoint: str) -> S3Bucket:
    return S3Bucket("lake", endpoint_url=endpoint, access_key="a", secret_key="SECRET-CANARY", timeout=2)


def test_a_dead_endpoint_is_an_error_and_never_an_empty_bucket(dead_endpoint: str) -> None:
    with closing(dead(dead_endpoint)) as bucket:
        for call in every_call(bucket):
            with pytest.raises(Unreachable) as caught:
                call()
            assert dead_endpoint in str(caught.value)
            assert "endpoint_url" in caught.value.hint
            assert "SECRET-CANARY" not in str(caught.value)


def test_a_dead_endpoint_is_tried_again_and_then_given_up(dead_endpoint: str) -> None:
    counts, clock = Counts(), FakeClock()
    inner = S3Bucket("l", endpoint_url=dead_endpoint, access_key="a", secret_key="b", on_request=counts.add)
    bucket = Counting(Retrying(inner, backoff=Backoff(attempts=4, first=1.0), clock=clock, chance=lambda: 0.0), counts)
    with closing(bucket), pytest.raises(Unreachable):
        list(bucket.list())
    assert counts.requests["ListObjectsV2"] == 4
    assert clock.slept == [0.5, 1.0, 2.0]


def test_wrong_credentials_are_denied_at_once(s3: S3Server) -> None:
    name = s3.fresh_bucket()
    clock = FakeClock()
    for access, secret in [(s3.access_key, "wrong-SECRET"), ("nobody", s3.secret_key)]:
        inner = S3Bucket(name, endpoint_url=s3.endpoint, region_name=s3.region, access_key=access, secret_key=secret)
        with closing(Retrying(inner, clock=clock)) as bucket:
            with pytest.raises(Denied) as caught:
                list(bucket.list())
            assert "aws_access_key_id" in caught.value.hint
            assert secret not in str(caught.value)
            with pytest.raises(Denied):
                bucket.put("k", b"x")
    assert clock.slept == []


def test_no_credentials_at_all(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    with (
        closing(S3Bucket("lake", endpoint_url=s3.endpoint)) as bucket,
        pytest.raises(Denied, match="credentials"),
    ):
        bucket.check()


def test_a_read_only_server_can_be_read_and_denies_writes(s3: S3Server) -> None:
    if s3.kind == "moto":
        return  # no real server is to be had on this machine, as the run's summary says
    with s3_server() as writable:
        name = writable.create_bucket("lake")
        with closing(s3_client(writable, name)) as bucket:
            bucket.put("k", b"x")
        with s3_server(readonly=True, home=writable.home) as server, closing(s3_client(server, name)) as bucket:
            assert bucket.get("k") == b"x"
            for write in (lambda: bucket.put("k", b"y"), lambda: bucket.delete("k"), lambda: probe(bucket)):
                with pytest.raises(Denied) as caught:
                    write()
                assert caught.value.hint
            assert bucket.get("k") == b"x"


@pytest.mark.parametrize("endpoint", ["not a url", "http://", "ftp://x"])
def test_an_endpoint_that_is_no_url(endpoint: str) -> None:
    with pytest.raises(Exception) as caught:
        with closing(S3Bucket("lake", endpoint_url=endpoint, access_key="a", secret_key="b")) as bucket:
            bucket.check()
    assert caught.type.__module__ == "catchment.errors"
    assert "endpoint_url" in str(caught.value) or "object_storage" in str(caught.value)


# -- what is asked of the server ------------------------------------------------------------------------------------


def counted(server: S3Server, name: str) -> tuple[S3Bucket, Counts]:
    counts = Counts()
    bucket = server.bucket(name, prefix="p", on_request=counts.add)
    return bucket, counts


def test_one_call_is_one_request(server: S3Server) -> None:
    bucket, counts = counted(server, server.fresh_bucket())
    with closing(bucket):
        etag = bucket.put("k", b"x").etag
        bucket.put("k", b"y", tags={"a": "1"})
        bucket.get("k")
        bucket.head("k")
        list(bucket.list())
        bucket.delete("k")
    assert dict(counts.requests) == {
        "PutObject": 2,
        "GetObject": 1,
        "HeadObject": 1,
        "ListObjectsV2": 1,
        "DeleteObject": 1,
    }
    assert etag


def test_a_missing_key_costs_one_request_once_the_bucket_is_known(server: S3Server) -> None:
    bucket, counts = counted(server, server.fresh_bucket())
    with closing(bucket):
        for _ in range(3):
            with pytest.raises(NotFound):
                bucket.head("missing")
    assert counts.requests["HeadObject"] == 3
    assert counts.total == 4


def test_two_prefixes_of_one_bucket_do_not_see_each_other(server: S3Server) -> None:
    name = server.fresh_bucket()
    with closing(s3_client(server, name, prefix="a")) as one, closing(s3_client(server, name, prefix="a/b")) as two:
        one.put("x", b"1")
        two.put("x", b"2")
        assert [entry.key for entry in two.list()] == ["x"]
        assert [entry.key for entry in one.list()] == ["b/x", "x"]
        assert one.get("x") == b"1"


def test_keys_that_only_s3_can_hold_are_left_out_and_said(moto: S3Server, caplog: pytest.LogCaptureFixture) -> None:
    name = moto.fresh_bucket()
    with closing(moto.client()) as client:
        for key in ("a//b", "./c", "/d", "fine"):
            client.put_object(Bucket=name, Key=key, Body=b"1")
    with closing(s3_client(moto, name, prefix="")) as bucket, caplog.at_level("WARNING"):
        assert [entry.key for entry in bucket.list()] == ["fine"]
    assert "a//b" in caplog.text


def test_a_multipart_upload_that_fails_leaves_no_parts(server: S3Server, tmp_path: Path) -> None:
    name = server.fresh_bucket()
    sent: list[str] = []

    def breaks(operation: str) -> None:
        sent.append(operation)
        if operation == "UploadPart" and sent.count("UploadPart") == 2:
            raise ConnectionClosedError(endpoint_url=server.endpoint)

    path = tmp_path / "large"
    path.write_bytes(bytes(11 << 20))
    bucket = server.bucket(name, multipart_above=5 << 20, on_request=breaks)
    with closing(bucket), closing(server.client()) as client:
        with pytest.raises(Unreachable):
            bucket.put("k", path)
        assert client.list_multipart_uploads(Bucket=name).get("Uploads", []) == []
        assert list(bucket.list()) == []
    assert "AbortMultipartUpload" in sent


def test_many_versions_of_one_key_are_more_than_a_page(moto: S3Server) -> None:
    with closing(s3_client(moto, moto.fresh_bucket())) as bucket:
        for n in range(1005):
            bucket.put("k", str(n).encode())
        assert len(bucket.versions("k")) == 1005


def test_folder_marks_of_other_tools_are_not_objects(server: S3Server) -> None:
    name = server.fresh_bucket()
    with closing(server.client()) as client:
        client.put_object(Bucket=name, Key="folder/")
        client.put_object(Bucket=name, Key="folder/x", Body=b"1")
    with closing(s3_client(server, name, prefix="")) as bucket:
        assert [entry.key for entry in bucket.list()] == ["folder/x"]
        assert [item.key for item in bucket.children()] == ["folder/"]
        assert [item.key for item in bucket.children("folder/")] == ["folder/x"]

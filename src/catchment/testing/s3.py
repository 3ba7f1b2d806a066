"""S3 servers for tests: versitygw, a real one, and moto, an imitation in Python. Both real processes on loopback.

    with s3_server() as server:
        server.create_bucket("lake")
        S3Bucket(bucket="lake", endpoint_url=server.endpoint, …)

They differ from S3 and from each other, so tests that touch S3 belong on both. Seen on versitygw 1.8.0:
- a key's parts are folders and files: `a` and `a/b` cannot both be there (409 `ObjectParentIsFile`: not the 409 that
  asks for another try), a part is at most 255 bytes (400 `KeyTooLongError`), and `a//b` or `./b` vanish from listings;
- in a versioned bucket a deleted key stays "there" for conditions: put-if-absent fails, and put-if-match *succeeds*
  with the ETag of the object that was deleted;
- an unknown version id is 400 unless it looks like one of its own, then 404.
Seen on moto 5: CompleteMultipartUpload ignores `If-Match`; keys with a newline are lost; credentials are not checked.
On both, CopyObject ignores conditions on its target and turns a multipart ETag into a plain one.
"""

from __future__ import annotations

import functools
import secrets
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catchment.testing.process import HOST, ServerProcess, private_folder, remove, started
from catchment.testing.versitygw import versitygw

if TYPE_CHECKING:
    from catchment.bucket.s3 import S3Bucket


@dataclass(frozen=True)
class S3Server:
    """A running S3 server and what a client needs to reach it."""

    kind: str  # versitygw or moto
    endpoint: str  # http://127.0.0.1:<port>
    access_key: str
    secret_key: str = field(repr=False)
    region: str
    process: ServerProcess = field(repr=False)
    home: Path  # versitygw keeps the objects as plain files under data/ in it

    @property
    def connection(self) -> dict[str, str]:
        """The keyword arguments that boto3 and an `object_storage` section both take."""
        return {
            "endpoint_url": self.endpoint,
            "region_name": self.region,
            "aws_access_key_id": self.access_key,
            "aws_secret_access_key": self.secret_key,
        }

    def client(self, **options: Any) -> Any:
        """A plain boto3 client, for tests that look behind the bucket. Path-style, no retries unless told otherwise.

        Close it (`with contextlib.closing(...)`) when done.
        """
        from botocore.config import Config

        options.setdefault(
            "config", Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1, "mode": "standard"})
        )
        with _MAKING:
            return _session().client("s3", **{**self.connection, **options})

    def bucket(self, name: str, **options: Any) -> S3Bucket:
        """Catchment's own view of a bucket here, unwrapped. `options` are S3Bucket's. Close it when done."""
        from catchment.bucket.s3 import S3Bucket

        keys = {"access_key": self.access_key, "secret_key": self.secret_key}
        return S3Bucket(name, **{"endpoint_url": self.endpoint, "region_name": self.region, **keys, **options})

    def create_bucket(self, name: str, *, versioning: bool = True) -> str:
        """Make a bucket and return its name."""
        client = self.client()
        try:
            if self.region == "us-east-1":  # the one region that must not be named
                client.create_bucket(Bucket=name)
            else:
                client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": self.region})
            if versioning:
                client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        finally:
            client.close()
        return name

    def fresh_bucket(self, *, versioning: bool = True) -> str:
        """A new bucket with a name that nobody else uses, so that tests can share the server."""
        return self.create_bucket(f"test-{secrets.token_hex(6)}", versioning=versioning)


@contextmanager
def s3_server(
    *,
    readonly: bool = False,
    region: str = "us-east-1",
    home: Path | None = None,
    arguments: Sequence[str] = (),
) -> Iterator[S3Server]:
    """A versitygw with versioning on a free port; SetupError if it cannot be had (`versitygw.missing()` says why).

    `home` keeps the data of an earlier server (with `readonly`: serve what that one wrote, refuse every change). It is
    left in place; without it a temporary folder is used and removed. `arguments` are further options of the program,
    such as `--event-kafka-url`.
    """
    own = home is None
    folder = (home or private_folder("s3")).absolute()
    access, secret = "catchment", secrets.token_hex(16)
    # Only our own server knows this path: a stranger on the same port cannot be taken for it.
    health = f"/health-{secrets.token_hex(8)}"
    data, versions, scratch = (folder / name for name in ("data", "versions", "process"))
    for path in (data, versions, scratch):
        path.mkdir(parents=True, exist_ok=True)

    def make(port: int) -> ServerProcess:
        command = [str(versitygw()), "--port", f"{HOST}:{port}", "--region", region, "--health", health, "--keep-alive"]
        command += ["--quiet", *(["--readonly"] if readonly else []), *arguments]
        command += ["posix", "--versioning-dir", str(versions), str(data)]
        keys = {"ROOT_ACCESS_KEY": access, "ROOT_SECRET_KEY": secret}  # not in the list of processes
        return ServerProcess("versitygw", command, folder if own else scratch, env=keys)

    try:
        process, port = started(make, lambda port: _healthy(f"http://{HOST}:{port}{health}"))
        try:
            yield S3Server("versitygw", f"http://{HOST}:{port}", access, secret, region, process, folder)
        finally:
            process.stop()
    finally:
        remove(folder if own else scratch)


@contextmanager
def moto_server(*, region: str = "us-east-1") -> Iterator[S3Server]:
    """moto's S3 on a free port. It keeps everything in memory and takes any key."""
    folder = private_folder("moto")
    file = folder / "port"
    process = ServerProcess("moto", [sys.executable, "-c", _MOTO, HOST, str(file)], folder)
    try:
        process.start(file.exists)
        try:
            endpoint = f"http://{HOST}:{file.read_text()}"
            yield S3Server("moto", endpoint, "catchment", "not-checked", region, process, folder)
        finally:
            process.stop()
    finally:
        remove(folder)


# Takes any free port and writes it down, so nobody can be quicker.
_MOTO = """
import pathlib, sys, threading
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address=sys.argv[1], port=0, verbose=True)
server.start()
aside = pathlib.Path(sys.argv[2] + ".new")
aside.write_text(str(server.get_host_and_port()[1]))
aside.rename(sys.argv[2])
threading.Event().wait()
"""

_MAKING = threading.Lock()  # a session may not make two clients at once


@functools.cache
def _session() -> Any:
    """Kept, since reading S3's description anew takes a quarter of a second."""
    import boto3

    return boto3.session.Session()


def _healthy(url: str) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False

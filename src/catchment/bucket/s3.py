"""A bucket on S3, or whatever speaks it. The only module that knows boto3.

One call here is one request wherever S3 allows it: a put with tags and a precondition is one. botocore's own retries
are off, because `Retrying` decides what is worth trying again and `Counting` has to see every request.
"""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import urlencode

import boto3
from botocore.config import Config as BotoConfig
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from catchment.bucket.contract import (
    ANY,
    Body,
    Bucket,
    Entry,
    Folder,
    Object,
    Precondition,
    Stat,
    Tags,
    Version,
    check_key,
    check_tags,
)
from catchment.bucket.s3_errors import explain
from catchment.clock import SYSTEM
from catchment.errors import BadKey, NotFound, Unsupported

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

log = logging.getLogger(__name__)
_LAST = "\U0010ffff"  # sorts after whatever a key can have in its place
_PART_SIZE = 64 << 20
_SINGLE_LIMIT = 5 << 30  # S3 takes no larger body in one request


class S3Bucket(Bucket):
    """The contract over one S3 bucket and prefix.

    multipart_above: from this size on, a body without a precondition goes up in parts. One with a precondition goes
    up in one request, because not every server honours the precondition of a multipart upload.
    on_request: called with the operation's name for each request that goes out.
    """

    def __init__(
        self,
        bucket: str,
        *,
        prefix: str = "",
        endpoint_url: str | None = None,
        region_name: str | None = None,
        service_name: str = "s3",
        access_key: str | None = None,
        secret_key: str | None = None,
        timeout: float = 60.0,
        page_size: int = 1000,
        multipart_above: int = 256 << 20,
        on_request: Callable[[str], None] = lambda operation: None,
    ) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self.name = f"s3://{bucket}/{self._prefix}".rstrip("/")
        self._where = f"{self.name} at {endpoint_url}" if endpoint_url else self.name
        self._page_size = page_size
        self._multipart_above = multipart_above
        self._seen = False  # whether the bucket has answered once, so that 404 means the key
        self._versioned: bool | None = None
        self._lock = threading.Lock()
        self._on_request = on_request
        session = boto3.session.Session()
        with self._explained(""):
            self._client: S3Client = session.client(
                cast(Any, service_name),
                endpoint_url=endpoint_url,
                region_name=region_name or session.region_name or "us-east-1",
                aws_access_key_id=access_key,
                aws_secret_access_key=secret_key,
                config=BotoConfig(
                    retries={"total_max_attempts": 1},
                    connect_timeout=min(timeout, 10.0),
                    read_timeout=timeout,
                    max_pool_connections=32,
                    # Checksums that only AWS asks for break older servers; S3 checks what is signed anyway.
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                    s3={"addressing_style": "path"} if endpoint_url else {},
                ),
            )
        self._client.meta.events.register("before-send.s3", self._sent)

    # -- the contract ------------------------------------------------------------------------------------------------

    def put(self, key: str, body: Body, *, when: Precondition = ANY, tags: Tags | None = None) -> Stat:
        full = self._full(key)
        tagging = urlencode(check_tags(tags))
        size = len(body) if isinstance(body, bytes) else body.stat().st_size
        if when is ANY and isinstance(body, Path) and size >= self._multipart_above:
            return self._put_parts(key, full, body, tagging)
        if size > _SINGLE_LIMIT:
            raise BadKey(f"{key} has {size} bytes; with a precondition 5 GiB is the limit", key=key, hint="split it")
        given: dict[str, Any] = {"Tagging": tagging} if tagging else {}
        if when.absent:
            given["IfNoneMatch"] = "*"
        if when.etag is not None:
            given["IfMatch"] = f'"{when.etag}"'
        with self._explained(key, conditional=when.etag is not None), _reading(body) as stream:
            answer = self._client.put_object(Bucket=self._bucket, Key=full, Body=stream, **given)
        return Stat(key, size, _plain(answer["ETag"]), _date(answer), _version(answer))

    @contextmanager
    def open(self, key: str, *, version: str | None = None, etag: str | None = None) -> Iterator[BinaryIO]:
        given = _version_argument(version)
        if etag is not None:
            given["IfMatch"] = f'"{etag}"'
        with self._explained(key, version=version):
            answer = self._client.get_object(Bucket=self._bucket, Key=self._full(key), **given)
        stream = answer["Body"]
        try:
            # Errors on the way, a body cut short among them, are the reader's to hear and not an end of file.
            yield cast(BinaryIO, io.BufferedReader(_Explained(stream, key, self), 1 << 16))
        finally:
            stream.close()

    def read(self, key: str, *, version: str | None = None) -> Object:
        with self._explained(key, version=version):
            answer = self._client.get_object(Bucket=self._bucket, Key=self._full(key), **_version_argument(version))
            body = answer["Body"].read()
        return Object(Stat(key, len(body), _plain(answer["ETag"]), answer["LastModified"], _version(answer)), body)

    def head(self, key: str, *, version: str | None = None) -> Stat:
        try:
            with self._explained(key, version=version):
                answer = self._client.head_object(
                    Bucket=self._bucket, Key=self._full(key), **_version_argument(version)
                )
        except NotFound:
            # The answer to HEAD has no body, so a missing bucket looks like a missing key until it has been seen.
            if not self._seen:
                self.check()
            raise
        return Stat(key, answer["ContentLength"], _plain(answer["ETag"]), answer["LastModified"], _version(answer))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[Entry]:
        for page in self._pages(prefix, after):
            for item in page.get("Contents", []):
                entry = self._entry(item)
                if entry.key > after and _is_object(entry.key):
                    yield entry

    def children(self, prefix: str = "", *, after: str = "") -> Iterator[Entry | Folder]:
        # Nothing inside a folder that was given already.
        given = after.endswith("/") and after.startswith(prefix) and after != prefix
        start = after + _LAST if given else after
        for page in self._pages(prefix, start, Delimiter="/"):
            found: list[Entry | Folder] = [
                Folder(common["Prefix"][len(self._prefix) :]) for common in page.get("CommonPrefixes", [])
            ]
            found += [entry for item in page.get("Contents", []) if _is_object((entry := self._entry(item)).key)]
            yield from sorted((item for item in found if item.key > after), key=lambda item: item.key)

    def delete(self, key: str, *, version: str | None = None) -> None:
        with suppress(NotFound), self._explained(key, version=version):
            self._client.delete_object(Bucket=self._bucket, Key=self._full(key), **_version_argument(version))

    def copy(self, source: str, target: str, *, version: str | None = None, tags: Tags | None = None) -> Stat:
        full = self._full(target)
        origin: dict[str, str] = {"Bucket": self._bucket, "Key": self._full(source), **_version_argument(version)}
        # The source's tags are read and sent: with a version given, not every server copies that version's.
        given = self.tags(source, version=version) if tags is None else check_tags(tags)
        with self._explained(source, version=version):
            answer = self._client.copy_object(
                Bucket=self._bucket,
                Key=full,
                CopySource=cast(Any, origin),
                TaggingDirective="REPLACE",
                Tagging=urlencode(given),
                MetadataDirective="REPLACE",  # without a change S3 refuses to copy an object onto itself
            )
        stat = self.head(target)
        copied = answer.get("VersionId")
        return stat if copied in (None, "null", stat.version) else self.head(target, version=copied)

    def tags(self, key: str, *, version: str | None = None) -> dict[str, str]:
        with self._explained(key, version=version):
            answer = self._client.get_object_tagging(
                Bucket=self._bucket, Key=self._full(key), **_version_argument(version)
            )
        return {tag["Key"]: tag["Value"] for tag in answer["TagSet"]}

    def tag(self, key: str, tags: Tags, *, version: str | None = None) -> None:
        pairs = [{"Key": name, "Value": value} for name, value in check_tags(tags).items()]
        which: dict[str, Any] = {"Bucket": self._bucket, "Key": self._full(key), **_version_argument(version)}
        with self._explained(key, version=version):
            if pairs:
                self._client.put_object_tagging(Tagging=cast(Any, {"TagSet": pairs}), **which)
            else:
                self._client.delete_object_tagging(**which)

    def versions(self, key: str) -> Sequence[Version]:
        full = self._full(key)
        if not self._keeps_versions():
            raise Unsupported(
                f"{self.name} keeps no versions", key=key, hint="turn on versioning for this bucket at its provider"
            )
        found: list[Version] = []
        more: dict[str, Any] = {}
        while True:
            with self._explained(key):
                page = self._client.list_object_versions(Bucket=self._bucket, Prefix=full, **more)
            for item in page.get("Versions", []):
                if item["Key"] == full:
                    found.append(
                        Version(
                            key,
                            item["VersionId"],
                            item["Size"],
                            _plain(item["ETag"]),
                            item["LastModified"],
                            item["IsLatest"],
                        )
                    )
            for mark in page.get("DeleteMarkers", []):
                if mark["Key"] == full:
                    found.append(
                        Version(key, mark["VersionId"], 0, "", mark["LastModified"], mark["IsLatest"], deleted=True)
                    )
            others = any(item["Key"] > full for item in [*page.get("Versions", []), *page.get("DeleteMarkers", [])])
            if others or not page.get("IsTruncated"):
                break
            more = {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page["NextVersionIdMarker"]}
        # The latest is first whatever the clocks say; marks and versions come in two lists, so time joins them.
        return sorted(found, key=lambda version: (version.latest, version.modified), reverse=True)

    def check(self) -> None:
        with self._explained(""):
            self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1)
        self._seen = True

    def close(self) -> None:
        self._client.close()

    # -- how ---------------------------------------------------------------------------------------------------------

    def _full(self, key: str) -> str:
        return check_key(self._prefix + check_key(key))

    def _entry(self, item: Any) -> Entry:
        return Entry(item["Key"][len(self._prefix) :], item["Size"], item["LastModified"], _plain(item["ETag"]))

    def _pages(self, prefix: str, after: str, **more: str) -> Iterator[Any]:
        given: dict[str, Any] = dict(more)
        if after:
            given["StartAfter"] = self._prefix + after
        while True:
            with self._explained(""):
                page = self._client.list_objects_v2(
                    Bucket=self._bucket, Prefix=self._prefix + prefix, MaxKeys=self._page_size, **given
                )
            self._seen = True
            yield page
            if not page.get("IsTruncated"):
                return
            given["ContinuationToken"] = page["NextContinuationToken"]

    def _put_parts(self, key: str, full: str, path: Path, tagging: str) -> Stat:
        """Upload in parts; nothing is visible before the last step, and a failure leaves no parts behind."""
        given: dict[str, Any] = {"Tagging": tagging} if tagging else {}
        size = path.stat().st_size
        part_size = max(_PART_SIZE, -(-size // 10_000))
        part_size = min(part_size, max(self._multipart_above, 5 << 20))
        with self._explained(key):
            upload = self._client.create_multipart_upload(Bucket=self._bucket, Key=full, **given)["UploadId"]
            try:
                parts = []
                with path.open("rb") as file:
                    for number, start in enumerate(range(0, size, part_size), start=1):
                        file.seek(start)
                        window = _Window(file, start, min(part_size, size - start))
                        answer = self._client.upload_part(
                            Bucket=self._bucket, Key=full, UploadId=upload, PartNumber=number, Body=cast(Any, window)
                        )
                        parts.append({"ETag": answer["ETag"], "PartNumber": number})
                done = self._client.complete_multipart_upload(
                    Bucket=self._bucket, Key=full, UploadId=upload, MultipartUpload=cast(Any, {"Parts": parts})
                )
            except BaseException:
                with suppress(ClientError, BotoCoreError):
                    self._client.abort_multipart_upload(Bucket=self._bucket, Key=full, UploadId=upload)
                raise
        return Stat(key, size, _plain(done["ETag"]), _date(done), _version(done))

    def _keeps_versions(self) -> bool:
        with self._lock:
            if self._versioned is None:
                with self._explained(""):
                    answer = self._client.get_bucket_versioning(Bucket=self._bucket)
                self._versioned = answer.get("Status") == "Enabled"
            return self._versioned

    def _sent(self, **event: Any) -> None:
        self._on_request(str(event["event_name"]).rpartition(".")[2])

    @contextmanager
    def _explained(self, key: str, *, version: str | None = None, conditional: bool = False) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError, HTTPError, ValueError) as error:
            raise explain(error, where=self._where, key=key, version=version, conditional=conditional) from error
        if key:
            self._seen = True


class _Explained(io.RawIOBase):
    """A response's body whose errors are ours."""

    def __init__(self, stream: Any, key: str, bucket: S3Bucket) -> None:
        super().__init__()
        self._stream, self._key, self._explained = stream, key, bucket._explained

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        with self._explained(self._key):
            chunk = self._stream.read(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)


class _Window(io.RawIOBase):
    """A part of a file, as a body that can be read twice (once to sign it, once to send it)."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        super().__init__()
        self._file, self._start, self._size, self._at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        self._file.seek(self._start + self._at)
        chunk = self._file.read(max(0, min(len(buffer), self._size - self._at)))
        buffer[: len(chunk)] = chunk
        self._at += len(chunk)
        return len(chunk)

    def __len__(self) -> int:
        return self._size


@contextmanager
def _reading(body: Body) -> Iterator[Any]:
    if isinstance(body, bytes):
        yield body
    else:
        with body.open("rb") as file:
            yield file


def _is_object(key: str) -> bool:
    """Leave out folder marks, and what other tools stored under a key that only S3 can hold; say so of the latter."""
    if key.endswith("/"):
        return False
    try:
        check_key(key)
    except BadKey as error:
        log.warning("%s; it is left out", error.message)
        return False
    return True


def _plain(etag: str) -> str:
    return etag.strip('"')


def _version(answer: Any) -> str | None:
    version = answer.get("VersionId")
    return None if version in (None, "null") else str(version)


def _version_argument(version: str | None) -> dict[str, Any]:
    return {} if version is None else {"VersionId": version}


def _date(answer: Any) -> datetime:
    """The server's own time of an answer: S3 does not say when exactly it stored the object."""
    headers = answer["ResponseMetadata"]["HTTPHeaders"]
    return parsedate_to_datetime(headers["date"]) if "date" in headers else SYSTEM.now()

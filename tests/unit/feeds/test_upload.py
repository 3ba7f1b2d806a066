"""Uploading an archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Counting
from catchment.errors import StorageFull, UsageError
from catchment.feeds.upload import upload
from catchment.testing.dying import DyingBucket
from tests.unit.feeds.archives import hour_of, packed


def test_one_archive_is_one_request_and_the_file_stays(tmp_path: Path) -> None:
    done = packed(tmp_path, hour_of({1: b"one", 2: b"two"}))
    bucket = Counting(MemoryBucket())
    assert upload(bucket, done.path).key == done.archive.key
    assert bucket.counts.requests == {"put": 1}
    assert bucket.get(done.archive.key) == done.path.read_bytes()


def test_uploading_twice_is_harmless(tmp_path: Path) -> None:
    done = packed(tmp_path, hour_of({1: b"one"}))
    bucket = MemoryBucket()
    assert upload(bucket, done.path).etag == upload(bucket, done.path).etag
    assert [entry.key for entry in bucket.list()] == [done.archive.key]


def test_what_fails_leaves_the_file(tmp_path: Path) -> None:
    done = packed(tmp_path, hour_of({1: b"one"}))
    full = DyingBucket(MemoryBucket(), at=1, error=StorageFull("no space", key=done.archive.key))
    with pytest.raises(StorageFull):
        upload(full, done.path)
    assert done.path.exists()


@pytest.mark.parametrize("name", ["notes.txt", "subway_20261115T08.tar.gz", "subway_20261115T08_short.tar.gz"])
def test_a_file_that_is_not_named_by_its_content_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"x")
    bucket = MemoryBucket()
    with pytest.raises(UsageError, match=name):
        upload(bucket, path)
    assert list(bucket.list()) == []

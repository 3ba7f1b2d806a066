"""Tags with S3's limits, versions and restore, on every store."""

from __future__ import annotations

from pathlib import Path

import pytest

from catchment.bucket.contract import Bucket
from catchment.bucket.probe import probe
from catchment.errors import BadKey, NotFound, Unsupported
from tests.contract.stores import STORES, Store, make_store


def test_tags_come_with_the_put_and_go_with_the_next(bucket: Bucket) -> None:
    bucket.put("k", b"x", tags={"a": "1", "b/c": "two words = yes + @ : . _ -"})
    assert bucket.tags("k") == {"a": "1", "b/c": "two words = yes + @ : . _ -"}
    bucket.put("k", b"x")
    assert bucket.tags("k") == {}


def test_tagging_replaces_the_set_and_leaves_the_object(store: Store) -> None:
    bucket = store.open()
    stat = bucket.put("k", b"x", tags={"a": "1"})
    bucket.tag("k", {"b": "2"})
    assert bucket.tags("k") == {"b": "2"}
    assert bucket.head("k") == bucket.head("k", version=stat.version)
    assert bucket.head("k").etag == stat.etag
    assert len(bucket.versions("k")) == 1
    bucket.tag("k", {})
    assert bucket.tags("k") == {}
    if store.kind != "moto":  # which answers 500 to this
        with pytest.raises(NotFound):
            bucket.tag("missing", {"a": "1"})


def test_the_same_content_again_does_not_keep_the_old_tags(bucket: Bucket) -> None:
    bucket.put("k", b"same", tags={"run": "1"})
    bucket.put("k", b"same", tags={"run": "2"})
    assert bucket.tags("k") == {"run": "2"}
    assert [bucket.tags("k", version=v.version) for v in bucket.versions("k")] == [{"run": "2"}, {"run": "1"}]


@pytest.mark.parametrize(("count", "length"), [(10, 200), (1, 256)])
def test_as_much_as_s3_takes(bucket: Bucket, count: int, length: int) -> None:
    """(Ten of the longest at once are S3's limit too, but versitygw keeps tags in an attribute of 4 KB.)"""
    full = {f"{n}{'k' * 127}": f"{n}{'v' * (length - 1)}" for n in range(count)}
    bucket.put("k", b"x", tags=full)
    assert bucket.tags("k") == full


@pytest.mark.parametrize(
    "tags",
    [
        {str(n): "" for n in range(11)},
        {"k" * 129: "v"},
        {"k": "v" * 257},
        {"": "v"},
        {"k": "semi;colon"},
        {"k": "new\nline"},
        {"k*": "v"},
        {"k": "100%"},
        {"aws:k": "v"},
    ],
)
def test_more_than_s3_takes_is_refused_before_anything_is_sent(bucket: Bucket, tags: dict[str, str]) -> None:
    for write in (lambda: bucket.put("k", b"x", tags=tags), lambda: bucket.tag("k", tags)):
        with pytest.raises(BadKey) as caught:
            write()
        assert "tag" in str(caught.value)
        assert caught.value.hint
    assert list(bucket.list()) == []


def test_versions_newest_first(bucket: Bucket) -> None:
    one, two = bucket.put("k", b"one"), bucket.put("k", b"three")
    bucket.put("kk", b"another key that starts the same")
    found = bucket.versions("k")
    assert [v.version for v in found] == [two.version, one.version]
    assert [v.latest for v in found] == [True, False]
    assert [v.size for v in found] == [5, 3]
    assert [v.etag for v in found] == [two.etag, one.etag]
    assert bucket.get("k", version=one.version) == b"one"
    assert bucket.head("k", version=one.version).etag == one.etag
    with pytest.raises(NotFound):
        bucket.get("k", version="no-such-version")
    assert list(bucket.versions("never")) == []


def test_a_deleted_key_can_be_restored_with_its_tags(bucket: Bucket) -> None:
    stat = bucket.put("k", b"precious", tags={"run": "7"})
    bucket.delete("k")
    found = bucket.versions("k")
    assert [(v.deleted, v.latest) for v in found] == [(True, True), (False, False)]
    assert stat.version is not None
    bucket.restore("k", stat.version)
    assert bucket.get("k") == b"precious"
    assert bucket.tags("k") == {"run": "7"}
    assert bucket.head("k").etag == stat.etag


def test_an_overwritten_version_can_be_restored_with_its_tags(bucket: Bucket) -> None:
    old = bucket.put("k", b"old", tags={"run": "1"})
    bucket.put("k", b"new", tags={"run": "2"})
    assert old.version is not None
    restored = bucket.restore("k", old.version)
    assert bucket.get("k") == b"old"
    assert bucket.tags("k") == {"run": "1"}
    assert restored.version != old.version
    assert len(bucket.versions("k")) == 3


def test_tags_belong_to_a_version(bucket: Bucket) -> None:
    one = bucket.put("k", b"one", tags={"n": "1"}).version
    two = bucket.put("k", b"two", tags={"n": "2"}).version
    assert bucket.tags("k", version=one) == {"n": "1"}
    bucket.tag("k", {"n": "one"}, version=one)
    assert bucket.tags("k", version=one) == {"n": "one"}
    assert bucket.tags("k", version=two) == bucket.tags("k") == {"n": "2"}


def test_a_version_can_be_deleted_for_good(bucket: Bucket) -> None:
    one = bucket.put("k", b"one").version
    two = bucket.put("k", b"two").version
    bucket.delete("k", version=one)
    assert [v.version for v in bucket.versions("k")] == [two]
    assert bucket.get("k") == b"two"


def test_deleting_the_newest_version_brings_back_the_one_before(bucket: Bucket) -> None:
    bucket.put("k", b"one", tags={"n": "1"})
    two = bucket.put("k", b"two").version
    bucket.delete("k", version=two)
    assert bucket.get("k") == b"one"
    assert bucket.tags("k") == {"n": "1"}
    bucket.delete("k")
    mark = bucket.versions("k")[0]
    assert mark.deleted
    bucket.delete("k", version=mark.version)
    assert bucket.get("k") == b"one"


@pytest.mark.parametrize("kind", [kind for kind in STORES if kind != "memory"])
def test_a_store_without_versions_says_so(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    bucket = make_store(request, kind, tmp_path, versioning=False).open()
    stat = bucket.put("k", b"x", tags={"a": "1"})
    assert stat.version is None
    assert bucket.head("k").version is None
    with pytest.raises(Unsupported, match="versions"):
        bucket.versions("k")
    bucket.put("k", b"y")
    assert bucket.tags("k") == {}
    support = probe(bucket)
    assert support.compare_and_set and support.tags and not support.versions
    bucket.delete("k")
    bucket.put("k", b"z")
    assert bucket.get("k") == b"z"
    bucket.close()

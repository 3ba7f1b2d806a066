"""Compare-and-set, with every call failed once."""

from __future__ import annotations

from itertools import count

import pytest

from catchment.bucket.memory import MemoryBucket
from catchment.bucket.swap import read, swap
from catchment.bucket.wrap import Retrying
from catchment.errors import BucketError, Conflict
from catchment.testing.clock import FakeClock
from catchment.testing.dying import DyingBucket, lost_reply


def test_an_absent_document_can_be_made_once() -> None:
    bucket = MemoryBucket()
    before = read(bucket, "k")
    assert not before.exists
    after = swap(bucket, before, {"n": 1})
    assert read(bucket, "k") == after
    with pytest.raises(Conflict):
        swap(bucket, before, {"n": 2})
    assert read(bucket, "k").value["n"] == 1


def test_the_same_value_twice_is_two_writes() -> None:
    """The nonce keeps equal values apart, so a stale ETag can never match by accident."""
    bucket = MemoryBucket()
    first = swap(bucket, read(bucket, "k"), {"state": "free"})
    second = swap(bucket, first, {"state": "free"})
    assert first.etag != second.etag
    with pytest.raises(Conflict):
        swap(bucket, first, {"state": "mine"})


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("exists", [False, True])
def test_any_call_failed_once_before_or_after_it_took_effect_ends_the_same(when: str, exists: bool) -> None:
    for at in count(1):
        memory = MemoryBucket()
        if exists:
            swap(memory, read(memory, "k"), {"n": 0})
        dying = DyingBucket(memory, at=at, when=when, error=lost_reply("k"))
        bucket = Retrying(dying, clock=FakeClock())
        after = swap(bucket, read(bucket, "k"), {"n": 1})
        assert after.value["n"] == 1
        assert read(memory, "k") == after
        assert len(memory.versions("k")) == (2 if exists else 1)
        if dying.calls < at:
            return


@pytest.mark.parametrize("body", [b"", b"not json", b"[1]", b'"text"', b"\xff"])
def test_what_is_not_a_document_is_an_error_that_names_the_key(body: bytes) -> None:
    bucket = MemoryBucket()
    bucket.put("some/key", body)
    with pytest.raises(BucketError) as caught:
        read(bucket, "some/key")
    assert "some/key" in str(caught.value)
    assert "by hand" in caught.value.hint

"""Put, get, head, list, delete, copy: the plain part of the contract, on every store."""

from __future__ import annotations

import hashlib
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from catchment.bucket.contract import ABSENT, Bucket, Entry, Folder, matches
from catchment.bucket.s3 import S3Bucket
from catchment.clock import SYSTEM
from catchment.errors import BadKey, Conflict, NotFound
from tests.contract.stores import Store, s3_client

AWKWARD = [
    "plain.txt",
    "with space/and more space",
    "per%20cent/%2e%2e/x",
    "plus+and&equals=1?query#fragment",
    "quotes'\"`$HOME;|<>",
    "back\\slash",
    "ünïcödé/日本語/🦊.json",
    "type=a:b/day=2026-11-15/x",
    ".hidden/.file",
    "trailing dot./x.",
    "_underscore/-dash/~tilde",
    "star*/[brackets]/{braces}",
    "n\u0301ormal\u00e9/e\u0301",
]


def test_what_is_put_is_what_is_got(bucket: Bucket) -> None:
    stat = bucket.put("a/b.txt", b"hello")
    assert bucket.get("a/b.txt") == b"hello"
    assert bucket.head("a/b.txt").etag == stat.etag
    assert (stat.key, stat.size) == ("a/b.txt", 5)
    assert abs(stat.modified - SYSTEM.now()) < timedelta(minutes=5)
    assert stat.modified.utcoffset() == timedelta(0)


def test_an_empty_object_is_an_object(bucket: Bucket) -> None:
    bucket.put("empty", b"")
    assert bucket.get("empty") == b""
    assert bucket.head("empty").size == 0


def test_a_second_put_replaces_the_first_and_changes_the_etag(bucket: Bucket) -> None:
    first = bucket.put("k", b"one")
    second = bucket.put("k", b"two")
    assert bucket.get("k") == b"two"
    assert first.etag != second.etag


def test_every_client_sees_a_put_at_once(store: Store) -> None:
    writer, reader = store.open(), store.open()
    for n in range(20):
        writer.put("seen", str(n).encode())
        assert reader.get("seen") == str(n).encode()
        writer.put(f"listed/{n:02d}", b"")
        assert len(list(reader.list("listed/"))) == n + 1


def test_a_missing_key_is_not_found(bucket: Bucket) -> None:
    for call in (bucket.get, bucket.read, bucket.head, bucket.tags):
        with pytest.raises(NotFound) as caught:
            call("no/such/key")
        assert caught.value.key == "no/such/key"
        assert "no/such/key" in str(caught.value)


def test_reading_only_if_it_is_still_this_etag(bucket: Bucket) -> None:
    old = bucket.put("k", b"old").etag
    assert bucket.get("k", etag=old) == b"old"
    new = bucket.put("k", b"new").etag
    with pytest.raises(Conflict):
        bucket.get("k", etag=old)
    assert bucket.get("k", etag=new) == b"new"


def test_reading_gives_content_and_stat_of_one_version(bucket: Bucket) -> None:
    one = bucket.put("k", b"one")
    two = bucket.put("k", b"two!")
    found = bucket.read("k")
    assert found.body == b"two!"
    assert (found.stat.etag, found.stat.size, found.stat.version) == (two.etag, 4, two.version)
    assert found.stat == bucket.head("k")
    assert bucket.read("k", version=one.version).body == b"one"
    with pytest.raises(NotFound):
        bucket.read("missing")


def test_deleting_is_repeatable(bucket: Bucket) -> None:
    bucket.put("k", b"x")
    bucket.delete("k")
    bucket.delete("k")
    bucket.delete("never/there")
    with pytest.raises(NotFound):
        bucket.head("k")
    assert list(bucket.list()) == []
    bucket.put("k", b"back")
    assert bucket.get("k") == b"back"


@pytest.mark.parametrize("key", AWKWARD)
def test_awkward_keys_come_back_as_they_were(bucket: Bucket, key: str) -> None:
    bucket.put(key, key.encode())
    assert bucket.get(key) == key.encode()
    assert bucket.head(key).key == key
    assert [entry.key for entry in bucket.list()] == [key]
    assert [entry.key for entry in bucket.list(key)] == [key]
    bucket.copy(key, "copied/" + key)
    assert bucket.get("copied/" + key) == key.encode()
    bucket.tag(key, {"k": "v"})
    assert bucket.tags(key) == {"k": "v"}
    bucket.delete(key)
    assert [entry.key for entry in bucket.list()] == ["copied/" + key]


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "/etc/passwd",
        "../outside",
        "a/../../outside",
        "a/..",
        "./a",
        "a/./b",
        "a//b",
        "a/",
        "a\nb",
        "a\x00b",
        "a\x7fb",
        "\ud800",
        ".catchment/locks/x",
        "x" * 1025,
    ],
)
def test_keys_that_no_store_can_hold_are_refused_before_anything_is_sent(bucket: Bucket, key: str) -> None:
    with pytest.raises(BadKey) as caught:
        bucket.put(key, b"x")
    assert "part/part/part" in caught.value.hint
    for call in (bucket.get, bucket.read, bucket.head, bucket.delete, bucket.tags, bucket.versions):
        with pytest.raises(BadKey):
            call(key)
    with pytest.raises(BadKey):
        bucket.copy("a", key)
    assert list(bucket.list()) == []


# -- listing ----------------------------------------------------------------------------------------------------------


def keys(found: object) -> list[str]:
    return [item.key for item in found]  # type: ignore[attr-defined]


def test_listing_is_in_the_order_of_bytes_whatever_the_folders(bucket: Bucket) -> None:
    # '!' < '-' < '.' < '/' < '0': a folder's keys lie between the files around it.
    names = ["a", "b!c", "b-c", "b.c", "b/c", "b/c-d", "b/d/e", "b0", "c/é", "c/z", "c/🦊", "c/～"]
    for name in reversed([name for name in names if name != "a"]):
        bucket.put(name, b"x")
    bucket.put("a", b"x")
    expected = sorted(names, key=str.encode)
    assert keys(bucket.list()) == expected
    for start in [*expected, "b", "b/", "b/c/", "b/d/zz", "c", "zz", "", "a0"]:
        assert keys(bucket.list(after=start)) == [name for name in expected if name > start], start
    for prefix in ["b", "b/", "b/c", "b/d/", "c/", "none", "b/d/e", "b/d/e/"]:
        assert keys(bucket.list(prefix)) == [name for name in expected if name.startswith(prefix)], prefix
        assert keys(bucket.list(prefix, after="b/c")) == [n for n in expected if n.startswith(prefix) and n > "b/c"]


def test_a_listing_says_size_time_and_etag(bucket: Bucket) -> None:
    stat = bucket.put("k", b"12345")
    entry = next(iter(bucket.list()))
    assert (entry.key, entry.size) == ("k", 5)
    assert entry.etag in (None, stat.etag)
    assert entry.settled
    assert abs(entry.modified - stat.modified) < timedelta(seconds=5)


def test_children_fold_what_is_below(bucket: Bucket) -> None:
    for name in ["top", "a/1", "a/2", "a/b/3", "a-x", "z/y/x"]:
        bucket.put(name, b"x")
    assert keys(bucket.children()) == ["a-x", "a/", "top", "z/"]
    assert [type(item) for item in bucket.children()] == [Entry, Folder, Entry, Folder]
    assert keys(bucket.children("a/")) == ["a/1", "a/2", "a/b/"]
    assert keys(bucket.children("a")) == ["a-x", "a/"]
    assert keys(bucket.children("z/")) == ["z/y/"]
    assert keys(bucket.children("none/")) == []
    assert keys(bucket.children(after="a/")) == ["top", "z/"]
    assert keys(bucket.children("a/", after="a/1")) == ["a/2", "a/b/"]
    assert keys(bucket.children("a/", after="a/b/")) == []
    assert keys(bucket.children("a/", after="a/2")) == ["a/b/"]
    assert keys(bucket.children("a/", after="a/")) == ["a/1", "a/2", "a/b/"]
    assert keys(bucket.children("a/", after="a")) == ["a/1", "a/2", "a/b/"]


def test_listing_beyond_one_page(store: Store) -> None:
    """Small pages, so that 60 keys are many requests; the same with start-after and with a delimiter."""
    bucket = store.open()
    if store.server is not None:
        bucket.close()
        bucket = s3_client(store.server, store.bucket_name, page_size=7)
    names = [f"p/{n // 10}/{n:03d}" for n in range(60)]
    for name in names:
        bucket.put(name, b"")
    assert keys(bucket.list("p/")) == names
    assert keys(bucket.list("p/", after=names[33])) == names[34:]
    assert keys(bucket.list("p/", after="p/3")) == names[30:]
    assert keys(bucket.children("p/")) == [f"p/{n}/" for n in range(6)]
    assert keys(bucket.children("p/", after="p/2/")) == ["p/3/", "p/4/", "p/5/"]
    bucket.close()


def test_a_listing_that_is_being_read_survives_puts_and_deletes(bucket: Bucket) -> None:
    for n in range(50):
        bucket.put(f"k/{n:02d}", b"")
    seen = []
    for entry in bucket.list("k/"):
        seen.append(entry.key)
        if entry.key == "k/10":
            bucket.put("k/00a", b"")
            bucket.delete("k/05")
    assert seen == [f"k/{n:02d}" for n in range(50)]


# -- whole or nothing, and large --------------------------------------------------------------------------------------


def test_a_reader_sees_one_whole_body_or_another(store: Store) -> None:
    bodies = [bytes([65 + n]) * 200_000 for n in range(4)]
    writer, reader = store.open(), store.open()
    writer.put("k", bodies[0])
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            writer.put("k", bodies[n % 4])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(40):
            with reader.open("k") as stream:
                assert stream.read() in bodies
    finally:
        stop.set()
        thread.join()


def test_a_stream_once_opened_is_one_version(store: Store) -> None:
    bucket, other = store.open(), store.open()
    bucket.put("k", b"a" * 100_000)
    with bucket.open("k") as stream:
        first = stream.read(10)
        other.put("k", b"b" * 100_000)
        assert first + stream.read() == b"a" * 100_000


def test_a_put_from_a_file_that_is_not_there_stores_nothing(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("k", b"old")
    with pytest.raises((OSError, NotFound)):
        bucket.put("k", tmp_path / "missing")
    assert bucket.get("k") == b"old"


def peak_kilobytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def test_200_megabytes_are_streamed_with_flat_memory(store: Store, tmp_path: Path) -> None:
    if store.kind == "memory":
        return  # it is what it says
    Path("/proc/self/clear_refs").write_text("5")  # the peak below is of this test alone
    path = tmp_path / "large"
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for n in range(200):
            chunk = hashlib.sha256(str(n).encode()).digest() * (1 << 15)
            digest.update(chunk)
            file.write(chunk)
    bucket = store.open()
    bucket.put("warm", b"up")
    before = peak_kilobytes()
    stat = bucket.put("large", path)
    assert stat.size == 200 << 20
    got = hashlib.sha256()
    with bucket.open("large", etag=stat.etag) as stream:
        while chunk := stream.read(1 << 20):
            got.update(chunk)
    grown = peak_kilobytes() - before
    assert got.digest() == digest.digest()
    assert grown < 64 << 10, f"memory grew by {grown >> 10} MB"
    bucket.delete("large")


def test_a_large_file_goes_up_in_parts_and_reads_back_with_its_tags(store: Store, tmp_path: Path) -> None:
    if store.server is None:
        return
    parts = store.server.bucket(store.bucket_name, multipart_above=5 << 20)
    path = tmp_path / "large"
    body = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(400_000))
    path.write_bytes(body)
    stat = parts.put("in/parts", path, tags={"made": "of parts"})
    assert parts.get("in/parts", etag=stat.etag) == body
    assert parts.tags("in/parts") == {"made": "of parts"}
    again = parts.put("in/parts", path, when=matches(stat.etag))
    assert parts.head("in/parts").etag == again.etag
    with pytest.raises(Conflict):
        parts.put("in/parts", path, when=ABSENT)
    parts.close()


# -- copy -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["../", "a/../", "/", "//", ".catchment/", "a\x00/", "\ud800/", "./"])
def test_no_key_starts_with_what_is_not_the_start_of_a_key(bucket: Bucket, prefix: str) -> None:
    bucket.put("a/b", b"", tags={"a": "b"})
    if prefix == "\ud800/" and isinstance(bucket, S3Bucket):
        return  # it cannot even be sent
    assert keys(bucket.list(prefix)) == []


def test_copying_takes_content_and_tags(bucket: Bucket) -> None:
    bucket.put("a", b"x", tags={"from": "a"})
    stat = bucket.copy("a", "b")
    assert bucket.get("b") == b"x"
    assert bucket.head("b").etag == stat.etag
    assert bucket.tags("b") == {"from": "a"}
    bucket.copy("a", "c", tags={"own": "tag"})
    assert bucket.tags("c") == {"own": "tag"}
    bucket.copy("a", "d", tags={})
    assert bucket.tags("d") == {}
    with pytest.raises(NotFound):
        bucket.copy("missing", "e")

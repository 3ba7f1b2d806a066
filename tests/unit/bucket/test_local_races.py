"""The local directory under several processes at once, under programs that set times, and on odd file systems."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from catchment.bucket.contract import matches
from catchment.bucket.local import LocalBucket
from catchment.errors import BucketMissing, Conflict, NotFound


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    return folder


@contextmanager
def children(*works: Callable[[], object]) -> Iterator[None]:
    """Run each of these in a process of its own until the block ends; they must not have failed."""
    parent, pids = os.getpid(), []
    for work in works:
        pid = os.fork()
        if pid == 0:
            try:
                while os.getppid() == parent:
                    work()
            finally:
                os._exit(1)
        pids.append(pid)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, 15)
        ended = [os.waitpid(pid, 0)[1] for pid in pids]
    assert all(os.WIFSIGNALED(status) for status in ended), "a process failed"


def test_puts_and_deletes_of_neighbours_do_not_disturb_each_other(root: Path) -> None:
    """Deleting the last key of a folder removes the folder, under the feet of whoever puts the next one."""

    def come_and_go(name: str) -> Callable[[], None]:
        bucket = LocalBucket(root, keep_versions=0, durable=False)

        def work() -> None:
            bucket.put(f"a/b/c/{name}", b"x")
            bucket.delete(f"a/b/c/{name}")

        return work

    with children(come_and_go("1"), come_and_go("2"), come_and_go("3")):
        mine = come_and_go("4")
        for _ in range(400):
            mine()


@pytest.mark.parametrize("keep", [0, 2])
def test_tags_are_never_seen_missing_while_objects_are_replaced(root: Path, keep: int) -> None:
    def replace() -> None:
        writer.put("k", os.urandom(4), tags={"always": "here"})

    writer = LocalBucket(root, keep_versions=keep, durable=False)
    replace()
    reader = LocalBucket(root, keep_versions=keep, durable=False)
    with children(replace):
        for n in range(1500):
            assert reader.tags("k") == {"always": "here"}
            if n % 10 == 0:
                reader.copy("k", "copy")
                assert reader.tags("copy") == {"always": "here"}


def test_an_object_that_has_an_older_version_is_never_seen_missing_while_the_newest_is_deleted(root: Path) -> None:
    bucket = LocalBucket(root, durable=False)
    bucket.put("k", b"always")

    def work() -> None:
        bucket.delete("k", version=bucket.put("k", b"for a moment").version)

    with children(work):
        reader = LocalBucket(root)
        for _ in range(1500):
            assert reader.get("k") in (b"always", b"for a moment")


def test_a_listing_misses_nothing_that_is_there_throughout(tmp_path: Path) -> None:
    # /dev/shm is a tmpfs, whose own listings leave files out while others are renamed around them.
    place = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path
    folder = place / f"catchment-test-{os.getpid()}"
    folder.mkdir()
    try:
        bucket = LocalBucket(folder, keep_versions=0, durable=False)
        for n in range(1000):
            bucket.put(f"k/{n:04d}", b"")
        turn = [0]

        def overwrite() -> None:
            turn[0] += 7
            bucket.put(f"k/{turn[0] % 1000:04d}", b"")

        with children(overwrite):
            for _ in range(30):
                assert sum(1 for _ in LocalBucket(folder).list("k/")) == 1000
    finally:
        shutil.rmtree(folder)


def test_a_lock_is_free_again_although_a_process_was_forked_while_it_was_held(root: Path) -> None:
    bucket = LocalBucket(root)
    with bucket._beside.locked("k"):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
    try:
        thread = threading.Thread(target=bucket.put, args=("k", b""), daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive(), "the child holds the lock"
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


# -- programs that set times ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 2_000_000])
def test_new_content_with_the_old_time_and_size_is_noticed(root: Path, tmp_path: Path, size: int) -> None:
    """As cp -p, tar and rsync make it. A new process must not be fooled either."""
    bucket = LocalBucket(root)
    moment = 1_700_000_000_000_000_000
    (root / "k").write_bytes(b"a" * size)
    os.utime(root / "k", ns=(moment, moment))
    old = bucket.head("k").etag
    bucket.tag("k", {"of": "the old one"})
    other = tmp_path / "other"
    other.write_bytes(b"b" * size)
    os.utime(other, ns=(moment, moment))
    subprocess.run(["cp", "-p", other, root / "k"], check=True)
    for reader in (bucket, LocalBucket(root)):
        assert reader.head("k").etag != old
        assert reader.tags("k") == {}
        with pytest.raises(Conflict):
            reader.put("k", b"", when=matches(old))


def test_an_inode_that_is_used_again_is_not_the_old_file(root: Path) -> None:
    bucket = LocalBucket(root)
    moment = 1_700_000_000_000_000_000
    for n in range(20):
        (root / "k").unlink(missing_ok=True)
        (root / "k").write_bytes(f"{n:04d}".encode())
        os.utime(root / "k", ns=(moment, moment))
        assert bucket.head("k").etag == bucket.put("same", f"{n:04d}".encode()).etag


@pytest.fixture
def whole_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that keeps whole seconds."""
    real = os.utime

    def coarse(path: str | Path, *, ns: tuple[int, int]) -> None:
        real(path, ns=(ns[0] // 10**9 * 10**9, ns[1] // 10**9 * 10**9))

    monkeypatch.setattr(os, "utime", coarse)


@pytest.mark.usefixtures("whole_seconds")
def test_compare_and_set_holds_where_times_are_whole_seconds(root: Path) -> None:
    bucket = LocalBucket(root)
    etag = bucket.put("k", b"0000", tags={"n": "0"}).etag
    for n in range(1, 6):
        fresh = bucket.put("k", f"{n:04d}".encode(), when=matches(etag)).etag
        assert bucket.tags("k") == {}
        with pytest.raises(Conflict):
            bucket.put("k", b"late", when=matches(etag))
        etag = fresh
    assert len({version.version for version in bucket.versions("k")}) == 6
    bucket.delete("k")
    bucket.put("k", b"0000")
    assert bucket.tags("k") == {}


# -- the directory itself ---------------------------------------------------------------------------------------------


def test_a_directory_that_is_moved_away_while_it_is_listed_is_an_error(root: Path) -> None:
    bucket = LocalBucket(root)
    for n in range(5):
        bucket.put(f"{n}/k", b"")
    listing = bucket.list()
    assert next(listing).key == "0/k"
    root.rename(root.with_name("elsewhere"))
    with pytest.raises(BucketMissing):
        list(listing)


def test_a_key_that_another_program_removed_does_not_come_back(root: Path) -> None:
    bucket = LocalBucket(root)
    one = bucket.put("k", b"one").version
    bucket.put("k", b"two")
    bucket.put("k", b"three")
    (root / "k").unlink()
    bucket.delete("k", version=one)
    with pytest.raises(NotFound):
        bucket.get("k")


def test_a_put_over_a_link_keeps_what_it_led_to(root: Path) -> None:
    bucket = LocalBucket(root)
    bucket.put("real", b"content")
    (root / "alias").symlink_to("real")
    bucket.put("alias", b"new")
    assert [bucket.get("alias", version=v.version) for v in bucket.versions("alias")] == [b"new", b"content"]
    assert bucket.get("real") == b"content"


def test_a_named_pipe_is_no_object(root: Path) -> None:
    bucket = LocalBucket(root)
    os.mkfifo(root / "pipe")
    with pytest.raises(NotFound):
        bucket.head("pipe")
    assert list(bucket.list()) == []


def test_a_name_that_only_starts_like_our_folder_is_a_key(root: Path) -> None:
    bucket = LocalBucket(root)
    bucket.put(".catchmentX/real", b"1")
    (root / "alias").symlink_to(root / ".catchmentX" / "real")
    assert bucket.get("alias") == b"1"
    assert [entry.key for entry in bucket.list()] == [".catchmentX/real", "alias"]


def test_a_put_of_a_file_that_is_not_there_says_so_of_the_file(root: Path, tmp_path: Path) -> None:
    bucket = LocalBucket(root)
    with pytest.raises(FileNotFoundError):
        bucket.put("k", tmp_path / "missing")
    with suppress(FileNotFoundError):
        assert list((root / ".catchment" / "tmp").iterdir()) == []


@pytest.mark.parametrize("keep", [0, 20])
def test_the_tags_of_a_foreign_file_go_with_it(root: Path, keep: int) -> None:
    bucket = LocalBucket(root, keep_versions=keep)
    (root / "k").write_bytes(b"foreign")
    bucket.tag("k", {"a": "1"})
    version = bucket.versions("k")[0].version if keep else None
    bucket.delete("k", version=version)
    assert list((root / ".catchment" / "tags").rglob("*.json")) == []

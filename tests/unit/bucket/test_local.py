"""What is the local directory's own: other programs' files, links, crashes at each step, full and read-only disks."""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from catchment.bucket.contract import ABSENT, Bucket
from catchment.bucket.local import LocalBucket
from catchment.errors import BadKey, BucketMissing, Conflict, Denied, NotFound, StorageFull, Transient


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    return folder


@pytest.fixture
def bucket(root: Path) -> LocalBucket:
    return LocalBucket(root)


def in_child(do: Callable[[], None]) -> int:
    """Run this in a forked process; its exit status, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            do()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# -- files that other programs put there ------------------------------------------------------------------------------


def test_a_file_that_cp_put_there_is_an_object_like_any_other(bucket: LocalBucket, root: Path) -> None:
    (root / "in").mkdir()
    source = root.parent / "source"
    source.write_bytes(b"from outside")
    subprocess.run(["cp", source, root / "in" / "x"], check=True)
    assert bucket.get("in/x") == b"from outside"
    assert [entry.key for entry in bucket.list()] == ["in/x"]
    assert bucket.tags("in/x") == {}
    assert bucket.head("in/x").etag == bucket.put("same", b"from outside").etag
    bucket.tag("in/x", {"seen": "yes"})
    assert bucket.tags("in/x") == {"seen": "yes"}
    with pytest.raises(Conflict):
        bucket.put("in/x", b"", when=ABSENT)


def test_writing_over_an_object_from_outside_changes_its_etag_and_drops_its_tags(
    bucket: LocalBucket, root: Path
) -> None:
    old = bucket.put("k", b"ours", tags={"made": "by us"})
    time.sleep(0.02)
    (root / "k").write_bytes(b"them")
    assert bucket.head("k").etag != old.etag
    assert bucket.get("k") == b"them"
    assert bucket.tags("k") == {}


def test_a_foreign_file_is_settled_only_when_it_has_stopped_changing(bucket: LocalBucket, root: Path) -> None:
    (root / "fresh").write_bytes(b"x")
    (root / "old").write_bytes(b"x")
    os.utime(root / "old", (time.time() - 60, time.time() - 60))
    bucket.put("ours", b"x")
    assert {entry.key: entry.settled for entry in bucket.list()} == {"fresh": False, "old": True, "ours": True}
    assert {entry.key: entry.settled for entry in bucket.children()} == {  # type: ignore[union-attr]
        "fresh": False,
        "old": True,
        "ours": True,
    }


def test_another_process_sees_at_once_that_a_put_is_whole(bucket: LocalBucket, root: Path) -> None:
    bucket.put("ours", b"x")
    assert [entry.settled for entry in LocalBucket(root).list()] == [True]


def test_a_file_that_changes_while_it_is_read_raises(bucket: LocalBucket, root: Path) -> None:
    path = root / "growing"
    path.write_bytes(b"a" * 4_000_000)
    with bucket.open("growing") as stream:
        stream.read(10)
        with path.open("ab") as file:
            file.write(b"more")
        with pytest.raises(Transient, match="another program"):
            stream.read()


def test_an_etag_is_never_remembered_across_a_change(bucket: LocalBucket, root: Path) -> None:
    """The same size within the same tick of the kernel's clock: the content decides."""
    for n in range(50):
        (root / "k").write_bytes(f"{n:04d}".encode())
        assert bucket.head("k").etag == bucket.put("same", f"{n:04d}".encode()).etag


def test_the_etag_of_a_large_file_is_kept_for_other_processes(bucket: LocalBucket, root: Path) -> None:
    body = bytes(2_000_000)
    etag = bucket.put("large", body).etag
    kept = list((root / ".catchment" / "etags").rglob("*"))
    assert sum(path.is_file() for path in kept) == 1
    assert LocalBucket(root).head("large").etag == etag
    (root / "large").write_bytes(bytes(1_999_999) + b"!")
    assert LocalBucket(root).head("large").etag != etag


def test_a_copy_of_the_lake_keeps_tags_and_versions(bucket: LocalBucket, root: Path, tmp_path: Path) -> None:
    bucket.put("k", b"one", tags={"n": "1"})
    bucket.put("k", b"two", tags={"n": "2"})
    subprocess.run(["cp", "-a", root, tmp_path / "copy"], check=True)
    copy = LocalBucket(tmp_path / "copy")
    assert copy.tags("k") == {"n": "2"}
    assert [copy.tags("k", version=v.version) for v in copy.versions("k")] == [{"n": "2"}, {"n": "1"}]


def test_as_many_versions_are_kept_as_were_asked_for(root: Path) -> None:
    bucket = LocalBucket(root)
    for n in range(21):
        bucket.put("k", str(n).encode())
        assert len(bucket.versions("k")) == n + 1
    bucket.put("k", b"one more")
    assert len(bucket.versions("k")) == 21


def test_only_so_many_versions_are_kept(root: Path) -> None:
    bucket = LocalBucket(root, keep_versions=3)
    for n in range(10):
        bucket.put("k", str(n).encode(), tags={"n": str(n)})
    assert [bucket.get("k", version=v.version) for v in bucket.versions("k")] == [b"9", b"8", b"7", b"6"]
    assert len(list((root / ".catchment" / "tags").rglob("*.json"))) == 4


def test_its_own_folder_is_no_part_of_the_bucket(bucket: LocalBucket, root: Path) -> None:
    bucket.put("a", b"x", tags={"k": "v"})
    bucket.put("a", b"y")
    assert [entry.key for entry in bucket.list()] == ["a"]
    assert [item.key for item in bucket.children()] == ["a"]
    bucket.put("deeper/.catchment/fine", b"")
    assert [entry.key for entry in bucket.list("deeper/")] == ["deeper/.catchment/fine"]


# -- the root ---------------------------------------------------------------------------------------------------------


def test_a_missing_directory_is_an_error_and_never_an_empty_bucket(tmp_path: Path) -> None:
    bucket = LocalBucket(tmp_path / "missing")
    calls: list[Callable[[], object]] = [
        lambda: list(bucket.list()),
        lambda: list(bucket.children()),
        lambda: bucket.get("k"),
        lambda: bucket.head("k"),
        lambda: bucket.put("k", b""),
        lambda: bucket.delete("k"),
        lambda: bucket.versions("k"),
        lambda: bucket.read("k"),
        lambda: bucket.tags("k"),
        lambda: bucket.tag("k", {"a": "b"}),
        lambda: bucket.copy("k", "l"),
        bucket.check,
    ]
    for call in calls:
        with pytest.raises(BucketMissing) as caught:
            call()
        assert "missing" in str(caught.value)
        assert "path" in caught.value.hint
    assert not (tmp_path / "missing").exists()


def test_a_directory_that_vanishes_later_is_an_error_too(bucket: LocalBucket, root: Path) -> None:
    bucket.put("k", b"")
    shutil.rmtree(root)
    with pytest.raises(BucketMissing):
        list(bucket.list())


def test_folders_are_made_only_below_one_that_is_there(tmp_path: Path) -> None:
    LocalBucket(tmp_path / "new" / "prefix", create_below=tmp_path).put("k", b"")
    with pytest.raises(BucketMissing):
        LocalBucket(tmp_path / "no" / "such", create_below=tmp_path / "no").put("k", b"")


def test_a_link_cannot_lead_a_key_out(bucket: LocalBucket, root: Path, caplog: pytest.LogCaptureFixture) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    (root / "own").symlink_to(root / ".catchment")
    bucket.put("fine", b"")
    for key in ("folder/secret", "folder/new", "file", "own/locks"):
        calls: list[Callable[[], object]] = [
            lambda key=key: bucket.get(key),  # type: ignore[misc]
            lambda key=key: bucket.head(key),  # type: ignore[misc]
            lambda key=key: bucket.put(key, b"x"),  # type: ignore[misc]
            lambda key=key: bucket.delete(key),  # type: ignore[misc]
        ]
        for call in calls:
            with pytest.raises(BadKey, match="symbolic link"):
                call()
    with caplog.at_level(logging.WARNING):
        assert [entry.key for entry in bucket.list()] == ["fine"]
    assert "leads out" in caplog.text
    for prefix in ("folder/", "folder/s", "own/", ".catchment/"):
        assert list(bucket.list(prefix)) == []
        assert list(bucket.children(prefix)) == []
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


def test_a_link_inside_the_root_is_followed(bucket: LocalBucket, root: Path) -> None:
    bucket.put("real/x", b"1")
    (root / "alias").symlink_to(root / "real" / "x")
    assert bucket.get("alias") == b"1"
    assert [entry.key for entry in bucket.list()] == ["alias", "real/x"]


def test_a_name_that_is_not_text_is_left_out_and_said(
    bucket: LocalBucket, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open(os.fsencode(root) + b"/bad\xff", "wb"):
        pass
    bucket.put("good", b"")
    with caplog.at_level(logging.WARNING):
        assert [entry.key for entry in bucket.list()] == ["good"]
    assert "cannot be a key" in caplog.text


def test_a_key_and_keys_below_it_cannot_both_be_files(bucket: LocalBucket) -> None:
    bucket.put("a", b"file")
    bucket.put("b/c", b"file")
    for key in ("a/b", "a/b/c", "b"):
        with pytest.raises(BadKey) as caught:
            bucket.put(key, b"x")
        assert "a/b" in caught.value.hint
        with pytest.raises(BadKey):
            bucket.put(key, b"x", when=ABSENT)
        with pytest.raises(NotFound):
            bucket.get(key)
    assert [entry.key for entry in bucket.list()] == ["a", "b/c"]


def test_a_part_that_no_file_system_takes_is_a_bad_key(bucket: LocalBucket) -> None:
    with pytest.raises(BadKey, match="too long"):
        bucket.put("x" * 300, b"")
    with pytest.raises(BadKey, match="too long"):
        bucket.get("x" * 300)


# -- trouble ----------------------------------------------------------------------------------------------------------


def small_disk(folder: Path) -> Callable[[], None]:
    """Make `folder` a disk of one megabyte; where that is not allowed, limit the size of files. Returns the undoing."""
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"size=1m") == 0:

        def unmount() -> None:
            subprocess.run(["umount", folder], check=True)

        return unmount
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, old[1]))

    def undo() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)

    return undo


def test_a_full_disk_leaves_the_old_object_and_no_temporary_file(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(2 << 20))
    undo = small_disk(tmp_path / "small")
    try:
        bucket = LocalBucket(tmp_path / "small")
        bucket.put("k", b"old", tags={"n": "1"})
        for body in (bytes(2 << 20), large):
            with pytest.raises(StorageFull) as caught:
                bucket.put("k", body, tags={"n": "2"})
            assert "k" in str(caught.value)
            assert "intact" in caught.value.hint
        assert bucket.get("k") == b"old"
        assert bucket.tags("k") == {"n": "1"}
        assert list((tmp_path / "small" / ".catchment" / "tmp").iterdir()) == []
        bucket.put("k", b"small enough")
    finally:
        undo()


def test_a_read_only_directory_can_be_read_and_says_denied_to_a_write(root: Path) -> None:
    LocalBucket(root).put("k", b"x", tags={"a": "1"})
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    for folder in root.parents:
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o755)
        if folder == Path("/tmp"):
            break
    root.chmod(0o555)

    def as_nobody() -> None:
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        else:
            for path in [root, *root.rglob("*")]:
                path.chmod(0o555 if path.is_dir() else 0o444)
        bucket: Bucket = LocalBucket(root)
        assert bucket.get("k") == b"x"
        assert bucket.tags("k") == {"a": "1"}
        assert [entry.key for entry in bucket.list()] == ["k"]
        for write in (lambda: bucket.put("k", b"y"), lambda: bucket.put("new/key", b"y"), lambda: bucket.delete("k")):
            try:
                write()
            except Denied as error:
                assert error.hint
            else:
                raise AssertionError("a write to a read-only directory went through")

    assert in_child(as_nobody) == 0


def dies_at(number: int) -> None:
    """In this process, end it with SIGKILL right before its n-th change to the file system."""
    left = [number]

    def deadly(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **more: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **more)

        return call

    for name in ("rename", "link", "unlink", "utime", "fsync", "mkdir", "replace", "rmdir"):
        setattr(os, name, deadly(getattr(os, name)))


@pytest.mark.parametrize("operation", ["put", "absent", "delete", "restore", "tag"])
def test_a_kill_at_any_step_never_pairs_new_content_with_old_tags(operation: str, root: Path) -> None:
    bucket = LocalBucket(root)
    outcomes: set[str] = set()
    restorable = ""
    for step in range(1, 60):
        for entry in list(bucket.list()):
            bucket.delete(entry.key)
        if operation != "absent":
            restorable = bucket.put("k", b"first", tags={"is": "first"}).version or ""
            bucket.put("k", b"old", tags={"is": "old"})

        def work(step: int = step, restorable: str = restorable) -> None:
            dies_at(step)
            victim = LocalBucket(root)
            if operation == "put":
                victim.put("k", b"new", tags={"is": "new"})
            elif operation == "absent":
                victim.put("k", b"new", when=ABSENT, tags={"is": "new"})
            elif operation == "delete":
                victim.delete("k")
            elif operation == "restore":
                victim.restore("k", restorable)
            else:
                victim.tag("k", {"is": "old", "more": "tags"})

        ended = in_child(work)
        survivor = LocalBucket(root)
        try:
            found = survivor.get("k").decode()
            assert survivor.tags("k")["is"] == found
        except NotFound:
            found = "nothing"
        outcomes.add(found)
        # Whatever is there can be written over, read back, and has a history that can be read.
        for version in survivor.versions("k"):
            if not version.deleted:
                body = survivor.get("k", version=version.version).decode()
                assert survivor.tags("k", version=version.version)["is"] == body
        survivor.put("k", b"again", tags={"is": "again"})
        assert survivor.get("k") == b"again"
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
    else:
        raise AssertionError("the operation never ran to its end")
    expected = {
        "put": {"old", "new"},
        "absent": {"nothing", "new"},
        "delete": {"old", "nothing"},
        "restore": {"old", "first"},
        "tag": {"old"},
    }
    assert outcomes == expected[operation]


def test_what_a_process_that_died_left_behind_is_removed_after_a_day(root: Path) -> None:
    bucket = LocalBucket(root)
    bucket.put("k", b"")
    left = root / ".catchment" / "tmp" / "123-abc"
    left.write_bytes(b"half")
    LocalBucket(root).check()
    assert left.exists()
    os.utime(left, (time.time() - 100_000, time.time() - 100_000))
    LocalBucket(root).check()
    assert not left.exists()


def test_deleting_and_putting_again_and_again_keeps_only_so_many_versions(root: Path) -> None:
    bucket = LocalBucket(root, keep_versions=3)
    for n in range(10):
        bucket.put("k", str(n).encode(), tags={"n": str(n)})
        bucket.delete("k")
    assert len(bucket.versions("k")) == 3
    assert len(list((root / ".catchment" / "versions").rglob("*_*"))) == 3


def test_an_old_version_that_its_writer_went_on_writing_to_is_no_longer_that_version(root: Path) -> None:
    bucket = LocalBucket(root)
    with (root / "k").open("wb") as still_open:
        still_open.write(b"half")
        still_open.flush()
        version = bucket.head("k").version
        bucket.put("k", b"ours")
        assert bucket.get("k", version=version) == b"half"
        time.sleep(0.02)
        still_open.write(b" and the rest")
    with pytest.raises(NotFound):
        bucket.get("k", version=version)
    assert [v.size for v in bucket.versions("k")] == [4]
    assert bucket.get("k") == b"ours"

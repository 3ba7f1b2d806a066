"""Downloads land whole or not at all, and what is on disk is found again."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from catchment.errors import UsageError
from catchment.feeds.downloads import Downloads, owned
from catchment.feeds.names import Download, Hour, body_hash

EIGHT = datetime(2026, 11, 15, 8, tzinfo=UTC)


def download(body: bytes, seconds: float = 0, feed: str = "subway") -> Download:
    return Download(feed, EIGHT + timedelta(seconds=seconds), body_hash(body), ".pb")


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_body_lands_under_the_references_name(tmp_path: Path) -> None:
    path = Downloads(tmp_path).land(download(b"hello", 303.045), b"hello")
    assert files(tmp_path) == ["downloads/subway/2026/11/15/08/subway_20261115T080503.045_LPJNul-wow4m6Dsqxbni.pb"]
    assert path.read_bytes() == b"hello"


def test_it_is_on_disk_before_it_has_its_name(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def sync(handle: int) -> None:
        seen.append(files(tmp_path / "downloads"))
        assert os.fstat(handle).st_size == 5

    Downloads(tmp_path, sync=sync).land(download(b"hello"), b"hello")
    assert seen == [[]]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        Downloads(tmp_path, sync=full).land(download(b"hello"), b"hello")
    assert files(tmp_path) == []


def test_landing_twice_does_no_harm(tmp_path: Path) -> None:
    downloads = Downloads(tmp_path)
    downloads.land(download(b"a"), b"a")
    downloads.land(download(b"a"), b"a")
    assert len(files(tmp_path)) == 1


def test_the_last_of_an_hour_is_the_newest_of_that_feed_and_hour(tmp_path: Path) -> None:
    downloads = Downloads(tmp_path)
    hour = Hour(EIGHT)
    assert downloads.last("subway", hour) is None
    for body, seconds in ((b"z", 1), (b"a", 2), (b"later", 3600)):
        downloads.land(download(body, seconds), body)
    downloads.land(download(b"other", 5, "bus"), b"other")
    (tmp_path / "downloads/subway/2026/11/15/08/notes.txt").write_text("not ours")
    assert downloads.last("subway", hour) == download(b"a", 2)


def test_what_was_fetched_before_a_moment_is_found_by_feed_and_hour(tmp_path: Path) -> None:
    downloads = Downloads(tmp_path)
    for seconds in (3599.999, 10, 3600, 7200):
        downloads.land(download(b"x", seconds), b"x")
    downloads.land(download(b"x", 1, "bus"), b"x")
    nine = EIGHT + timedelta(hours=1)
    found = {one.feed: (one.hour.text, [path.name for path in one.files]) for one in downloads.before(nine)}
    assert found == {
        "bus": ("20261115T08", [download(b"x", 1, "bus").name]),
        "subway": ("20261115T08", [download(b"x", 10).name, download(b"x", 3599.999).name]),
    }
    assert sum(len(one.files) for one in downloads.before()) == 5
    inside = downloads.before(EIGHT + timedelta(seconds=10, milliseconds=1))
    assert [len(one.files) for one in inside] == [1, 1]


def test_empty_folders_go_and_come_back(tmp_path: Path) -> None:
    downloads = Downloads(tmp_path)
    path = downloads.land(download(b"a"), b"a")
    downloads.forget_empty("subway", Hour(EIGHT))
    assert path.exists()
    path.unlink()
    downloads.forget_empty("subway", Hour(EIGHT))
    assert list(downloads.root.iterdir()) == []
    assert downloads.land(download(b"b", 1), b"b").exists()


def test_half_written_files_are_swept_and_never_read(tmp_path: Path) -> None:
    (tmp_path / "partial").mkdir()
    (tmp_path / "partial" / download(b"half").name).write_bytes(b"ha")
    downloads = Downloads(tmp_path)
    assert list(downloads.before()) == []
    assert downloads.sweep() == 1
    assert downloads.sweep() == 0


def test_strangers_are_told_and_left_alone(tmp_path: Path) -> None:
    downloads = Downloads(tmp_path)
    good = downloads.land(download(b"a"), b"a")
    misplaced = downloads.root / "bus" / Hour(EIGHT).folder / good.name
    misplaced.parent.mkdir(parents=True)
    misplaced.write_bytes(b"a")
    notes = good.parent / "notes.txt"
    notes.write_text("mine")
    assert downloads.strangers() == [misplaced, notes]
    assert [one.files for one in downloads.before()] == [(good,)]


def test_one_process_owns_a_workspace(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from catchment.feeds.downloads import owned
with owned(Path({str(tmp_path)!r})):
    print("mine", flush=True)
    sys.stdin.read()
"""
    other = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"mine\n"
        with pytest.raises(UsageError, match="another process collects in"), owned(tmp_path):
            pass
        other.kill()
    with owned(tmp_path):  # a killed owner lets go
        pass

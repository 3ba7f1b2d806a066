"""Retrieving from real S3 servers, by processes that are killed, and onto a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catchment.bucket.open import open_bucket
from catchment.bucket.wrap import Counting
from catchment.clock import isoformat
from catchment.config import Config, load
from catchment.feeds.names import Compression
from catchment.testing.http import FeedServer, Reply
from catchment.testing.s3 import S3Server
from tests.unit.feeds.stores import FEED, cut_short, download, hours_later, noise, store

PATIENCE = 60.0  # seconds; far more than is needed


class Site:
    """A configuration with two buckets on one server."""

    def __init__(self, root: Path, server: S3Server) -> None:
        self.root = root
        self.path = root / "catchment.yaml"
        shared = {
            "endpoint_url": server.endpoint,
            "region_name": server.region,
            "aws_access_key_id": server.access_key,
            "aws_secret_access_key": server.secret_key,
        }
        storages = [{"id": id, "bucket": server.fresh_bucket(), "prefix": "prod", **shared} for id in ("main", "spare")]
        feeds = [{"id": FEED, "url": "https://feeds.example.com/subway", "periodicity": "5s"}]
        self.path.write_text(json.dumps({"object_storage": storages, "feeds": feeds}))  # JSON is YAML
        self.config: Config = load(str(self.path))
        self.main, self.spare = map(open_bucket, self.config.object_storage)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "catchment", "feeds", *arguments, "--config", str(self.path)]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), cwd=self.root, capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    def retrieve(self, target: str, *more: str) -> dict[str, Any]:
        done = self.run("retrieve", "--target-directory", target, "--json", *more)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture
def site(tmp_path: Path, s3: S3Server) -> Iterator[Site]:
    made = Site(tmp_path, s3)
    yield made
    made.main.close()
    made.spare.close()


def tree(target: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted(target.rglob("*"))
        if path.is_file() and ".retrieved" not in path.parts
    }


def fill(bucket: Counting, hours: int, *, size: int = 2000, per_hour: int = 10) -> dict[str, bytes]:
    """Hours of downloads, each in two archives that overlap; what there is in all, by name."""
    wanted: dict[str, bytes] = {}
    for later in range(hours):
        hour = hours_later(later)
        all_of = {second: noise(size, 1000 * later + second) for second in range(per_hour)}
        store(bucket, {s: b for s, b in all_of.items() if s < per_hour * 2 // 3}, hour=hour)
        store(bucket, {s: b for s, b in all_of.items() if s > per_hour // 3}, hour=hour, compression=Compression.ZSTD)
        wanted |= {download(second, body, hour=hour).name: body for second, body in all_of.items()}
    return wanted


def test_hours_that_are_not_reconciled_come_whole_and_once(site: Site) -> None:
    wanted = fill(site.main, 5)
    done = site.retrieve("out")
    assert tree(site.root / "out") == wanted
    assert (done["hours"], done["files"]) == (5, len(wanted))
    # Once they are reconciled, they are other archives: fetched anew, and nothing is written twice.
    assert site.run("reconcile").returncode == 0
    again = site.retrieve("out")
    assert (again["kept"], again["files"]) == (0, 0)
    assert site.retrieve("out")["kept"] == 5
    assert site.retrieve("spare", "--object-storage-ids", "spare")["files"] == len(wanted)
    assert site.run("audit", "--end-time", isoformat(hours_later(5).start)).returncode == 0


def test_killed_and_run_again(site: Site) -> None:
    wanted = fill(site.main, 12, size=20_000, per_hour=60)
    target = site.root / "out"
    killed = 0
    while True:
        process = subprocess.Popen(
            site.command("retrieve", "--target-directory", "out"),
            cwd=site.root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        before = len(tree(target)) if target.exists() else 0
        end = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < end:
            if killed < 3 and target.exists() and len(list(target.rglob("*.json"))) > before + 50:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.005)
        if process.wait(PATIENCE) == -signal.SIGKILL:
            killed += 1
            assert set(tree(target).items()) <= set(wanted.items())  # whole, or not there
            continue
        assert process.returncode == 0
        break
    assert killed > 0
    assert tree(target) == wanted


def test_a_repeated_run_asks_for_a_listing_and_no_more(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    import catchment

    monkeypatch.chdir(site.root)
    for later in range(20):
        store(site.main, {1: b"%d" % later}, hour=hours_later(later))
    with catchment.open() as lake:
        assert lake.feeds.retrieve("out", feed_ids=[FEED]).files == 20
        counts = lake.storage("main").counts
        before = counts.total
        assert lake.feeds.retrieve("out", feed_ids=[FEED]).kept == 20
        assert counts.total - before == 1


def test_a_corrupt_archive_ends_with_1_and_comes_whole_from_the_other_storage(site: Site) -> None:
    wanted = {second: noise(40_000, second) for second in range(6)}
    for bucket in (site.main, site.spare):
        archive = store(bucket, wanted)
    cut_short(site.main, archive)
    done = site.run("retrieve", "--target-directory", "out", "--object-storage-ids", "main,spare")
    assert done.returncode == 1
    assert archive.name in done.stderr
    assert list(tree(site.root / "out").values()) == list(wanted.values())
    mended = site.run("audit", "--fix", "--end-time", isoformat(hours_later(1).start))
    assert mended.returncode == 0, mended.stdout + mended.stderr
    assert site.retrieve("again")["files"] == 6


def test_no_server_is_a_clear_error_and_no_emptiness(site: Site, moto: S3Server) -> None:
    text = site.path.read_text()
    site.path.write_text(text.replace(site.config.object_storage[0].bucket or "", "no-such-bucket"))
    done = site.run("retrieve", "--target-directory", "out")
    assert done.returncode == 1
    assert "no-such-bucket" in done.stderr
    assert "aws_secret" not in done.stderr


def test_a_terminal_shows_a_bar_and_a_pipe_does_not(site: Site) -> None:
    fill(site.main, 3)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        site.command("retrieve", "--target-directory", "out", "--json"),
        cwd=site.root,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # how a terminal says that the other side has gone
            break
        if not part:
            break
        shown += part
    os.close(ours)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert json.loads(out)["hours"] == 3
    assert b"3/3" in shown
    assert site.run("retrieve", "--target-directory", "quiet").stderr == ""


def test_collected_by_a_command_and_retrieved_by_another(tmp_path: Path, feed: FeedServer) -> None:
    feed.script("/subway", [Reply(200, b"body %d" % number) for number in range(1000)])
    settings = {
        "object_storage": [{"id": "main", "path": str(tmp_path / "lake")}],
        "feeds": [{"id": FEED, "url": feed.url("/subway"), "periodicity": "50ms", "postfix": ".txt"}],
    }
    (tmp_path / "catchment.yaml").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "catchment", "feeds"]
    process = subprocess.Popen(
        [*command, "collect", "--json"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        end = time.monotonic() + PATIENCE
        while len(list((tmp_path / "workspace" / "downloads").rglob("*.txt"))) < 5:
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert json.loads(out)["clean"] is True
    for arguments in (["retrieve", "--target-directory", "out"], ["status"]):
        subprocess.run([*command, *arguments], cwd=tmp_path, check=True, capture_output=True, timeout=PATIENCE)
    got = [path.read_bytes() for path in sorted((tmp_path / "out").rglob("*.txt"))]
    assert len(got) >= 5
    assert got == [b"body %d" % number for number in range(len(got))]

"""The collector against real HTTP: in this process, and as a process that is signalled and killed."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from catchment.bucket.contract import Bucket
from catchment.bucket.local import LocalBucket
from catchment.bucket.open import open_bucket
from catchment.bucket.wrap import Wrapper
from catchment.config import Config, load
from catchment.errors import NotFound, Unreachable, UsageError
from catchment.feeds.archive import Member, pack, read
from catchment.feeds.collect import Collector, Ended
from catchment.feeds.names import Archive, Compression, Download, Hour, body_hash
from catchment.feeds.process import collect
from catchment.feeds.upload import upload
from catchment.monitor.history import History
from catchment.monitor.record import Monitor
from catchment.monitor.store import Store, store_path
from catchment.testing.http import FeedServer, Reply, Request
from catchment.testing.process import free_port

REPLICA = Path(__file__).with_name("replica.py")
PATIENCE = 60.0  # seconds; nothing here needs more than a few, and a hang would take for ever


class Site:
    """A configuration, its workspace and its lake, in a folder of its own."""

    def __init__(self, root: Path, feed: FeedServer) -> None:
        self.root = root
        self.feed = feed
        self.path = root / "catchment.yaml"
        self.workspace = root / "workspace"
        self.settings: dict[str, Any] = {
            "object_storage": [{"id": "main", "path": str(root / "lake")}],
            "workspace": str(self.workspace),
            "feeds": [],
            "collector": {"shutdown_deadline": "40s"},
        }

    def declare(self, id: str, *, period: str = "50ms", **more: Any) -> str:
        """A feed of the test server, and its path there."""
        url = f"{self.feed.url(f'/{id}')}?key=s3cret"
        self.settings["feeds"].append({"id": id, "url": url, "periodicity": period, **more})
        return f"/{id}"

    def write(self) -> Path:
        self.path.write_text(yaml.safe_dump(self.settings))
        return self.path

    def load(self) -> Config:
        return load(str(self.write()))

    @property
    def lake(self) -> Bucket:
        return LocalBucket(self.root / "lake")

    def bodies(self, feed: str) -> list[bytes]:
        """All that the lake has of a feed, in order, each download once."""
        found: dict[str, bytes] = {}
        for entry in self.lake.list(f"feeds/{feed}/"):
            archive = Archive.parse(entry.key)
            assert archive is not None
            try:
                stream = BytesIO(self.lake.get(entry.key))
            except NotFound:
                return self.bodies(feed)  # merged into another one meanwhile
            for one in read(stream, archive.compression):
                assert isinstance(one, Member)
                found[one.download.name] = one.body
        return [body for _, body in sorted(found.items())]

    def left(self) -> list[str]:
        folders = (self.workspace / name for name in ("downloads", "archives", "damaged", "partial"))
        return [path.name for folder in folders for path in folder.rglob("*") if path.is_file()]

    def notes(self, kind: str, subject: str = "feeds") -> list[tuple[str, str]]:
        events = History(store_path(self.workspace)).events(kind=kind, subject=subject)
        return [(event.outcome, event.note) for event in reversed(events)]


@pytest.fixture
def site(tmp_path: Path, feed: FeedServer) -> Site:
    return Site(tmp_path, feed)


class Counter:
    """A feed whose body is another one each time, and what it sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self._lock = threading.Lock()

    def __call__(self, _: Request) -> Reply:
        with self._lock:
            self.sent.append(b"body %d" % len(self.sent))
            return Reply(200, self.sent[-1])


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError("it did not happen")
        time.sleep(0.02)


def ask(url: str, *, method: str = "GET", headers: dict[str, str] | None = None) -> tuple[int, str]:
    request = urllib.request.Request(url, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def collecting(site: Site, do: Callable[[Collector], Awaitable[None]], *, cut: float = 3600, **more: Any) -> Ended:
    """Collect in this process while `do` is done, then stop."""
    config = site.load()
    buckets = {storage.id: open_bucket(storage) for storage in config.object_storage}
    monitor = Monitor(Store(store_path(config.workspace)))
    collector = Collector(config, config.workspace, buckets, monitor, cut=timedelta(seconds=cut), **more)

    async def main() -> Ended:
        running = asyncio.create_task(collector.run())
        doing = asyncio.ensure_future(do(collector))
        await asyncio.wait([running, doing], return_when=asyncio.FIRST_COMPLETED)
        collector.stop("the test is over")
        ended = await running
        await doing
        return ended

    try:
        return asyncio.run(main())
    finally:
        monitor.close()


async def soon(holds: Callable[[], bool]) -> None:
    await asyncio.to_thread(until, holds)


# -- in this process --


def test_feeds_become_archives_and_nothing_is_left(site: Site) -> None:
    counter = Counter()
    path = site.declare("moving")
    site.feed.script(path, [counter])
    site.feed.script(site.declare("still", postfix=".txt"), [Reply(200, b"same", etag='"1"')])

    async def do(_: Collector) -> None:
        await asyncio.to_thread(site.feed.wait_for, path, 10, patience=PATIENCE)
        await asyncio.to_thread(site.feed.wait_for, "/still", 5, patience=PATIENCE)

    ended = collecting(site, do)
    assert (ended.clean, ended.problems) == (True, ())
    assert site.left() == []
    stored = site.bodies("moving")
    assert stored == counter.sent[: len(stored)]
    assert len(counter.sent) - len(stored) <= 1  # the last one may have been under way
    assert site.bodies("still")[0] == b"same" and len(site.bodies("still")) <= 2  # two, if an hour ended meanwhile
    assert [request.header("if-none-match") for request in site.feed.requests("/still")][:2] == [None, '"1"']


def test_hours_are_cut_while_it_collects(site: Site) -> None:
    counter = Counter()
    path = site.declare("a")
    site.feed.script(path, [counter])

    async def do(_: Collector) -> None:
        await soon(lambda: len(site.bodies("a")) >= 3)

    ended = collecting(site, do, cut=0.5)
    assert ended.clean
    assert site.bodies("a") == counter.sent[: len(site.bodies("a"))]
    hours = {entry.key.rpartition("/")[0] for entry in site.lake.list("feeds/a/")}
    assert len(list(site.lake.list("feeds/a/"))) == len(hours)  # one archive an hour, after any number of cuts


def test_requests_of_one_feed_never_overlap_and_a_slow_one_holds_up_no_other(site: Site) -> None:
    slow, quick = site.declare("slow", period="20ms"), site.declare("quick", period="20ms")
    gate = threading.Event()
    site.feed.script(slow, [Reply(200, b"x", gate=gate)])
    site.feed.script(quick, [Reply(200, b"x")])

    async def do(_: Collector) -> None:
        await asyncio.to_thread(site.feed.wait_for, quick, 20, patience=PATIENCE)
        assert len(site.feed.requests(slow)) == 1
        gate.set()
        await asyncio.to_thread(site.feed.wait_for, slow, 5, patience=PATIENCE)

    collecting(site, do)
    assert site.feed.overlap(slow) == 1
    events = History(store_path(site.workspace)).events(subject="feeds/slow", kind="download")
    assert sum(event.numbers.get("missed", 0) for event in events) >= 10


def test_gauges_are_there_from_the_start_and_show_a_hung_feed(site: Site) -> None:
    site.feed.script(site.declare("hung", timeout="1h"), [Reply(200, hang=True)])
    path = site.declare("bad", period="20ms")
    site.feed.script(path, [Reply(500, b"x")])
    pages: dict[str, tuple[int, str]] = {}

    async def do(collector: Collector) -> None:
        await soon(lambda: "monitoring" in collector.ports)
        base = f"http://127.0.0.1:{collector.ports['monitoring']}"
        await asyncio.to_thread(site.feed.wait_for, "/hung", patience=PATIENCE)
        await asyncio.to_thread(site.feed.wait_for, path, 3, patience=PATIENCE)
        for page in ("/metrics", "/healthz", "/nothing"):
            pages[page] = await asyncio.to_thread(ask, base + page)

    collecting(site, do, monitoring_port=0)
    status, metrics = pages["/metrics"]
    assert status == 200
    values = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    for kind in ("download", "archive", "upload", "reconcile"):
        labels = f'{{kind="{kind}",subject="feeds/hung"}}'
        assert float(values[f"catchment_last_success_timestamp_seconds{labels}"]) == 0
        assert float(values[f"catchment_consecutive_errors{labels}"]) == 0
        assert float(values[f"catchment_staleness_seconds{labels}"]) >= 0
    assert float(values['catchment_consecutive_errors{kind="download",subject="feeds/bad"}']) >= 2
    assert pages["/healthz"] == (200, '{"status": "ok", "feeds": 2}\n')
    assert pages["/nothing"][0] == 404
    assert "s3cret" not in metrics


def test_a_full_disk_pauses_polling_and_space_lets_it_go_on(site: Site) -> None:
    path = site.declare("a")
    site.feed.script(path, [Counter()])
    share = [0.5]
    health: list[str] = []

    async def do(collector: Collector) -> None:
        await soon(lambda: "monitoring" in collector.ports)
        page = f"http://127.0.0.1:{collector.ports['monitoring']}/healthz"
        await asyncio.to_thread(site.feed.wait_for, path, 3, patience=PATIENCE)
        share[0] = 0.99
        await soon(lambda: len(site.notes("pause")) == 1)
        await soon(lambda: not site.feed.active(path))
        asked = len(site.feed.requests(path))
        health.append((await asyncio.to_thread(ask, page))[1])
        await asyncio.sleep(0.3)  # six ticks
        assert len(site.feed.requests(path)) <= asked + 1  # one may have been on its way when the pause began
        share[0] = 0.95  # as high as the mark, and no higher
        await asyncio.to_thread(site.feed.wait_for, path, asked + 3, patience=PATIENCE)

    collecting(site, do, disk=lambda _: share[0], monitoring_port=0)
    (paused, why), (going_on, _) = site.notes("pause")
    assert (paused, going_on) == ("failed", "ok")
    assert "99.0% full" in why and "disk_high_water (95%)" in why
    assert json.loads(health[0])["status"] == "paused"


def test_shutdown_over_http(site: Site) -> None:
    site.settings["collector"]["shutdown_port"] = free_port()
    site.declare("a")
    url = f"http://127.0.0.1:{site.settings['collector']['shutdown_port']}/shutdown"
    answers: list[int] = []

    async def do(collector: Collector) -> None:
        await soon(lambda: "shutdown" in collector.ports)
        for method, headers in (
            ("GET", {}),
            ("POST", {"Origin": "https://evil.example"}),
            ("POST", {"Host": "evil.example"}),
            ("POST", {}),
        ):
            answers.append((await asyncio.to_thread(ask, url, method=method, headers=headers))[0])
            if method == "GET" or headers:
                assert not collector._stop_asked.is_set()
        await soon(collector._stop_asked.is_set)

    ended = collecting(site, do)
    assert answers == [405, 403, 403, 202]
    assert ended.why == "POST /shutdown"


def test_there_is_no_server_unless_one_is_asked_for(site: Site) -> None:
    async def do(collector: Collector) -> None:
        await soon(lambda: collector._loop is not None)
        assert collector.ports == {}

    collecting(site, do)


def test_a_port_that_is_taken_is_told_before_anything_begins(site: Site) -> None:
    path = site.declare("a")

    async def do(_: Collector) -> None:
        pass

    with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{site.feed.port}"):
        collecting(site, do, monitoring_port=site.feed.port)
    assert site.feed.requests(path) == []


def test_a_thread_that_hangs_does_not_keep_the_process_alive(site: Site) -> None:
    """Here a disk that never answers: the last resort is called, which in production ends the process."""
    path = site.declare("a")
    site.feed.script(path, [Counter()])
    site.settings["collector"]["shutdown_deadline"] = "1s"
    config = site.load()
    hanging, answer, called = threading.Event(), threading.Event(), threading.Event()

    def sync(_: int) -> None:
        hanging.set()
        answer.wait()

    def stop() -> None:
        hanging.wait()
        collector.stop("the disk hangs")

    with Monitor() as monitor:
        buckets = {"main": open_bucket(config.object_storage[0])}
        collector = Collector(config, config.workspace, buckets, monitor, sync=sync)
        stopping = threading.Thread(target=stop)
        stopping.start()
        ended = collect(collector, last_resort=lambda status: called.set())
        assert called.wait(PATIENCE)
        assert ended.why == "the disk hangs"
        answer.set()
        stopping.join()


def test_whoever_collects_in_their_own_process_lives_on_after_a_clean_end(site: Site) -> None:
    counter = Counter()
    site.feed.script(site.declare("a"), [counter])
    site.settings["collector"]["shutdown_deadline"] = "3s"
    config = site.load()
    called = threading.Event()

    def stop() -> None:
        until(lambda: len(counter.sent) > 2)
        collector.stop("enough")

    with Monitor() as monitor:
        buckets = {"main": open_bucket(config.object_storage[0])}
        collector = Collector(config, config.workspace, buckets, monitor)
        stopping = threading.Thread(target=stop)
        stopping.start()
        ended = collect(collector, last_resort=lambda status: called.set())
        stopping.join()
    assert ended.clean
    assert not called.wait(4)


class Away(Wrapper):
    """A storage that does not answer until it is told to."""

    def __init__(self, inner: Bucket) -> None:
        super().__init__(inner)
        self.away, self.asked = True, threading.Event()

    def _call(self, operation: str, key: str, do: Callable[[], Any]) -> Any:
        if self.away:
            self.asked.set()
            raise Unreachable("no answer")
        return do()


def test_a_storage_that_is_away_at_the_start_is_looked_back_at_when_it_is_there(site: Site, tmp_path: Path) -> None:
    """Ten hours ago somebody left two archives; at the start the storage does not answer."""
    site.feed.script(site.declare("a"), [Counter()])
    config = site.load()
    hour = Hour.of(datetime.now(UTC) - timedelta(hours=10))
    storage = Away(open_bucket(config.object_storage[0]))
    for number in range(2):
        body = b"%d" % number
        path = tmp_path / Download("a", hour.start + timedelta(seconds=number), body_hash(body)).name
        path.write_bytes(body)
        packed = pack([path], tmp_path, feed="a", hour=hour, compression=Compression.GZIP)
        assert packed is not None
        upload(storage.inner, packed.path)
    collector = Collector(config, config.workspace, {"main": storage}, Monitor(), cut=timedelta(seconds=1))

    async def main() -> Ended:
        running = asyncio.create_task(collector.run())
        await soon(storage.asked.is_set)
        await asyncio.sleep(1)  # the first cycle ends without it
        storage.away = False
        await soon(lambda: sum(1 for _ in storage.inner.list(hour.prefix("a"))) == 1)
        collector.stop("settled")
        return await running

    assert asyncio.run(main()).clean


# -- as a process --


class Process:
    def __init__(self, site: Site, cut: float) -> None:
        self.log = site.root / "log"
        with self.log.open("ab") as out:
            self.run = subprocess.Popen(
                [sys.executable, "-W", "error", str(REPLICA), str(site.write()), str(cut)], stdout=out, stderr=out
            )

    def signal(self, number: signal.Signals) -> None:
        self.run.send_signal(number)

    def ends(self) -> int:
        return self.run.wait(PATIENCE)

    def said(self, text: str) -> bool:
        return text in self.log.read_text()


@contextmanager
def process(site: Site, cut: float = 3600) -> Iterator[Process]:
    """A running replica. It is killed at the end if it is still there."""
    running = Process(site, cut)
    try:
        yield running
    finally:
        running.run.kill()
        running.run.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order_whatever_the_feeds_do(site: Site, number: signal.Signals) -> None:
    counter = Counter()
    path = site.declare("a")
    site.feed.script(path, [counter])
    site.feed.script(site.declare("hung", timeout="1h"), [Reply(200, hang=True)])
    site.feed.script(site.declare("dripping", timeout="1h"), [Reply(200, b"x" * 100_000, pace=0.1)])
    with process(site) as replica:
        for name in (path, "/hung", "/dripping"):
            site.feed.wait_for(name, patience=PATIENCE)
        site.feed.wait_for(path, 5, patience=PATIENCE)
        until(lambda: bool(list(site.lake.list("_catchment/replicas/"))))
        replica.signal(number)
        assert replica.ends() == 0
        assert replica.said(f"stopping ({number.name})")
    assert site.left() == []
    assert site.bodies("a") == counter.sent[: len(site.bodies("a"))] and len(site.bodies("a")) >= 4
    assert list(site.lake.list("_catchment/replicas/")) == []
    assert site.notes("stop") == [("ok", number.name)]
    assert "s3cret" not in replica.log.read_text()


def test_storage_that_hangs_does_not_hold_up_the_end(site: Site) -> None:
    """It never answers, and the process ends all the same; what it collected is there for the next start."""
    counter = Counter()
    path = site.declare("a")
    site.feed.script(path, [counter])
    endpoint = site.feed.url("")
    for name in ("/lake", "/lake/"):
        site.feed.script(name, [Reply(200, hang=True)])
    hung = {"id": "hung", "bucket": "lake", "endpoint_url": endpoint, "region_name": "us-east-1"}
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "hidden"}
    site.settings["object_storage"] = [{**hung, **keys}]
    site.settings["collector"]["shutdown_deadline"] = "3s"
    with process(site) as replica:
        site.feed.wait_for(path, 5, patience=PATIENCE)
        replica.signal(signal.SIGTERM)
        assert replica.ends() == 1
    assert site.left() != []
    site.settings["object_storage"] = [{"id": "main", "path": str(site.root / "lake")}]
    with process(site) as replica:
        site.feed.wait_for(path, len(counter.sent) + 2, patience=PATIENCE)
        replica.signal(signal.SIGTERM)
        assert replica.ends() == 0
    assert site.bodies("a")[:4] == counter.sent[:4]


def test_a_killed_process_loses_nothing_that_it_stored(site: Site) -> None:
    counter = Counter()
    path = site.declare("a", period="20ms")
    site.feed.script(path, [counter])
    for _ in range(3):
        with process(site, cut=0.3) as replica:
            site.feed.wait_for(path, len(counter.sent) + 20, patience=PATIENCE)
            replica.signal(signal.SIGKILL)
            replica.ends()
    with process(site, cut=0.3) as replica:
        site.feed.wait_for(path, len(counter.sent) + 5, patience=PATIENCE)
        replica.signal(signal.SIGTERM)
        assert replica.ends() == 0
    assert site.left() == []
    stored = site.bodies("a")
    assert set(stored) <= set(counter.sent)
    assert len(stored) == len(set(stored))
    # What a kill may cost is the one request that is under way.
    assert len(set(counter.sent) - set(stored)) <= 4


def test_a_reload_takes_up_feeds_and_a_bad_one_changes_nothing(site: Site) -> None:
    site.feed.script(site.declare("old"), [Counter()])
    site.feed.script(site.declare("removed"), [Counter()])
    with process(site) as replica:
        site.feed.wait_for("/removed", 2, patience=PATIENCE)
        # A bad one first: refused whole, with the reason.
        site.path.write_text(site.path.read_text().replace("periodicity", "peridicity"))
        replica.signal(signal.SIGHUP)
        until(lambda: replica.said("did you mean 'periodicity'?"))
        asked = len(site.feed.requests("/old"))
        site.feed.wait_for("/old", asked + 3, patience=PATIENCE)
        # Then a good one.
        del site.settings["feeds"][1]
        site.feed.script(site.declare("new"), [Counter()])
        site.write()
        replica.signal(signal.SIGHUP)
        site.feed.wait_for("/new", 3, patience=PATIENCE)
        asked = len(site.feed.requests("/old"))
        gone = len(site.feed.requests("/removed"))
        site.feed.wait_for("/old", asked + 5, patience=PATIENCE)
        assert len(site.feed.requests("/removed")) == gone
        replica.signal(signal.SIGTERM)
        assert replica.ends() == 0
    assert [outcome for outcome, _ in site.notes("reload")] == ["failed", "ok"]
    assert "kept the old configuration" in site.notes("reload")[0][1]
    assert site.bodies("removed") and site.bodies("new") and site.bodies("old")
    assert "s3cret" not in replica.log.read_text()


def test_two_processes_do_not_share_a_workspace(site: Site) -> None:
    path = site.declare("a")
    site.feed.script(path, [Counter()])
    with process(site) as first:
        site.feed.wait_for(path, 2, patience=PATIENCE)
        with process(site) as second:
            assert second.ends() == 2
            assert second.said("another process collects in")
        first.signal(signal.SIGTERM)
        assert first.ends() == 0

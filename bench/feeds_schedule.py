"""200 feeds at 500 ms on this machine: how late requests start, how many ticks are missed, and what part is fsync.

The server runs in a process of its own and answers every request with another body, so every download is stored.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path

from catchment.bucket.open import open_bucket
from catchment.config import Config, Feed, Storage
from catchment.feeds.collect import Collector
from catchment.feeds.poll import Attempt
from catchment.monitor.record import Monitor
from catchment.monitor.store import Store, store_path

FEEDS = 200
HOSTS = 20  # ports, which count as hosts: the limit for one host is not what is measured
PERIOD = timedelta(milliseconds=500)
SECONDS = 60
BODY = 5_000  # bytes

SERVER = f"""
import asyncio, itertools, os
numbers = itertools.count()
filling = os.urandom({BODY} - 20)
class Answering(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.got = transport, b""
    def data_received(self, data):
        self.got += data
        while b"\\r\\n\\r\\n" in self.got:
            self.got = self.got.partition(b"\\r\\n\\r\\n")[2]
            body = b"%020d" % next(numbers) + filling
            self.transport.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
async def main():
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(Answering, "127.0.0.1", 0) for _ in range({HOSTS})]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def main() -> None:
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            ports = [int(port) for port in server.stdout.readline().split()]
            measure(ports, SECONDS, durable=True)
            measure(ports, SECONDS // 3, durable=False)
        finally:
            server.kill()


def measure(ports: list[int], seconds: int, *, durable: bool) -> None:
    folder = Path(tempfile.mkdtemp(prefix="catchment-bench-"))
    try:
        _measure(folder, ports, seconds, durable=durable)
    finally:
        shutil.rmtree(folder)


def _measure(folder: Path, ports: list[int], seconds: int, *, durable: bool) -> None:
    storage = Storage(id="main", path=folder / "lake")
    feeds = [
        Feed(id=f"feed-{n}", url=f"http://127.0.0.1:{ports[n % HOSTS]}/{n}", periodicity=PERIOD)  # type: ignore[arg-type]
        for n in range(FEEDS)
    ]
    config = Config(object_storage=(storage,), feeds=tuple(feeds), workspace=folder / "workspace")
    attempts: list[Attempt] = []
    syncing: list[float] = []
    lock = threading.Lock()

    def sync(handle: int) -> None:
        start = time.perf_counter()
        if durable:
            os.fsync(handle)
        with lock:
            syncing.append(time.perf_counter() - start)

    monitor = Monitor(Store(store_path(config.workspace)))
    collector = Collector(
        config, config.workspace, {"main": open_bucket(storage)}, monitor, report=attempts.append, sync=sync
    )

    async def run() -> float:
        running = asyncio.create_task(collector.run())
        await asyncio.sleep(2)  # first connections
        del attempts[:], syncing[:]
        before = time.process_time()
        await asyncio.sleep(seconds)
        used = time.process_time() - before
        taken.extend(attempts)
        collector.stop("measured")
        await running
        return used

    taken: list[Attempt] = []
    used = asyncio.run(run())
    monitor.close()
    late = sorted(attempt.began - attempt.due for attempt in taken)
    missed = sum(attempt.missed + attempt.held for attempt in taken)
    failed = sum(attempt.failed for attempt in taken)
    landing = sum(attempt.landed - attempt.ended for attempt in taken)
    asking = sum(attempt.ended - attempt.began for attempt in taken)
    words = "with fsync" if durable else "without fsync"
    every = f"{FEEDS} feeds every {PERIOD.total_seconds():g} s for {seconds} s, {words}"
    print(
        f"{every}: {len(taken)} requests, {failed} failed\n"
        f"  start lateness: median {at(late, 50):.1f} ms, 99th percentile {at(late, 99):.1f} ms, "
        f"most {at(late, 100):.1f} ms\n"
        f"  ticks missed: {missed / (missed + len(taken)):.3%}\n"
        f"  of the time from sending to stored: landing {landing / (landing + asking):.0%}, "
        f"fsync {sum(syncing) / (landing + asking):.0%} ({sum(syncing) / max(1, len(syncing)) * 1000:.2f} ms each)\n"
        f"  processor: {used / seconds:.0%} of one core",
        flush=True,
    )


def at(seconds: list[float], percent: int) -> float:
    """A percentile of sorted durations, in milliseconds."""
    return seconds[min(len(seconds) - 1, len(seconds) * percent // 100)] * 1000


if __name__ == "__main__":
    main()

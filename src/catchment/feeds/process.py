"""A collector in a process of its own: signals, and an end that nothing can hold up."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

from catchment.feeds.collect import Collector, Ended

log = logging.getLogger(__name__)


def collect(collector: Collector, *, last_resort: Callable[[int], object] = os._exit) -> Ended:
    """Run a collector in the main thread of a process of its own. SIGTERM and SIGINT stop it, SIGHUP reloads.

    If a thread still hangs when the shutdown deadline is over (in a name server that does not answer, say), the process
    is ended by `last_resort`, with status 1. What is in the workspace is safe at any time.
    """

    def stop(number: int, _: FrameType | None) -> None:
        collector.stop(signal.Signals(number).name)

    def reload(_: int, __: FrameType | None) -> None:
        collector.reload()

    before = frozenset(threading.enumerate())
    ended = threading.Event()
    threading.Thread(target=_outlast, args=(collector, ended, last_resort), name="deadline", daemon=True).start()
    handlers = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: reload}
    old = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    # And not asyncio.run, which waits for threads that look up names, however long they take.
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(collector.run())
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        for number, handler in old.items():
            signal.signal(number, handler)
        if not any(thread.is_alive() and not thread.daemon for thread in set(threading.enumerate()) - before):
            ended.set()


def _outlast(collector: Collector, ended: threading.Event, last_resort: Callable[[int], object]) -> None:
    while not ended.wait(0.1):
        asked = collector.stop_asked_at
        limit = collector.config.collector.shutdown_deadline.total_seconds()
        if asked is not None and collector.clock.monotonic() - asked >= limit:
            log.error("the shutdown deadline is over and something still hangs; ending now")
            logging.shutdown()
            last_resort(1)
            return

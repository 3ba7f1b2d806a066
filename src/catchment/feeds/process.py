"""A collector in a process of its own: signals, and an end that nothing can hold up."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

from catchment.feeds.collect import Collector, Ended

log = logging.getLogger(__name__)
NAME_LOOKUPS = 64  # at a time


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
    # Names are looked up in threads, and a name server that hangs holds one each: the usual six would starve all feeds.
    loop.set_default_executor(ThreadPoolExecutor(NAME_LOOKUPS, thread_name_prefix="names"))
    try:
        return loop.run_until_complete(collector.run())
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        for number, handler in old.items():
            signal.signal(number, handler)
        # Threads that were told to end need a moment for it; one that hangs is what the last resort is for.
        others = [thread for thread in set(threading.enumerate()) - before if not thread.daemon]
        end = time.monotonic() + 2.0
        for thread in others:
            thread.join(max(0.0, end - time.monotonic()))
        if not any(thread.is_alive() for thread in others):
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

"""Threads that are not waited for when the process ends.

Those of an executor are: one that hangs in a request would keep the process from ending.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """One daemon thread, started when it first has something to do."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._lock = threading.Lock()

    def submit(self, do: Callable[[], T]) -> Future[T]:
        """Do this after all that was given before. From any thread."""
        job: Future[T] = Future()
        self._jobs.put((job, do))
        with self._lock:
            if self._thread.ident is None:
                self._thread.start()
        return job

    def close(self) -> None:
        """Let the thread end after all that was given so far."""
        self._jobs.put(None)

    def _run(self) -> None:
        while True:
            work = self._jobs.get()
            if work is None:
                return
            job, do = work
            if not job.set_running_or_notify_cancel():
                continue
            try:
                job.set_result(do())
            except BaseException as error:
                job.set_exception(error)
            del work, job, do  # and what they hold on to, while waiting for the next


def each(items: Iterable[T], do: Callable[[T], object], *, workers: int) -> None:
    """Do this to each item, so many at once, each taken from the iterable when its turn comes. Raises what one raises,
    after the others under way have ended.
    """
    left = iter(items)
    lock = threading.Lock()
    failed = threading.Event()

    def drain() -> None:
        while not failed.is_set():
            with lock:
                try:
                    item = next(left)
                except StopIteration:
                    return
            try:
                do(item)
            except BaseException:
                failed.set()
                raise

    if workers == 1:
        drain()
        return
    threads = [Background(f"worker-{number}") for number in range(workers)]
    jobs = [thread.submit(drain) for thread in threads]
    for thread in threads:
        thread.close()
    errors = [error for job in jobs if (error := job.exception()) is not None]
    if errors:
        raise errors[0]

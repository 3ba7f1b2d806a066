"""Exporters at work: one thread per export, until told to stop, until caught up, or once.

The loop knows nothing of offsets: it calls `step`, waits a moment when there was nothing to do, and longer when
something failed. SIGTERM lets the ranges that are being written finish for a while; then they are abandoned, their
claims are let go of, and whoever comes next writes the same names again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum

from catchment.errors import CatchmentError
from catchment.topics.export import Exporter, Step

log = logging.getLogger(__name__)

TICK = 1.0  # seconds between two looks when nothing is due
LONGEST = 30.0  # seconds to wait after failures
PATIENCE = 5  # failures in a row, or steps with nothing but problems, after which an export that is to end gives up
GRACE = 20.0  # seconds that ranges being written get after a stop


class Until(StrEnum):
    """When an export ends by itself."""

    STOPPED = "stopped"  # never
    DONE = "once"  # when nothing is due any more, as the policy sees it
    CAUGHT_UP = "caught up"  # when everything that was in Kafka at the start is committed


@dataclass
class Progress:
    """What one exporter has done, kept up to date while it runs."""

    group: str
    match: str
    ranges: int = 0
    messages: int = 0
    rows: int = 0
    dead: int = 0
    filtered: int = 0
    files: int = 0
    bytes: int = 0
    failures: int = 0
    closed: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # as of the last step

    def add(self, step: Step) -> None:
        for manifest in step.committed:
            self.ranges += 1
            self.messages += manifest.counts.read
            self.rows += manifest.counts.written
            self.dead += manifest.counts.dead
            self.filtered += manifest.counts.filtered
            self.files += len(manifest.files)
            self.bytes += sum(one.size for one in manifest.files)
        self.closed += step.closed
        self.problems = list(step.problems)


class Service:
    """Runs exporters. `stop` may be called from any thread or signal handler."""

    def __init__(
        self,
        exporters: Sequence[Exporter],
        *,
        cancel: Callable[[], object] = lambda: None,
        tick: float = TICK,
        grace: float = GRACE,
        on_progress: Callable[[Progress], object] = lambda progress: None,
    ) -> None:
        """`cancel` abandons what is being written."""
        self._exporters = exporters
        self._cancel = cancel
        self._tick = tick
        self._grace = grace
        self._on_progress = on_progress
        self._stopping = threading.Event()
        self._ended = threading.Event()

    def stop(self) -> None:
        """Finish the ranges that are being written, or abandon them when the time of grace is over."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        threading.Thread(target=self._abandon, name="grace", daemon=True).start()

    def run(self, until: Until = Until.STOPPED) -> list[Progress]:
        """Run every exporter in a thread of its own until each has ended."""
        try:
            with ThreadPoolExecutor(max(1, len(self._exporters)), thread_name_prefix="export") as threads:
                running = [threads.submit(self._run, exporter, until) for exporter in self._exporters]
                return [one.result() for one in running]
        finally:
            self._ended.set()

    def _abandon(self) -> None:
        if not self._ended.wait(self._grace):
            log.warning("what is being written after %g seconds of grace is abandoned", self._grace)
            self._cancel()

    def _run(self, exporter: Exporter, until: Until) -> Progress:
        progress = Progress(exporter.export.group, exporter.config.match)
        try:
            self._loop(exporter, until, progress)
        except BaseException:
            self.stop()  # if one failed unexpectedly, the others end too, and `run` can say so
            raise
        finally:
            self._end(exporter)
        return progress

    def _loop(self, exporter: Exporter, until: Until, progress: Progress) -> None:
        failures = 0  # in a row
        stuck = 0  # steps in a row with nothing but problems
        while not self._stopping.is_set():
            try:
                step = exporter.step(flush=until is Until.CAUGHT_UP)
            except CatchmentError as error:
                if self._stopping.is_set():
                    break
                failures += 1
                progress.failures += 1
                progress.problems = [str(error)]
                log.warning("%s: %s", exporter.export.group, error)
                if until is not Until.STOPPED and failures >= PATIENCE:
                    break
                self._stopping.wait(min(LONGEST, self._tick * 2.0 ** min(failures - 1, 10)))
                continue
            for problem in set(step.problems) - set(progress.problems):
                log.warning("%s", problem)
            failures = 0
            progress.add(step)
            self._on_progress(progress)
            if until is Until.CAUGHT_UP and exporter.caught_up():
                break  # although there may be more to do: messages keep coming
            if not step.again:
                stuck = stuck + 1 if step.problems and not step.busy else 0
                if until is Until.DONE or (until is Until.CAUGHT_UP and stuck >= PATIENCE):
                    break
                self._stopping.wait(self._tick)

    def _end(self, exporter: Exporter) -> None:
        try:
            exporter.let_go()
        except CatchmentError as error:
            log.warning("this process could not let go of its claims (%s); others wait until it looks gone", error)
        exporter.close()

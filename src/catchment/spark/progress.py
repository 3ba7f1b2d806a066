"""Progress of Spark's jobs, shown to people as our own bars; silent where nobody looks."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext, StatusTracker
    from pyspark.sql import SparkSession
    from rich.console import Console

_LOOK_EVERY = 0.2  # seconds


@dataclass(frozen=True)
class Tally:
    """How far the jobs of one piece of work are."""

    done: int
    total: int  # grows as Spark plans more: a bar may step back, but what is done never shrinks


@contextmanager
def progress(spark: SparkSession, what: str, *, console: Console | None = None) -> Iterator[None]:
    """Show how far the Spark jobs are that this thread starts inside the block, as one bar named `what`.

    Nothing is shown or slowed unless standard error (or `console`) is a terminal. What the jobs raise is raised.
    """
    if console is None and not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    context = spark.sparkContext
    group = f"catchment-{uuid.uuid4()}"
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    ended = threading.Event()
    with _group(context, group, what), Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task(what, total=None)

        def watch() -> None:
            tracker = context.statusTracker()
            while not ended.wait(_LOOK_EVERY):
                now = tally(tracker, group)
                bars.update(bar, completed=now.done, total=now.total or None)

        watcher = threading.Thread(target=watch, name="spark-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            now = tally(context.statusTracker(), group)
            bars.update(bar, completed=now.done, total=now.total or None)


def tally(tracker: StatusTracker, group: str) -> Tally:
    """Tasks done and planned over all stages of a job group, as far as Spark still remembers them."""
    done = total = 0
    seen: set[int] = set()
    for job_id in tracker.getJobIdsForGroup(group):
        job = tracker.getJobInfo(job_id)
        for stage_id in job.stageIds if job else ():
            stage = None if stage_id in seen else tracker.getStageInfo(stage_id)
            seen.add(stage_id)
            if stage is not None:
                done += stage.numCompletedTasks
                total += stage.numTasks
    return Tally(done, total)


@contextmanager
def _group(context: SparkContext, group: str, what: str) -> Iterator[None]:
    """Jobs of this thread belong to the group; what they belonged to before is put back."""
    names = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
    before = {name: context.getLocalProperty(name) for name in names}
    context.setJobGroup(group, what)
    try:
        yield
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None removes it

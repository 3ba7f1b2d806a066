"""Every order in which two or three tasks can make their bucket calls, with the invariant checked after each call.

A task is a function of a bucket. The explorer runs the tasks over one memory bucket, lets exactly one call happen at
a time, and goes through all choices depth first: it runs a schedule, backs up to the last choice that has an untried
alternative, and runs again from the start. Two things may be added to the choices: a task that dies right after a call
(and is started again), and a reply that is lost after the call took effect.

A state is what the bucket holds plus what every task has seen. Tasks are deterministic, so a state that was met before
needs no second look: that is what makes a full exploration cheap. It is also why a task must get its randomness and
its time from the test: one that behaves differently on the same answers is reported as an error.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import BinaryIO, TypeVar

from catchment.bucket.contract import Bucket, Entry, Folder
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Wrapper
from catchment.errors import CatchmentError
from catchment.testing.clock import FakeClock
from catchment.testing.dying import Died, lost_reply

T = TypeVar("T")
Task = Callable[[Bucket], object]


@dataclass(frozen=True)
class Explored:
    """What an exploration covered."""

    runs: int  # schedules that were run, cut short ones included
    states: int  # distinct states seen
    complete: bool  # False: the limit was reached before every order had been seen


class InvariantBroken(AssertionError):
    """An invariant failed. The message has the schedule that leads there, call by call."""


@dataclass(frozen=True)
class _Choice:
    """Let task `task` make its call; then let it go on ('step'), die ('crash'), or miss the answer ('lost')."""

    task: int
    how: str


@dataclass
class _Runner:
    """One task in its thread, stopped before each of its calls."""

    index: int
    name: str
    task: Task
    incarnation: int = 0
    pending: str | None = None  # the call it wants to make
    seen: str = ""  # a hash over all the answers it got
    finished: bool = False
    failure: BaseException | None = None
    fate: str = "step"  # what happens to it at its next call
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))


class Interleaver:
    """Explores all orders of the tasks' bucket calls.

    tasks: by name. Each is called with a bucket whose `name` is `<task>.<incarnation>`: a new owner id for each start.
    setup: puts the first objects into the empty bucket.
    invariant: called with the memory bucket after every call; raises AssertionError when it does not hold.
    final: the same, once all tasks have ended.
    crashes, lost: how many crashes and lost replies one run may have in all. A task that died starts again.
    expected: errors by which a task may end without that being a failure.
    limit: how many runs at the most.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task],
        *,
        setup: Callable[[Bucket], object] = lambda bucket: None,
        invariant: Callable[[MemoryBucket], object] = lambda bucket: None,
        final: Callable[[MemoryBucket], object] = lambda bucket: None,
        crashes: int = 0,
        lost: int = 0,
        expected: tuple[type[BaseException], ...] = (),
        limit: int = 200_000,
    ) -> None:
        self._tasks = tasks
        self._setup, self._invariant, self._final = setup, invariant, final
        self._crashes, self._lost, self._expected, self._limit = crashes, lost, expected, limit
        self._states: set[bytes] = set()

    def explore(self) -> Explored:
        """Run everything. InvariantBroken on the first schedule that breaks the invariant."""
        schedule: list[int] = []
        runs = 0
        while True:
            runs += 1
            options = _Run(self, schedule).execute()
            # Back up to the last choice that has an alternative left.
            schedule = (schedule + [0] * len(options))[: len(options)]
            while schedule and schedule[-1] + 1 >= options[len(schedule) - 1]:
                schedule.pop()
            if not schedule:
                return Explored(runs, len(self._states), complete=True)
            if runs >= self._limit:
                return Explored(runs, len(self._states), complete=False)
            schedule[-1] += 1


class _Run:
    """One schedule, from an empty bucket to the end or to a state that is known already."""

    def __init__(self, plan: Interleaver, schedule: Sequence[int]) -> None:
        self._plan, self._schedule = plan, schedule
        self._bucket = MemoryBucket(clock=FakeClock())
        self._runners = [_Runner(i, name, task) for i, (name, task) in enumerate(plan._tasks.items())]
        self._back = threading.Semaphore(0)  # a runner stopped or ended: the scheduler's turn
        self._trace: list[str] = []
        self._crashes, self._lost = plan._crashes, plan._lost
        self._stopping = False

    def execute(self) -> list[int]:
        """The number of options there was at each step."""
        options: list[int] = []
        self._plan._setup(self._bucket)
        try:
            for runner in self._runners:
                self._start(runner)
            while choices := self._choices():
                depth = len(options)
                # States on the way to where this schedule differs from the last one have been looked at.
                if depth >= len(self._schedule) and not self._new_state():
                    return options
                pick = self._schedule[depth] if depth < len(self._schedule) else 0
                if pick >= len(choices):
                    raise InvariantBroken(
                        self._told("a task did something else than the last time on the same answers")
                    )
                options.append(len(choices))
                self._take(choices[pick])
                self._judge(self._plan._invariant)
            self._judge(self._plan._final)
            return options
        finally:
            self._stop()

    def call(self, runner: _Runner, operation: str, key: str, do: Callable[[], T]) -> T:
        """In a task's thread: stop, wait for the turn, make the call."""
        runner.pending = f"{operation} {key}"
        self._back.release()
        runner.go.acquire()
        if self._stopping:
            raise Died
        answer: object
        try:
            result = do()
            answer = result if not isinstance(result, _Rows) else result.rows
        except CatchmentError as error:
            answer = error
            raise
        finally:
            seen = f"{runner.seen}|{runner.fate}|{operation} {key}|{answer!r}"
            runner.seen = hashlib.sha256(seen.encode()).hexdigest()
            if runner.fate == "crash":
                raise Died
        if runner.fate == "lost":
            raise lost_reply(key)
        return result

    def _start(self, runner: _Runner) -> None:
        runner.pending, runner.fate = None, "step"
        bucket = _Gate(self._bucket, self, runner)

        def body() -> None:
            try:
                runner.task(bucket)
            except Died:
                pass
            except BaseException as error:
                runner.failure = error
            runner.finished = True
            self._back.release()

        threading.Thread(target=body, daemon=True, name=bucket.name).start()
        self._back.acquire()

    def _choices(self) -> list[_Choice]:
        found = [_Choice(r.index, "step") for r in self._runners if not r.finished]
        if self._crashes:
            found += [_Choice(choice.task, "crash") for choice in found if choice.how == "step"]
        if self._lost:
            found += [_Choice(choice.task, "lost") for choice in found if choice.how == "step"]
        return found

    def _take(self, choice: _Choice) -> None:
        runner = self._runners[choice.task]
        runner.fate = choice.how
        note = {"step": "", "crash": "  † then dies", "lost": "  … and the answer is lost"}[choice.how]
        self._trace.append(f"{runner.name}.{runner.incarnation}: {runner.pending}{note}")
        runner.go.release()
        self._back.acquire()
        if choice.how == "crash":
            self._crashes -= 1
            runner.incarnation += 1
            runner.finished, runner.failure, runner.seen = False, None, ""
            self._start(runner)
        elif choice.how == "lost":
            self._lost -= 1
        if runner.failure is not None and not isinstance(runner.failure, self._plan._expected):
            raise InvariantBroken(
                self._told(f"task {runner.name} failed: {type(runner.failure).__name__}: {runner.failure}")
            ) from runner.failure

    def _new_state(self) -> bool:
        tasks = tuple((r.incarnation, r.finished, r.pending, r.seen) for r in self._runners)
        text = repr((self._bucket.history(), tasks, self._crashes, self._lost))
        state = hashlib.sha256(text.encode()).digest()[:16]
        known = state in self._plan._states
        self._plan._states.add(state)
        return not known

    def _judge(self, check: Callable[[MemoryBucket], object]) -> None:
        try:
            check(self._bucket)
        except AssertionError as error:
            raise InvariantBroken(self._told(str(error) or "the invariant does not hold")) from error

    def _told(self, what: str) -> str:
        steps = "".join(f"\n  {number}. {line}" for number, line in enumerate(self._trace, start=1))
        return f"{what}, after{steps}"

    def _stop(self) -> None:
        """End the threads that are still waiting for a turn."""
        self._stopping = True
        for runner in self._runners:
            while not runner.finished:
                runner.go.release()
                self._back.acquire()


@dataclass(frozen=True)
class _Rows:
    """A listing as one answer."""

    rows: tuple[Entry | Folder, ...]


class _Gate(Wrapper):
    """What a task sees: the memory bucket, with a stop before each call."""

    def __init__(self, inner: MemoryBucket, run: _Run, runner: _Runner) -> None:
        super().__init__(inner)
        self.name = f"{runner.name}.{runner.incarnation}"
        self._run, self._runner = run, runner

    def _call(self, operation: str, key: str, do: Callable[[], T]) -> T:
        return self._run.call(self._runner, operation, key, do)

    @contextmanager
    def open(self, key: str, *, version: str | None = None, etag: str | None = None) -> Iterator[BinaryIO]:
        yield BytesIO(self._call("open", key, lambda: self.inner.get(key, version=version, etag=etag)))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[Entry]:
        found = self._call("list", prefix, lambda: _Rows(tuple(self.inner.list(prefix, after=after))))
        return iter([row for row in found.rows if isinstance(row, Entry)])

    def children(self, prefix: str = "", *, after: str = "") -> Iterator[Entry | Folder]:
        return iter(self._call("children", prefix, lambda: _Rows(tuple(self.inner.children(prefix, after=after)))).rows)

"""Every order in which two or three tasks can make their bucket calls, with the invariant checked after each call.

A task is a function of a bucket. The explorer keeps, for each state, the bucket and the answers that every task has
had so far. To let a task go on, it makes the call that the task waits for, on a fork of the bucket, and runs the task
again from its start, handing it the answers it knows, until it asks for something new. So each step of each order is
taken once, there are no threads, and an error shows the schedule that leads to it. Two things may be added to the
choices: a task that dies right after a call (and is started again), and a reply that is lost after the call took
effect.

A state is what the bucket holds plus what every task has seen. Tasks are deterministic, so a state that was met before
needs no second look: that is what makes a full exploration cheap. It is also why a task must get its randomness and
its time from the test, and keep nothing outside itself: one that behaves differently on the same answers is reported
as an error.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, BinaryIO, TypeVar

from catchment.bucket.contract import ANY, Body, Bucket, Entry, Folder, Precondition, Stat, Tags
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Wrapper
from catchment.errors import CatchmentError
from catchment.testing.clock import FakeClock
from catchment.testing.dying import Died, lost_reply

T = TypeVar("T")
Task = Callable[[Bucket], object]
Check = Callable[[MemoryBucket], object]

STEP, CRASH, LOST = "step", "crash", "lost"
_NOTES = {STEP: "", CRASH: "  † then dies", LOST: "  … and the answer is lost"}


@dataclass(frozen=True)
class Explored:
    """What an exploration covered."""

    runs: int  # schedules that were followed, to their end or to a state that was known already
    states: int  # distinct states seen
    complete: bool  # False: the limit was reached before every order had been seen, or it was a sample


class InvariantBroken(AssertionError):
    """An invariant failed. The message has the schedule that leads there, call by call."""


class Interleaver:
    """Explores all orders of the tasks' bucket calls.

    tasks: by name. Each is called with a bucket whose `name` is `<task>.<incarnation>`: a new owner id for each start.
    setup: puts the first objects into the empty bucket.
    invariant: called with the memory bucket after every call; raises AssertionError when it does not hold.
    relation: the same, with the bucket as it was before the call and as it is after it: for what must never shrink.
    final: the same, once all tasks have ended.
    crashes, lost: how many crashes and lost replies one run may have in all. A task that died starts again.
    expected: errors by which a task may end without that being a failure.
    limit: how many runs at the most.
    versions: whether the bucket keeps old versions. Without them there are fewer states.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task],
        *,
        setup: Callable[[Bucket], object] = lambda bucket: None,
        invariant: Check = lambda bucket: None,
        relation: Callable[[MemoryBucket, MemoryBucket], object] = lambda before, after: None,
        final: Check = lambda bucket: None,
        crashes: int = 0,
        lost: int = 0,
        expected: tuple[type[BaseException], ...] = (),
        limit: int = 200_000,
        versions: bool = True,
    ) -> None:
        self._tasks = list(tasks.items())
        self._setup, self._invariant, self._relation, self._final = setup, invariant, relation, final
        self._crashes, self._lost, self._expected, self._limit = crashes, lost, expected, limit
        self._versions = versions
        self._states: set[bytes] = set()
        self._resumed: dict[tuple[int, int, str], _Known] = {}  # a task goes on in the same way on the same answers
        self._trace: list[str] = []
        self._runs = 0

    def explore(self) -> Explored:
        """Every order. InvariantBroken on the first schedule that breaks the invariant."""
        complete = self._descend(self._root())
        return Explored(self._runs, len(self._states), complete=complete)

    def sample(self, runs: int, *, seed: int = 0) -> Explored:
        """So many schedules by chance, each to its end: for more tasks than every order could be tried of."""
        chance = random.Random(seed)
        for _ in range(runs):
            here = self._root()
            while choices := self._choices(here):
                self._states.add(here.digest())
                here = self._take(here, *chance.choice(choices))
            self._judge(self._final, here.bucket)
            self._trace.clear()
        return Explored(runs, len(self._states), complete=False)

    def _root(self) -> _State:
        bucket = MemoryBucket(clock=FakeClock(), versions=self._versions)
        self._setup(bucket)
        tasks = tuple(self._resume(index, _Known()) for index in range(len(self._tasks)))
        return _State(bucket, tasks, self._crashes, self._lost)

    def _descend(self, here: _State) -> bool:
        """Follow every order from here. Whether all of them were, within the limit."""
        choices = self._choices(here)
        if not choices:
            self._judge(self._final, here.bucket)
        digest = here.digest()
        if not choices or digest in self._states:
            self._runs += 1
            return True
        self._states.add(digest)
        for index, how in choices:
            if self._runs >= self._limit:
                return False
            there = self._take(here, index, how)
            if not self._descend(there):
                return False
            self._trace.pop()
        return True

    def _choices(self, here: _State) -> list[tuple[int, str]]:
        able = [index for index, known in enumerate(here.tasks) if known.call is not None]
        kinds = [STEP] + [CRASH] * (here.crashes > 0) + [LOST] * (here.lost > 0)
        return [(index, how) for how in kinds for index in able]

    def _take(self, here: _State, index: int, how: str) -> _State:
        """Let one task make its call, and then go on, die, or miss the answer."""
        known = here.tasks[index]
        call = known.call
        assert call is not None
        name = self._tasks[index][0]
        self._trace.append(f"{name}.{known.incarnation}: {call.text}{_NOTES[how]}")
        bucket = here.bucket.fork()
        answer = call.make(bucket)
        if how == CRASH:
            after = _Known(incarnation=known.incarnation + 1)
        else:
            given = _Answer(None, lost_reply(call.key)) if how == LOST else answer
            after = known.told(call, given)
        there = self._resume(index, after)
        tasks = (*here.tasks[:index], there, *here.tasks[index + 1 :])
        state = _State(bucket, tasks, here.crashes - (how == CRASH), here.lost - (how == LOST))
        self._judge(self._invariant, bucket)
        self._judge(lambda after: self._relation(here.bucket, after), bucket)
        return state

    def _resume(self, index: int, known: _Known) -> _Known:
        """Run the task from its start over the answers it has had, up to the first call that is new."""
        place = (index, known.incarnation, known.seen)
        if place not in self._resumed:
            self._resumed[place] = self._run(index, known)
        return self._resumed[place]

    def _run(self, index: int, known: _Known) -> _Known:
        name, task = self._tasks[index]
        gate = _Gate(f"{name}.{known.incarnation}", known.answers)
        try:
            task(gate)
        except (_Waiting, Died):
            pass
        except _Strayed:
            gate.strayed = True
        except BaseException as error:
            if not gate.waiting and not gate.strayed and not isinstance(error, self._expected):
                raise InvariantBroken(self._told(f"task {name} failed: {type(error).__name__}: {error}")) from error
        if gate.strayed or (not gate.waiting and gate.used < len(known.answers)):
            raise InvariantBroken(self._told("a task did something else than the last time on the same answers"))
        return replace(known, call=gate.waiting)

    def _judge(self, check: Check, bucket: MemoryBucket) -> None:
        try:
            check(bucket)
        except AssertionError as error:
            raise InvariantBroken(self._told(str(error) or "the invariant does not hold")) from error

    def _told(self, what: str) -> str:
        steps = "".join(f"\n  {number}. {line}" for number, line in enumerate(self._trace, start=1))
        return f"{what}, after{steps}"


@dataclass(frozen=True)
class _Answer:
    """What a call gave, or raised."""

    value: Any
    error: CatchmentError | None = None

    def give(self) -> Any:
        if self.error is not None:
            self.error.__context__ = None  # of the last time it was raised
            raise self.error.with_traceback(None)
        return self.value

    def __repr__(self) -> str:
        return repr(self.error if self.error is not None else self.value)


@dataclass(frozen=True)
class _Call:
    """A call that a task waits to make."""

    text: str
    key: str
    gate: _Gate
    do: Callable[[], Any]

    def make(self, bucket: MemoryBucket) -> _Answer:
        self.gate.inner = bucket
        try:
            return _Answer(self.do())
        except CatchmentError as error:
            return _Answer(None, error)


@dataclass(frozen=True)
class _Known:
    """One task as far as it has come."""

    incarnation: int = 0
    answers: tuple[tuple[str, _Answer], ...] = ()  # each with the call that it answered
    seen: str = ""  # a hash over them
    call: _Call | None = None  # the next one; None: it has ended

    def told(self, call: _Call, given: _Answer) -> _Known:
        text = f"{self.seen}|{call.text}|{given!r}"
        seen = hashlib.sha256(text.encode()).hexdigest()
        return _Known(self.incarnation, (*self.answers, (call.text, given)), seen)


@dataclass(frozen=True)
class _State:
    """Where a run stands."""

    bucket: MemoryBucket
    tasks: tuple[_Known, ...]
    crashes: int  # that are still allowed
    lost: int

    def digest(self) -> bytes:
        tasks = tuple((task.incarnation, task.call.text if task.call else None, task.seen) for task in self.tasks)
        text = repr((self.bucket.history(), tasks, self.crashes, self.lost))
        return hashlib.sha256(text.encode()).digest()[:16]


class _Waiting(BaseException):
    """The task has reached a call that is new. Not an Exception, so that no `except Exception` of it goes on."""


class _Strayed(BaseException):
    """The task made another call than before on the same answers."""


class _Gate(Wrapper):
    """What a task sees: the answers it has had before, then a stop."""

    def __init__(self, name: str, answers: tuple[tuple[str, _Answer], ...]) -> None:
        super().__init__(_NOWHERE)
        self.name = name
        self.used = 0
        self.waiting: _Call | None = None
        self.strayed = False
        self._answers = answers

    def _call(self, operation: str, key: str, do: Callable[[], T]) -> T:
        if self.strayed or self.waiting is not None:  # a call on the way out: a process that waits makes none
            raise _Strayed if self.strayed else _Waiting
        text = f"{operation} {key}"
        if self.used == len(self._answers):
            self.waiting = _Call(text, key, self, do)
            raise _Waiting
        before, answer = self._answers[self.used]
        if before != text:
            self.strayed = True
            raise _Strayed
        self.used += 1
        found: T = answer.give()
        return found

    def put(self, key: str, body: Body, *, when: Precondition = ANY, tags: Tags | None = None) -> Stat:
        # Now, because a file may be gone by the time that the call is made.
        content = body if isinstance(body, bytes) else body.read_bytes()
        return super().put(key, content, when=when, tags=tags)

    @contextmanager
    def open(self, key: str, *, version: str | None = None, etag: str | None = None) -> Iterator[BinaryIO]:
        yield BytesIO(self._call("open", key, lambda: self.inner.get(key, version=version, etag=etag)))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[Entry]:
        return iter(self._call("list", prefix, lambda: tuple(self.inner.list(prefix, after=after))))

    def children(self, prefix: str = "", *, after: str = "") -> Iterator[Entry | Folder]:
        return iter(self._call("children", prefix, lambda: tuple(self.inner.children(prefix, after=after))))


_NOWHERE = MemoryBucket(name="nowhere")

"""The timelines of the exporter's reference design, row by row.

There every type has a file of its own that is closed by itself, so the offset that may be committed is the least over
all types. Here a range holds *all* types between two offsets and is committed at once: a row in which a file is closed
is a row in which a range is due, and a row in which a writer fails is one in which its range is claimed and waits. The
`means` of each row says what becomes of it. After every row: no event below the committed offset is missing from the
committed files, none is in two of them, and the hint does not run ahead of the manifests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from catchment.bucket.contract import Bucket
from catchment.bucket.wrap import Counting, Wrapper
from catchment.errors import Unreachable
from catchment.testing.clock import FakeClock
from catchment.testing.dying import Died
from catchment.testing.topics import FakeKafka, PlainWriter
from catchment.topics import offsets
from catchment.topics.export import Exporter
from catchment.topics.names import Place, Source
from catchment.topics.work import Reading
from tests.unit.topics.lakes import MONITOR, TOPIC, bounds, export, manifests, memory
from tests.unit.topics.lakes import offsets as exported

PLACE = Place("g", "events")
ONLY = Source(0)
T = TypeVar("T")


class Refusing(Wrapper):
    """A bucket that takes nothing into some folders, while it is told so."""

    def __init__(self, inner: Bucket) -> None:
        super().__init__(inner)
        self.refused: frozenset[str] = frozenset()  # type=a

    def _call(self, operation: str, key: str, do: Callable[[], T]) -> T:
        if operation == "put" and self.refused & set(key.split("/")):
            raise Unreachable(f"{key} is refused", key=key)
        return do()


class Line:
    """One Kafka partition over time, and those who export it."""

    def __init__(self, *, by: str = "type", names: dict[str, str] | None = None, **values: Any) -> None:
        """`names`: what the letters of events stand for; themselves, if they are not given."""
        self.bucket, self.clock, self.kafka = memory(), FakeClock(), FakeKafka()
        self.kafka.create("events")
        self.refusing = Refusing(self.bucket)
        self._by, self._names = by, names or {}
        self._export = export(**{"policy": {"max_age": "5m"}, **values})
        self._made = 0
        self.arrived = 0

    def arrive(self, letters: str) -> None:
        """One event for each letter, at the end of the Kafka partition."""
        events = [json.dumps({self._by: self._names.get(letter, letter)}).encode() for letter in letters]
        self.kafka.append("events", 0, *events)
        self.arrived += len(events)

    def replica(
        self,
        *,
        owner: str = "",
        bucket: Bucket | None = None,
        gone: bool = True,
        on_step: Callable[[str], object] = lambda name: None,
        **values: Any,
    ) -> Exporter:
        """A process that has just been started; `gone`: all others seem dead to it."""
        self._made += 1
        bucket = bucket or self.refusing
        return Exporter(
            TOPIC,
            export(**values) if values else self._export,
            bucket=bucket,
            kafka=self.kafka,
            writer=PlainWriter(bucket, self.kafka, by=self._by),
            reading=Reading("localhost:9092", {}),
            owner=owner or f"replica-{self._made}",
            gone=lambda owner: gone,
            monitor=MONITOR,
            clock=self.clock,
            on_step=on_step,
        )

    def settle(self, one: Exporter) -> None:
        """Steps until there is nothing to do at once, or it fails: what the loop around it does."""
        try:
            for _ in range(20):
                if not one.step().again:
                    return
        except Unreachable:
            return
        raise AssertionError("there is always more to do")

    def settle_all(self, those: Sequence[Exporter]) -> None:
        """Until everything in Kafka is committed, whatever its age."""
        for _ in range(20):
            for one in those:
                one.step(flush=True)

    def committed(self) -> int:
        """The committed offset, from the manifests; what must hold at every moment is checked on the way."""
        end = 0
        for manifest in manifests(self.bucket):
            assert manifest.first == end, "the chain has a gap, or an overlap"
            end = manifest.next
        inside = [offset for _, offset in exported(self.bucket)]
        assert inside == list(range(end)), "an event below the committed offset is missing, or in two files"
        assert offsets.read_hint(self.bucket, PLACE, ONLY, 0).hint.next <= end, "the hint promises too much"
        return end

    def leftovers(self) -> list[str]:
        """Export files that no manifest lists."""
        listed = {file.key for manifest in manifests(self.bucket) for file in manifest.files}
        return sorted(key for key in self._files() if key not in listed)

    def _files(self) -> Iterator[str]:
        for entry in self.bucket.list(PLACE.prefix):
            if not entry.key.removeprefix(PLACE.prefix).startswith("_"):
                PLACE.parse_file(entry.key)  # ValueError if it is something else
                yield entry.key


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    at: str
    arrive: str  # the events that come before it
    minutes: float  # that pass before it
    committed: int  # the offset, after it
    means: str
    refused: str = ""  # the writers that fail at it


HAPPY = [
    Row("t1", "aaaa", 5, 4, "A's age is reached: the range [0, O1) is cut and committed; O1, as in the reference"),
    Row("t2", "b", 1, 4, "B's first event came; nothing is due"),
    Row("t3", "bbbc", 2, 4, "C's first event came; nothing is due"),
    Row("t4", "cbb", 2, 12, "B's age is reached: the range is cut at Kafka's end, C's events with it; reference: O3"),
    Row("t5", "ccccccc", 5, 19, "C's age is reached: O5"),
]
UNHAPPY = [
    Row("t1", "aaaa", 5, 0, "[0, O1) is claimed, A's file is refused: nothing is committed", "a"),
    Row("t2", "b", 1, 0, "the claim keeps its bounds and is tried again; B's event waits in Kafka", "a"),
    Row("t3", "bbb", 1, 4, "A's file is there: [0, O1) is committed, and B's events are not in it; reference: O2"),
    Row("t4", "aba", 1, 4, "A has new events; nothing is due"),
    Row("t5", "bbc", 1, 4, "C's first event came; nothing is due"),
    Row("t6", "cbcb", 1, 18, "B's age is reached: everything up to Kafka's end, all three types; reference: O5"),
    Row("t7", "cccc", 5, 22, "C's age is reached: O7"),
]
DAYS = {"0": "2026-01-01", "1": "2026-01-02", "2": "2026-01-03"}
OVERLAP = [
    Row("t0", "1", 0, 0, "D1 begins; nothing is due"),
    Row("t1", "11112", 2, 0, "D2 begins; nothing is due"),
    Row("t2", "21111", 3, 11, "the age is reached: one range with D1 and D2; reference: O1, because D2 is open"),
    Row("t3", "1121222", 5, 18, "the same again; reference: O2, because D1 is open again"),
    Row("t4", "1111", 5, 22, "D1's last: O4"),
    Row("t5", "0", 1, 22, "D0, two days late, begins; nothing is due: O5"),
    Row("t6", "0000", 4, 27, "D0 is committed by the same chain as the later days: O6"),
]
SPARSE = [
    Row("t1", "aaaz", 5, 4, "the rare type is in the same range as the frequent one"),
    Row(
        "t2", "aaaaaa", 60, 10, "an hour without Z: Z is not behind, since the range that was committed had room for it"
    ),
    Row("t3", "", 60, 10, "an hour without anything: a heartbeat, and no object more"),
    Row("t4", "aza", 5, 10, "Z's writer fails: this is not the same as no event of Z, and nothing is committed", "z"),
    Row("t5", "aaa", 5, 16, "Z's writer is back: its range as it was claimed, then the rest, whose age is reached too"),
]
TABLES: dict[str, tuple[list[Row], dict[str, Any]]] = {
    "happy": (HAPPY, {}),
    "unhappy": (UNHAPPY, {}),
    "overlap": (OVERLAP, {"by": "day", "names": DAYS}),
    "sparse": (SPARSE, {}),
}


@pytest.mark.parametrize("dies", ["never", "between", "look", "claim", "write", "commit", "advance"])
@pytest.mark.parametrize("table", TABLES)
def test_every_row_of_a_timeline_whoever_dies_and_when(table: str, dies: str) -> None:
    """One process for all rows; a new one for each; or in each row one that dies in the middle of it, and a new one."""
    rows, how = TABLES[table]
    line = Line(**how)
    steady = line.replica()
    line.settle(steady)  # it is there before the first event, as all tables have it
    for row in rows:
        line.arrive(row.arrive)
        line.clock.advance(row.minutes * 60)
        line.refusing.refused = frozenset(f"type={letter}" for letter in row.refused)
        if dies not in ("never", "between"):
            _die(line, dies)
            line.committed()
        line.settle(steady if dies == "never" else line.replica())
        assert line.committed() == row.committed, f"{row.at}: {row.means}"
    assert line.committed() == line.arrived
    assert not line.leftovers()  # bounds never changed, so every attempt wrote the same names


def _die(line: Line, step: str) -> None:
    def die(name: str) -> None:
        if name == step:
            raise Died

    try:
        line.settle(line.replica(on_step=die))
    except Died:
        pass


def test_a_day_that_comes_late_is_committed_in_the_folder_of_its_day() -> None:
    """The files of the overlap, by range and day: no offset has to be looked for in the files of any day."""
    line = Line(by="day", names=DAYS)
    one = line.replica()
    line.settle(one)
    for row in OVERLAP:
        line.arrive(row.arrive)
        line.clock.advance(row.minutes * 60)
        line.settle(one)
    assert [[file.key.split("/")[3][-2:] for file in manifest.files] for manifest in manifests(line.bucket)] == [
        ["02", "03"],
        ["02", "03"],
        ["02"],
        ["01"],
    ]


@pytest.mark.parametrize("first", ["C1", "C2"])
@pytest.mark.parametrize("claim", ["stands", "is lost"])
@pytest.mark.parametrize("o1, o2", [(4, 7), (7, 4), (5, 5)])
def test_rebalancing(o1: int, o2: int, claim: str, first: str) -> None:
    """Two at work on the same offsets: C1 up to O1, C2 up to O2, and either of them ends first."""
    line = Line()
    c1 = line.replica(owner="C1", gone=False, policy={"max_messages": o1})
    line.arrive("aabbabbabaa")
    # t0: C1 claims [O0, O1) and begins to write; then it seems dead.
    line.refusing.refused = frozenset({"type=b"})
    line.settle(c1)
    assert offsets.read_hint(line.bucket, PLACE, ONLY, 0).hint.claim == _claim(0, o1 - 1, "C1")
    line.refusing.refused = frozenset()
    assert line.committed() == 0
    # t1: C2 takes over. A claim that stands is taken with its bounds; if the hint is lost it cuts where it likes.
    if claim == "is lost":
        line.bucket.delete(PLACE.hint(ONLY))
    expected = o2 if claim == "is lost" and first == "C2" else o1
    seen: list[int] = []

    def meanwhile(name: str) -> None:
        """t2: C2 has written all and committed nothing, when C1 wakes and goes on where it was."""
        if name == ("write" if first == "C1" else "commit") and not seen:
            seen.append(line.committed())
            c1.step()
            seen.append(line.committed())

    c2 = line.replica(owner="C2", on_step=meanwhile, policy={"max_messages": o2})
    c2.step()
    # t3: whoever came first decides where the first range ends; the other one takes its word.
    assert seen == ([0, expected] if first == "C1" else [expected, expected])
    assert line.committed() == expected
    assert next(iter(manifests(line.bucket))).owner == first
    if claim == "stands":
        assert not line.leftovers()
    elif o1 != o2:
        assert (
            line.leftovers()
        )  # what the loser wrote under other bounds: in no manifest, so for no reader by manifests
    # Afterwards: both go on, and meet no more.
    for _ in range(6):
        c1.step(flush=True)
        c2.step(flush=True)
    assert line.committed() == line.arrived


def _claim(first: int, last: int, owner: str) -> object:
    class Same:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, offsets.Claim) and (other.first, other.last, other.owner) == (first, last, owner)

    return Same()


@pytest.mark.parametrize("cut", [3, 8, 5])
def test_rebalancing_before_the_claim(cut: int) -> None:
    """C1 has looked and is paused; C2 looks later, cuts elsewhere and commits; C1's look is then worth nothing."""
    line = Line()
    line.arrive("ababa")
    c2 = line.replica(owner="C2", policy={"max_messages": cut, "max_age": "1s"})

    def overtake(name: str) -> None:
        if name == "look" and not line.committed():
            line.arrive("bbb")
            c2.step(flush=True)

    c1 = line.replica(owner="C1", on_step=overtake)
    c1.step(flush=True)
    assert line.committed() == cut
    line.settle_all([c1, c2])
    assert line.committed() == 8


@pytest.mark.parametrize("claim", ["stands", "is lost"])
@pytest.mark.parametrize("second", [2, 5, 9])
def test_app_restart(second: int, claim: str) -> None:
    """S can write and F cannot; after the restart both can, and the policy cuts elsewhere."""
    line = Line(policy={"max_messages": 5, "max_age": "5m"})
    line.arrive("ssfssfsss")
    fails = frozenset({"type=s"})  # puts go in the order of the folders: F's file is there when S's is refused
    # First run. t0 to t1: [O0, O1) is claimed; one type's file is in place under its final name, the other is refused.
    line.refusing.refused = fails
    one = line.replica()
    line.settle(one)
    assert line.committed() == 0
    [left] = line.leftovers()
    before = line.bucket.head(left)
    # t2: another attempt. The file in place stays as it is; there is no second file with its events.
    line.settle(one)
    assert line.committed() == 0
    assert line.leftovers() == [left]
    # Second run, with other offsets: t1 and t2.
    if claim == "is lost":
        line.bucket.delete(PLACE.hint(ONLY))
    line.refusing.refused = frozenset()
    again = line.replica(policy={"max_messages": second, "max_age": "5m"})
    again.step(flush=True)
    first = 5 if claim == "stands" else second
    assert line.committed() == first
    if first == 5:
        assert line.bucket.head(left) == before  # the same object: not even written again
        assert not line.leftovers()
    else:
        assert line.leftovers() == [left]  # in no manifest: its events are committed in a file with other bounds
    # t3: the rest.
    line.settle_all([again])
    assert line.committed() == line.arrived
    assert bounds(line.bucket)[0] == ("0", 0, first - 1)


def test_sparse_types_cost_nothing_at_a_restart() -> None:
    """Where the reference looks for the latest file of every type, a restart here reads three objects."""
    line = Line()
    line.arrive("".join(chr(ord("a") + n) for n in range(20)))
    line.settle_all([line.replica()])
    line.arrive("a" * 10)
    line.settle_all([line.replica()])
    counted = Counting(line.bucket)
    line.replica(bucket=counted).step()
    assert (counted.counts.requests["read"], counted.counts.requests["list"]) == (3, 0)


def test_an_idle_hour_leaves_a_heartbeat_and_no_object() -> None:
    line = Line()
    line.arrive("az")
    one = line.replica()
    line.settle_all([one])
    before = {entry.key for entry in line.bucket.list()}
    line.clock.advance(3600)
    line.settle(one)
    assert {entry.key for entry in line.bucket.list()} == before
    assert offsets.read_hint(line.bucket, PLACE, ONLY, 0).hint.watermark == "2026-01-01T01:00:00.000Z"

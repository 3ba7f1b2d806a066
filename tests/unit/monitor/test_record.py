from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.monitor import FAILED, OK, SKIPPED, Event, History, Monitor, Store
from catchment.monitor.event import MAX_NOTE, tidy
from catchment.testing.clock import FakeClock

MOMENT = datetime(2026, 11, 15, 8, tzinfo=UTC)


def monitor(tmp_path: Path, clock: FakeClock) -> Monitor:
    return Monitor(Store(tmp_path / "monitor.sqlite", clock=clock), clock=clock)


def test_what_is_recorded_can_be_read(tmp_path: Path) -> None:
    clock = FakeClock(MOMENT)
    with monitor(tmp_path, clock) as it:
        it.record("feeds/subway", "download", OK, duration=0.5, numbers={"bytes": 512}, note="fresh")
    assert History(tmp_path / "monitor.sqlite").events() == [
        Event(MOMENT, "feeds/subway", "download", OK, 0.5, {"bytes": 512.0}, "fresh")
    ]


def test_without_a_store_only_metrics_are_kept() -> None:
    with Monitor() as it:
        it.record("feeds/subway", "download", OK)
        it.declare("feeds/bus", "download")
    assert b'catchment_events_total{kind="download",outcome="ok",room="feeds"} 1.0' in it.metrics.render()


def test_timed_work(tmp_path: Path) -> None:
    clock = FakeClock(MOMENT)
    with monitor(tmp_path, clock) as it:
        with it.timed("tables/orders", "apply") as work:
            clock.advance(2)
            work.numbers["rows"] = 7
        with it.timed("tables/orders", "apply") as work:
            work.outcome, work.note = SKIPPED, "nothing new"
        with pytest.raises(ValueError, match="no such column"), it.timed("tables/orders", "apply"):
            raise ValueError("no such column")
    events = History(tmp_path / "monitor.sqlite").events()
    assert sorted((event.outcome, event.duration, dict(event.numbers), event.note) for event in events) == [
        (FAILED, 0.0, {}, "ValueError: no such column"),
        (OK, 2.0, {"rows": 7.0}, ""),
        (SKIPPED, 0.0, {}, "nothing new"),
    ]


def test_a_store_in_trouble_does_not_stop_the_work(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("not a folder")
    clock = FakeClock()
    with Monitor(Store(tmp_path / "file" / "monitor.sqlite", clock=clock), clock=clock) as it:
        for _ in range(3):
            it.record("feeds/subway", "download", OK)
        it.declare("feeds/subway", "download")
        assert it.store is not None
        assert it.store.dropped == 3
    assert b"catchment_monitor_dropped_records_total 3.0" in it.metrics.render()
    assert len(caplog.records) == 1


def test_the_room_is_the_first_part_of_the_subject() -> None:
    assert [Event(MOMENT, subject, "k", OK).room for subject in ("feeds/subway", "lake", "tables/a/b")] == [
        "feeds",
        "lake",
        "tables",
    ]


@given(st.text(), st.one_of(st.none(), st.floats()), st.dictionaries(st.text(max_size=5), st.floats(), max_size=3))
def test_tidied_events_can_always_be_kept(text: str, duration: float | None, numbers: dict[str, float]) -> None:
    event = tidy(Event(MOMENT, text, text, text, duration, numbers, text))
    assert event.subject.encode().decode() == event.subject
    assert all(math.isfinite(value) for value in event.numbers.values())
    assert event.duration is None or (event.duration >= 0 and math.isfinite(event.duration))
    assert tidy(event) == event


def test_long_notes_are_cut_and_broken_text_is_escaped() -> None:
    assert len(tidy(Event(MOMENT, "s", "k", OK, note="x" * 10_000)).note) == MAX_NOTE
    assert tidy(Event(MOMENT, "feeds/\udcff", "k", OK)).subject == "feeds/\\udcff"

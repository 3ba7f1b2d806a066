from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Counting
from catchment.monitor import FAILED, OK, SKIPPED, Metrics, Monitor, Store
from catchment.testing.clock import FakeClock

MOMENT = datetime(2026, 11, 15, 8, tzinfo=UTC)
SUBWAY = {"subject": "feeds/subway", "kind": "download"}


def read(metrics: Metrics, name: str, **labels: str) -> float | None:
    """The value as Prometheus would read it; None if it is not there."""
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return float(sample.value)
    return None


def test_events_are_counted_by_room_kind_and_outcome() -> None:
    monitor = Monitor(clock=FakeClock(MOMENT))
    for subject in ("feeds/subway", "feeds/bus"):
        monitor.record(subject, "download", OK, duration=0.3)
    monitor.record("feeds/bus", "download", FAILED)
    assert read(monitor.metrics, "catchment_events_total", room="feeds", kind="download", outcome=OK) == 2
    assert read(monitor.metrics, "catchment_events_total", room="feeds", kind="download", outcome=FAILED) == 1
    assert read(monitor.metrics, "catchment_duration_seconds_count", room="feeds", kind="download") == 2
    assert read(monitor.metrics, "catchment_duration_seconds_bucket", room="feeds", kind="download", le="0.25") == 0
    assert read(monitor.metrics, "catchment_duration_seconds_bucket", room="feeds", kind="download", le="0.5") == 2


def test_gauges_of_declared_subjects_are_there_from_the_start() -> None:
    monitor = Monitor()
    assert read(monitor.metrics, "catchment_last_success_timestamp_seconds", **SUBWAY) is None
    monitor.declare("feeds/subway", "download")
    assert read(monitor.metrics, "catchment_last_success_timestamp_seconds", **SUBWAY) == 0
    assert read(monitor.metrics, "catchment_consecutive_errors", **SUBWAY) == 0


def test_gauges_follow_the_events() -> None:
    monitor = Monitor(clock=FakeClock(MOMENT))
    for outcome in (FAILED, FAILED, SKIPPED):
        monitor.record("feeds/subway", "download", outcome)
    assert read(monitor.metrics, "catchment_consecutive_errors", **SUBWAY) == 2
    assert read(monitor.metrics, "catchment_last_success_timestamp_seconds", **SUBWAY) == 0
    monitor.record("feeds/subway", "download", OK)
    assert read(monitor.metrics, "catchment_consecutive_errors", **SUBWAY) == 0
    assert read(monitor.metrics, "catchment_last_success_timestamp_seconds", **SUBWAY) == MOMENT.timestamp()


def test_gauges_go_on_after_a_restart_and_counters_begin_anew(tmp_path: Path) -> None:
    clock = FakeClock(MOMENT)
    with Monitor(Store(tmp_path / "monitor.sqlite", clock=clock), clock=clock) as before:
        before.record("feeds/subway", "download", OK)
        clock.advance(60)
        before.record("feeds/subway", "download", FAILED)
    with Monitor(Store(tmp_path / "monitor.sqlite", clock=clock), clock=clock) as after:
        after.declare("feeds/subway", "download")
    assert read(after.metrics, "catchment_last_success_timestamp_seconds", **SUBWAY) == MOMENT.timestamp()
    assert read(after.metrics, "catchment_consecutive_errors", **SUBWAY) == 1
    assert read(after.metrics, "catchment_events_total", room="feeds", kind="download", outcome=OK) is None


def test_requests_and_bytes_of_buckets() -> None:
    metrics = Metrics()
    bucket = Counting(MemoryBucket())
    metrics.watch_bucket("main", bucket.counts)
    bucket.put("a", b"12345")
    bucket.put("b", b"")
    bucket.get("a")
    assert read(metrics, "catchment_bucket_requests_total", storage="main", operation="put") == 2
    assert read(metrics, "catchment_bucket_requests_total", storage="main", operation="get") == 1
    assert read(metrics, "catchment_bucket_bytes_total", storage="main", direction="sent") == 5
    assert read(metrics, "catchment_bucket_bytes_total", storage="main", direction="received") == 5


def test_two_monitors_in_one_process_do_not_mix() -> None:
    one, other = Monitor(), Monitor()
    one.record("feeds/subway", "download", OK)
    assert read(other.metrics, "catchment_events_total", room="feeds", kind="download", outcome=OK) is None

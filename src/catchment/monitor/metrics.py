"""Every Prometheus metric of Catchment, declared here and nowhere else."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from catchment.bucket.wrap import Counts
from catchment.clock import SYSTEM, Clock
from catchment.monitor.event import FAILED, OK, Event
from catchment.monitor.history import Totals

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# From a cached answer to a long merge.
BUCKETS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


class Metrics:
    """The metrics of one process, in a registry of their own. Counters begin at zero with the process, as Prometheus
    expects; the two gauges go on from what the store knows (`declare`).
    """

    def __init__(self, *, clock: Clock = SYSTEM) -> None:
        self.registry = CollectorRegistry()
        self._events = Counter(
            "catchment_events", "What happened.", ("room", "kind", "outcome"), registry=self.registry
        )
        self._durations = Histogram(
            "catchment_duration_seconds", "How long it took.", ("room", "kind"), registry=self.registry, buckets=BUCKETS
        )
        self._last_success = Gauge(
            "catchment_last_success_timestamp_seconds",
            "When it last succeeded, in seconds since 1970; 0 means never.",
            ("subject", "kind"),
            registry=self.registry,
        )
        self._errors = Gauge(
            "catchment_consecutive_errors",
            "Failures since the last success.",
            ("subject", "kind"),
            registry=self.registry,
        )
        self.dropped = Counter(
            "catchment_monitor_dropped_records",
            "Records that the monitor's store could not keep.",
            registry=self.registry,
        )
        self.replica_failures = Counter(
            "catchment_replica_refresh_failures",
            "Times that this process could not refresh its record in the bucket.",
            registry=self.registry,
        )
        self._staleness = _Staleness(clock)
        self.registry.register(self._staleness)
        self._buckets = _Buckets()
        self.registry.register(self._buckets)

    def declare(self, subject: str, kind: str, known: Totals | None = None) -> None:
        """Have the gauges of this subject from now on. `known` is what was stored by earlier runs."""
        success = known.last_success.timestamp() if known and known.last_success else 0.0
        self._last_success.labels(subject, kind).set(success)
        self._staleness.since(subject, kind, success or None)
        self._errors.labels(subject, kind).set(known.errors_in_a_row if known else 0)

    def observe(self, event: Event) -> None:
        """Count one event."""
        self._events.labels(event.room, event.kind, event.outcome).inc()
        if event.duration is not None:
            self._durations.labels(event.room, event.kind).observe(event.duration)
        if event.outcome == OK:
            self._last_success.labels(event.subject, event.kind).set(event.time.timestamp())
            self._staleness.since(event.subject, event.kind, event.time.timestamp())
            self._errors.labels(event.subject, event.kind).set(0)
        elif event.outcome == FAILED:
            self._last_success.labels(event.subject, event.kind)  # so that it exists: a feed that never worked shows 0
            self._errors.labels(event.subject, event.kind).inc()

    def watch_bucket(self, storage: str, counts: Counts) -> None:
        """Show what a Counting bucket counted, under the id of its storage."""
        self._buckets.add(storage, counts)

    def render(self) -> bytes:
        """All metrics in Prometheus' text format (CONTENT_TYPE)."""
        return generate_latest(self.registry)


class _Staleness(Collector):
    """Seconds since the last success; where there was none yet, since this process began to watch."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since: dict[tuple[str, str], float] = {}

    def since(self, subject: str, kind: str, moment: float | None) -> None:
        with self._lock:
            self._since[subject, kind] = self._clock.now().timestamp() if moment is None else moment

    def collect(self) -> Iterable[Metric]:
        found = GaugeMetricFamily(
            "catchment_staleness_seconds",
            "Seconds since it last succeeded, or since it is watched if it never did.",
            labels=("subject", "kind"),
        )
        now = self._clock.now().timestamp()
        with self._lock:
            known = list(self._since.items())
        for names, moment in known:
            found.add_metric(names, max(0.0, now - moment))
        return (found,)


class _Buckets(Collector):
    """Reads the bucket wrappers' counts when asked: nothing is counted twice on the way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counts] = {}

    def add(self, storage: str, counts: Counts) -> None:
        with self._lock:
            self._counts[storage] = counts

    def collect(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            "catchment_bucket_requests", "Requests to object storages.", labels=("storage", "operation")
        )
        sizes = CounterMetricFamily(
            "catchment_bucket_bytes", "Bytes of object bodies.", labels=("storage", "direction")
        )
        with self._lock:
            known = list(self._counts.items())
        for storage, counts in known:
            for operation, number in sorted(dict(counts.requests).items()):
                requests.add_metric((storage, operation), number)
            sizes.add_metric((storage, "sent"), counts.sent)
            sizes.add_metric((storage, "received"), counts.received)
        return (requests, sizes)

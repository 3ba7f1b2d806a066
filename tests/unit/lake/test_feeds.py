"""`lake.feeds`, where it decides by itself."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from catchment.errors import UsageError
from catchment.feeds.names import Archive, Compression, Hour, set_hash
from catchment.lake import Lake
from catchment.lake.feeds import Feeds
from catchment.testing.clock import FakeClock


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "catchment.yaml"
    path.write_text("feeds: [{id: a, url: 'https://example.com', periodicity: 5s}]")
    return path


def test_deleting_up_to_now_leaves_the_current_hour_alone(config: Path) -> None:
    """Its tombstone would take along what is still to be fetched in it."""
    clock = FakeClock()
    clock.advance(30 * 60)
    now = clock.now()
    this, last = Hour.of(now), Hour.of(now - timedelta(hours=1))
    with Lake.open(config) as lake:
        for hour in (this, last):
            lake.bucket.put(Archive("a", hour, set_hash(["x"]), Compression.GZIP).key, b"archive")
        feeds = Feeds(lake, clock=clock)
        done = feeds.delete(object_storage_ids=["main"], start_time=now - timedelta(days=1), end_time=now)
        assert [doomed.hour for doomed in done.plans["main"].hours] == [last]
        assert [entry.key for entry in lake.bucket.list(this.prefix("a"))] != []
        assert [entry.key for entry in lake.bucket.list(last.prefix("a"))] == [last.tombstone("a")]
        with pytest.raises(UsageError, match="ended"):
            feeds.delete(object_storage_ids=["main"], start_time=this.start, end_time=this.next.start)


def test_a_config_may_be_a_path(config: Path) -> None:
    with Lake.open(config) as lake:
        assert [feed.id for feed in lake.config.feeds] == ["a"]

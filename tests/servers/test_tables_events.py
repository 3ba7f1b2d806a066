"""Bucket events from a real S3 server make a table's batches known at once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from urllib.request import Request, urlopen

import pytest

from catchment.config.tables import Tables
from catchment.errors import SetupError
from catchment.lake.listen import keys_of, listening
from catchment.tables.names import Table
from catchment.tables.service import Service
from catchment.testing.s3 import s3_server
from catchment.testing.tables import FakeEngine

TABLE = Table("sales", "orders")
LONG = 600.0  # seconds: a look at everything does not come into it


def until(true: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def event(bucket: str, key: str) -> bytes:
    return json.dumps({"Records": [{"s3": {"bucket": {"name": bucket}, "object": {"key": key}}}]}).encode()


def test_a_batch_is_applied_as_soon_as_its_event_comes() -> None:
    told: list[str | None] = []
    services: list[Service] = []

    def notify(key: str | None) -> None:
        told.append(key)
        for service in services:
            service.notify(key)

    with listening("127.0.0.1:0", None, None, notify) as url, s3_server(arguments=["--event-webhook-url", url]) as s3:
        bucket = s3.bucket(s3.fresh_bucket())
        bucket.put(f"{TABLE.prefix}_config/load.json", b'{"format": "csv"}')
        engine = FakeEngine(bucket)
        config = Tables.model_validate({"order_per_table": True})
        service = Service(bucket, config, engine, owner="me", gone=lambda owner: False, tick=LONG)
        thread = threading.Thread(target=service.run)
        thread.start()
        try:
            until(lambda: service.progress.rounds)
            services.append(service)
            for path in ("a", "b"):
                bucket.put(f"{TABLE.prefix}{path}/part=1 of 2.csv", b"1")
                bucket.put(f"{TABLE.prefix}{path}/_SUCCESS", b"")
                until(lambda: any(f":{path}@" in name for name in engine.order(TABLE)))  # noqa: B023
        finally:
            service.stop()
            thread.join()
            bucket.close()
        assert any(key and key.endswith(f"{TABLE.prefix}a/_SUCCESS") for key in told)


def test_what_is_no_event_is_a_reason_to_look_at_everything() -> None:
    told: list[str | None] = []
    with listening("127.0.0.1:0", "lake", "prod", told.append) as url:
        for body in (
            b"what?",
            event("lake", "prod/tables/a/b/%241+x/_SUCCESS"),
            event("other", "prod/tables/a/b/c"),
            event("lake", "elsewhere/c"),
        ):
            with urlopen(Request(url, data=body), timeout=10) as answer:
                assert answer.status == 204
    assert told == [None, "tables/a/b/$1 x/_SUCCESS"]
    assert keys_of(b"{}") is None


def test_an_address_that_cannot_be_had_is_told() -> None:
    with (
        pytest.raises(SetupError, match="nobody can listen at"),
        listening("127.0.0.1:999999", None, None, lambda key: None),
    ):
        pass

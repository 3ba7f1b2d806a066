"""Fixtures that run a test on every store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from catchment.bucket.contract import Bucket
from tests.contract.stores import STORES, Store, make_store


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = make_store(request, str(request.param), tmp_path)
    opened: list[Bucket] = []

    def remember() -> Bucket:
        opened.append(made.open())
        return opened[-1]

    yield Store(made.kind, remember, made.server, made.bucket_name, made.root)
    for bucket in opened:
        bucket.close()


@pytest.fixture
def bucket(store: Store) -> Bucket:
    return store.open()


@pytest.fixture(autouse=True)
def no_ambient_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test does must not depend on who runs it."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

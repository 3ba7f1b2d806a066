"""The servers as pytest fixtures: `pytest_plugins = ["catchment.testing.fixtures"]` in the top conftest.py.

`s3`, `moto` and `kafka` start once per run, when first asked for; each test makes its own bucket or topic
(`s3.fresh_bucket()`, `kafka.fresh_topic()`). `feed` is new for each test.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catchment.testing.http import FeedServer, feed_server
from catchment.testing.kafka import KafkaBroker, kafka_broker
from catchment.testing.s3 import S3Server, moto_server, s3_server
from catchment.testing.versitygw import missing

_notes: dict[str, str] = {}


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    """moto's S3."""
    with moto_server() as server:
        yield server


@pytest.fixture(scope="session")
def s3(request: pytest.FixtureRequest) -> Iterator[S3Server]:
    """A real S3 server, versitygw. Where it cannot be had, moto takes its place and the run's summary says so; where
    `CI` is set, that is an error instead.
    """
    if why := missing():
        _notes["s3"] = f"S3 was tested on moto alone, without a real server: {why}"
        yield request.getfixturevalue("moto")
        return
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """A real Kafka broker."""
    with kafka_broker() as broker:
        yield broker


@pytest.fixture
def feed() -> Iterator[FeedServer]:
    """A scripted HTTP server."""
    with feed_server() as server:
        yield server


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not tested as it should be: nobody reads the log of a green run."""
    for note in _notes.values():
        terminalreporter.section("note", sep="-", yellow=True)
        terminalreporter.line(note, yellow=True)

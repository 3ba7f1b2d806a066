"""The pure parts of fetching: conditions, bounded decoding, secrets, what a server asks for. The rest needs a server:
tests/servers/test_fetch.py.
"""

from __future__ import annotations

import gzip
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.config import Feed
from catchment.feeds.fetch import Gunzip, Validators, retry_after, scrubbed, secrets_of
from catchment.testing.clock import FakeClock


def test_conditions_are_what_the_server_gave() -> None:
    assert Validators().headers() == {}
    assert Validators('W/"1"', "Sun, 15 Nov 2026 08:00:00 GMT").headers() == {
        "if-none-match": 'W/"1"',
        "if-modified-since": "Sun, 15 Nov 2026 08:00:00 GMT",
    }


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=3), st.integers(1, 50))
def test_gzip_is_decoded_in_whatever_pieces_it_comes(bodies: list[bytes], size: int) -> None:
    sent = b"".join(gzip.compress(body) for body in bodies)  # streams may be strung together
    decoder = Gunzip()
    got = b""
    for start in range(0, len(sent), size):
        got += b"".join(decoder.decoded(sent[start : start + size], 1000))
    assert got == b"".join(bodies)
    assert decoder.whole


@given(st.binary(min_size=1, max_size=200), st.data())
def test_gzip_that_was_cut_is_not_whole(body: bytes, data: st.DataObject) -> None:
    sent = gzip.compress(body)
    decoder = Gunzip()
    list(decoder.decoded(sent[: data.draw(st.integers(1, len(sent) - 1))], 1000))
    assert not decoder.whole


def test_gzip_never_makes_more_than_it_may() -> None:
    bomb = gzip.compress(b"\0" * 10_000_000)
    assert sum(map(len, Gunzip().decoded(bomb, 1001))) == 1001


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("120", 120.0),
        ("Sun, 15 Nov 2026 08:00:30 GMT", 30.0),
        ("Sun, 15 Nov 2026 07:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("", None),
    ],
)
def test_what_a_server_asks_for(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, FakeClock(datetime(2026, 11, 15, 8, tzinfo=UTC))) == seconds


def test_no_secret_is_left_in_a_text() -> None:
    feed = Feed(
        id="a",
        url="https://user:pass%20word@example.com/feed?key=s3cret&b=two%2Bparts#frag",  # type: ignore[arg-type]
        periodicity="5s",  # type: ignore[arg-type]
        headers={"x-api-key": "header-secret"},  # type: ignore[dict-item]
    )
    said = (
        f"cannot use {feed.url.reveal()} with header-secret, s3cret, two+parts, two%2Bparts, pass word or pass%20word"
    )
    shown = scrubbed(said, secrets_of(feed))
    for secret in ("s3cret", "header-secret", "two+parts", "two%2Bparts", "pass word", "pass%20word"):
        assert secret not in shown
    assert shown.startswith("cannot use ***")

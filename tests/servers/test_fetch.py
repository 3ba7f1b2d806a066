"""Fetching from a real HTTP server: whatever it does, a whole body or a reason, in time, and nothing left open."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from catchment.config import Feed
from catchment.feeds.fetch import Body, Failure, Fetcher, Result, Unchanged, Validators
from catchment.testing.http import FeedServer, Reply, feed_server, redirect
from catchment.testing.process import free_port

T = TypeVar("T")
SECRET = "s3cret-of-the-query"


def declared(url: str, **more: Any) -> Feed:
    return Feed(id="a", url=f"{url}?key={SECRET}", periodicity="1s", **{"timeout": "10s", **more})  # type: ignore[arg-type]


def using(do: Callable[[Fetcher], Awaitable[T]], *, per_host: int = 4) -> T:
    """Do this with a fetcher that is closed afterwards."""

    async def main() -> T:
        fetcher = Fetcher(per_host=per_host)
        try:
            return await do(fetcher)
        finally:
            await fetcher.aclose()

    return asyncio.run(main())


def fetch(feed: Feed, validators: Validators | None = None) -> Result:
    return using(lambda fetcher: fetcher.fetch(feed, validators or Validators()))


def test_a_body_that_could_change_again_in_the_same_second_is_not_asked_for_by_its_time(feed: FeedServer) -> None:
    now = datetime.now(UTC)
    url = feed.script("/a", [Reply(200, b"one", modified=now + timedelta(seconds=5))])
    first = fetch(declared(url))
    assert first == Body(b"one", Validators(None, None))


def test_a_body_with_its_validators(feed: FeedServer) -> None:
    modified = datetime(2020, 11, 15, 8, tzinfo=UTC)
    url = feed.script("/a", [Reply(200, b"hello", etag='"1"', modified=modified)])
    first = fetch(declared(url, headers={"x-api-key": "k"}))
    assert first == Body(b"hello", Validators('"1"', "Sun, 15 Nov 2020 08:00:00 GMT"))
    assert isinstance(first, Body)
    assert fetch(declared(url), first.validators) == Unchanged()
    assert fetch(declared(url), Validators(None, first.validators.modified)) == Unchanged()
    request = feed.requests("/a")[0]
    assert (request.query, request.header("x-api-key")) == (f"key={SECRET}", "k")
    assert request.header("if-none-match") is None


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(500, b"x" * 1000), "status 500 Internal Server Error"),
        (Reply(404), "status 404 Not Found"),
        (Reply(204), "status 204 No Content"),
        (Reply(206, b"part"), "status 206 Partial Content"),
        (Reply(304), "status 304 Not Modified"),  # and no condition was sent
        (Reply(302), "status 302 Found"),  # to nowhere
        (Reply(200, b"x" * 100, truncate=40), "truncated"),
        (Reply(200, b"x" * 100, truncate=40, chunk=10), "truncated"),
        (Reply(200, b"x" * 100, reset=True), "no answer"),
        (Reply(200, b"x" * 100, truncate=40, reset=True), "truncated"),
        (Reply(200, b"x" * 101), "larger than max_body, 100B"),
        (Reply(200, b"x" * 100_000, chunk=50), "larger than max_body, 100B"),
        (Reply(200, b"x", headers={"content-encoding": "br"}), "encoded as 'br'"),
        (Reply(200, b"no gzip", headers={"content-encoding": "gzip"}), "damaged gzip"),
        (Reply(200, gzip.compress(b"x" * 50)[:-4], headers={"content-encoding": "gzip"}), "truncated"),
        (Reply(200, gzip.compress(b"x" * 10_000_000), headers={"content-encoding": "gzip"}), "larger than max_body"),
        (redirect("ftp://example.com/"), "it redirects to ftp://example.com/"),
        (redirect("/a"), "more than 5 redirects"),
    ],
)
def test_whatever_is_not_a_whole_body_is_a_reason(feed: FeedServer, reply: Reply, reason: str) -> None:
    result = fetch(declared(feed.script("/a", [reply]), max_body="100B"))
    assert isinstance(result, Failure)
    assert reason in result.reason
    assert SECRET not in result.reason


def test_a_body_of_exactly_the_limit_is_fine(feed: FeedServer) -> None:
    for reply in (Reply(200, b"x" * 100), Reply(200, b"x" * 100, chunk=7)):
        assert fetch(declared(feed.script("/a", [reply]), max_body="100B")) == Body(b"x" * 100)


def test_too_large_a_body_is_not_read_to_its_end(feed: FeedServer) -> None:
    """The server drips for an hour; giving up early is the only way to end here."""
    reply = Reply(200, b"x" * 3_600_000, chunk=1000, pace=1)
    result = fetch(declared(feed.script("/a", [reply]), max_body="500B", timeout="1h"))
    assert isinstance(result, Failure) and "max_body" in result.reason


@pytest.mark.parametrize(
    "reply",
    [Reply(200, hang=True), Reply(200, b"x" * 100, truncate=10, hang=True), Reply(200, b"x" * 10_000, pace=0.02)],
    ids=["no answer", "half an answer", "a byte at a time"],
)
def test_the_timeout_is_for_the_request_as_a_whole(feed: FeedServer, reply: Reply) -> None:
    result = fetch(declared(feed.script("/a", [reply]), timeout="300ms"))
    assert result == Failure("no whole answer within 300ms")


def test_a_dead_port_and_an_unknown_host(feed: FeedServer) -> None:
    for url in (f"http://127.0.0.1:{free_port()}/", "http://no-such-host.invalid/"):
        result = fetch(declared(url))
        assert isinstance(result, Failure)
        assert result.reason.startswith("no connection")
        assert SECRET not in result.reason


def test_gzip_is_asked_for_and_decoded(feed: FeedServer) -> None:
    url = feed.script("/a", [Reply(200, gzip.compress(b"hello"), headers={"content-encoding": "gzip"})])
    assert fetch(declared(url)) == Body(b"hello")
    assert feed.requests("/a")[0].header("accept-encoding") == "gzip"


def test_redirects_are_followed_and_conditions_go_along(feed: FeedServer) -> None:
    feed.script("/b", [Reply(200, b"there", etag='"1"')])
    url = feed.script("/a", [redirect("/b", 307)])
    settings = declared(url, headers={"x-api-key": "k"})
    assert fetch(settings) == Body(b"there", Validators('"1"'))
    assert fetch(settings, Validators('"1"')) == Unchanged()
    assert feed.requests("/b")[0].header("x-api-key") == "k"


def test_another_host_is_not_told_what_is_meant_for_this_one(feed: FeedServer) -> None:
    with feed_server() as other:
        other.script("/b", [Reply(200, b"there")])
        url = feed.script("/a", [redirect(other.url("/b"))]).replace("http://", "http://user:password@")
        assert fetch(declared(url, headers={"x-api-key": "k"})) == Body(b"there")
        here, there = feed.requests("/a")[0], other.requests("/b")[0]
    assert here.header("x-api-key") == "k" and here.header("authorization") == "Basic dXNlcjpwYXNzd29yZA=="
    assert there.header("x-api-key") is None and there.header("authorization") is None
    assert there.query == ""


def test_a_body_of_an_error_is_closed_and_not_waited_for(feed: FeedServer) -> None:
    url = feed.script("/a", [Reply(500, b"x" * 1000, truncate=10, hang=True)])

    async def many(fetcher: Fetcher) -> None:
        for _ in range(20):
            result = await fetcher.fetch(declared(url))
            assert isinstance(result, Failure) and result.reason.startswith("status 500")
        for _ in range(500):  # the server learns of it a moment later
            if not feed.active("/a"):
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"{feed.active('/a')} responses are still open")

    using(many)


def test_a_connection_is_used_again(feed: FeedServer) -> None:
    url = feed.script("/a", [Reply(200, b"x", etag='"1"')])

    async def many(fetcher: Fetcher) -> int:
        for validators in (Validators(), Validators('"1"'), Validators()):
            await fetcher.fetch(declared(url), validators)
        return len(feed._sockets)

    assert using(many) == 1


def test_no_more_than_the_limit_ask_one_host_at_once(feed: FeedServer) -> None:
    urls = [feed.script(f"/{n}", [Reply(200, b"x", delay=0.05)]) for n in range(12)]

    async def many(fetcher: Fetcher) -> None:
        async def one(url: str) -> None:
            settings = declared(url)
            async with fetcher.slot(settings):
                assert await fetcher.fetch(settings) == Body(b"x")

        await asyncio.gather(*map(one, urls))

    using(many, per_host=3)
    assert feed.overlap() == 3


def test_nothing_that_is_logged_shows_the_url(feed: FeedServer, caplog: pytest.LogCaptureFixture) -> None:
    url = feed.script("/a", [Reply(200, b"x"), Reply(500)])
    with caplog.at_level(logging.DEBUG):
        fetch(declared(url, headers={"x-api-key": "header-secret"}))
        fetch(declared(url, headers={"x-api-key": "header-secret"}))
    assert SECRET not in caplog.text
    assert "header-secret" not in caplog.text

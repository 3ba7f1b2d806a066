"""The scripted feed server, asked by a real client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from catchment.testing.http import FeedServer, Reply, Request, feed_server, redirect

MOMENT = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)


class StoppedClock:
    """Time that stands still."""

    def now(self) -> datetime:
        return MOMENT

    def monotonic(self) -> float:
        return 7.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("the server waits in real time")


@pytest.fixture
def feed() -> Iterator[FeedServer]:
    with feed_server(StoppedClock()) as server:
        yield server


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=10, trust_env=False) as client:
        yield client


def test_replies_come_in_turn_and_the_last_one_stays(feed: FeedServer, client: httpx.Client) -> None:
    url = feed.script("/a", [Reply(200, b"one"), Reply(500), Reply(200, b"two")])
    assert [(reply.status_code, reply.content) for reply in (client.get(url) for _ in range(5))] == [
        (200, b"one"),
        (500, b""),
        (200, b"two"),
        (200, b"two"),
        (200, b"two"),
    ]


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ("last", [b"1", b"2", b"2", b"2", b"2"]),
        ("cycle", [b"1", b"2", b"1", b"2", b"1"]),
        (Reply(200, b"rest"), [b"1", b"2", b"rest", b"rest", b"rest"]),
    ],
)
def test_what_comes_after_the_script(
    feed: FeedServer, client: httpx.Client, then: object, expected: list[bytes]
) -> None:
    url = feed.script("/a", [Reply(body=b"1"), Reply(body=b"2")], then=then)  # type: ignore[arg-type]
    assert [client.get(url).content for _ in range(5)] == expected


def test_an_empty_script_needs_a_reply(feed: FeedServer, client: httpx.Client) -> None:
    with pytest.raises(ValueError, match="pass a Reply as `then`"):
        feed.script("/a", [])
    assert client.get(feed.script("/a", then=Reply(204))).status_code == 204


def test_a_path_without_a_script_is_not_found_and_still_recorded(feed: FeedServer, client: httpx.Client) -> None:
    assert client.get(feed.url("/nowhere?x=1")).status_code == 404
    assert [(request.path, request.query) for request in feed.requests()] == [("/nowhere", "x=1")]


def test_a_step_can_look_at_the_request(feed: FeedServer, client: httpx.Client) -> None:
    def echo(request: Request) -> Reply:
        return Reply(201, request.method.encode() + b" " + request.body)

    reply = client.post(feed.script("/hook", then=echo), content=b"event")
    assert (reply.status_code, reply.content) == (201, b"POST event")


def test_requests_are_kept_with_time_and_headers(feed: FeedServer, client: httpx.Client) -> None:
    client.get(feed.script("/a", [Reply()]), headers={"X-Api-Key": "k"})
    client.get(feed.script("/b", [Reply()]))
    (request,) = feed.requests("/a")
    assert (request.method, request.time, request.monotonic) == ("GET", MOMENT, 7.0)
    assert (request.header("x-api-key"), request.header("X-API-KEY"), request.header("nope")) == ("k", "k", None)
    assert [request.path for request in feed.requests()] == ["/a", "/b"]


@pytest.mark.parametrize(
    ("reply", "headers", "status"),
    [
        (Reply(200, b"x", etag='"1"'), {}, 200),
        (Reply(200, b"x", etag='"1"'), {"If-None-Match": '"1"'}, 304),
        (Reply(200, b"x", etag='"1"'), {"If-None-Match": 'W/"1"'}, 304),
        (Reply(200, b"x", etag='"1"'), {"If-None-Match": '"0", "1"'}, 304),
        (Reply(200, b"x", etag='"1"'), {"If-None-Match": "*"}, 304),
        (Reply(200, b"x", etag='"1"'), {"If-None-Match": '"2"'}, 200),
        (Reply(200, b"x", etag='"1"', conditional=False), {"If-None-Match": '"1"'}, 200),
        (Reply(500, b"x", etag='"1"'), {"If-None-Match": '"1"'}, 500),
        (Reply(200, b"x", modified=MOMENT), {"If-Modified-Since": "Sun, 15 Nov 2026 08:00:00 GMT"}, 304),
        (Reply(200, b"x", modified=MOMENT), {"If-Modified-Since": "Sun, 15 Nov 2026 07:59:59 GMT"}, 200),
        (Reply(200, b"x", modified=MOMENT), {"If-Modified-Since": "yesterday"}, 200),
        (
            Reply(200, b"x", etag='"2"', modified=MOMENT),
            {"If-None-Match": '"1"', "If-Modified-Since": "Sun, 15 Nov 2026 08:00:00 GMT"},
            200,
        ),
    ],
)
def test_conditional_requests(
    feed: FeedServer, client: httpx.Client, reply: Reply, headers: dict[str, str], status: int
) -> None:
    got = client.get(feed.script("/a", [reply]), headers=headers)
    assert (got.status_code, got.content) == (status, b"" if status == 304 else b"x")
    assert got.headers.get("etag") == reply.etag


def test_last_modified_is_sent_as_http_says(feed: FeedServer, client: httpx.Client) -> None:
    local = MOMENT.astimezone(datetime.now(UTC).astimezone().tzinfo) + timedelta(microseconds=5)
    got = client.get(feed.script("/a", [Reply(modified=local)]))
    assert got.headers["last-modified"] == "Sun, 15 Nov 2026 08:00:00 GMT"


def test_headers_are_added_and_replaced(feed: FeedServer, client: httpx.Client) -> None:
    got = client.get(feed.script("/a", [Reply(200, b"{}", {"content-type": "application/json", "X-New": "1"})]))
    assert got.headers.get_list("content-type") == ["application/json"]
    assert got.headers["x-new"] == "1"


def test_redirects(feed: FeedServer, client: httpx.Client) -> None:
    feed.script("/new", [Reply(200, b"here")])
    url = feed.script("/old", [redirect("/new"), redirect(feed.url("/new"), 308)])
    assert [client.get(url, follow_redirects=True).content for _ in range(2)] == [b"here", b"here"]
    assert [request.path for request in feed.requests()] == ["/old", "/new", "/old", "/new"]


@pytest.mark.parametrize("chunk", [None, 1, 3, 1000])
def test_bodies_whole_or_in_chunks(feed: FeedServer, client: httpx.Client, chunk: int | None) -> None:
    url = feed.script("/a", [Reply(200, b"0123456789", chunk=chunk)])
    got = [client.get(url) for _ in range(2)]
    assert [reply.content for reply in got] == [b"0123456789"] * 2
    assert ("content-length" in got[0].headers) == (chunk is None)


def test_head_has_headers_and_no_body(feed: FeedServer, client: httpx.Client) -> None:
    url = feed.script("/a", [Reply(200, b"12345")])
    assert client.head(url).headers["content-length"] == "5"
    assert client.get(url).content == b"12345"


@pytest.mark.parametrize("chunk", [None, 2])
def test_a_truncated_body_is_an_error_for_the_client(feed: FeedServer, client: httpx.Client, chunk: int | None) -> None:
    url = feed.script("/a", [Reply(200, b"0123456789", truncate=4, chunk=chunk), Reply(200, b"whole")])
    received = b""
    with client.stream("GET", url) as reply:
        pieces = reply.iter_raw()
        while len(received) < 4:
            received += next(pieces)
        with pytest.raises(httpx.RemoteProtocolError):
            next(pieces)
    assert received == b"0123"
    assert client.get(url).content == b"whole"


@pytest.mark.parametrize("truncate", [None, 4])
def test_a_reset_breaks_the_connection(feed: FeedServer, client: httpx.Client, truncate: int | None) -> None:
    url = feed.script("/a", [Reply(200, b"0123456789", reset=True, truncate=truncate), Reply(200, b"whole")])
    with pytest.raises(httpx.TransportError):
        client.get(url)
    assert client.get(url).content == b"whole"


@pytest.mark.parametrize("truncate", [None, 0, 4])
def test_a_hung_reply_runs_into_the_clients_timeout(
    feed: FeedServer, client: httpx.Client, truncate: int | None
) -> None:
    url = feed.script("/a", [Reply(200, b"0123456789", hang=True, truncate=truncate), Reply(200, b"whole")])
    with pytest.raises(httpx.ReadTimeout):
        client.get(url, timeout=0.2)
    assert client.get(url).content == b"whole"


def test_a_dripping_body_arrives_whole(feed: FeedServer, client: httpx.Client) -> None:
    url = feed.script("/a", [Reply(200, b"drip", pace=0.01)])
    with client.stream("GET", url) as reply:
        assert b"".join(reply.iter_raw()) == b"drip"


@pytest.mark.parametrize("held", [Reply(hang=True), Reply(delay=600), Reply(200, b"12", pace=600)])
def test_closing_ends_held_requests(held: Reply) -> None:
    before = threading.active_count()
    with ThreadPoolExecutor(1) as pool:
        with feed_server() as feed:
            under_way = pool.submit(httpx.get, feed.script("/a", [held]), timeout=60, trust_env=False)
            feed.wait_for("/a")
            assert not under_way.done()
        assert isinstance(under_way.exception(), httpx.TransportError)
    assert threading.active_count() == before


def test_overlap_counts_the_most_at_once(feed: FeedServer, client: httpx.Client) -> None:
    gate = threading.Event()
    url = feed.script("/a", [Reply(gate=gate)])
    other = feed.script("/b", [Reply()])
    with ThreadPoolExecutor(3) as pool:
        replies = [pool.submit(client.get, url) for _ in range(3)]
        feed.wait_for("/a", 3)
        client.get(other)
        assert feed.active("/a") == 3
        gate.set()
        assert [reply.result().status_code for reply in replies] == [200] * 3
    assert (feed.overlap("/a"), feed.overlap("/b"), feed.overlap()) == (3, 1, 4)


def test_waiting_for_requests_that_never_come(feed: FeedServer) -> None:
    with pytest.raises(TimeoutError, match="0 of 1 requests for /a"):
        feed.wait_for("/a", patience=0.01)

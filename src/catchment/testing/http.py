"""An HTTP server whose behaviour a test writes down, path by path.

    with feed_server() as feed:
        feed.script("/a", [Reply(200, b"one", etag='"1"'), Reply(500), Reply(200, b"two", truncate=2)], then="cycle")
        …
        assert [request.header("if-none-match") for request in feed.requests("/a")] == [None, '"1"', …]

Each request to a path takes the next reply of its script. A path without a script answers 404. All requests are kept.
Leaving the block ends every request that is still held, so a test of a hung feed does not hang itself.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from http.client import responses
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import urlsplit

from catchment.clock import SYSTEM, Clock
from catchment.testing.process import HOST


@dataclass(frozen=True)
class Reply:
    """What one request gets. The parts combine: `Reply(200, body, delay=1, truncate=10, hang=True)` waits a second,
    sends the headers and ten bytes, and then nothing more.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)  # added to, or in place of, the usual ones
    etag: str | None = None  # with its quotes: '"1"'
    modified: datetime | None = None  # sent as Last-Modified
    conditional: bool = True  # 304 when the request's validators still hold; False: a server that ignores them
    delay: float = 0  # seconds before the first byte
    gate: threading.Event | None = None  # wait for this before the first byte: a delay that the test ends itself
    chunk: int | None = None  # send chunked, in pieces of so many bytes, without a Content-Length
    pace: float = 0  # seconds between pieces (of `chunk` bytes, or of 1): a body that drips
    truncate: int | None = None  # promise the whole body, send so many bytes of it, and close
    hang: bool = False  # then keep the connection open and send nothing more; without `truncate`, nothing at all
    reset: bool = False  # then break the connection (TCP reset); without `truncate`, before any byte
    close: bool = False  # do not keep the connection for another request


def redirect(to: str, status: int = 302) -> Reply:
    """A reply that sends the client elsewhere: another path of this server, or any URL."""
    return Reply(status, headers={"Location": to})


@dataclass(frozen=True)
class Request:
    """One request as it came in."""

    time: datetime  # on the server's clock
    monotonic: float
    method: str
    path: str  # without the query
    query: str
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def header(self, name: str) -> str | None:
        return self.headers.get(name.lower())


Step = Reply | Callable[[Request], Reply]


class _Script:
    """The replies of one path, taken one by one."""

    def __init__(self, steps: Iterable[Step], then: Step | Literal["last", "cycle"]) -> None:
        self._steps = list(steps)
        self._then = then
        self._taken = 0
        if not self._steps and isinstance(then, str):
            raise ValueError(f"an empty script with then={then!r} has no reply to give; pass a Reply as `then`")

    def take(self) -> Step:
        index, self._taken = self._taken, self._taken + 1
        if index < len(self._steps):
            return self._steps[index]
        if not isinstance(self._then, str):
            return self._then
        return self._steps[index % len(self._steps) if self._then == "cycle" else -1]


class FeedServer:
    """The running server. Everything here may be called while it serves."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._scripts: dict[str, _Script] = {}
        self._requests: list[Request] = []
        self._open: dict[str, int] = {}
        self._most: dict[str, int] = {}
        self._closing = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._http = _Server((HOST, 0), _Handler)
        self._http.feed = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), name="feed-server", daemon=True)

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    def url(self, path: str = "/") -> str:
        """The address of a path: http://127.0.0.1:<port>/a."""
        return f"http://{HOST}:{self.port}{path}"

    def script(self, path: str, replies: Iterable[Step] = (), *, then: Step | Literal["last", "cycle"] = "last") -> str:
        """From now on answer `path` with these, in turn, and afterwards with `then`: the last one again, all of them
        in a cycle, or another reply. A step may also be a function of the request. Returns the path's URL.
        """
        with self._changed:
            self._scripts[path] = _Script(replies, then)
        return self.url(path)

    def requests(self, path: str | None = None) -> list[Request]:
        """What came in so far, in order; of one path or of all."""
        with self._changed:
            return [request for request in self._requests if path in (None, request.path)]

    def overlap(self, path: str = "") -> int:
        """The most requests ever under way at once; of one path, or of all together."""
        with self._changed:
            return self._most.get(path, 0)

    def active(self, path: str = "") -> int:
        """How many requests are under way now."""
        with self._changed:
            return self._open.get(path, 0)

    def wait_for(self, path: str, count: int = 1, *, patience: float = 10) -> list[Request]:
        """Wait until so many requests for `path` have come in. TimeoutError if they do not."""

        def seen() -> list[Request]:
            return [request for request in self._requests if request.path == path]

        with self._changed:
            if not self._changed.wait_for(lambda: len(seen()) >= count, patience):
                raise TimeoutError(f"{len(seen())} of {count} requests for {path} within {patience:g} seconds")
            return seen()

    # What follows is for the handler and for feed_server.

    def enter(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[Request, Step]:
        """Record a request and take its step, as one: the n-th request recorded gets the n-th reply."""
        address = urlsplit(handler.path)
        headers = {name.lower(): value for name, value in handler.headers.items()}
        with self._changed:
            request = Request(
                time=self._clock.now(),
                monotonic=self._clock.monotonic(),
                method=handler.command,
                path=address.path,
                query=address.query,
                headers=headers,
                body=body,
            )
            self._requests.append(request)
            for name in ("", request.path):
                self._open[name] = self._open.get(name, 0) + 1
                self._most[name] = max(self._most.get(name, 0), self._open[name])
            self._changed.notify_all()
            script = self._scripts.get(request.path)
            return request, script.take() if script else Reply(404, b"no script for this path\n")

    def leave(self, request: Request) -> None:
        with self._changed:
            for name in ("", request.path):
                self._open[name] -= 1
            self._changed.notify_all()

    def pause(self, seconds: float | None, gate: threading.Event | None = None) -> bool:
        """Wait for the time or the gate. False if the server closes meanwhile."""
        if gate is not None:
            while not gate.wait(0.02):
                if self._closing.is_set():
                    return False
        return not self._closing.wait(seconds) if seconds != 0 else not self._closing.is_set()

    def connected(self, connection: socket.socket) -> None:
        with self._changed:
            self._sockets.add(connection)

    def disconnected(self, connection: socket.socket) -> None:
        with self._changed:
            self._sockets.discard(connection)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End now: no new connection, held requests cut off, every thread gone."""
        self._closing.set()
        self._http.shutdown()
        self._thread.join()
        with self._changed:
            for connection in self._sockets:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self._http.server_close()


class _Server(ThreadingHTTPServer):
    feed: FeedServer
    daemon_threads = False  # so that server_close waits for them: no thread of one test outlives it
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what tests are about; anything else is a fault of this module."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.feed.connected(request)  # here and not in the handler's thread: `stop` must see every one accepted
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.feed.disconnected(request)
        super().shutdown_request(request)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body leave together, as from most servers

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are kept for asserts, not printed."""

    def serve(self) -> None:
        feed = self.server.feed
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        request, step = feed.enter(self, body)
        try:
            reply = step if isinstance(step, Reply) else step(request)
            if not feed.pause(reply.delay, reply.gate):
                self.close_connection = True
                return
            self._answer(request, reply)
        finally:
            feed.leave(request)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = serve

    def _answer(self, request: Request, reply: Reply) -> None:
        breaks = reply.hang or reply.reset
        if breaks and reply.truncate is None:
            self._break(reply)
            return
        unchanged = reply.conditional and reply.status == 200 and _unchanged(request, reply)
        bodiless = unchanged or request.method == "HEAD" or reply.status in (204, 304)
        status = 304 if unchanged else reply.status
        body = b"" if unchanged else reply.body
        self.send_response_only(status, responses.get(status, "Scripted"))
        for name, value in self._headers(reply, body, status).items():
            self.send_header(name, value)
        self.end_headers()
        if not bodiless:
            self._send(reply, body)
        self.wfile.flush()
        if breaks:
            self._break(reply)
        if reply.close or reply.truncate is not None:
            self.close_connection = True

    def _headers(self, reply: Reply, body: bytes, status: int) -> dict[str, str]:
        found = {"Server": "scripted", "Date": format_datetime(self.server.feed._clock.now(), usegmt=True)}
        if reply.etag is not None:
            found["ETag"] = reply.etag
        if reply.modified is not None:
            found["Last-Modified"] = format_datetime(reply.modified.astimezone(UTC), usegmt=True)
        if reply.chunk is not None and status not in (204, 304):
            found["Transfer-Encoding"] = "chunked"
        elif status not in (204, 304):
            found["Content-Length"] = str(len(body))
            found["Content-Type"] = "application/octet-stream"
        if reply.close:
            found["Connection"] = "close"
        for name, value in reply.headers.items():
            found = {kept: old for kept, old in found.items() if kept.lower() != name.lower()} | {name: value}
        return found

    def _send(self, reply: Reply, body: bytes) -> None:
        sent = body if reply.truncate is None else body[: reply.truncate]
        size = reply.chunk or (1 if reply.pace else max(1, len(sent)))
        for start in range(0, len(sent), size):
            piece = sent[start : start + size]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if reply.chunk is not None else piece)
            if reply.pace:
                self.wfile.flush()
                if not self.server.feed.pause(reply.pace):
                    self.close_connection = True
                    return
        if reply.chunk is not None and reply.truncate is None:
            self.wfile.write(b"0\r\n\r\n")

    def _break(self, reply: Reply) -> None:
        """Say no more: hold the line until the client or the server gives up, or cut it with a reset."""
        self.close_connection = True
        if reply.hang:
            self.connection.settimeout(0.05)
            while self.server.feed.pause(0):
                try:
                    if not self.connection.recv(1):
                        return
                except TimeoutError:
                    continue
        else:
            # Lingering for zero seconds makes close() send RST in place of FIN.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _unchanged(request: Request, reply: Reply) -> bool:
    """Whether the validators of the request still hold. If-None-Match wins over If-Modified-Since, as RFC 9110 says."""
    wanted = request.header("if-none-match")
    if wanted is not None:
        known = [tag.strip().removeprefix("W/") for tag in wanted.split(",")]
        return reply.etag is not None and (wanted.strip() == "*" or reply.etag.removeprefix("W/") in known)
    since = request.header("if-modified-since")
    if since is None or reply.modified is None:
        return False
    try:
        return reply.modified.replace(microsecond=0) <= parsedate_to_datetime(since)
    except (TypeError, ValueError):
        return False


@contextmanager
def feed_server(clock: Clock = SYSTEM) -> Iterator[FeedServer]:
    """A scripted server on loopback and a port of its own. `clock` stamps the requests; delays are in real seconds."""
    feed = FeedServer(clock)
    feed.start()
    try:
        yield feed
    finally:
        feed.stop()

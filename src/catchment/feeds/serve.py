"""The two small HTTP servers of a collector: monitoring, and shutdown.

Monitoring serves `/metrics` (Prometheus' text format) and `/healthz` (200 while the process does its work, 503 when it
does not; both with JSON that says why).

Shutdown has a port of its own, listens on loopback only, and is off unless configured. `POST /shutdown` is the same as
SIGTERM. Any user of the machine may send it. A page in a browser on this machine may not: requests that a browser sends
for a page carry an Origin, or a Host that is not this machine's, and are refused.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from catchment.errors import UsageError
from catchment.monitor.metrics import CONTENT_TYPE

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
_LOCAL = ("127.0.0.1", "localhost", "[::1]")
_PATIENCE = 10.0  # seconds for a client to say what it wants


@dataclass(frozen=True)
class Answer:
    """What a request gets."""

    status: int
    body: bytes
    kind: str = "application/json"


Route = Callable[[Mapping[str, str]], Answer]  # from the request's headers, their names in lower case
Routes = Mapping[tuple[str, str], Route]  # by method and path


def as_json(status: int, values: Mapping[str, object]) -> Answer:
    """An answer of a few values."""
    return Answer(status, json.dumps(values).encode() + b"\n")


def monitoring(render: Callable[[], bytes], health: Callable[[], tuple[bool, Mapping[str, object]]]) -> Routes:
    """The monitoring pages. `health` says whether all is well, and what there is to say about it."""

    def metrics(_: Mapping[str, str]) -> Answer:
        return Answer(200, render(), CONTENT_TYPE)

    def healthz(_: Mapping[str, str]) -> Answer:
        well, values = health()
        return as_json(200 if well else 503, values)

    return {("GET", "/metrics"): metrics, ("GET", "/healthz"): healthz}


def shutdown(stop: Callable[[], None]) -> Routes:
    """The way to end this process by HTTP."""

    def post(headers: Mapping[str, str]) -> Answer:
        if "origin" in headers or headers.get("host", "").rsplit(":", 1)[0] not in _LOCAL:
            return as_json(403, {"error": "not for pages in a browser; use curl -X POST from this machine"})
        stop()
        return as_json(202, {"status": "stopping"})

    return {("POST", "/shutdown"): post}


@contextmanager
def served(name: str, routes: Routes, port: int, *, bind: str = LOOPBACK) -> Iterator[int]:
    """Serve these routes in the background; gives the port (of use with port 0). UsageError if it cannot be had."""
    try:
        server = _Server((bind, port), _Handler)
    except OSError as error:
        raise UsageError(
            f"the {name} server cannot listen on {bind}:{port}: {error.strerror or error}",
            hint="choose another port, or end the process that has it",
        ) from None
    server.routes = routes
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name=f"{name}-server", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    routes: Routes = {}  # noqa: RUF012 (set once, before it serves)
    daemon_threads = True  # a client that holds its connection does not hold us
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a client of the %s went away", type(self).__name__, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _PATIENCE
    server_version = "catchment"
    sys_version = ""

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes every few seconds are no news."""

    def do_GET(self) -> None:
        self._serve("GET")

    def do_HEAD(self) -> None:
        self._serve("GET", body=False)

    def do_POST(self) -> None:
        self._serve("POST")

    def _serve(self, method: str, *, body: bool = True) -> None:
        path = self.path.partition("?")[0]
        route = self.server.routes.get((method, path))
        if route is not None:
            answer = route({name.lower(): value for name, value in self.headers.items()})
        elif any(known == path for _, known in self.server.routes):
            answer = as_json(405, {"error": f"{path} does not take {method}"})
        else:
            answer = as_json(
                404, {"error": "no such page", "pages": sorted({known for _, known in self.server.routes})}
            )
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if body:
            self.wfile.write(answer.body)

"""A schema registry in this process, which speaks as much of Confluent's REST API as readers and writers need.

    with schema_registry() as registry:
        number = registry.register("orders-value", '{"type": "record", …}')
        producer.send(framed(number, message))                 # and the export has `registry: <registry.url>`

It can be away (no answer at all), slow, in trouble (a status for every request), or want a password. It checks nothing
of what it is given. `SchemaRegistry` alone needs no socket: `registry.transport()` is for httpx.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx

from catchment.testing.process import HOST

CONTENT = "application/vnd.schemaregistry.v1+json"


def framed(number: int, message: bytes) -> bytes:
    """A message as producers with a registry send it."""
    return b"\0" + number.to_bytes(4, "big") + message


@dataclass(frozen=True)
class Kept:
    """A schema as it was registered."""

    text: str
    kind: str
    references: tuple[tuple[str, str, int], ...]  # name, subject, version
    serialized: str | None  # of Protobuf, the base64 of a FileDescriptorProto

    def plain(self, *, serialized: bool) -> dict[str, Any]:
        text = self.serialized if serialized and self.serialized is not None else self.text
        found: dict[str, Any] = {"schema": text}
        if self.kind != "AVRO":  # which goes without saying
            found["schemaType"] = self.kind
        if self.references:
            found["references"] = [
                dict(zip(("name", "subject", "version"), one, strict=True)) for one in self.references
            ]
        return found


@dataclass
class SchemaRegistry:
    """Schemas by number, and their numbers by subject and version. Everything may be changed while it serves."""

    away: bool = False  # connections are broken off without an answer
    delay: float = 0.0  # seconds before each answer
    trouble: int | None = None  # a status that every request gets
    user: tuple[str, str] | None = None  # name and password; None: anybody
    requests: list[str] = field(default_factory=list)  # the paths that were asked for, with their queries
    url: str = "http://registry.test"
    _schemas: dict[int, Kept] = field(default_factory=dict)
    _subjects: dict[str, list[int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def register(
        self,
        subject: str,
        text: str,
        kind: str = "AVRO",
        references: Sequence[tuple[str, str, int]] = (),
        *,
        serialized: str | None = None,
    ) -> int:
        """The number of the schema: that of an equal one, if there is one. A new one is its subject's next version."""
        kept = Kept(text, kind, tuple(references), serialized)
        with self._lock:
            number = next((number for number, one in self._schemas.items() if one == kept), len(self._schemas) + 1)
            self._schemas[number] = kept
            versions = self._subjects.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
            return number

    def transport(self) -> httpx.BaseTransport:
        """For an httpx client: requests are answered here, without a socket."""

        def answer(request: httpx.Request) -> httpx.Response:
            if self.away:
                raise httpx.ConnectError("the registry is away", request=request)
            authorization = request.headers.get("authorization")
            target = request.url.raw_path.decode()
            status, found = self.answer(request.method, target, request.read(), authorization)
            return httpx.Response(status, json=found, headers={"content-type": CONTENT})

        return httpx.MockTransport(answer)

    def answer(self, method: str, target: str, body: bytes, authorization: str | None) -> tuple[int, Any]:
        """The status and the JSON of one request."""
        self.requests.append(target)
        if self.trouble is not None:
            return self.trouble, {"error_code": self.trouble, "message": "in trouble"}
        if self.user is not None:
            wanted = "Basic " + base64.b64encode(":".join(self.user).encode()).decode()
            if authorization != wanted:
                return 401, {"error_code": 401, "message": "HTTP 401 Unauthorized"}
        parts = urlsplit(target)
        query = {name: texts[-1] for name, texts in parse_qs(parts.query).items()}
        if found := re.fullmatch(r"/schemas/ids/(\d+)", parts.path):
            return self._by_number(int(found[1]), query)
        if found := re.fullmatch(r"/subjects/([^/]+)/versions", parts.path):
            return self._versions(unquote(found[1]), method, body)
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/(\d+|latest)", parts.path):
            return self._by_version(unquote(found[1]), found[2], query)
        if parts.path == "/subjects":
            return 200, sorted(self._subjects)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _by_number(self, number: int, query: Mapping[str, str]) -> tuple[int, Any]:
        kept = self._schemas.get(number)
        if kept is None:
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        return 200, kept.plain(serialized=query.get("format") == "serialized")

    def _versions(self, subject: str, method: str, body: bytes) -> tuple[int, Any]:
        if method == "POST":
            given = json.loads(body)
            references = [(one["name"], one["subject"], one["version"]) for one in given.get("references", ())]
            return 200, {"id": self.register(subject, given["schema"], given.get("schemaType", "AVRO"), references)}
        if subject not in self._subjects:
            return _no_subject(subject)
        return 200, list(range(1, len(self._subjects[subject]) + 1))

    def _by_version(self, subject: str, version: str, query: Mapping[str, str]) -> tuple[int, Any]:
        numbers = self._subjects.get(subject)
        if numbers is None:
            return _no_subject(subject)
        at = len(numbers) if version == "latest" else int(version)
        if not 1 <= at <= len(numbers):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        kept = self._schemas[numbers[at - 1]].plain(serialized=query.get("format") == "serialized")
        return 200, {"subject": subject, "version": at, "id": numbers[at - 1], **kept}


def _no_subject(subject: str) -> tuple[int, Any]:
    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}


class _Server(ThreadingHTTPServer):
    registry: SchemaRegistry
    closing: threading.Event
    daemon_threads = False  # so that server_close waits for them: no thread of one test outlives it


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    timeout = 5  # seconds for which a connection that nobody uses is kept

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are kept for asserts, not printed."""

    def serve(self) -> None:
        registry = self.server.registry
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.closing.wait(registry.delay)
        if registry.away or self.server.closing.is_set():
            self.close_connection = True
            return
        status, found = registry.answer(self.command, self.path, body, self.headers.get("authorization"))
        text = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", CONTENT)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(text)
        self.close_connection = True

    do_GET = do_POST = do_PUT = do_DELETE = serve


@contextmanager
def schema_registry() -> Iterator[SchemaRegistry]:
    """A registry on loopback and a port of its own."""
    server = _Server((HOST, 0), _Handler)
    registry = server.registry = SchemaRegistry(url=f"http://{HOST}:{server.server_address[1]}")
    server.closing = threading.Event()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="schema-registry", daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()

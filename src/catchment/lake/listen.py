"""A web hook for bucket events: whoever stores objects says so here, and nobody has to wait for the next look.

Events are hints. What is lost, late or repeated costs time and never data, because what counts is what is listed.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote_plus

from catchment.errors import SetupError

log = logging.getLogger(__name__)

LARGEST = 4 << 20  # bytes of one request


def keys_of(body: bytes) -> list[tuple[str, str]] | None:
    """Bucket and key of every record of an S3 event; None if it is none."""
    try:
        event = json.loads(body)
        if event.get("Event") == "s3:TestEvent":  # somebody has just set it up
            return []
        records = event["Records"]
        return [(str(one["s3"]["bucket"]["name"]), unquote_plus(str(one["s3"]["object"]["key"]))) for one in records]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


@contextmanager
def listening(
    address: str, bucket: str | None, prefix: str | None, notify: Callable[[str | None], object]
) -> Iterator[str]:
    """Take events at this address (host:port) within the block; gives the URL to send them to.

    bucket, prefix: of the lake; what happened elsewhere is passed over. notify: is told the keys below the prefix, and
    None for something that cannot be understood.
    """
    host, _, port = address.rpartition(":")
    below = f"{prefix.strip('/')}/" if prefix else ""

    def told(body: bytes) -> None:
        found = keys_of(body)
        if found is None:
            log.warning("an event that cannot be understood: %s", body[:200])
            notify(None)
        for name, key in found or ():
            if bucket in (None, name) and key.startswith(below):
                notify(key.removeprefix(below))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            if not 0 <= size <= LARGEST:
                self.send_error(413)
                return
            told(self.rfile.read(size))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            log.debug(format, *arguments)

    try:
        server = ThreadingHTTPServer((host or "127.0.0.1", int(port)), Handler)
    except (OSError, ValueError, OverflowError) as error:
        raise SetupError(f"nobody can listen at {address} ({error})", hint="give another one with --listen") from error
    thread = threading.Thread(target=server.serve_forever, name="events", daemon=True)
    thread.start()
    try:
        yield f"http://{host or '127.0.0.1'}:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

"""Where a configuration comes from: a path, or an https:// URL (http:// only on this machine)."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from catchment.clock import Clock
from catchment.config.names import check_url, is_loopback
from catchment.config.secret import shown_url
from catchment.config.section import Wrong

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

DEFAULT = "catchment.yaml"
MAX_BYTES = 4_000_000
TIMEOUT = 20.0  # seconds, for the whole answer


@dataclass(frozen=True)
class Text:
    """A configuration as it was found."""

    text: str
    shown: str  # where from, without anything secret
    base: Path  # where its relative paths start


class Unreadable(Exception):
    """No configuration there. Says why and what to do; `shown` is the place without anything secret."""

    def __init__(self, shown: str, message: str) -> None:
        super().__init__(message)
        self.shown = shown


def read(source: str | None, *, clock: Clock) -> Text:
    """The text behind a path or URL; None means ./catchment.yaml. Unreadable says what is wrong otherwise."""
    if source is not None and "://" in source:
        shown = shown_url(source)
        return Text(_decoded(shown, _fetched(source, shown, clock)), shown, Path.cwd())
    path = Path(source or DEFAULT).expanduser()
    return Text(_decoded(str(path), _contents(path)), str(path), path.absolute().parent)


def _contents(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return _within(str(path), file.read(MAX_BYTES + 1))
    except FileNotFoundError:
        why = "there is no such file; write one with 'catchment init', or name another with --config"
    except IsADirectoryError:
        why = f"is a folder; name the file in it, as in {path / DEFAULT}"
    except (OSError, ValueError) as error:
        why = f"cannot be read ({getattr(error, 'strerror', None) or 'not a path'}); check its name and permissions"
    raise Unreadable(str(path), why)


def _within(shown: str, body: bytes) -> bytes:
    if len(body) > MAX_BYTES:
        raise Unreadable(shown, f"is larger than {MAX_BYTES // 1_000_000} MB; is it the right file?")
    return body


def _decoded(shown: str, body: bytes) -> str:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        why = f"is not UTF-8 text (byte {error.start}); save it as UTF-8"
    else:
        if not text.lstrip().startswith("<"):
            return text
        why = "is a web page and not YAML; check the address (is it a page to log in?)"
    raise Unreadable(shown, why)


def _fetched(url: str, shown: str, clock: Clock) -> bytes:
    import http.client
    from urllib.error import HTTPError, URLError
    from urllib.request import Request

    try:
        _check_safe(url)
        parts = urlsplit(url)
        user, at, place = parts.netloc.rpartition("@")
        request = Request(urlunsplit((parts.scheme, place, parts.path or "/", parts.query, "")))
        request.add_header("User-Agent", "catchment")
        if at:
            # Not sent on when the server redirects us elsewhere.
            token = base64.b64encode(unquote(user).encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {token}")
        end = clock.monotonic() + TIMEOUT
        with _opener(direct=is_loopback(parts.hostname or "")).open(request, timeout=TIMEOUT) as answer:
            body = b""
            while chunk := answer.read1(65536):
                body += chunk
                if len(body) > MAX_BYTES:
                    break
                if clock.monotonic() > end:
                    raise TimeoutError
            declared = int(answer.headers.get("Content-Length") or 0)
        if len(_within(shown, body)) < declared:
            raise http.client.IncompleteRead(b"")
        return body
    except Wrong as wrong:
        why = str(wrong)
    except HTTPError as error:
        error.close()
        why = f"the server answered {error.code}; check the address and the rights to it"
    except TimeoutError:
        why = f"no whole answer within {TIMEOUT:.0f} s; check that the server is up, or use a local copy"
    except (URLError, OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            why = f"no answer within {TIMEOUT:.0f} s; check that the server is up, or use a local copy"
        else:
            name = getattr(reason, "strerror", None) or type(reason).__name__
            why = f"cannot be fetched ({name}); check the address and the network, or use a local copy"
    raise Unreadable(shown, why)


def _check_safe(url: str) -> None:
    """Wrong unless nobody on the way can change what we get."""
    try:
        check_url(url)
    except Wrong as wrong:
        raise Wrong(f"the URL {wrong.what}", wrong.instead) from None
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise Wrong("http:// can be read and changed on the way", "use https:// (http:// is for this machine only)")


def _opener(*, direct: bool) -> OpenerDirector:
    from urllib.request import HTTPRedirectHandler, ProxyHandler, build_opener

    class Careful(HTTPRedirectHandler):
        def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
            _check_safe(newurl)
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    # A proxy elsewhere cannot reach this machine's loopback.
    return build_opener(Careful, ProxyHandler({})) if direct else build_opener(Careful)

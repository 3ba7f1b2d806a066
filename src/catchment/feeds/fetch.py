"""One request for one feed: a whole body, "unchanged", or the reason why not.

Whatever a server does, `fetch` ends within the feed's timeout, holds no more than the feed's `max_body`, closes the
response, and gives a value. Reasons name what went wrong and never a secret: what was configured (header values, user
and password, the query of the URL) is cut out of every text that came from elsewhere.

httpx's transports are used directly, one for each host. Its client would log whole URLs, send our headers along to
wherever a redirect leads, and look through all connections to all hosts for every request.
"""

from __future__ import annotations

import asyncio
import base64
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from urllib.parse import unquote, unquote_plus, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from catchment import __version__
from catchment.clock import SYSTEM, Clock
from catchment.config.feeds import Feed
from catchment.config.secret import HIDDEN, revealed, shown_url
from catchment.units import format_duration, format_size

MAX_REDIRECTS = 5
MAX_DRAINED = 1 << 16  # bytes of a body that nobody wants, read so that its connection can be used again
KEEP_ALIVE = 4.0  # seconds; below the 5 after which common servers hang up, so that they seldom do so on a new request
_HEADERS = {"accept": "*/*", "user-agent": f"catchment/{__version__}", "accept-encoding": "gzip"}
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_BODIES = frozenset((200, 203))


@dataclass(frozen=True)
class Validators:
    """What a server wants to be asked with next time, as it sent them."""

    etag: str | None = None
    modified: str | None = None

    def headers(self) -> dict[str, str]:
        """The conditions of the next request. None at all if the server gave no validator."""
        found = {"if-none-match": self.etag, "if-modified-since": self.modified}
        return {name: value for name, value in found.items() if value is not None}


NO_VALIDATORS = Validators()


@dataclass(frozen=True)
class Body:
    """A whole body, decoded."""

    body: bytes = field(repr=False)
    validators: Validators = NO_VALIDATORS


@dataclass(frozen=True)
class Unchanged:
    """The server says that the body is still the one before."""


@dataclass(frozen=True)
class Failure:
    """Nothing was got, and this is why."""

    reason: str
    retry_after: float | None = None  # seconds that the server asked us to stay away


Result = Body | Unchanged | Failure


class Fetcher:
    """Fetches feeds, at most `per_host` at once from one host. For use in one event loop; close it with `aclose`."""

    def __init__(self, *, per_host: int = 4, clock: Clock = SYSTEM) -> None:
        self._per_host = per_host
        self._clock = clock
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._transports: dict[str, httpx.AsyncHTTPTransport] = {}
        self._proxies = getproxies()
        self._tls = httpx.create_ssl_context()  # reads all certificates: once for all hosts, and not within a timeout

    @asynccontextmanager
    async def slot(self, feed: Feed) -> AsyncIterator[None]:
        """Wait for this feed's turn at its host, first come, first served. It covers redirects to other hosts too."""
        host = _parsed(feed.url.reveal())[1]
        slots = self._slots.setdefault(host, asyncio.Semaphore(self._per_host))
        async with slots:
            yield

    def limit(self, per_host: int) -> None:
        """Allow so many at once from now on. Requests that are under way do not count against it."""
        if per_host != self._per_host:
            self._per_host = per_host
            self._slots = {}

    async def fetch(self, feed: Feed, validators: Validators = NO_VALIDATORS) -> Result:
        """Ask for the feed; with validators, only if it changed. Raises only CancelledError."""
        try:
            async with asyncio.timeout(feed.timeout.total_seconds()):
                result = await self._fetch(feed, validators)
        except TimeoutError:
            return Failure(f"no whole answer within {format_duration(feed.timeout)}")
        except httpx.TransportError as error:
            result = Failure(_words(error))
        except (httpx.InvalidURL, ValueError, OSError) as error:
            result = Failure(f"the request could not be made: {error}")
        if isinstance(result, Failure):
            return Failure(scrubbed(result.reason, secrets_of(feed)), result.retry_after)
        return result

    async def aclose(self) -> None:
        """Let go of all connections."""
        transports, self._transports = self._transports, {}
        for transport in transports.values():
            with suppress(httpx.TransportError, OSError):
                await transport.aclose()

    async def _fetch(self, feed: Feed, validators: Validators) -> Result:
        first, home = _parsed(feed.url.reveal())
        url = first
        conditions = validators.headers()
        for _ in range(MAX_REDIRECTS + 1):
            headers = dict(_HEADERS)
            own = _origin(url) == home
            if own:  # another host has no business with what was configured for this one
                headers |= _credentials(first) | {name.lower(): text for name, text in revealed(feed.headers).items()}
            request = httpx.Request("GET", url, headers=headers | conditions)
            response = await self._transport(url, own=own).handle_async_request(request)
            try:
                if response.status_code not in _REDIRECTS or "location" not in response.headers:
                    return await self._answer(feed, response, conditional=bool(conditions))
                await _drain(response)
                url = url.join(response.headers["location"]).copy_with(fragment=None)
            finally:
                await _close(response)
            if url.scheme not in ("http", "https") or not url.host:
                return Failure(f"it redirects to {shown_url(str(url))}, which is no http:// or https:// URL")
        return Failure(f"more than {MAX_REDIRECTS} redirects, the last to {shown_url(str(url))}")

    async def _answer(self, feed: Feed, response: httpx.Response, *, conditional: bool) -> Result:
        status = response.status_code
        if status == 304 and conditional:
            await _drain(response)
            return Unchanged()
        if status not in _BODIES:
            reason = f"status {status} {response.reason_phrase}".rstrip()
            return Failure(reason, retry_after(response.headers.get("retry-after"), self._clock))
        too_large = Failure(f"the body is larger than max_body, {format_size(feed.max_body)}")
        length = response.headers.get("content-length", "")
        if length.isascii() and length.isdecimal() and int(length) > feed.max_body:
            return too_large
        encoding = response.headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            return Failure(f"the body is encoded as {encoding[:40]!r}, which was not asked for")
        decoder = Gunzip() if encoding.endswith("gzip") else None
        body = bytearray()
        try:
            async with aclosing(_stream(response)) as chunks:
                async for chunk in chunks:
                    room = feed.max_body - len(body) + 1
                    for piece in decoder.decoded(chunk, room) if decoder else (chunk,):
                        body += piece
                    if len(body) > feed.max_body:
                        return too_large
        except zlib.error as error:
            return Failure(f"the body is damaged gzip: {error}")
        if decoder is not None and not decoder.whole:
            return Failure("the body is truncated: its gzip stream has no end")
        headers = response.headers
        return Body(bytes(body), Validators(headers.get("etag"), _safe_to_ask_with(headers)))

    def _transport(self, url: httpx.URL, *, own: bool) -> httpx.AsyncHTTPTransport:
        # Hosts that only redirects lead to share one transport for each proxy: there may be any number of them.
        name = _origin(url) if own else f"elsewhere by {self._proxy(url)}"
        if name not in self._transports:
            self._transports[name] = httpx.AsyncHTTPTransport(
                verify=self._tls,
                proxy=self._proxy(url),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEP_ALIVE),
            )
        return self._transports[name]

    def _proxy(self, url: httpx.URL) -> str | None:
        """The proxy that the environment names for this URL, by the usual variables."""
        proxy = self._proxies.get(url.scheme) or self._proxies.get("all")
        return proxy if proxy and not proxy_bypass(url.host) else None


class Gunzip:
    """Decodes gzip without ever making more than it is allowed to, whatever the stream promises."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(31)
        self._begun = False

    @property
    def whole(self) -> bool:
        """Whether the stream ended where a stream may end."""
        return self._member.eof or not self._begun

    def decoded(self, chunk: bytes, most: int) -> Iterator[bytes]:
        """What this chunk decodes to, cut off after `most` bytes."""
        while chunk and most > 0:
            if self._member.eof:
                self._member = zlib.decompressobj(31)  # gzip streams may be strung together
            self._begun = True
            piece = self._member.decompress(chunk, most)
            most -= len(piece)
            chunk = self._member.unused_data
            yield piece


async def _stream(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """The body as it comes over the wire. (httpx's own iterators decode, and without a bound.)"""
    assert isinstance(response.stream, httpx.AsyncByteStream)
    async for chunk in response.stream:
        yield chunk


async def _drain(response: httpx.Response) -> None:
    """Read a short body to its end, so that the connection can be used again."""
    seen = 0
    async with aclosing(_stream(response)) as chunks:
        async for chunk in chunks:
            seen += len(chunk)
            if seen > MAX_DRAINED:
                return


async def _close(response: httpx.Response) -> None:
    assert isinstance(response.stream, httpx.AsyncByteStream)
    with suppress(httpx.TransportError, OSError):
        await response.stream.aclose()


@lru_cache(maxsize=4096)
def _parsed(url: str) -> tuple[httpx.URL, str]:
    """A feed's URL as it is asked for, and its origin. Parsing takes longer than sending."""
    found = httpx.URL(url).copy_with(fragment=None)
    return found, _origin(found)


def _origin(url: httpx.URL) -> str:
    port = url.port or {"http": 80, "https": 443}.get(url.scheme)
    return f"{url.scheme}://{url.host}:{port}"


def _credentials(url: httpx.URL) -> dict[str, str]:
    """What `user:password@` in a URL means."""
    if not url.username and not url.password:
        return {}
    pair = f"{url.username}:{url.password}".encode()
    return {"authorization": "Basic " + base64.b64encode(pair).decode()}


def retry_after(text: str | None, clock: Clock) -> float | None:
    """Seconds, from a number of them or from a date."""
    if text is None:
        return None
    if text.strip().isascii() and text.strip().isdecimal():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - clock.now()).total_seconds())


def _words(error: httpx.TransportError) -> str:
    """What happened on the way. The text below it comes from the system or the TLS library, and helps."""
    below = str(error).strip()
    detail = f": {below}" if below else ""
    match error:
        case httpx.ProxyError():
            return f"the proxy refused{detail}"
        case httpx.ConnectError():
            return f"no connection{detail}"
        case httpx.RemoteProtocolError() if "complete message body" in below or "incomplete chunked" in below:
            return f"the body is truncated{detail}"
        case httpx.RemoteProtocolError():
            return f"the answer is not HTTP{detail}" if "disconnected" not in below else f"no answer{detail}"
        case httpx.NetworkError():
            return f"the connection broke{detail}"
        case _:
            return f"{type(error).__name__}{detail}"


def secrets_of(feed: Feed) -> list[str]:
    """Every text of this feed's configuration that must not be repeated, the longest first."""
    url = feed.url.reveal()
    parts = urlsplit(url)
    found = {url, parts.query, parts.fragment, parts.username or "", parts.password or ""}
    found |= {pair.partition("=")[2] for pair in parts.query.split("&")}
    found |= {unquote(text) for text in found} | {unquote_plus(text) for text in found}
    found |= set(revealed(feed.headers).values())
    # Shorter ones would cut up ordinary words, and keep no secret.
    return sorted((text for text in found if len(text) >= 4), key=len, reverse=True)


def scrubbed(text: str, secrets: list[str]) -> str:
    """The text without any of the secrets."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def _safe_to_ask_with(headers: httpx.Headers) -> str | None:
    """The Last-Modified of an answer, unless the body could have changed again in that very second."""
    modified = headers.get("last-modified")
    try:
        apart = parsedate_to_datetime(headers["date"]) - parsedate_to_datetime(modified or "")
    except (KeyError, ValueError, TypeError):
        return None
    return modified if apart >= timedelta(seconds=1) else None

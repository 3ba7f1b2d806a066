"""Schemas that live in a registry, and the frame that says which of them a message was written with.

The registry speaks Confluent's REST API, as Apicurio, Karapace and Redpanda do, too. A frame is a byte 0 and the
schema's number, four bytes, the highest first; the message follows. A number means the same schema for good, so what
was asked once is never asked again in the same process.

A registry that is away, or refuses, is an error: nothing is written, and the range is tried again. A registry that is
there and has no such schema is the message's own trouble: a dead letter.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pyarrow as pa

from catchment.clock import SYSTEM, Clock
from catchment.config.secret import Url, shown_url
from catchment.errors import CatchmentError, ExportStopped, RegistryError, UsageError
from catchment.topics.decode import wire

FRAME = 5  # bytes: magic and number
TIMEOUT = 10.0  # seconds to connect, and between two pieces of an answer
PAUSES = (0.2, 1.0, 4.0)  # seconds before each further try
MOST_UNKNOWN = 1000  # numbers that the registry does not have, until we ask no more
MEMORY = 60.0  # seconds for which such a number is not asked for again: it may yet be registered
_NO_SUCH = (40401, 40402, 40403)  # the registry's words for: no such subject, version, schema
_AGAIN = {408, 425, 429}


class UnknownSchema(CatchmentError):
    """The registry is there, and has no schema of this number or name."""


@dataclass(frozen=True)
class Reference:
    """Another schema that a schema uses."""

    name: str  # as the schema calls it: a named type of Avro, a file of Protobuf, a $ref of JSON Schema
    subject: str
    version: int


@dataclass(frozen=True)
class Registered:
    """One schema of a registry."""

    number: int
    kind: str  # AVRO, PROTOBUF or JSON
    text: str
    references: tuple[Reference, ...] = ()


class Registry:
    """Asks one registry for schemas, each of them once. Safe for threads.

    url: `https://user:password@host/path`; user and password go into a header and are never shown.
    """

    def __init__(self, url: str | Url, *, transport: httpx.BaseTransport | None = None, clock: Clock = SYSTEM) -> None:
        revealed = url.reveal() if isinstance(url, Url) else url
        self.shown = shown_url(revealed).rstrip("/")
        parsed = httpx.URL(revealed)
        if parsed.query or parsed.fragment:
            raise UsageError(
                f"the schema registry {self.shown} has a query in its URL",
                hint="write https://user:password@host/path; a registry takes its key as user and password",
            )
        auth = (parsed.username, parsed.password) if parsed.userinfo else None
        self._base = str(parsed.copy_with(userinfo=b"")).rstrip("/")
        self._client = httpx.Client(
            transport=transport,
            auth=auth,
            timeout=TIMEOUT,
            limits=httpx.Limits(max_keepalive_connections=0),  # we come back rarely
            headers={"accept": "application/vnd.schemaregistry.v1+json, application/json"},
        )
        self._clock = clock
        self._lock = threading.RLock()
        self._known: dict[tuple[int, bool], Registered] = {}
        self._versions: dict[tuple[str, int], int] = {}
        self._unknown: dict[int, float] = {}  # number → when that was, on our clock

    def schema(self, number: int, *, serialized: bool = False) -> Registered:
        """The schema of this number. UnknownSchema if there is none; RegistryError if nobody can say.

        serialized: of PROTOBUF, `text` is the base64 of a FileDescriptorProto in place of .proto text.
        """
        with self._lock:
            known = self._known.get((number, serialized))
            if known is None:
                known = self._known[number, serialized] = self._asked(number, serialized=serialized)
            return known

    def referenced(self, reference: Reference, *, serialized: bool = False) -> Registered:
        """The schema that a reference means."""
        at = (reference.subject, reference.version)
        with self._lock:
            if at not in self._versions:
                path = f"/subjects/{quote(reference.subject, safe='')}/versions/{reference.version}"
                what = f"version {reference.version} of subject {reference.subject!r}"
                # A version that was deleted since is still what the schemas that refer to it were made with.
                self._versions[at] = _number(self._get(f"{path}?deleted=true", what).get("id"), self._base + path)
            return self.schema(self._versions[at], serialized=serialized)

    def close(self) -> None:
        self._client.close()

    def _asked(self, number: int, *, serialized: bool) -> Registered:
        what = f"schema {number}"
        now = self._clock.monotonic()
        if now - self._unknown.get(number, -MEMORY) < MEMORY:
            raise _absent(what)
        try:
            found = self._get(f"/schemas/ids/{number}" + ("?format=serialized" if serialized else ""), what)
        except UnknownSchema:
            self._unknown = {one: at for one, at in self._unknown.items() if now - at < MEMORY} | {number: now}
            if len(self._unknown) > MOST_UNKNOWN:
                raise ExportStopped(
                    f"messages name more than {MOST_UNKNOWN:,} schemas that the schema registry {self.shown} lacks",
                    hint="do these messages begin with a byte 0 and a schema's number? If not, decode without registry",
                ) from None
            raise
        return _registered(number, found, self.shown)

    def _get(self, path: str, what: str) -> Mapping[str, Any]:
        response = self._answer(path, what)
        try:
            found = response.json()
        except (ValueError, RecursionError):
            found = None
        if response.status_code == 404 and isinstance(found, dict) and found.get("error_code") in _NO_SUCH:
            raise _absent(what)
        if response.status_code == 200 and isinstance(found, dict):
            return found
        raise self._refused(response.status_code, found, what)

    def _answer(self, path: str, what: str) -> httpx.Response:
        """The answer, once it is neither a broken connection nor a passing trouble of the registry."""
        trouble = ""
        for pause in (*PAUSES, None):
            try:
                response = self._client.get(self._base + path)
            except httpx.RequestError as error:
                trouble = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            else:
                if response.status_code < 500 and response.status_code not in _AGAIN:
                    return response
                trouble = f"it answered {response.status_code} {response.reason_phrase}".rstrip()
            if pause is not None:
                self._clock.sleep(pause)
        raise RegistryError(
            f"the schema registry {self.shown} was asked for {what} {len(PAUSES) + 1} times in vain ({trouble})",
            hint="nothing was written; the range is tried again. See whether the registry is up and can be reached",
        )

    def _refused(self, status: int, found: object, what: str) -> RegistryError:
        said = found.get("message") if isinstance(found, dict) else None
        detail = f": {str(said)[:200]}" if said else ""
        hint = "is the URL right, path included? Open it in a browser: it should answer {} or a list of subjects"
        if status in (401, 403):
            hint = "write the registry as https://user:password@host, with a user that may read schemas"
        return RegistryError(
            f"the schema registry {self.shown} answered {status} when asked for {what}{detail}", hint=hint
        )


def _absent(what: str) -> UnknownSchema:
    return UnknownSchema(f"the registry has no {what}")


def _number(value: object, url: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _odd(shown_url(url))
    return value


def _odd(where: str) -> RegistryError:
    return RegistryError(
        f"{where} answered with something that is not a schema",
        hint="is it a schema registry that speaks Confluent's REST API? Check the URL, path included",
    )


def _registered(number: int, found: Mapping[str, Any], shown: str) -> Registered:
    text, kind = found.get("schema"), found.get("schemaType", "AVRO")  # Avro is what goes without saying
    if not isinstance(text, str) or not isinstance(kind, str):
        raise _odd(shown)
    try:
        references = tuple(
            Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
            for one in found.get("references") or ()
        )
    except (TypeError, KeyError, ValueError):
        raise _odd(shown) from None
    return Registered(number, kind.upper(), text, references)


_SHARED: dict[str, Registry] = {}
_SHARED_LOCK = threading.Lock()


def shared(url: str | Url) -> Registry:
    """The one registry of this URL in this process, with all that was asked before."""
    text = url.reveal() if isinstance(url, Url) else url
    with _SHARED_LOCK:
        if text not in _SHARED:
            _SHARED[text] = Registry(text)
        return _SHARED[text]


@dataclass(frozen=True)
class Unframed:
    """Messages without their frames: number `i` is `data[starts[i]:ends[i]]`. Nothing was copied."""

    numbers: np.ndarray[Any, np.dtype[np.int32]]  # of the schemas; 0 where bad
    data: wire.Bytes
    starts: wire.Positions
    ends: wire.Positions
    bad: dict[int, str]  # why a message has no frame

    @property
    def bodies(self) -> pa.BinaryArray:
        """As an array: a copy. Empty where bad."""
        return wire.slices(self.data, self.starts, self.ends - self.starts)


def unframed(values: pa.BinaryArray) -> Unframed:
    """Take off the frames: a byte 0, and four bytes with the number of a schema."""
    data, starts, ends = wire.flat(values)
    magic, after, short = wire.fixed(data, starts, ends, "u1")
    numbers, after, cut = wire.fixed(data, after, ends, ">i4")
    wrong = short | cut | (magic != 0) | (numbers < 0)
    if not wrong.any():
        return Unframed(numbers.astype(np.int32), data, after, ends, {})
    reasons = {}
    for at in map(int, np.flatnonzero(wrong)):
        if starts[at] == ends[at]:
            reasons[at] = "the message has no value"
        elif magic[at] != 0:
            reasons[at] = "not framed: the first byte is not the 0 that comes before a schema's number"
        elif cut[at]:
            reasons[at] = "not framed: ends within the schema's number"
        else:
            reasons[at] = "not framed: no schema has a negative number"
    numbers = np.where(wrong, 0, numbers).astype(np.int32)
    return Unframed(numbers, data, np.where(wrong, ends, after), ends, reasons)

"""Names, places and addresses: what may become a folder, a key, a file, a host. None of them can leave its place."""

from __future__ import annotations

import ipaddress
import re
import zoneinfo
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo

from catchment.config.fields import of_pattern, of_text
from catchment.config.secret import Url
from catchment.config.section import Wrong

ID_FORM = "start with a letter or digit, then use letters, digits, '_', '-' and '.', at most 64 in all"
NAME_FORM = "start with a letter, then use letters, digits and '_', at most 64 in all"
_id = of_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "cannot be the name of a folder", ID_FORM)

Id = Annotated[str, BeforeValidator(of_text(_id))]
Name = Annotated[str, BeforeValidator(of_text(of_pattern(r"[A-Za-z][A-Za-z0-9_]{0,63}", "is not a name", NAME_FORM)))]
Postfix = Annotated[
    str,
    BeforeValidator(
        of_text(of_pattern(r"[A-Za-z0-9._-]{0,32}", "cannot end a file name", "write something like .json or .pb"))
    ),
]
FileName = Annotated[
    str,
    BeforeValidator(
        of_text(of_pattern(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", "is not a file name", "write one like _HISTORYDONE"))
    ),
]
FunctionName = Annotated[
    str,
    BeforeValidator(
        of_text(
            of_pattern(
                r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", "is not a function", "write it as module:function"
            )
        )
    ),
]


def _line(text: str) -> str:
    if not text.strip():
        raise Wrong("is empty", "write a text, or leave the key out")
    if not text.isprintable():
        raise Wrong("has a line break or control character in it", "write it on one line")
    return text


def _prose(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise Wrong("is empty", "write a text, or leave the key out")
    return text


Line = Annotated[str, BeforeValidator(of_text(_line))]
Prose = Annotated[str, BeforeValidator(of_text(_prose))]  # may have several lines: SQL, a schema


def check_prefix(text: str) -> str:
    """A place in the bucket: part/part, with nothing that could leave it."""
    if text != text.strip("/"):
        raise Wrong("has a slash at an end", "write it without, as part/part")
    if not text or not text.isprintable() or len(text.encode(errors="replace")) > 512:
        raise Wrong("is not a place in a bucket", "write it as part/part")
    if any(part in ("", ".", "..") for part in text.split("/")):
        raise Wrong("has an empty, '.' or '..' part, which could leave its folder", "write it as part/part")
    if text.split("/")[0] == ".catchment":
        raise Wrong("is under .catchment/, which a local directory keeps for itself", "use another name")
    return text


Prefix = Annotated[str, BeforeValidator(of_text(check_prefix))]


def _zone(text: str) -> str:
    try:
        zoneinfo.ZoneInfo(text) if text != "UTC" else None
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise Wrong("is not a time zone", "write one of the tz database, as in UTC or Europe/Berlin") from None
    return text


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        # Only the position: the error's own words quote the pattern, which may have come from the environment.
        place = f" (see character {error.pos + 1})" if isinstance(error, re.error) and error.pos is not None else ""
        raise Wrong(f"is not a regular expression{place}", "mend it, and put single quotes around it in YAML") from None
    if not text:
        raise Wrong("is empty", "write a regular expression")
    return text


Zone = Annotated[str, BeforeValidator(of_text(_zone))]
Regex = Annotated[str, BeforeValidator(of_text(_regex))]


def local_path(raw: object, info: ValidationInfo) -> Path:
    """Relative paths start at the folder of the configuration file (from a URL: the current folder)."""

    def check(text: str) -> Path:
        _line(text)
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text):
            raise Wrong("is a URL", "write the path of a local file or folder")
        return Path(text)

    path = of_text(check, ready=Path)(raw)
    base: Path = (info.context or {}).get("base") or Path.cwd()
    try:
        return base / path.expanduser()
    except RuntimeError:
        raise Wrong("names a home folder that is not there", "write the whole path") from None


LocalPath = Annotated[Path, BeforeValidator(local_path)]


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, so that nothing on the way can read or change what is sent."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_url(text: str) -> str:
    """An http(s) URL with a host."""
    form = "write one like https://host/path"
    if not text.isprintable() or " " in text:
        raise Wrong("has a space or control character in it", "encode it, as in %20")
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise Wrong("is not a URL", form) from None
    if parts.scheme not in ("http", "https"):
        raise Wrong("does not start with http:// or https://", form)
    if not host:
        raise Wrong("names no host", form)
    return text


def _endpoint(text: str) -> str:
    check_url(text)
    parts = urlsplit(text)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise Wrong(
            "has a user, a query or a fragment in it", "write only https://host:port; keys have their own places"
        )
    return text.rstrip("/")


_BROKER = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})", re.ASCII)


def _brokers(text: str) -> str:
    listed = [broker.strip() for broker in text.split(",")]
    for broker in listed:
        match = _BROKER.fullmatch(broker)
        if match is None or not 0 < int(match[1]) < 65536:
            raise Wrong(
                "is not a list of brokers", "write host:port, several with commas between: kafka-1:9092,kafka-2:9092"
            )
    return ",".join(listed)


# URLs are never quoted in errors: a user, a password or a key may be in them.
HttpUrl = Annotated[
    Url,
    BeforeValidator(of_text(lambda text: Url(check_url(text)), hide=True, ready=Url)),
    PlainSerializer(str, return_type=str, when_used="json"),
]
Endpoint = Annotated[str, BeforeValidator(of_text(_endpoint, hide=True))]
Brokers = Annotated[str, BeforeValidator(of_text(_brokers))]
Host = Annotated[
    str,
    BeforeValidator(of_text(of_pattern(r"[A-Za-z0-9:][A-Za-z0-9._:-]{0,252}", "is not an address", "write 127.0.0.1"))),
]

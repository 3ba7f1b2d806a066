"""Tar as we write it, and as others may.

We write POSIX tar: owner 0, mode 0644, the download's own time, a zero-filled end. A name that does not fit the classic
header (over 100 bytes, or not ASCII) goes before it in a pax record. An entry is a file, or a hard link to one that
came earlier. All of it follows from the names and the bodies, so the same downloads make the same tar.

We read that, the older GNU long names, and whatever else `tar` writes for plain files.
"""

from __future__ import annotations

from dataclasses import dataclass

from catchment.feeds.codec import Corrupt, Inflow

BLOCK = 512
_RECORD = 20 * BLOCK  # what tar programs pad the whole to
_MOST_TIME = 8**11 - 1
_LONGEST_HEAD = 1 << 20  # of pax records and long names

_ZERO = b"0000000\0"
_MODE_AND_OWNER = b"0000644\0" + _ZERO + _ZERO
_REST = b"ustar\0" + b"00" + bytes(32 + 32) + _ZERO + _ZERO + bytes(155 + 12)  # owner's names, device, prefix

FILE = b"0"
LINK = b"1"
_FILES = (FILE, b"\0", b"7")
_OTHERS = {b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"5": "a folder", b"6": "a pipe"}


def head(name: str, *, size: int, seconds: int, target: str | None = None) -> bytes:
    """All that stands before a body. `target`: it is a hard link to that earlier member, and has no body."""
    plain, plain_target = _classic(name), _classic(target or "")
    records = b""
    if plain is None:
        records += _record("path", name)
    if plain_target is None and target is not None:
        records += _record("linkpath", target)
    kind = FILE if target is None else LINK
    block = _header(
        plain if plain is not None else _shortened(name),
        kind,
        size=size,
        seconds=seconds,
        target=plain_target if plain_target is not None else _shortened(target or ""),
    )
    if not records:
        return block
    return _header(b"././@PaxHeader", b"x", size=len(records), seconds=0) + records + padding(len(records)) + block


def padding(size: int) -> bytes:
    """The zeros that follow a body of this size."""
    return bytes(-size % BLOCK)


def ending(size: int) -> bytes:
    """The zeros that end a tar whose entries take this many bytes."""
    least = 2 * BLOCK
    return bytes(least + -(size + least) % _RECORD)


def _header(name: bytes, kind: bytes, *, size: int, seconds: int, target: bytes = b"") -> bytes:
    numbers = b"%011o\0%011o\0" % (size, min(max(seconds, 0), _MOST_TIME))
    start = name.ljust(100, b"\0") + _MODE_AND_OWNER + numbers
    end = kind + target.ljust(100, b"\0") + _REST
    return start + b"%06o\0 " % (sum(start) + sum(end) + 8 * ord(" ")) + end


def _classic(text: str) -> bytes | None:
    return text.encode() if text.isascii() and len(text) <= 100 else None


def _shortened(text: str) -> bytes:
    return text.encode("ascii", "replace")[:100]


def _record(key: str, value: str) -> bytes:
    """`<length> <key>=<value>` and a line feed, where the length counts its own digits."""
    rest = b" %b=%b\n" % (key.encode(), value.encode())
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return b"%d%b" % (length, rest)


@dataclass(frozen=True, slots=True)
class Item:
    """One member of a tar, before its body."""

    path: str  # as it stands there: to be judged, never to be followed
    kind: bytes
    size: int  # of the body that follows
    target: str  # of a link
    head: bytes  # all bytes before the body

    @property
    def is_file(self) -> bool:
        return self.kind in _FILES and not self.path.endswith("/")

    @property
    def what(self) -> str:
        """For people: a file, a folder, a device …"""
        return "a folder" if self.path.endswith("/") else _OTHERS.get(self.kind, "of an unknown kind")


class Reader:
    """The members of a tar, one after the other: `next`, then `body` or `skip`."""

    def __init__(self, flow: Inflow) -> None:
        self._flow = flow
        self._standard: dict[str, str] = {}  # pax records that hold for all members after them

    def next(self) -> Item | None:
        """The next member; None at the end, when all that follows has been seen to be whole."""
        self._flow.begin()
        special: dict[str, str] = {}
        seen = b""
        while True:
            block = self._flow.read(BLOCK)
            if not block:
                raise Corrupt("has no end mark: it was cut short")
            if len(block) == BLOCK and block[0] == 0 and not any(block):
                while self._flow.read(1 << 16):
                    pass  # so that the checksum of the whole is seen
                return None
            kind, size = _parse(block)
            seen += block
            if kind not in b"xgLK":
                break
            if size > _LONGEST_HEAD:
                raise Corrupt("has a header of impossible size")
            content = self._exactly(size)
            seen += content + self._exactly(-size % BLOCK)
            if kind == b"x":
                special |= _records(content)
            elif kind == b"g":
                self._standard |= _records(content)
            else:
                special["path" if kind == b"L" else "linkpath"] = _text(content)
        told = self._standard | special
        if "size" in told:
            if not told["size"].isdecimal():
                raise Corrupt("has a pax record with a size that is no number")
            size = int(told["size"])
        if kind not in _FILES:
            size = 0 if kind in b"123456" else size
        return Item(
            path=told["path"] if "path" in told else _path(block),
            kind=kind,
            size=size,
            target=told["linkpath"] if "linkpath" in told else _text(block[157:257]),
            head=seen,
        )

    def body(self, item: Item) -> tuple[bytes, bytes | None]:
        """The body, and the compressed form of the whole entry if it stands alone and its padding is zeros."""
        found = self._exactly(item.size)
        pad = self._exactly(-item.size % BLOCK)
        return found, self._flow.segment() if not any(pad) else None

    def skip(self, item: Item) -> None:
        """Go past the body without keeping it."""
        left = item.size + -item.size % BLOCK
        while left:
            left -= len(self._exactly(min(left, 1 << 16)))

    def _exactly(self, size: int) -> bytes:
        found = self._flow.read(size) if size else b""
        if len(found) < size:
            raise Corrupt("ends in the middle of a member: it was cut short")
        return found


def _parse(block: bytes) -> tuple[bytes, int]:
    """The kind and the size that a header block tells."""
    if len(block) < BLOCK:
        raise Corrupt("ends in the middle of a header: it was cut short")
    if _number(block[148:156]) != sum(block) - sum(block[148:156]) + 8 * ord(" "):
        raise Corrupt("has a header with a wrong checksum")
    return block[156:157], _number(block[124:136])


def _number(field: bytes) -> int:
    if field[:1] == b"\x80":  # larger than the digits can say
        return int.from_bytes(field[1:], "big")
    try:
        found = int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        raise Corrupt("has a header with a number that is none") from None
    if found < 0:
        raise Corrupt("has a header with a negative number")
    return found


def _path(block: bytes) -> str:
    name, prefix = _text(block[:100]), _text(block[345:500])
    return f"{prefix}/{name}" if prefix and block[257:263] == b"ustar\0" else name


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _records(content: bytes) -> dict[str, str]:
    found = {}
    while content:
        digits, space, _ = content.partition(b" ")
        length = int(digits) if digits.isdigit() and len(digits) < 8 else 0
        key, equals, value = content[len(digits) + 1 : length - 1].partition(b"=")
        if not (space and equals and len(digits) + 1 < length <= len(content)):
            raise Corrupt("has a pax record that cannot be read")
        found[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        content = content[length:]
    return found

"""SequenceFiles: every byte as Hadoop's description of the format has it, and all of it read again."""

from __future__ import annotations

import hashlib
import io
import itertools
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.topics.files import pieces, scan, sequence
from catchment.topics.files.format import Damaged, FileFormat
from catchment.topics.files.packed import GZIP_LEVEL, ZSTD_LEVEL
from catchment.topics.files.sequence import BYTES, CODECS, LONG
from catchment.topics.records import BACKED
from tests.unit.topics.files.files import NAME, about, format_of, laid_out, read, table
from tests.unit.topics.write.ranges import Message

HOW: list[dict[str, str]] = [
    {"compression": "none"},
    *({"compression": how, "codec": codec} for how in ("record", "block") for codec in ("gzip", "zstd")),
]
ALL = [{"key": key, **how} for key in ("offset", "msgpack") for how in HOW]
MARKER = hashlib.md5(NAME.encode(), usedforsecurity=False).digest()
MARK = b"\xff\xff\xff\xff" + MARKER


def named(options: dict[str, str]) -> str:
    return "-".join(options.values())


def sequence_of(options: dict[str, str]) -> FileFormat:
    return format_of(name="sequence", **options)


def u32(number: int) -> bytes:
    return number.to_bytes(4, "big")


def text_of(value: str) -> bytes:
    body = value.encode()
    return vint(len(body)) + body


def vint(number: int) -> bytes:
    if number <= 127:
        return bytes([number])
    size = (number.bit_length() + 7) // 8
    return bytes([0x90 - size]) + number.to_bytes(size, "big")


def header(options: dict[str, str], metadata: dict[str, str]) -> bytes:
    compressed, block = options["compression"] != "none", options["compression"] == "block"
    ((name, value),) = metadata.items()
    return (
        b"SEQ\x06"
        + text_of(LONG if options["key"] == "offset" else BYTES)
        + text_of(BYTES)
        + bytes([compressed, block])
        + (text_of(CODECS[options["codec"]]) if compressed else b"")
        + u32(1)
        + text_of(name)
        + text_of(value)
        + MARKER
    )


def key_of(one: Message, kind: str) -> bytes:
    if kind == "offset":
        return one.offset.to_bytes(8, "big")
    body = msgspec.msgpack.encode({1: one.offset} | ({} if one.key is None else {2: one.key}))
    return u32(len(body)) + body


def value_of(one: Message) -> bytes:
    assert one.value is not None
    return u32(len(one.value)) + one.value


def squeezed(body: bytes, codec: str) -> bytes:
    if codec == "gzip":
        return zlib.compress(body, GZIP_LEVEL, 31)
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(body)


def by_the_book(options: dict[str, str], messages: Sequence[Message], last: int = 9) -> bytes:
    """A file made one record at a time, as the description has it."""
    kind, how, codec = options["key"], options["compression"], options.get("codec", "")
    out = bytearray(header(options, about(1, last).metadata))
    marked = 0
    if how != "block":
        for one in messages:
            if len(out) >= marked + sequence.INTERVAL:
                out += MARK
                marked = len(out)
            key, value = key_of(one, kind), value_of(one)
            body = squeezed(value, codec) if how == "record" else value
            out += u32(len(key) + len(body)) + u32(len(key)) + key + body
        return bytes(out)
    for block in blocks(messages, kind):
        keys, values = [key_of(one, kind) for one in block], [value_of(one) for one in block]
        out += MARK + vint(len(block))
        for part in (map(vint, map(len, keys)), keys, map(vint, map(len, values)), values):
            body = squeezed(b"".join(part), codec)
            out += vint(len(body)) + body
    return bytes(out)


def blocks(messages: Sequence[Message], kind: str) -> Iterator[list[Message]]:
    held: list[Message] = []
    size = 0
    for one in messages:
        held.append(one)
        size += len(key_of(one, kind)) + len(value_of(one))
        if size >= sequence.BLOCK:
            yield held
            held, size = [], 0
    if held:
        yield held


def kept(messages: Sequence[Message], kind: str) -> list[dict[str, Any]]:
    return [
        {"offset": one.offset, **({"key": one.key} if kind == "msgpack" else {}), "value": one.value}
        for one in messages
    ]


SOME = [Message(5, b"hello", b"key"), Message(300, b"", None), Message(1 << 40, b"x" * 200, b"")]


def test_a_tiny_file_written_out() -> None:
    about_it = b'{"first": 0, "generation": 1, "kafka_partition": "3", "last": 9, "topic": "clicks"}'
    assert laid_out(sequence_of({"key": "offset", "compression": "none"}), [table(SOME[:2])]) == (
        b"SEQ\x06"
        b"\x21org.apache.hadoop.io.LongWritable"
        b"\x22org.apache.hadoop.io.BytesWritable"
        b"\x00\x00"
        b"\x00\x00\x00\x01\x09catchment" + bytes([len(about_it)]) + about_it + MARKER + b"\x00\x00\x00\x11"
        b"\x00\x00\x00\x08"
        b"\x00\x00\x00\x00\x00\x00\x00\x05"
        b"\x00\x00\x00\x05hello"
        b"\x00\x00\x00\x0c\x00\x00\x00\x08"
        b"\x00\x00\x00\x00\x00\x00\x01\x2c"
        b"\x00\x00\x00\x00"
    )


def test_tiny_records_with_msgpack_keys_written_out() -> None:
    body = laid_out(sequence_of({"key": "msgpack", "compression": "none"}), [table(SOME[:2])])
    assert body.partition(MARKER)[2] == (
        b"\x00\x00\x00\x16\x00\x00\x00\x0d"
        b"\x00\x00\x00\x09\x82\x01\x05\x02\xc4\x03key"
        b"\x00\x00\x00\x05hello"
        b"\x00\x00\x00\x0d\x00\x00\x00\x09"
        b"\x00\x00\x00\x05\x81\x01\xcd\x01\x2c"
        b"\x00\x00\x00\x00"
    )


@pytest.mark.parametrize("options", ALL, ids=named)
def test_every_kind_of_file_is_by_the_book(options: dict[str, str]) -> None:
    body = laid_out(sequence_of(options), [table(SOME)])
    assert body == by_the_book(options, SOME)
    assert read(sequence_of(options), body) == kept(SOME, options["key"])


@pytest.mark.parametrize("options", ALL, ids=named)
@pytest.mark.parametrize(("cut", "size"), [(1, 1), (133, 4000), (399, 1 << 20)])
def test_markers_and_blocks_are_where_the_records_say(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], cut: int, size: int
) -> None:
    """However the records were cut into pieces on the way, and however the file is read."""
    monkeypatch.setattr(sequence, "INTERVAL", 2000)
    monkeypatch.setattr(sequence, "BLOCK", 3000)
    monkeypatch.setattr(sequence, "pieces", partial(pieces.pieces, size=size))
    monkeypatch.setattr(scan, "PIECE", 1500)
    sizes = itertools.cycle([0, 1, 30, 127, 128, 5, 800])
    given = [Message(3 * n, b"%d " % n * next(sizes), None if n % 3 else b"k" * (n % 300)) for n in range(400)]
    wanted = by_the_book(options, given, 2000)
    format, records = sequence_of(options), table(given)
    assert laid_out(format, [records], 2000) == wanted
    assert laid_out(format, [records.slice(0, cut), records.slice(cut)], 2000) == wanted
    assert wanted.count(MARK) > 5
    assert read(format, wanted) == kept(given, options["key"])


keys = st.none() | st.binary(max_size=300)
messages = st.lists(st.tuples(st.integers(0, (1 << 63) - 1), keys, st.binary(max_size=400)), min_size=1, max_size=20)


@settings(max_examples=50)
@given(messages, st.sampled_from(ALL))
def test_what_is_written_is_read(given: list[tuple[int, bytes | None, bytes]], options: dict[str, str]) -> None:
    some = [Message(offset, value, key) for offset, key, value in given]
    format = sequence_of(options)
    body = laid_out(format, [table(some)])
    assert body == by_the_book(options, some)
    assert read(format, body) == kept(some, options["key"])
    assert format.count(io.BytesIO(body)) == len(some)


def test_messages_as_records() -> None:
    for options in ALL:
        format = sequence_of(options)
        (found,) = format.read(io.BytesIO(laid_out(format, [table(SOME)])))
        records = format.kept(found)
        assert records.schema == BACKED
        assert records["offset"].to_pylist() == [one.offset for one in SOME]
        assert records["key"].to_pylist() == [one.key if options["key"] == "msgpack" else None for one in SOME]
        assert records["timestamp"].null_count == len(SOME)


def test_a_message_without_a_value_cannot_be_kept() -> None:
    format = sequence_of({"key": "offset", "compression": "none"})
    reasons = format.refused(table([Message(0, b""), Message(1, None)]))
    assert reasons is not None
    assert reasons.to_pylist()[0] is None
    assert "cannot say so; format parquet keeps it" in reasons.to_pylist()[1]
    assert format.refused(table(SOME)) is None


@pytest.mark.parametrize("options", ALL, ids=named)
def test_a_file_that_is_cut_off(options: dict[str, str]) -> None:
    """Wherever it is cut. After a whole record or block it looks whole: only a manifest knows that more is gone."""
    format = sequence_of(options)
    body = laid_out(format, [table(SOME)])
    edges = {len(by_the_book(options, SOME[:n])) for n in (range(4) if options["compression"] != "block" else (3,))}
    edges |= {len(header(options, about(1).metadata))}
    for end in range(len(body)):
        if end in edges:
            assert len(read(format, body[:end])) < len(SOME)
        else:
            with pytest.raises(Damaged):
                read(format, body[:end])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda body: b"SEQ\x05" + body[4:], "version 6"),
        (lambda body: body.replace(b"LongWritable", b"TextWritable"), "other classes"),
        (lambda body: body.replace(b"GzipCodec", b"WhatCodec"), "not known"),
        (lambda body: body.replace(MARK, b"\xff\xff\xff\xff" + b"0" * 16), "marker"),
        (lambda body: body[:-6] + bytes([body[-6] ^ 1]) + body[-5:], "gzip"),
        (lambda body: body + b"\x00\x00\x00\x01", "marker"),
    ],
)
def test_a_file_that_is_none_of_ours(change: Any, why: str) -> None:
    options = {"key": "offset", "compression": "block", "codec": "gzip"}
    format = sequence_of(options)
    with pytest.raises(Damaged, match=why):
        read(format, change(laid_out(format, [table(SOME)])))


@pytest.mark.parametrize("at", range(48))
def test_a_key_that_is_another(at: int) -> None:
    """Whatever byte of the first record is another one: rows of other content, or Damaged, and never another error."""
    options = {"key": "msgpack", "compression": "none"}
    format = sequence_of(options)
    body = bytearray(laid_out(format, [table(SOME)]))
    begin = len(header(options, about(1).metadata))
    for value in (0, 1, 0x7F, 0x80, 0xC6, 0xCF, 0xFF):
        body[begin + at] = value
        try:
            read(format, bytes(body))
        except Damaged:
            pass

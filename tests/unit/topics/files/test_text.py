"""Text files: splitting one at its delimiters gives back exactly the messages."""

from __future__ import annotations

import gzip
import io

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from catchment.topics.files import packed, text
from catchment.topics.files.format import Damaged
from catchment.topics.files.text import Text, delimiters, overlaps
from catchment.topics.records import BACKED
from tests.unit.topics.files.files import format_of, laid_out, read, table
from tests.unit.topics.write.ranges import Message

COMPRESSIONS = ["none", "gzip", "zstd"]
FEW = st.text("ab", min_size=1, max_size=4)  # few letters, so that they meet often


def values(*given: bytes | None) -> pa.Table:
    return table([Message(at, one) for at, one in enumerate(given)])


@pytest.mark.parametrize(("compression", "ext"), [("none", "txt"), ("gzip", "txt.gz"), ("zstd", "txt.zst")])
def test_what_a_file_is_called(compression: str, ext: str) -> None:
    assert format_of(name="text", compression=compression).ext == ext


def test_a_line_for_each_message() -> None:
    assert laid_out(format_of(name="text"), [values(b"a", b"", b"\r\xff")]) == b"a\n\n\r\xff\n"
    assert laid_out(format_of(name="text", delimiter="—\n"), [values(b"a", b"b")]) == "a—\nb—\n".encode()


def test_compressed_files_hold_the_same_and_nothing_of_the_day() -> None:
    given = values(*(b"message %d" % n for n in range(1000)))
    plain = laid_out(format_of(name="text"), [given])
    squeezed = laid_out(format_of(name="text", compression="gzip"), [given])
    assert gzip.decompress(squeezed) == plain
    assert squeezed[:8] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00"  # no name, no time
    squeezed = laid_out(format_of(name="text", compression="zstd"), [given])
    assert zstandard.ZstdDecompressor().stream_reader(squeezed).read() == plain


@given(FEW, st.lists(st.text("ab", max_size=6), min_size=1))
def test_splitting_gives_back_what_was_kept(delimiter: str, texts: list[str]) -> None:
    format = Text(delimiter.encode())
    given = values(*(one.encode() for one in texts))
    reasons = format.refused(given)
    dead = [False] * len(texts) if reasons is None else reasons.is_valid().to_pylist()
    kept = [one for one, lost in zip(texts, dead, strict=True) if not lost]
    assert dead == [(one + delimiter).find(delimiter) != len(one) for one in texts]
    body = laid_out(format, [values(*(one.encode() for one in kept))] if kept else [])
    assert body.decode().split(delimiter) == [*kept, ""]
    assert [row["value"] for row in read(format, body)] == [one.encode() for one in kept]


@given(st.binary(), FEW)
def test_where_delimiters_are(data: bytes, delimiter: str) -> None:
    given = data.replace(b"\x00", b"a").replace(b"\x01", b"b")
    found, at = [], 0
    while (at := given.find(delimiter.encode(), at)) >= 0:
        found.append(at)
        at += len(delimiter)
    assert delimiters(given, delimiter.encode()).tolist() == found


def test_delimiters_that_share_bytes() -> None:
    assert [one for one in (b"\n", b"ab", b"aa", b"aba", b"abab", b"\r\n") if overlaps(one)] == [b"aa", b"aba", b"abab"]


def test_why_a_message_cannot_be_kept() -> None:
    given = values(b"good", b"two\nlines", None, b"")
    reasons = format_of(name="text").refused(given)
    assert reasons is not None
    good, lines, none, empty = reasons.to_pylist()
    assert (good, empty) == (None, None)
    assert lines.startswith("the delimiter '\\n' is in the message") and "set another delimiter" in lines
    assert "no value" in none and "parquet keeps it" in none
    assert format_of(name="text").refused(values(b"good", b"")) is None
    overlap = format_of(name="text", delimiter="aa").refused(values(b"xa", b"x"))
    assert overlap is not None
    assert overlap.is_valid().to_pylist() == [True, False]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("cut", [1, 7, 500, 999])
def test_pieces_make_no_difference(monkeypatch: pytest.MonkeyPatch, compression: str, cut: int) -> None:
    monkeypatch.setattr(packed, "PIECE", 777)
    monkeypatch.setattr(text, "PIECE", 1000)
    format = format_of(name="text", compression=compression)
    given = values(*(b"%d " % n * (n % 50) for n in range(1000)))
    body = laid_out(format, [given])
    assert laid_out(format, [given.slice(0, cut), given.slice(cut)]) == body
    assert [row["value"] for row in read(format, body)] == given["value"].to_pylist()


def test_a_message_that_is_longer_than_what_is_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "PIECE", 100)
    format = format_of(name="text", delimiter="||")
    given = values(b"a", b"b|c" * 1001, b"d")
    assert [row["value"] for row in read(format, laid_out(format, [given]))] == given["value"].to_pylist()


def test_messages_as_records() -> None:
    format = format_of(name="text")
    (found,) = format.read(io.BytesIO(b"a\nb\n"))
    kept = format.kept(found)
    assert kept.schema == BACKED
    assert kept["value"].to_pylist() == [b"a", b"b"]
    assert kept["offset"].to_pylist() == [None, None]
    assert format.count(io.BytesIO(b"a\n\nb\n")) == 3


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_file_that_is_cut_off(compression: str) -> None:
    format = format_of(name="text", compression=compression, delimiter="||")
    body = laid_out(format, [values(*(b"%d" % n for n in range(50)))])
    for end in (len(body) - 1, len(body) // 2 + 1):
        with pytest.raises(Damaged):
            read(format, body[:end])


def test_wide_offsets_of_arrow_are_no_matter() -> None:
    """Spark can be told to use them."""
    for name, key in (("text", None), ("sequence", "msgpack")):
        format = format_of(name=name, **({"key": key} if key else {}))
        narrow = values(b"a", b"bc")
        wide = narrow.cast(pa.schema([(one.name, _wide(one.type)) for one in narrow.schema]))
        assert laid_out(format, [wide]) == laid_out(format, [narrow])
        assert format.refused(wide) is None


def _wide(kind: pa.DataType) -> pa.DataType:
    return pa.large_binary() if kind == pa.binary() else kind

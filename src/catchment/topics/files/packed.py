"""Compressed streams whose bytes depend on what is written, and not on the pieces in which it is.

A compressor may decide otherwise if it is fed otherwise, so it is always fed pieces of one size. A gzip file has no
name and no time in its header.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, Protocol

import pyarrow as pa
import zstandard

from catchment.topics.files.format import Damaged

PIECE = 1 << 20  # bytes
GZIP_LEVEL = 4  # twice as fast as the usual 6, and a tenth larger
ZSTD_LEVEL = 1  # as in our Parquet files
_GZIP = 31  # zlib's word for a gzip header around the largest window


class Sink(Protocol):
    """Where bytes go."""

    def write(self, data: bytes | memoryview, /) -> Any: ...


class _Compressor(Protocol):
    def compress(self, data: bytes | memoryview, /) -> bytes: ...
    def flush(self) -> bytes: ...


@contextmanager
def packing(sink: Sink, compression: str) -> Iterator[Sink]:
    """What is written in the block arrives compressed by gzip or zstd, or as it is (none)."""
    if compression == "none":
        yield sink
        return
    packer = _Packer(sink, _compressor(compression))
    yield packer
    packer.finish()


class _Packer:
    def __init__(self, sink: Sink, compressor: _Compressor) -> None:
        self._sink, self._compressor = sink, compressor
        self._held = bytearray()

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data).cast("B")
        at = 0
        if self._held:
            at = min(PIECE - len(self._held), len(view))
            self._held += view[:at]
            if len(self._held) < PIECE:
                return
            self._sink.write(self._compressor.compress(bytes(self._held)))
            self._held.clear()
        while len(view) - at >= PIECE:
            self._sink.write(self._compressor.compress(view[at : at + PIECE]))
            at += PIECE
        self._held += view[at:]

    def finish(self) -> None:
        self._sink.write(self._compressor.compress(bytes(self._held)) + self._compressor.flush())


def _compressor(compression: str) -> _Compressor:
    if compression == "gzip":
        return zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP)
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compressobj()


def packer(codec: str) -> Callable[[bytes | memoryview], bytes]:
    """What compresses many things, each whole and by itself. Not for two threads at a time."""
    if codec == "gzip":
        return lambda data: zlib.compress(data, GZIP_LEVEL, _GZIP)
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress


def unpacker(codec: str) -> Callable[[bytes | memoryview], bytes]:
    """What gives back what a `packer` was given. Damaged if it is not whole. Not for two threads at a time."""
    zstd = zstandard.ZstdDecompressor()

    def unpack(data: bytes | memoryview) -> bytes:
        stream = zlib.decompressobj(_GZIP) if codec == "gzip" else zstd.decompressobj()
        try:
            found = stream.decompress(data)
        except (zlib.error, zstandard.ZstdError) as error:
            raise Damaged(f"has a part that is no {codec} ({error})") from error
        if not stream.eof or stream.unused_data:
            raise Damaged(f"has a part that is not one whole piece of {codec}")
        return found

    return unpack


def unpacking(source: IO[bytes], compression: str, size: int) -> Iterator[pa.Buffer]:
    """The stream as it was before, in pieces of about this size. Damaged if it is not whole."""
    try:
        stream = pa.PythonFile(source, mode="r")
        unpacked = stream if compression == "none" else pa.CompressedInputStream(stream, compression)
        while piece := unpacked.read_buffer(size):
            yield piece
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"is no {compression} stream that can be read to its end ({error})") from error

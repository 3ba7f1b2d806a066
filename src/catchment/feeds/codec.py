"""The four compressions, as streams of tar entries.

An outflow takes one tar entry at a time, so that the same entries always make the same bytes: no clock, no file name,
no chunk sizes of the caller's choosing. An inflow gives the bytes back in whatever sizes are asked for, in bounded
memory, and notices when the file was cut anywhere, even in its last byte.

- zstd: level 3 with long-distance matching and a window of 8 MB, the largest that every decoder must support. Bodies of
  a feed are much alike, so almost all of a body is found in the ones before it, and matching far back is cheap.
- gzip: level 6. Its window of 32 KB is smaller than most bodies, so what an entry could save by looking at the one
  before is a few percent. We give it up: the compressor starts afresh at each entry (a full flush), which makes the
  compressed bytes of an entry independent of its neighbours. It is still one plain gzip member. Merging then copies
  those bytes after checking them, and does not compress again; compressing is nine tenths of the time of packing.
- bzip2: level 9. xz: preset 3, whose dictionary of 4 MB spans many bodies and whose encoder fits into 32 MB.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Sequence
from typing import BinaryIO, Protocol

import zstandard

from catchment.feeds.names import Compression

CHUNK = 1 << 16

# The header of our gzip files: no name, no time, and a comment that says that each tar entry stands alone. (An extra
# field would be the place for that, but Python's tarfile, reading from a pipe, stumbles over one.)
_GZIP_HEAD = b"\x1f\x8b\x08\x10\0\0\0\0\0\xff" + b"catchment: entries stand alone\0"
_FLUSHED = b"\0\0\xff\xff"  # what a full flush ends in: an empty stored block
# From the last byte of data to the end of the flush: an end-of-block code (15 bits at most), three bits, the mark.
_TAIL = 8
_ZSTD = zstandard.ZstdCompressionParameters.from_level(3, window_log=23, enable_ldm=True, write_checksum=True)
_LAST_WORD = b"the end of the source"


class Corrupt(Exception):
    """The bytes are not what they should be. Says what is wrong with them, for the archive's own error."""


class Outflow(Protocol):
    """Compresses tar entries into a file."""

    def add(self, entry: Sequence[bytes], segment: bytes | None = None) -> None:
        """One entry, in parts. `segment`: what an inflow of the same compression gave for exactly these bytes."""

    def finish(self, ending: bytes) -> None:
        """The last bytes of the tar. Does not close the file."""


class Inflow(Protocol):
    """Decompresses a tar."""

    def begin(self) -> None:
        """An entry starts at the next byte."""

    def read(self, size: int) -> bytes:
        """That many bytes; fewer only at the end of a whole file. Corrupt if it is broken or cut short."""

    def segment(self) -> bytes | None:
        """The compressed form of all that was read since `begin`, if it stands alone."""


def outflow(file: BinaryIO, compression: Compression) -> Outflow:
    """Compress into a file that is open for writing."""
    match compression:
        case Compression.GZIP:
            return _GzipOut(file)
        case Compression.ZSTD:
            return _Out(file, zstandard.ZstdCompressor(compression_params=_ZSTD).compressobj())
        case Compression.BZIP2:
            return _Out(file, bz2.BZ2Compressor(9))
        case Compression.XZ:
            return _Out(file, lzma.LZMACompressor(preset=3))


def inflow(stream: BinaryIO, compression: Compression) -> Inflow:
    """Decompress a stream. What the stream itself raises comes through as it is."""
    source = _Source(stream)
    match compression:
        case Compression.GZIP:
            return _Segments(source) if source.take(_GZIP_HEAD) else _In(source, gzip.GzipFile(fileobj=source))
        case Compression.ZSTD:
            return _ZstdIn(source)
        case Compression.BZIP2:
            return _In(source, bz2.BZ2File(source))
        case Compression.XZ:
            return _In(source, lzma.LZMAFile(source))  # type: ignore[arg-type]


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


class _Out:
    def __init__(self, file: BinaryIO, compressor: _Compressor) -> None:
        self._file = file
        self._compressor = compressor

    def add(self, entry: Sequence[bytes], segment: bytes | None = None) -> None:
        for part in entry:
            if made := self._compressor.compress(part):
                self._file.write(made)

    def finish(self, ending: bytes) -> None:
        self._file.write(self._compressor.compress(ending) + self._compressor.flush())


class _GzipOut:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._crc = 0
        self._size = 0
        file.write(_GZIP_HEAD)

    def add(self, entry: Sequence[bytes], segment: bytes | None = None) -> None:
        self._count(entry)
        self._file.write(segment if segment is not None else _deflate(entry, zlib.Z_FULL_FLUSH))

    def finish(self, ending: bytes) -> None:
        self._count([ending])
        self._file.write(_deflate([ending], zlib.Z_FINISH))
        self._file.write(self._crc.to_bytes(4, "little") + (self._size & 0xFFFFFFFF).to_bytes(4, "little"))

    def _count(self, parts: Sequence[bytes]) -> None:
        for part in parts:
            self._crc = zlib.crc32(part, self._crc)
            self._size += len(part)


def _deflate(parts: Sequence[bytes], mode: int) -> bytes:
    compressor = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    return b"".join([*map(compressor.compress, parts), compressor.flush(mode)])


class _Source:
    """The stream below a decompressor: remembers whether an error was its own, and can put bytes back."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._ahead = b""
        self.failed = False

    def read(self, size: int = -1, /) -> bytes:
        most = CHUNK if size < 0 else min(size, CHUNK)
        if self._ahead:
            ready, self._ahead = self._ahead[:most], self._ahead[most:]
            return ready
        try:
            return self._stream.read(most)
        except BaseException:
            self.failed = True
            raise

    def take(self, start: bytes) -> bool:
        """Whether the stream starts with these bytes, which are taken from it if so."""
        seen = b""
        while len(seen) < len(start) and (more := self.read()):
            seen += more
        found = seen.startswith(start)
        self._ahead = seen[len(start) :] if found else seen
        return found

    # What the standard library's readers ask of a file, and never use on one that cannot seek.
    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def seek(self, offset: int, whence: int = 0, /) -> int:
        raise OSError("this stream only goes forward")

    def tell(self) -> int:
        raise OSError("this stream only goes forward")


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


class _In:
    def __init__(self, source: _Source, reader: _Readable) -> None:
        self._source = source
        self._reader = reader

    def begin(self) -> None:
        pass

    def segment(self) -> bytes | None:
        return None

    def read(self, size: int) -> bytes:
        if size <= CHUNK:
            return self._some(size)
        parts = []  # and not at once: a size is only a claim, and memory is given for what is really there
        while size > 0 and (part := self._some(min(size, 16 * CHUNK))):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _some(self, size: int) -> bytes:
        try:
            return self._reader.read(size)
        except _BROKEN as error:
            if self._source.failed:
                raise
            raise Corrupt(f"cannot be decompressed ({error})") from error


class _ZstdIn(_In):
    """A decompressor of zstd says nothing when its input ends in the middle of a frame.

    So we put a small frame of our own behind the source. It comes out as it went in only if all before it was whole.
    """

    def __init__(self, source: _Source) -> None:
        frames = _Followed(source, zstandard.ZstdCompressor().compress(_LAST_WORD))
        reader = zstandard.ZstdDecompressor().stream_reader(frames, read_size=CHUNK, read_across_frames=True)  # type: ignore[arg-type]
        super().__init__(source, reader)
        self._held = b""  # the last bytes seen, which may be the last word

    def _some(self, size: int) -> bytes:
        fresh = super()._some(size + len(_LAST_WORD) - len(self._held))
        seen = self._held + fresh if self._held else fresh
        if len(seen) == size + len(_LAST_WORD):
            self._held = seen[size:]
            return seen[:size]
        self._held = _LAST_WORD
        if not seen.endswith(_LAST_WORD):
            raise Corrupt("ends in the middle of a zstd frame: it was cut short")
        return seen[: -len(_LAST_WORD)]


class _Followed:
    def __init__(self, source: _Source, ending: bytes) -> None:
        self._source = source
        self._ending = ending

    def read(self, size: int = -1, /) -> bytes:
        if more := self._source.read(size):
            return more
        more, self._ending = self._ending, b""
        return more


class _Segments:
    """Our own gzip: the compressed bytes are cut at each flush, so that the bytes of an entry can be handed on.

    A segment is proven while it is read: a new decompressor, which knows nothing of the bytes before, made the entry
    out of it and came to rest at a flush. A flush mark that occurs by chance within the data only joins two pieces.
    """

    def __init__(self, source: _Source) -> None:
        self._source = source
        self._ahead = b""  # compressed, not used yet
        self._ended = False  # the source
        self._done = False  # the compressed data
        self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        self._ready = b""  # decompressed, not read yet
        self._flushed = True
        self._pieces: list[bytes] | None = None  # compressed, since `begin`; None: they do not stand alone
        self._crc = 0
        self._size = 0

    def begin(self) -> None:
        if self._flushed and not self._ready:
            self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
            self._pieces = []
        else:
            self._pieces = None

    def segment(self) -> bytes | None:
        if self._pieces is None or not self._flushed or self._ready:
            return None
        return b"".join(self._pieces)

    def read(self, size: int) -> bytes:
        if len(self._ready) < size:
            parts, held = [self._ready], len(self._ready)
            while held < size and (part := self._more()) is not None:
                parts.append(part)
                held += len(part)
            self._ready = b"".join(parts)
        found, self._ready = self._ready[:size], self._ready[size:]
        return found

    def _more(self) -> bytes | None:
        if self._done:
            return None
        piece = self._piece()
        if not piece:
            raise Corrupt("ends in the middle of its compressed data: it was cut short")
        if self._pieces is not None:
            self._pieces.append(piece)
        try:
            data = self._inflate.decompress(piece)
        except zlib.error as error:
            raise Corrupt(f"cannot be decompressed ({error})") from error
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)
        self._done = self._inflate.eof
        if self._done:
            self._flushed = False
            self._check_end(self._inflate.unused_data)
        return data

    def _piece(self) -> bytes:
        """The compressed bytes up to and with the next flush, or a part of them."""
        while True:
            mark = self._ahead.find(_FLUSHED)
            end = mark + len(_FLUSHED)
            while mark >= 0 and (further := self._ahead.find(_FLUSHED, end, end + _TAIL)) >= 0:
                end = further + len(_FLUSHED)  # the one before was data that looks like a mark
            if self._ended or (mark >= 0 and len(self._ahead) >= end + _TAIL):
                break
            if mark < 0 and len(self._ahead) > CHUNK:
                mark, end = 0, len(self._ahead) - len(_FLUSHED)  # not all of it: a mark may start at its end
                break
            self._fill()
        if mark < 0:
            end = len(self._ahead)
        piece, self._ahead = self._ahead[:end], self._ahead[end:]
        self._flushed = piece.endswith(_FLUSHED)
        return piece

    def _fill(self) -> None:
        more = self._source.read()
        self._ended = not more
        self._ahead += more

    def _check_end(self, start: bytes) -> None:
        while not self._ended:
            self._fill()
        trailer = start + self._ahead
        if len(trailer) < 8:
            raise Corrupt("ends before its checksum: it was cut short")
        if len(trailer) > 8:
            raise Corrupt(f"has {len(trailer) - 8} bytes behind its end")
        crc, size = int.from_bytes(trailer[:4], "little"), int.from_bytes(trailer[4:], "little")
        if (crc, size) != (self._crc, self._size & 0xFFFFFFFF):
            raise Corrupt("does not have the checksum that it should have")

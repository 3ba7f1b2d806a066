"""Archives and files that are not as they should be: reported, survived, and never a reason to lose the rest."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import resource
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.errors import CatchmentError, DamagedArchive, StorageFull, Unreachable
from catchment.feeds.archive import Damage, Fault, Member, Packed, Source, pack, read
from catchment.feeds.names import Compression, Download, body_hash, set_hash
from tests.unit.feeds.archives import (
    ALL,
    FEED,
    HOUR,
    bytes_source,
    contents,
    download,
    hour_of,
    merged,
    noise,
    packed,
    spread,
)

COMPRESS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.GZIP: gzip.compress,
    Compression.ZSTD: zstandard.ZstdCompressor().compress,
    Compression.BZIP2: bz2.compress,
    Compression.XZ: lzma.compress,
}


def everything(content: bytes, compression: Compression) -> tuple[dict[str, bytes], list[Damage], str]:
    """What can be read, what is damaged, and what the archive's own error says, if there is one."""
    good: dict[str, bytes] = {}
    bad: list[Damage] = []
    try:
        for found in read(io.BytesIO(content), compression, source="here"):
            if isinstance(found, Member):
                assert body_hash(found.body) == found.download.hash
                good[found.download.name] = found.body
            else:
                bad.append(found)
    except DamagedArchive as error:
        assert error.source == "here"
        return good, bad, error.message
    return good, bad, ""


def foreign(*members: tuple[str, bytes | str], format: int = tarfile.GNU_FORMAT) -> bytes:
    """A tar that another program wrote. A string is the target of a hard link."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.LNKTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


# Packing: one bad file among good ones.


def test_bad_files_are_reported_and_the_rest_goes_on(tmp_path: Path) -> None:
    good = hour_of({0: b"a", 1: b"b", 9: b"z"})
    files = spread(tmp_path / "files", good)
    folder = tmp_path / "files"
    names = {
        Fault.MISMATCH: download(2, b"whole").name,
        Fault.GONE: download(3, b"vanished").name,
        Fault.STRAY: "notes.txt",
        Fault.MISPLACED: Download(FEED, HOUR.next.start, body_hash(b"later"), "").name,
        Fault.UNREADABLE: download(4, b"loop").name,
    }
    (folder / names[Fault.MISMATCH]).write_bytes(b"who")  # truncated
    (folder / names[Fault.STRAY]).write_bytes(b"hello")
    (folder / names[Fault.MISPLACED]).write_bytes(b"later")
    (folder / names[Fault.UNREADABLE]).symlink_to(folder / names[Fault.UNREADABLE])
    others = {download(5, b"folder").name: "folder", download(6, b"pipe").name: "pipe", "other_" + next(iter(good)): ""}
    for name, kind in others.items():
        if kind == "folder":
            (folder / name).mkdir()
        elif kind == "pipe":
            os.mkfifo(folder / name)  # must not be waited for
        else:
            (folder / name).write_bytes(b"a")
    files += [folder / name for name in (*names.values(), *others)]

    heard: list[Damage] = []
    done = pack(files, tmp_path, feed=FEED, hour=HOUR, compression=Compression.ZSTD, report=heard.append)
    assert done is not None
    assert contents(done) == good
    assert list(done.damaged) == heard
    found = {damage.name: damage.fault for damage in done.damaged}
    assert {fault: name for name, fault in found.items() if name in names.values()} == names
    assert [found[name] for name in others] == [Fault.STRAY, Fault.STRAY, Fault.MISPLACED]
    assert all(damage.path == folder / damage.name and damage.reason for damage in done.damaged)


def test_a_good_copy_of_a_bad_file_is_taken(tmp_path: Path) -> None:
    name = download(1, b"whole").name
    files = [*spread(tmp_path / "bad", {name: b"who"}), *spread(tmp_path / "good", {name: b"whole"})]
    done = pack(files, tmp_path, feed=FEED, hour=HOUR, compression=Compression.GZIP)
    assert done is not None
    assert contents(done) == {name: b"whole"}
    assert [damage.path for damage in done.damaged] == files[:1]


def test_an_hour_without_a_good_file_leaves_no_archive(tmp_path: Path) -> None:
    files = spread(tmp_path / "files", {download(1, b"whole").name: b"who", "x": b""})
    heard: list[Damage] = []
    done = pack(files, tmp_path / "out", feed=FEED, hour=HOUR, compression=Compression.GZIP, report=heard.append)
    assert done is None
    assert [damage.fault for damage in heard] == [Fault.MISMATCH, Fault.STRAY]
    assert not (tmp_path / "out").exists()


def test_names_that_lead_elsewhere_are_no_downloads(tmp_path: Path) -> None:
    spoilt = tmp_path / os.fsdecode(download(1, b"x").name.encode() + b"\xff")
    spoilt.write_bytes(b"x")
    heard: list[Damage] = []
    done = pack([spoilt], tmp_path, feed=FEED, hour=HOUR, compression=Compression.GZIP, report=heard.append)
    assert done is None and [damage.fault for damage in heard] == [Fault.STRAY]


@pytest.mark.parametrize("compression", ALL)
def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, compression: Compression) -> None:
    content = noise(2_400_000)
    downloads = hour_of({n: content[n * 300_000 :][:300_000] for n in range(8)})
    files = spread(tmp_path / "files", downloads)
    part = packed(tmp_path, downloads, compression)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))  # a file that grows beyond that fails to be written
    try:
        with pytest.raises(StorageFull, match="cannot be written"):
            pack(files, tmp_path / "out", feed=FEED, hour=HOUR, compression=compression)
        with pytest.raises(StorageFull, match="cannot be written"):
            merged(tmp_path / "out", [part], compression)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_a_target_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"")
    files = spread(tmp_path / "files", hour_of({1: b"x"}))
    with pytest.raises(CatchmentError, match="target cannot be written"):
        pack(files, tmp_path / "target", feed=FEED, hour=HOUR, compression=Compression.XZ)


# Reading: archives cut, changed or written by others.


def one_archive(folder: Path, compression: Compression) -> tuple[dict[str, bytes], bytes]:
    downloads = hour_of({n: b"%d" % n * (200 * n) for n in range(6)} | {7: b"1" * 200})
    return downloads, packed(folder, downloads, compression).path.read_bytes()


@pytest.mark.parametrize("compression", ALL)
def test_an_archive_that_is_cut_anywhere_says_so(tmp_path: Path, compression: Compression) -> None:
    downloads, content = one_archive(tmp_path, compression)
    most = 0
    for end in range(len(content)):
        good, bad, error = everything(content[:end], compression)
        assert error and not bad
        assert good.items() <= downloads.items()
        most = max(most, len(good))
    assert most > 0
    assert everything(content, compression) == (downloads, [], "")


@pytest.mark.parametrize("compression", ALL)
def test_no_change_of_a_byte_makes_a_wrong_body(tmp_path: Path, compression: Compression) -> None:
    downloads, content = one_archive(tmp_path, compression)
    noticed = 0
    for at in range(0, len(content), 3):
        good, bad, error = everything(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :], compression)
        assert good.items() <= downloads.items()
        assert good == downloads or error or bad
        noticed += bool(error or bad)
    assert noticed > len(content) // 6


@pytest.mark.parametrize("compression", ALL)
@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=2000))
def test_noise_is_a_damaged_archive(compression: Compression, noise: bytes) -> None:
    assert everything(noise, compression)[2]
    good, _, error = everything(COMPRESS[compression](noise), compression)
    assert not good and (error or not noise.strip(b"\0"))


@pytest.mark.parametrize("compression", ALL)
@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_archives_of_others(tmp_path: Path, compression: Compression, format: int) -> None:
    """Plain duplicates, `./`, a manifest, folders, any order, the same member twice."""
    downloads = hour_of({1: b"a" * 1000, 2: b"b", 3: b"a" * 1000, 4: b"b"})
    first, second, third, fourth = downloads
    content = COMPRESS[compression](
        foreign(
            (".hoard_manifest.json", b"{}"),
            (fourth, b"b"),
            (f"./{second}", f"./{fourth}"),
            (first, b"a" * 1000),
            (third, b"a" * 1000),
            (third, first),
            (fourth, b"b"),
            format=format,
        )
    )
    good, bad, error = everything(content, compression)
    assert (good, error) == (downloads, "")
    assert [(damage.name, damage.fault, damage.body) for damage in bad] == [
        (".hoard_manifest.json", Fault.STRAY, b"{}")
    ]
    ours = packed(tmp_path / "ours", hour_of({0: b"b", 2: b"b"}))
    done = merged(tmp_path, [bytes_source("theirs", content, compression), ours])
    assert contents(done) == hour_of({0: b"b"}) | downloads
    assert [(each.whole, each.members) for each in done.origins] == [(True, 4), (True, 2)]
    assert done.origins[0].hash == set_hash(downloads)
    again = packed(tmp_path / "again", hour_of({0: b"b"}) | downloads)
    assert done.path.read_bytes() == again.path.read_bytes()


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_of_others(format: int) -> None:
    feed = "stadt-größe-" + "x" * 120
    names = [download(n, b"x", feed=feed).name for n in (1, 2)]
    content = gzip.compress(foreign((names[0], b"x"), (names[1], names[0]), format=format))
    assert everything(content, Compression.GZIP) == (dict.fromkeys(names, b"x"), [], "")


def test_several_compressed_streams_in_one_file(tmp_path: Path) -> None:
    downloads = hour_of({1: b"a" * 3000, 2: b"b"})
    plain = foreign(*downloads.items())
    for compression, compress in COMPRESS.items():
        content = compress(plain[:700]) + compress(b"") + compress(plain[700:])
        assert everything(content, compression) == (downloads, [], "")
        assert everything(content[:-1], compression)[2]


@pytest.mark.parametrize(
    "path", ["../{}", "/{}", "/etc/{}", "a/../{}", "sub/{}", "..", "{}/../../x", "{}\n", "\x1b[31m{}"]
)
def test_paths_are_never_followed(tmp_path: Path, path: str) -> None:
    name = download(1, b"x").name
    content = gzip.compress(foreign((path.format(name), b"x"), (download(2, b"y").name, b"y")))
    good, bad, _ = everything(content, Compression.GZIP)
    assert good == {download(2, b"y").name: b"y"}
    assert [damage.fault for damage in bad] == [Fault.STRAY]
    assert bad[0].name.isprintable()


def test_links_that_lead_nowhere_good(tmp_path: Path) -> None:
    body, other = download(1, b"x").name, download(2, b"y").name
    links = [download(n, b"x").name for n in (3, 4, 5, 6)]
    content = gzip.compress(
        foreign(
            (links[0], body),  # to a later member
            (links[1], links[1]),  # to itself
            (body, b"not x"),
            (links[2], body),  # to a bad one
            (other, b"y"),
            (links[3], other),  # to another body
        )
    )
    good, bad, error = everything(content, Compression.GZIP)
    assert (good, error) == ({other: b"y"}, "")
    assert [damage.name for damage in bad] == [links[0], links[1], body, links[2], links[3]]
    assert [damage.body for damage in bad] == [None, None, b"not x", None, None]
    assert {damage.fault for damage in bad} == {Fault.MISMATCH}


# Merging: what is good is in the union, and origins say what is not.


@pytest.mark.parametrize("compression", ALL)
def test_a_source_that_is_cut_gives_what_is_good(tmp_path: Path, compression: Compression) -> None:
    downloads, content = one_archive(tmp_path / "one", compression)
    other = packed(tmp_path / "two", hour_of({n + 0.5: b"%d" % n * 300 for n in range(6)}), compression)
    for end in range(0, len(content), 7):
        cut = bytes_source("cut", content[:end], compression)
        orders: list[list[Packed | Source]] = [[cut, other], [other, cut]]
        for sources in orders:
            done = merged(tmp_path, sources, compression)
            known = everything(content[:end], compression)[0]
            assert set(done.members) == set(other.members) | set(known)
            whole = {origin.source: origin.whole for origin in done.origins}
            assert whole == {"cut": False, other.archive.key: True}
            assert [(damage.source, damage.fault) for damage in done.damaged] == [("cut", Fault.CUT)]
            assert contents(done).items() >= known.items()
    assert downloads


def test_a_bad_member_in_one_source_and_good_in_another(tmp_path: Path) -> None:
    downloads = hour_of({1: b"a" * 600, 2: b"b", 3: b"a" * 600})
    first, second, third = downloads
    bad = gzip.compress(foreign((first, b"A" * 600), (second, b"b"), (third, first)))
    good = packed(tmp_path, {third: b"a" * 600})
    done = merged(tmp_path, [bytes_source("bad", bad, Compression.GZIP), good])
    assert contents(done) == {second: b"b", third: b"a" * 600}
    assert [(origin.members, origin.whole) for origin in done.origins] == [(1, False), (1, True)]
    assert [(damage.name, damage.source, damage.body) for damage in done.damaged] == [
        (first, "bad", b"A" * 600),
        (third, "bad", None),
    ]


def test_downloads_of_another_hour_keep_their_source(tmp_path: Path) -> None:
    stray = Download(FEED, HOUR.next.start, body_hash(b"x"), "").name
    source = bytes_source("odd", gzip.compress(foreign((stray, b"x"))), Compression.GZIP)
    done = merged(tmp_path, [source, packed(tmp_path, hour_of({1: b"x"}))])
    assert contents(done) == hour_of({1: b"x"})
    assert not done.origins[0].whole
    assert [(damage.fault, damage.body) for damage in done.damaged] == [(Fault.MISPLACED, b"x")]


def test_sources_with_nothing_good(tmp_path: Path) -> None:
    sources = [bytes_source(f"bad-{n}", b"noise", Compression.ZSTD) for n in range(6)]
    for some in (sources[:2], sources):
        with pytest.raises(DamagedArchive, match="bad-0, bad-1"):
            merged(tmp_path, some)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_damage_in_one_of_many_sources(tmp_path: Path) -> None:
    good = [packed(tmp_path / str(n), hour_of({n: b"%d" % n})) for n in range(6)]
    bad = bytes_source("bad", good[5].path.read_bytes()[:-1], Compression.ZSTD)
    done = merged(tmp_path, [*good[:5], bad])
    assert [origin.whole for origin in done.origins] == [True] * 5 + [False]
    assert [(damage.source, damage.fault) for damage in done.damaged] == [("bad", Fault.CUT)]
    assert set(contents(done)) >= {name for part in good[:5] for name in part.members}


class Broken(io.BytesIO):
    """A connection that breaks after some bytes."""

    def __init__(self, content: bytes, after: int) -> None:
        super().__init__(content)
        self._after = after

    def read(self, size: int | None = -1, /) -> bytes:
        left = self._after - self.tell()
        if left <= 0:
            raise Unreachable("the connection broke")
        return super().read(left if size is None or size < 0 else min(size, left))


@pytest.mark.parametrize("compression", ALL)
@pytest.mark.parametrize("after", [0, 1, 40, 150])
def test_a_broken_connection_is_no_damage(tmp_path: Path, compression: Compression, after: int) -> None:
    _, content = one_archive(tmp_path / "one", compression)
    other = packed(tmp_path / "two", hour_of({0: b"x"}))
    with pytest.raises(Unreachable):
        merged(tmp_path, [("broken", lambda: Broken(content, after), compression), other])
    with pytest.raises(Unreachable):
        list(read(Broken(content, after), compression))
    assert not [path for path in (tmp_path / "merged").rglob("*") if path.is_file()]


def test_damaged_bodies_do_not_fill_the_memory(tmp_path: Path) -> None:
    names = [download(n, b"%d" % n).name for n in range(6)]
    bad = gzip.compress(foreign(*((name, bytes(5_000_000)) for name in names)), compresslevel=1)
    done: Packed = merged(tmp_path, [bytes_source("bad", bad, Compression.GZIP), packed(tmp_path, hour_of({9: b"x"}))])
    assert [damage.body is not None for damage in done.damaged] == [True] * 3 + [False] * 3

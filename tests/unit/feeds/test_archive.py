"""Packing, reading and merging archives whose parts are good."""

from __future__ import annotations

import subprocess
import tarfile
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.errors import DamagedArchive
from catchment.feeds.archive import UNFINISHED, Packed, pack
from catchment.feeds.names import Archive, Compression, set_hash
from tests.unit.feeds.archives import ALL, FEED, HOUR, contents, download, hour_of, merged, noise, packed, spread

SAMPLE = hour_of({0: b"one", 1.5: b"two" * 400, 2: b"one", 3: b"", 4.001: bytes(1024), 5: b"two" * 400})


@pytest.mark.parametrize("compression", ALL)
def test_what_is_packed_is_what_is_read(tmp_path: Path, compression: Compression) -> None:
    done = packed(tmp_path, SAMPLE, compression)
    assert contents(done) == SAMPLE
    assert done.archive == Archive(FEED, HOUR, set_hash(SAMPLE), compression)
    assert done.path == tmp_path / "packed" / done.archive.path
    assert [each for each in (tmp_path / "packed").rglob("*") if each.is_file()] == [done.path]
    assert len(list((tmp_path / "files").iterdir())) == len(SAMPLE)  # nothing is deleted


LONG = "a" * 90
NAMES = [LONG, LONG + "bc_" + LONG, "größe"]


@pytest.mark.parametrize("compression", ALL)
@pytest.mark.parametrize("feed", [FEED, *NAMES])
def test_any_tar_reads_it(tmp_path: Path, compression: Compression, feed: str) -> None:
    downloads = {download(n, body, feed=feed).name: body for n, body in enumerate([b"x" * 600, b"y", b"x" * 600])}
    files = spread(tmp_path / "files", downloads)
    done = pack(files, tmp_path, feed=feed, hour=HOUR, compression=compression)
    assert done is not None
    by_command = tmp_path / "command"
    by_command.mkdir()
    subprocess.run(["tar", "-xf", done.path, "-C", by_command], check=True)
    assert {path.name: path.read_bytes() for path in by_command.iterdir()} == downloads
    listing = subprocess.run(["tar", "-tvf", done.path], check=True, capture_output=True, text=True, env={"TZ": "UTC"})
    assert [line[0] for line in listing.stdout.splitlines()] == ["-", "-", "h"]
    assert all("2026-11-15 08:00" in line for line in listing.stdout.splitlines())

    plain = done.path
    if compression is Compression.ZSTD:  # Python's tarfile learns it in 3.14
        plain = tmp_path / "plain.tar"
        with done.path.open("rb") as source, plain.open("wb") as target:
            zstandard.ZstdDecompressor().copy_stream(source, target)
    for mode in ("r:*", "r|*"):
        by_python = tmp_path / mode
        with tarfile.open(plain, mode) as tar:
            tar.extractall(by_python, filter="data")
        assert {path.name: path.read_bytes() for path in by_python.iterdir()} == downloads
    with tarfile.open(plain) as tar:
        assert {(each.uid, each.gid, each.uname, each.gname, each.mode) for each in tar} == {(0, 0, "", "", 0o644)}


@pytest.mark.parametrize("compression", ALL)
def test_a_repeated_body_costs_almost_nothing(tmp_path: Path, compression: Compression) -> None:
    noise = [bytes((n * n * 31 + n * k * k) % 251 for n in range(20_000)) for k in (3, 5)]
    once = packed(tmp_path / "once", hour_of(dict(enumerate(noise))), compression)
    often = packed(tmp_path / "often", hour_of(dict(enumerate(noise * 10))), compression)
    assert often.path.stat().st_size < once.path.stat().st_size + 18 * 200
    assert len(contents(often)) == 20


def test_bodies_repeat_from_far_back(tmp_path: Path) -> None:
    """More than memory is given for: the first body is asked for again after 20 MB of others."""
    others = {n: bytes([n]) * 1_000_000 for n in range(1, 21)}
    downloads = hour_of({0: b"first", **others, 30: b"first", 31: others[1]})
    assert contents(packed(tmp_path, downloads, Compression.GZIP)) == downloads


def test_the_order_and_place_of_files_do_not_matter(tmp_path: Path) -> None:
    files = spread(tmp_path / "files", SAMPLE)
    twice = [*reversed(files), *spread(tmp_path / "more", SAMPLE)]
    one = pack(files, tmp_path / "a", feed=FEED, hour=HOUR, compression=Compression.GZIP)
    other = pack(twice, tmp_path / "b", feed=FEED, hour=HOUR, compression=Compression.GZIP)
    assert one is not None and other is not None
    assert one.members == other.members
    assert one.path.read_bytes() == other.path.read_bytes()


def test_packing_again_puts_the_same_in_place(tmp_path: Path) -> None:
    first = packed(tmp_path, SAMPLE)
    before = first.path.read_bytes()
    assert packed(tmp_path, SAMPLE) == first
    assert first.path.read_bytes() == before


def test_nothing_to_pack(tmp_path: Path) -> None:
    assert pack([], tmp_path / "out", feed=FEED, hour=HOUR, compression=Compression.ZSTD) is None
    assert not (tmp_path / "out").exists()


def test_a_merge_tells_where_all_came_from(tmp_path: Path) -> None:
    one = packed(tmp_path / "one", hour_of({1: b"a", 2: b"b"}), Compression.GZIP)
    two = packed(tmp_path / "two", hour_of({2: b"b", 3: b"a"}), Compression.XZ)
    done = merged(tmp_path, [one, two])
    assert contents(done) == hour_of({1: b"a", 2: b"b", 3: b"a"})
    assert done.damaged == ()
    assert [(each.source, each.hash, each.members, each.whole) for each in done.origins] == [
        (one.archive.key, one.archive.hash, 2, True),
        (two.archive.key, two.archive.hash, 2, True),
    ]


def test_merging_one_changes_nothing_but_the_compression(tmp_path: Path) -> None:
    one = packed(tmp_path, SAMPLE, Compression.BZIP2)
    assert merged(tmp_path, [one], Compression.BZIP2).path.read_bytes() == one.path.read_bytes()
    assert merged(tmp_path, [one], Compression.ZSTD).archive == Archive(FEED, HOUR, one.archive.hash, Compression.ZSTD)


def test_many_sources_are_merged_in_rounds(tmp_path: Path) -> None:
    all_of_them = hour_of({n: b"%d" % (n % 7) for n in range(40)})
    names = sorted(all_of_them)
    parts = [
        packed(tmp_path / str(n), {name: all_of_them[name] for name in names[n::11] + names[n : n + 3]})
        for n in range(11)
    ]
    done = merged(tmp_path, parts)
    assert contents(done) == all_of_them
    assert [each.hash for each in done.origins] == [part.archive.hash for part in parts]
    assert all(each.whole for each in done.origins)
    assert done.path.read_bytes() == packed(tmp_path / "all", all_of_them).path.read_bytes()
    assert not [path for path in (tmp_path / "merged").rglob("*") if path.name.endswith(UNFINISHED)]


def test_merging_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DamagedArchive, match="no archives"):
        merged(tmp_path, [])


# Few bodies and few moments, so that sets overlap and bodies repeat within and across them.
BODIES = st.sampled_from([b"", b"a", b"b" * 511, b"c" * 512, b"d" * 513, bytes(range(256)) * 300])
DOWNLOADS = st.dictionaries(st.integers(0, 12), BODIES, min_size=1, max_size=8).map(
    lambda bodies: hour_of({float(second): body for second, body in bodies.items()})
)


@settings(deadline=None, max_examples=40)
@given(DOWNLOADS, DOWNLOADS, DOWNLOADS, st.sampled_from(Compression))
def test_merging_is_union(
    tmp_path_factory: pytest.TempPathFactory,
    a: dict[str, bytes],
    b: dict[str, bytes],
    c: dict[str, bytes],
    compression: Compression,
) -> None:
    at = tmp_path_factory.mktemp("union")
    pa, pb, pc = (packed(at / name, each, compression) for name, each in (("a", a), ("b", b), ("c", c)))

    def union(name: str, *parts: Packed) -> tuple[Path, bytes]:
        done = merged(at / name, parts, compression)
        assert all(origin.whole for origin in done.origins)
        return done.path.relative_to(at / name / "merged"), done.path.read_bytes()

    both = merged(at, [pa, pb], compression)
    assert both.path.read_bytes() == packed(at / "ab", a | b, compression).path.read_bytes()
    assert contents(both) == dict(sorted((a | b).items()))
    assert union("1", pa, pb) == union("2", pb, pa)  # commutative
    assert union("3", both, pc) == union("4", pa, merged(at / "bc", [pb, pc], compression))  # associative
    assert union("5", pa, pa)[1] == pa.path.read_bytes()  # idempotent
    assert union("6", both, pa)[1] == both.path.read_bytes()


@settings(deadline=None, max_examples=40)
@given(DOWNLOADS, DOWNLOADS, st.lists(st.sampled_from(Compression), min_size=3, max_size=3))
def test_the_name_does_not_depend_on_compression(
    tmp_path_factory: pytest.TempPathFactory, a: dict[str, bytes], b: dict[str, bytes], used: list[Compression]
) -> None:
    at = tmp_path_factory.mktemp("mixed")
    done = merged(at, [packed(at / "a", a, used[0]), packed(at / "b", b, used[1])], used[2])
    assert done.archive.hash == set_hash(a | b)
    assert done.path.read_bytes() == packed(at / "all", a | b, used[2]).path.read_bytes()


@pytest.mark.parametrize("compression", ALL)
def test_memory_does_not_grow_with_the_hour(tmp_path: Path, compression: Compression) -> None:
    def peak(bodies: int) -> int:
        at = tmp_path / str(bodies)
        seconds = [(n + part, bytes([n]) * 500_000 + b"%f" % part) for n in range(bodies) for part in (0, 0.5)]
        parts = [packed(at / str(n), hour_of(dict(seconds[n::2])), compression) for n in (0, 1)]
        tracemalloc.start()
        try:
            assert len(merged(at, parts, compression).members) == 2 * bodies
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(60) < peak(20) + 2_000_000  # for 40 MB more


def test_gzip_segments_are_handed_on_even_next_to_bytes_that_look_like_their_ends(tmp_path: Path) -> None:
    """Bodies that cannot be compressed stand as they are in the file: full of what marks the end of a segment."""
    mark = b"\0\0\xff\xff"
    bodies = [mark, mark * 3, b"x" * 508 + mark, mark * 200_000, noise(100_000) + mark * 2, mark + noise(70_000)]
    a, b = hour_of(dict(enumerate(bodies))), hour_of({n + 0.5: body + mark for n, body in enumerate(bodies)})
    parts = [packed(tmp_path / "a", a, Compression.GZIP), packed(tmp_path / "b", b, Compression.GZIP)]
    done = merged(tmp_path, parts, Compression.GZIP)
    assert contents(done) == dict(sorted((a | b).items()))
    assert done.path.read_bytes() == packed(tmp_path / "all", a | b, Compression.GZIP).path.read_bytes()
    subprocess.run(["gzip", "-t", done.path], check=True)

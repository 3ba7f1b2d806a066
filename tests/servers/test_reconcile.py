"""Replicas in threads that reconcile the same hour in real stores, with real archives.

Each replica has its own client of the store, uploads what it has, and reconciles until the hour is settled. In the end
there is one archive, and it holds every download that any of them had, byte for byte.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from catchment.bucket.contract import Bucket
from catchment.bucket.probe import probe
from catchment.bucket.wrap import Counting, Counts, Retrying
from catchment.errors import BucketError
from catchment.feeds.archive import Member, read
from catchment.feeds.delete import delete, plan_delete, revive
from catchment.feeds.hours import Span, list_hour
from catchment.feeds.names import Archive, Compression, set_hash
from catchment.feeds.reconcile import Algorithm, rules
from catchment.feeds.scratch import scratch
from catchment.feeds.settle import settle
from catchment.feeds.upload import upload
from catchment.testing.s3 import S3Server
from tests.contract.stores import make_store
from tests.unit.feeds.archives import FEED, HOUR, hour_of, noise, packed

GZIP, ZSTD, XZ = Compression.GZIP, Compression.ZSTD, Compression.XZ
ALGORITHMS: list[Algorithm] = ["hashed", "primary"]
BOTH = pytest.mark.parametrize("algorithm", ALGORITHMS)
STORES = [("local", True), ("local", False), ("moto", True), ("moto", False), ("versitygw", True), ("versitygw", False)]


@pytest.fixture(params=STORES, ids=[f"{kind}{'-versioned' if versioned else ''}" for kind, versioned in STORES])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Bucket]]:
    """Gives a new client of one store, retried as in production."""
    kind, versioned = request.param
    store = make_store(request, kind, tmp_path, versioning=versioned)
    opened: list[Bucket] = []

    def open_one() -> Bucket:
        opened.append(Retrying(store.open()))
        return opened[-1]

    yield open_one
    for bucket in opened:
        bucket.close()


def downloads_of(replica: int) -> dict[str, bytes]:
    """Most seconds are seen by every replica, some by one alone; some bodies repeat."""
    shared = {second: b"shared %d" % second + noise(2000) for second in range(0, 600, 30)}
    own = {second + replica + 1: b"replica %d, body %d" % (replica, second % 3) for second in range(0, 600, 60)}
    return hour_of(shared | own)


@BOTH
@pytest.mark.parametrize("compressions", [(GZIP, ZSTD), (ZSTD, GZIP, XZ)], ids="-".join)
def test_replicas_at_once_end_in_one_archive_that_is_the_union(
    client: Callable[[], Bucket], tmp_path: Path, algorithm: Algorithm, compressions: tuple[Compression, ...]
) -> None:
    support = probe(client())
    start = threading.Barrier(len(compressions))

    def replica(number: int) -> None:
        compression = compressions[number]
        mine = packed(tmp_path / str(number), downloads_of(number), compression)
        late = packed(tmp_path / f"{number} late", hour_of({3000 + number: b"late %d" % number}), compression)
        bucket = client()
        # The primary archive's compression is the feed's, which is one for all replicas.
        given = rules(algorithm, GZIP if algorithm == "primary" else compression, support, place=bucket.name)
        start.wait(30)
        for archive in (mine, late):
            upload(bucket, archive.path)
            assert settle(bucket, FEED, HOUR, given, scratch(tmp_path / f"scratch {number}"), looks=100).settled

    with ThreadPoolExecutor(len(compressions)) as pool:
        list(pool.map(replica, range(len(compressions))))

    wanted: dict[str, bytes] = {}
    for number in range(len(compressions)):
        wanted |= downloads_of(number) | hour_of({3000 + number: b"late %d" % number})
    archive, found = the_one(client())
    assert found == wanted
    assert archive.hash == (None if algorithm == "primary" else set_hash(wanted))


def the_one(bucket: Bucket) -> tuple[Archive, dict[str, bytes]]:
    """The only archive of the hour, and all that is in it."""
    [stored] = list_hour(bucket, FEED, HOUR).archives
    with bucket.open(stored.key) as stream:
        members = list(read(stream, stored.archive.compression))
    found = {each.download.name: each.body for each in members if isinstance(each, Member)}
    assert len(found) == len(members)
    return stored.archive, found


@BOTH
def test_damage_is_set_aside_and_the_hour_settles(
    client: Callable[[], Bucket], tmp_path: Path, algorithm: Algorithm
) -> None:
    bucket = client()
    given = rules(algorithm, GZIP, probe(bucket), place=bucket.name)
    whole = packed(tmp_path / "one", hour_of({n: b"body %d " % n * 50 for n in range(20)}), GZIP)
    other = packed(tmp_path / "two", hour_of({100: b"other"}), GZIP)
    bucket.put(whole.archive.key, whole.path.read_bytes()[:-300])
    upload(bucket, other.path)
    assert settle(bucket, FEED, HOUR, given, scratch(tmp_path / "scratch")).settled
    [stored] = list_hour(bucket, FEED, HOUR).live
    with bucket.open(stored.key) as stream:
        names = {each.download.name for each in read(stream, GZIP) if isinstance(each, Member)}
    assert set(other.members) < names < set(other.members) | set(whole.members)
    [aside] = list(bucket.list(f"feeds/{FEED}/_damaged/"))
    assert bucket.get(aside.key) == whole.path.read_bytes()[:-300]
    # The same replica uploads it again, whole: nothing of it is lost, and the hour settles again.
    upload(bucket, whole.path)
    assert settle(bucket, FEED, HOUR, given, scratch(tmp_path / "scratch")).settled
    [stored] = list_hour(bucket, FEED, HOUR).live
    with bucket.open(stored.key) as stream:
        names = {each.download.name for each in read(stream, GZIP) if isinstance(each, Member)}
    assert names == set(other.members) | set(whole.members)


@BOTH
def test_an_hour_is_deleted_stays_deleted_and_comes_back_when_asked(
    client: Callable[[], Bucket], tmp_path: Path, algorithm: Algorithm, request: pytest.FixtureRequest
) -> None:
    bucket, span = client(), Span(HOUR, HOUR.next)
    given = rules(algorithm, GZIP, probe(bucket), place=bucket.name)
    one = packed(tmp_path / "one", hour_of({1: b"one"}), GZIP)
    codecs = scratch(tmp_path / "scratch")
    upload(bucket, one.path)
    settle(bucket, FEED, HOUR, given, codecs)
    delete(bucket, plan_delete(bucket, [FEED], span).hours)
    upload(bucket, one.path)
    assert settle(bucket, FEED, HOUR, given, codecs).settled
    assert list_hour(bucket, FEED, HOUR).archives == ()
    assert revive(bucket, [FEED], span) == [(FEED, HOUR)]
    upload(bucket, one.path)
    if algorithm == "primary" and "versitygw-versioned" in request.node.name:
        # That server never again accepts put-if-absent for a key that was deleted. It is said, and nothing is lost.
        with pytest.raises(BucketError, match="does not list it"):
            settle(bucket, FEED, HOUR, given, codecs)
        assert the_one(bucket)[0] == one.archive
    else:
        assert settle(bucket, FEED, HOUR, given, codecs).settled
    assert the_one(bucket)[1] == hour_of({1: b"one"})


@pytest.mark.parametrize("kind", ["s3", "moto"])
def test_requests(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    """On the wire: one request to upload an archive, one to see that an hour is settled."""
    server: S3Server = request.getfixturevalue(kind)
    counts = Counts()
    raw = server.bucket(server.fresh_bucket(), on_request=counts.add)
    with closing(Counting(Retrying(raw), counts, calls=False)) as bucket:
        done = packed(tmp_path, hour_of({1: b"one"}), GZIP)
        given = rules("hashed", GZIP, probe(bucket), place=bucket.name)
        counts.requests.clear()
        upload(bucket, done.path)
        assert counts.total == 1
        counts.requests.clear()
        assert settle(bucket, FEED, HOUR, given, scratch(tmp_path / "scratch")).settled
        assert counts.total == 1

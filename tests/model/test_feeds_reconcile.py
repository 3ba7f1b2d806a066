"""Every interleaving of replicas that upload to one hour and reconcile it, with crashes and lost replies.

The promise: no call of any process makes a download vanish from the bucket, and when all have ended the hour is one
archive that is the union. What runs here is the real `settle`; only archives are small sets (sets.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from catchment.bucket.contract import Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Backoff, Retrying
from catchment.feeds.names import Archive, Compression
from catchment.feeds.reconcile import Algorithm, Rules
from catchment.feeds.settle import settle
from catchment.testing.clock import FakeClock
from catchment.testing.interleave import Explored, Interleaver, Task
from tests.model.sets import (
    FEED,
    GZIP,
    HOUR,
    ZSTD,
    archive_of,
    encode,
    ends_in,
    kept,
    nothing_is_lost,
    sets,
    upload_of,
)

ALGORITHMS: list[Algorithm] = ["hashed", "primary"]
BOTH = pytest.mark.parametrize("algorithm", ALGORITHMS)
PRIMARY = Archive(FEED, HOUR, None, GZIP).key


def careful(bucket: Bucket) -> Bucket:
    """As in production: a call whose reply was lost is made again."""
    return Retrying(bucket, backoff=Backoff(attempts=4), clock=FakeClock(), chance=lambda: 0.0)


def replica(*uploads: tuple[str, bytes], rules: Rules) -> Task:
    """Upload each archive and reconcile after it. One that died does all of it again: uploads that come twice."""

    def task(bucket: Bucket) -> None:
        bucket = careful(bucket)
        for key, body in uploads:
            bucket.put(key, body)
            assert settle(bucket, FEED, HOUR, rules, sets).settled, "gave up"

    return task


def reconciler(rules: Rules) -> Task:
    """Only reconcile: the archives are there already."""

    def task(bucket: Bucket) -> None:
        assert settle(careful(bucket), FEED, HOUR, rules, sets).settled, "gave up"

    return task


def there(*uploads: tuple[str, bytes]) -> Callable[[Bucket], None]:
    def setup(bucket: Bucket) -> None:
        for key, body in uploads:
            bucket.put(key, body)

    return setup


def explore(
    what: str,
    tasks: Sequence[Task],
    final: Callable[[MemoryBucket], None],
    *,
    setup: Callable[[Bucket], None] = lambda bucket: None,
    crashes: int = 0,
    lost: int = 0,
    sample: int = 0,
    versions: bool = False,
) -> Explored:
    explorer = Interleaver(
        dict(zip("abc", tasks, strict=False)),
        setup=setup,
        relation=nothing_is_lost,
        final=final,
        crashes=crashes,
        lost=lost,
        versions=versions,
        limit=10_000_000,
    )
    explored = explorer.sample(sample) if sample else explorer.explore()
    with_faults = f", {crashes} crashes" * (crashes > 0) + f", {lost} lost replies" * (lost > 0)
    print(f"\n{what}{with_faults}: {explored.states} distinct states, {explored.runs} runs")
    assert explored.complete or sample
    return explored


def two(algorithm: Algorithm, other: Compression) -> list[Task]:
    """Two replicas with overlapping sets. They differ in the compression of what they upload and of what they merge."""
    return [
        replica(upload_of("xy"), rules=Rules(GZIP, algorithm)),
        replica(upload_of("yz", other), rules=Rules(other, algorithm)),
    ]


CALM, CRASH, LOST = (0, 0), (1, 0), (0, 1)
SHORT: list[tuple[Algorithm, Compression, tuple[int, int]]] = [
    *(("hashed", other, faults) for other in (GZIP, ZSTD) for faults in (CALM, CRASH, LOST)),
    *(("primary", GZIP, faults) for faults in (CALM, CRASH)),
    ("primary", ZSTD, CALM),
]
LONG: list[tuple[Algorithm, Compression, tuple[int, int]]] = [
    *(("hashed", other, faults) for other in (GZIP, ZSTD) for faults in ((2, 0), (0, 2), (1, 1))),
    ("primary", GZIP, LOST),
    ("primary", ZSTD, CRASH),
    ("primary", ZSTD, LOST),
    ("primary", GZIP, (1, 1)),
]


@pytest.mark.parametrize(("algorithm", "other", "faults"), SHORT)
def test_two_replicas(algorithm: Algorithm, other: Compression, faults: tuple[int, int]) -> None:
    key = PRIMARY if algorithm == "primary" and other == GZIP else None
    what = f"{algorithm}, two replicas, gzip and {other}"
    explore(what, two(algorithm, other), ends_in("xyz", key=key), crashes=faults[0], lost=faults[1])


@pytest.mark.soak
@pytest.mark.parametrize(("algorithm", "other", "faults"), LONG)
def test_two_replicas_at_length(algorithm: Algorithm, other: Compression, faults: tuple[int, int]) -> None:
    test_two_replicas(algorithm, other, faults)


@BOTH
def test_a_reply_lost_by_one_replica_while_another_reconciles(algorithm: Algorithm) -> None:
    """The short form of a lost reply: the archives are there already."""
    tasks = [reconciler(Rules(GZIP, algorithm)), reconciler(Rules(GZIP, algorithm))]
    setup = there(upload_of("xy"), upload_of("yz", ZSTD))
    explore(f"{algorithm}, two reconcilers", tasks, ends_in("xyz"), setup=setup, lost=1)


@BOTH
def test_a_late_upload(algorithm: Algorithm) -> None:
    """One replica had been away: its archive comes when the others may be done, or in the middle of their work."""
    tasks = [
        reconciler(Rules(GZIP, algorithm)),
        replica(upload_of("wz", ZSTD), rules=Rules(ZSTD if algorithm == "hashed" else GZIP, algorithm)),
    ]
    setup = there(upload_of("xy"), upload_of("yz"))
    explore(f"{algorithm}, a late upload", tasks, ends_in("wxyz"), setup=setup)
    explore(f"{algorithm}, a late upload", tasks[1:], ends_in("wxyz"), setup=setup, crashes=2)


@pytest.mark.soak
@BOTH
def test_late_uploads_of_two(algorithm: Algorithm) -> None:
    rules = Rules(GZIP, algorithm)
    tasks = [
        replica(upload_of("xy"), upload_of("v"), rules=rules),
        replica(upload_of("yz"), rules=rules),
    ]
    explore(f"{algorithm}, a second upload", tasks, ends_in("vxyz"))


@BOTH
def test_equal_content_under_two_compressions(algorithm: Algorithm) -> None:
    """The same downloads, packed by two replicas that compress differently: exactly one of the two archives goes."""
    setup = there(upload_of("xy", GZIP), upload_of("xy", ZSTD))
    tasks = [reconciler(Rules(GZIP, algorithm)), reconciler(Rules(ZSTD if algorithm == "hashed" else GZIP, algorithm))]
    key = PRIMARY if algorithm == "primary" else archive_of("xy", GZIP).key  # the smaller of the two keys
    explore(f"{algorithm}, equal content", tasks, ends_in("xy", key=key), setup=setup, crashes=1)


@BOTH
@pytest.mark.parametrize(("crashes", "lost"), [(0, 0), (1, 1)])
def test_a_sample_of_three(algorithm: Algorithm, crashes: int, lost: int) -> None:
    explore(f"{algorithm}, a sample of three", *three(algorithm), crashes=crashes, lost=lost, sample=300)


@pytest.mark.soak
@BOTH
@pytest.mark.parametrize(("crashes", "lost"), [(0, 0), (1, 1), (3, 3)])
def test_a_large_sample_of_three(algorithm: Algorithm, crashes: int, lost: int) -> None:
    explore(f"{algorithm}, a sample of three", *three(algorithm), crashes=crashes, lost=lost, sample=5_000)


@pytest.mark.soak
def test_three_reconcilers_in_every_order() -> None:
    tasks = [reconciler(Rules(compression, "hashed")) for compression in (GZIP, ZSTD, GZIP)]
    explore("hashed, three reconcilers", tasks, ends_in("xyz"), setup=there(upload_of("xy"), upload_of("yz")))


def three(algorithm: Algorithm) -> tuple[list[Task], Callable[[MemoryBucket], None]]:
    compressions = (GZIP, ZSTD, GZIP)
    uploads = [upload_of(names, how) for names, how in zip(("xy", "yz", "w"), compressions, strict=True)]
    tasks = [replica(up, rules=Rules(how, algorithm)) for up, how in zip(uploads, compressions, strict=True)]
    return tasks, ends_in("wxyz")


@BOTH
def test_replicas_while_the_algorithm_is_being_changed(algorithm: Algorithm) -> None:
    """Old and new configuration at once. An hour that has a primary archive keeps it."""
    tasks = [reconciler(Rules(GZIP, "hashed")), reconciler(Rules(GZIP, "primary"))]
    later = replica(upload_of("w"), rules=Rules(GZIP, algorithm))
    setup = there(upload_of("xy"), upload_of("yz"))
    explore("both algorithms", tasks, ends_in("xyz"), setup=setup)
    explore("both algorithms, three", [*tasks, later], ends_in("wxyz"), setup=setup, sample=300)


@pytest.mark.soak
def test_two_primary_archives_of_two_compressions_become_one() -> None:
    """The compression was changed, and not everywhere at once: each side makes a primary archive of its own.

    The one with the greater key is emptied while its writer may be about to add to it.
    """
    tasks = [
        replica(upload_of("x"), rules=Rules(GZIP, "primary")),
        replica(upload_of("y"), upload_of("z"), rules=Rules(ZSTD, "primary")),
    ]
    explore("primary, two compressions", tasks, ends_in("xyz"))


@BOTH
@pytest.mark.parametrize("versions", [True, False])
def test_damage_is_set_aside_and_never_takes_good_downloads_along(algorithm: Algorithm, *, versions: bool) -> None:
    """An archive with a wrong body in it, and one that is cut short; a replica uploads the first one again, whole."""
    key, whole = upload_of("xy")
    cut = archive_of("uv", GZIP).key
    setup = there((key, encode("x", GZIP, bad="y")), (cut, b"cut short"), upload_of("z"))
    tasks = [reconciler(Rules(GZIP, algorithm)), replica((key, whole), rules=Rules(GZIP, algorithm))]

    def final(bucket: MemoryBucket) -> None:
        ends_in("xyz")(bucket)
        assert "cut short" in kept(bucket)

    explore(f"{algorithm}, damage, {versions=}", tasks, final, setup=setup, versions=versions)


def test_a_damaged_primary_archive_is_mended() -> None:
    setup = there((PRIMARY, encode("x", GZIP, bad="y")), upload_of("z"))
    tasks = [reconciler(Rules(GZIP, "primary"))] * 2

    def final(bucket: MemoryBucket) -> None:
        ends_in("xz", key=PRIMARY)(bucket)
        assert "bad y" in kept(bucket)

    explore("primary, damage", tasks, final, setup=setup, crashes=1)

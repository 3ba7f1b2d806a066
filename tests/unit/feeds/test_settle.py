"""Reconciling an hour, with real archives in a memory bucket."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from catchment.bucket.contract import ABSENT, ANY, Body, Bucket, Entry, Precondition, Stat, Tags
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Backoff, Counting, Retrying, Wrapper
from catchment.errors import BucketError, CatchmentError, Conflict, Unreachable
from catchment.feeds.archive import Member, read
from catchment.feeds.delete import delete, plan_delete
from catchment.feeds.hours import Span, list_hour
from catchment.feeds.names import Archive, Compression, set_hash
from catchment.feeds.reconcile import Algorithm, Rules
from catchment.feeds.scratch import Scratch, scratch
from catchment.feeds.settle import Codecs, Fetched, Merged, damaged_prefix, settle
from catchment.feeds.upload import upload
from catchment.testing.clock import FakeClock
from catchment.testing.dying import Died, DyingBucket, lost_reply
from tests.unit.feeds.archives import FEED, HOUR, hour_of, packed

GZIP, ZSTD = Compression.GZIP, Compression.ZSTD
ALGORITHMS: list[Algorithm] = ["hashed", "primary"]
BOTH = pytest.mark.parametrize("algorithm", ALGORITHMS)
PRIMARY = Archive(FEED, HOUR, None, GZIP)
ONE, TWO = hour_of({1: b"one", 2: b"two"}), hour_of({2: b"two", 3: b"three"})


@pytest.fixture
def codecs(tmp_path: Path) -> Codecs:
    return scratch(tmp_path / "scratch")


def put(bucket: Bucket, folder: Path, downloads: Mapping[str, bytes], compression: Compression = GZIP) -> Archive:
    """Pack and upload."""
    done = packed(folder / set_hash(downloads) / compression, downloads, compression)
    upload(bucket, done.path)
    return done.archive


def the_one(bucket: Bucket) -> tuple[Archive, dict[str, bytes]]:
    """The only archive of the hour, and what can be read from it."""
    [stored] = list_hour(bucket, FEED, HOUR).live
    with bucket.open(stored.key) as stream:
        found = list(read(stream, stored.archive.compression))
    return stored.archive, {each.download.name: each.body for each in found if isinstance(each, Member)}


def aside(bucket: Bucket) -> dict[str, bytes]:
    return {entry.key.rpartition("/")[2]: bucket.get(entry.key) for entry in bucket.list(damaged_prefix(FEED, HOUR))}


@BOTH
def test_replicas_archives_become_one(tmp_path: Path, codecs: Codecs, algorithm: Algorithm) -> None:
    bucket = MemoryBucket()
    put(bucket, tmp_path, ONE)
    put(bucket, tmp_path, TWO, ZSTD)
    done = settle(bucket, FEED, HOUR, Rules(GZIP, algorithm), codecs)
    assert done.settled
    archive, found = the_one(bucket)
    assert found == ONE | TWO
    assert archive == (PRIMARY if algorithm == "primary" else Archive(FEED, HOUR, set_hash(ONE | TWO), GZIP))
    assert aside(bucket) == {}
    assert list((tmp_path / "scratch").iterdir()) == []


@BOTH
def test_a_settled_hour_costs_one_request_and_no_disk(tmp_path: Path, codecs: Codecs, algorithm: Algorithm) -> None:
    bucket = Counting(MemoryBucket())
    put(bucket, tmp_path, ONE)
    rules = Rules(GZIP, algorithm)
    settle(bucket, FEED, HOUR, rules, codecs)
    bucket.counts.requests.clear()
    folder = tmp_path / "never made"
    assert settle(bucket, FEED, HOUR, rules, scratch(folder)).settled
    assert bucket.counts.requests == {"list": 1}
    assert not folder.exists()


@BOTH
def test_an_hour_without_archives_is_settled(codecs: Codecs, algorithm: Algorithm) -> None:
    assert settle(MemoryBucket(), FEED, HOUR, Rules(GZIP, algorithm), codecs).settled


@BOTH
def test_a_late_upload_joins(tmp_path: Path, codecs: Codecs, algorithm: Algorithm) -> None:
    bucket = MemoryBucket()
    rules = Rules(GZIP, algorithm)
    for downloads in (ONE, TWO, hour_of({9: b"late"})):
        put(bucket, tmp_path, downloads)
        assert settle(bucket, FEED, HOUR, rules, codecs).settled
    assert the_one(bucket)[1] == ONE | TWO | hour_of({9: b"late"})


@BOTH
@pytest.mark.parametrize("when", ["before", "after"])
def test_dying_at_any_call_and_starting_again_ends_the_same(
    tmp_path: Path, codecs: Codecs, algorithm: Algorithm, when: str
) -> None:
    for at in count(1):
        memory = MemoryBucket()
        put(memory, tmp_path, ONE)
        put(memory, tmp_path, TWO, ZSTD)
        dying = DyingBucket(memory, at=at, when=when)
        with suppress(Died):
            settle(dying, FEED, HOUR, Rules(GZIP, algorithm), codecs)
        assert settle(memory, FEED, HOUR, Rules(GZIP, algorithm), codecs).settled
        assert the_one(memory)[1] == ONE | TWO
        if dying.calls < at:
            break
    assert at > 5


@BOTH
def test_a_lost_reply_to_any_call_is_harmless(tmp_path: Path, codecs: Codecs, algorithm: Algorithm) -> None:
    for at in count(1):
        memory = MemoryBucket()
        put(memory, tmp_path, ONE)
        put(memory, tmp_path, TWO)
        dying = DyingBucket(memory, at=at, when="after", error=lost_reply())
        careful = Retrying(dying, backoff=Backoff(attempts=2), clock=FakeClock())
        assert settle(careful, FEED, HOUR, Rules(GZIP, algorithm), codecs).settled
        assert the_one(memory)[1] == ONE | TWO
        if dying.calls < at:
            break
    assert at > 5


def test_a_lost_reply_to_the_primary_put_is_found_to_be_done(tmp_path: Path, codecs: Codecs) -> None:
    memory = MemoryBucket()
    put(memory, tmp_path, ONE)
    lossy = LosesPuts(memory)
    done = settle(Retrying(lossy, clock=FakeClock()), FEED, HOUR, Rules(GZIP, "primary"), codecs)
    assert done.settled
    assert lossy.lost == 1
    assert any("looking again" in cycle.why for cycle in done.cycles)
    assert len(memory.versions(PRIMARY.key)) == 1


class LosesPuts(Wrapper):
    """Takes the first conditional put and loses the reply."""

    lost = 0

    def put(self, key: str, body: Body, *, when: Precondition = ANY, tags: Tags | None = None) -> Stat:
        stat = self.inner.put(key, body, when=when, tags=tags)
        if when != ANY and not self.lost:
            self.lost += 1
            raise lost_reply(key)
        return stat


def test_a_merge_that_leaves_something_out_removes_nothing(tmp_path: Path) -> None:
    """A failed write to the scratch disk must never cost a source."""

    class Forgetful(Scratch):
        def merge(self, sources: Sequence[Fetched], target: Archive) -> Merged:
            done = super().merge(sources[:1], target)
            return Merged(done.body, done.names)

    @contextmanager
    def forgetful() -> Iterator[Scratch]:
        (tmp_path / "scratch").mkdir()
        yield Forgetful(tmp_path / "scratch")

    bucket = MemoryBucket()
    put(bucket, tmp_path, ONE)
    put(bucket, tmp_path, TWO)
    before = bucket.history()
    with pytest.raises(CatchmentError, match="instead of 3"):
        settle(bucket, FEED, HOUR, Rules(GZIP), forgetful)
    assert bucket.history() == before


def test_a_listing_that_fails_changes_nothing(tmp_path: Path, codecs: Codecs) -> None:
    bucket = MemoryBucket()
    put(bucket, tmp_path, ONE)
    put(bucket, tmp_path, TWO)
    before = bucket.history()
    away = DyingBucket(bucket, at=1, error=Unreachable("no answer"))
    with pytest.raises(Unreachable):
        settle(away, FEED, HOUR, Rules(GZIP), codecs)
    assert bucket.history() == before


def tar_of(members: Mapping[str, bytes]) -> bytes:
    """An archive that somebody else made: any members, nothing checked."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, body in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    return out.getvalue()


@BOTH
def test_a_wrong_body_is_set_aside_and_the_rest_of_its_archive_stays(
    tmp_path: Path, codecs: Codecs, algorithm: Algorithm
) -> None:
    bucket = MemoryBucket()
    good, bad = sorted(ONE)
    bucket.put(Archive(FEED, HOUR, set_hash(ONE), GZIP).key, tar_of({good: ONE[good], bad: b"wrong"}))
    put(bucket, tmp_path, hour_of({3: b"three"}))
    done = settle(bucket, FEED, HOUR, Rules(GZIP, algorithm), codecs)
    assert done.settled
    assert the_one(bucket)[1] == {good: ONE[good]} | hour_of({3: b"three"})
    [(name, body)] = aside(bucket).items()
    assert name.startswith(bad)
    assert body == b"wrong"
    assert [len(cycle.aside) for cycle in done.cycles] == [1, 0]


@BOTH
def test_an_archive_that_is_cut_short_is_set_aside_whole_and_its_good_members_stay(
    tmp_path: Path, codecs: Codecs, algorithm: Algorithm
) -> None:
    bucket = MemoryBucket()
    many = hour_of({second: b"body %d " % second * 100 for second in range(30)})
    archive = put(bucket, tmp_path, many)
    content = bucket.get(archive.key)[:-200]
    bucket.put(archive.key, content)
    put(bucket, tmp_path, hour_of({3000: b"later"}))
    assert settle(bucket, FEED, HOUR, Rules(GZIP, algorithm), codecs).settled
    found = the_one(bucket)[1]
    assert found.items() <= (many | hour_of({3000: b"later"})).items()
    assert len(found) > 2
    assert content in aside(bucket).values()


@BOTH
def test_a_single_damaged_archive_is_mended_when_asked(tmp_path: Path, codecs: Codecs, algorithm: Algorithm) -> None:
    bucket = MemoryBucket()
    rules = Rules(GZIP, algorithm)
    good, bad = sorted(ONE)
    key = PRIMARY.key if algorithm == "primary" else Archive(FEED, HOUR, set_hash(ONE), GZIP).key
    bucket.put(key, tar_of({good: ONE[good], bad: b"wrong"}))
    assert settle(bucket, FEED, HOUR, rules, codecs).settled
    assert aside(bucket) == {}
    assert settle(bucket, FEED, HOUR, rules, codecs, thorough=True).settled
    assert the_one(bucket)[1] == {good: ONE[good]}
    assert list(aside(bucket).values()) == [b"wrong"]
    before = bucket.history()
    assert settle(bucket, FEED, HOUR, rules, codecs, thorough=True).settled
    assert bucket.history() == before


@BOTH
def test_an_hour_of_damage_alone_ends_up_empty_with_everything_set_aside(
    tmp_path: Path, codecs: Codecs, algorithm: Algorithm
) -> None:
    bucket = MemoryBucket()
    for names, body in (("x", b"not a tar"), ("y", b"nor this")):
        bucket.put(Archive(FEED, HOUR, set_hash(names), GZIP).key, body)
    assert settle(bucket, FEED, HOUR, Rules(GZIP, algorithm), codecs).settled
    assert list_hour(bucket, FEED, HOUR).live == ()
    assert sorted(aside(bucket).values()) == [b"nor this", b"not a tar"]


def test_a_stray_member_is_kept_aside_under_a_name_that_any_bucket_takes(tmp_path: Path, codecs: Codecs) -> None:
    bucket = MemoryBucket()
    awkward = "../../evil dir/\u00fcber.txt"
    bucket.put(Archive(FEED, HOUR, set_hash(ONE), GZIP).key, tar_of({awkward: b"who put this here", **ONE}))
    put(bucket, tmp_path, TWO)
    assert settle(bucket, FEED, HOUR, Rules(GZIP), codecs).settled
    assert the_one(bucket)[1] == ONE | TWO
    assert list(aside(bucket).values()) == [b"who put this here"]


def test_a_late_upload_to_a_deleted_hour_is_removed_unread(tmp_path: Path) -> None:
    bucket = MemoryBucket()
    put(bucket, tmp_path, ONE)
    delete(bucket, plan_delete(bucket, [FEED], Span(HOUR, HOUR.next)).hours, clock=FakeClock())
    put(bucket, tmp_path, TWO)
    done = settle(bucket, FEED, HOUR, Rules(GZIP), unread)
    assert done.settled
    assert [entry.key for entry in bucket.list()] == [HOUR.tombstone(FEED)]
    assert "deleted on purpose" in done.note


@contextmanager
def unread() -> Iterator[Unread]:
    yield Unread()


class Unread:
    """A codec for an hour in which no archive needs to be looked at."""

    def fetch(self, archive: Archive, stream: object) -> Fetched:
        raise AssertionError(f"{archive.name} was read")

    def merge(self, sources: Sequence[Fetched], target: Archive) -> Merged:
        raise AssertionError(f"{target.name} was made")


def test_a_store_that_never_lets_the_primary_archive_be_made_is_reported(tmp_path: Path, codecs: Codecs) -> None:
    """Some servers refuse put-if-absent for good once the key was deleted."""

    class Stubborn(Wrapper):
        def put(self, key: str, body: Body, *, when: Precondition = ANY, tags: Tags | None = None) -> Stat:
            if when == ABSENT:
                raise Conflict(f"{key} is there already", key=key)
            return self.inner.put(key, body, when=when, tags=tags)

    bucket = Stubborn(MemoryBucket())
    archive = put(bucket, tmp_path, ONE)
    with pytest.raises(BucketError, match="does not list it") as caught:
        settle(bucket, FEED, HOUR, Rules(GZIP, "primary"), codecs)
    assert caught.value.key == PRIMARY.key
    assert "hashed" in caught.value.hint
    assert the_one(bucket)[0] == archive


def test_an_archive_that_another_program_is_still_writing_is_left_for_later(tmp_path: Path, codecs: Codecs) -> None:
    memory = MemoryBucket()
    put(memory, tmp_path, ONE)
    foreign = put(memory, tmp_path, TWO)

    class Busy(Wrapper):
        def list(self, prefix: str = "", *, after: str = "") -> Iterator[Entry]:
            for entry in self.inner.list(prefix, after=after):
                yield entry._replace(settled=entry.key != foreign.key)

    done = settle(Busy(memory), FEED, HOUR, Rules(GZIP), codecs)
    assert not done.settled
    assert "still writing" in done.note
    assert settle(memory, FEED, HOUR, Rules(GZIP), codecs).settled
    assert the_one(memory)[1] == ONE | TWO


def test_a_folder_that_cannot_be_written_is_an_error_and_not_a_vanished_archive(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    bucket = MemoryBucket()
    put(bucket, tmp_path, ONE)
    put(bucket, tmp_path, TWO)
    before = bucket.history()
    with pytest.raises(CatchmentError, match="cannot be written") as caught:
        settle(bucket, FEED, HOUR, Rules(GZIP), scratch(tmp_path / "file" / "scratch"))
    assert "disk" in caught.value.hint
    assert bucket.history() == before


def test_every_cycle_says_what_was_done_and_why(tmp_path: Path, codecs: Codecs) -> None:
    bucket = MemoryBucket()
    one, two = put(bucket, tmp_path, ONE), put(bucket, tmp_path, TWO)
    done = settle(bucket, FEED, HOUR, Rules(GZIP), codecs)
    merged = Archive(FEED, HOUR, set_hash(ONE | TWO), GZIP)
    acted, looked = done.cycles
    assert acted.put == merged.key
    assert set(acted.removed) == {one.key, two.key}
    assert (acted.listed, acted.read, looked.listed, looked.read) == (2, 2, 1, 0)
    assert merged.name in acted.why
    assert looked.why == "settled"

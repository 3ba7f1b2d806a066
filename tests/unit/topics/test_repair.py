"""Hints come back from the manifests; what nobody will ever commit goes, and nothing else does."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from catchment.bucket.contract import Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Counting, Wrapper
from catchment.errors import Unreachable
from catchment.testing.dying import Died, DyingBucket, lost_reply
from catchment.topics import offsets
from catchment.topics.manifest import Counts, Manifest
from catchment.topics.names import Source
from catchment.topics.offsets import Claim, Hint
from catchment.topics.repair import Mended, Progress, Repaired, kept_because, repair
from catchment.topics.verify import verify
from tests.unit.topics.written import NOW, ONE, PLACE, TWO, Lake, decoded, healthy, nonces

FOLDER = "type=a/day=2026-11-15"
CLAIM = Claim(32, 40, "r1", 1, "f", watermark="2026-11-15T09:00:00.000Z")


@pytest.fixture
def lake() -> Lake:
    return healthy()


def mend(bucket: Bucket, **how: Any) -> Repaired:
    return repair(bucket, PLACE, now=NOW, nonce=nonces(), **how)


def hint(lake: Lake, source: Source = ONE) -> Hint:
    return offsets.read_hint(lake.bucket, PLACE, source, 0).hint


def leave(lake: Lake, first: int, last: int, **how: Any) -> str:
    """A file that no manifest lists."""
    key = PLACE.file(FOLDER, lake.name(first, last, **how))
    lake.put(key, decoded([first]))
    return key


def state(lake: Lake) -> object:
    assert isinstance(lake.bucket, MemoryBucket)
    return lake.bucket.state()


# -- hints


def test_what_is_right_is_left_alone(lake: Lake) -> None:
    lake.hint(ONE, 32, claim=CLAIM)
    before = state(lake)
    assert mend(lake.bucket) == Repaired((), (), 0, (), (), dry_run=False)
    assert state(lake) == before


def test_an_export_that_has_nothing_yet() -> None:
    assert mend(MemoryBucket()) == Repaired((), (), 0, (), (), dry_run=False)
    lake = Lake().begin()
    lake.hint(ONE, 0)
    before = state(lake)
    assert mend(lake.bucket) == Repaired((), (), 0, (), (), dry_run=False)
    assert state(lake) == before


@pytest.mark.parametrize(
    "body", [b"", b"not json", b"[]", b"{}", b'{"next": -1}', b'{"next": 9, "claim": {"first": 1}}', b'{"next": "x"}']
)
def test_a_hint_that_cannot_be_read_is_written_anew(lake: Lake, body: bytes) -> None:
    key = PLACE.hint(ONE)
    lake.bucket.put(key, body)
    assert mend(lake.bucket).hints == (Mended(key, None, 32, "it cannot be read"),)
    assert hint(lake) == Hint(32, refreshed="2026-11-15T08:00:00.000Z", mean=20.0)
    assert verify(lake.bucket, PLACE).good


def test_a_hint_that_is_gone(lake: Lake) -> None:
    lake.bucket.delete(PLACE.hint(TWO))
    assert mend(lake.bucket).hints == (Mended(PLACE.hint(TWO), None, 32, "it was gone"),)
    assert hint(lake, TWO).next == 32


def test_a_hint_that_is_behind_keeps_what_is_true_of_it(lake: Lake) -> None:
    lake.hint(ONE, 10, watermark="2026-11-15T07:00:00.000Z", claim=replace(CLAIM, first=10, last=24))
    duties: list[int] = []
    found = mend(lake.bucket, duty=lambda manifest: duties.append(manifest.first))
    assert found.hints == (Mended(PLACE.hint(ONE), 10, 32, "it was behind"),)
    assert hint(lake).claim is None
    assert hint(lake).watermark == "2026-11-15T09:00:00.000Z"  # what was claimed is committed
    assert duties == [10, 25]  # as exporters do for ranges that a hint did not know of


def test_a_claim_that_does_not_begin_at_the_committed_offset_is_forgotten(lake: Lake) -> None:
    lake.hint(ONE, 25, claim=CLAIM)
    assert mend(lake.bucket).hints == (Mended(PLACE.hint(ONE), None, 32, "it cannot be read"),)
    assert hint(lake) == Hint(32, None, None, "2026-11-15T08:00:00.000Z", 20.0)


def test_a_hint_that_is_behind_a_hole_in_the_chain(lake: Lake) -> None:
    lake.hint(ONE, 0)
    lake.bucket.delete(PLACE.commit(ONE, 10))
    found = mend(lake.bucket)
    assert hint(lake).next == 32
    assert [one for one in found.problems if "from 10 to 24 are in no manifest" in one]


def test_a_hint_that_is_ahead_is_not_taken_back_unasked(lake: Lake) -> None:
    lake.hint(ONE, 50, claim=replace(CLAIM, first=50, last=60))
    before = state(lake)
    found = mend(lake.bucket)
    assert state(lake) == before
    assert len(found.problems) == 1
    assert "everything below offset 50 is committed, but the manifests end at 31" in found.problems[0]
    found = mend(lake.bucket, back=True)
    assert found.hints == (Mended(PLACE.hint(ONE), 50, 32, "it was ahead of the manifests"),)
    assert (hint(lake).next, hint(lake).claim) == (32, None)


def test_a_hint_whose_manifests_are_all_gone(lake: Lake) -> None:
    for first in (0, 10, 25):
        lake.bucket.delete(PLACE.commit(ONE, first))
    assert "but the manifests end at -1" in mend(lake.bucket).problems[0]
    assert mend(lake.bucket, back=True).hints == (Mended(PLACE.hint(ONE), 32, 0, "there is no manifest yet"),)


def test_a_hint_that_cannot_be_read_before_the_first_manifest() -> None:
    lake = Lake().begin({0: 700})
    lake.bucket.put(PLACE.hint(ONE), b"x")
    assert mend(lake.bucket).hints == (Mended(PLACE.hint(ONE), None, 700, "there is no manifest yet"),)
    assert hint(lake).next == 700


def test_a_hint_of_nobody_knows_what() -> None:
    lake = Lake()
    lake.bucket.put(PLACE.hint(ONE), b"x")
    lake.bucket.put(f"{PLACE.prefix}_offsets/notes.txt", b"x")
    before = state(lake)
    assert "move it away by hand" in mend(lake.bucket).problems[0]
    assert state(lake) == before


def test_a_source_whose_last_manifest_cannot_be_read_stays_as_it_is(lake: Lake) -> None:
    lake.bucket.put(PLACE.commit(ONE, 25), b"{}")
    lake.hint(ONE, 10)
    leave(lake, 0, 3)
    before = state(lake)
    found = mend(lake.bucket)
    assert state(lake) == before
    assert [PLACE.commit(ONE, 25) in one for one in found.problems] == [True]


class Meanwhile(Wrapper):
    """Does something before a chosen call."""

    def __init__(self, inner: Bucket, call: str, do: Callable[[], object]) -> None:
        super().__init__(inner)
        self._when, self._do = call, do

    def _call(self, operation: str, key: str, do: Callable[[], Any]) -> Any:
        if f"{operation} {key}" == self._when:
            self._when = ""
            self._do()
        return do()


def test_whoever_changes_the_hint_meanwhile_wins(lake: Lake) -> None:
    lake.hint(ONE, 10)
    bucket = Meanwhile(lake.bucket, f"put {PLACE.hint(ONE)}", lambda: lake.hint(ONE, 32, claim=CLAIM))
    assert mend(bucket).hints == ()
    assert hint(lake).claim == CLAIM


def test_what_is_committed_after_the_listing_is_no_sign_of_damage(lake: Lake) -> None:
    bucket = Meanwhile(lake.bucket, f"read {PLACE.hint(ONE)}", lambda: lake.commit(32, 40))
    assert mend(bucket) == Repaired((), (), 0, (), (), dry_run=False)
    assert hint(lake).next == 41


def test_hints_alone_take_no_reading_of_all_manifests(lake: Lake) -> None:
    lake.bucket.delete(PLACE.hint(ONE))
    key = leave(lake, 0, 3)
    counting = Counting(lake.bucket)
    assert len(mend(counting, files=False).hints) == 1
    assert counting.counts.requests["read"] == 2 + 2 + 1  # last manifests, hints, and what may come after the last
    assert key in lake.held()


# -- files


def test_what_abandoned_attempts_left_is_removed(lake: Lake) -> None:
    listed = lake.held()
    left = {
        leave(lake, 0, 19),  # another cut
        leave(lake, 3, 7),
        leave(lake, 0, 9, schema="other"),
        leave(lake, 12, 31, source=TWO),
    }
    dead = PLACE.dead(lake.name(0, 9))
    lake.bucket.put(dead, b"12345")
    size = sum(entry.size for entry in lake.bucket.list() if entry.key in {*left, dead})
    found = mend(lake.bucket)
    assert set(found.removed) == {*left, dead}
    assert found.removed_bytes == size
    assert lake.held() == listed
    assert verify(lake.bucket, PLACE).findings == ()


def test_a_dry_run_says_the_same_and_does_nothing(lake: Lake) -> None:
    leave(lake, 0, 19)
    lake.hint(ONE, 10)
    before = state(lake)
    duties: list[Manifest] = []
    told = mend(lake.bucket, dry_run=True, duty=duties.append)
    assert state(lake) == before and not duties
    assert replace(told, dry_run=False) == mend(lake.bucket)
    assert told.removed and told.hints


@pytest.mark.parametrize("bounds", [(32, 40), (30, 40), (25, 32)])
def test_what_reaches_above_the_committed_offset_is_left_alone(lake: Lake, bounds: tuple[int, int]) -> None:
    key = leave(lake, *bounds)
    [kept] = mend(lake.bucket).kept
    assert kept.key == key and "above the committed offset" in kept.why
    assert key in lake.held()


def test_a_source_without_manifests_is_left_alone(lake: Lake) -> None:
    key = leave(lake, 0, 9, source=Source(0, 1))
    assert [one.key for one in mend(lake.bucket).kept] == [key]


def test_a_newer_generation_may_be_a_backfills(lake: Lake) -> None:
    key = leave(lake, 0, 9, generation=2)
    [kept] = mend(lake.bucket).kept
    assert (kept.key, "backfill" in kept.why) == (key, True)
    assert mend(lake.bucket, also_newer=True).removed == (key,)


def test_the_older_generation_goes_once_a_backfill_has_replaced_it(lake: Lake) -> None:
    before = Manifest.parse("k", lake.bucket.get(PLACE.commit(ONE, 0)))
    lake.publish(lake.write(0, 9, generation=2))
    assert set(mend(lake.bucket).removed) == {file.key for file in before.files}


def test_what_lies_in_a_skipped_range_may_be_the_only_copy(lake: Lake) -> None:
    key = leave(lake, 32, 40)
    lake.publish(
        Manifest("clicks", "id", ONE, 32, 99, 1, "f", Counts(0, 68, 0, 0, 0), holes=((32, 99),), skipped="expired")
    )
    [kept] = mend(lake.bucket).kept
    assert (kept.key, "only copy" in kept.why) == (key, True)


def test_what_a_success_lists_stays_until_it_is_published_again(lake: Lake) -> None:
    key = leave(lake, 0, 19)
    lake.bucket.put(PLACE.success(FOLDER), json.dumps({"files": [{"key": key}]}).encode())
    assert "_SUCCESS" in mend(lake.bucket).kept[0].why
    lake.bucket.put(PLACE.success(FOLDER), b"")
    assert "cannot be read" in mend(lake.bucket).kept[0].why
    lake.bucket.put(PLACE.success(FOLDER), b'{"files": []}')
    assert mend(lake.bucket).removed == (key,)


def test_what_the_missing_manifest_may_have_listed_is_left_alone(lake: Lake) -> None:
    manifest = Manifest.parse("k", lake.bucket.get(PLACE.commit(ONE, 10)))
    lake.bucket.delete(PLACE.commit(ONE, 10))
    found = mend(lake.bucket)
    assert found.removed == ()
    assert {one.key for one in found.kept} == {file.key for file in (*manifest.files, *manifest.dead)}


def test_what_an_unreadable_manifest_may_have_listed_is_left_alone(lake: Lake) -> None:
    lake.bucket.put(PLACE.commit(ONE, 10), b"{}")
    before = state(lake)
    found = mend(lake.bucket)
    assert found.removed == () and found.problems
    assert state(lake) == before


def test_nothing_else_is_touched(lake: Lake) -> None:
    strange = [
        f"{PLACE.prefix}{FOLDER}/part-0000.parquet",
        f"{PLACE.prefix}readme.txt",
        f"{PLACE.schemas()}{lake.name(0, 3)}",  # a type can be called like a file
        f"{PLACE.prefix}_dead/deeper/{lake.name(0, 3)}",
        PLACE.success(FOLDER).replace("_SUCCESS", "_LATE"),
        PLACE.file(FOLDER, lake.name(0, 3)).replace("clicks", "clicks2"),
        PLACE.file(FOLDER, lake.name(0, 3)).replace("events", "events2"),
    ]
    for key in strange:
        lake.bucket.put(key, b"x")
    before = state(lake)
    assert mend(lake.bucket).removed == ()
    assert state(lake) == before


def test_the_manifest_is_read_right_before_the_delete(lake: Lake) -> None:
    """A backfill commits the very file while repair looks."""
    new = lake.write(0, 9, generation=2)
    bucket = DyingBucket(lake.bucket, at=10**9)
    repair(bucket, PLACE, now=NOW, also_newer=True, dry_run=True)
    read = f"read {PLACE.commit(ONE, 0)}"
    assert [call for call in bucket.log if PLACE.commit(ONE, 0) in call].count(read) == 1 + len(new.files)
    reads = count()

    class Late(Wrapper):
        def _call(self, operation: str, key: str, do: Callable[[], Any]) -> Any:
            if f"{operation} {key}" == read and next(reads) == 1:
                lake.publish(new)
            return do()

    found = repair(Late(lake.bucket), PLACE, now=NOW, also_newer=True)
    assert found.removed == ()
    assert verify(lake.bucket, PLACE, splits={}).missing == 0


def test_a_listing_that_fails_raises_before_anything_is_changed(lake: Lake) -> None:
    leave(lake, 0, 3)
    lake.hint(ONE, 10)
    before = state(lake)
    failed = 0
    for at in count(1):
        bucket = DyingBucket(lake.bucket, at=at, error=lost_reply())
        with suppress(Unreachable):
            mend(bucket, dry_run=True)
            break
        assert bucket.calls == at
        failed += 1
    assert failed == calls_of(lake)
    assert state(lake) == before


def calls_of(lake: Lake) -> int:
    bucket = DyingBucket(lake.bucket, at=10**9)
    mend(bucket, dry_run=True)
    return bucket.calls


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_call_and_run_again_it_ends_the_same(when: str) -> None:
    def damaged() -> Lake:
        lake = healthy()
        leave(lake, 0, 19)
        leave(lake, 3, 7, source=TWO)
        leave(lake, 40, 50)
        lake.bucket.put(PLACE.hint(ONE), b"x")
        lake.hint(TWO, 10)
        return lake

    def content(lake: Lake) -> dict[str, object]:
        """Without nonces: they differ with the number of attempts."""
        found: dict[str, object] = {}
        for entry in lake.bucket.list():
            body = lake.bucket.get(entry.key)
            found[entry.key] = {**json.loads(body), "nonce": ""} if entry.key.endswith(".json") else body
        return found

    clean = damaged()
    mend(clean.bucket)
    for at in count(1):
        lake = damaged()
        bucket = DyingBucket(lake.bucket, at=at, when=when)
        with suppress(Died):
            mend(bucket)
        if bucket.calls < at:
            break
        repair(lake.bucket, PLACE, now=NOW)
        assert content(lake) == content(clean), bucket.log[at - 1]
    assert at > 10


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_reply_that_is_lost(when: str) -> None:
    for at in count(1):
        lake = healthy()
        key = leave(lake, 0, 19)
        lake.hint(TWO, 10)
        bucket = DyingBucket(lake.bucket, at=at, when=when, error=lost_reply())
        with suppress(Unreachable):
            mend(bucket)
        if bucket.calls < at:
            break
        mend(lake.bucket)
        assert hint(lake, TWO).next == 32 and key not in lake.held()


def test_it_asks_nothing_of_time_or_chance(lake: Lake) -> None:
    leave(lake, 0, 19)
    lake.hint(TWO, 10)
    assert isinstance(lake.bucket, MemoryBucket)
    other = lake.bucket.fork()
    logs = []
    for bucket in (lake.bucket, other):
        dying = DyingBucket(bucket, at=10**9)
        mend(dying)
        logs.append(dying.log)
    assert logs[0] == logs[1]
    assert lake.bucket.state() == other.state()


def test_why_a_file_is_kept(lake: Lake) -> None:
    cover = Manifest.parse("k", lake.bucket.get(PLACE.commit(ONE, 0)))
    name = lake.name(0, 9)
    assert kept_because(cover.files[0].key, name, cover, also_newer=True) == "is committed by now"
    assert kept_because("other", name, cover, also_newer=False) == ""
    assert kept_because("other", replace(name, generation=3), cover, also_newer=False) != ""
    assert kept_because("other", replace(name, generation=3), cover, also_newer=True) == ""


# -- progress


def test_progress_counts_manifests_and_then_files(lake: Lake) -> None:
    leave(lake, 0, 3)
    leave(lake, 10, 12)
    seen: list[Progress] = []
    mend(lake.bucket, on_progress=seen.append)
    assert [(one.done, one.total) for one in seen] == [*((n, 6) for n in range(1, 7)), (7, 8), (8, 8)]
    seen.clear()
    mend(lake.bucket, files=False, on_progress=seen.append)
    assert [(one.done, one.total) for one in seen] == [(1, 2), (2, 2)]

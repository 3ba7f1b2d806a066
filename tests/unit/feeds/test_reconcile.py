"""Deciding: a table of hours and what is to be done about them, and the order that all of it rests on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.bucket.contract import ABSENT, Support, matches
from catchment.errors import Unsupported
from catchment.feeds.hours import Listing, Stored
from catchment.feeds.names import Archive, Compression, Hour, set_hash
from catchment.feeds.reconcile import Algorithm, Content, Empty, Plan, Put, Remove, Rules, plan, rules, settled, to_read

FEED = "f"
HOUR = Hour(datetime(2026, 1, 1, 8, tzinfo=UTC))
GZIP, ZSTD = Compression.GZIP, Compression.ZSTD
HASHED, PRIMARY = Rules(GZIP, "hashed"), Rules(GZIP, "primary")


def hashed(names: str, compression: Compression = GZIP) -> Archive:
    return Archive(FEED, HOUR, set_hash(names), compression)


def primary(compression: Compression = GZIP) -> Archive:
    return Archive(FEED, HOUR, None, compression)


def content(archive: Archive, names: str, *, damaged: bool = False) -> Content:
    etag = f"etag of {archive.name}"
    return Content(Stored(archive.key, archive, 100, etag), etag, frozenset(names), damaged)


def good(names: str, compression: Compression = GZIP) -> Content:
    return content(hashed(names, compression), names)


def decide(given: Rules, *read: Content, emptied: tuple[Archive, ...] = ()) -> Plan:
    archives = [one.stored for one in read] + [Stored(one.key, one, 0, "etag of nothing") for one in emptied]
    listing = Listing(FEED, HOUR, tuple(sorted(archives, key=lambda stored: stored.key)))
    contents = {stored.key: next(one for one in read if one.stored == stored) for stored in listing.live}
    return plan(listing, contents, given)


def removed(*names: str, compression: Compression = GZIP) -> tuple[Remove, ...]:
    return tuple(Remove(key) for key in sorted(hashed(each, compression).key for each in names))


def by_key(found: Plan) -> Plan:
    return replace(found, remove=tuple(sorted(found.remove, key=lambda remove: remove.key)))


def test_overlapping_archives_become_one() -> None:
    found = by_key(decide(HASHED, good("xy"), good("yz")))
    assert found == Plan(put=Put(hashed("xyz")), remove=removed("xy", "yz"))


def test_the_result_is_there_already() -> None:
    found = by_key(decide(HASHED, good("xy"), good("yz"), good("xyz")))
    assert found == Plan(remove=removed("xy", "yz"))


def test_a_subset_goes_and_its_superset_stays() -> None:
    assert decide(HASHED, good("x"), good("xy")) == Plan(remove=removed("x"))


def test_the_result_is_there_under_another_compression() -> None:
    found = by_key(decide(HASHED, good("xy"), good("yz"), good("xyz", ZSTD)))
    assert found == Plan(remove=removed("xy", "yz"))


def test_of_equal_content_under_two_compressions_the_smaller_key_stays_whoever_decides() -> None:
    for mine in (GZIP, ZSTD):
        assert decide(Rules(mine), good("xy", GZIP), good("xy", ZSTD)) == Plan(remove=removed("xy", compression=ZSTD))


def test_a_merged_archive_is_compressed_as_configured() -> None:
    found = decide(Rules(Compression.XZ), good("x"), good("y"))
    assert found.put == Put(hashed("xy", Compression.XZ))


def test_an_archive_with_damage_gives_its_good_members_and_goes_only_as_what_was_read() -> None:
    bad = content(hashed("xy"), "x", damaged=True)
    found = decide(HASHED, bad, good("z"))
    assert found.put == Put(hashed("xz"))
    assert Remove(bad.stored.key, bad.etag) in found.remove
    assert Remove(hashed("z").key) in found.remove


def test_an_archive_that_is_not_what_its_name_says_counts_by_what_it_holds() -> None:
    misnamed = content(hashed("xy"), "xyz")
    assert decide(HASHED, misnamed, good("z")) == Plan(
        put=Put(hashed("xyz")), remove=by_key(decide(HASHED, misnamed, good("z"))).remove
    )
    assert Remove(misnamed.stored.key, misnamed.etag) in decide(HASHED, misnamed, good("z")).remove


def test_a_damaged_archive_that_others_can_replace_is_written_over() -> None:
    bad = content(hashed("xy"), "x", damaged=True)
    found = decide(HASHED, bad, good("y"))
    assert found == Plan(put=Put(hashed("xy")), remove=removed("y"))


def test_archives_without_anything_good_only_go() -> None:
    bad, worse = content(hashed("x"), "", damaged=True), content(hashed("y"), "", damaged=True)
    found = decide(HASHED, bad, worse)
    assert found.put is None
    assert set(found.remove) == {Remove(one.stored.key, one.etag) for one in (bad, worse)}


def test_the_first_primary_archive_is_put_only_if_there_is_none() -> None:
    found = decide(PRIMARY, good("xy"))
    assert found == Plan(put=Put(primary(), ABSENT), remove=removed("xy"))


def test_secondaries_go_into_the_primary_archive_that_was_read() -> None:
    stable = content(primary(), "x")
    found = decide(PRIMARY, stable, good("y"))
    assert found == Plan(put=Put(primary(), matches(stable.etag)), remove=removed("y"))


def test_what_the_primary_archive_holds_already_just_goes() -> None:
    """So a lost reply of the put costs one more look."""
    assert decide(PRIMARY, content(primary(), "xy"), good("y")) == Plan(remove=removed("y"))


def test_the_primary_archive_is_never_removed() -> None:
    for other in ("x", "xy", "yz"):
        found = decide(PRIMARY, content(primary(), "x"), good(other))
        assert all(step.key != primary().key for step in found.remove)


def test_a_primary_archive_stays_the_archive_of_its_hour_when_the_configuration_changes() -> None:
    stable = content(primary(), "x")
    assert decide(HASHED, stable, good("y")) == decide(PRIMARY, stable, good("y"))
    # Where nobody can write to it, it is an archive whose name does not say what it holds.
    without = Rules(GZIP, "hashed", conditional=False)
    found = decide(without, stable, good("y"))
    assert found.put == Put(hashed("xy"))
    assert Remove(primary().key, stable.etag) in found.remove


def test_of_two_primary_archives_the_smaller_key_takes_all_and_the_other_is_emptied() -> None:
    one, other = content(primary(GZIP), "x"), content(primary(ZSTD), "y")
    for mine in (GZIP, ZSTD):
        assert decide(Rules(mine, "primary"), one, other) == Plan(
            put=Put(primary(GZIP), matches(one.etag)), empty=(Empty(primary(ZSTD).key, other.etag),)
        )


def test_an_emptied_primary_key_is_taken_up_again_if_it_is_the_only_one() -> None:
    found = decide(PRIMARY, good("x"), emptied=(primary(),))
    assert found.put == Put(primary(), matches("etag of nothing"))


def test_a_damaged_primary_archive_is_written_anew_without_the_damage() -> None:
    bad = content(primary(), "x", damaged=True)
    assert decide(PRIMARY, bad) == Plan(put=Put(primary(), matches(bad.etag)))
    hopeless = content(primary(), "", damaged=True)
    assert decide(PRIMARY, hopeless) == Plan(empty=(Empty(primary().key, hopeless.etag),))


def test_in_an_hour_that_was_deleted_everything_goes() -> None:
    archives = tuple(Stored(one.key, one, 1, None) for one in (primary(), hashed("x")))
    listing = Listing(FEED, HOUR, archives, deleted=True)
    assert to_read(listing, HASHED) == ()
    assert plan(listing, {}, HASHED) == Plan(remove=tuple(Remove(stored.key) for stored in archives))


def listed(*archives: Archive, deleted: bool = False) -> Listing:
    return Listing(FEED, HOUR, tuple(Stored(one.key, one, 1, None) for one in archives), deleted)


@pytest.mark.parametrize(
    ("listing", "in_hashed", "in_primary"),
    [
        (listed(), True, True),
        (listed(hashed("x")), True, False),
        (listed(primary()), True, True),
        (listed(primary(), hashed("x")), False, False),
        (listed(hashed("x"), hashed("y")), False, False),
        (listed(deleted=True), True, True),
        (listed(hashed("x"), deleted=True), False, False),
    ],
)
def test_whether_an_hour_is_settled_is_seen_from_the_listing(
    listing: Listing, *, in_hashed: bool, in_primary: bool
) -> None:
    assert settled(listing, HASHED) == in_hashed
    assert settled(listing, PRIMARY) == in_primary


def test_primary_is_refused_where_writes_cannot_be_conditional() -> None:
    for support in (Support(False, True, True, True), Support(True, False, True, True)):
        with pytest.raises(Unsupported) as caught:
            rules("primary", GZIP, support, place="gs://lake")
        assert "gs://lake" in caught.value.message
        assert "hashed" in caught.value.hint
        assert rules("hashed", GZIP, support, place="gs://lake") == Rules(GZIP, "hashed", conditional=False)


SETS = st.frozensets(st.sampled_from("uvwxyz"), min_size=1)
HOURS = st.dictionaries(
    st.tuples(SETS, st.sampled_from([GZIP, ZSTD])), st.frozensets(st.sampled_from("uvwxyz")), min_size=1, max_size=5
)


@given(
    claimed=HOURS,
    damaged=st.booleans(),
    stable=st.none() | SETS,
    algorithm=st.sampled_from(["hashed", "primary"]),
    mine=st.sampled_from([GZIP, ZSTD]),
)
def test_no_plan_ever_loses_a_download(
    claimed: dict[tuple[frozenset[str], Compression], frozenset[str]],
    damaged: bool,
    stable: frozenset[str] | None,
    algorithm: Algorithm,
    mine: Compression,
) -> None:
    """Whatever archives there are, sound or not: what is put and what stays holds all that was read."""
    read = [
        content(hashed("".join(names), how), "".join(names - lost if damaged else names), damaged=damaged)
        for (names, how), lost in claimed.items()
    ]
    if stable is not None:
        read.append(content(primary(), "".join(stable)))
    found = decide(Rules(mine, algorithm), *read)
    union = frozenset[str]().union(*(one.names for one in read))
    gone = {step.key for step in found.remove} | {step.key for step in found.empty}
    stays = [one for one in read if one.stored.key not in gone]
    left = frozenset[str]().union(union if found.put else (), *(one.names for one in stays))
    assert left == union
    # And it is one step: what stays is one archive at the most, beside what is written.
    keys = {one.stored.key for one in stays} | ({found.put.archive.key} if found.put else set())
    assert len(keys) == (1 if union else 0)

"""Names round-trip, and nothing else parses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.feeds.names import Archive, Compression, Download, Hour, body_hash, set_hash

HASHES = st.binary(max_size=8).map(body_hash)
FEEDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,30}", fullmatch=True)
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(2999, 1, 1), timezones=st.just(UTC)).map(  # noqa: DTZ001
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)
POSTFIXES = st.sampled_from(["", ".txt", ".pb", ".json.gz", "_odd", "-x"])


@given(FEEDS, TIMES, HASHES, POSTFIXES)
def test_downloads_round_trip(feed: str, time: datetime, hash: str, postfix: str) -> None:
    download = Download(feed, time, hash, postfix)
    assert Download.parse(download.name) == download
    assert download.path.endswith(f"/{download.name}")


@given(FEEDS, TIMES, st.none() | HASHES, st.sampled_from(Compression))
def test_archives_round_trip(feed: str, time: datetime, hash: str | None, compression: Compression) -> None:
    archive = Archive(feed, Hour.of(time), hash, compression)
    assert Archive.parse(archive.key) == archive
    assert Archive.parse_name(archive.name) == archive


@given(TIMES)
def test_hours_round_trip(time: datetime) -> None:
    hour = Hour.of(time)
    assert Hour.parse_text(hour.text) == Hour.parse_folder(hour.folder) == hour
    assert hour.start <= time < hour.next.start


@given(st.text(max_size=60))
def test_whatever_parses_is_its_own_name(text: str) -> None:
    for parse in (Download.parse, Archive.parse_name):
        found = parse(text)
        assert found is None or found.name == text


def test_the_reference_examples() -> None:
    time = datetime(2026, 11, 15, 8, 5, 3, 45_000, tzinfo=UTC)
    download = Download("subway", time, body_hash(b"hello"), ".pb")
    assert download.name == "subway_20261115T080503.045_LPJNul-wow4m6Dsqxbni.pb"
    assert download.path.startswith("subway/2026/11/15/08/subway_")


def test_times_are_utc_whatever_zone_they_come_in() -> None:
    berlin = datetime(2026, 11, 15, 0, 30, tzinfo=timezone(timedelta(hours=1)))
    assert Hour.of(berlin).folder == "2026/11/14/23"
    with pytest.raises(ValueError, match="UTC"):
        Hour(berlin.replace(minute=0))


@pytest.mark.parametrize(
    "key",
    [
        "feeds/a/2026/11/15/08/a_20261115T09.tar.gz",  # another hour's folder
        "feeds/b/2026/11/15/08/a_20261115T08.tar.gz",  # another feed's
        "feeds/a/2026/11/15/08/a_20261115T08.tar.rar",
        "feeds/a/2026/11/15/08/a_20261115T08_short.tar.gz",
        "feeds/a/2026/11/15/08/_deleted.json",
        "feeds/a/2026/13/15/08/a_20261315T08.tar.gz",
        "feeds/a/2026/11/15/8/a_20261115T8.tar.gz",
    ],
)
def test_what_is_not_an_archive(key: str) -> None:
    assert Archive.parse(key) is None


def test_an_archives_hash_is_over_its_members_in_any_order() -> None:
    assert set_hash(["b", "a"]) == set_hash(["a", "b"])
    assert set_hash(["a", "b"]) != set_hash(["a"])
    assert set_hash(["ab"]) != set_hash(["a", "b"])

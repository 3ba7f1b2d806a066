"""Names round-trip, nothing else parses, and no value of a message can leave its folder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.bucket.contract import check_key
from catchment.errors import BadKey
from catchment.topics.names import FileName, Place, Source, escape, folder_of, unescape, values_of

SOURCES = st.builds(Source, st.integers(0, 9_999_999_999), st.integers(0, 999_999))
OFFSETS = st.integers(0, 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
SPLITS = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True)
PLACE = Place("events", "clicks.v2")


def names(first: int, span: int, **changes: object) -> FileName:
    given = {"generation": 1, "source": Source(3), "fingerprint": "0123456789ab", "ext": "parquet"}
    return FileName(first=first, last=first + span, **given | changes)  # type: ignore[arg-type]


NAMES = st.builds(
    FileName,
    generation=st.integers(1, 10**6),
    source=SOURCES,
    first=OFFSETS,
    last=st.just(2**63 - 1),
    fingerprint=st.text("0123456789abcdef", min_size=12, max_size=12),
    ext=st.sampled_from(["parquet", "txt.gz", "seq"]),
)


@given(SOURCES)
def test_sources_round_trip(source: Source) -> None:
    assert Source.parse(str(source)) == source


@given(NAMES)
def test_file_names_round_trip(name: FileName) -> None:
    assert FileName.parse(str(name)) == name


@given(NAMES, st.lists(st.tuples(SPLITS, TEXTS), max_size=3))
def test_keys_of_files_round_trip(name: FileName, values: list[tuple[str, str]]) -> None:
    folder = folder_of(values)
    assert PLACE.parse_file(PLACE.file(folder, name)) == (folder, name)
    assert PLACE.parse_file(PLACE.dead(name)) == ("_dead", name)


@given(SOURCES, OFFSETS)
def test_keys_of_manifests_round_trip(source: Source, first: int) -> None:
    assert PLACE.parse_commit(PLACE.commit(source, first)) == (source, first)


@given(st.text("0123456789r_-abcdef.parquet/\n٣", max_size=70))
def test_whatever_parses_is_its_own_name(text: str) -> None:
    for parse in (Source.parse, FileName.parse):
        try:
            assert str(parse(text)) == text
        except ValueError:
            pass


@pytest.mark.parametrize(
    "text", ["", "03", "-1", "3r", "3r0", "3r01", "r1", "3R1", "٣", "3\n", " 3", "3 ", "3r1r1", "12345678901"]
)
def test_what_is_no_source(text: str) -> None:
    with pytest.raises(ValueError, match="Kafka partition"):
        Source.parse(text)


GOOD = "1_3_00000000000000000000-00000000000000000009_0123456789ab.parquet"


@pytest.mark.parametrize(
    "text",
    [
        "",
        GOOD.replace("1_3_", "0_3_"),  # generations begin at 1
        GOOD.replace("1_3_", "01_3_"),
        GOOD.replace("1_3_", "1_03_"),
        GOOD.replace("1_3_", "1_r_"),
        GOOD.replace("-0", "-", 1),  # 19 digits
        GOOD.replace("-0", "-00", 1),
        GOOD.replace("ab.", "AB."),
        GOOD.replace("ab.", "a."),
        GOOD.replace(".parquet", ""),
        GOOD.replace(".parquet", "."),
        GOOD + "\n",
        "type=a/" + GOOD,
        "1_3_00000000000000000010-00000000000000000009_0123456789ab.parquet",  # ends before it begins
    ],
)
def test_what_is_no_file_name(text: str) -> None:
    assert str(FileName.parse(GOOD)) == GOOD
    with pytest.raises(ValueError, match=r"name of an export file|Kafka partition|ends before"):
        FileName.parse(text)


@pytest.mark.parametrize(
    "key",
    [
        f"topics/events/other/{GOOD}",
        f"topics/events/clicks.v2//{GOOD}",
        f"topics/events/clicks.v2/type=a//{GOOD}",
        f"topics/events/clicks.v2/_schemas/{GOOD}",  # a type may be called anything, also like a file
        f"topics/events/clicks.v2/_commits/3/{GOOD}",
        f"topics/events/clicks.v2/_dead/more/{GOOD}",
        f"topics/events/clicks.v2/plain/{GOOD}",
        GOOD,
        "",
    ],
)
def test_what_is_no_export_file(key: str) -> None:
    with pytest.raises(ValueError):
        PLACE.parse_file(key)


@pytest.mark.parametrize(
    "key",
    [
        "topics/events/clicks.v2/_commits/3/0.json",
        "topics/events/clicks.v2/_commits/03/00000000000000000000.json",
        "topics/events/clicks.v2/_commits/00000000000000000000.json",
        "topics/events/clicks.v2/_commits/3/4/00000000000000000000.json",
        "topics/events/clicks.v2/_commits/3/٠0000000000000000000.json",
        "topics/events/clicks.v2/_commits/3/00000000000000000000.json.bak",
        "topics/backup/clicks.v2/_commits/3/00000000000000000000.json",
    ],
)
def test_what_is_no_manifest(key: str) -> None:
    with pytest.raises(BadKey, match=r"is not the name of a manifest"):
        PLACE.parse_commit(key)


@given(st.lists(OFFSETS, min_size=2, max_size=6))
def test_keys_sort_as_offsets_do(offsets: list[int]) -> None:
    by_key = sorted(offsets, key=lambda first: PLACE.commit(Source(3), first))
    assert by_key == sorted(offsets)
    assert sorted(offsets, key=lambda first: str(names(first, 0))) == sorted(offsets)


@given(TEXTS)
def test_any_value_can_be_escaped_and_read_back(value: str) -> None:
    assert unescape(escape(value)) == value


@given(TEXTS)
def test_an_escaped_value_cannot_leave_or_hide(value: str) -> None:
    text = escape(value)
    assert not text.startswith(("_", ".", " ")) and not text.endswith(" ")
    assert not set(text) & set("/\\:*?\"'#={}[]^\x00\n\x7f")
    if len(text.encode()) < 900:
        check_key(f"topics/g/t/{text}") if text else None
        check_key(PLACE.file(f"type={text}", names(0, 1)))
        check_key(PLACE.schema(value))


@given(TEXTS, TEXTS)
def test_two_values_never_share_a_folder_or_a_schema(one: str, other: str) -> None:
    assert (escape(one) == escape(other)) == (one == other)
    assert (PLACE.schema(one) == PLACE.schema(other)) == (one == other)


@pytest.mark.parametrize(
    "value, text",
    [
        ("order", "order"),
        ("a/b", "a%2Fb"),
        ("100%", "100%25"),
        ("12:30", "12%3A30"),
        ("..", "%2E%2E"),
        (".hidden", "%2Ehidden"),
        ("_SUCCESS", "%5FSUCCESS"),
        (" padded ", "%20padded%20"),
        (" ", "%20"),
        ("größe", "größe"),
        ("a b", "a b"),
        ("", ""),
    ],
)
def test_escaped_as_spark_and_hive_do(value: str, text: str) -> None:
    assert escape(value) == text


@given(st.lists(st.tuples(SPLITS, TEXTS), max_size=4, unique_by=lambda pair: pair[0]))
def test_folders_round_trip(values: list[tuple[str, str]]) -> None:
    assert list(values_of(folder_of(values)).items()) == values


def test_what_is_no_folder_of_values() -> None:
    with pytest.raises(ValueError, match="name=value"):
        values_of("type=a/plain")


def test_the_layout() -> None:
    place, source = Place("g", "t"), Source(3, 1)
    assert place.export() == "topics/g/t/_export.json"
    assert place.finalized() == "topics/g/t/_finalized.json"
    assert place.hint(source) == "topics/g/t/_offsets/3r1.json"
    assert place.commits() == "topics/g/t/_commits/"
    assert place.commits(Source(0)) == "topics/g/t/_commits/0/"
    assert place.commit(source, 7) == "topics/g/t/_commits/3r1/00000000000000000007.json"
    assert place.schema("") == "topics/g/t/_schemas/_.json"
    assert place.schema("_") == "topics/g/t/_schemas/%5F.json"
    assert place.success("") == "topics/g/t/_SUCCESS"
    assert place.success("day=2026-11-15") == "topics/g/t/day=2026-11-15/_SUCCESS"
    assert place.late("day=2026-11-15") == "topics/g/t/day=2026-11-15/_LATE"
    assert place.file("", names(0, 9)) == f"topics/g/t/{GOOD}"

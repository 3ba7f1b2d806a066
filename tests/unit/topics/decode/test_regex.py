"""Lines of text, and one regular expression for their fields."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.bucket.memory import MemoryBucket
from catchment.config.decode import Decode
from catchment.config.topics import Export
from catchment.errors import UsageError
from catchment.topics.decode.decoder import Decoder, check_decoder, decoder_of
from catchment.topics.decode.schemas import Schemas
from tests.unit.topics.decode.messages import PLACE, TYPE, reasons, records, rows
from tests.unit.topics.write.ranges import Message, all_rows, memory, refused, write, written

NO_MATCH = "does not match decode.pattern"


def decoder(pattern: str, schemas: Mapping[str, str] | None = None) -> Decoder:
    decode = Decode.model_validate({"name": "regex", "pattern": pattern, "schemas": schemas or {}})
    return decoder_of(decode, Schemas(MemoryBucket(), PLACE, decode.schemas, 1))


def decoded(
    pattern: str, *messages: object, schemas: Mapping[str, str] | None = None
) -> tuple[list[dict[str, object]], list[str]]:
    one = decoder(pattern, schemas)
    found = one.decode(TYPE, records(messages))
    return rows(one, found), reasons(found)


def test_named_groups_are_fields() -> None:
    found, dead = decoded(
        r"^(?P<level>[A-Z]+) (?P<who>\S+): (?P<text>.*)$", "INFO ünï: all well", "WARN b: ", b"WARN c:  \xe2\x82\xac "
    )
    assert found == [
        {"level": "INFO", "who": "ünï", "text": "all well"},
        {"level": "WARN", "who": "b", "text": ""},
        {"level": "WARN", "who": "c", "text": " € "},
    ]
    assert dead == []


def test_what_does_not_match_is_a_dead_letter_as_it_was() -> None:
    one = decoder(r"^(?P<n>\d+)$")
    found = one.decode(TYPE, records([b"1", b"x", None, b"", b"\xff", b"2"]))
    assert reasons(found) == [NO_MATCH, "the message has no value", "the message has no value", "not valid UTF-8"]
    assert found.dead["value"].to_pylist() == [b"x", None, b"", b"\xff"]
    assert found.table["n"].to_pylist() == ["1", "2"]


def test_it_matches_anywhere_unless_anchored() -> None:
    assert decoded(r"n=(?P<n>\d+)", "a n=5 n=6") == ([{"n": "5"}], [])
    assert decoded(r"^n=(?P<n>\d+)$", "a n=5") == ([], [NO_MATCH])
    assert decoded(r"(?P<a>.*)", "one\ntwo") == ([{"a": "one"}], [])
    assert decoded(r"(?s)(?P<a>.*)", "one\ntwo") == ([{"a": "one\ntwo"}], [])


def test_declared_groups_are_read_as_what_they_are_declared() -> None:
    found, dead = decoded(
        r"^(?P<at>\S+) (?P<ms>\S+) (?P<price>\S*)",
        "2026-11-15T08:00:00Z 17 1.50",
        "yesterday 18 2",
        "2026-11-15 x 1",
        "2026-11-15 1 1.555",
        schemas={"*": "at TIMESTAMP, ms BIGINT, price DECIMAL(6,2)"},
    )
    assert [(row["at"], row["ms"], str(row["price"])) for row in found] == [
        (datetime(2026, 11, 15, 8, tzinfo=UTC), 17, "1.50")
    ]
    assert [one.partition(";")[0] for one in dead] == [
        'at: "yesterday" is not TIMESTAMP',
        'ms: "x" is not BIGINT',
        'price: "1.555" is not DECIMAL(6,2)',
    ]


def test_a_group_that_took_no_part_is_null_where_it_cannot_be_empty() -> None:
    found, _ = decoded(r"^(?P<n>\d+)?:(?P<t>.*?)(?:=(?P<v>[a-z]+))?$", "5:a=b", ":", schemas={"*": "n INT"})
    assert found == [{"n": 5, "t": "a", "v": "b"}, {"n": None, "t": "", "v": None}]
    # This one may be there and be empty, which cannot be told from its absence.
    assert decoded(r"^a(?P<t>\d*)?$", "a") == ([{"t": ""}], [])


def test_groups_without_a_name_are_no_fields() -> None:
    found, dead = decoded(r"^(a|b)(?P<x>(c|[(\]]|\(|[^])])+)((?i:d))$", "acD", "b(cd", "b](d", "bcx")
    assert found == [{"x": "c"}, {"x": "(c"}, {"x": "]("}]
    assert dead == [NO_MATCH]


@pytest.mark.parametrize(
    "pattern", [r"(?P<a>x)(?=y)", r"(?P<a>x)(?!y)", r"(?<=x)(?P<a>y)", r"(?P<a>x)\1", r"(?P<a>x)(?P=a)", r"(?P<a>x)\Z"]
)
def test_what_re2_cannot_do_is_refused_with_what_to_change(pattern: str) -> None:
    with pytest.raises(UsageError, match=re.escape("cannot be used: invalid")) as caught:
        check_decoder(Decode.model_validate({"name": "regex", "pattern": pattern}))
    assert repr(pattern) in str(caught.value)
    assert "change decode.pattern" in str(caught.value)


@pytest.mark.parametrize(
    "pattern, why", [("(?P<_offset>x)", "taken by a column of our own"), ("(?P<a>x)(?P<A>y)", "a and A differ only in")]
)
def test_groups_that_cannot_be_columns_are_refused_when_the_export_starts(pattern: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check_decoder(Decode.model_validate({"name": "regex", "pattern": pattern}))


def test_a_whole_range(tmp_path: Path) -> None:
    export = Export.model_validate(
        {
            "group": "logs",
            "decode": {
                "name": "regex",
                "pattern": r"^(?P<level>\w+) (?P<ms>\d+) (?P<text>.*)$",
                "schemas": {"ERROR": "ms BIGINT"},
            },
            "filter": "text <> 'skip'",
            "split": {"level": {"field": "level"}, "day": {"field": "ms", "unit": "ms", "by": "day"}},
        }
    )
    day = 86_400_000
    lines = [f"{'INFO' if n % 3 else 'ERROR'} {n * day // 4} text {n}" for n in range(40)] + ["INFO 7 skip", "?"]
    messages = [Message(n, line.encode()) for n, line in enumerate(lines)]
    buckets = []
    for size in (1000, 7):
        bucket = memory()
        found = written(write(bucket, tmp_path / str(size), export, messages, rows=size))
        buckets.append({entry.key: bucket.get(entry.key) for entry in bucket.list() if entry.key.endswith(".parquet")})
        assert (found.counts.written, found.counts.dead, found.counts.filtered) == (40, 1, 1)
        by_folder = all_rows(bucket, found)
        assert len(by_folder) == 20
        assert [row["ms"] for row in by_folder["topics/logs/clicks/level=ERROR/day=1970-01-01"]] == [0, 3 * day // 4]
        assert [row["ms"] for row in by_folder["topics/logs/clicks/level=INFO/day=1970-01-01"]] == [
            str(day // 4),
            str(day // 2),
        ]
    assert buckets[0] == buckets[1]


def test_too_much_that_does_not_match_stops_the_export(tmp_path: Path) -> None:
    export = Export.model_validate({"group": "logs", "decode": {"name": "regex", "pattern": r"^(?P<n>\d+)$"}})
    found = refused(write(memory(), tmp_path, export, [Message(n, b"x") for n in range(20)]))
    assert f"20 × {NO_MATCH}" in found.reason


_LINES = st.lists(
    st.one_of(
        st.from_regex(r"\A[a-c]{1,3}=[0-9]{0,20}(;[x-z]*)?\Z"),
        st.text(max_size=5),
        st.sampled_from(["a=99999999999", "b=", "c=5;", "ab=7;x"]),
    ),
    max_size=10,
)


@settings(max_examples=80, deadline=None)
@given(lines=_LINES, cuts=st.lists(st.integers(0, 10), max_size=3))
def test_each_line_is_read_as_pythons_expressions_would_however_lines_are_cut(
    lines: Sequence[str], cuts: Sequence[int]
) -> None:
    pattern = r"^(?P<name>[a-c]+)=(?P<n>[0-9]+)?(?:;(?P<rest>[x-z]*))?$"
    wanted: list[dict[str, object]] = []
    for line in lines:
        match = re.fullmatch(pattern[1:-1], line)
        if match and (match["n"] is None or int(match["n"]) < 2**31):
            number = None if match["n"] is None else int(match["n"])
            wanted.append({"n": number, "name": match["name"], "rest": match["rest"] or ""})
    one = decoder(pattern, {"*": "n INT"})
    bounds = sorted({0, len(lines), *(cut for cut in cuts if cut < len(lines))})
    pieces = [one.decode(TYPE, records(lines[start:end], start)) for start, end in pairwise(bounds)]
    assert [row for piece in pieces for row in rows(one, piece)] == wanted
    assert sum(piece.dead.num_rows for piece in pieces) == len(lines) - len(wanted)

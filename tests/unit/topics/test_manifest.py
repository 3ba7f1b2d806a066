"""A manifest cannot be unbalanced, reads back as it was, and says so when it cannot be read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.errors import BucketError
from catchment.topics.manifest import Counts, File, Manifest, Unbalanced
from catchment.topics.names import Source

KEY = "topics/g/t/_commits/3/00000000000000000010.json"


def file(rows: int, first: int = 10, last: int = 19, key: str = "topics/g/t/a") -> File:
    return File(key, "etag", 100, rows, first, last, "2026-11-15T00:00:00+00:00", "2026-11-15T01:00:00+00:00")


GOOD = Manifest(
    topic="t",
    topic_id="id",
    source=Source(3, 1),
    first=10,
    last=19,
    generation=2,
    fingerprint="0123456789ab",
    counts=Counts(read=8, gaps=2, written=5, dead=1, filtered=2),
    files=(file(3, key="topics/g/t/a"), file(2, key="topics/g/t/b")),
    dead=(file(1, key="topics/g/t/_dead/a"),),
    holes=((12, 12), (15, 15)),
    raw_bytes=1234,
    owner="host-1",
    committed="2026-11-15T08:00:00+00:00",
    extra={"later": [1, 2]},
)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    first = draw(st.integers(0, 10**15))
    fates = draw(st.lists(st.sampled_from("wdfg"), min_size=1, max_size=40))
    last = first + len(fates) - 1
    holes: list[tuple[int, int]] = []
    for offset, fate in enumerate(fates, first):
        if fate == "g" and holes and holes[-1][1] == offset - 1:
            holes[-1] = (holes[-1][0], offset)
        elif fate == "g":
            holes.append((offset, offset))
    count = {fate: fates.count(fate) for fate in "wdfg"}
    return Manifest(
        topic=draw(st.text(max_size=5)),
        topic_id="id",
        source=draw(st.builds(Source, st.integers(0, 99), st.integers(0, 3))),
        first=first,
        last=last,
        generation=draw(st.integers(1, 9)),
        fingerprint="0123456789ab",
        counts=Counts(len(fates) - count["g"], count["g"], count["w"], count["d"], count["f"]),
        files=(File("k", "e", 1, count["w"], first, last),) if count["w"] else (),
        dead=(File("d", "e", 1, count["d"], first, last),) if count["d"] else (),
        holes=draw(st.sampled_from([tuple(holes), None])),
        skipped=draw(st.sampled_from(["", "retention"])),
        extra=draw(st.dictionaries(st.sampled_from(["later", "more"]), st.integers())),
    )


@given(manifests(), st.text(max_size=8))
def test_what_is_put_reads_back(manifest: Manifest, nonce: str) -> None:
    assert Manifest.parse(KEY, manifest.body(nonce)) == manifest
    assert json.loads(manifest.body(nonce))["nonce"] == nonce


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.integers(0, 12))
def test_only_what_adds_up_can_be_made(read: int, gaps: int, written: int, dead: int, filtered: int) -> None:
    def make() -> Manifest:
        return replace(
            GOOD,
            counts=Counts(read, gaps, written, dead, filtered),
            files=(file(written),),
            dead=(file(dead),),
            holes=None,
        )

    if read + gaps == 10 and read == written + dead + filtered:
        assert make().next == 20
    else:
        with pytest.raises(Unbalanced):
            make()


@pytest.mark.parametrize(
    "changes",
    [
        {"counts": Counts(read=9, gaps=2, written=6, dead=1, filtered=2)},
        {"counts": Counts(read=8, gaps=2, written=6, dead=1, filtered=2)},
        {"counts": Counts(read=12, gaps=-2, written=9, dead=1, filtered=2)},
        {"counts": Counts(read=8, gaps=2, written=5, dead=-1, filtered=4)},
        {"files": (file(3),)},
        {"files": ()},
        {"dead": ()},
        {"holes": ()},
        {"holes": ((12, 12),)},
        {"holes": ((12, 14),)},
        {"holes": ((9, 10),)},  # begins before the range
        {"holes": ((19, 20),)},
        {"holes": ((12, 12), (12, 12))},
        {"holes": ((15, 15), (12, 12))},
        {"holes": ((12, 14), (16, 14))},  # the second takes back what the first has too many
    ],
)
def test_unbalanced(changes: dict[str, Any]) -> None:
    with pytest.raises(Unbalanced):
        replace(GOOD, **changes)


@pytest.mark.parametrize("bounds", [(11, 10), (-1, 8)])
def test_a_range_goes_forward(bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="range"):
        replace(GOOD, first=bounds[0], last=bounds[1])


def test_what_a_later_version_added_is_kept() -> None:
    found = json.loads(GOOD.body("n"))
    found["new"] = {"x": 1}
    found["extra"] = "a field of that name"
    found["files"][0]["checksum"] = "abc"
    found["counts"]["late"] = 3
    parsed = Manifest.parse(KEY, json.dumps(found).encode())
    assert parsed == replace(GOOD, extra={"later": [1, 2], "new": {"x": 1}, "extra": "a field of that name"})
    again = json.loads(parsed.body("m"))
    assert again["new"] == {"x": 1} and again["extra"] == "a field of that name" and again["nonce"] == "m"


def test_what_a_later_version_added_cannot_displace_what_is_known() -> None:
    assert json.loads(replace(GOOD, extra={"last": 999}).body("n"))["last"] == 19


@pytest.mark.parametrize("name", ["topic", "source", "first", "last", "generation", "counts", "files", "dead", "holes"])
def test_a_field_that_is_missing(name: str) -> None:
    found = json.loads(GOOD.body("n"))
    del found[name]
    with pytest.raises(BucketError, match=KEY):
        Manifest.parse(KEY, json.dumps(found).encode())


@pytest.mark.parametrize(
    "name, value",
    [
        ("first", "10"),
        ("first", 10.0),
        ("last", None),
        ("last", True),
        ("generation", "2"),
        ("topic", 5),
        ("source", "03"),
        ("counts", []),
        ("files", None),
        ("files", [1]),
        ("files", [{"key": "k"}]),
        ("files", [{"key": 5, "etag": "e", "size": 1, "rows": 5, "first": 10, "last": 19}]),
        ("files", [{"key": "k", "etag": "e", "size": 1, "rows": 5.0, "first": 10, "last": 19}]),
        ("files", [{"key": "k", "etag": "e", "size": 1, "rows": 5, "first": 10, "last": 19, "oldest": 1}]),
        ("holes", [1, 2]),
        ("holes", [[1, 2, 3]]),
        ("version", 2),
        ("counts", {"read": 9, "gaps": 2, "written": 5, "dead": 1, "filtered": 2}),
    ],
)
def test_a_field_that_is_wrong(name: str, value: Any) -> None:
    found = json.loads(GOOD.body("n"))
    found[name] = value
    with pytest.raises(BucketError, match=KEY) as caught:
        Manifest.parse(KEY, json.dumps(found).encode())
    assert caught.value.key == KEY and caught.value.hint


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"5", b"null", b'"x"', b"\xff\xfe", b"{}", b"[" * 100_000])
def test_what_is_no_manifest_at_all(body: bytes) -> None:
    with pytest.raises(BucketError, match="is not a manifest that can be read") as caught:
        Manifest.parse(KEY, body)
    assert caught.value.key == KEY

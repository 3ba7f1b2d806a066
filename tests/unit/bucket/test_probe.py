"""What a store supports is found by doing: stores that ignore, refuse or forbid are told apart."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from catchment.bucket.contract import ANY, Body, Bucket, Precondition, Stat, Support, Tags, Version
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.probe import PREFIX, probe
from catchment.bucket.wrap import Wrapper
from catchment.config import Config, load_text
from catchment.errors import Denied, Transient, Unreachable, Unsupported
from catchment.lake.check import Verdict, judge, judge_read_only


class Lacking(Wrapper):
    """A store that ignores preconditions, or refuses them, or keeps no tags."""

    def __init__(self, inner: Bucket, *, ignores: str = "", refuses: str = "", tagless: bool = False) -> None:
        super().__init__(inner)
        self.ignores, self.refuses, self.tagless = ignores, refuses, tagless

    def put(self, key: str, body: Body, *, when: Precondition = ANY, tags: Tags | None = None) -> Stat:
        kind = "absent" if when.absent else "matches" if when.etag else ""
        if kind and kind in self.refuses:
            raise Unsupported("not here")
        if kind and kind in self.ignores:
            when = ANY
        return super().put(key, body, when=when, tags=None if self.tagless else tags)


@pytest.mark.parametrize(
    ("lacks", "support"),
    [
        ({}, Support(absent=True, matches=True, tags=True, versions=True)),
        ({"ignores": "absent"}, Support(absent=False, matches=True, tags=True, versions=True)),
        ({"ignores": "matches"}, Support(absent=True, matches=False, tags=True, versions=True)),
        ({"ignores": "absent matches"}, Support(absent=False, matches=False, tags=True, versions=True)),
        ({"refuses": "absent"}, Support(absent=False, matches=True, tags=True, versions=True)),
        ({"refuses": "matches"}, Support(absent=True, matches=False, tags=True, versions=True)),
        ({"tagless": True}, Support(absent=True, matches=True, tags=False, versions=True)),
    ],
)
def test_what_is_lacking_is_found(lacks: dict[str, str], support: Support) -> None:
    memory = MemoryBucket()
    assert probe(Lacking(memory, **lacks)) == support  # type: ignore[arg-type]
    assert list(memory.list(PREFIX)) == []


class NoVersionsFor(Wrapper):
    """Credentials that may not list versions."""

    def versions(self, key: str) -> Sequence[Version]:
        raise Denied("not for you")


def test_credentials_that_may_not_list_versions_still_may_write() -> None:
    memory = MemoryBucket()
    assert probe(NoVersionsFor(memory)).compare_and_set
    assert list(memory.list()) == []


class Away(Wrapper):
    def put(self, key: str, body: Body, *, when: Precondition = ANY, tags: Tags | None = None) -> Stat:
        if when is not ANY:
            raise Unreachable("gone")
        return super().put(key, body, tags=tags)


def test_a_store_that_goes_away_is_not_taken_for_one_that_lacks_something() -> None:
    with pytest.raises(Transient):
        probe(Away(MemoryBucket()))


# -- what that means for a configuration ------------------------------------------------------------------------------

NONE = Support(absent=False, matches=False, tags=True, versions=True)
FEED = "feeds: [{id: a, url: 'https://example.com', periodicity: 5s}]"
TOPIC = "topics: [{match: e, brokers: 'localhost:9092', exports: [{group: backup}]}]"


def config(*sections: str, algorithm: str = "hashed") -> Config:
    storage = f"object_storage: [{{id: main, bucket: lake, reconciliation_algorithm: {algorithm}}}]"
    return load_text("\n".join([storage, *sections]), {})


@pytest.mark.parametrize(
    ("declared", "verdict", "named"),
    [
        (config(FEED), Verdict.LIMITED, "hashed"),
        (config(FEED, algorithm="primary"), Verdict.FAILED, "primary"),
        (config(TOPIC), Verdict.FAILED, "topics"),
    ],
)
def test_without_conditional_writes(declared: Config, verdict: Verdict, named: str) -> None:
    found = judge(declared.object_storage[0], declared, NONE)
    assert found.verdict is verdict
    assert named in found.hint
    assert "no conditional writes" in found.detail


@pytest.mark.parametrize(
    ("declared", "verdict"),
    [(config(), Verdict.LIMITED), (config(FEED), Verdict.FAILED), (config(TOPIC), Verdict.FAILED)],
)
def test_a_store_that_can_only_be_read(declared: Config, verdict: Verdict) -> None:
    assert judge_read_only(declared.object_storage[0], declared, "check the credentials").verdict is verdict

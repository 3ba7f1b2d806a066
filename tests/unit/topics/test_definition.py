"""The fingerprint changes with whatever changes the rows, and with nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from catchment.config.topics import Export
from catchment.topics.definition import definition, digest, fingerprint, with_schema

PLAIN: dict[str, Any] = {
    "group": "events",
    "decode": "json",
    "filter": "type != 'debug'",
    "split": {"type": {"field": "type"}, "day": {"field": "ts", "unit": "ms", "by": "day"}},
}


def export(**changes: Any) -> Export:
    return Export.model_validate(PLAIN | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"group": "other"},  # the place says which group it is
        {"generation": 2},
        {"policy": {"max_age": "1m"}},
        {"heartbeat": "1m"},
        {"finalize": {"lateness": "1h"}},
        {"dead_letters": {"stop_above": "50%"}},
        {"alerts": {"delay": "1h"}},
        {"decode": {"name": "json"}},
        {"format": "parquet"},
        {"format": {"name": "parquet"}},
    ],
)
def test_what_may_change_at_any_time(changes: dict[str, Any]) -> None:
    assert fingerprint(export(**changes)) == fingerprint(export())


@pytest.mark.parametrize(
    "changes",
    [
        {"decode": {"name": "json", "schemas": {"*": "id BIGINT"}}},
        {"decode": "msgpack"},
        {"decode": {"name": "regex", "pattern": "(?P<type>.*)"}},
        {"decode": "json:loads"},
        {"decode": None, "filter": None, "split": {}},
        {"filter": None},
        {"filter": "type != 'trace'"},
        {"format": {"name": "parquet", "compression": "snappy"}},
        {"split": {}},
        {"split": {"type": {"field": "type"}, "day": {"field": "ts", "unit": "ms", "by": "hour"}}},
        {"split": {"type": {"field": "type"}, "day": {"field": "ts", "unit": "s", "by": "day"}}},
        {"split": {"type": {"field": "type"}, "date": {"field": "ts", "unit": "ms", "by": "day"}}},
        {"split": {"day": {"field": "ts", "unit": "ms", "by": "day"}, "type": {"field": "type"}}},  # another folder
    ],
)
def test_what_needs_a_new_generation(changes: dict[str, Any]) -> None:
    assert fingerprint(export(**changes)) != fingerprint(export())


def test_who_asks_a_registry_is_in_no_definition() -> None:
    shared = [f"https://{who}registry:8081/x" for who in ("", "kim:secret-42@", "lee@")]
    found = [definition(export(decode={"name": "json", "registry": url})) for url in shared]
    assert found[0]["decode"] == {"name": "json", "registry": "https://registry:8081/x"}
    assert found[0] == found[1] == found[2]


def test_it_is_the_same_in_every_release() -> None:
    # Names in existing lakes carry it. If this fails, generations would all be refused after an upgrade: a new option
    # belongs in it only where it is given, and a changed default needs a new number under `code`.
    assert definition(export()) == {
        "decode": {"name": "json"},
        "filter": "type != 'debug'",
        "format": {},
        "split": [["type", {"field": "type"}], ["day", {"field": "ts", "unit": "ms", "by": "day"}]],
        "code": [1, 1],
    }
    assert digest({"b": [1], "a": None}) == digest({"a": None, "b": [1]}) == "734c26e342c5"


def test_a_files_fingerprint_has_its_schema() -> None:
    base = fingerprint(export())
    assert len(base) == len(with_schema(base, {"a": "int64"})) == 12
    assert len({base, with_schema(base, {}), with_schema(base, {"a": "int64"}), with_schema("0" * 12, {})}) == 4

"""The sample that `catchment init` writes works, and shows everything there is."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import yaml
from pydantic import BaseModel

from catchment.config import Config, load_text, sample_text


def everything() -> str:
    """The sample with all that is commented out (a # with no space after it) switched on."""
    return re.sub(r"^(\s*)#(?=\S)", r"\1", sample_text(), flags=re.MULTILINE)


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from models(field.annotation)
    for inside in typing.get_args(annotation):
        yield from models(inside)


def keys(tree: object) -> Iterator[str]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield key
            yield from keys(value)
    if isinstance(tree, list):
        for value in tree:
            yield from keys(value)


def test_the_sample_loads_as_it_is() -> None:
    config = load_text(sample_text(), {})
    assert [storage.id for storage in config.object_storage] == ["main"]
    assert [feed.compression for feed in config.feeds] == ["zstd"]
    assert config.topics == ()


def test_all_of_the_sample_loads_once_it_is_switched_on() -> None:
    config = load_text(everything(), {})
    assert [storage.id for storage in config.object_storage] == ["main", "offsite"]
    assert config.state_storage.id == "main"
    assert [export.group for export in config.topics[0].exports] == ["backup", "events"]
    assert config.tables.items[0].table == "sales/orders"
    assert config.pipelines[0].name == "stations"
    assert config.lineage.openlineage is not None


def test_the_values_shown_for_what_is_optional_are_the_defaults() -> None:
    shown, default = load_text(everything(), {}), load_text("", {})
    assert shown.monitoring == default.monitoring
    assert shown.spark.master == default.spark.master
    assert shown.collector.model_copy(update={"shutdown_port": None}) == default.collector
    assert (shown.events.scan, shown.events.local) == (default.events.scan, default.events.local)
    assert shown.tables.late == default.tables.late and shown.tables.max_retries == default.tables.max_retries
    assert shown.topics[0].exports[1].policy == shown.topics[0].exports[0].policy
    assert shown.topics[0].exports[1].alerts == shown.topics[0].exports[0].alerts
    assert shown.pipelines[0].timeout == timedelta(hours=1)


def test_every_key_is_in_the_sample() -> None:
    there = set(keys(yaml.safe_load(everything()))) | set(re.findall(r"(\w+):", everything()))
    known = {field.alias or name for model in models(Config) for name, field in model.model_fields.items()}
    # `start` is written as a word, a time or a group: its inner name is never needed.
    assert known - there - {"position", "time"} == set()


def test_the_sample_holds_no_line_that_is_too_long() -> None:
    assert [line for line in sample_text().splitlines() if len(line) > 120] == []

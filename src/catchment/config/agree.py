"""Whether the parts of a configuration agree with each other. Pure: a Config in, places and reasons out.

A clash names two places; `{other}` in its message stands for the path of the second one. Most checks find two parts
that clash, and hold whatever else is missing. `_state` looks for something that is not there, so it is left out when a
storage could not be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from typing import TYPE_CHECKING

from catchment.config.section import Loc, path_text
from catchment.config.topics import Topic, is_name

if TYPE_CHECKING:
    from catchment.config.model import Config

Clash = tuple[Loc, str, Loc]


def disagreements(
    config: Config, *, partial: frozenset[str] = frozenset(), where: Callable[[Loc], Loc] = lambda loc: loc
) -> Iterator[tuple[Loc, str]]:
    """Everything that does not fit together.

    `partial` names sections of which something was left out; `where` turns a place in this config into the original.
    """
    for loc, message, other in _clashes(config, partial):
        yield where(loc), message.replace("{other}", path_text(where(other)))


def _clashes(config: Config, partial: frozenset[str]) -> Iterator[Clash]:
    yield from _twice((("object_storage", i, "id"), storage.id) for i, storage in enumerate(config.object_storage))
    yield from _twice((("feeds", i, "id"), feed.id) for i, feed in enumerate(config.feeds))
    yield from _twice((("tables", "items", i, "table"), item.table) for i, item in enumerate(config.tables.items))
    yield from _twice((("pipelines", i, "name"), pipeline.name) for i, pipeline in enumerate(config.pipelines))
    yield from _storages(config)
    if "object_storage" not in partial:
        yield from _state(config)
    yield from _exports(config)
    yield from _results(config)
    yield from _workspace(config)
    yield from _ports(config)


def _twice(named: Iterable[tuple[Loc, str]]) -> Iterator[Clash]:
    """Names that are equal, or differ only in case: some file systems cannot tell those apart."""
    first: dict[str, tuple[Loc, str]] = {}
    for loc, name in named:
        other, spelled = first.setdefault(name.lower(), (loc, name))
        if other != loc:
            how = "the same as" if spelled == name else "differs only in case from"
            yield loc, f"{how} {{other}}; give each its own", other


def _storages(config: Config) -> Iterator[Clash]:
    seen: dict[tuple[str, str, str], int] = {}
    for index, storage in enumerate(config.object_storage):
        other = seen.setdefault(storage.place, index)
        if other != index:
            key = "path" if storage.path else "bucket"
            message = "is the place of {other} too; use another, or another prefix"
            yield ("object_storage", index, key), message, ("object_storage", other)


def _state(config: Config) -> Iterator[Clash]:
    marked = [index for index, storage in enumerate(config.object_storage) if storage.state]
    for index in marked[1:]:
        yield ("object_storage", index, "state"), "{other} has it already; mark one only", ("object_storage", marked[0])
    needs = [key for key in ("topics", "tables", "pipelines") if key in config.model_fields_set]
    if needs and not marked and len(config.object_storage) > 1:
        yield (
            ("object_storage",),
            f"{', '.join(needs)} live in one of several storages, and none is marked; write 'state: true' in that one",
            (),
        )


def _exports(config: Config) -> Iterator[Clash]:
    """A group may hold a topic once: two exports would write the same keys."""
    for i, topic in enumerate(config.topics):
        yield from _twice(
            (("topics", i, "exports", k, "group"), export.group) for k, export in enumerate(topic.exports)
        )
    for (i, one), (j, two) in combinations(enumerate(config.topics), 2):
        if not _may_overlap(one, two):
            continue
        groups = {export.group.lower(): k for k, export in enumerate(one.exports)}
        for k, export in enumerate(two.exports):
            if export.group.lower() in groups:
                yield (
                    ("topics", j, "exports", k, "group"),
                    "the same as {other}, and both may match one topic; use another group, or exclude it in one",
                    ("topics", i, "exports", groups[export.group.lower()], "group"),
                )


def _may_overlap(one: Topic, two: Topic) -> bool:
    """Whether some topic may match both. Two regular expressions are told apart by how they begin, or not at all."""
    if is_name(one.match):
        return two.matches(one.match)
    if is_name(two.match):
        return one.matches(two.match)
    if one.match in two.exclude or two.match in one.exclude:
        return False
    a, b = _beginning(one.match), _beginning(two.match)
    return a.startswith(b) or b.startswith(a)


def _beginning(pattern: str) -> str:
    """The text that everything a regular expression matches begins with; may be shorter than it could be."""
    if "|" in pattern:
        return ""
    plain = re.match(r"\^?([A-Za-z0-9_-]*)", pattern, re.ASCII)
    rest = pattern[plain.end() :] if plain else pattern
    text = plain[1] if plain else ""
    return text[:-1] if rest[:1] in ("?", "*", "+", "{") else text


def _results(config: Config) -> Iterator[Clash]:
    seen: dict[str, Loc] = {}
    for i, pipeline in enumerate(config.pipelines):
        for k, result in enumerate(pipeline.results):
            loc: Loc = ("pipelines", i, "results", k, "key")
            other = seen.setdefault(re.sub(r"<[^>]*>", "<>", result.key), loc)
            if other != loc:
                yield loc, "is the place that {other} writes to; give each its own", other


def _workspace(config: Config) -> Iterator[Clash]:
    workspace = config.workspace.resolve()
    for index, storage in enumerate(config.object_storage):
        if storage.absolute and workspace.is_relative_to(storage.absolute):
            message = "lies in {other}, so its files would be objects of the lake; move it out"
            yield ("workspace",), message, ("object_storage", index)


def _ports(config: Config) -> Iterator[Clash]:
    webhook = config.events.webhook
    ports: list[tuple[Loc, int | None]] = [
        (("monitoring", "port"), config.monitoring.port),
        (("collector", "shutdown_port"), config.collector.shutdown_port),
        (("events", "webhook", "port"), webhook.port if webhook else None),
    ]
    yield from _twice((loc, str(port)) for loc, port in ports if port is not None)

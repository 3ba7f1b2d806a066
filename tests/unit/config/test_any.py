"""Whatever is written, the answer is a Config or a ConfigError with places and advice; never another error."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.config import Config, load_text, sample_text
from catchment.config.explain import validate
from catchment.config.tree import parse
from catchment.errors import ConfigError
from tests.unit.config.test_sample import everything

TREE, _ = parse(everything())
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.sampled_from(
        ["${X}", "${X:-5}", "$${", "{{ .X }}", "5s", "-1s", "1MB", "../a", "*", "<a>", "a:b", "\ud800", "(", "%"]
    ),
)
VALUES = st.recursive(
    SCALARS,
    # Longer keys are not YAML: it allows 1024 characters for one, and an escape takes up to twelve.
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=50), inner, max_size=3)),
    max_leaves=6,
)


def places(node: object, here: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    below = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [here, *(place for key, value in below for place in places(value, (*here, key)))]


def changed(place: tuple[str | int, ...], value: object) -> Any:
    tree: Any = copy.deepcopy(TREE)
    node = tree
    for part in place[:-1]:
        node = node[part]
    node[place[-1]] = value
    return tree


def outcome(text: str) -> Config | ConfigError:
    try:
        return load_text(text, {"X": "7"})
    except ConfigError as error:
        return error


@settings(max_examples=120, deadline=None)
@given(st.sampled_from([place for place in places(TREE) if place]), VALUES)
def test_any_value_at_any_place(place: tuple[str | int, ...], value: object) -> None:
    found = outcome(json.dumps(changed(place, value)))
    if isinstance(found, ConfigError):
        assert all("; " in problem.message or "?" in problem.message for problem in found.problems), str(found)
        assert all(problem.path for problem in found.problems), str(found)
    else:
        assert json.dumps(found.shown())


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_any_text(text: str) -> None:
    found = outcome(text)
    assert isinstance(found, Config) or found.problems


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(sample_text())), st.text(max_size=3))
def test_the_sample_with_a_few_letters_put_in(at: int, letters: str) -> None:
    text = everything()
    found = outcome(text[:at] + letters + text[at:])
    assert isinstance(found, Config) or found.problems


@settings(max_examples=100, deadline=None)
@given(VALUES)
def test_any_tree(tree: object) -> None:
    config, found = validate(tree, {})
    assert (config is None) == bool(found)

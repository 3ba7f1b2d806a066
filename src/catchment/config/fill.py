"""`${NAME}` and `${NAME:-default}` inside values, filled from the environment after the YAML has been parsed.

So a quote or a newline in a secret cannot break the file, and a key is never filled. As in a shell, the default stands
in when the variable is unset or empty. `$${` is a literal `${`. What was filled in is not looked at again.

A filled value is a `Filled`: it may be a secret, so errors name its variables and never quote it; and since the
environment knows only text, a number or true/false is accepted from it where one is wanted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from catchment.config.secret import Filled
from catchment.config.section import Loc, Wrong

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\$\{")
_GO_TEMPLATE = re.compile(r"\{\{-?\s*(?:[.$\"]|env\b|index\b|range\b|if\b|end\b|else\b|with\b|printf\b)")
TEMPLATE_HINT = "templates in {{ }} are not read here; write ${NAME} or ${NAME:-default} for an environment variable"


class Unfilled:
    """Stands where a value could not be filled, so that nothing more is said about that place."""


def fill(tree: object, environ: Mapping[str, str]) -> tuple[object, list[tuple[Loc, str]]]:
    """The tree with its values filled, and what could not be: place and reason."""
    problems: list[tuple[Loc, str]] = []

    def walk(node: object, loc: Loc) -> object:
        if isinstance(node, dict):
            return {key: walk(value, (*loc, key)) for key, value in node.items()}
        if isinstance(node, list):
            return [walk(value, (*loc, index)) for index, value in enumerate(node)]
        if not isinstance(node, str):
            return node
        try:
            return fill_text(node, environ)
        except Wrong as wrong:
            problems.append((loc, str(wrong)))
            return Unfilled()

    return walk(tree, ()), problems


def fill_text(text: str, environ: Mapping[str, str]) -> str:
    """One value, filled. Wrong if a variable is not there or the form is not one of the two."""
    if _GO_TEMPLATE.search(text):
        raise Wrong("the value is a Go template", TEMPLATE_HINT)
    names: list[str] = []

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name, default = match["name"], match["default"]
        if name is None:
            raise Wrong("'${' does not open a name", "write ${NAME} or ${NAME:-default}, or $${ for a literal ${")
        names.append(name)
        value = environ.get(name)
        if default is not None:
            return value or default
        if value is None:
            raise Wrong(f"the environment has no variable {name}", f"set it, or write ${{{name}:-default}}")
        return value

    filled = _REFERENCE.sub(replace, text)
    return Filled(filled, tuple(names)) if names else filled

"""YAML text → a tree of plain values, and what is wrong with it as YAML.

Stricter than PyYAML's own loader where that one guesses: a key given twice is refused and not overwritten, only `true`
and `false` are booleans (so `no` is a word), and nothing is a date or a number in base 60. Anchors and `<<` work.
"""

from __future__ import annotations

import re

import yaml

from catchment.config.fill import TEMPLATE_HINT
from catchment.config.section import Loc

_TAG = "tag:yaml.org,2002:"
_MAX_NODES = 100_000  # aliases can make a small file huge


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # PyYAML's own attribute


for _name, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+", "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(f"(?:{_pattern})$"), list(_first))


class SyntaxProblem(ValueError):
    """The text is not YAML at all, so nothing more can be said. The message never quotes the text."""


def parse(text: str) -> tuple[object, list[tuple[Loc, str]]]:
    """The tree, and what is wrong with it: place and reason. SyntaxProblem if there is no tree."""
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise SyntaxProblem(_syntax(text, error)) from None
    except yaml.YAMLError:
        raise SyntaxProblem("it has a character that YAML does not allow; save the file as UTF-8 text") from None
    except RecursionError:
        raise SyntaxProblem("it is nested too deeply; write it with fewer levels") from None
    if node is None:
        return {}, []
    builder = _Builder()
    return builder.build(node, ()), builder.problems


def _syntax(text: str, error: yaml.MarkedYAMLError) -> str:
    # The mark's snippet would quote the file; line and column do not.
    mark = error.problem_mark or error.context_mark
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    what = re.sub(r"'[^']*'|\"[^\"]*\"", "…", error.problem or "it cannot be read")
    advice = TEMPLATE_HINT if "{{" in text else "check indentation, quotes and colons there"
    return f"{place}not YAML ({what}); {advice}"


class _Builder:
    def __init__(self) -> None:
        self.problems: list[tuple[Loc, str]] = []
        self._count = 0
        self._open: set[int] = set()  # nodes being built, to notice an alias to what it is in

    def build(self, node: yaml.Node, loc: Loc) -> object:
        self._count += 1
        if self._count == _MAX_NODES:
            self.problems.append((loc, f"there are more than {_MAX_NODES} values; use fewer aliases"))
        if self._count >= _MAX_NODES:
            return None
        if id(node) in self._open:
            self.problems.append((loc, "an alias stands inside of what it names; write it out"))
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
                return self._mapping(node, loc)
            if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
                return [self.build(child, (*loc, index)) for index, child in enumerate(node.value)]
            if isinstance(node, yaml.ScalarNode):
                return self._scalar(node, loc)
            self.problems.append(
                (loc, f"line {_line(node)}: a tag that means nothing here; remove what starts with '!'")
            )
            return None
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, object]:
        built: dict[str, object] = {}
        merged: dict[str, object] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                self._merge(value_node, loc, merged)
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append((loc, f"line {_line(key_node)}: a key must be text; {TEMPLATE_HINT}"))
                continue
            key = str(key_node.value)
            if key_node.tag != _TAG + "str":
                self.problems.append(((*loc, key), f"line {_line(key_node)}: a key must be text; put quotes around it"))
                continue
            if key in built:
                where = f"line {_line(key_node)}: the key is in line {lines[key]} already"
                self.problems.append(((*loc, key), f"{where}; keep one of them"))
                continue
            lines[key] = _line(key_node)
            built[key] = self.build(value_node, (*loc, key))
        return {**merged, **built}

    def _merge(self, node: yaml.Node, loc: Loc, merged: dict[str, object]) -> None:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for source in sources:
            values = self.build(source, loc)
            if isinstance(values, dict):
                merged.update({key: value for key, value in values.items() if key not in merged})
            else:
                self.problems.append(
                    (loc, f"line {_line(node)}: '<<' merges keys and values; give it an alias to such")
                )

    def _scalar(self, node: yaml.ScalarNode, loc: Loc) -> object:
        text = str(node.value)
        try:
            match node.tag.removeprefix(_TAG):
                case "str" | "merge":
                    return text
                case "null":
                    return None
                case "bool":
                    return {"true": True, "false": False}[text.lower()]
                case "int":
                    return int(text, 0)
                case "float":
                    return float(text)
        except (ValueError, KeyError):
            self.problems.append((loc, f"line {_line(node)}: not what its tag says, or too long; put quotes around it"))
            return None
        self.problems.append((loc, f"line {_line(node)}: a tag that means nothing here; remove what starts with '!'"))
        return None


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1

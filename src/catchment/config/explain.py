"""From what pydantic found to problems that say where and what next: all of them, and never a secret.

Parts that clash are only looked for once every part is valid. So that a wrong duration does not hide a duplicate id,
the tree is looked at again without its broken entries, and what then clashes is added, at its place in the whole tree.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel, ValidationError

from catchment.config.fields import meant
from catchment.config.model import Config
from catchment.config.section import Findings, Loc

Found = list[tuple[Loc, str]]


def validate(tree: object, context: dict[str, Any], skip: Iterable[Loc] = ()) -> tuple[Config | None, Found]:
    """The Config, or everything that is wrong. Nothing is said of what is at or below the places to `skip`."""
    config, errors = _attempt(tree, context)
    if config is not None:
        return config, []
    meant_keys = {near for error in errors if (near := _meant_key(error))}
    found = [
        entry
        for error in errors
        if not (error["type"] == "missing" and tuple(error["loc"]) in meant_keys)
        for entry in _explained(error)
    ]
    found += _clashes(tree, context, errors)
    skipped = tuple(skip)
    said = [entry for entry in found if not any(entry[0][: len(loc)] == loc for loc in skipped)]
    return None, list(dict.fromkeys(said))


def _attempt(tree: object, context: dict[str, Any]) -> tuple[Config | None, list[Any]]:
    try:
        return Config.model_validate(tree, context=context), []
    except ValidationError as error:
        return None, error.errors(include_url=False, include_input=False)


def _explained(error: Mapping[str, Any]) -> Found:
    loc: Loc = tuple(error["loc"])
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, Findings):
        return [((*loc, *below), message) for below, message in cause.found]
    if isinstance(cause, ValueError):
        return [(loc, str(cause))]
    if error["type"] == "missing":
        return [(loc, _missing(loc))]
    if error["type"] == "extra_forbidden":
        return [(loc, _unknown(loc))]
    return [(loc, f"{error['msg']}; see the sample that 'catchment init' writes")]


def _missing(loc: Loc) -> str:
    model = _model_at(loc[:-1])
    for name, field in model.model_fields.items() if model else ():
        if loc[-1] in (name, field.alias) and field.examples:
            return f"missing; add it, for example '{loc[-1]}: {field.examples[0]}'"
    return "missing; add it"


def _known(loc: Loc) -> tuple[str, ...]:
    model = _model_at(loc)
    return tuple(field.alias or name for name, field in model.model_fields.items()) if model else ()


def _meant_key(error: Mapping[str, Any]) -> Loc | None:
    """The key that a misspelled one was meant to be: there is no need to say that it is missing, too."""
    loc: Loc = tuple(error["loc"])
    near = meant(str(loc[-1]), _known(loc[:-1])) if error["type"] == "extra_forbidden" else None
    return (*loc[:-1], near) if near else None


def _unknown(loc: Loc) -> str:
    known = _known(loc[:-1])
    near = meant(str(loc[-1]), known)
    return (
        f"unknown key; did you mean {near!r}?" if near else f"unknown key; remove it, or use one of: {', '.join(known)}"
    )


def _model_at(loc: Loc) -> type[BaseModel] | None:
    """The model that reads the keys at a place."""
    here: Any = Config
    for part in loc:
        if isinstance(here, type) and issubclass(here, BaseModel):
            field = next((f for name, f in here.model_fields.items() if part in (name, f.alias)), None)
            here = _bare(field.annotation) if field else None
        else:
            inside = typing.get_args(here)
            here = _bare(inside[0] if isinstance(part, int) else inside[-1]) if inside else None
    return here if isinstance(here, type) and issubclass(here, BaseModel) else None


def _bare(annotation: Any) -> Any:
    """Without Annotated and None."""
    while True:
        if typing.get_origin(annotation) is typing.Annotated:
            annotation = typing.get_args(annotation)[0]
        elif typing.get_origin(annotation) in (typing.Union, types.UnionType):
            annotation = next(arg for arg in typing.get_args(annotation) if arg is not types.NoneType)
        else:
            return annotation


# -- the second look -------------------------------------------------------------------------------------------------


def _clashes(tree: object, context: dict[str, Any], errors: list[Any]) -> Found:
    """What clashes among the parts that are valid by themselves."""
    out: set[Loc] = set()
    kept: dict[Loc, list[int]] = {}
    # Each round leaves out at least one more place, so this ends.
    while not all(_is_clash(error) for error in errors):
        out |= {_original(kept, _entry(error)) for error in errors if not _is_clash(error)}
        if () in out:
            return []
        kept = {}
        pruned = _without(tree, out, (), kept)
        sections = frozenset(str(loc[0]) for loc in out)
        _, errors = _attempt(pruned, {**context, "partial": sections, "where": partial(_original, kept)})
    # Without anything left out, they have been explained already.
    return [entry for error in errors for entry in _explained(error)] if out else []


def _is_clash(error: Mapping[str, Any]) -> bool:
    return not error["loc"] and isinstance(error.get("ctx", {}).get("error"), Findings)


def _entry(error: Mapping[str, Any]) -> Loc:
    """What to leave out because of an error: an unknown key alone, else the list entry (or section) that it is in."""
    loc: Loc = tuple(error["loc"])
    if error["type"] == "extra_forbidden":
        return loc
    last = max((index for index, part in enumerate(loc) if isinstance(part, int)), default=0)
    return loc[: last + 1]


def _without(node: object, out: set[Loc], loc: Loc, kept: dict[Loc, list[int]]) -> object:
    """The tree without some places. `kept` receives, for each list, which entries stayed."""
    if isinstance(node, dict):
        return {key: _without(value, out, (*loc, key), kept) for key, value in node.items() if (*loc, key) not in out}
    if isinstance(node, list):
        kept[loc] = [index for index in range(len(node)) if (*loc, index) not in out]
        return [_without(node[index], out, (*loc, index), kept) for index in kept[loc]]
    return node


def _original(kept: Mapping[Loc, list[int]], loc: Loc) -> Loc:
    """A place in the pruned tree as a place in the whole one."""
    whole: Loc = ()
    for part in loc:
        known = kept.get(whole)
        whole = (*whole, known[part] if isinstance(part, int) and known is not None else part)
    return whole

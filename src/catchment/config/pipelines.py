"""pipelines: a change in the bucket runs code. What a definition can say by itself is checked here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from catchment.config.fields import Count, CountOrZero, Flag, Many, OneOrMany, Period, choice, of_pattern, of_text
from catchment.config.maps import Environment, open_map
from catchment.config.names import FunctionName, Id, Line, LocalPath, Name, Prose
from catchment.config.section import Loc, Section, Wrong, kind, refuse

Trigger = Literal["inputs", "code", "parameters"]
_CAPTURE = re.compile(r"<([^<>]*)>")
_CAPTURE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_KEPT = ("_catchment", "warehouse", "feeds", "topics", ".catchment")


def captures(pattern: str) -> frozenset[str]:
    """The names in <angle brackets>."""
    return frozenset(_CAPTURE.findall(pattern))


def _pattern(text: str) -> str:
    """What globs and result keys have in common. A leading slash means nothing."""
    text = text.removeprefix("/")
    bare = _CAPTURE.sub("x", text)
    if not bare.strip("/") or not text.isprintable():
        raise Wrong("names nothing in the bucket", "write it as folder/<capture>/name")
    if "<" in bare or ">" in bare:
        raise Wrong("has a '<' or '>' without its partner", "write a capture as <name>")
    if any(not _CAPTURE_NAME.fullmatch(name) for name in captures(text)):
        raise Wrong("has a capture that is not a name", "use letters, digits and '_' between < and >, a letter first")
    if any(part in ("", ".", "..") for part in bare.removesuffix("/").split("/")):
        raise Wrong("has an empty, '.' or '..' part", "write it as folder/folder/name")
    return text


def _glob(text: str) -> str:
    pattern = _pattern(text)
    if any(char in pattern for char in "?[]{}"):
        raise Wrong("has one of ? [ ] { } in it, which are not wildcards here", "use *, ** or a <capture>")
    if any("**" in part and part != "**" for part in pattern.split("/")):
        raise Wrong("has '**' beside other characters", "let it stand alone between slashes, as in logs/**/*.json")
    if re.search(r"(>|\*)<|>\*", pattern):
        raise Wrong("has a capture right beside another or a '*', so where it ends is open", "put a character between")
    if pattern.endswith("/"):
        raise Wrong("ends in a slash, and objects do not", "write folder/* or folder/**")
    return pattern


def _key(text: str) -> str:
    pattern = _pattern(text)
    if "*" in pattern:
        raise Wrong("has a wildcard in it, but a result has one place", "use captures: results/<name>.parquet")
    if pattern.split("/")[0] in _KEPT:
        raise Wrong(f"is under {pattern.split('/')[0]}/, which Catchment writes itself", "choose another folder")
    return pattern


class Input(Section):
    """Objects that a run reads. Inputs are joined on captures of the same name."""

    name: Name = Field(examples=["archive"])
    glob: Annotated[str, BeforeValidator(of_text(_glob))] = Field(examples=['"feeds/subway/<year>/**"'])
    optional: Flag = False  # a datum may lack it
    as_: Annotated[Literal["files", "uris"], choice("files", "uris")] = Field(default="files", alias="as")


class Result(Section):
    """What a run writes: one object, or with a slash at the end, everything below a folder."""

    name: Name = Field(examples=["counts"])
    key: Annotated[str, BeforeValidator(of_text(_key))] = Field(examples=['"counts/<year>.parquet"'])


class Run(Section):
    """The code: exactly one of the four."""

    command: OneOrMany[Line] | None = None  # one text for a shell, or a list: a program and its arguments
    python: FunctionName | None = None  # a function over local files or URIs
    sql: Prose | None = None  # one query; inputs are views by their names
    dataframe: FunctionName | None = None  # a function over DataFrames
    files: Many[LocalPath] = ()  # shipped with the code, and part of its hash

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(value is not None for value in (self.command, self.python, self.sql, self.dataframe)) != 1:
            refuse([((), "needs one kind of code; write one of command, python, sql, dataframe")])
        if self.command is not None and not self.command:
            refuse([(("command",), "is empty; write a program and its arguments")])
        return self


def _parameter(_: str, raw: object) -> str | int | float | bool:
    if isinstance(raw, bool | int | float):
        return raw
    if isinstance(raw, str):
        return str(raw)
    raise Wrong(f"expected text, a number or true or false, found {kind(raw)}", "write 'name: value'")


Parameters = Annotated[
    Mapping[str, str | int | float | bool],
    open_map(of_pattern(r"[A-Za-z_][A-Za-z0-9_]{0,63}", "is not a name", "use letters, digits and '_'"), _parameter),
]


class Pipeline(Section):
    """Inputs, code and results."""

    name: Id = Field(examples=["stations"])
    inputs: Many[Input] = Field(examples=['[{name: archive, glob: "feeds/subway/**"}]'])
    cross: Flag = False  # allow inputs that share no capture: every one with every other
    run: Run = Field(examples=['{python: "module:function"}'])
    results: Many[Result] = Field(examples=['[{name: counts, key: "counts/<year>.parquet"}]'])
    parameters: Parameters = Field(default_factory=dict)  # handed to the code
    environment: Environment = Field(default_factory=dict)  # handed to the code, hidden everywhere else
    retries: CountOrZero = 2
    timeout: Period = timedelta(hours=1)  # for one datum
    parallelism: Count | None = None  # datums at the same time; None: as many as Spark has cores
    triggers: Many[Annotated[Trigger, choice("inputs", "code", "parameters")]] = ("inputs", "parameters")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        refuse([*self._lists(), *self._bindings(), *self._join()])
        return self

    def _lists(self) -> Iterator[tuple[Loc, str]]:
        listed: tuple[tuple[str, tuple[Input | Result, ...]], ...] = (
            ("inputs", self.inputs),
            ("results", self.results),
        )
        for key, entries in listed:
            if not entries:
                yield (key,), "is empty; add one, with a name and a place"
            names = [entry.name.lower() for entry in entries]
            for index, name in enumerate(names):
                if name in names[:index]:
                    yield (key, index, "name"), "is the name of another one already; rename it"
        if len(set(self.triggers)) != len(self.triggers) or not self.triggers:
            yield ("triggers",), "is empty or names one twice; write some of inputs, code, parameters"

    def _bindings(self) -> Iterator[tuple[Loc, str]]:
        bound = frozenset[str]().union(*(captures(entry.glob) for entry in self.inputs if not entry.optional))
        sometimes = frozenset[str]().union(*(captures(entry.glob) for entry in self.inputs))
        for index, result in enumerate(self.results):
            for name in sorted(captures(result.key) - bound):
                why = "only by an optional input" if name in sometimes else "by no input"
                yield (
                    ("results", index, "key"),
                    f"<{name}> is bound {why}; use a capture of an input that is always there",
                )

    def _join(self) -> Iterator[tuple[Loc, str]]:
        """Inputs must hang together by shared captures, or a join would be every one with every other."""
        if self.cross or len(self.inputs) < 2:
            return
        joined = {0}
        reached = set(captures(self.inputs[0].glob))
        while grown := [
            i for i in range(len(self.inputs)) if i not in joined and captures(self.inputs[i].glob) & reached
        ]:
            joined.update(grown)
            reached.update(*(captures(self.inputs[i].glob) for i in grown))
        for index in range(len(self.inputs)):
            if index not in joined:
                yield (
                    ("inputs", index, "glob"),
                    "shares no capture with inputs[0], so every object would meet every other; "
                    "name a capture alike in both, or write 'cross: true' beside inputs",
                )

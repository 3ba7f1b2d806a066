"""From a path or URL to a checked Config, or to one error that lists everything that is wrong."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from catchment.clock import SYSTEM, Clock
from catchment.config.explain import validate
from catchment.config.fill import fill
from catchment.config.model import Config
from catchment.config.section import Loc, kind, path_text
from catchment.config.source import Unreadable, read
from catchment.config.tree import SyntaxProblem, parse
from catchment.errors import ConfigError, Problem


def load(source: str | None = None, environ: Mapping[str, str] | None = None, *, clock: Clock = SYSTEM) -> Config:
    """The configuration at a path or https:// URL; None means ./catchment.yaml.

    `${NAME}` in values is filled from `environ` (None: this process's). Relative paths in it start at the folder of the
    file, or at the current one if it came from a URL. ConfigError lists every problem and shows no secret.
    """
    try:
        found = read(source, clock=clock)
    except Unreadable as error:
        shown, why = error.shown, str(error)
    else:
        return load_text(found.text, environ, shown=found.shown, base=found.base)
    # Raised outside of the handler, so that what it handled (and may quote a secret) does not hang on to the error.
    raise ConfigError(shown, [Problem("", why)])


def load_text(
    text: str, environ: Mapping[str, str] | None = None, *, shown: str = "configuration", base: Path | None = None
) -> Config:
    """As `load`, from the text itself. `base` is where relative paths start; None: the current folder."""
    config, problems = _loaded(text, os.environ if environ is None else environ, base or Path.cwd())
    if config is None:
        raise ConfigError(shown, [Problem(path_text(loc), message) for loc, message in problems])
    return config


def _loaded(text: str, environ: Mapping[str, str], base: Path) -> tuple[Config | None, list[tuple[Loc, str]]]:
    try:
        tree, problems = parse(text)
    except SyntaxProblem as problem:
        return None, [((), str(problem))]
    if not isinstance(tree, dict):
        return None, problems or [
            ((), f"expected keys and values, found {kind(tree)}; see what 'catchment init' writes")
        ]
    filled, missing = fill(tree, environ)
    config, wrong = validate(filled, {"base": base}, skip=[loc for loc, _ in missing])
    spoken_of = {loc for loc, _ in problems}
    problems += missing
    problems += [entry for entry in wrong if entry[0] not in spoken_of]
    return (None, problems) if problems else (config, [])


def sample_text() -> str:
    """The annotated sample that `catchment init` writes. It loads as it is, with an empty environment."""
    return resources.files("catchment.config").joinpath("sample.yaml").read_text(encoding="utf-8")

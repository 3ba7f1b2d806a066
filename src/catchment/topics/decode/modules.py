"""Finding a decoder of one's own, `module:callable`, and knowing its code.

A module is looked for where Python looks (PYTHONPATH, what is installed), then in the current folder and in the folder
of the configuration.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from catchment.errors import UsageError

_OURS = str(Path(__file__).parent)


@dataclass(frozen=True)
class Plugin:
    """A callable that was found."""

    name: str  # module:callable
    call: Callable[[Any, Any], object]  # records and options, `plugin.py`
    digest: str  # of the source of its module as it was loaded, and of the one that defines it
    module: str
    file: str  # of the module

    @property
    def package(self) -> str:
        """The outermost package (or the module) that executors need."""
        return self.module.partition(".")[0]


def is_plugin(decoder: str) -> bool:
    """Whether the name of a decoder is one of these."""
    return ":" in decoder


def look_in(folder: Path) -> None:
    """Let modules be found in this folder, too, after all other places."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


@cache
def find(name: str) -> Plugin:
    """Import it, once in a process. UsageError if there is no such module, it cannot be imported, or has no such name.

    What is found stays: code that changes on disk is another decoder, for another process.
    """
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise _not_imported(name, module_name, error) from error
    call = getattr(module, attribute, None)
    if not callable(call):
        what = "is not callable" if call is not None else "is not there"
        raise UsageError(
            f"decode: {name}: {attribute} {what} in {module.__file__ or module_name}",
            hint=f"define it there: def {attribute}(records, options) -> pyarrow.Table",
        )
    sources = [_source(module)]
    defined_in = sys.modules.get(getattr(call, "__module__", None) or module_name, module)
    if defined_in is not module:
        sources.append(_source(defined_in))
    return Plugin(name, call, sha256(b"\0".join(sources)).hexdigest(), module_name, module.__file__ or "")


def _not_imported(name: str, module: str, error: Exception) -> UsageError:
    missing = isinstance(error, ModuleNotFoundError) and error.name is not None
    if missing and f"{module}.".startswith(f"{error.name}."):  # type: ignore[attr-defined]
        return UsageError(
            f"decode: {name}: there is no module {error.name}",  # type: ignore[attr-defined]
            hint="put it next to the configuration, into the current folder, or on PYTHONPATH",
        )
    return UsageError(
        f"decode: {name}: importing {module} failed: {said(error)}",
        hint="correct the module, or install what it needs",
    )


def _source(module: ModuleType) -> bytes:
    """The bytes of its file, also if that is in a zip."""
    spec = module.__spec__
    read = getattr(spec.loader if spec else None, "get_data", None)
    if spec is None or spec.origin is None or read is None:
        return module.__name__.encode()
    found: bytes = read(spec.origin)
    return found


def said(error: BaseException, file: str = "") -> str:
    """What an exception says, and where it was raised: the last place in this file, if there is one."""
    text = " ".join(str(error).split())[:300]
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "importlib" not in one.filename]
    frames = [one for one in frames if one.filename == file] or [
        one for one in frames if not one.filename.startswith(_OURS)
    ]
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    if isinstance(error, SyntaxError) and error.filename:
        place = f" ({error.filename}:{error.lineno})"
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"

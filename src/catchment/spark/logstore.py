"""Log stores of our own for Delta, under which of any number of drivers exactly one commits each version of a table.

They are Java (`java/src`), compiled by `make setup` into a jar beside this module. docs/tables.md says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from catchment.errors import SetupError

JAR = Path(__file__).with_name("logstore.jar")

# By the scheme of a table's address. Those not named here keep Delta's own.
CLASSES = {
    "file": "catchment.delta.LinkLogStore",
    "s3a": "catchment.delta.PutIfAbsentLogStore",
    "s3": "catchment.delta.PutIfAbsentLogStore",
}
ONE_FOR_ALL = "spark.delta.logStore.class"


def jar() -> Path:
    """The jar that they are in. SetupError if it was not built: without it a commit could be lost."""
    if not JAR.exists():
        raise SetupError(
            f"{JAR} is not there, and without it two drivers could commit one version of a table",
            hint="run 'make setup', or install a wheel: it has it inside",
        )
    return JAR


def log_stores(conf: Mapping[str, Any]) -> dict[str, str]:
    """What Delta has to be told to use them: nothing if `conf` names one for all, since Delta refuses to have both."""
    if ONE_FOR_ALL in conf:
        return {}
    return {f"spark.delta.logStore.{scheme}.impl": name for scheme, name in CLASSES.items()}

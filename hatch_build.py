"""Keeps a wheel from being made without the jar of Catchment's own log stores, or with one of other sources."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class JarHook(BuildHookInterface[Any]):
    """Looks at the jar; `make setup` builds it, since that takes Java and a network."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """An error that says what to do, unless the package is only linked to where it lies."""
        if version == "editable":
            return
        sys.path.insert(0, str(Path(self.root) / "scripts"))
        from build_jar import fresh

        if not fresh():
            message = "src/catchment/spark/logstore.jar is missing or older than java/src; run 'make setup' first"
            raise RuntimeError(message)

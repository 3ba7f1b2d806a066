"""Catchment fills a data lake and keeps it honest.

`catchment.open("catchment.yaml")` gives the lake that a configuration declares. Importing this package costs almost
nothing: what `open` needs is imported when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from catchment.lake import Lake

__version__ = "0.1.0"
__all__ = ["__version__", "open"]


def open(config: str | Path | None = None, *, workspace: str | Path | None = None) -> Lake:
    """The lake that a configuration (a path or an https:// URL; none means ./catchment.yaml) declares.

    ConfigError names everything that is wrong with it. Nothing is created and no server is asked until it is used.
    """
    from catchment.lake import Lake

    return Lake.open(config, workspace=workspace)

"""Decoders of one's own (`module:callable`): where their modules are found, and how executors get them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from catchment.config import Config
from catchment.errors import CatchmentError
from catchment.topics.decode.modules import find, is_plugin, look_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plugins(config: Config) -> list[str]:
    """Those that the configuration names, each once."""
    named = (one.decode.name for topic in config.topics for one in topic.exports if one.decode is not None)
    return sorted({name for name in named if is_plugin(name)})


def reachable(config: Config, folder: Path | None = None) -> None:
    """Let their modules be found in the current folder and in this one, that of the configuration."""
    if plugins(config):
        for one in (Path.cwd(), folder):
            if one is not None:
                look_in(one)


def ship(spark: SparkSession, config: Config) -> None:
    """Give executors their modules. One that cannot be found is left out: the export that needs it says so."""
    from catchment.spark.ship import module_zip

    packages = set()
    for name in plugins(config):
        try:
            packages.add(find(name).package)
        except CatchmentError:
            continue
    for package in sorted(packages):
        if (zipped := module_zip(package)) is not None:
            spark.sparkContext.addPyFile(str(zipped))

"""The configuration: strict, typed, frozen, and careful with secrets.

`load(source, environ)` gives a `Config`; `ConfigError` lists everything that is wrong with it, each with the path of
its key and what to write instead.
"""

from __future__ import annotations

from catchment.config.decode import Decode, Format, Split
from catchment.config.feeds import Collector, Feed
from catchment.config.load import load, load_text, sample_text
from catchment.config.model import Config
from catchment.config.pipelines import Input, Pipeline, Result, Run
from catchment.config.secret import Secret, Url, revealed
from catchment.config.services import Events, Lineage, Monitoring, OpenLineage, Spark
from catchment.config.storage import Storage
from catchment.config.tables import TableItem, Tables
from catchment.config.topics import DeadLetters, Export, Finalize, Policy, Start, Topic

__all__ = [
    "Collector",
    "Config",
    "DeadLetters",
    "Decode",
    "Events",
    "Export",
    "Feed",
    "Finalize",
    "Format",
    "Input",
    "Lineage",
    "Monitoring",
    "OpenLineage",
    "Pipeline",
    "Policy",
    "Result",
    "Run",
    "Secret",
    "Spark",
    "Split",
    "Start",
    "Storage",
    "TableItem",
    "Tables",
    "Topic",
    "Url",
    "load",
    "load_text",
    "revealed",
    "sample_text",
]

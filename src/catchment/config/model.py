"""The whole configuration of a lake. Each section has a module of its own; this one puts them together."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationInfo, model_validator

from catchment.config.agree import disagreements
from catchment.config.feeds import Collector, Feed
from catchment.config.fields import Many
from catchment.config.names import LocalPath
from catchment.config.pipelines import Pipeline
from catchment.config.section import Section, refuse
from catchment.config.services import Events, Lineage, Monitoring, Spark
from catchment.config.storage import Storage
from catchment.config.tables import Tables
from catchment.config.topics import Topic


class Config(Section):
    """A lake as declared. Frozen, checked as a whole, and safe to print: secrets show themselves as ***."""

    object_storage: Many[Storage] = Field(  # never empty: none given means a local directory, ./lake
        default_factory=lambda: ({"id": "main", "path": "./lake"},), validate_default=True
    )
    workspace: LocalPath = Field(
        default=Path("./workspace"), validate_default=True
    )  # downloads/, archives/, logs/, status
    feeds: Many[Feed] = ()
    collector: Collector = Collector()
    topics: Many[Topic] = ()
    tables: Tables = Tables()
    pipelines: Many[Pipeline] = ()
    spark: Spark = Spark()
    monitoring: Monitoring = Monitoring()
    events: Events = Events()
    lineage: Lineage = Lineage()

    @property
    def state_storage(self) -> Storage:
        """Where topics, tables, pipelines and _catchment/ live: the one marked `state: true`, else the first."""
        return next((storage for storage in self.object_storage if storage.state), self.object_storage[0])

    def storage(self, id: str) -> Storage | None:
        """The storage with this id, if there is one."""
        return next((storage for storage in self.object_storage if storage.id == id), None)

    def shown(self) -> dict[str, Any]:
        """As plain values, with defaults filled in and secrets hidden: for pages, `--json` and logs."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @model_validator(mode="before")
    @classmethod
    def _some_storage(cls, raw: object) -> object:
        if isinstance(raw, dict) and raw.get("object_storage") in ([], ()):
            return {key: value for key, value in raw.items() if key != "object_storage"}
        return raw

    @model_validator(mode="after")
    def _agrees(self, info: ValidationInfo) -> Self:
        context = info.context or {}
        refuse(
            disagreements(
                self, partial=context.get("partial", frozenset()), where=context.get("where", lambda loc: loc)
            )
        )
        return self

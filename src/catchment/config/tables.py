"""tables: batches that are applied to Delta tables."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from catchment.config.fields import Count, CountOrZero, Flag, Many, Size, choice, of_pattern, of_text
from catchment.config.names import FileName, Prefix, Regex
from catchment.config.section import Loc, Section, refuse

Late = Literal["refuse", "apply", "report"]
Evolution = Literal["fail", "add columns"]

TableName = Annotated[
    str,
    BeforeValidator(
        of_text(
            of_pattern(
                r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}/[A-Za-z0-9][A-Za-z0-9_-]{0,63}",
                "is not the name of a table",
                "write it as dataset/table, of letters, digits, '_' and '-'",
            )
        )
    ),
]
_OURS = ("_success", "_backfill", "_lock", "_config", "_backlog")
_OTHER_ROOMS = ("warehouse", "_catchment")


class TableItem(Section):
    """One table. What is left out here is taken from the section."""

    table: TableName = Field(examples=["sales/orders"])
    source: Prefix | None = None  # where in the bucket its batches are; None: tables/<dataset>/<table>
    order: Flag | None = None  # apply in order, also without _config/ORDERME
    late: Annotated[Late, choice("refuse", "apply", "report")] | None = None
    max_retries: CountOrZero | None = None
    max_batch_bytes: Size | None = None
    allow_zero_rows: Flag | None = None
    schema_evolution: Annotated[Evolution, choice("fail", "add columns")] | None = None

    @model_validator(mode="after")
    def _elsewhere(self) -> Self:
        if self.source is not None and self.source.split("/")[0] in _OTHER_ROOMS:
            refuse([(("source",), "is kept by Catchment itself; name a folder that batches are put into")])
        return self


class Tables(Section):
    """All tables, also those found in the bucket and not listed in items."""

    order_per_table: Flag = False  # apply in order everywhere, also without _config/ORDERME
    wait_for_validation: Flag = False  # one _BACKFILL, one batch
    start_backfill_filename: FileName | None = None  # nothing is applied before this file is in the table's folder
    naming: Regex | None = None  # how batches' folders are named, with groups dataset and table; None: as documented
    parallelism: Count = 4  # tables (and batches of unordered ones) worked on at the same time
    late: Annotated[Late, choice("refuse", "apply", "report")] = "refuse"
    max_retries: CountOrZero = 3  # of what may pass; a wrong statement is not tried again
    max_batch_bytes: Size | None = None  # None: no limit
    allow_zero_rows: Flag = False  # whether a statement that changes no row is fine
    schema_evolution: Annotated[Evolution, choice("fail", "add columns")] = "fail"
    items: Many[TableItem] = ()

    @model_validator(mode="after")
    def _files_and_groups(self) -> Self:
        found: list[tuple[Loc, str]] = []
        if self.start_backfill_filename is not None and self.start_backfill_filename.lower() in _OURS:
            found.append(
                (("start_backfill_filename",), "has a meaning of its own already; write another, as _HISTORYDONE")
            )
        if self.naming is not None and not {"dataset", "table"} <= set(re.compile(self.naming).groupindex):
            found.append((("naming",), "needs the groups (?P<dataset>…) and (?P<table>…); add them"))
        refuse(found)
        return self

    def item(self, table: str) -> TableItem:
        """The settings of one table, listed or not, with the section's filled in."""
        listed = next((item for item in self.items if item.table == table), TableItem(table=table))
        inherited = {
            "order": self.order_per_table,
            "late": self.late,
            "max_retries": self.max_retries,
            "max_batch_bytes": self.max_batch_bytes,
            "allow_zero_rows": self.allow_zero_rows,
            "schema_evolution": self.schema_evolution,
        }
        return listed.model_copy(
            update={key: value for key, value in inherited.items() if getattr(listed, key) is None}
        )

"""What a file format is: how rows become an object, and how they come back. One module for each.

Parquet holds columns of any type. `text` and `sequence` hold messages as they were; of a decoded export as well, whose
decoding then only says which messages are kept, and in which folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Protocol

import pyarrow as pa

from catchment.config.decode import Format
from catchment.errors import CatchmentError, UsageError
from catchment.topics.identity import Identity
from catchment.topics.records import BACKED
from catchment.topics.work import Work


class Damaged(CatchmentError):
    """Not a file of its format, or not a whole one. The message begins as if the file's name came before it."""


@dataclass(frozen=True)
class About:
    """What is known of a file before it is written. The same rows under the same name give the same bytes."""

    work: Work
    key: str
    rows: int
    size: int  # bytes of its rows, as Arrow holds them

    @property
    def metadata(self) -> dict[str, str]:
        """What a file says about itself, if it can: the range that it is of."""
        work = self.work
        about = {
            "topic": work.topic,
            "kafka_partition": str(work.source),
            "first": work.first,
            "last": work.last,
            "generation": work.generation,
        }
        return {"catchment": json.dumps(about, sort_keys=True)}


def backed(rows: pa.Table) -> pa.Table:
    """Rows as `records.BACKED` has them; a column that they do not have is null."""
    columns = [rows[one.name] if one.name in rows.column_names else pa.nulls(rows.num_rows, one.type) for one in BACKED]
    return pa.table([column.cast(one.type) for column, one in zip(columns, BACKED, strict=True)], schema=BACKED)


class FileFormat(Protocol):
    """One format with its options. Values, so any thread may use one."""

    @property
    def ext(self) -> str:
        """What names end in."""

    @property
    def typed(self) -> bool:
        """Whether a file can hold decoded columns. If not, it holds messages as they were."""

    @property
    def keeps(self) -> frozenset[str]:
        """What is kept of a message: columns of `records.BACKED`. Others are null when it is read."""

    def refused(self, records: pa.Table) -> pa.Array | None:
        """Why a record cannot be kept by this format, null for those that can. None: all can."""

    def keep(self, records: pa.Table) -> pa.Table:
        """The rows of a file that holds these messages, none of them refused."""

    def kept(self, rows: pa.Table) -> pa.Table:
        """The messages of such rows, as `records.BACKED`; what is not kept is null, offsets too."""

    def write(self, sink: pa.NativeFile, tables: Iterable[pa.Table], about: About) -> None:
        """Write rows as one file, in bounded memory. There is at least one row. The sink stays open."""

    def read(self, source: IO[bytes], *, first: int | None = None, last: int | None = None) -> Iterator[pa.Table]:
        """The rows of a file, in order and in bounded memory; Damaged if it cannot be read to its end.

        first, last: parts of the file that are known to have no offset in [first, last] may be left out.
        """

    def count(self, source: IO[bytes]) -> int:
        """How many rows a file has. Damaged as above."""


def file_format(format: Format) -> FileFormat:
    """What carries out this section of a configuration."""
    from catchment.topics.files.parquet import Parquet
    from catchment.topics.files.sequence import Sequence
    from catchment.topics.files.text import Text

    if format.name == "text":
        return Text.of(format)
    if format.name == "sequence":
        return Sequence.of(format)
    return Parquet(format.compression or "zstd")


def format_of(identity: Identity, generation: int) -> Format:
    """The format of a generation's files, as `_export.json` recorded it. UsageError if it says nothing of it."""
    what = identity.generations.get(generation)
    if what is None:
        raise UsageError(
            f"generation {generation} is not recorded; there are: {', '.join(map(str, sorted(identity.generations)))}",
            hint="_export.json says what each generation of an export is: restore an earlier version of it",
        )
    try:
        return Format.model_validate(what["format"])
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"the format of generation {generation} cannot be understood",
            hint="_export.json is damaged, or was written by a later release: use that one",
        ) from error

"""From records to the rows of files: what a backup keeps, and what a decoder makes of a message."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from catchment.bucket.contract import Bucket
from catchment.errors import CatchmentError
from catchment.topics.files.format import FileFormat, file_format
from catchment.topics.records import HEADERS, TIMESTAMP
from catchment.topics.split import RECORD_HEADERS, RECORD_KEY, Splitter
from catchment.topics.work import Work
from catchment.topics.write.heaps import Heaps
from catchment.topics.write.tally import Watch


class Unwritable(CatchmentError):
    """The range cannot be written as it is. again: it can if it is tried again at once."""

    def __init__(self, message: str, *, hint: str = "", again: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.again = again


class Rows(Protocol):
    """What becomes of records. Rows go to the heaps, and so do dead letters. All may raise Unwritable."""

    def take(self, records: pa.Table) -> None:
        """The next records, in the order of their offsets."""

    def end(self) -> None:
        """There are no more."""

    def settle(self) -> None:
        """Record what was learned about schemas. What follows knows the final ones."""

    def finish(self, type_name: str, table: pa.Table) -> pa.Table:
        """Rows from the heaps as their file has them."""

    def fingerprint(self, type_name: str) -> str:
        """What the names of a type's files carry."""

    def dead_fingerprint(self) -> str:
        """What the name of the dead letters' file carries: which records are dead depends on every schema."""


def rows_of(work: Work, bucket: Bucket, heaps: Heaps, watch: Watch, memory: int) -> Rows:
    """The rows that this export wants."""
    if work.export.decode is not None:
        from catchment.topics.write.decoded import Decoded  # it knows decoders, which a backup never needs

        return Decoded(work, bucket, heaps, watch, memory)
    return Backup(work, heaps, watch)


class Backup:
    """Records as they are. `timestamp_type` is Kafka's number for it."""

    def __init__(self, work: Work, heaps: Heaps, watch: Watch) -> None:
        self._work, self._heaps, self._watch = work, heaps, watch
        self._splitter = Splitter(work.export.split)
        self._format = file_format(work.export.format)

    def take(self, records: pa.Table) -> None:
        with self._watch("decode"):
            records = fit(records, self._format, self._heaps)
            rows = self._format.keep(records)
        with self._watch("split"):
            seen = {
                RECORD_KEY: records["key"],
                RECORD_HEADERS: records["headers"].cast(HEADERS),
                TIMESTAMP: records["timestamp"].cast(pa.timestamp("ms", "UTC")),
            }
            folders = self._splitter.folders(pa.table(seen))
        self._heaps.add("", rows, records["offset"], folders)
        if folders.bad.num_rows:
            self._heaps.bury(records.take(folders.bad["row"]), folders.bad["reason"])

    def end(self) -> None:
        pass

    def settle(self) -> None:
        pass

    def finish(self, type_name: str, table: pa.Table) -> pa.Table:
        return table

    def fingerprint(self, type_name: str) -> str:
        return self._work.fingerprint

    def dead_fingerprint(self) -> str:
        return self._work.fingerprint


def fit(records: pa.Table, format: FileFormat, heaps: Heaps) -> pa.Table:
    """The records that files of this format can hold. The others are dead letters."""
    reasons = format.refused(records)
    if reasons is None:
        return records
    lost = pc.is_valid(reasons)
    heaps.bury(records.filter(lost), reasons.drop_null())
    return records.filter(pc.invert(lost))

"""One claimed range from Arrow batches to files in the bucket. Knows nothing of Spark.

1. *Read*: records in the order of their offsets, counted, holes noted.
2. *Make rows*: decode, filter, split; rows are gathered by type and folder, what cannot be used as dead letters.
3. *Judge*: with too many dead letters the range is refused, and nothing is put.
4. *Settle*: what the records taught about schemas is recorded, before the first put.
5. *Put*: one file per type and folder, built aside, put under its final name if there is none; dead letters last.

What is put depends on the records, the definition and the schema, and on nothing else: not on how the records were cut
into batches, nor on the memory there was. So a second attempt finds its objects there and leaves them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from catchment.bucket.contract import Body, Bucket, Stat
from catchment.topics.files.format import About, FileFormat, file_format
from catchment.topics.files.parquet import Parquet
from catchment.topics.manifest import Counts, File
from catchment.topics.names import FileName
from catchment.topics.records import DEAD, DEAD_BACKED
from catchment.topics.work import Refused, Work, Written
from catchment.topics.write.bounds import Bounds, moment
from catchment.topics.write.dead import too_many
from catchment.topics.write.heaps import Heaps
from catchment.topics.write.put import Puts
from catchment.topics.write.rows import Unwritable, rows_of
from catchment.topics.write.spool import Heap
from catchment.topics.write.tally import Tally, Watch

IN_MEMORY = 16 << 20  # a file whose rows are no more than this is built in memory, a larger one on disk


def write_range(
    work: Work, batches: Iterable[pa.RecordBatch], bucket: Bucket, scratch: Path, memory: int
) -> Written | Refused:
    """Write one range. `batches` are its records (`records.py`; a backup's with headers and `timestamp_type`).

    scratch: a folder of this task's own, emptied by the caller. memory: bytes of rows that are kept before they spill.
    Safe to repeat, and to run twice at once. Raises what the bucket raises; nothing is committed here.
    """
    return _Range(work, bucket, scratch, memory).write(batches)


def all_gaps(work: Work) -> Written:
    """What there is to say of a range without a single message."""
    gaps, holes = Tally(work).finish()
    counts = Counts(read=0, gaps=gaps, written=0, dead=0, filtered=0)
    return Written(work.topic, work.source, work.first, work.last, counts, (), (), holes, 0)


class _Range:
    def __init__(self, work: Work, bucket: Bucket, scratch: Path, memory: int) -> None:
        self._work, self._bucket, self._scratch = work, bucket, scratch
        self._watch = Watch()
        self._heaps = Heaps(scratch, memory, self._watch, DEAD_BACKED if work.export.decode is None else DEAD)
        self._rows = rows_of(work, bucket, self._heaps, self._watch, memory)
        self._format = file_format(work.export.format)
        self._built = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written | Refused:
        work, heaps = self._work, self._heaps
        tally = Tally(work)
        try:
            # 1 read, 2 make rows
            for batch in self._timed(batches):
                if batch.num_rows:
                    tally.see(batch)
                    self._rows.take(pa.Table.from_batches([batch]))
            self._rows.end()
            gaps, holes = tally.finish()
            counts = Counts(tally.read, gaps, heaps.written, heaps.dead.count, heaps.filtered)
            counts.check(work.first, work.last)
            # 3 judge
            if why := too_many(work, counts.dead, counts.read, heaps.dead.reasons):
                return self._refused(why, "correct the producer or the decoder, or raise dead_letters.stop_above")
            # 4 settle
            with self._watch("settle"):
                self._rows.settle()
        except Unwritable as error:
            return self._refused(error.message, error.hint, again=error.again)
        # 5 put
        files, dead = self._put()
        bounds = (work.topic, work.source, work.first, work.last)
        reasons, seconds = heaps.dead.reasons, self._watch.seconds()
        return Written(*bounds, counts, files, dead, holes, tally.raw_bytes, reasons, seconds)

    def _refused(self, why: str, hint: str, *, again: bool = False) -> Refused:
        work = self._work
        return Refused(work.topic, work.source, work.first, work.last, why, hint, again)

    def _timed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source = iter(batches)
        while True:
            with self._watch("read"):
                batch = next(source, None)
            if batch is None:
                return
            yield batch

    def _put(self) -> tuple[tuple[File, ...], tuple[File, ...]]:
        files: list[File] = []
        dead: list[File] = []
        place, format = self._work.place, self._format
        # Dead letters have reasons, and may be what the format cannot hold.
        dead_format = format if format.typed else Parquet()
        with Puts(self._bucket, self._scratch) as puts:
            for type_name, folder, heap, bounds in self._heaps.each():
                key = place.file(folder, self._name(self._rows.fingerprint(type_name), format))
                tables = (self._rows.finish(type_name, table) for table in heap.tables())
                self._put_one(puts, key, format, tables, heap, bounds, files)
            letters = self._heaps.dead
            if letters.count:
                key = place.dead(self._name(self._rows.dead_fingerprint(), dead_format))
                self._put_one(puts, key, dead_format, letters.tables(self._work), letters.heap, letters.bounds, dead)
            with self._watch("put"):
                puts.wait()
        return tuple(files), tuple(dead)

    def _put_one(
        self,
        puts: Puts,
        key: str,
        format: FileFormat,
        tables: Iterator[pa.Table],
        heap: Heap,
        bounds: Bounds,
        files: list[File],
    ) -> None:
        """Build one file and have it put. `files` gets it once it is there."""
        with self._watch("write"):
            body = self._file(key, format, tables, heap)
        oldest, newest = moment(bounds.oldest), moment(bounds.newest)

        def note(stat: Stat) -> None:
            files.append(File(key, stat.etag, stat.size, heap.rows, bounds.first, bounds.last, oldest, newest))

        with self._watch("put"):
            puts.add(key, body, heap.rows, format, note)

    def _file(self, key: str, format: FileFormat, tables: Iterator[pa.Table], heap: Heap) -> Body:
        """In memory if it is small, else on disk."""
        about = About(self._work, key, heap.rows, heap.size)
        if heap.size <= IN_MEMORY:
            sink = pa.BufferOutputStream()
            format.write(sink, tables, about)
            return bytes(sink.getvalue())
        self._built += 1
        path = self._scratch / f"file-{self._built}.{format.ext}"
        with pa.OSFile(str(path), "wb") as out:
            format.write(out, tables, about)
        return path

    def _name(self, fingerprint: str, format: FileFormat) -> FileName:
        work = self._work
        return FileName(work.generation, work.source, work.first, work.last, fingerprint, format.ext)

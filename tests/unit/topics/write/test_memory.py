"""Memory is bounded by pieces and row groups, not by how many types and days a range touches."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, tempfile
from pathlib import Path
import pyarrow as pa
from catchment.bucket.local import LocalBucket
from catchment.config.topics import Export
from catchment.topics.definition import fingerprint
from catchment.topics.names import Source
from catchment.topics.records import RECORDS
from catchment.topics.work import Work, Written
from catchment.topics.write.range import write_range
from tests.unit.topics.write.peak import peak

TYPES, DAYS, ROWS, BATCH = 600, 3, 1_000_000, 50_000
export = Export.model_validate({
    "group": "g", "decode": "json",
    "split": {"type": {"field": "type"}, "day": {"field": "ts", "unit": "ms", "by": "day"}},
})

def message(n):
    when = 1_794_268_800_000 + n // TYPES % DAYS * 86_400_000
    text = b"%d and some more words that nobody reads" % n
    return b'{"type": "t%d", "ts": %d, "n": %d, "text": "%s"}' % (n % TYPES, when, n, text)

def batches():
    for first in range(0, ROWS, BATCH):
        numbers = range(first, first + BATCH)
        columns = [pa.array(numbers, pa.int64()), pa.array([0] * BATCH, pa.int64()), pa.nulls(BATCH, pa.binary()),
                   pa.array([message(n) for n in numbers], pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, schema=RECORDS)

with tempfile.TemporaryDirectory() as folder:
    scratch = Path(folder) / "scratch"
    lake = Path(folder) / "lake"
    scratch.mkdir()
    lake.mkdir()
    work = Work(export, "events", Source(0), 0, ROWS - 1, fingerprint(export))
    done = write_range(work, batches(), LocalBucket(lake, durable=False), scratch, int(sys.argv[1]))
    assert isinstance(done, Written), done
    print(len(done.files), done.counts.written, peak())
"""


def test_six_hundred_types_and_three_days_in_one_range() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "256000000"], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    files, rows, most = map(int, done.stdout.split())
    print(f"{files} files, {rows} rows, {most / 1e6:.0f} MB at the most")
    assert (files, rows) == (1800, 1_000_000)
    assert most < 1_500_000_000

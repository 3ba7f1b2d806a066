"""The Delta engine in processes of its own: two drivers that race, and a lake on S3."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

from catchment.bucket.open import open_bucket
from catchment.config.storage import Storage
from catchment.tables.history import history
from catchment.testing.s3 import S3Server
from tests.spark.batches import ORDERS
from tests.spark.programs import run

BATCHES = 8

# Two of these apply the same batches in the same order, each as if it were alone.
RACE = f"""
    import json, pathlib, sys, time
    from catchment.errors import CatchmentError
    from catchment.spark.session import session
    from tests.spark.batches import Lake, lines
    from catchment.tables.work import BatchFailed

    folder, me = pathlib.Path(sys.argv[1]), sys.argv[2]
    lake = Lake.at(session("local[1]"), folder)
    lake.spark.range(1).count()
    jobs = [lake.job(f"{{at:02}}", {{"a.json": lines({{"id": at}})}}) for at in range({BATCHES})]
    (folder / f"ready-{{me}}").touch()
    while len(list(folder.glob("ready-*"))) < 2:
        time.sleep(0.005)
    for job in jobs:
        while True:
            try:
                done = lake.engine.apply(job)
                break
            except BatchFailed:
                raise
            except CatchmentError as error:  # the table was made by the other one meanwhile
                time.sleep(0.05)
        print(json.dumps([job.batch.path, done.version, done.already]), flush=True)
    lake.spark.stop()
"""


def test_two_drivers_that_race_for_the_same_batches_make_one_commit_of_each(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(RACE), str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    drivers = [subprocess.Popen([*command, name], text=True, **pipes) for name in ("one", "two")]  # type: ignore[call-overload]
    told = []
    for driver in drivers:
        out, said = driver.communicate(timeout=300)
        assert driver.returncode == 0, said
        told.append([json.loads(line) for line in out.splitlines()])
    bucket = open_bucket(Storage(id="main", path=tmp_path / "lake"))
    commits = list(history(bucket, ORDERS))
    assert Counter(one.note.batch for one in commits if one.note) == {f"{at:02}": 1 for at in range(BATCHES)}
    assert len(commits) == BATCHES
    first, second = ({path: version for path, version, _ in one} for one in told)
    assert first == second  # both say the same of every batch
    assert Counter(already for one in told for _, _, already in one) == {True: BATCHES, False: BATCHES}


ON_S3 = """
    import json, sys
    from catchment.config.storage import Storage
    from catchment.spark.session import session
    from catchment.spark.settings import S3Access
    from tests.spark.batches import Lake, lines, query, load
    from catchment.tables.settings import Disposition
    from catchment.tables.work import BatchFailed

    storage = Storage.model_validate(json.loads(sys.stdin.read()))
    lake = Lake.of(session("local[2]", buckets=S3Access.of([storage])), storage)
    print(lake.apply("day=1", {"a.json": lines({"id": 1, "v": "a"})}, load(by=("day",))).version)
    replacing = load(Disposition.PARTITION, by=("day",), partition={"day": "1"})
    print(lake.apply("day=1", {"a.json": lines({"id": 1, "v": "b"}, {"id": 2, "v": "c"})}, replacing).version)
    merge = '''MERGE INTO {dest_dataset}.{dest_table} t USING batch b ON t.id = b.id
        WHEN MATCHED THEN UPDATE SET v = t.v || b.v'''
    job = lake.job("2", {"a.json": lines({"id": 2, "v": "!"})}, query(merge))
    print(lake.engine.apply(job).version, lake.engine.apply(job).already, lake.engine.applied(job.batch))
    changed = lake.job("3", {"a.json": lines({"id": 3})})
    lake.bucket.put(changed.files[0].key, b'{"id": 4}')
    try:
        lake.engine.apply(changed)
    except BatchFailed as error:
        print(error.message.endswith("was changed or removed since the batch was taken up"))
    print(lake.engine.fence(changed.batch), lake.engine.applied(changed.batch))
    print(lake.rows("id", "v", "day"))
    lake.spark.stop()
"""


def test_a_lake_on_s3(s3: S3Server) -> None:
    storage = {
        "id": "main",
        "bucket": s3.fresh_bucket(),
        "prefix": "prod",
        "endpoint_url": s3.endpoint,
        "region_name": s3.region,
        "aws_access_key_id": s3.access_key,
        "aws_secret_access_key": s3.secret_key,
    }
    done = run(ON_S3, input=json.dumps(storage))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["0", "1", "2 True 2", "True", "3 None", "[(1, 'b', '1'), (2, 'c!', '1')]"]

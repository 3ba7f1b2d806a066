"""Batches applied to real Delta tables: in order, by several processes, some of which are killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from catchment.bucket.contract import Bucket
from catchment.bucket.open import open_bucket
from catchment.config.load import load_text
from catchment.lake import Lake
from catchment.lake.tables import Tables
from catchment.tables.names import Table
from catchment.testing.dying import Died
from catchment.testing.kafka import KafkaBroker
from catchment.testing.s3 import s3_server
from tests.spark import exports, programs

TABLE = Table("sales", "orders")
STEPS = ("point", "lock", "apply", "record", "remove", "free")
MERGE = """
CREATE TEMPORARY VIEW news AS SELECT CAST(id AS BIGINT) AS id, CAST(plus AS BIGINT) AS plus FROM batch;
MERGE INTO {dest_dataset}.{dest_table} AS t USING news AS n ON t.id = n.id
WHEN MATCHED THEN UPDATE SET t.total = t.total * 2 + n.plus, t.last = n.plus
WHEN NOT MATCHED THEN INSERT (id, total, last) VALUES (n.id, n.plus, n.plus)
"""


def config(storage: dict[str, Any], workspace: Path, **tables: Any) -> str:
    return yaml.safe_dump(
        {
            "object_storage": [{"id": "main", **storage}],
            "workspace": str(workspace),
            "tables": {"order_per_table": True, **tables},
        },
        sort_keys=False,
    )


class Drop:
    """Batches of one table, dropped into the bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket

    def configure(self, name: str, body: object, below: str = "") -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        self.bucket.put(f"{TABLE.prefix}{below}_config/{name}", text.encode())

    def land(self, path: str, *rows: str) -> None:
        self.bucket.put(f"{TABLE.prefix}{path}/part.csv", "\n".join(("id,plus", *rows)).encode())
        self.bucket.put(f"{TABLE.prefix}{path}/_SUCCESS", b"")


def totals(tables: Tables) -> dict[int, tuple[int, int]]:
    return {row.id: (row.total, row.last) for row in tables.read(str(TABLE)).collect()}


@contextmanager
def opened(text: str, spark: SparkSession) -> Iterator[Tables]:
    with Lake(load_text(text), spark=spark) as lake:
        yield lake.tables


def prepared(text: str) -> Drop:
    """A table that batches are merged into: what a row becomes depends on the order."""
    bucket = open_bucket(load_text(text).state_storage)
    drop = Drop(bucket)
    drop.configure("external.json", {"format": "csv", "options": {"header": True}})
    drop.configure("merge.sql", MERGE)
    drop.configure("load.json", {"format": "csv", "options": {"header": True}, "schema": SCHEMA}, "first/")
    bucket.put(f"{TABLE.prefix}first/part.csv", b"id,total,last\n0,0,0")
    bucket.put(f"{TABLE.prefix}first/_SUCCESS", b"")
    return drop


SCHEMA = "id BIGINT, total BIGINT, last BIGINT"


def expected(batches: list[list[str]]) -> dict[int, tuple[int, int]]:
    found = {0: (0, 0)}
    for rows in batches:
        for row in rows:
            id, plus = (int(one) for one in row.split(","))
            found[id] = (found[id][0] * 2 + plus, plus) if id in found else (plus, plus)
    return found


def shuffled(number: int) -> list[tuple[str, list[str]]]:
    chance = random.Random(number)
    return [
        (f"incremental/{n:04d}", [f"{n % 7},{n + 1}", f"{7 + n % 3},{n}"]) for n in chance.sample(range(number), number)
    ]


def process(file: Path, *arguments: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return programs.process("tests.spark.tables_program", str(file), *arguments)


def test_batches_that_depend_on_each_other_are_merged_in_order(spark: SparkSession, tmp_path: Path) -> None:
    """A, B, C, then D after the exit."""
    text = config({"path": str(tmp_path / "lake")}, tmp_path / "ws")
    drop = prepared(text)
    drop.land("incremental/b", "1,20", "2,5")
    drop.land("incremental/a", "1,10")
    drop.land("incremental/c", "1,30")
    with opened(text, spark) as tables:
        done = tables.apply(once=True, beat=0.5)
        assert not done.stopped
        assert [one.batch and one.batch.path for one in done.applied] == ["first", *(f"incremental/{n}" for n in "abc")]
        assert totals(tables) == {0: (0, 0), 1: ((10 * 2 + 20) * 2 + 30, 30), 2: (5, 5)}
        drop.land("incremental/d", "2,1")
        assert len(tables.apply(once=True, beat=0.5).applied) == 1
        assert totals(tables)[2] == (11, 1)
        assert not tables.apply(once=True, beat=0.5).applied
        status = tables.status()
        assert status.well
        assert (status.tables[0].applied, status.tables[0].backlog) == (5, 0)
        made = [one.note.batch for one in tables.history(str(TABLE)) if one.note]
        assert made == [*(f"incremental/{n}" for n in "dcba"), "first"]


def test_on_s3_it_is_the_same(tmp_path: Path) -> None:
    """With a Spark of its own, which knows S3; killed once."""
    with s3_server() as s3:
        text = config({"bucket": s3.fresh_bucket(), "prefix": "prod", **s3.connection}, tmp_path / "ws")
        file = tmp_path / "catchment.yaml"
        file.write_text(text)
        drop = prepared(text)
        batches = shuffled(6)
        for path, rows in batches:
            drop.land(path, *rows)
        with process(file, "apply", "3") as dying:
            out, err = dying.communicate(timeout=240)
            assert dying.returncode == -signal.SIGKILL, (out, err)
        with process(file, "read", str(TABLE)) as running:
            out, err = running.communicate(timeout=240)
            assert running.returncode == 0, (out, err)
        found = {row["id"]: (row["total"], row["last"]) for row in json.loads(out.splitlines()[-1])}
        assert found == expected([rows for _, rows in sorted(batches)])
        drop.bucket.close()


def test_a_bad_statement_stops_the_line_and_is_mended(spark: SparkSession, tmp_path: Path) -> None:
    text = config({"path": str(tmp_path / "lake")}, tmp_path / "ws")
    drop = prepared(text)
    drop.configure("merge.sql", MERGE.replace("n.plus)", "n.nonsense)"))
    drop.land("incremental/a", "1,10")
    drop.land("incremental/b", "1,20")
    with opened(text, spark) as tables:
        [why] = tables.apply(once=True, beat=0.5).stopped.values()
        assert "merge.sql" in why and "correct its name" in why and "catchment tables retry" in why
        assert not tables.status().well
        drop.configure("merge.sql", MERGE)
        tables.retry(str(TABLE))
        assert not tables.apply(once=True, beat=0.5).stopped
        assert totals(tables)[1] == (40, 20)


def test_a_batch_that_is_skipped_stays_out(spark: SparkSession, tmp_path: Path) -> None:
    text = config({"path": str(tmp_path / "lake")}, tmp_path / "ws")
    drop = prepared(text)
    drop.land("incremental/a", "not a number,10")
    drop.land("incremental/b", "1,20")
    with opened(text, spark) as tables:
        assert tables.apply(once=True, beat=0.5).stopped
        assert tables.skip(str(TABLE)).batch == "incremental/a"
        assert not tables.apply(once=True, beat=0.5).stopped
        assert totals(tables) == {0: (0, 0), 1: (20, 20)}


def test_dying_after_each_step_ends_in_the_same_table(spark: SparkSession, tmp_path: Path) -> None:
    """Each run is another owner, and dies at another step: after the pointer, the lock, the commit, …"""
    text = config({"path": str(tmp_path / "lake")}, tmp_path / "ws")
    drop = prepared(text)
    batches = shuffled(30)
    for path, rows in batches:
        drop.land(path, *rows)
    for number, step in enumerate(STEPS):
        with opened(text, spark) as tables, pytest.raises(Died):
            tables.apply(once=True, beat=0.5, on_step=dying(step, 2 + number % 3))
    with opened(text, spark) as tables:
        assert not tables.apply(once=True, beat=0.5).stopped
        assert totals(tables) == expected([rows for _, rows in sorted(batches)])
        made = [one.note.batch for one in tables.history(str(TABLE)) if one.note]
        assert sorted(made) == sorted({"first", *(path for path, _ in batches)})


def dying(step: str, nth: int) -> Callable[[str], None]:
    seen = 0

    def on_step(name: str) -> None:
        nonlocal seen
        seen += name == step
        if name == step and seen == nth:
            raise Died

    return on_step


@pytest.mark.soak
def test_three_replicas_and_three_hundred_batches_with_kills(spark: SparkSession, tmp_path: Path) -> None:
    text = config({"path": str(tmp_path / "lake")}, tmp_path / "ws", late="apply")
    file = tmp_path / "catchment.yaml"
    file.write_text(text)
    drop = prepared(text)
    batches = shuffled(300)
    for path, rows in batches:
        drop.land(path, *rows)
    chance = random.Random(7)
    kills = 0
    for _ in range(6):
        with (
            process(file, chance.choice(STEPS), str(chance.randrange(3, 25))) as one,
            process(file, chance.choice(STEPS), str(chance.randrange(3, 25))) as two,
            process(file, chance.choice(STEPS), str(chance.randrange(3, 25))) as three,
        ):
            for running in (one, two, three):
                running.communicate(timeout=600)
                kills += running.returncode == -signal.SIGKILL
    with opened(text, spark) as tables:
        assert not tables.apply(once=True, beat=0.5).stopped
        assert totals(tables) == expected([rows for _, rows in sorted(batches)])
        made = [one.note.batch for one in tables.history(str(TABLE)) if one.note]
        assert sorted(made) == sorted({"first", *(path for path, _ in batches)})
    print(f"{kills} kills over 300 batches: 0 lost, 0 twice, in order")
    assert kills >= 6


def test_a_closed_day_of_a_topic_is_a_batch_and_is_replaced_when_it_is_published_again(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    """And a backfill of the topic reaches the table."""
    topic = kafka.fresh_topic()
    kafka.produce(topic, [exports.event(n, "order", exports.DAY + timedelta(hours=n)) for n in range(30)], 0)
    closing = {**exports.EVENTS, "finalize": {"lateness": "2h"}, "heartbeat": "1s"}
    source = f"topics/events/{topic}/type=order"
    storage = {"path": str(tmp_path / "lake")}

    def lake(export: dict[str, Any]) -> str:
        found = yaml.safe_load(exports.text(kafka.bootstrap, topic, [export, exports.BACKUP], storage, tmp_path / "ws"))
        found["tables"] = {"items": [{"table": "sales/orders", "source": source, "order": True, "late": "apply"}]}
        return yaml.safe_dump(found, sort_keys=False)

    text = lake(closing)
    at = datetime(2026, 11, 11, 3, tzinfo=UTC)
    exports.caught_up(text, spark, exports.Later(at - datetime.now(UTC)))
    with opened(text, spark) as tables:
        done = tables.apply(once=True, beat=0.5)
        assert not done.stopped
        assert [one.batch and one.batch.path for one in done.applied] == ["day=2026-11-10"]
        assert sorted(row.n for row in tables.read(str(TABLE)).collect()) == list(range(24))
    kafka.produce(topic, [exports.event(100, "order", exports.DAY)], 0)
    exports.caught_up(text, spark, exports.Later(at + timedelta(days=1) - datetime.now(UTC)))
    with opened(text, spark) as tables:
        assert len(tables.apply(once=True, beat=0.5).applied) == 2
        rows = tables.read(str(TABLE))
        assert sorted(row.n for row in rows.collect()) == [*range(30), 100]
        assert rows.where("day = '2026-11-10'").count() == 25
    changed = lake({**closing, "generation": 2, "filter": "n <> 100"})
    with Lake(load_text(changed), spark=spark) as opened_lake:
        assert not opened_lake.topics.backfill("events", topic, replace=True).problems
        assert not opened_lake.tables.apply(once=True, beat=0.5).stopped
        assert sorted(row.n for row in opened_lake.tables.read(str(TABLE)).collect()) == list(range(30))

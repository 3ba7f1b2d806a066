"""Spark's Kafka client takes the settings that were written for the other one."""

from __future__ import annotations

import json
from pathlib import Path

from catchment.testing.kafka import kafka_broker
from catchment.topics.security import for_java
from tests.spark.programs import run

PROGRAM = """
    import json, sys
    from catchment.spark.session import session

    spark = session("local[1]")
    for options in json.load(sys.stdin):
        rows = spark.read.format("kafka").options(**options).load().collect()
        print([bytes(row.value).decode() for row in rows])
    spark.stop()
"""


def test_spark_reads_through_every_guarded_listener() -> None:
    with kafka_broker(security=True) as broker:
        topic = broker.fresh_topic()
        broker.produce(topic, [b"hello"], partition=0)
        asked = []
        for door in (broker.sasl_ssl, broker.ssl, broker.plain, broker.scram):
            held = for_java(door.settings, lambda path: Path(path).read_text())
            assert str(broker.home) not in str(held)  # the text of the files, so executors need none
            reader = {"kafka.bootstrap.servers": door.bootstrap, "subscribe": topic, "endingOffsets": "latest"}
            asked.append(reader | {f"kafka.{name}": value for name, value in held.items()})
        done = run(PROGRAM, input=json.dumps(asked))
    assert done.stdout.splitlines() == ["['hello']"] * 4, done.stderr[-4000:]

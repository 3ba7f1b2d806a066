"""Spark's failures in one line."""

from __future__ import annotations

import pytest

from catchment.errors import BrokerError, CatchmentError
from catchment.spark.failures import Cause
from catchment.topics.write.explain import explained
from tests.unit.topics.write.ranges import BACKUP, work

RANGE = "backup/clicks Kafka partition 3 [0, 9]"

LOST: list[tuple[str, str]] = [
    (
        "org.apache.spark.sql.kafka010.KafkaIllegalStateException",
        "Some data may have been lost because\n they are gone",
    ),
    ("org.apache.kafka.clients.consumer.OffsetOutOfRangeException", "Offset 0 is out of range for partition clicks-3"),
]
ON_A_CLUSTER: list[tuple[str, str]] = [
    (
        "org.apache.spark.SparkException",
        "Job aborted due to stage failure: Task 0 in stage 2.0 failed 4 times, most recent failure: Lost task 0.3 in"
        " stage 2.0 (TID 9) (10.0.0.7 executor 1): org.apache.kafka.common.errors.TimeoutException: no answer\n"
        "\tat org.apache.kafka.clients.Foo.bar(Foo.java:12)\n\nDriver stacktrace:",
    )
]
IN_PYTHON: list[tuple[str, str]] = [
    (
        "org.apache.spark.api.python.PythonException",
        'Traceback (most recent call last):\n  File "range.py", line 7, in write\n    raise OSError\n'
        "OSError: [Errno 28] No space left on device\n\n\tat org.apache.spark.api.python.Foo(Foo.scala:5)",
    )
]


@pytest.mark.parametrize(
    ("chain", "kind", "says"),
    [
        (LOST, BrokerError, f"Kafka does not have all messages of {RANGE}: OffsetOutOfRangeException: Offset 0 is out"),
        (ON_A_CLUSTER, BrokerError, f"Kafka did not give {RANGE}: TimeoutException: no answer"),
        (IN_PYTHON, CatchmentError, f"{RANGE} could not be written: OSError: [Errno 28] No space left on device"),
        ([("java.lang.OutOfMemoryError", "Java heap space")], CatchmentError, "OutOfMemoryError: Java heap space"),
        ([("a.b.C", "outer"), ("a.b.Empty", "")], CatchmentError, "C: outer"),
        ([("a.b.Empty", "")], CatchmentError, "could not be written: Empty"),
    ],
)
def test_the_cause_in_one_line(chain: list[tuple[str, str]], kind: type[CatchmentError], says: str) -> None:
    error = explained([Cause(*one) for one in chain], [work(BACKUP, 9)], {})
    assert type(error) is kind
    assert says in error.message
    assert "\n" not in str(error) and "\tat" not in str(error) and "stacktrace" not in str(error)


def test_secrets_are_hidden() -> None:
    settings = {
        "sasl.jaas.config": 'org.apache.kafka.Plain required username="ann" password="hunter2";',
        "ssl.key.password": "s3same",
        "fetch.max.bytes": "1000",
    }
    chain = [("org.apache.kafka.common.KafkaException", f"ann: hunter2, s3same, 1000, {settings['sasl.jaas.config']}")]
    error = explained([Cause(*one) for one in chain], [work(BACKUP, 9)], settings)
    assert "hunter2" not in str(error) and "s3same" not in str(error) and "1000" in str(error)


def test_many_ranges_are_not_all_named() -> None:
    error = explained([Cause("E", "x")], [work(BACKUP, last) for last in range(5, 15)], {})
    assert "and 7 more" in error.message

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Counting
from catchment.errors import BucketError, ExportStopped
from catchment.testing.dying import DyingBucket, lost_reply
from catchment.testing.topics import FakeKafka
from catchment.topics import identity
from catchment.topics.definition import definition
from catchment.topics.identity import Identity
from catchment.topics.names import Place, Source
from tests.unit.topics.lakes import export, exporter, memory, messages, run, topic
from tests.unit.topics.lakes import offsets as exported

PLACE = Place("g", "events")


@pytest.fixture
def bucket() -> MemoryBucket:
    return memory()


def never() -> Mapping[int, int]:
    raise AssertionError("asked where it begins, though it has begun")


def register(bucket: Any, topic_id: str = "id-1", starts: Any = never, **values: Any) -> Identity:
    return identity.register(bucket, PLACE, topic_id, export(**values), starts)


def test_an_export_begins_once_and_everybody_joins_it(bucket: MemoryBucket) -> None:
    begun = register(bucket, starts=lambda: {0: 5, 1: 0})
    assert begun == Identity("id-1", 0, {0: 5, 1: 0}, {1: definition(export())})
    counted = Counting(bucket)
    assert register(counted) == begun == identity.read(bucket, PLACE)
    assert dict(counted.counts.requests) == {"read": 1}


def test_of_two_who_begin_at_once_the_first_says_where(bucket: MemoryBucket) -> None:
    """`latest` asked twice has two answers; only one of them may count."""

    def slow() -> Mapping[int, int]:
        register(bucket, starts=lambda: {0: 5})
        return {0: 9}

    assert register(bucket, starts=slow).starts == {0: 5}


def test_a_lost_reply_does_not_begin_it_twice(bucket: MemoryBucket) -> None:
    class Again(DyingBucket):
        def put(self, *values: Any, **more: Any) -> Any:
            try:
                return super().put(*values, **more)
            except Exception:
                return super().put(*values, **more)

    made = register(Again(bucket, at=2, when="after", error=lost_reply()), starts=lambda: {0: 5})
    assert made == identity.read(bucket, PLACE)


def test_kafka_partitions_that_came_later_begin_at_0(bucket: MemoryBucket) -> None:
    begun = register(bucket, starts=lambda: {0: 500})
    assert (begun.start(0), begun.start(1), begun.source(1)) == (500, 0, Source(1))


def test_latest_skips_nothing_of_a_kafka_partition_that_was_added_while_nobody_looked(bucket: MemoryBucket) -> None:
    kafka = FakeKafka()
    kafka.create("events")
    kafka.append("events", 0, *messages(3))
    run(exporter(bucket, kafka, config=topic(start="latest")))
    kafka.add_partition("events")
    kafka.append("events", 1, *messages(2))
    run(exporter(bucket, kafka, owner="started later", config=topic(start="latest")))
    assert exported(bucket) == [("1", 0), ("1", 1)]


@pytest.mark.parametrize(
    "changes", [{"decode": "json"}, {"split": {"k": {"key": True}}}, {"format": {"compression": "gzip"}}]
)
def test_one_generation_is_one_definition(bucket: MemoryBucket, changes: dict[str, Any]) -> None:
    register(bucket, starts=dict, generation=3)
    [name] = changes
    with pytest.raises(ExportStopped, match=rf"generation 3 .* \({name} changed\); set generation: 4, or put back"):
        register(bucket, generation=3, **changes)
    assert list(register(bucket, generation=4, **changes).generations) == [3, 4]


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": {"max_age": "1h"}},
        {"heartbeat": "1h"},
        {"dead_letters": {"stop_above": "5%"}},
        {"alerts": {"delay": "1h"}},
        {"format": "parquet"},
    ],
)
def test_what_does_not_change_rows_needs_no_generation(bucket: MemoryBucket, changes: dict[str, Any]) -> None:
    begun = register(bucket, starts=dict)
    assert register(bucket, **changes) == begun


def test_earlier_generations_stay_in_use_and_unused_numbers_below_are_refused(bucket: MemoryBucket) -> None:
    register(bucket, starts=dict, generation=2)
    register(bucket, generation=5, decode="json")
    assert register(bucket, generation=2).generations.keys() == {2, 5}  # the old replica, during an upgrade
    with pytest.raises(
        ExportStopped, match="at generation 5, and the config says 3, which was never used; set generation: 6"
    ):
        register(bucket, generation=3)


def test_the_decoding_code_is_part_of_a_definition(bucket: MemoryBucket) -> None:
    register(bucket, starts=dict)
    body = json.loads(bucket.get(PLACE.export()))
    body["generations"]["1"]["code"] = [0, 0]
    bucket.put(PLACE.export(), json.dumps(body).encode())
    with pytest.raises(ExportStopped, match="the decoding code changed"):
        register(bucket)


def test_a_topic_with_another_id_is_refused_until_it_is_accepted(bucket: MemoryBucket) -> None:
    register(bucket, starts=lambda: {0: 7})
    with pytest.raises(ExportStopped, match=r"its id was id-1 and is id-2.*skip --group g --topic events --recreated"):
        register(bucket, "id-2")
    now = identity.accept_recreated(bucket, PLACE, "id-2", {0: 2})
    assert (now.life, now.starts, now.past, now.source(0)) == (1, {0: 2}, ("id-1",), Source(0, 1))
    assert register(bucket, "id-2") == now == identity.accept_recreated(bucket, PLACE, "id-2", {0: 99})
    with pytest.raises(ExportStopped, match="deleted and made again"):
        register(bucket, "id-1")  # a replica that still asks an old cluster
    assert identity.accept_recreated(bucket, PLACE, "id-3", {}).past == ("id-1", "id-2")


def test_what_was_never_exported_cannot_be_accepted_as_made_again(bucket: MemoryBucket) -> None:
    with pytest.raises(ExportStopped, match="never exported"):
        identity.accept_recreated(bucket, PLACE, "id-2", {})
    assert identity.read(bucket, PLACE) is None


@pytest.mark.parametrize(
    "body", [b"[]", b"x", b"{}", b'{"topic_id": "a", "life": 0, "starts": [1], "generations": {}}']
)
def test_what_cannot_be_understood_names_the_object_and_is_not_begun_anew(bucket: MemoryBucket, body: bytes) -> None:
    bucket.put(PLACE.export(), body)
    with pytest.raises(BucketError, match=r"topics/g/events/_export\.json"):
        register(bucket)
    assert bucket.get(PLACE.export()) == body


def test_one_topic_whose_object_is_damaged_does_not_stop_the_others(bucket: MemoryBucket) -> None:
    kafka = FakeKafka()
    for name in ("events", "evidence"):
        kafka.create(name)
        kafka.append(name, 0, *messages(2))
    bucket.put(PLACE.export(), b"{}")
    [*_, last] = run(exporter(bucket, kafka, config=topic(match="ev.*")))
    assert "topics/g/events/_export.json cannot be understood" in last.problems[0]
    assert len(exported(bucket, Place("g", "evidence"))) == 2

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count

import pytest

from catchment.bucket.contract import Bucket
from catchment.bucket.memory import MemoryBucket
from catchment.bucket.swap import Document
from catchment.bucket.wrap import Backoff, Counting, Retrying
from catchment.errors import BucketError, ExportStopped
from catchment.testing.clock import FakeClock
from catchment.testing.interleave import Interleaver
from catchment.topics.decode.ddl import parse
from catchment.topics.decode.schemas import SchemaMoved, Schemas
from tests.unit.topics.decode.messages import PLACE, TYPE, Lake, ddl

KEY = PLACE.schema(TYPE)


def schemas(bucket: Bucket, declared: str = "", generation: int = 1) -> Schemas:
    return Schemas(bucket, PLACE, {"*": declared} if declared else {}, generation)


def recorded(bucket: Bucket, generation: int = 1) -> object:
    return json.loads(bucket.get(KEY))["generations"].get(str(generation))


def test_one_read_per_type_and_no_write_before_settling() -> None:
    bucket = Counting(MemoryBucket())
    ours = schemas(bucket)
    ours.grow(TYPE, parse("a INT"))
    ours.grow(TYPE, parse("b INT"))
    assert ddl(ours.of(TYPE)) == {"a": "INT", "b": "INT"}
    assert bucket.counts.requests == {"read": 1}
    ours.settle([TYPE])
    ours.settle([TYPE])
    assert bucket.counts.requests == {"read": 1, "put": 1}


def test_what_an_earlier_task_knew_is_not_read_again_and_may_be_old() -> None:
    lake = MemoryBucket()
    known: dict[str, Document] = {}
    first = Schemas(lake, PLACE, {}, 1, known=known)
    first.grow(TYPE, parse("a INT"))
    first.settle([TYPE])
    other = schemas(lake)
    other.grow(TYPE, parse("b INT"))
    other.settle([TYPE])
    bucket = Counting(lake)
    second = Schemas(bucket, PLACE, {}, 1, known=known)
    assert ddl(second.of(TYPE)) == {"a": "INT"}
    assert bucket.counts.total == 0
    second.grow(TYPE, parse("c INT"))
    second.settle([TYPE])
    assert ddl(second.of(TYPE)) == {"a": "INT", "b": "INT", "c": "INT"}
    assert recorded(lake) == second.of(TYPE).plain()


def test_nothing_new_is_no_request() -> None:
    lake = MemoryBucket()
    first = schemas(lake)
    first.grow(TYPE, parse("a INT"))
    first.settle([TYPE])
    bucket = Counting(lake)
    second = schemas(bucket)
    second.of(TYPE)
    second.settle([TYPE])
    assert bucket.counts.requests == {"read": 1}


def test_two_that_add_fields_end_with_both() -> None:
    lake = MemoryBucket()
    one, other = schemas(lake), schemas(lake)
    one.grow(TYPE, parse("a INT"))
    other.grow(TYPE, parse("b INT"))
    one.settle([TYPE])
    other.settle([TYPE])
    assert ddl(other.of(TYPE)) == {"a": "INT", "b": "INT"}
    assert recorded(lake) == other.of(TYPE).plain()


def test_another_type_recorded_meanwhile_is_a_move_and_the_next_attempt_has_it() -> None:
    lake = MemoryBucket()
    one, other = schemas(lake), schemas(lake)
    one.grow(TYPE, parse("a INT"))
    other.grow(TYPE, parse("a STRING"))
    one.settle([TYPE])
    with pytest.raises(SchemaMoved, match="a is INT here and STRING there"):
        other.settle([TYPE])
    assert ddl(other.of(TYPE)) == {"a": "INT"}
    other.settle([TYPE])


def test_too_many_fields_together_are_a_move() -> None:
    lake = MemoryBucket()
    one, other = schemas(lake), schemas(lake)
    one.grow(TYPE, parse(", ".join(f"a{at} INT" for at in range(1500))))
    other.grow(TYPE, parse(", ".join(f"b{at} INT" for at in range(1500))))
    one.settle([TYPE])
    with pytest.raises(SchemaMoved, match="2000"):
        other.settle([TYPE])
    assert other.of(TYPE).count() == 1500


def test_declared_fields_come_first_and_are_recorded() -> None:
    lake = MemoryBucket()
    declared = Schemas(lake, PLACE, {"*": "at TIMESTAMP, id STRING", TYPE: "id BIGINT"}, 1)
    assert ddl(declared.of(TYPE)) == {"id": "BIGINT", "at": "TIMESTAMP"}
    assert ddl(declared.of("other")) == {"at": "TIMESTAMP", "id": "STRING"}
    declared.settle([TYPE])
    assert recorded(lake) == declared.of(TYPE).plain()


def test_a_declared_field_that_contradicts_the_recorded_one_stops_the_export() -> None:
    lake = MemoryBucket()
    schemas(lake, "a INT").settle([TYPE])
    with pytest.raises(ExportStopped) as caught:
        schemas(lake, "a STRING").of(TYPE)
    assert "a is declared STRING and recorded INT" in caught.value.message
    assert "generation to 2" in caught.value.hint


def test_a_new_generation_takes_over_what_does_not_clash_and_leaves_the_old_one_alone() -> None:
    lake = MemoryBucket()
    old = schemas(lake, "a INT, b INT")
    old.settle([TYPE])
    new = schemas(lake, "a STRING", generation=2)
    assert ddl(new.of(TYPE)) == {"a": "STRING", "b": "INT"}
    new.settle([TYPE])
    old.grow(TYPE, parse("c INT"))
    old.settle([TYPE])
    assert ddl(schemas(lake, "a INT").of(TYPE)) == {"a": "INT", "b": "INT", "c": "INT"}
    assert ddl(schemas(lake, "a STRING", generation=2).of(TYPE)) == {"a": "STRING", "b": "INT"}


def test_what_a_later_version_added_to_the_document_stays() -> None:
    lake = MemoryBucket()
    lake.put(KEY, json.dumps({"later": 1, "generations": {"7": ["unknown"], "x": 2}}).encode())
    ours = schemas(lake)
    ours.grow(TYPE, parse("a INT"))
    ours.settle([TYPE])
    found = json.loads(lake.get(KEY))
    assert found["later"] == 1
    assert found["generations"]["7"] == ["unknown"]
    assert found["generations"]["x"] == 2


@pytest.mark.parametrize(
    "body", [{"generations": {"1": "?"}}, {"generations": []}, {"generations": {"1": [["a", "?"]]}}]
)
def test_a_document_that_cannot_be_read_is_named(body: object) -> None:
    lake = MemoryBucket()
    lake.put(KEY, json.dumps(body).encode())
    with pytest.raises(BucketError, match=r"_schemas/order\.json"):
        schemas(lake).of(TYPE)


def test_every_order_of_two_replicas_only_ever_grows_what_is_recorded() -> None:
    def replica(first: str, second: str) -> Callable[[Bucket], None]:
        def run(bucket: Bucket) -> None:
            numbers = count()
            retrying = Retrying(bucket, backoff=Backoff(attempts=2), clock=FakeClock(), chance=lambda: 0.0)
            ours = Schemas(retrying, PLACE, {}, 1, nonce=lambda: f"{bucket.name}-{next(numbers)}")
            for text in (first, second):
                ours.grow(TYPE, parse(text))
                ours.settle([TYPE])

        return run

    def grows(before: MemoryBucket, after: MemoryBucket) -> None:
        was = schemas(before).of(TYPE)
        now = schemas(after).of(TYPE)
        assert {one.name for one in was.fields} <= {one.name for one in now.fields}
        assert now.grown(was) == now

    def both(bucket: MemoryBucket) -> None:
        assert set(ddl(schemas(bucket).of(TYPE))) == {"a", "b", "c"}

    found = Interleaver(
        {"one": replica("a INT", "b INT"), "other": replica("a INT", "c INT")},
        relation=grows,
        final=both,
        crashes=1,
        lost=1,
    ).explore()
    assert found.complete


def test_a_lake_keeps_the_schema_between_tasks() -> None:
    lake = Lake()
    lake.decode({"a": 1})
    assert ddl(lake.decode({"b": "x"})[2]) == {"a": "BIGINT", "b": "STRING"}

from __future__ import annotations

import json
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from catchment.bucket.memory import MemoryBucket
from catchment.bucket.wrap import Counting
from catchment.config.tables import Tables
from catchment.tables.landing import Landing, data_files, listed_files, unpadded
from catchment.tables.names import Batch, Publication, Table
from catchment.tables.work import DataFile
from catchment.testing.clock import FakeClock

ORDERS = Table("sales", "orders")


def bucket() -> MemoryBucket:
    return MemoryBucket(clock=FakeClock(), versions=True)


def look(there: MemoryBucket, **config: object) -> dict[str, list[str]]:
    found = Landing(there, Tables.model_validate(config)).look()
    return {str(table): sorted(landed.closed) for table, landed in found.tables.items()}


def test_every_folder_with_a_success_is_a_batch_of_its_table() -> None:
    there = bucket()
    for key in ("tables/sales/orders/historical/2026/11/15/00/_SUCCESS", "tables/sales/orders/_SUCCESS"):
        there.put(key, b"")
    there.put("tables/sales/refunds/$2026-11-15/_SUCCESS", b"")
    there.put("tables/sales/orders/open/part.csv", b"1")
    there.put("tables/sales/orders/.hidden/_SUCCESS", b"")
    there.put("tables/sales/orders/_temporary/0/_SUCCESS", b"")
    assert look(there) == {"sales/orders": ["", "historical/2026/11/15/00"], "sales/refunds": ["$2026-11-15"]}


def test_a_success_that_closes_nothing_is_told() -> None:
    there = bucket()
    there.put("tables/sales/_SUCCESS", b"")
    there.put("tables/sa les/orders/a/_SUCCESS", b"")
    found = Landing(there, Tables()).look()
    assert len(found.problems) == 2
    assert all("names no table" in problem for problem in found.problems)


def test_a_naming_of_ones_own() -> None:
    there = bucket()
    there.put("tables/2026-11-15/sales.orders/_SUCCESS", b"")
    there.put("tables/elsewhere/_SUCCESS", b"")
    naming = r"[0-9-]+/(?P<dataset>\w+)\.(?P<table>\w+)"
    found = Landing(there, Tables.model_validate({"naming": naming})).look()
    landed = found.tables[ORDERS]
    assert (landed.base, list(landed.closed)) == ("tables/", ["2026-11-15/sales.orders"])
    assert landed.success("2026-11-15/sales.orders") == "tables/2026-11-15/sales.orders/_SUCCESS"
    assert len(found.problems) == 1


def test_batches_from_elsewhere_in_the_bucket() -> None:
    there = bucket()
    there.put("topics/events/events/type=order/day=2026-11-15/_SUCCESS", b'{"files": []}')
    there.put("topics/events/events/type=order/_schemas/_SUCCESS", b"")
    there.put("tables/sales/orders/a/_SUCCESS", b"")
    there.put("tables/sales/orders/_backlog/day=2026-11-14/_SUCCESS", b"")
    items = [{"table": "sales/orders", "source": "topics/events/events/type=order"}]
    found = Landing(there, Tables.model_validate({"items": items})).look()
    landed = found.tables[ORDERS]
    assert landed.base == "topics/events/events/type=order/"
    assert list(landed.closed) == ["day=2026-11-15"]
    assert landed.pointers == ["day=2026-11-14"]
    assert "takes its batches from elsewhere" in found.problems[0]


def test_a_publication_is_asked_for_once_unless_it_is_recent() -> None:
    clock = FakeClock()
    counting = Counting(MemoryBucket(clock=clock, versions=True))
    counting.put("tables/sales/orders/a/_SUCCESS", b"")
    landing = Landing(counting, Tables())
    entry = landing.look().tables[ORDERS].closed["a"]

    def asked(minutes: float) -> tuple[Publication | None, int]:
        before = counting.counts.requests["head"]
        found = landing.publication(entry, clock.now() + timedelta(minutes=minutes))
        return found, counting.counts.requests["head"] - before

    first, heads = asked(0)
    assert heads == 1
    assert asked(0.5) == (first, 1)  # another may have come in the same second
    assert asked(2) == (first, 0)
    counting.put("tables/sales/orders/a/_SUCCESS", b"")
    entry = landing.look().tables[ORDERS].closed["a"]
    again, _ = asked(0.5)
    assert again != first


def test_putting_it_again_is_another_publication_with_a_record_of_its_own() -> None:
    there = bucket()
    stats = [there.put("tables/sales/orders/a/_SUCCESS", b"") for _ in range(2)]
    one, two = (Batch(ORDERS, "a", Publication.of(stat.version, stat.modified)) for stat in stats)
    assert one.claim != two.claim
    assert one.transaction != two.transaction
    assert one.claim.startswith("tables/sales/orders/a/_claimed__SUCCESS_created_at_2026-")


def test_the_files_of_a_batch() -> None:
    there = bucket()
    for name in (
        "b.csv",
        "a.csv",
        "sub/c.csv",
        "_d.csv",
        ".e.csv",
        "_temporary/f.csv",
        "inner/g.csv",
        "inner/_SUCCESS",
    ):
        there.put(f"tables/sales/orders/x/{name}", b"1")
    there.put("tables/sales/orders/x/empty.csv", b"")
    there.put("tables/sales/orders/xy/h.csv", b"1")
    found = data_files(there, ORDERS.prefix, "x", ["x", "x/inner", "xy"])
    assert [one.key.removeprefix("tables/sales/orders/x/") for one in found] == ["a.csv", "b.csv", "sub/c.csv"]


def test_the_files_that_a_success_lists() -> None:
    files = [{"key": "b", "etag": "2", "size": 2, "rows": 9}, {"key": "a", "etag": "1", "size": 1}]
    body = json.dumps({"folder": "day=1", "files": files}).encode()
    assert listed_files(body) == (DataFile("a", "1", 1), DataFile("b", "2", 2))
    assert listed_files(b"") is None
    assert listed_files(b"{}") is None
    assert listed_files(b"done") is None
    assert listed_files(b'{"files": []}') == ()


def test_numbers_that_do_not_sort_as_text() -> None:
    assert list(unpadded(["2026/9", "2026/10", "2026/11"])) == [("2026/11", "2026/9")]
    assert list(unpadded(["2026/09", "2026/10"])) == []
    assert list(unpadded(["batch-9/x", "batch-10/x"])) == [("batch-10/x", "batch-9/x")]
    assert list(unpadded(["a/10", "b/9"])) == []


@given(st.lists(st.integers(0, 10**6), unique=True, max_size=30))
def test_padded_numbers_are_never_suspicious(numbers: list[int]) -> None:
    assert not list(unpadded(f"x/{number:07d}/y" for number in numbers))

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from catchment.bucket.wrap import Counting
from catchment.errors import UsageError
from catchment.tables import control
from catchment.tables import lock as locks
from catchment.tables.landing import publication
from catchment.tables.lock import State
from catchment.tables.names import Batch
from catchment.testing.dying import Died, DyingBucket
from tests.unit.tables.lines import ORDERED, TABLE, Line


def test_batches_are_applied_in_the_order_of_their_names_whatever_the_order_they_landed_in() -> None:
    line = Line()
    for path in ("historical/2026/11/15/01", "incremental/2026/11/15/02", "historical/2026/11/15/00"):
        line.land(path)
    done = line.apply()
    assert line.applied() == ["historical/2026/11/15/00", "historical/2026/11/15/01", "incremental/2026/11/15/02"]
    assert [one.batch and one.batch.path for one in done.applied] == line.applied()
    assert line.backlog() == []
    assert locks.read(line.bucket, TABLE).lock.state is State.FREE
    assert line.standing().last == "incremental/2026/11/15/02"


def test_what_comes_after_the_exit_is_applied_by_the_next_run() -> None:
    line = Line()
    for path in "abc":
        line.land(path)
    line.apply()
    line.land("d")
    assert [one.batch and one.batch.path for one in line.apply().applied] == ["d"]
    assert line.applied() == [*"abcd"]
    assert not line.apply().applied


def test_what_comes_while_another_is_applied_waits_for_its_turn() -> None:
    """Also a name smaller than the one that is running: it is late, and its pointer is not the one removed."""
    line = Line({**ORDERED, "late": "apply"})
    for path in ("b", "c"):
        line.land(path)
    landed: list[str] = []

    def land(step: str) -> None:
        if step == "apply" and not landed:
            landed.extend(["a", "d"])
            line.land("a")
            line.land("d")

    line.apply(on_step=land)
    assert line.applied() == ["b", "c", "a", "d"]
    assert line.backlog() == []


def test_a_publication_that_is_seen_twice_is_applied_once_and_one_that_is_repeated_again() -> None:
    line = Line()
    line.land("a")
    line.apply()
    line.apply("another")
    assert line.applied() == ["a"]
    line.land("a")
    line.apply()
    assert line.applied() == ["a", "a"]
    assert line.backlog() == []


def test_a_batch_that_is_published_again_while_it_runs_is_applied_after_it() -> None:
    line = Line()
    line.land("a")
    line.land("b")
    again: list[int] = []

    def publish(step: str) -> None:
        if step == "apply" and not again:
            again.append(1)
            line.land("a")

    line.apply(on_step=publish)
    assert line.applied() == ["a", "a", "b"]


# -- failures


def test_a_failure_stops_the_line_and_says_what_to_do() -> None:
    line = Line(fail=frozenset({"b"}))
    for path in "abc":
        line.land(path)
    done = line.apply()
    assert line.applied() == ["a"]
    assert line.backlog() == ["b", "c"]
    [why] = done.stopped.values()
    assert "sales/orders/b is bad" in why and "catchment tables retry sales/orders" in why
    assert line.apply("another").stopped
    assert line.applied() == ["a"]
    standing = line.standing()
    assert (standing.state, standing.batch, standing.well) == ("failed", "b", False)


def test_retry_tries_the_same_batch_again_with_its_files_as_they_are_now() -> None:
    line = Line(fail=frozenset({"a"}))
    line.land("a", "one.csv")
    line.apply()
    line.fail = frozenset()
    line.bucket.put(f"{TABLE.prefix}a/two.csv", b"mended")
    assert control.retry(line.bucket, TABLE, "now").path == "a"
    line.apply()
    assert line.engine.rows(TABLE) == [[f"{TABLE.prefix}a/one.csv", f"{TABLE.prefix}a/two.csv"]]


def test_skip_keeps_the_batch_out_and_goes_on() -> None:
    line = Line(fail=frozenset({"b"}))
    for path in "abc":
        line.land(path)
    line.apply()
    batch = control.failed(line.bucket, TABLE)
    assert batch is not None
    assert control.skip(line.bucket, line.engine, line.landed(), batch, "now") == 1
    line.apply()
    assert line.applied() == ["a", "(b)", "c"]
    assert line.backlog() == []
    line.fail = frozenset()
    line.apply()
    assert line.applied() == ["a", "(b)", "c"]


def test_what_is_in_the_table_cannot_be_skipped() -> None:
    line = Line()
    line.land("a")
    [done] = line.apply().applied
    assert done.batch is not None
    with pytest.raises(UsageError, match="is in the table already"):
        control.skip(line.bucket, line.engine, line.landed(), done.batch, "now")


def test_the_road_with_a_bucket_browser_alone() -> None:
    """Remove the lock, remove the pointer since the batch was applied by hand, post _BACKFILL."""
    line = Line(fail=frozenset({"b"}))
    for path in "abc":
        line.land(path)
    line.apply()
    line.bucket.delete(TABLE.lock)
    assert "the lock was removed by hand" in next(iter(line.apply().waiting.values()))
    line.bucket.delete(TABLE.pointer("b"))
    line.apply()
    assert line.applied() == ["a"]  # nothing goes on by itself
    line.bucket.put(TABLE.wake, b"")
    line.apply()
    assert line.applied() == ["a", "c"]
    line.apply()
    assert line.backlog() == []


def test_the_road_with_a_bucket_browser_for_a_batch_that_was_mended() -> None:
    line = Line(fail=frozenset({"b"}))
    for path in "abc":
        line.land(path)
    line.apply()
    line.fail = frozenset()
    line.bucket.delete(TABLE.lock)
    control.resume(line.bucket, TABLE)
    line.apply()
    assert line.applied() == [*"abc"]


def test_resume_does_not_pass_a_line_that_stands() -> None:
    line = Line(fail=frozenset({"a"}))
    line.land("a")
    line.apply()
    with pytest.raises(UsageError, match="stands at sales/orders/a"):
        control.resume(line.bucket, TABLE)


# -- gates


def test_nothing_is_applied_before_the_history_is_there() -> None:
    line = Line({**ORDERED, "start_backfill_filename": "_HISTORYDONE"})
    line.land("b")
    waiting = line.apply().waiting
    assert "_HISTORYDONE is not there" in waiting["sales/orders"]
    line.land("a")
    line.apply()
    assert line.applied() == [] and line.backlog() == ["a", "b"]
    line.bucket.put(f"{TABLE.prefix}_HISTORYDONE", b"")
    line.apply()
    assert line.applied() == ["a", "b"]


def test_with_validation_each_batch_waits_for_a_persons_word() -> None:
    line = Line({**ORDERED, "wait_for_validation": True})
    for path in "abc":
        line.land(path)
    assert "is to be validated" in line.apply().waiting["sales/orders"]
    assert line.applied() == ["a"]
    line.apply("another")
    assert line.applied() == ["a"]
    line.land("d")  # what arrives later is no way around it
    line.apply()
    assert line.applied() == ["a"]
    line.bucket.put(TABLE.wake, b"")
    line.apply()
    line.apply()
    assert line.applied() == ["a", "b"]
    control.resume(line.bucket, TABLE)
    line.apply()
    assert line.applied() == ["a", "b", "c"]


def test_a_consent_that_was_given_before_there_was_anything_counts_once() -> None:
    line = Line({**ORDERED, "wait_for_validation": True})
    line.bucket.put(TABLE.wake, b"")
    for path in "ab":
        line.land(path)
    line.apply()
    line.apply()
    assert line.applied() == ["a"]


# -- late, large, odd


@pytest.mark.parametrize(
    ("late", "applied", "stops"), [("apply", ["b", "a"], False), ("report", ["b"], False), ("refuse", ["b"], True)]
)
def test_a_late_batch_follows_the_tables_policy(late: str, applied: list[str], stops: bool) -> None:
    line = Line({**ORDERED, "late": late})
    line.land("b")
    line.apply()
    line.land("a")
    done = line.apply()
    assert line.applied() == applied
    assert bool(done.stopped) == stops
    assert line.standing().late == (("a",) if late == "report" else ())
    line.land("c")
    line.apply()
    assert line.applied() == ([*applied, "c"] if not stops else applied)


def test_an_applied_batch_that_is_published_again_is_not_late() -> None:
    line = Line({**ORDERED, "late": "refuse"})
    for path in "ab":
        line.land(path)
    line.apply()
    line.land("a")
    assert not line.apply().stopped
    assert line.applied() == ["a", "b", "a"]


def test_a_batch_that_is_too_large_is_refused_by_name() -> None:
    line = Line({**ORDERED, "max_batch_bytes": "5B"})
    line.land("a", "one.csv", "two.csv")
    [why] = line.apply().stopped.values()
    assert "sales/orders/a has 6 bytes, more than max_batch_bytes (5)" in why


def test_a_batch_within_a_batch_is_a_batch_of_its_own() -> None:
    line = Line()
    line.land("a", "one.csv", "inner/two.csv", "_hidden.csv", ".dot", "open/three.csv")
    line.land("a/inner", "four.csv")
    line.bucket.put(f"{TABLE.prefix}a/empty.csv", b"")
    line.apply()
    names = [[key.removeprefix(TABLE.prefix) for key in rows or ()] for rows in line.engine.rows(TABLE)]
    # Keys decide: a/_SUCCESS comes before a/inner/_SUCCESS.
    assert names == [["a/one.csv", "a/open/three.csv"], ["a/inner/four.csv", "a/inner/two.csv"]]


def test_a_batch_that_was_withdrawn_is_not_applied() -> None:
    line = Line(fail=frozenset({"a"}))
    line.land("a")
    line.land("b")
    line.apply()
    line.bucket.delete(f"{TABLE.prefix}b/_SUCCESS")
    line.fail = frozenset()
    control.retry(line.bucket, TABLE, "now")
    line.apply()
    assert line.applied() == ["a"]
    assert line.backlog() == []


def test_numbers_that_are_not_padded_are_suspicious() -> None:
    line = Line()
    for path in ("d/9", "d/10", "d/11"):
        line.land(path)
    assert line.standing().suspicious == ("d/11 before d/9",)


# -- unordered


def test_unordered_batches_know_nothing_of_each_other() -> None:
    line = Line({}, fail=frozenset({"b"}))
    for path in "abc":
        line.land(path)
    done = line.apply()
    assert sorted(line.applied()) == ["a", "c"]
    assert list(done.stopped) == ["sales/orders/b"]
    assert line.standing().pending == 1
    line.fail = frozenset()
    line.apply()
    assert sorted(line.applied()) == ["a", "c"]
    found = publication(line.bucket, line.landed().success("b"))
    assert found is not None
    control.retry_batch(line.bucket, Batch(TABLE, "b", found), "now")
    line.apply()
    assert sorted(line.applied()) == ["a", "b", "c"]
    line.land("a")
    line.apply()
    assert sorted(line.applied()) == ["a", "a", "b", "c"]


def test_only_what_lies_below_orderme_is_ordered() -> None:
    line = Line({})
    line.bucket.put(f"{TABLE.prefix}incremental/_config/ORDERME", b"")
    for path in ("historical/a", "incremental/b", "incremental/a"):
        line.land(path)
    line.apply()
    ordered = [path for path in line.applied() if path.startswith("incremental")]
    assert ordered == ["incremental/a", "incremental/b"]
    assert "historical/a" in line.applied()


# -- dying


@pytest.mark.parametrize("config", [ORDERED, {}], ids=["ordered", "unordered"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_dying_at_any_call_ends_in_the_same_table(config: dict[str, object], when: str) -> None:
    clean = Line(dict(config))
    clean.land("a")
    clean.land("b")
    counting = Counting(clean.bucket)
    clean.apply(bucket=counting)
    assert counting.counts.total > 15
    for at in range(1, counting.counts.total + 1):
        line = Line(dict(config), gone=lambda owner: owner == "dead")
        line.config["parallelism"] = 1
        line.land("a")
        line.land("b")
        with suppress(Died):
            line.apply("dead", bucket=DyingBucket(line.bucket, at=at, when=when))
        line.apply("living")
        assert sorted(line.applied()) == ["a", "b"]
        if config:
            assert line.applied() == ["a", "b"]
        assert line.backlog() == []


def test_folders_may_be_named_otherwise() -> None:
    line = Line({**ORDERED, "naming": r"(?P<day>[0-9-]+)/(?P<dataset>\w+)\.(?P<table>\w+)"})
    line.bucket.put("tables/_config/load.json", b'{"format": "csv"}')
    for day in ("2026-11-16", "2026-11-15"):
        line.bucket.put(f"tables/{day}/sales.orders/part.csv", b"1")
        line.bucket.put(f"tables/{day}/sales.orders/_SUCCESS", b"")
    assert not line.apply().stopped
    assert line.applied() == ["2026-11-15/sales.orders", "2026-11-16/sales.orders"]
    assert line.engine.rows(TABLE)[0] == ["tables/2026-11-15/sales.orders/part.csv"]
    assert not line.apply("another").applied


def test_batches_from_elsewhere_leave_nothing_there() -> None:
    source = "topics/events/events/type=order"
    line = Line({"items": [{"table": "sales/orders", "source": source, "order": True}]})
    line.bucket.put(f"{source}/day=2026-11-15/1.parquet", b"rows")
    listed = {"files": [{"key": f"{source}/day=2026-11-15/1.parquet", "etag": "e", "size": 4}]}
    line.bucket.put(f"{source}/day=2026-11-15/2.parquet", b"of a range that is not committed")
    line.bucket.put(f"{source}/day=2026-11-15/_SUCCESS", json.dumps(listed).encode())
    there = {entry.key for entry in line.bucket.list("topics/")}
    line.apply()
    assert line.engine.rows(TABLE) == [[f"{source}/day=2026-11-15/1.parquet"]]
    assert {entry.key for entry in line.bucket.list("topics/")} == there
    line.bucket.put(f"{source}/day=2026-11-15/_SUCCESS", json.dumps(listed).encode())
    line.apply()
    assert line.applied() == ["day=2026-11-15"] * 2

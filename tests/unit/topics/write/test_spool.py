"""Rows by key, in memory and on disk."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catchment.topics.write.spool import Run, Spool, runs


def table(*numbers: int, name: str = "n") -> pa.Table:
    return pa.table({name: pa.array(numbers, pa.int64())})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 9), min_size=1))), st.integers(0, 200))
def test_rows_come_back_in_the_order_in_which_they_came(
    tmp_path: Path, added: list[tuple[str, list[int]]], budget: int
) -> None:
    spool: Spool[str] = Spool(tmp_path, budget)
    expected: dict[str, list[int]] = {}
    for key, numbers in added:
        spool.add(key, table(*numbers))
        spool.spill_if_over()
        expected.setdefault(key, []).extend(numbers)
    assert spool.keys() == list(expected)
    for key, numbers in expected.items():
        heap = spool[key]
        found = [number for one in heap.tables() for number in one["n"].to_pylist()]
        assert found == numbers
        assert heap.rows == len(numbers)


def test_what_is_over_the_budget_goes_to_disk_in_one_file(tmp_path: Path) -> None:
    spool: Spool[str] = Spool(tmp_path / "made later", 1000)
    for key in "abc":
        spool.add(key, table(*range(100)))
    assert not (tmp_path / "made later").exists()
    spool.spill_if_over()
    assert spool.spills == 1
    assert len(list((tmp_path / "made later").iterdir())) == 1


def test_pieces_of_different_schemas_stay_apart(tmp_path: Path) -> None:
    spool: Spool[str] = Spool(tmp_path, 0)
    spool.add("a", table(1))
    spool.add("a", table(2, name="m"))
    spool.add("a", table(3))
    spool.spill_if_over()
    spool.add("a", table(4))
    assert [one.to_pylist() for one in spool["a"].tables()] == [[{"n": 1}], [{"m": 2}], [{"n": 3}], [{"n": 4}]]


def test_what_is_let_go_of_is_gone(tmp_path: Path) -> None:
    spool: Spool[str] = Spool(tmp_path, 0)
    spool.add("a", table(1))
    spool.drop("a")
    assert spool.keys() == []


@pytest.mark.parametrize(
    ("codes", "order", "found"),
    [
        ([], None, []),
        ([5, 5], None, [Run(5, 0, 2)]),
        ([0, 0, 1], None, [Run(0, 0, 2), Run(1, 2, 1)]),
        ([1, 0, 1], [1, 0, 2], [Run(0, 0, 1), Run(1, 1, 2)]),
        ([None, 0, None], [1, 0, 2], [Run(0, 0, 1)]),
        ([0, None], [0, 1], [Run(0, 0, 1)]),
        ([None], [0], []),
    ],
)
def test_runs(codes: list[int | None], order: list[int] | None, found: list[Run]) -> None:
    got, these = runs(pa.array(codes, pa.int32()))
    assert these == found
    assert (None if got is None else got.to_pylist()) == order


@given(st.lists(st.one_of(st.none(), st.integers(0, 4))))
def test_runs_keep_the_order_of_rows(codes: list[int | None]) -> None:
    order, found = runs(pa.array(codes, pa.int32()))
    rows = list(range(len(codes))) if order is None else order.to_pylist()
    for run in found:
        mine = rows[run.start : run.start + run.rows]
        assert mine == [at for at, code in enumerate(codes) if code == run.code]
    assert sum(run.rows for run in found) == sum(code is not None for code in codes)

"""Work in threads: in order, to the end, and with its errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from catchment.feeds.background import Background, each


def test_work_is_done_in_the_order_it_was_given() -> None:
    done: list[int] = []
    thread = Background("test")
    jobs = [thread.submit(lambda n=n: done.append(n)) for n in range(100)]  # type: ignore[misc]
    jobs[-1].result()
    thread.close()
    assert done == list(range(100))


def test_what_it_raises_is_handed_over_and_the_thread_goes_on() -> None:
    thread = Background("test")

    def fails() -> None:
        raise ValueError("no")

    assert isinstance(thread.submit(fails).exception(), ValueError)
    assert thread.submit(lambda: 1).result() == 1
    thread.close()


@pytest.mark.parametrize("workers", [1, 4])
def test_each_item_has_its_turn_once(workers: int) -> None:
    done: list[int] = []
    each(iter(range(200)), done.append, workers=workers)
    assert sorted(done) == list(range(200))


def test_so_many_are_under_way_at_once() -> None:
    together = threading.Barrier(4)
    each(range(8), lambda _: together.wait(60), workers=4)  # a broken barrier raises
    assert not together.broken


@pytest.mark.parametrize("workers", [1, 4])
def test_an_error_ends_it_and_is_raised(workers: int) -> None:
    taken: list[int] = []

    def endless() -> Iterator[int]:
        n = 0
        while True:
            yield n
            n += 1

    def do(n: int) -> None:
        taken.append(n)
        if n == 10:
            raise KeyError("ten")

    with pytest.raises(KeyError, match="ten"):
        each(endless(), do, workers=workers)
    assert 10 in taken

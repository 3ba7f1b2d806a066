"""Numbers as Hadoop and MessagePack write them, many at once, against one at a time."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.topics.files.writable import beside, fixed, msgpack_keys, msgpack_numbers, ragged, text, vint, vints

LARGEST = (1 << 63) - 1
EDGES = [0, 1, 127, 128, 255, 256, 65535, 65536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, LARGEST]
numbers = st.one_of(st.sampled_from(EDGES), st.integers(0, LARGEST))


def hadoops(number: int) -> bytes:
    """As the description of Hadoop's variable-length integers has it."""
    if number <= 127:
        return bytes([number])
    size = (number.bit_length() + 7) // 8
    return (-112 - size).to_bytes(1, "big", signed=True) + number.to_bytes(size, "big")


@given(st.lists(numbers, min_size=1))
def test_vints(given: list[int]) -> None:
    assert ragged(*vints(np.array(given, np.int64))).to_pylist() == [hadoops(one) for one in given]


def test_one_vint_and_a_text() -> None:
    assert [vint(one) for one in (127, 128, 300)] == [b"\x7f", b"\x8f\x80", b"\x8e\x01\x2c"]
    assert text("é" * 100) == b"\x8f\xc8" + "é".encode() * 100


@given(st.lists(numbers, min_size=1))
def test_msgpack_numbers(given: list[int]) -> None:
    assert ragged(*msgpack_numbers(np.array(given, np.int64))).to_pylist() == [
        msgspec.msgpack.encode(one) for one in given
    ]


@given(st.lists(st.tuples(numbers, st.none() | st.sampled_from([0, 1, 255, 256, 65535, 65536])), min_size=1))
def test_msgpack_keys(given: list[tuple[int, int | None]]) -> None:
    offsets = np.array([offset for offset, _ in given], np.int64)
    sizes = np.array([size or 0 for _, size in given], np.int64)
    null = np.array([size is None for _, size in given])
    found = ragged(*msgpack_keys(offsets, sizes, null)).to_pylist()
    for (offset, size), head in zip(given, found, strict=True):
        whole = {1: offset} if size is None else {1: offset, 2: b"k" * size}
        assert head + b"k" * (size or 0) == msgspec.msgpack.encode(whole)


@pytest.mark.parametrize("lengths", [[0, 0], [2, 0], [1, 2]])
def test_columns_side_by_side(lengths: list[int]) -> None:
    first = np.array([[1, 2], [3, 4]], np.uint8)
    second = np.array([[5], [6]], np.uint8)
    found = ragged(*beside((first, np.array(lengths)), fixed(second)))
    assert found.type == pa.binary()
    rows = zip(first, second, lengths, strict=True)
    assert found.to_pylist() == [bytes(one[:size]) + bytes(other) for one, other, size in rows]

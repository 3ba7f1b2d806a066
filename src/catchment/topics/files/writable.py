"""Hadoop's binary forms of numbers, texts and keys, for many rows at once.

A column of bytes is made as a matrix with a row for each record, in which the first `lengths` bytes count. So numbers
whose size differs from row to row (Hadoop's variable-length integers, MessagePack's) need no loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from catchment.topics.files.pieces import Flags, Numbers

Matrix = np.ndarray[Any, np.dtype[np.uint8]]


def big_endian(numbers: Numbers, width: int) -> Matrix:
    """The lowest bytes of each number, the highest of them first."""
    return numbers.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - width :]


def ragged(matrix: Matrix, lengths: Numbers) -> pa.Array:
    """The first bytes of each row, as binary."""
    edges = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=edges[1:])
    width = matrix.shape[1]
    data = matrix if (lengths == width).all() else matrix[np.arange(width) < lengths[:, None]]
    buffer = pa.py_buffer(np.ascontiguousarray(data))
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(edges), buffer])


def beside(*parts: tuple[Matrix, Numbers]) -> tuple[Matrix, Numbers]:
    """Columns of bytes side by side: in each row, those of the second follow those of the first at once."""
    rows = len(parts[0][1])
    total = sum(matrix.shape[1] for matrix, _ in parts)
    found = np.zeros((rows, total), np.uint8)
    at = np.zeros(rows, np.int64)
    for matrix, lengths in parts:
        for column in range(matrix.shape[1]):
            here = np.flatnonzero(lengths > column)
            found[here, at[here] + column] = matrix[here, column]
        at += lengths
    return found, at


def fixed(matrix: Matrix) -> tuple[Matrix, Numbers]:
    """A column of bytes in which all of each row counts."""
    return matrix, np.full(len(matrix), matrix.shape[1], np.int64)


def _bytes_needed(numbers: Numbers) -> Numbers:
    """Of numbers that are not negative; 0 needs one."""
    limits = np.array([1 << (8 * width) for width in range(1, 8)], np.int64)
    return np.searchsorted(limits, numbers, side="right").astype(np.int64) + 1


def vints(numbers: Numbers) -> tuple[Matrix, Numbers]:
    """Hadoop's variable-length form of numbers that are not negative.

    Up to 127 the byte itself; then a byte that says how many follow (0x8f: one, 0x8e: two, …), and these.
    """
    small = numbers <= 127
    needed = _bytes_needed(numbers)
    width = int(needed.max(initial=1))
    found = np.zeros((len(numbers), 1 + width), np.uint8)
    found[:, 0] = np.where(small, numbers, 0x90 - needed)
    _left_aligned(found[:, 1:], numbers, needed, ~small)
    return found, np.where(small, 1, 1 + needed)


def _left_aligned(into: Matrix, numbers: Numbers, widths: Numbers, where: Flags) -> None:
    """Write each number in as many bytes as it has, from the left."""
    for width in np.unique(widths[where]):
        rows = np.flatnonzero(where & (widths == width))
        into[rows, :width] = big_endian(numbers[rows], int(width))


def vint(number: int) -> bytes:
    """One of them."""
    matrix, lengths = vints(np.array([number], np.int64))
    return matrix[0, : lengths[0]].tobytes()


def text(value: str) -> bytes:
    """As Hadoop writes a Text."""
    body = value.encode()
    return vint(len(body)) + body


_FORMS = {1: 0xCC, 2: 0xCD, 4: 0xCE, 8: 0xCF}  # MessagePack's marks of unsigned integers, by their bytes


def msgpack_numbers(numbers: Numbers) -> tuple[Matrix, Numbers]:
    """MessagePack's shortest form of numbers that are not negative."""
    small = numbers <= 127
    widths = _rounded(_bytes_needed(numbers))
    found = np.zeros((len(numbers), 9), np.uint8)
    found[:, 0] = np.select([small, *(widths == width for width in _FORMS)], [numbers, *_FORMS.values()])
    _left_aligned(found[:, 1:], numbers, widths, ~small)
    return found, np.where(small, 1, 1 + widths)


def msgpack_keys(offsets: Numbers, lengths: Numbers, is_null: Flags) -> tuple[Matrix, Numbers]:
    """What comes before the bytes of the key in the MessagePack map {1: offset, 2: key}; all of it if there is none."""
    rows = len(offsets)
    begin = np.empty((rows, 2), np.uint8)
    begin[:, 0] = np.where(is_null, 0x81, 0x82)  # a map of one, of two
    begin[:, 1] = 1
    widths = _rounded(_bytes_needed(lengths))
    head = np.zeros((rows, 6), np.uint8)
    head[:, 0] = 2
    head[:, 1] = np.select([widths == 1, widths == 2], [0xC4, 0xC5], 0xC6)
    _left_aligned(head[:, 2:], lengths, widths, np.ones(rows, bool))
    return beside(fixed(begin), msgpack_numbers(offsets), (head, np.where(is_null, 0, 2 + widths)))


def _rounded(widths: Numbers) -> Numbers:
    """Up to 1, 2, 4 or 8 bytes."""
    return np.array([0, 1, 2, 4, 4, 8, 8, 8, 8], np.int64)[widths]

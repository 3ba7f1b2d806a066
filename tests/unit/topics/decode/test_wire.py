"""Numbers and pieces of bytes in many messages at once, each as it would be read alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.topics.decode import wire

MESSAGES = st.lists(st.binary(max_size=24), max_size=12)
NUMBERS = st.one_of(
    st.integers(0, 300), st.integers(0, 2**64 - 1), st.integers(0, 64).map(lambda bits: min(2**bits, 2**64 - 1))
)


def written(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def read(message: bytes) -> tuple[int, int] | None:
    value = 0
    for number, byte in enumerate(message[:10]):
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return value & (2**64 - 1), number + 1
    return None


def flat(messages: list[bytes]) -> tuple[wire.Bytes, wire.Positions, wire.Positions]:
    return wire.flat(pa.array(messages, pa.binary()))


@settings(deadline=None)
@given(st.lists(st.tuples(NUMBERS, st.binary(max_size=4)), max_size=12))
def test_numbers_are_read_back(written_before: list[tuple[int, bytes]]) -> None:
    data, at, end = flat([written(value) + rest for value, rest in written_before])
    values, after, bad = wire.varints(data, at, end)
    assert values.tolist() == [value for value, _ in written_before]
    assert (end - after).tolist() == [len(rest) for _, rest in written_before]
    assert not bad.any()


@settings(deadline=None)
@given(MESSAGES)
def test_any_bytes_are_read_as_they_would_be_alone(messages: list[bytes]) -> None:
    data, at, end = flat(messages)
    values, after, bad = wire.varints(data, at, end)
    for number, message in enumerate(messages):
        found = read(message)
        assert bool(bad[number]) == (found is None)
        value, size = found or (0, len(message))
        assert (int(values[number]), int(after[number] - at[number])) == (value, size)


@settings(deadline=None)
@given(MESSAGES, st.integers(0, 30))
def test_nothing_is_read_beyond_the_end_of_a_message(messages: list[bytes], moved: int) -> None:
    data, at, end = flat(messages)
    at = np.minimum(at + moved, end)
    values, after, bad = wire.varints(data, at, end)
    alone = [read(message[moved:]) for message in messages]
    assert bad.tolist() == [one is None for one in alone]
    assert values.tolist() == [one[0] if one else 0 for one in alone]
    assert (after <= end).all()


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_zigzag(values: list[int]) -> None:
    coded = np.array([(value << 1 if value >= 0 else (-value << 1) - 1) for value in values], np.uint64)
    assert wire.zigzag(coded).tolist() == values


@settings(deadline=None)
@given(MESSAGES, st.sampled_from(["<f4", "<f8", "<u4", "<i8"]))
def test_fixed_numbers(messages: list[bytes], dtype: str) -> None:
    size = np.dtype(dtype).itemsize
    data, at, end = flat(messages)
    values, after, bad = wire.fixed(data, at, end, dtype)
    for number, message in enumerate(messages):
        assert bool(bad[number]) == (len(message) < size)
        if not bad[number]:
            assert values[number].tobytes() == message[:size]
            assert after[number] - at[number] == size
        else:
            assert values[number] == 0 and after[number] == end[number]


@settings(deadline=None)
@given(MESSAGES, st.data())
def test_slices_are_pieces_of_the_bytes(messages: list[bytes], draw: st.DataObject) -> None:
    data, starts, ends = flat(messages)
    cuts = [draw.draw(st.integers(0, len(message))) for message in messages]
    null = np.array([draw.draw(st.booleans()) for _ in messages], np.bool_)
    order = np.array(draw.draw(st.permutations(range(len(messages)))), np.int64)
    begin = np.where(null, 1 << 40, starts + np.array(cuts, np.int64))  # of a null, any position
    found = wire.slices(data, begin[order], (ends - starts - cuts)[order], null[order])
    assert found.type == pa.binary()
    assert found.to_pylist() == [None if null[at] else messages[at][cuts[at] :] for at in order]
    found.validate(full=True)


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=8)), st.integers(0, 5), st.integers(0, 5))
def test_flat_sees_a_part_of_an_array_as_it_is(values: list[bytes | None], skipped: int, dropped: int) -> None:
    array = pa.array(values, pa.binary())
    array = array.slice(min(skipped, len(array)))
    array = array.slice(0, max(len(array) - dropped, 0))
    data, starts, ends = wire.flat(array)
    assert [data[first:last].tobytes() for first, last in zip(starts, ends, strict=True)] == [
        value or b"" for value in array.to_pylist()
    ]


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=6) | st.text(max_size=6).map(str.encode), max_size=40))
def test_what_is_not_utf8_is_told_and_disturbs_no_other(values: list[bytes | None]) -> None:
    def text(value: bytes | None) -> str | None:
        try:
            return value.decode() if value is not None else None
        except UnicodeDecodeError:
            return None

    found, bad = wire.texts(pa.array(values, pa.binary()))
    assert found.to_pylist() == [text(value) for value in values]
    assert bad.tolist() == [value is not None and text(value) is None for value in values]
    found.validate(full=True)

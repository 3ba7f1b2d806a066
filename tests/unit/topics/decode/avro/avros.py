"""Random Avro schemas, values of them, and how they are written. fastavro reads them back, as the judge."""

from __future__ import annotations

import io
import math
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import fastavro
from hypothesis import strategies as st

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PLAIN = ["boolean", "int", "long", "float", "double", "bytes", "string"]
LOGICAL: list[dict[str, Any]] = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0},
    {"type": "string", "logicalType": "uuid"},
]
DAYS = 30_000  # around 1970, for times that Python can hold
_SPAN = {"millis": 86_400_000, "micros": 86_400_000_000, "nanos": 86_400_000_000_000}


@st.composite
def schemas(draw: st.DrawFn, *, plain: bool = False, deep: int = 3) -> dict[str, Any]:
    """Records. plain: without types of which fastavro refuses some values, or that take no bytes."""
    names = iter(range(10_000))

    def fixed(size: int, **more: Any) -> dict[str, Any]:
        return {"type": "fixed", "name": f"F{next(names)}", "size": size, **more}

    def leaf() -> Any:
        choice = draw(st.integers(0, 3 if plain else 6))
        if choice == 0:
            symbols = draw(st.lists(st.sampled_from("ABCDEFG"), min_size=1, unique=True))
            return {"type": "enum", "name": f"E{next(names)}", "symbols": symbols}
        if choice == 1:
            return fixed(draw(st.integers(1, 20)))
        if choice == 4:
            return draw(st.sampled_from(LOGICAL))
        if choice == 5:
            size = draw(st.integers(1, 18))
            return fixed(
                size,
                logicalType="decimal",
                precision=draw(st.integers(1, min(38, int(math.log10(2) * (8 * size - 1))))),
                scale=0,
            )
        if choice == 6:
            return draw(st.sampled_from(["null", fixed(12, logicalType="duration")]))
        return draw(st.sampled_from(PLAIN))

    def any_of(left: int) -> Any:
        choice = draw(st.integers(0, 9)) if left else 0
        if choice < 5:
            return leaf()
        if choice == 5:
            return {"type": "array", "items": any_of(left - 1)}
        if choice == 6:
            return {"type": "map", "values": any_of(left - 1)}
        if choice == 7:
            return record(left - 1)
        if choice == 8:
            other = not_union(left - 1)
            return draw(st.permutations([other, *(["null"] if other != "null" else [])]))
        return union(left - 1)

    def not_union(left: int) -> Any:
        found = any_of(left)
        return "long" if isinstance(found, list) else found

    def union(left: int) -> Any:
        members: dict[str, Any] = {"null": "null"} if draw(st.booleans()) else {}
        for _ in range(draw(st.integers(1, 3))):
            member = not_union(left)
            name = member if isinstance(member, str) else member.get("name", member["type"])
            members[name] = member
        return draw(st.permutations(list(members.values())))

    def record(left: int) -> dict[str, Any]:
        number = draw(st.integers(1, 4)) if left < deep else draw(st.integers(1, 6))
        fields = [{"name": f"f{at}", "type": any_of(left)} for at in range(number)]
        return {"type": "record", "name": f"R{next(names)}", "fields": fields}

    return record(deep)


def values(schema: Any) -> st.SearchStrategy[Any]:
    """Values, as `written` takes them: in a union, the number of the member and its value."""
    if isinstance(schema, list):
        return st.one_of([st.tuples(st.just(at), values(one)) for at, one in enumerate(schema)])
    name = schema if isinstance(schema, str) else schema["type"]
    more = schema if isinstance(schema, dict) else {}
    logical = more.get("logicalType")
    if logical == "decimal":
        most = 10 ** more["precision"] - 1
        if name == "fixed":
            most = min(most, (1 << (8 * more["size"] - 1)) - 1)
        return st.integers(-most, most)
    if logical == "date":
        return st.integers(-DAYS, DAYS)
    if logical == "uuid":
        return st.uuids().map(str)
    if logical and logical.startswith("time-"):
        return st.integers(0, _SPAN[logical.rpartition("-")[2]] - 1)
    if logical and "timestamp" in logical:
        most = DAYS * _SPAN[logical.rpartition("-")[2]]
        return st.integers(-most, most)
    match name:
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "int":
            return st.integers(-3, 3) | st.integers(-(1 << 31), (1 << 31) - 1)
        case "long":
            return st.integers(-3, 3) | st.integers(-(1 << 63), (1 << 63) - 1)
        case "float":
            return st.floats(width=32)
        case "double":
            return st.floats()
        case "bytes":
            return st.binary(max_size=20)
        case "string":
            return st.text(max_size=20)
        case "fixed":
            return st.binary(min_size=more["size"], max_size=more["size"])
        case "enum":
            return st.integers(0, len(more["symbols"]) - 1)
        case "array":
            return st.lists(st.tuples(st.integers(0, 5), values(more["items"])), max_size=5)
        case "map":
            entries = st.tuples(st.integers(0, 5), st.text(max_size=3), values(more["values"]))
            return st.lists(entries, max_size=4, unique_by=lambda entry: entry[1])
    return st.tuples(*(values(one["type"]) for one in more["fields"]))


def number(value: int) -> bytes:
    """A varint with its sign folded in."""
    coded = (value << 1) ^ (value >> 63)
    out = bytearray()
    while coded >= 0x80:
        out.append(coded & 0x7F | 0x80)
        coded >>= 7
    return bytes([*out, coded])


def written(schema: Any, value: Any) -> bytes:
    """As Avro writes it. With each element goes how the block in which it is ends: 1 plainly, 2 with its size."""
    if isinstance(schema, list):
        return number(value[0]) + written(schema[value[0]], value[1])
    name = schema if isinstance(schema, str) else schema["type"]
    more = schema if isinstance(schema, dict) else {}
    if more.get("logicalType") == "decimal":
        size = more.get("size") or (value.bit_length() + 8) // 8
        text: bytes = value.to_bytes(size, "big", signed=True)
        return text if name == "fixed" else number(size) + text
    match name:
        case "null":
            return b""
        case "boolean":
            return bytes([value])
        case "int" | "long" | "enum":
            return number(value)
        case "float":
            return struct.pack("<f", value)
        case "double":
            return struct.pack("<d", value)
        case "bytes":
            return number(len(value)) + bytes(value)
        case "string":
            return number(len(value.encode())) + bytes(value.encode())
        case "fixed":
            return bytes(value)
        case "array":
            return _blocks([(how, written(more["items"], one)) for how, one in value])
        case "map":
            return _blocks([(how, written("string", key) + written(more["values"], one)) for how, key, one in value])
    return b"".join(written(one["type"], part) for one, part in zip(more["fields"], value, strict=True))


def _blocks(elements: list[tuple[int, bytes]]) -> bytes:
    out, block = b"", list[bytes]()
    for at, (how, element) in enumerate(elements):
        block.append(element)
        if how in (1, 2) or at == len(elements) - 1:
            body = b"".join(block)
            out += number(-len(block)) + number(len(body)) + body if how == 2 else number(len(block)) + body
            block = []
    return out + number(0)


def judged(schema: Any, message: bytes) -> Any:
    """What fastavro reads, whole. Raises what it raises, and ValueError if bytes are left over."""
    file = io.BytesIO(message)
    found = fastavro.schemaless_reader(file, schema, None)
    if file.tell() != len(message):
        raise ValueError("bytes are left over")
    return found


def is_open(schema: Any) -> bool:
    """Whether it has no column."""
    if isinstance(schema, list):
        return all(is_open(one) for one in schema)
    if isinstance(schema, str):
        return schema == "null"
    match schema["type"]:
        case "record":
            return all(is_open(one["type"]) for one in schema["fields"])
        case "array":
            return is_open(schema["items"])
        case "map":
            return is_open(schema["values"])
    return False


def for_fastavro(schema: Any, value: Any) -> Any:
    """What fastavro gives when it reads the value."""
    if isinstance(schema, list):
        return for_fastavro(schema[value[0]], value[1])
    name = schema if isinstance(schema, str) else schema["type"]
    more = schema if isinstance(schema, dict) else {}
    match name, more.get("logicalType"):
        case _, "decimal":
            return Decimal(value).scaleb(-more["scale"], Context(prec=50))
        case _, "date":
            return date(1970, 1, 1) + timedelta(days=value)
        case _, "uuid":
            return UUID(value)
        case _, ("time-millis" | "time-micros") as unit:
            return (EPOCH + timedelta(microseconds=value * (1000 if unit == "time-millis" else 1))).time()
        case _, ("timestamp-millis" | "timestamp-micros"):
            return moment(more, value)
        case _, ("local-timestamp-millis" | "local-timestamp-micros"):
            return moment(more, value).replace(tzinfo=None)
        case "enum", _:
            return more["symbols"][value]
        case "array", _:
            return [for_fastavro(more["items"], one) for _, one in value]
        case "map", _:
            return {key: for_fastavro(more["values"], one) for _, key, one in value}
        case "record", _:
            return {
                one["name"]: for_fastavro(one["type"], part) for one, part in zip(more["fields"], value, strict=True)
            }
    return value


def for_us(schema: Any, value: Any) -> Any:
    """What we make of the value, as Arrow gives it to Python."""
    if isinstance(schema, list):
        others = [at for at, one in enumerate(schema) if one != "null"]
        at, chosen = value
        if at not in others:
            return None
        if len(others) == 1 or {_word(schema[one]) for one in others} in ({"int", "long"}, {"float", "double"}):
            return for_us(schema[at], chosen)
        return {
            f"member{place}": for_us(schema[one], chosen) if one == at else None
            for place, one in enumerate(others)
            if not is_open(schema[one])
        }
    name = schema if isinstance(schema, str) else schema["type"]
    more = schema if isinstance(schema, dict) else {}
    match name, more.get("logicalType"):
        case _, ("time-millis" | "time-micros"):
            return value
        case _, "uuid":
            return value
        case _, "duration":
            return dict(zip(("months", "days", "millis"), struct.unpack("<III", value), strict=True))
        case "array", _:
            return [for_us(more["items"], one) for _, one in value]
        case "map", _:
            return [(key, for_us(more["values"], one)) for _, key, one in value]
        case "record", _:
            parts = zip(more["fields"], value, strict=True)
            return {one["name"]: for_us(one["type"], part) for one, part in parts if not is_open(one["type"])}
    return for_fastavro(schema, value)


def _word(schema: Any) -> str:
    """A plain type, or one whose values stay the numbers that they are."""
    if isinstance(schema, dict) and schema.get("logicalType") in ("time-millis", "time-micros", "timestamp-nanos"):
        return str(schema["type"])
    return str(schema)


def moment(schema: dict[str, Any], value: int) -> datetime:
    return EPOCH + timedelta(microseconds=value * (1000 if schema["logicalType"].endswith("millis") else 1))


def comparable(value: Any) -> Any:
    """The same, with NaN equal to itself."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return {key: comparable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(one) for one in value]
    return value

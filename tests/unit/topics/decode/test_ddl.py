from __future__ import annotations

import pyarrow as pa
import pytest

from catchment.errors import UsageError
from catchment.topics.decode import ddl


def test_every_type_has_its_column() -> None:
    found = ddl.parse(
        "a boolean, b TINYINT, c byte, d SMALLINT, e SHORT, f int, g INTEGER, h BIGINT, i long, j FLOAT, k REAL,"
        " l DOUBLE, m DECIMAL(12,3), n STRING, o BINARY, p DATE, q TIMESTAMP, r DECIMAL, s DECIMAL(7)"
    ).arrow()
    assert dict(zip(found.names, found.types, strict=True)) == {
        "a": pa.bool_(),
        "b": pa.int8(),
        "c": pa.int8(),
        "d": pa.int16(),
        "e": pa.int16(),
        "f": pa.int32(),
        "g": pa.int32(),
        "h": pa.int64(),
        "i": pa.int64(),
        "j": pa.float32(),
        "k": pa.float32(),
        "l": pa.float64(),
        "m": pa.decimal128(12, 3),
        "n": pa.string(),
        "o": pa.binary(),
        "p": pa.date32(),
        "q": pa.timestamp("us", "UTC"),
        "r": pa.decimal128(10, 0),
        "s": pa.decimal128(7, 0),
    }


def test_nested_types() -> None:
    found = ddl.parse("s STRUCT<a: INT, `b c` ARRAY<MAP<STRING, STRUCT<x: DECIMAL(3,1)>>>>, e STRUCT<>, l ARRAY<INT>")
    assert [str(one.kind) for one in found.fields] == [
        "STRUCT<a: INT, b c: ARRAY<MAP<STRING, STRUCT<x: DECIMAL(3,1)>>>>",
        "STRUCT<>",
        "ARRAY<INT>",
    ]


def test_unusual_names_and_comments() -> None:
    found = ddl.parse("`a``b` INT COMMENT 'it''s', `c.d`: STRING COMMENT \"x, y\", plain: INT".replace("''", "\\'"))
    assert [one.name for one in found.fields] == ["a`b", "c.d", "plain"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a INT NOT NULL", "NOT NULL"),
        ("a INT, A STRING", "declared twice"),
        ("a INTEGR", "is not a type"),
        ("a", "type of a column is missing"),
        ("a INT,", "name of a column is missing"),
        ("a INT b INT", "B is not known here"),
        ("a ARRAY<INT", "'>' is missing"),
        ("a ARRAY", "'<' is missing"),
        ("a MAP<INT, STRING>", "keys of a MAP are STRING"),
        ("a DECIMAL(40,2)", "precision"),
        ("a DECIMAL(5,6)", "precision"),
        ("a DECIMAL(x)", "number is missing"),
        ("a INT)", "something after the last column"),
        ("a; DROP", "cannot be read"),
        ("_offset INT", "a column of our own"),
    ],
)
def test_what_is_wrong_is_said(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        ddl.parse(text)
    assert why in caught.value.message
    assert "CREATE TABLE" in caught.value.hint

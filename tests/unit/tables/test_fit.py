"""Which types fit into which. No Spark is started."""

from __future__ import annotations

import pytest
from pyspark.sql import types as t

from catchment.tables.fit import differences, widens


@pytest.mark.parametrize(
    ("found", "wanted", "fits"),
    [
        (t.IntegerType(), t.LongType(), True),
        (t.LongType(), t.IntegerType(), False),
        (t.ByteType(), t.ShortType(), True),
        (t.FloatType(), t.DoubleType(), True),
        (t.DoubleType(), t.FloatType(), False),
        (t.IntegerType(), t.DoubleType(), True),
        (t.LongType(), t.DoubleType(), False),  # not every one of them
        (t.IntegerType(), t.DecimalType(10, 0), True),
        (t.IntegerType(), t.DecimalType(10, 2), False),
        (t.DecimalType(5, 2), t.DecimalType(6, 2), True),
        (t.DecimalType(5, 2), t.DecimalType(6, 4), False),
        (t.StringType(), t.LongType(), False),
        (t.DateType(), t.TimestampType(), False),
        (t.NullType(), t.StringType(), True),
    ],
)
def test_numbers_are_widened_only_if_every_value_fits(found: t.DataType, wanted: t.DataType, fits: bool) -> None:
    assert widens(found, wanted) is fits


def test_differences_are_found_by_name_in_any_case_and_inside_of_structs() -> None:
    table = t.StructType().add("Id", "long").add("a", t.StructType().add("b", "string").add("c", "integer"))
    same = t.StructType().add("a", t.StructType().add("C", "integer")).add("iD", "long", nullable=False)
    assert list(differences(same, table)) == []
    other = (
        t.StructType()
        .add("id", "string")
        .add("a", t.StructType().add("d", "integer").add("c", "date"))
        .add("n", "integer")
    )
    assert [str(one) for one in differences(other, table)] == [
        "id (string instead of bigint)",
        "a.d (int)",
        "a.c (date instead of int)",
        "n (int)",
    ]

"""What a failed call of Spark comes down to."""

from __future__ import annotations

import pytest

from catchment.spark.failures import Cause, passes, said

CAST = (
    "[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018\n== SQL (line 1) ==\nSELECT\n\n\tat org.apache"
)
TASK = "[TASK_WRITE_FAILED] Task failed while writing rows. SQLSTATE: 58030"


NAMELESS = "[INTERNAL_ERROR] Cannot find main error class 'DELTA_MERGE_UNRESOLVED_EXPRESSION' SQLSTATE: XX000"


@pytest.mark.parametrize(
    ("chain", "line"),
    [
        ([("a.SparkException", TASK), ("a.NumberFormat", CAST)], "[CAST_INVALID_INPUT] The value 'x' cannot be cast."),
        (
            [("a.Analysis", "[NO.SUCH] column `x`; line 1 pos 3;\n'Project\n+- Relation")],
            "[NO.SUCH] column `x`; line 1",
        ),
        ([("a.b.Outer", "outer"), ("a.b.Inner", "  the  disk\n is gone\n\tat x.y(Z)")], "Inner: the disk is gone"),
        ([("a.b.Silent", ""), ("a.b.Mute", "")], "Mute"),
        ([("a.SparkException", NAMELESS)], "[DELTA_MERGE_UNRESOLVED_EXPRESSION] Delta says no more"),
    ],
)
def test_one_line_says_the_most(chain: list[tuple[str, str]], line: str) -> None:
    found = said([Cause(*one) for one in chain])
    assert found.startswith(line)
    assert "\n" not in found and "\tat" not in found


@pytest.mark.parametrize(
    ("chain", "may"),
    [
        ([("org.apache.spark.SparkException", TASK), ("org.apache.spark.SparkNumberFormatException", CAST)], False),
        ([("org.apache.spark.SparkException", TASK), ("java.net.SocketTimeoutException", "Read timed out")], True),
        ([("x.SparkException", "[FAILED_READ_FILE.NO_HINT] s3a://b/k"), ("software.amazon.X", "503")], True),
        ([("x.SparkException", "Job aborted: ExecutorLostFailure (executor 3 exited)")], True),
        ([("x.SparkException", "[INTERNAL_ERROR] a bug"), ("java.lang.NullPointerException", "")], True),
        ([("x.ParseException", "[PARSE_SYNTAX_ERROR] near 'SELEC'")], False),
        ([("x.SparkException", NAMELESS)], False),
    ],
)
def test_what_spark_has_a_name_for_is_no_use_to_try_again(chain: list[tuple[str, str]], may: bool) -> None:
    assert passes([Cause(*one) for one in chain]) is may

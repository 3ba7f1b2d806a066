"""What a failed call of Spark comes down to: its causes, and the one line that tells the most."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
# Delta has a name for it, and Spark no text for that name.
_NAMELESS = re.compile(r"Cannot find main error class '([A-Z][A-Z0-9_]*)'")
_END = re.compile(r"\n\s+at |\nDriver stacktrace|\nJVM stacktrace|\nCaused by: |\n\n|\n== |\n'|\n\+|;\n")
_WRAPPERS = ("INTERNAL_ERROR", "TASK_WRITE_FAILED", "FAILED_EXECUTE_UDF", "STAGE_FAILED")
_LENGTH = 400

# Things that a second attempt may not meet again: networks, services, memory, processes that went away.
_PASSING_CLASSES = (
    "java.net.",
    "javax.net.",
    "java.lang.OutOfMemoryError",
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.",
    "java.nio.file.AccessDeniedException",
    "java.util.concurrent.TimeoutException",
    "io.netty.",
    "org.apache.hadoop.fs.s3a.",
    "org.apache.http.",
    "software.amazon.",
)
_PASSING_WORDS = ("ExecutorLostFailure", "SparkContext was shut down", "cancelled", "No space left on device")


class Cause(NamedTuple):
    """One Java exception."""

    kind: str  # its class
    message: str

    @property
    def conditions(self) -> list[str]:
        """The names that Spark gives to what it expects to go wrong: CAST_INVALID_INPUT."""
        names = [*_CONDITION.findall(self.message), *_NAMELESS.findall(self.message)]
        return [name for name in names if not name.startswith(_WRAPPERS)]


def raised() -> tuple[type[Exception], ...]:
    """What PySpark raises when the other side fails."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


def causes(error: BaseException) -> list[Cause]:
    """What PySpark knows of a failure, the outermost first."""
    java = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    found: list[Cause] = []
    while java is not None and len(found) < 20:
        found.append(Cause(str(java.getClass().getName()), str(java.getMessage() or "")))
        java = java.getCause()
    return found or [Cause(type(error).__name__, str(error))]


def passes(chain: Sequence[Cause]) -> bool:
    """Whether it may well succeed if tried again. What Spark has a name for is about the data or the statement."""
    if any(kind.startswith(_PASSING_CLASSES) for kind, _ in chain):
        return True
    if any(word in message for _, message in chain for word in _PASSING_WORDS):
        return True
    return not any(cause.conditions for cause in chain)


def said(chain: Sequence[Cause]) -> str:
    """One line: the innermost message that Spark has a name for, or else the innermost that says anything."""
    told = [cause for cause in chain if cause.message.strip()]
    if not told:
        return chain[-1].kind.rpartition(".")[2]
    cause = next((one for one in reversed(told) if one.conditions), told[-1])
    if _NAMELESS.search(cause.message):
        return f"[{cause.conditions[0]}] Delta says no more than this"
    line = " ".join(_END.split(cause.message.strip())[0].split())
    return (line if cause.conditions else f"{cause.kind.rpartition('.')[2]}: {line}")[:_LENGTH]

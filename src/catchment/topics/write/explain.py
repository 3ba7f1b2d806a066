"""What a failed Spark job comes down to: one line, without a stack trace and without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from catchment.config.secret import HIDDEN
from catchment.errors import BrokerError, CatchmentError
from catchment.spark.failures import Cause
from catchment.topics import jaas
from catchment.topics.work import Work

_LOST = ("OffsetOutOfRangeException", "Some data may have been lost", "Cannot fetch records in [")
_SECRET = re.compile(r"password|passphrase|secret|key|token|jaas|credential|sasl|auth|certificate", re.IGNORECASE)
_QUOTED = re.compile(r'"([^"]+)"')
_STACK = re.compile(r"^\s+at [\w.$/]+\(|^Driver stacktrace|^JVM stacktrace|^Caused by: ", re.MULTILINE)
_TASK = re.compile(r".*?(?:most recent failure: )?Lost task [^)]*\)(?: \([^)]*\))?: ", re.DOTALL)
_NAMED = re.compile(r"^(?:[\w$]+\.)+([\w$]+): ")  # a message that begins with another exception's class
_PYTHON = "Traceback (most recent call last)"
_LENGTH = 400


def explained(chain: Sequence[Cause], works: Sequence[Work], settings: Mapping[str, str]) -> CatchmentError:
    """The error to raise: BrokerError for what Kafka did, and a plain one for the rest."""
    ranges = "; ".join(str(work) for work in works[:3]) + (f" and {len(works) - 3} more" if len(works) > 3 else "")
    text = "\n".join(f"{kind}: {message}" for kind, message in chain)
    said = hidden(_said(chain), settings)
    if any(mark in text for mark in _LOST):
        return BrokerError(
            f"Kafka does not have all messages of {ranges}: {said}",
            hint="nothing of it was committed; 'catchment topics status' says what Kafka still has",
        )
    if _PYTHON not in text and "org.apache.kafka." in text:
        hint = "nothing was committed, and it is tried again; check brokers and kafka in the config if it stays so"
        return BrokerError(f"Kafka did not give {ranges}: {said}", hint=hint)
    return CatchmentError(f"{ranges} could not be written: {said}", hint="nothing was committed, and it is tried again")


def _said(chain: Sequence[Cause]) -> str:
    """The one line that tells the most: the innermost message, or the last line of a Python traceback."""
    for kind, message in reversed(chain):
        if _PYTHON in message:
            lines = _STACK.split(message[message.rindex(_PYTHON) :])[0].strip().splitlines()
            return lines[-1].strip()[:_LENGTH]
        line = " ".join(_STACK.split(_TASK.sub("", message, count=1))[0].split())
        if line:
            named = _NAMED.sub(r"\1: ", line, count=1)
            return (named if named != line else f"{kind.rpartition('.')[2]}: {line}")[:_LENGTH]
    return chain[-1][0].rpartition(".")[2]


def hidden(text: str, settings: Mapping[str, str]) -> str:
    """The text without the values of settings that look secret, nor what these quote (JAAS)."""
    secret = [value for name, value in settings.items() if _SECRET.search(name)]
    for value in sorted({*secret, *(part for one in secret for part in _inside(one))}, key=len, reverse=True):
        text = text.replace(value, HIDDEN) if value else text
    return text


def _inside(value: str) -> list[str]:
    """What a JAAS line says, as it is written there and as it is meant: without quotes and escapes."""
    try:
        return [*_QUOTED.findall(value), *jaas.options(value).values()]
    except ValueError:
        return _QUOTED.findall(value)

"""The one tree of errors. Each says what happened, where, and what to do next.

    CatchmentError
    ├── ConfigError            the configuration is wrong: every problem, with the path of its key
    ├── UsageError             a command or a call was given something it cannot take
    ├── SetupError             a part outside Catchment is missing: Java, a jar, an extra
    ├── BucketError            the bucket did not do what it was asked
    │   ├── NotFound           no such key (or no such version of it)
    │   ├── Conflict           a precondition did not hold: somebody else was first
    │   ├── BadKey             a key or tag that this bucket cannot hold; nothing was sent
    │   ├── Unsupported        this store cannot do that at all
    │   ├── Denied             credentials missing, wrong or too weak; a read-only store
    │   ├── BucketMissing      the bucket itself is not there: never the same as an empty one
    │   ├── StorageFull        no space: the old object is intact
    │   └── Transient          may well succeed if tried again (retried by the Retrying wrapper)
    │       └── Unreachable    no answer at all: a dead endpoint, a broken connection
    ├── BrokerError            Kafka did not answer, or refused; may well succeed if tried again
    ├── RegistryError          a schema registry did not answer, or refused; may well succeed if tried again
    ├── ExportStopped          an export cannot go on until a person has acted: says what to run
    ├── DamagedArchive         an archive of a feed cannot be read to its end
    └── LeaseLost              somebody else took over: stop, and write nothing more

Only the command line knows exit codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class CatchmentError(Exception):
    """Whatever Catchment raises on purpose. `message` says what happened; `hint` says what to do next."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a configuration."""

    path: str  # of the key: feeds[0].periodicity; empty for the file as a whole
    message: str  # what is wrong, and what to write instead

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ConfigError(CatchmentError):
    """The configuration is wrong. `problems` holds all that was found, not just the first."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        noun = "problem" if len(self.problems) == 1 else "problems"
        super().__init__(f"{source}: {len(self.problems)} {noun}{lines}")


class UsageError(CatchmentError):
    """A command or a call was given something it cannot take."""


class SetupError(CatchmentError):
    """A part outside Catchment is missing."""


class BucketError(CatchmentError):
    """The bucket did not do what it was asked. `key` is the one in question, or empty."""

    def __init__(self, message: str, *, key: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.key = key

    @property
    def unreadable(self) -> bool:
        """Whether the bucket did its part, and what it gave cannot be understood. Else the trouble is its own."""
        return type(self) is BucketError


class NotFound(BucketError):
    """No such key, or no such version of it."""


class Conflict(BucketError):
    """A precondition did not hold. On a compare-and-set, read back before believing it (`bucket.swap` does)."""


class BadKey(BucketError):
    """A key, tag or body that this bucket cannot hold. Nothing was sent."""


class Unsupported(BucketError):
    """This store cannot do that at all."""


class Denied(BucketError):
    """Credentials missing, wrong or too weak, or a read-only store."""


class BucketMissing(BucketError):
    """The bucket itself is not there. Never reported as an empty one."""


class StorageFull(BucketError):
    """No space left. The object that was there before is intact."""


class Transient(BucketError):
    """May well succeed if tried again."""


class Unreachable(Transient):
    """No answer at all."""


class LeaseLost(CatchmentError):
    """Somebody else took over. Stop, and write nothing more under this lease."""


class BrokerError(CatchmentError):
    """Kafka did not answer, or refused what was asked. Nothing was written; it may well succeed if tried again."""


class RegistryError(CatchmentError):
    """A schema registry did not answer, or refused what was asked. Nothing was written; it may well succeed later."""


class ExportStopped(CatchmentError):
    """An export of one Kafka partition (or topic) cannot go on without losing or mixing data. `hint` is what to run."""


class DamagedArchive(CatchmentError):
    """An archive of a feed cannot be read to its end. `source` is the key or the file."""

    def __init__(self, message: str, *, source: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.source = source

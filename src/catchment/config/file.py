"""Files that say what a part of the lake means: an Avro schema, a set of Protobuf descriptors.

What counts is what is in them. A file is read when it is first needed, and once: what is done with it and what is
recorded of it are the same, whatever becomes of the file meanwhile. Executors, which do not have it, get its content.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo

from catchment.config.names import local_path
from catchment.errors import UsageError

MOST = 64_000_000  # bytes


class LocalFile:
    """A file of this machine. When it is pickled, its content goes along."""

    __slots__ = ("_content", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._content: bytes | None = None

    def read_bytes(self) -> bytes:
        """The content. UsageError if it cannot be had."""
        if self._content is None:
            try:
                with self.path.open("rb") as file:
                    content = file.read(MOST + 1)
            except OSError as error:
                why = error.strerror or type(error).__name__
                raise UsageError(f"{self.path} cannot be read ({why})", hint="correct its path, or bring it") from None
            if len(content) > MOST:
                raise UsageError(f"{self.path} has more than {MOST:,} bytes", hint="is it the right file?")
            self._content = content
        return self._content

    def read_text(self) -> str:
        """The content as text. UsageError if it cannot be had, or is none."""
        try:
            return self.read_bytes().decode()
        except UnicodeDecodeError:
            raise UsageError(f"{self.path} is not text (UTF-8)", hint="is it the right file?") from None

    def digest(self) -> str:
        """What stands for the content in a definition."""
        return hashlib.sha256(self.read_bytes()).hexdigest()

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"LocalFile({str(self.path)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalFile) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __getstate__(self) -> tuple[Path, bytes]:
        return self.path, self.read_bytes()

    def __setstate__(self, state: tuple[Path, bytes]) -> None:
        self.path, self._content = state


def _local_file(raw: object, info: ValidationInfo) -> LocalFile:
    return raw if isinstance(raw, LocalFile) else LocalFile(local_path(raw, info))


FileOf = Annotated[LocalFile, BeforeValidator(_local_file), PlainSerializer(str, return_type=str, when_used="json")]

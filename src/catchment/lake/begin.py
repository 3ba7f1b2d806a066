"""`catchment init`: a first configuration, with everything explained in it."""

from __future__ import annotations

from pathlib import Path

from catchment.config import sample_text
from catchment.errors import UsageError


def begin(path: Path, *, force: bool = False) -> Path:
    """Write the annotated sample to a path that nothing is at yet (or over it, with force). Returns the path."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint=f"name the file too, for example {path / 'catchment.yaml'}")
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(sample_text())
    except FileExistsError:
        raise UsageError(
            f"{path} is there already", hint="choose another path, or write over it with --force"
        ) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint="choose another path") from None
    return path.absolute()

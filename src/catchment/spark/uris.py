"""Where Spark finds what is in the bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from catchment.config.storage import Storage


def uri(storage: Storage, key: str) -> str:
    """An object or a folder of this storage, as Hadoop's paths are written: nothing is escaped."""
    inside = f"{storage.prefix}/{key}" if storage.prefix else key
    return f"s3a://{storage.bucket}/{inside}" if storage.bucket else f"file://{storage.absolute}/{inside}"

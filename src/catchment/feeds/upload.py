"""Bringing an archive from the workspace into a bucket: one request."""

from __future__ import annotations

from pathlib import Path

from catchment.bucket.contract import Bucket, Stat
from catchment.errors import UsageError
from catchment.feeds.names import Archive


def upload(bucket: Bucket, path: Path) -> Stat:
    """Put a packed archive where it belongs. Safe to repeat: its name is its content. The file stays.

    Only when this has returned for every storage may the file be removed. An hour that was deleted on purpose is
    uploaded to as well; reconciling it, which always follows, removes the archive again.
    """
    archive = Archive.parse_name(path.name)
    if archive is None or archive.hash is None:
        raise UsageError(
            f"{path} is not named like an archive (<feed>_<hour>_<hash>.tar.<ext>)",
            hint="pack it with catchment, or move it out of the workspace's archives",
        )
    return bucket.put(archive.key, path)

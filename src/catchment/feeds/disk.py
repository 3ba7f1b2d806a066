"""Trouble with the disk below the workspace, in words of ours."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from catchment.errors import CatchmentError, StorageFull


@contextmanager
def writing(folder: Path | str) -> Iterator[None]:
    """Turn an OSError into StorageFull or a CatchmentError. Never into NotFound: that would speak of the bucket."""
    try:
        yield
    except OSError as error:
        what = f"{folder} cannot be written: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StorageFull(what, hint="free some space; what was there before is intact") from error
        raise CatchmentError(what, hint="check the folder and the disk it is on; nothing was lost") from error

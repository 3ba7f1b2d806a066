"""Requests that an hour of a feed needs on a real S3 server."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from catchment.bucket.contract import Support
from catchment.bucket.s3 import S3Bucket
from catchment.bucket.wrap import Counts
from catchment.feeds.archive import pack
from catchment.feeds.names import Compression, Download, Hour, body_hash
from catchment.feeds.reconcile import rules
from catchment.feeds.scratch import scratch
from catchment.feeds.settle import settle
from catchment.feeds.upload import upload
from catchment.testing.s3 import s3_server

HOUR = Hour(datetime(2026, 1, 1, tzinfo=UTC))
ALL = Support(absent=True, matches=True, tags=True, versions=True)


def packed(folder: Path, replica: int) -> Path:
    """An archive of sixty downloads, as one replica makes it."""
    files = []
    for minute in range(60):
        body = f"minute {minute}".encode()
        moment = HOUR.start + timedelta(minutes=minute, milliseconds=replica)
        path = folder / str(replica) / Download("feed", moment, body_hash(body)).name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        files.append(path)
    done = pack(files, folder, feed="feed", hour=HOUR, compression=Compression.ZSTD)
    assert done is not None
    return done.path


def main() -> None:
    with s3_server() as server, tempfile.TemporaryDirectory(prefix="catchment-bench-") as name:
        folder = Path(name)
        archives = [packed(folder, replica) for replica in range(3)]
        for algorithm in ("hashed", "primary"):
            counts = Counts()
            bucket = server.bucket(server.fresh_bucket(), on_request=counts.add)
            given = rules(algorithm, Compression.ZSTD, ALL, place="bench")

            def used(what: str, do: Callable[[], object], counts: Counts = counts, algorithm: str = algorithm) -> None:
                before = counts.total
                do()
                print(f"{algorithm}: {what}: {counts.total - before} requests", flush=True)

            with closing(bucket):

                def reconcile(bucket: S3Bucket = bucket, given: object = given) -> None:
                    settle(bucket, "feed", HOUR, given, scratch(folder))  # type: ignore[arg-type]

                used("upload of one archive", lambda bucket=bucket: upload(bucket, archives[0]))  # type: ignore[misc]
                for path in archives[1:]:
                    upload(bucket, path)
                used("reconcile of an hour with three archives", reconcile)
                used("reconcile of a settled hour", reconcile)


if __name__ == "__main__":
    main()

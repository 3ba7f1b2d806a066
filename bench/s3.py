"""Requests that common work needs on a real S3 server."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from catchment.bucket.swap import read, swap
from catchment.bucket.wrap import Counts
from catchment.testing.s3 import s3_server

KEYS = 10_000


def main() -> None:
    counts = Counts()
    with s3_server() as server:
        bucket = server.bucket(server.fresh_bucket(), on_request=counts.add)

        def used(what: str, do: Callable[[], object]) -> None:
            before = counts.total
            do()
            print(f"{what}: {counts.total - before} requests", flush=True)

        with closing(bucket):
            used("put one object", lambda: bucket.put("one", b"x"))
            used("put one object with tags", lambda: bucket.put("tagged", b"x", tags={"a": "1"}))
            used("read one document", lambda: read(bucket, "doc"))
            used("change one document by compare-and-set", lambda: swap(bucket, read(bucket, "doc"), {"n": 1}))
            with ThreadPoolExecutor(16) as pool:
                list(pool.map(lambda n: bucket.put(f"many/{n:05d}", b""), range(KEYS)))
            used(f"list {KEYS} keys", lambda: list(bucket.list("many/")))


if __name__ == "__main__":
    main()

"""From a declared object storage to a bucket, wrapped as every bucket in production is."""

from __future__ import annotations

from catchment.bucket.wrap import Counting, Counts, Retrying
from catchment.config.storage import Storage


def open_bucket(storage: Storage, *, create: bool = True, retry: bool = True) -> Counting:
    """The bucket behind this storage, counted and retried. Nothing is asked of a server yet.

    create: make a local directory whose parent is there. retry: False to hear at once that something is down.
    """
    if storage.path is not None:
        from catchment.bucket.local import LocalBucket

        below = storage.path.parent if create else None
        root = storage.path / storage.prefix
        return Counting(LocalBucket(root, keep_versions=storage.versions, create_below=below))

    from catchment.bucket.s3 import S3Bucket  # boto3 takes a third of a second to import

    counts = Counts()
    bucket = S3Bucket(
        storage.bucket or "",
        prefix=storage.prefix,
        endpoint_url=storage.endpoint_url,
        region_name=storage.region_name,
        service_name=storage.service_name,
        access_key=storage.aws_access_key_id.reveal() if storage.aws_access_key_id else None,
        secret_key=storage.aws_secret_access_key.reveal() if storage.aws_secret_access_key else None,
        timeout=60.0 if retry else 5.0,
        on_request=counts.add,
    )
    return Counting(Retrying(bucket) if retry else bucket, counts, calls=False)

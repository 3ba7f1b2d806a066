"""What each failure of S3 is taken for."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ReadTimeoutError

from catchment import errors
from catchment.bucket.s3_errors import explain


def answer(code: str, status: int) -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": "words"}, "ResponseMetadata": {"HTTPStatusCode": status}},  # type: ignore[typeddict-item]
        "PutObject",
    )


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("NoSuchKey", 404, errors.NotFound),
        ("404", 404, errors.NotFound),
        ("NoSuchVersion", 404, errors.NotFound),
        ("NoSuchBucket", 404, errors.BucketMissing),
        ("SomethingElseThatIsNotThere", 404, errors.BucketError),
        ("PreconditionFailed", 412, errors.Conflict),
        ("412", 412, errors.Conflict),
        ("ConditionalRequestConflict", 409, errors.Transient),
        ("OperationAborted", 409, errors.Transient),
        ("409", 409, errors.Transient),
        ("ObjectParentIsFile", 409, errors.BadKey),
        ("BucketNotEmpty", 409, errors.BucketError),
        ("AccessDenied", 403, errors.Denied),
        ("403", 403, errors.Denied),
        ("InvalidAccessKeyId", 403, errors.Denied),
        ("SignatureDoesNotMatch", 403, errors.Denied),
        ("ExpiredToken", 400, errors.Denied),
        ("SlowDown", 503, errors.Transient),
        ("InternalError", 500, errors.Transient),
        ("ServiceUnavailable", 503, errors.Transient),
        ("502", 502, errors.Transient),
        ("429", 429, errors.Transient),
        ("NotImplemented", 501, errors.Unsupported),
        ("MalformedXML", 400, errors.BucketError),
        ("QuotaExceeded", 403, errors.StorageFull),
    ],
)
def test_kind(code: str, status: int, kind: type[errors.BucketError]) -> None:
    error = explain(answer(code, status), where="s3://lake", key="a/b")
    assert type(error) is kind
    assert "a/b" in str(error)
    assert "s3://lake" in str(error)


def test_a_key_that_is_gone_under_if_match_is_a_conflict() -> None:
    assert type(explain(answer("NoSuchKey", 404), where="s3://lake", key="k", conditional=True)) is errors.Conflict
    assert type(explain(answer("NoSuchBucket", 404), where="l", key="k", conditional=True)) is errors.BucketMissing


def test_the_mark_of_a_delete_is_nothing_to_read() -> None:
    for operation, kind in (("GetObjectTagging", errors.NotFound), ("PutObject", errors.Unsupported)):
        error = answer("MethodNotAllowed", 405)
        error.operation_name = operation
        assert type(explain(error, where="s3://lake", key="k")) is kind


def test_a_bare_404_to_a_listing_is_a_missing_bucket_and_never_an_empty_one() -> None:
    assert type(explain(answer("404", 404), where="s3://lake")) is errors.BucketMissing


def test_no_answer_can_be_tried_again() -> None:
    for error in (EndpointConnectionError(endpoint_url="http://x"), ReadTimeoutError(endpoint_url="http://x")):
        assert isinstance(explain(error, where="s3://lake"), errors.Unreachable)


def test_missing_credentials_cannot() -> None:
    error = explain(NoCredentialsError(), where="s3://lake")
    assert type(error) is errors.Denied
    assert "credentials" in error.hint

"""What an S3 failure means: which of our errors it is, and what a person can do about it. Pure."""

from __future__ import annotations

from typing import Any

from catchment.errors import (
    BadKey,
    BucketError,
    BucketMissing,
    Conflict,
    Denied,
    NotFound,
    StorageFull,
    Transient,
    Unreachable,
    Unsupported,
)

_DENIED = "check the credentials (aws_access_key_id, aws_secret_access_key, or the environment) and what they may do"
_BY_CODE: dict[str, tuple[type[BucketError], str, str]] = {
    "NoSuchBucket": (BucketMissing, "does not exist", "create it, or correct `bucket` in object_storage"),
    "NoSuchKey": (NotFound, "no such key", ""),
    "NoSuchVersion": (NotFound, "no such version", ""),
    "NoSuchUpload": (Transient, "the upload was aborted by the server", ""),
    "PreconditionFailed": (Conflict, "somebody else was first", ""),
    "ConditionalRequestConflict": (Transient, "a concurrent write got in the way", ""),
    "ObjectParentIsFile": (
        BadKey,
        "a key above or below it is an object here",
        "this store cannot hold both a and a/b",
    ),
    "OperationAborted": (Transient, "a concurrent operation got in the way", ""),
    "AccessDenied": (Denied, "access denied", _DENIED),
    "InvalidAccessKeyId": (Denied, "the access key is not known there", _DENIED),
    "XAdminUserNotFound": (Denied, "the access key is not known there", _DENIED),  # versitygw's word for it
    "SignatureDoesNotMatch": (Denied, "the secret key does not fit the access key", _DENIED),
    "ExpiredToken": (Denied, "the session token has expired", "get new credentials"),
    "RequestTimeTooSkewed": (Denied, "this machine's clock is too far off", "set the clock"),
    "AuthorizationHeaderMalformed": (Denied, "the signature is for another region", "correct `region_name`"),
    "PermanentRedirect": (Denied, "the bucket is in another region", "correct `region_name` or `endpoint_url`"),
    "MethodNotAllowed": (Unsupported, "the store does not allow this", ""),
    "NotImplemented": (Unsupported, "the store cannot do this", ""),
    "QuotaExceeded": (StorageFull, "quota reached", "free some space; what was there before is intact"),
    "StorageFull": (StorageFull, "no space left", "free some space; what was there before is intact"),
    "KeyTooLongError": (BadKey, "the key is too long with its prefix", "shorten the prefix or the key"),
    "InvalidBucketName": (BadKey, "is not a bucket name", "correct `bucket` in object_storage"),
    "InvalidTag": (BadKey, "a tag is not acceptable", ""),
    "EntityTooLarge": (BadKey, "the body is too large for this store", ""),
    "SlowDown": (Transient, "the store asks to slow down", ""),
    "RequestTimeout": (Transient, "the store timed out", ""),
}
_BY_STATUS: dict[int, str] = {
    301: "PermanentRedirect",
    401: "AccessDenied",
    403: "AccessDenied",
    404: "NoSuchKey",
    405: "MethodNotAllowed",
    409: "ConditionalRequestConflict",
    412: "PreconditionFailed",
    429: "SlowDown",
    501: "NotImplemented",
    507: "StorageFull",
}
_ON_A_VERSION = (
    "GetObject",
    "HeadObject",
    "CopyObject",
    "GetObjectTagging",
    "PutObjectTagging",
    "DeleteObjectTagging",
)
_BARE = ("404", "NotFound", "409", "Conflict", "")  # what an answer without a body is given as


def explain(
    error: Exception, *, where: str, key: str = "", version: str | None = None, conditional: bool = False
) -> BucketError:
    """The BucketError that this failure of botocore is."""
    subject = f"{key} in {where}" if key else where
    answer: dict[str, Any] | None = getattr(error, "response", None)
    if answer is None or "Error" not in answer:
        return _without_answer(error, subject, key)
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code = str(answer["Error"].get("Code", ""))
    if code in ("InvalidArgument", "BadRequest", "400", "InvalidRequest") and version is not None:
        code = "NoSuchVersion"  # what servers say to a version id that is not even of their form
    if code in ("MethodNotAllowed", "405") and key and getattr(error, "operation_name", "") in _ON_A_VERSION:
        code = "NoSuchKey"  # what servers say of a version that is the mark of a delete
    # An unknown code with 404 or 409 is some other thing that is not there, or some other conflict.
    if code not in _BY_CODE and (status not in (404, 409) or code in _BARE):
        code = _BY_STATUS.get(status, code)
    if code == "NoSuchKey" and not key:
        code = "NoSuchBucket"  # nothing but the bucket was asked for
    if code == "NoSuchKey" and conditional:
        code = "PreconditionFailed"  # if-match on a key that is gone
    if code in _BY_CODE:
        kind, what, hint = _BY_CODE[code]
        return kind(f"{subject}: {what}", key=key, hint=hint)
    message = f"{subject}: {code or status} {answer['Error'].get('Message', '')}".strip()
    return (Transient if status >= 500 else BucketError)(message, key=key)


def _without_answer(error: Exception, subject: str, key: str) -> BucketError:
    name = type(error).__name__
    if name in ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound"):
        return Denied(f"{subject}: no credentials", key=key, hint=_DENIED)
    if name in ("ParamValidationError", "InvalidEndpointDiscoveryConfigurationError", "UnknownServiceError"):
        return BadKey(f"{subject}: {error}", key=key, hint="correct object_storage")
    if isinstance(error, ValueError):
        return BadKey(f"{subject}: {error}", key=key, hint="correct `endpoint_url` in object_storage")
    return Unreachable(
        f"{subject}: no answer ({name})", key=key, hint="check `endpoint_url`, and that the server is up and reachable"
    )

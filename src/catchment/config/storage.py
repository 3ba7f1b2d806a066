"""object_storage: where the lake is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from catchment.config.fields import CountOrZero, Flag, choice, of_pattern, of_text
from catchment.config.maps import SecretText
from catchment.config.names import Endpoint, Id, Line, LocalPath, check_prefix
from catchment.config.secret import Secret
from catchment.config.section import Loc, Section, refuse

Bucket = Annotated[
    str,
    BeforeValidator(
        of_text(
            of_pattern(
                r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}",
                "is not the name of a bucket",
                "write the bare name; what comes after s3://name/ goes into prefix",
            )
        )
    ),
]
StoragePrefix = Annotated[str, BeforeValidator(of_text(lambda text: check_prefix(text) if text else ""))]
_ONLY_WITH_BUCKET = ("service_name", "region_name", "endpoint_url", "aws_access_key_id", "aws_secret_access_key")


class Storage(Section):
    """A bucket of S3 (or of whatever speaks it), or a local directory. Feeds go to every storage."""

    id: Id = Field(examples=["main"])
    bucket: Bucket | None = None  # S3; or
    path: LocalPath | None = None  # a local directory, as an absolute path
    prefix: StoragePrefix = ""  # before every key, followed by a slash
    reconciliation_algorithm: Annotated[Literal["hashed", "primary"], choice("hashed", "primary")] = "hashed"
    service_name: Annotated[Literal["s3"], choice("s3")] = "s3"
    region_name: Line | None = None
    endpoint_url: Endpoint | None = None  # None: AWS itself
    aws_access_key_id: SecretText | None = None  # None: the usual chain (environment, profile, role)
    aws_secret_access_key: SecretText | None = None
    state: Flag = False  # whether topics, tables, pipelines and _catchment/ live here
    versions: CountOrZero = 20  # how many old versions of each key a local directory keeps; 0: none

    @property
    def place(self) -> tuple[str, str, str]:
        """What makes two storages the same place."""
        return (str(self.absolute or ""), f"{self.endpoint_url or ''}/{self.bucket or ''}", self.prefix)

    @model_validator(mode="after")
    def _bucket_or_path(self) -> Self:
        given = self.model_fields_set
        found: list[tuple[Loc, str]] = []
        if self.bucket is None and self.path is None:
            found.append((("bucket",), "missing; write 'bucket: name', or 'path: ./lake' for a local directory"))
        if self.bucket is not None and self.path is not None:
            found.append((("path",), "a storage is a bucket or a local directory; remove bucket or path"))
        if self.bucket is None and self.path is not None:
            found += [
                ((key,), "means nothing for a local directory; remove it, or write bucket instead of path")
                for key in _ONLY_WITH_BUCKET
                if key in given
            ]
        if self.path is None and "versions" in given:
            found.append(
                (("versions",), "is for a local directory; remove it, and switch on versioning of the bucket itself")
            )
        for key, other in (_ONLY_WITH_BUCKET[3:5], _ONLY_WITH_BUCKET[:2:-1]):
            if getattr(self, key) is None and isinstance(getattr(self, other), Secret):
                found.append(((key,), f"missing while {other} is given; give both, or neither to use the usual chain"))
        refuse(found)
        return self

    @property
    def absolute(self) -> Path | None:
        """The local directory without links or dots, for comparing places."""
        return self.path.resolve() if self.path else None

"""spark, monitoring, events and lineage: what runs beside the rooms."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from catchment.config.fields import Flag, Period, Port, of_text
from catchment.config.maps import Headers, SecretText, Settings
from catchment.config.names import Brokers, Host, HttpUrl, Line, LocalPath
from catchment.config.section import Section, Wrong, refuse

_MASTER = re.compile(
    r"local(\[(\*|[1-9][0-9]*)(,\s*[0-9]+)?\])?"
    r"|local-cluster\[\s*[1-9][0-9]*\s*,\s*[1-9][0-9]*\s*,\s*[1-9][0-9]*\s*\]"
    r"|spark://[^\s/]+|yarn|k8s://\S+",
    re.ASCII,
)


def _master(text: str) -> str:
    if not _MASTER.fullmatch(text):
        raise Wrong("is not a Spark master", "write local[*], spark://host:7077, yarn or k8s://https://host:port")
    return text


class Spark(Section):
    """Where Spark runs, and its own settings."""

    master: Annotated[str, BeforeValidator(of_text(_master))] = "local[*]"
    conf: Settings = Field(default_factory=dict)  # Spark's properties; those that look secret are hidden

    @model_validator(mode="after")
    def _names(self) -> Self:
        refuse(
            (("conf", name), "is not a Spark property; write its whole name, as in spark.executor.memory")
            for name in self.conf
            if not name.startswith("spark.")
        )
        return self


class Monitoring(Section):
    """The web pages and metrics, and how long the detail of what happened is kept. Totals are kept for good."""

    port: Port = 8080
    bind: Host = "127.0.0.1"  # only this machine, unless told otherwise
    keep: Period = timedelta(hours=72)


class KafkaEvents(Section):
    """The bucket's notifications, read from a Kafka topic."""

    brokers: Brokers = Field(examples=["localhost:9092"])
    topic: Line = Field(examples=["bucket-events"])
    kafka: Settings = Field(default_factory=dict)


class WebhookEvents(Section):
    """The bucket's notifications, posted to us."""

    port: Port = Field(examples=[8090])
    bind: Host = "127.0.0.1"
    token: SecretText | None = None  # expected as 'Authorization: Bearer <token>'


class SqsEvents(Section):
    """The bucket's notifications, read from a queue. Credentials are those of the state storage."""

    queue_url: HttpUrl = Field(examples=["https://sqs.eu-west-1.amazonaws.com/123456789012/lake"])
    region_name: Line | None = None


class Events(Section):
    """How changes in the bucket are noticed at once. A scan finds what events missed, so all may be left out."""

    scan: Period = timedelta(minutes=15)
    local: Flag = True  # watch the files of a local directory
    kafka: KafkaEvents | None = None
    webhook: WebhookEvents | None = None
    sqs: SqsEvents | None = None


class OpenLineage(Section):
    """Where OpenLineage events go. Sending them never fails a run."""

    url: HttpUrl | None = None  # an HTTP endpoint; or
    file: LocalPath | None = None  # a file that events are appended to, one a line
    headers: Headers = Field(default_factory=dict)
    namespace: Line = "catchment"
    timeout: Period = timedelta(seconds=5)

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.url is None) == (self.file is None):
            refuse([(("url",), "events go to one place; write either url or file")])
        return self


class Lineage(Section):
    """Lineage is kept in the lake in any case; this is for those who want it elsewhere too."""

    openlineage: OpenLineage | None = None

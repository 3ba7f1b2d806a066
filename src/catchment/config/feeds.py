"""feeds and collector: which URLs are polled, and how the process that polls them behaves."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from catchment.config.fields import Count, FeedPeriod, Period, Port, Share, Size, choice
from catchment.config.maps import Headers
from catchment.config.names import HttpUrl, Id, Postfix
from catchment.config.section import Section

Compression = Literal["gzip", "zstd", "bzip2", "xz"]


class Feed(Section):
    """One URL, fetched again and again."""

    id: Id = Field(examples=["subway"])
    url: HttpUrl = Field(examples=["https://www.example.com/feed"])  # `str` of it leaves out what may be secret
    periodicity: FeedPeriod = Field(examples=["5s"])  # at most an hour, since each hour must have its first download
    postfix: Postfix = ""  # the end of a download's file name
    headers: Headers = Field(default_factory=dict)
    compression: Annotated[Compression, choice("gzip", "zstd", "bzip2", "xz")] = "gzip"  # of archives
    timeout: Period = timedelta(seconds=10)  # for one request as a whole
    max_body: Size = 50_000_000  # a larger body is an error, and is not stored


class Collector(Section):
    """The process behind `catchment feeds collect`."""

    per_host: Count = 4  # requests to one host at the same time
    disk_high_water: Share = 0.95  # polling pauses while the workspace's disk is fuller than this
    shutdown_port: Port | None = None  # on loopback only; None: no such server
    shutdown_deadline: Period = timedelta(seconds=60)  # from the signal to the end, whatever the feeds do

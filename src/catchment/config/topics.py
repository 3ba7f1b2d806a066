"""topics: what is read from Kafka, and the exports that are made of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from catchment import units
from catchment.config.decode import DecodeOf, Format, FormatOf, Split
from catchment.config.fields import (
    Count,
    Flag,
    Many,
    Moment,
    OneOrMany,
    Period,
    Share,
    Size,
    Wait,
    choice,
    of_text,
    quoted,
)
from catchment.config.maps import Settings
from catchment.config.names import Brokers, Id, Line, Prose
from catchment.config.secret import revealed
from catchment.config.section import Loc, Section, Wrong, refuse

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_SPLIT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}", re.ASCII)
_OWNED_SETTINGS = {
    "bootstrap.servers": "write it as brokers",
    "group.id": "Catchment keeps its offsets in the bucket; remove it",
    "enable.auto.commit": "Catchment keeps its offsets in the bucket; remove it",
    "auto.offset.reset": "write it as start",
}


def _topic_pattern(text: str) -> str:
    if text in (".", ".."):
        raise Wrong("is not the name of a topic", "write a name or a regular expression")
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        raise Wrong(
            "is neither a topic's name nor a regular expression", "write events, or events_.* for several"
        ) from None
    if not text or text != text.strip():
        raise Wrong("is empty, or has spaces at its ends", "write a topic's name, or a regular expression")
    return text


TopicPattern = Annotated[str, BeforeValidator(of_text(_topic_pattern))]


def is_name(pattern: str) -> bool:
    """Whether it is one topic's name. All of a name's characters, dots too, then mean themselves."""
    return _NAME.fullmatch(pattern) is not None


def pattern_matches(pattern: str, topic: str) -> bool:
    """Whether a name or a regular expression means this whole topic name."""
    return pattern == topic if is_name(pattern) else re.fullmatch(pattern, topic) is not None


def _start(raw: object) -> object:
    if not isinstance(raw, str):
        return raw
    if raw in ("earliest", "latest"):
        return {"position": raw}
    try:
        return {"time": units.parse_time(raw)}
    except ValueError:
        advice = f"write earliest, latest, a time as in 2026-11-15T08:00:00Z, or {{group: name}}; {units.TIME_FORM}"
        raise Wrong(f"{quoted(raw)} is not a start", advice) from None


class Start(Section):
    """Where an export begins that has no committed range yet. Exactly one of the three is given."""

    position: Annotated[Literal["earliest", "latest"], choice("earliest", "latest")] | None = None
    time: Moment | None = None
    group: Line | None = None  # take over the offsets of a consumer group

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(value is not None for value in (self.position, self.time, self.group)) != 1:
            refuse([((), "needs one place; write earliest, latest, a time, or {group: name}")])
        return self


class Policy(Section):
    """When a range is cut: as soon as one of the limits is reached."""

    max_age: Period = timedelta(minutes=5)
    max_bytes: Size = 128_000_000
    max_messages: Count = 1_000_000
    align: Flag = False  # cut on the clock: at every multiple of max_age since midnight UTC

    @model_validator(mode="after")
    def _even(self) -> Self:
        if self.align and timedelta(days=1) % self.max_age:
            refuse(
                [(("max_age",), "does not divide a day evenly, as align needs; write 5m, 15m or 1h, or align: false")]
            )
        return self


class Finalize(Section):
    """When a day (or hour) is closed with _SUCCESS, and what happens to what comes later."""

    lateness: Wait = timedelta(hours=2)
    late: Annotated[Literal["republish", "count"], choice("republish", "count")] = "republish"


class DeadLetters(Section):
    """What could not be decoded goes to _dead/; above this share of a range, the export stops instead."""

    stop_above: Share = 0.01


class Alerts(Section):
    """What `catchment topics status` calls a problem."""

    failed_writes: Share = 0.05  # of the writes of the last hour
    delay: Period = timedelta(minutes=30)  # from the newest committable message to the newest in Kafka
    uncommitted: Count = 5_000_000  # messages claimed and not yet committed


def _split_names(raw: object) -> object:
    if isinstance(raw, Mapping):
        form = "start with a letter, then use letters, digits and '_'"
        refuse(
            ((name,), f"cannot name a folder level and a column; {form}")
            for name in raw
            if not _SPLIT_NAME.fullmatch(name)
        )
    return raw


class Export(Section):
    """One copy of a topic in the lake. Without decode it is a backup: verbatim."""

    group: Id = Field(examples=["events"])
    generation: Count = 1  # raise it when decode, filter, split or format change
    format: FormatOf = Format()
    decode: DecodeOf | None = None
    filter: Prose | None = None  # a SQL condition over the decoded fields; what it is not true for is left out
    split: Annotated[Mapping[str, Split], BeforeValidator(_split_names)] = Field(default_factory=dict)
    policy: Policy = Policy()
    heartbeat: Period = timedelta(minutes=5)
    finalize: Finalize | None = None
    dead_letters: DeadLetters = DeadLetters()
    alerts: Alerts = Alerts()

    @model_validator(mode="after")
    def _needs(self) -> Self:
        found: list[tuple[Loc, str]] = []
        if self.decode is None and self.filter is not None:
            found.append((("filter",), "needs decoded fields; add decode, for example 'decode: json'"))
        if self.decode is None:
            found += [
                (("split", name), "looks into the message; add decode, or split by key, header or timestamp")
                for name, split in self.split.items()
                if split.field is not None
            ]
        if self.finalize is not None and not any(split.by in ("day", "hour") for split in self.split.values()):
            found.append(
                (("finalize",), "closes days or hours; add a split with 'by: day' or 'by: hour', or remove it")
            )
        lowered = [name.lower() for name in self.split]
        found += [
            (("split", name), "differs from another only in case; rename it")
            for name in self.split
            if lowered.count(name.lower()) > 1
        ]
        refuse(found)
        return self


class Topic(Section):
    """The topics of one Kafka cluster that match, and their exports."""

    match: TopicPattern = Field(examples=["events"])  # a name, or a regular expression that matches whole names
    exclude: OneOrMany[TopicPattern] = ()
    brokers: Brokers = Field(examples=["localhost:9092"])
    kafka: Settings = Field(default_factory=dict)  # handed to both clients; those that look secret are hidden
    start: Annotated[Start, BeforeValidator(_start)] = Start(position="earliest")
    discover: Period = timedelta(seconds=30)  # how often new topics and Kafka partitions are looked for
    exports: Many[Export] = Field(examples=["[{group: backup}]"])

    def matches(self, topic: str) -> bool:
        """Whether this topic is exported here."""
        return pattern_matches(self.match, topic) and not any(pattern_matches(out, topic) for out in self.exclude)

    def settings(self) -> dict[str, str]:
        """The client settings as plain text, secrets revealed."""
        return revealed(self.kafka)

    @model_validator(mode="after")
    def _sense(self) -> Self:
        found: list[tuple[Loc, str]] = [
            (("kafka", name), f"is not set here; {_OWNED_SETTINGS[name]}")
            for name in self.kafka
            if name in _OWNED_SETTINGS
        ]
        if not self.exports:
            found.append((("exports",), "is empty; add an export, for example '- group: backup'"))
        if is_name(self.match) and not self.matches(self.match):
            found.append((("exclude",), "leaves out the only topic that match names; remove one of them"))
        refuse(found)
        return self

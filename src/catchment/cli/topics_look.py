"""`catchment topics locate` and `catchment topics show`."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import date, time
from typing import TYPE_CHECKING, Any

import click

from catchment.cli.output import Given, count, options, plain, say
from catchment.cli.values import ids

if TYPE_CHECKING:
    from catchment.topics.locate import Located
    from catchment.topics.show import Shown

TEXT = 2000  # characters of a value that people are shown
BYTES = 32  # bytes of one that is no text

_topic = click.option("--topic", metavar="NAME", help="The Kafka topic.")
_partition = click.option("--kafka-partition", type=click.IntRange(0), metavar="N", help="The Kafka partition.")
_offset = click.option("--offset", type=click.IntRange(0), metavar="N", help="The offset.")
_groups = click.option("--group", "groups", metavar="NAME,…", multiple=True, callback=ids, help="Only these exports.")
_life = click.option(
    "--life", type=click.IntRange(0), metavar="N", help="Of a topic that was made again: 0 is the first. [newest]"
)


@click.command()
@_topic
@_partition
@_offset
@_groups
@_life
@options
def locate(*, given: Given, topic: str | None, kafka_partition: int | None, offset: int | None, **which: Any) -> None:
    """Say which file holds an offset, in every group, from names and manifests alone.

    Of a decoded export several files may be named, because a manifest says from where to where a file goes, and not
    what is in between: 'catchment topics show' looks into them. Exit status 1 if no group has the offset.
    """
    asked = _asked(topic, kafka_partition, offset)
    with given.lake() as lake:
        found = lake.topics.locate(*asked, **which)

    def people() -> None:
        for one in found:
            click.echo(_line(one))
            for file in one.files:
                held = f"{count(file.rows, 'row')} from {file.first} to {file.last}, {count(file.size, 'byte')}"
                click.echo(f"  {file.key}  ({held})")

    given.show(found, people)
    if not any(one.found for one in found):
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("key", required=False)
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, help="So many messages at most.")
@click.option("--first-offset", type=click.IntRange(0), metavar="N", help="From this offset on.")
@click.option("--last-offset", type=click.IntRange(0), metavar="N", help="Up to this offset.")
@_topic
@_partition
@_offset
@_groups
@_life
@options
def show(
    *, given: Given, key: str | None, topic: str | None, kafka_partition: int | None, offset: int | None, **how: Any
) -> None:
    """Show the messages of a file (by its KEY in the bucket), or of one offset in every group.

    Any format is read, without Spark. What is not text is shortened for people; with --json all of it is there, as
    {"base64": …}. Exit status 1 if there is no such message.
    """
    with given.lake() as lake:
        if key is not None:
            if any(one is not None for one in (topic, kafka_partition, offset, how["groups"], how["life"])):
                raise click.UsageError("a KEY says it all; leave out --topic, --kafka-partition, --offset and --group")
            found = [lake.topics.show(key, **{name: how[name] for name in ("limit", "first_offset", "last_offset")})]
        else:
            if how["first_offset"] is not None or how["last_offset"] is not None:
                raise click.UsageError("--first-offset and --last-offset go with a KEY; use --offset")
            asked = _asked(topic, kafka_partition, offset)
            found = lake.topics.show_offset(*asked, groups=how["groups"], life=how["life"])

    def people() -> None:
        for one in found:
            _tell(one)

    given.show([_document(one) for one in found], people)
    if not any(one.messages for one in found):
        raise click.exceptions.Exit(1)


def _asked(topic: str | None, kafka_partition: int | None, offset: int | None) -> tuple[str, int, int]:
    if topic is None or kafka_partition is None or offset is None:
        raise click.UsageError("an offset is meant by --topic, --kafka-partition and --offset; give all three")
    return topic, kafka_partition, offset


def _line(one: Located) -> str:
    where = f"{one.group}/{one.topic} Kafka partition {one.kafka_partition}" + (f"r{one.life}" if one.life else "")
    range = f" in [{one.first}, {one.last}], generation {one.generation}" if one.first is not None else ""
    state = "" if one.found else f" {one.state}"
    return f"{where} offset {one.offset}{range}:{state}{' ' if one.why else ''}{one.why}".rstrip(":")


# For programs


def _document(one: Shown) -> dict[str, Any]:
    return {**plain(one), "messages": [_json(message) for message in one.messages]}


def _json(value: Any) -> Any:
    """A value as JSON knows it. Bytes are text if they are UTF-8, and else {"base64": …}."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {str(name): _json(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (date, time)):
        return _time(value)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def _time(value: date | time) -> str:
    return value.isoformat().replace("+00:00", "Z")


# For people


def _tell(one: Shown) -> None:
    if one.key is None:
        say(f"{one.group}/{one.topic} Kafka partition {one.kafka_partition}: {one.note}")
        return
    click.echo(f"{one.key}" + (f"\n  note: {one.note}" if one.note else ""))
    for message in one.messages:
        click.echo("\n".join(_block(message)))
    if one.more:
        say(f"There are more; see them with --limit, or from --first-offset {_offset_of(one.messages[-1])} on.")
    elif not one.messages:
        say("It holds no such message.")


def _offset_of(message: Mapping[str, Any]) -> Any:
    return message.get("_offset", message.get("offset"))


def _block(message: Mapping[str, Any]) -> list[str]:
    """One message, a line for each of its parts."""
    lines = ["", f"offset {_offset_of(message)}"]
    width = max((len(_printable(name)) for name in message), default=0)
    for name, value in message.items():
        if name in ("offset", "_offset") or (name == "timestamp_type" and value is None):
            continue
        if name == "headers" and "_offset" not in message:
            lines += [f"  {'header':{width}}  {_printable(key)}: {_shown(held)}" for key, held in value]
            continue
        text = _shown(value).replace("\n", f"\n  {'':{width}}  ")
        lines.append(f"  {_printable(name):{width}}  {text}")
    return lines


def _shown(value: Any) -> str:
    """A value on a terminal: no control characters, nothing endless."""
    if value is None:
        return "(null)"
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return _hex(value)
        if not text:
            return "(empty)"
        return _short(text, len(value)) if _is_printable(text) else _hex(value)
    if isinstance(value, (Mapping, list, tuple)):
        return _short(_printable(json.dumps(_json(value), ensure_ascii=False)))
    if isinstance(value, (date, time)):
        return _time(value)
    return _short(_printable(str(value)))


def _short(text: str, size: int | None = None) -> str:
    if len(text) <= TEXT:
        return text
    return f"{text[:TEXT]}… ({count(len(text.encode()) if size is None else size, 'byte')})"


def _hex(value: bytes) -> str:
    return f"0x{value[:BYTES].hex()}{'…' if len(value) > BYTES else ''} ({count(len(value), 'byte')})"


def _is_printable(text: str) -> bool:
    return all(one.isprintable() for one in text.replace("\t", "\n").split("\n"))


def _printable(text: str) -> str:
    """With everything escaped that could move the cursor or hide something."""
    return "".join(one if one.isprintable() or one == "\n" else ascii(one)[1:-1] for one in text)

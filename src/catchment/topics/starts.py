"""Where a new export begins."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from catchment.config.topics import Export, Topic
from catchment.errors import BrokerError, ExportStopped
from catchment.topics.kafka import Kafka, Part, TopicInfo
from catchment.topics.names import Place


def starts(kafka: Kafka, config: Topic, export: Export, topic: TopicInfo, *, new: bool = False) -> Mapping[int, int]:
    """The first offset of each Kafka partition, as the configuration says. `new`: all of it, since we saw it begin."""
    parts: list[Part] = [(topic.name, partition) for partition in topic.partitions]
    ends = kafka.ends(parts)
    if set(ends) != set(parts):
        raise BrokerError(f"topic {topic.name} changed while its offsets were asked for", hint="it is tried again")
    start = config.start
    found = {part: one.earliest for part, one in ends.items()}
    if not new and start.position == "latest":
        found = {part: one.end for part, one in ends.items()}
    elif not new and start.time is not None:
        found |= kafka.offsets_at(parts, start.time)
    elif not new and start.group is not None:
        found |= _of_group(kafka, export, start.group, parts)
    return {part[1]: first for part, first in found.items()}


def _of_group(kafka: Kafka, export: Export, group: str, parts: Collection[Part]) -> Mapping[Part, int]:
    """Where a consumer group is. What Kafka no longer has from there on is a gap like any other: never silent."""
    found = kafka.group_offsets(group, parts)
    ends = kafka.ends(parts)  # afterwards: the group goes on meanwhile
    for part, first in sorted(found.items()):
        if part in ends and first > ends[part].end:
            raise ExportStopped(
                f"{Place(export.group, part[0])} Kafka partition {part[1]}: the consumer group {group} is at"
                f" offset {first}, and Kafka's end is {ends[part].end}",
                hint="this passes if a transaction is open; else the group's offsets are of a topic that was made"
                " again since: set start to earliest, latest or a time",
            )
    return found

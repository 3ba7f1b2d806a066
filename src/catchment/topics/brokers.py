"""Asking Kafka brokers whether they are there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from catchment.config.secret import Secret, revealed
from catchment.errors import SetupError


@dataclass(frozen=True)
class BrokerAnswer:
    """What a cluster said of itself."""

    brokers: tuple[str, ...]  # host:port of each, as they want to be reached
    topics: tuple[str, ...]  # names, sorted; without Kafka's own


def ask(brokers: str, settings: Mapping[str, str | Secret], timeout: float) -> BrokerAnswer:
    """Brokers and topics of the cluster behind `brokers` (host:port, …). Changes nothing and starts no JVM.

    SetupError within about `timeout` seconds if none answers, with what the client saw; settings' values are not shown.
    """
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
    except ImportError:
        raise SetupError("the Kafka client is not installed", hint="run: pip install 'catchment[spark]'") from None

    seen: list[str] = []
    wanted: dict[str, Any] = {
        **revealed(settings),
        "bootstrap.servers": brokers,
        "error_cb": lambda error: seen.append(error.str()),
        "log_level": 0,  # it would write to standard error by itself
        "socket.timeout.ms": str(max(10, math.ceil(timeout * 1000))),
        "allow.auto.create.topics": "false",
    }
    try:
        client = AdminClient(wanted)
    except KafkaException as error:
        # Its sentence names the property and, where a value is wrong, may quote the value: only the name is passed on.
        said = str(error.args[0].str())
        names = [name for name in settings if f'"{name}"' in said]
        what = f"the setting {names[0]}" if names else "one of the settings"
        raise SetupError(
            f"the Kafka client does not take {what} for {brokers}", hint="correct it under 'kafka:' in the config"
        ) from None
    try:
        found = client.list_topics(timeout=timeout)
    except KafkaException as error:
        client.poll(0)  # hands over what the client saw meanwhile
        why = seen[-1] if seen else error.args[0].str()
        raise SetupError(
            f"no Kafka broker answers at {brokers} ({why})",
            hint="start it, or correct 'brokers' (and the security settings under 'kafka:') in the config",
        ) from None
    return BrokerAnswer(
        brokers=tuple(sorted(f"{broker.host}:{broker.port}" for broker in found.brokers.values())),
        topics=tuple(sorted(name for name in found.topics if not name.startswith("__"))),
    )

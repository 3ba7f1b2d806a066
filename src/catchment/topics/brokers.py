"""Asking Kafka brokers whether they are there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from catchment.config.secret import Secret, revealed
from catchment.errors import SetupError
from catchment.topics.client import configuration, made, missing


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
        raise missing() from None

    wanted, heard = configuration(brokers, revealed(settings), timeout)
    client = made(AdminClient, wanted)
    try:
        found = client.list_topics(timeout=timeout)
    except KafkaException as error:
        client.poll(0)  # hands over what the client saw meanwhile
        raise SetupError(
            f"no Kafka broker answers at {brokers} ({heard.why(error.args[0].str())})",
            hint="start it, or correct 'brokers' (and the security settings under 'kafka:') in the config",
        ) from None
    return BrokerAnswer(
        brokers=tuple(sorted(f"{broker.host}:{broker.port}" for broker in found.brokers.values())),
        topics=tuple(sorted(name for name in found.topics if not name.startswith("__"))),
    )

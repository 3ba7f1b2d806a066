"""The Kafka client without a JVM (librdkafka), set up the way all of Catchment wants it: quiet, bounded, discreet."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from catchment.errors import SetupError
from catchment.topics.security import for_librdkafka

T = TypeVar("T")
_PATHS = re.compile(r"\.location$")
_SECRET = re.compile(r"password|passphrase|secret|\.pem$|jaas|keystore\.key|oauthbearer\.config")


class Heard:
    """What a client says on its own while nobody asks: that a password was refused, that nobody listens there.

    Fit to be shown: secrets are hidden in it.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        # Also what came out of a JAAS line is in `settings` here: they are those that librdkafka gets.
        self._secrets = sorted(
            (value for name, value in settings.items() if value and _SECRET.search(name)), key=len, reverse=True
        )
        self._said: deque[str] = deque(maxlen=10)

    def __repr__(self) -> str:
        return f"Heard({list(self._said)})"

    def listen(self, error: Any) -> None:
        """For librdkafka's error_cb."""
        if error.name() != "_ALL_BROKERS_DOWN":  # says nothing about why, and counts strangely
            self._said.append(self.shown(error.str()))

    def forget(self) -> None:
        """All is well again: what was said before explains nothing any more."""
        self._said.clear()

    def why(self, otherwise: str) -> str:
        """The newest reason heard, or else this one."""
        return self._said[-1] if self._said else self.shown(otherwise)

    def shown(self, text: str) -> str:
        """The text without secrets and without librdkafka's counting of its own patience."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return re.sub(r" \(after \d+ms in state [^)]*\)", "", text)


def missing() -> SetupError:
    """What to raise when confluent_kafka cannot be imported."""
    return SetupError("the Kafka client is not installed", hint="run: pip install 'catchment[spark]'")


def configuration(
    brokers: str, settings: Mapping[str, str], timeout: float, own: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], Heard]:
    """What a client of librdkafka is made of, and the one who listens to it. `own` wins over the user's settings."""
    theirs = for_librdkafka(settings)
    heard = Heard(theirs)
    return {
        **theirs,
        "socket.timeout.ms": str(max(10, math.ceil(timeout * 1000))),
        "allow.auto.create.topics": "false",
        **(own or {}),
        "bootstrap.servers": brokers,
        "error_cb": heard.listen,
        "log_level": 0,  # it would write to standard error by itself
    }, heard


def made(client: Callable[[dict[str, Any]], T], wanted: dict[str, Any]) -> T:
    """The client. SetupError that names the setting it does not take."""
    from confluent_kafka import KafkaException

    try:
        return client(wanted)
    except KafkaException as error:
        # Its sentence names the property and, where a value is wrong, may quote the value: only the name is passed on.
        said = str(error.args[0].str())
    names = [name for name in wanted if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", said)]
    name = max(names, key=len, default="")
    what = f"the setting {name}" if name else "one of the settings"
    if _PATHS.search(name):
        what += f" ({wanted[name]})"
    brokers = wanted["bootstrap.servers"]
    raise SetupError(
        f"the Kafka client does not take {what} for {brokers}", hint="correct it under 'kafka:' in the config"
    )

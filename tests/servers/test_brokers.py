from __future__ import annotations

import pytest

from catchment.config.secret import Secret
from catchment.errors import SetupError
from catchment.testing.kafka import KafkaBroker
from catchment.topics.brokers import ask


def test_a_broker_says_who_and_what_it_has(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic()
    answer = ask(kafka.bootstrap, {}, 10)
    assert answer.brokers == (kafka.bootstrap,)
    assert topic in answer.topics


def test_asking_creates_nothing(kafka: KafkaBroker) -> None:
    before = ask(kafka.bootstrap, {}, 10)
    assert ask(kafka.bootstrap, {"client.id": "someone"}, 10) == before


def test_nobody_there_names_the_address_and_the_next_step(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SetupError, match=r"127\.0\.0\.1:1 .*refused.*correct 'brokers'"):
        ask("127.0.0.1:1", {}, 2)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("settings", [{"no.such.setting": Secret("hunter2")}, {"security.protocol": Secret("hunter2")}])
def test_a_setting_that_the_client_does_not_take_is_named_without_its_value(settings: dict[str, Secret]) -> None:
    (name,) = settings
    with pytest.raises(SetupError) as caught:
        ask("127.0.0.1:1", settings, 2)
    assert name in str(caught.value)
    assert "hunter2" not in str(caught.value)

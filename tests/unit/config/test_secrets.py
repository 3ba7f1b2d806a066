"""A canary stands at every secret place. Nothing that can be printed may ever contain it."""

from __future__ import annotations

import json
import logging
import pickle
import traceback

import pytest

from catchment.config import Config, Secret, Url, load_text, revealed
from catchment.config.secret import shown_url
from catchment.errors import ConfigError

CANARY = "c4n4ry"

# {} is where the secret goes.
PLACES = {
    "access key": "object_storage: [{{id: m, bucket: abc, aws_access_key_id: {}, aws_secret_access_key: x}}]",
    "secret key": "object_storage: [{{id: m, bucket: abc, aws_access_key_id: x, aws_secret_access_key: {}}}]",
    "header": "feeds: [{{id: a, url: 'https://h', periodicity: 1s, headers: {{x-api-key: {}}}}}]",
    "kafka password": "topics: [{{match: t, brokers: 'h:1', kafka: {{sasl.password: {}}}, exports: [{{group: g}}]}}]",
    "kafka jaas": "topics: [{{match: t, brokers: 'h:1', kafka: {{sasl.jaas.config: {}}}, exports: [{{group: g}}]}}]",
    "kafka key": "topics: [{{match: t, brokers: 'h:1', kafka: {{ssl.key.pem: {}}}, exports: [{{group: g}}]}}]",
    "kafka token": "topics: [{{match: t, brokers: 'h:1', kafka: {{my.Token: {}}}, exports: [{{group: g}}]}}]",
    "spark": "spark: {{conf: {{spark.hadoop.fs.s3a.secret.key: {}}}}}",
    "environment": "pipelines: [{{name: p, inputs: [{{name: i, glob: a/<b>}}], run: {{command: ls}},"
    " results: [{{name: r, key: o/<b>}}], environment: {{TOKEN: {}}}}}]",
    "webhook": "events: {{webhook: {{port: 8090, token: {}}}}}",
    "event settings": "events: {{kafka: {{brokers: 'h:1', topic: t, kafka: {{sasl.password: {}}}}}}}",
    "lineage header": "lineage: {{openlineage: {{url: 'https://h', headers: {{authorization: {}}}}}}}",
}
URL_PLACES = {
    "feed": "feeds: [{{id: a, url: {}, periodicity: 1s}}]",
    "registry": "topics: [{{match: t, brokers: 'h:1', exports: [{{group: g, decode: {{name: avro, registry: {}}}}}]}}]",
    "queue": "events: {{sqs: {{queue_url: {}}}}}",
    "lineage": "lineage: {{openlineage: {{url: {}}}}}",
}


def check_config(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("test").warning("%s %r", config, config)
    shown = [repr(config), str(config), f"{config}", json.dumps(config.shown()), config.model_dump_json(), caplog.text]
    shown += [str(config.model_dump()), str(config.model_dump(mode="json")), ascii(config), repr(config.model_copy())]
    assert not [text for text in shown if CANARY in text]


def check_error(error: BaseException) -> None:
    shown = [str(error), repr(error), "".join(traceback.format_exception(error))]
    if isinstance(error, ConfigError):
        shown += [str(error.problems), error.source, error.message, error.hint]
    assert not [text for text in shown if CANARY in text]
    # Nothing that was being handled hangs on to it, either: a tool that prints more than we do would find it.
    assert error.__cause__ is None and error.__context__ is None


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize("source", ["file", "environment"])
def test_a_secret_is_kept_and_not_shown(place: str, source: str, caplog: pytest.LogCaptureFixture) -> None:
    text = place.format(CANARY if source == "file" else "'${CANARY}'")
    config = load_text(text, {"CANARY": CANARY})
    check_config(config, caplog)
    assert CANARY in Holder(config).found  # it is in there, and can be had


class Holder:
    """All secrets of a config, revealed: proof that the tests above look at a config that holds one."""

    def __init__(self, value: object) -> None:
        self.found: list[str] = []
        self._walk(value)

    def _walk(self, value: object) -> None:
        if isinstance(value, Secret):
            self.found.append(value.reveal())
        elif isinstance(value, Config) or hasattr(value, "model_fields_set"):
            for _, held in value:  # type: ignore[attr-defined]
                self._walk(held)
        elif isinstance(value, dict):
            for held in value.values():
                self._walk(held)
        elif isinstance(value, tuple):
            for held in value:
                self._walk(held)


@pytest.mark.parametrize("place", URL_PLACES.values(), ids=URL_PLACES.keys())
@pytest.mark.parametrize(
    "url", [f"https://{CANARY}:x@h/p", f"https://u:{CANARY}@h/p", f"https://h/p?key={CANARY}", f"https://h/p#{CANARY}"]
)
def test_a_url_is_kept_and_shown_without_its_secrets(place: str, url: str, caplog: pytest.LogCaptureFixture) -> None:
    for written, environ in ((f"'{url}'", {}), ("'${URL}'", {"URL": url})):
        config = load_text(place.format(written), environ)
        check_config(config, caplog)
        assert url in Holder(config).found
        assert "h/p" in repr(config)


BAD_VALUES = [f'"{CANARY}\\n"', f'"{CANARY}\\0"', f"[{CANARY}]", f"{{{CANARY}: {CANARY}}}", f"'${{X}}{CANARY}'"]


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize("value", BAD_VALUES)
def test_a_secret_that_is_wrong_is_not_shown_either(place: str, value: str, caplog: pytest.LogCaptureFixture) -> None:
    try:
        config = load_text(place.format(value), {})
    except ConfigError as error:
        check_error(error)
    else:
        check_config(config, caplog)  # some places take a line break


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
def test_a_secret_is_not_shown_when_something_beside_it_is_wrong(place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(place.format(CANARY) + "\nmonitoring: {port: 0}\nunknown: 1", {})
    check_error(caught.value)


@pytest.mark.parametrize("place", URL_PLACES.values(), ids=URL_PLACES.keys())
@pytest.mark.parametrize(
    "url",
    [
        f"ftp://u:{CANARY}@h",
        f"https://u:{CANARY}@",
        f"https://u:{CANARY}@h:99999",
        f"https://u:{CANARY}@[h",
        f"https://h/ {CANARY}",
        CANARY,
    ],
)
def test_a_wrong_url_is_not_quoted(place: str, url: str) -> None:
    for written, environ in ((f"'{url}'", {}), ("'${URL}'", {"URL": url})):
        with pytest.raises(ConfigError) as caught:
            load_text(place.format(written), environ)
        check_error(caught.value)


# What comes from the environment may be a secret wherever it stands, so no error quotes it.
ANYWHERE = [
    "workspace: 's3://${C}'",
    "feeds: [{id: '../${C}', url: 'https://h', periodicity: 1s}]",
    "feeds: [{id: a, url: 'https://h', periodicity: '${C}'}]",
    "feeds: [{id: a, url: 'https://h', periodicity: 1s, compression: '${C}', postfix: '/${C}', max_body: '${C}'}]",
    "object_storage: [{id: a, bucket: 's3://${C}', prefix: '/${C}', state: '${C}', versions: '${C}'}]",
    "object_storage: [{id: a, bucket: abc, endpoint_url: 'https://u:${C}@h'}]",
    "monitoring: {port: '${C}', keep: '${C}'}",
    "spark: {master: '${C}'}",
    "topics: [{match: '${C}(', brokers: '${C}', start: '${C}', exports: [{group: '-${C}', decode: '${C}'}]}]",
    "topics: [{match: t, brokers: 'h:1', exports: [{group: g, decode: {name: regex, pattern: '(?P<${C}>'}}]}]",
    "topics: [{match: t, brokers: 'h:1', exports: [{group: g, decode: {name: regex, pattern: '(?<${C}'}}]}]",
    "topics: [{match: t, brokers: 'h:1', exports: [{group: g, split: {d: {key: true, by: '${C}', zone: '${C}'}}}]}]",
    "topics: [{match: t, brokers: 'h:1', exports: [{group: g, dead_letters: {stop_above: '${C}'}}]}]",
    "tables: {items: [{table: '${C}', source: '/${C}', late: '${C}'}], naming: '(${C}'}",
    "tables: {start_backfill_filename: '/${C}', max_batch_bytes: '${C}', max_retries: '${C}'}",
    "pipelines: [{name: '-${C}', inputs: [{name: '-${C}', glob: '../${C}'}], run: {python: '${C}'}, results: []}]",
    "pipelines: [{name: p, inputs: [{name: i, glob: a}], run: {sql: a}, results: [{name: r, key: '*${C}'}]}]",
    "feeds: '${C}'",
    "feeds: ['${C}']",
    "monitoring: '${C}'",
]


@pytest.mark.parametrize("text", ANYWHERE)
def test_no_error_quotes_what_came_from_the_environment(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(text, {"C": CANARY})
    check_error(caught.value)


def test_an_error_names_the_variable_instead() -> None:
    with pytest.raises(ConfigError, match=r"value of \$\{PERIOD\}"):
        load_text("feeds: [{id: a, url: 'https://h', periodicity: '${PERIOD}'}]", {"PERIOD": CANARY})


def test_a_syntax_error_does_not_quote_the_file() -> None:
    for text in (
        f"a: '{CANARY}",
        f"a: {CANARY}: {CANARY}",
        f"a: *{CANARY}",
        f'a: "\\q{CANARY}"',
        f"a: !{CANARY} b",
        f"%{CANARY}\n---\n- %",
    ):
        with pytest.raises(ConfigError) as caught:
            load_text(text, {})
        check_error(caught.value)


def test_a_wrong_value_in_python_code_is_not_quoted() -> None:
    with pytest.raises(ValueError) as caught:
        Config.model_validate({"feeds": [{"id": "a", "url": f"ftp://{CANARY}", "headers": {"x": [CANARY]}}]})
    assert CANARY not in str(caught.value) and CANARY not in repr(caught.value)


def test_settings_that_are_not_secret_are_shown() -> None:
    text = "topics: [{match: t, brokers: 'h:1', kafka: {security.protocol: SSL, a.b: '${X}'}, exports: [{group: g}]}]"
    [topic] = load_text(text, {"X": CANARY}).topics
    assert topic.kafka["security.protocol"] == "SSL"
    assert topic.kafka["a.b"] == Secret(CANARY)  # from the environment: for all we know, a secret
    assert revealed(topic.kafka) == {"security.protocol": "SSL", "a.b": CANARY}


def test_a_secret_is_a_value() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("https://h") != Url("https://h")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2
    assert pickle.loads(pickle.dumps(Url("https://u:p@h/"))).reveal() == "https://u:p@h/"
    assert not hasattr(Secret("a"), "__dict__")


@pytest.mark.parametrize(
    "url, shown",
    [
        ("https://h/p", "https://h/p"),
        ("https://h:8080/p", "https://h:8080/p"),
        ("https://u:p@h/p?q=1", "https://***@h/p?***"),
        ("https://u@[::1]:80/p#f", "https://***@[::1]:80/p?***"),
        ("no url", "***"),
        ("https://[h", "***"),
        ("https://h:port/", "***"),
    ],
)
def test_what_is_shown_of_a_url(url: str, shown: str) -> None:
    assert shown_url(url) == shown
    assert str(Url(url)) == shown

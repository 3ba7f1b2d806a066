"""From a path or a URL to a Config: defaults, relative paths, values from the environment."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from catchment.clock import SystemClock
from catchment.config import Config, Start, Storage, load, load_text, revealed
from catchment.config.source import MAX_BYTES
from catchment.errors import ConfigError

# The example of the design, whole.
DESIGN = """
object_storage:
  - id: main
    bucket: my-lake
    prefix: prod
    reconciliation_algorithm: hashed
    service_name: s3
    region_name: eu-west-1
    endpoint_url: https://s3.example.com
    aws_access_key_id: ${KEY}
    aws_secret_access_key: ${SECRET}
workspace: ./workspace
feeds:
  - {id: subway, url: https://example.com/feed, periodicity: 5s, postfix: .pb, headers: {x-api-key: "${KEY}"},
     compression: zstd, timeout: 10s, max_body: 50MB}
topics:
  - match: events
    exclude: events_debug
    brokers: localhost:9092
    kafka: {security.protocol: SASL_SSL, sasl.password: "${SECRET}", fetch.max.bytes: 1000, enable.tls: true}
    start: earliest
    exports:
      - {group: backup, format: parquet}
      - group: events
        generation: 1
        decode: json
        filter: "type != 'debug'"
        split: {type: {field: type}, day: {field: ts, unit: ms, by: day}}
        policy: {max_age: 5m, max_bytes: 128MB, max_messages: 1000000, align: false}
        heartbeat: 5m
        finalize: {lateness: 2h, late: republish}
        dead_letters: {stop_above: 1%}
tables:
  order_per_table: false
  wait_for_validation: false
  items: [{table: sales/orders, source: "topics/events/events/type=order", late: refuse, max_retries: 3}]
pipelines:
  - name: stations
    inputs: [{name: archive, glob: "feeds/subway/<year>/<month>/<day>/<hour>/*.tar.*"}]
    run: {python: "stations:count"}
    results: [{name: counts, key: "stations/<year><month><day>T<hour>.parquet"}]
spark: {master: "local[*]", conf: {}}
monitoring: {port: 8080, keep: 72h}
"""

# The example of the first reference design, with its field names and values of our own.
REFERENCE = """
feeds:
  - id: trains_l
    url: https://www.example.com/trains/l
    headers:
      x-api-key: ${TRAINS_KEY}
    periodicity: 5s
    postfix: .txt

  - id: trains_g
    url: https://www.example.com/trains/g
    periodicity: 500ms

object_storage:

  - id: main
    prefix: trains
    reconciliation_algorithm: hashed  # or 'primary'; see below
    region_name: nyc3
    endpoint_url: https://nyc3.example.com
    aws_access_key_id: ${MAIN_ID}
    aws_secret_access_key: ${MAIN_SECRET}
    bucket: trains-main
    service_name: s3

  - id: secondary
    prefix: trains
    reconciliation_algorithm: primary
    region_name: eu-west-1
    endpoint_url: https://eu.example.com
    aws_access_key_id: ${MAIN_ID}
    aws_secret_access_key: ${MAIN_SECRET}
    bucket: trains-second
    service_name: s3
"""


def test_the_design_s_example_loads() -> None:
    config = load_text(DESIGN, {"KEY": "k", "SECRET": "s"})
    [feed] = config.feeds
    assert (feed.periodicity, feed.max_body, feed.compression) == (timedelta(seconds=5), 50_000_000, "zstd")
    assert feed.url.reveal() == "https://example.com/feed"
    assert feed.headers["x-api-key"].reveal() == "k"
    [topic] = config.topics
    backup, events = topic.exports
    assert backup.decode is None
    assert not backup.split
    assert events.decode is not None
    assert events.decode.name == "json"
    assert list(events.split) == ["type", "day"]
    assert (events.policy.max_bytes, events.dead_letters.stop_above) == (128_000_000, 0.01)
    assert topic.start == Start(position="earliest")
    assert topic.settings() == {
        "security.protocol": "SASL_SSL",
        "sasl.password": "s",
        "fetch.max.bytes": "1000",
        "enable.tls": "true",
    }
    assert config.monitoring.keep == timedelta(hours=72)
    assert config.state_storage.id == "main"
    assert config.pipelines[0].run.python == "stations:count"


def test_the_reference_s_example_loads() -> None:
    config = load_text(REFERENCE, {"TRAINS_KEY": "k", "MAIN_ID": "i", "MAIN_SECRET": "s"})
    assert [storage.id for storage in config.object_storage] == ["main", "secondary"]
    assert [feed.compression for feed in config.feeds] == ["gzip", "gzip"]
    assert config.object_storage[1].reconciliation_algorithm == "primary"
    assert config.storage("secondary") is config.object_storage[1]
    assert config.storage("third") is None


def test_an_empty_file_is_a_local_lake_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "catchment.yaml"
    file.write_text("# nothing yet\nfeeds:\n")
    config = load(str(file), {})
    assert config.object_storage == (Storage(id="main", path=tmp_path / "lake"),)
    assert config.workspace == tmp_path / "workspace"
    assert config.feeds == ()
    assert config.state_storage.versions == 20


def test_relative_paths_start_at_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "c.yaml").write_text("object_storage: [{id: main, path: data}]\nworkspace: /var/tmp/w")
    monkeypatch.chdir(tmp_path)
    config = load("deep/c.yaml", {})
    assert config.object_storage[0].path == tmp_path / "deep" / "data"
    assert config.workspace == Path("/var/tmp/w")


def test_no_source_means_the_file_of_that_name_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="catchment init"):
        load(None, {})
    (tmp_path / "catchment.yaml").write_text("monitoring: {port: 9000}")
    assert load(None, {}).monitoring.port == 9000


def test_a_file_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name the file in it"):
        load(str(tmp_path), {})
    (tmp_path / "latin").write_bytes(b"workspace: caf\xe9")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(str(tmp_path / "latin"), {})
    (tmp_path / "large").write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="right file"):
        load(str(tmp_path / "large"), {})
    with pytest.raises(ConfigError, match="check its name"):
        load("nul\0byte", {})


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes("monitoring: {port: 9000}".encode("utf-8-sig"))
    assert load(str(tmp_path / "c.yaml"), {}).monitoring.port == 9000


def test_values_from_the_environment_take_the_type_that_is_wanted() -> None:
    text = """
    object_storage:
      - {id: main, bucket: "${BUCKET}", endpoint_url: "${ENDPOINT:-}", aws_access_key_id: "${ID:-}",
         aws_secret_access_key: "${SECRET:-}", state: "${STATE:-true}"}
    feeds: [{id: "feed-${N}", url: "https://${HOST:-h}/", periodicity: "${N}s", headers: {x: "${N}"}}]
    monitoring: {port: "${PORT:-8080}"}
    """
    config = load_text(textwrap.dedent(text), {"BUCKET": "12345", "N": "7", "PORT": "9000", "HOST": ""})
    assert config.object_storage[0].bucket == "12345"
    assert config.object_storage[0].endpoint_url is None
    assert config.object_storage[0].aws_access_key_id is None
    assert config.object_storage[0].state is True
    assert config.feeds[0].id == "feed-7"
    assert type(config.feeds[0].id) is str
    assert config.feeds[0].url.reveal() == "https://h/"
    assert config.feeds[0].periodicity == timedelta(seconds=7)
    assert config.monitoring.port == 9000


def test_a_secret_can_hold_anything_that_would_break_yaml() -> None:
    nasty = "a\"'}: #&*!|> {{ .X }} ${KEY} $"
    config = load_text("feeds: [{id: a, url: https://h, periodicity: 1s, headers: {x: '${KEY}'}}]", {"KEY": nasty})
    assert config.feeds[0].headers["x"].reveal() == nasty


def test_keys_are_never_filled_and_a_literal_can_be_written() -> None:
    text = "spark: {conf: {spark.a: '$${HOME}/x', spark.b: 'cost: $5 $$'}}"
    config = load_text(text, {})
    assert revealed(config.spark.conf) == {"spark.a": "${HOME}/x", "spark.b": "cost: $5 $$"}
    with pytest.raises(ConfigError, match="not that of a setting"):
        load_text("spark: {conf: {'${NAME}': x}}", {"NAME": "spark.a"})


def test_anchors_and_merges_work() -> None:
    text = """
    feeds:
      - &a {id: a, url: https://h/a, periodicity: 1s}
      - {<<: *a, id: b}
    """
    assert [(feed.id, feed.url.reveal()) for feed in load_text(textwrap.dedent(text), {}).feeds] == [
        ("a", "https://h/a"),
        ("b", "https://h/a"),
    ]


def test_words_that_old_yaml_guesses_at_stay_words() -> None:
    text = """
    pipelines:
      - name: no
        inputs: [{name: on, glob: in/<a>}]
        run: {command: [echo, 2026-01-01, 010]}
        results: [{name: off, key: o/<a>}]
        parameters: {at: 12:30:45, on: yes}
    """
    [pipeline] = load_text(textwrap.dedent(text), {}).pipelines
    assert pipeline.name == "no"
    assert pipeline.run.command == ("echo", "2026-01-01", "010")
    assert pipeline.parameters == {"at": "12:30:45", "on": "yes"}


def test_every_start_of_a_topic() -> None:
    def start(text: str) -> Start:
        whole = f"topics: [{{match: t, brokers: 'h:1', start: {text}, exports: [{{group: g}}]}}]"
        return load_text(whole, {}).topics[0].start

    assert start("latest") == Start(position="latest")
    assert start("2026-11-15T08:00:00Z") == Start(time=datetime(2026, 11, 15, 8, tzinfo=UTC))
    assert start("{group: old}") == Start(group="old")


def test_a_config_is_frozen_and_can_be_pickled() -> None:
    config = load_text(DESIGN, {"KEY": "k", "SECRET": "s"})
    with pytest.raises(ValueError, match="frozen"):
        config.monitoring.port = 1
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_config_can_be_made_in_python_and_is_checked_there_too(tmp_path: Path) -> None:
    config = Config(object_storage=(Storage(id="a", path=tmp_path / "lake"),), workspace=tmp_path / "w")
    assert config.state_storage.path == tmp_path / "lake"
    with pytest.raises(ValueError, match="object_storage"):
        Config(object_storage=(Storage(id="a", path=tmp_path),), workspace=tmp_path / "w")


def test_loading_imports_no_client_of_anything() -> None:
    clients = "{'boto3', 'pyspark', 'httpx', 'confluent_kafka'}"
    code = f"import sys, catchment.config.load; print(sorted({clients} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- from a URL ------------------------------------------------------------------------------------------------------


class Answers(BaseHTTPRequestHandler):
    """Answers by path."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/elsewhere":
            self.send_response(302)
            self.send_header("Location", "http://192.0.2.1/config.yaml")
            self.end_headers()
            return
        if path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/good")
            self.end_headers()
            return
        if path == "/private" and self.headers["Authorization"] != "Basic dXNlcjpjQG5hcnk=":
            self.send_error(401)
            return
        bodies = {
            "/good": b"monitoring: {port: 9000}",
            "/private": b"monitoring: {port: 9001}",
            "/short": b"monitoring: {}",
            "/large": b"#" * (MAX_BYTES + 10),
            "/html": b"<html><body>Please log in: yes</body></html>",
        }
        if path not in bodies:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(bodies[path]) + (100 if path == "/short" else 0)))
        self.end_headers()
        try:
            self.wfile.write(bodies[path])
        except OSError:
            return  # the client had enough

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def served() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with served() as address:
        yield address


def test_a_config_comes_from_a_url(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = load(f"http://{host}/good", {})
    assert config.monitoring.port == 9000
    assert config.workspace == tmp_path / "workspace"  # a URL has no folder, so the current one
    assert load(f"http://{host}/moved?token=x", {}).monitoring.port == 9000
    assert load(f"http://user:c%40nary@{host}/private", {}).monitoring.port == 9001


@pytest.mark.parametrize(
    "url, next_step",
    [
        ("http://user:canary@{host}/missing?token=canary", "check the address"),
        ("http://user:canary@{host}/private", "rights"),
        ("http://user:canary@{host}/elsewhere", "https://"),
        ("http://user:canary@{host}/large", "right file"),
        ("http://user:canary@{host}/short", "check the address"),
        ("http://user:canary@{host}/html", "check the address"),
        ("http://user:canary@192.0.2.1/config.yaml", "use https://"),
        ("ftp://user:canary@192.0.2.1/config.yaml", "https://"),
        ("https://user:canary@/config.yaml", "https://host"),
        ("http://user:canary@127.0.0.1:99999/", "https://host"),
        ("http://user:canary@127.0.0.1:1/x?canary", "check the address"),
    ],
)
def test_a_url_that_gives_no_config_says_why_and_hides_its_secrets(host: str, url: str, next_step: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(url.format(host=host), {})
    assert next_step in str(caught.value)
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


class Hurried(SystemClock):
    """A clock on which an hour passes between two looks."""

    def __init__(self) -> None:
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.looks * 3600.0


def test_an_answer_that_trickles_is_given_up(host: str) -> None:
    with pytest.raises(ConfigError, match="no whole answer"):
        load(f"http://{host}/good", {}, clock=Hurried())

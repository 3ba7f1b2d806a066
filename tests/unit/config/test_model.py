"""What a Config can answer, and which combinations it lets pass."""

from __future__ import annotations

import pytest

from catchment.config import TableItem, Topic, load_text
from catchment.config.agree import disagreements
from catchment.config.pipelines import captures
from catchment.config.section import path_text
from catchment.errors import ConfigError


def topic(match: str, *exclude: str, groups: tuple[str, ...] = ("g",)) -> Topic:
    exports = [{"group": group} for group in groups]
    return Topic.model_validate({"match": match, "exclude": list(exclude), "brokers": "h:1", "exports": exports})


def test_a_name_means_itself_and_an_expression_whole_names() -> None:
    assert topic("events.clicks").matches("events.clicks")
    assert not topic("events.clicks").matches("events_clicks")  # all of a name's characters mean themselves
    assert topic("events_.*").matches("events_a")
    assert not topic("events_.*").matches("my_events_a")
    assert not topic("events_.*", "events_debug").matches("events_debug")
    assert not topic("events_.*", "x", ".*_debug").matches("events_debug")


@pytest.mark.parametrize(
    "one, two, clash",
    [
        (topic("a"), topic("a"), True),
        (topic("a"), topic("b"), False),
        (topic("a"), topic("a", groups=("other",)), False),
        (topic("a"), topic("a", groups=("other", "G")), True),
        (topic("a.b"), topic("a_b"), False),
        (topic("events"), topic("ev.*"), True),
        (topic("ev.*"), topic("events"), True),
        (topic("events"), topic("ev.*", "events"), False),
        (topic("events"), topic("orders_.*"), False),
        (topic("clicks_.*"), topic("orders_.*"), False),
        (topic("clicks_.*"), topic("clicks_a.*"), True),
        (topic("clicks_.*"), topic("clicks_a.*", "clicks_.*"), False),
        (topic(".*"), topic("orders_.*"), True),
        (topic("ab?.*"), topic("ac.*"), True),
        (topic("a|b+"), topic("c.*"), True),
        (topic("^ab.*"), topic("ab+"), True),
    ],
)
def test_a_group_may_hold_a_topic_once(one: Topic, two: Topic, *, clash: bool) -> None:
    config = load_text("", {}).model_copy(update={"topics": (one, two)})
    assert bool(list(disagreements(config))) is clash


def test_state_lives_in_the_one_that_is_marked() -> None:
    two = "object_storage: [{id: a, path: x}, {id: b, path: y, state: true}]\ntables: {late: apply}"
    assert load_text(two, {}).state_storage.id == "b"
    assert load_text("object_storage: [{id: a, path: x}]\ntables: {late: apply}", {}).state_storage.id == "a"
    # Feeds alone go to all of them; the first one then keeps the records of replicas.
    assert load_text("object_storage: [{id: a, path: x}, {id: b, path: y}]", {}).state_storage.id == "a"


def test_a_lake_may_lie_in_the_workspace_and_beside_it() -> None:
    load_text("object_storage: [{id: a, path: w/lake}]\nworkspace: w", {})
    load_text("object_storage: [{id: a, path: lake}]\nworkspace: lake-work", {})


def test_a_table_takes_from_the_section_what_it_does_not_say() -> None:
    text = """
    tables:
      order_per_table: true
      late: report
      max_retries: 7
      items: [{table: a/b, late: apply, order: false, max_batch_bytes: 1GB}]
    """
    tables = load_text(text.replace("\n    ", "\n"), {}).tables
    assert tables.item("a/b") == TableItem.model_validate(
        {
            "table": "a/b",
            "late": "apply",
            "order": False,
            "max_retries": 7,
            "max_batch_bytes": "1GB",
            "allow_zero_rows": False,
            "schema_evolution": "fail",
        }
    )
    assert (tables.item("c/d").late, tables.item("c/d").order, tables.item("c/d").max_batch_bytes) == (
        "report",
        True,
        None,
    )


@pytest.mark.parametrize(
    "inputs, rest",
    [
        ("[{name: i, glob: 'in/<a>'}, {name: j, glob: 'on/<b>'}]", "cross: true"),
        ("[{name: i, glob: 'in/<a>/<b>'}, {name: j, glob: 'on/<c>/<b>'}, {name: k, glob: 'un/<c>'}]", "cross: false"),
        ("[{name: i, glob: '/in/<a>/**/*.csv'}]", "parallelism: 2"),
        ("[{name: i, glob: 'in/<a>/<a>.csv', as: uris}]", "triggers: [inputs, code, parameters]"),
    ],
)
def test_joins_that_hang_together_or_are_meant(inputs: str, rest: str) -> None:
    code = "run: {sql: select 1}, results: [{name: r, key: 'out/<a>/'}]"
    text = f"pipelines: [{{name: p, inputs: {inputs}, {code}, {rest}}}]"
    [pipeline] = load_text(text, {}).pipelines
    assert captures(pipeline.results[0].key) == {"a"}
    assert not pipeline.inputs[0].glob.startswith("/")


@pytest.mark.parametrize(
    "keys",
    [
        "decode: msgpack",
        "decode: 'my.module:decode'",
        "decode: {name: 'my.module:decode', options: {a: 1, b: true, c: x}}",
        'decode: {name: avro, schema: \'{"type": "record", "name": "r", "fields": []}\'}',
        "decode: {name: avro, schema_file: e.avsc}",
        "decode: {name: avro, registry: 'https://r'}",
        "decode: {name: protobuf, registry: 'https://r'}",
        "decode: {name: protobuf, descriptor: d, message: a.b.C}",
        "decode: {name: protobuf, descriptor: d, messages: {o: a.O}, type_from: {header: t}}",
        "decode: {name: protobuf, descriptor: d, messages: {o: a.O}, type_from: {field: e.t}}",
        "decode: {name: regex, pattern: '(?P<a>.*)', schemas: {'*': 'a INT'}}",
        "decode: json, split: {t: {field: a.b.c}, at: {field: ts, pattern: '%Y%m', by: hour, zone: Europe/Berlin}}",
        "decode: json, split: {d: {field: ts, unit: auto, by: minute}}",
        "split: {k: {key: true}, h: {header: t}, d: {timestamp: true, by: hour}}, finalize: {lateness: 0s}",
        'format: {name: text, compression: zstd, delimiter: "\\0"}',
        "format: {name: sequence, key: msgpack, compression: block, codec: gzip}",
        "policy: {max_age: 15m, align: true}",
    ],
)
def test_exports_that_can_be_had(keys: str) -> None:
    [topic] = load_text(f"topics: [{{match: t, brokers: 'h:1,[::1]:2', exports: [{{group: g, {keys}}}]}}]", {}).topics
    assert topic.exports[0].group == "g"


@pytest.mark.parametrize(
    "master",
    ["local", "local[4]", "local[*,3]", "local-cluster[2,1,1024]", "spark://h:7077", "yarn", "k8s://https://h:443"],
)
def test_masters(master: str) -> None:
    assert load_text(f"spark: {{master: '{master}'}}", {}).spark.master == master


def test_shown_says_everything_in_the_words_of_the_file() -> None:
    text = "topics: [{match: t, brokers: 'h:1', exports: [{group: g, split: {d: {timestamp: true, by: day}}}]}]"
    shown = load_text(text, {}).shown()
    assert shown["topics"][0]["exports"][0]["policy"]["max_bytes"] == "128MB"
    assert shown["topics"][0]["exports"][0]["heartbeat"] == "5m"
    assert shown["monitoring"] == {"port": 8080, "bind": "127.0.0.1", "keep": "3d"}


def test_paths_are_written_as_people_would() -> None:
    assert path_text(("feeds", 0, "headers", "x-api-key")) == "feeds[0].headers.x-api-key"
    assert path_text(("topics", 0, "kafka", "a.b")) == 'topics[0].kafka["a.b"]'
    assert path_text(("a\n\x1b[31m",)) == '["a\\n\\x1b[31m"]'
    assert path_text(()) == ""


def test_a_key_that_would_draw_on_the_terminal_is_shown_as_text() -> None:
    with pytest.raises(ConfigError) as caught:
        load_text('"\\e[31mred": 1', {})
    assert "\x1b" not in str(caught.value)

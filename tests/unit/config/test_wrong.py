"""Every wrong configuration says where it is wrong and what to write instead."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

import pytest

from catchment.config import load_text
from catchment.errors import ConfigError, Problem

FEED = "id: subway, url: 'https://example.com/feed', periodicity: 5s"
TOPIC = "match: events, brokers: 'localhost:9092'"
CODE = "run: {python: 'm:f'}"
INPUT = "inputs: [{name: i, glob: 'in/<a>/*'}]"
RESULT = "results: [{name: r, key: 'out/<a>'}]"


def problems(text: str, environ: dict[str, str] | None = None) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        load_text(textwrap.dedent(text), environ or {})
    return caught.value.problems


@dataclass(frozen=True)
class Case:
    text: str
    path: str  # of the key that is wrong
    next_step: str  # a part of the advice


def in_feed(extra: str, key: str, next_step: str) -> Case:
    return Case(f"feeds: [{{{FEED}, {extra}}}]", f"feeds[0].{key}", next_step)


def as_id(written: str, next_step: str) -> Case:
    return Case(f"feeds: [{{id: {written}, url: 'https://h', periodicity: 5s}}]", "feeds[0].id", next_step)


def as_url(written: str, next_step: str) -> Case:
    return Case(f"feeds: [{{id: a, url: '{written}', periodicity: 5s}}]", "feeds[0].url", next_step)


def as_period(written: str, next_step: str) -> Case:
    return Case(f"feeds: [{{id: a, url: 'https://h', periodicity: {written}}}]", "feeds[0].periodicity", next_step)


def in_storage(keys: str, key: str, next_step: str) -> Case:
    return Case(f"object_storage: [{{id: main, {keys}}}]", f"object_storage[0].{key}", next_step)


def in_topic(keys: str, key: str, next_step: str) -> Case:
    return Case(f"topics: [{{{TOPIC}, {keys}, exports: [{{group: g}}]}}]", f"topics[0].{key}", next_step)


def in_export(keys: str, key: str, next_step: str) -> Case:
    return Case(f"topics: [{{{TOPIC}, exports: [{{group: g, {keys}}}]}}]", f"topics[0].exports[0].{key}", next_step)


def in_split(keys: str, key: str, next_step: str) -> Case:
    return in_export(f"decode: json, split: {{t: {{{keys}}}}}", f"split.t{key}", next_step)


def in_decode(keys: str, key: str, next_step: str) -> Case:
    return in_export(f"decode: {keys}", f"decode.{key}", next_step)


def in_tables(keys: str, key: str, next_step: str) -> Case:
    return Case(f"tables: {{{keys}}}", f"tables.{key}", next_step)


def in_pipeline(key: str, next_step: str, *, inputs: str = INPUT, results: str = RESULT, rest: str = CODE) -> Case:
    return Case(f"pipelines: [{{name: p, {inputs}, {results}, {rest}}}]", f"pipelines[0].{key}", next_step)


def in_glob(glob: str, next_step: str) -> Case:
    return in_pipeline("inputs[0].glob", next_step, inputs=f"inputs: [{{name: i, glob: '{glob}'}}]")


def in_key(key: str, next_step: str) -> Case:
    return in_pipeline("results[0].key", next_step, results=f"results: [{{name: r, key: '{key}'}}]")


CASES = {
    # the file as a whole
    "a list at the top": Case("- feeds", "", "catchment init"),
    "a text at the top": Case("hello", "", "catchment init"),
    "not YAML": Case("feeds: [", "", "check indentation"),
    "a tab": Case("feeds:\n\t- id: x", "", "check indentation"),
    "a Go template without quotes": Case("workspace: {{ .HOME }}", "workspace", "${NAME}"),
    "a Go template that breaks the YAML": Case("feeds:\n{{ range .Feeds }}\n- id: x\n{{ end }}", "", "${NAME}"),
    "a Go template in quotes": Case("workspace: '{{ .HOME }}'", "workspace", "${NAME}"),
    "a control character": Case("workspace: a\x01b", "", "UTF-8"),
    "two documents": Case("feeds: []\n---\nfeeds: []", "", "check"),
    "a Python tag": Case("workspace: !!python/object:os.system x", "workspace", "remove"),
    "an alias inside of itself": Case("feeds: &a [*a]", "feeds[0]", "write it out"),
    "an unknown section": Case("fedds: []", "fedds", "did you mean 'feeds'"),
    "a section far from any": Case("zzz: 1", "zzz", "use one of"),
    "a key twice": Case("workspace: a\nworkspace: b", "workspace", "keep one"),
    "a key twice, deep": Case("monitoring: {port: 1, port: 2}", "monitoring.port", "keep one"),
    "a key that is a number": Case("1: x", "1", "quotes"),
    "keys where a list belongs": Case("feeds: {id: x}", "feeds", "- "),
    "text where keys belong": Case("monitoring: 8080", "monitoring", "key: value"),
    "an empty entry": Case("feeds: [~]", "feeds[0]", "key: value"),
    # the environment
    "a missing variable": Case("workspace: ${NOWHERE}", "workspace", "${NOWHERE:-default}"),
    "half a variable": Case("workspace: ${NOWHERE", "workspace", "$${"),
    "a variable with a strange name": Case("workspace: ${1X}", "workspace", "${NAME}"),
    # storage
    "neither bucket nor path": in_storage("", "bucket", "path: ./lake"),
    "bucket and path": in_storage("bucket: abc, path: x", "path", "remove"),
    "an endpoint for a directory": in_storage("path: x, endpoint_url: 'https://h'", "endpoint_url", "remove"),
    "versions of a bucket": in_storage("bucket: abc, versions: 3", "versions", "remove"),
    "negative versions": in_storage("path: x, versions: -1", "versions", "0 or more"),
    "half a key pair": in_storage("bucket: abc, aws_access_key_id: k", "aws_secret_access_key", "both"),
    "the other half": in_storage("bucket: abc, aws_secret_access_key: k", "aws_access_key_id", "both"),
    "a bucket as a URL": in_storage("bucket: 's3://abc/x'", "bucket", "bare name"),
    "a path as a URL": in_storage("path: 's3://abc/x'", "path", "local"),
    "a wrong algorithm": in_storage(
        "path: x, reconciliation_algorithm: merged", "reconciliation_algorithm", "hashed, primary"
    ),
    "a prefix that leaves": in_storage("path: x, prefix: a/../b", "prefix", "part/part"),
    "a prefix with slashes": in_storage("path: x, prefix: /a", "prefix", "part/part"),
    "an endpoint without scheme": in_storage("bucket: abc, endpoint_url: 'host:9000'", "endpoint_url", "https://"),
    "an endpoint with a user": in_storage("bucket: abc, endpoint_url: 'https://u:p@h'", "endpoint_url", "keys"),
    "another service": in_storage("bucket: abc, service_name: gcs", "service_name", "s3"),
    "two storages with one id": Case(
        "object_storage: [{id: a, path: x}, {id: a, path: y}]", "object_storage[1].id", "own"
    ),
    "two storages in one place": Case(
        "object_storage: [{id: a, path: x}, {id: b, path: ./y/../x}]", "object_storage[1].path", "another"
    ),
    "two state storages": Case(
        "object_storage: [{id: a, path: x, state: true}, {id: b, path: y, state: true}]",
        "object_storage[1].state",
        "one only",
    ),
    "no state storage": Case(
        "object_storage: [{id: a, path: x}, {id: b, path: y}]\ntables: {late: apply}", "object_storage", "state: true"
    ),
    "state as a word": in_storage("path: x, state: yes", "state", "true or false"),
    "the workspace in the lake": Case("workspace: ./lake/work", "workspace", "move it out"),
    # feeds
    "a misspelled key": Case(
        "feeds: [{id: a, url: 'https://h', peridicity: 5s}]", "feeds[0].peridicity", "did you mean 'periodicity'"
    ),
    "no period": Case("feeds: [{id: a, url: 'https://h'}]", "feeds[0].periodicity", "periodicity: 5s"),
    "a period of zero": as_period("0s", "5s"),
    "a negative period": as_period("-5s", "5s"),
    "a period without unit": as_period("5", "unit"),
    "a period over an hour": as_period("2h", "1h or less"),
    "an id that leaves": as_id("../evil", "letters"),
    "an id with a slash": as_id("a/b", "letters"),
    "an id with a dot first": as_id(".a", "letter or digit"),
    "an id with an underscore first": as_id("_a", "letter or digit"),
    "an empty id": as_id("''", "letter"),
    "an id that looks like another": as_id("'subwаy'", "letters"),
    "a wide dot": as_id("'a．．'", "letters"),
    "a long id": Case(f"feeds: [{{id: {'a' * 65}, url: 'https://h', periodicity: 5s}}]", "feeds[0].id", "64"),
    "an id that is a number": as_id("7", "quotes"),
    "an id with a newline": Case('feeds: [{id: "a\\n", url: "https://h", periodicity: 5s}]', "feeds[0].id", "letters"),
    "two feeds with one id": Case(f"feeds: [{{{FEED}}}, {{{FEED}}}]", "feeds[1].id", "own"),
    "ids that differ in case": Case(
        "feeds: [{id: a, url: 'https://h', periodicity: 5s}, {id: A, url: 'https://h', periodicity: 5s}]",
        "feeds[1].id",
        "own",
    ),
    "a feed by FTP": as_url("ftp://h/x", "https://"),
    "a feed without host": as_url("https:///x", "https://host"),
    "a feed with a port too high": as_url("https://h:99999/", "https://host"),
    "a header with a newline": in_feed('headers: {x-key: "a\\nb"}', "headers.x-key", "remove"),
    "a header that is no name": in_feed("headers: {'x key:': a}", 'headers["x key:"]', "x-api-key"),
    "a header that is a number": in_feed("headers: {x-key: 5}", "headers.x-key", "quotes"),
    "an unknown compression": in_feed("compression: zip", "compression", "gzip, zstd, bzip2, xz"),
    "a body cap without unit": in_feed("max_body: 100", "max_body", "50MB"),
    "a body cap of nothing": in_feed("max_body: 0MB", "max_body", "50MB"),
    "a postfix with a slash": in_feed("postfix: /x", "postfix", ".json"),
    "a high-water mark as a number": Case("collector: {disk_high_water: 0.9}", "collector.disk_high_water", "%"),
    # topics
    "no exports": Case(f"topics: [{{{TOPIC}}}]", "topics[0].exports", "group"),
    "empty exports": Case(f"topics: [{{{TOPIC}, exports: []}}]", "topics[0].exports", "group"),
    "brokers without port": Case(
        "topics: [{match: a, brokers: localhost, exports: [{group: g}]}]", "topics[0].brokers", "host:port"
    ),
    "a broken expression": Case(
        "topics: [{match: 'a(', brokers: 'h:1', exports: [{group: g}]}]", "topics[0].match", "events_.*"
    ),
    "all left out": Case(
        "topics: [{match: a, exclude: a, brokers: 'h:1', exports: [{group: g}]}]", "topics[0].exclude", "remove"
    ),
    "offsets by consumer group": in_topic("kafka: {group.id: x}", 'kafka["group.id"]', "remove"),
    "a setting that is a list": in_topic("kafka: {a.b: [1]}", 'kafka["a.b"]', "name: value"),
    "an unknown start": in_topic("start: erliest", "start", "earliest"),
    "a start without zone": in_topic("start: '2026-01-01T00:00:00'", "start", "zone"),
    "a start in two places": in_topic("start: {group: g, position: latest}", "start", "write earliest"),
    "a group twice": Case(
        f"topics: [{{{TOPIC}, exports: [{{group: g}}, {{group: g}}]}}]", "topics[0].exports[1].group", "own"
    ),
    "a group over one topic twice": Case(
        f"topics: [{{{TOPIC}, exports: [{{group: g}}]}}, {{match: 'ev.*', brokers: 'h:1', exports: [{{group: g}}]}}]",
        "topics[1].exports[0].group",
        "another group",
    ),
    "generation zero": in_export("generation: 0", "generation", "1 or more"),
    "an unknown format": in_export("format: orc", "format.name", "parquet, text, sequence"),
    "half a character": in_export('format: {name: text, delimiter: "\\ud800"}', "format.delimiter", "whole"),
    "an option of another format": in_export("format: {name: parquet, delimiter: x}", "format.delimiter", "remove"),
    "a compression of another format": in_export(
        "format: {name: text, compression: block}", "format.compression", "gzip"
    ),
    "an unknown decoder": in_decode("jsn", "name", "did you mean 'json'"),
    "an option of another decoder": in_decode("{name: json, pattern: x}", "pattern", "remove"),
    "avro without schema": in_decode("avro", "schema", "registry"),
    "avro with a broken schema": in_decode("{name: avro, schema: '{'}", "schema", "JSON"),
    "protobuf without message": in_decode("{name: protobuf, descriptor: a.desc}", "message", "messages"),
    "protobuf types from nowhere": in_decode(
        "{name: protobuf, descriptor: d, messages: {a: p.A}}", "type_from", "both"
    ),
    "an expression without names": in_decode("{name: regex, pattern: '(.*)'}", "pattern", "(?P<"),
    "a broken pattern": in_decode("{name: regex, pattern: '(?P<a'}", "pattern", "mend"),
    "a registry by name": in_decode("{name: avro, registry: registry}", "registry", "https://"),
    "a filter without decode": in_export("filter: a", "filter", "decode"),
    "an empty filter": in_export("decode: json, filter: ' '", "filter", "leave the key out"),
    "a split without decode": in_export("split: {t: {field: t}}", "split.t", "add decode"),
    "a split by nothing": in_export("split: {t: {by: day}}", "split.t", "field"),
    "a split by two": in_export("split: {t: {key: true, header: h}}", "split.t", "one of"),
    "a split named like a folder of ours": in_export("split: {_commits: {key: true}}", "split._commits", "letter"),
    "a unit without by": in_split("field: t, unit: ms", ".unit", "by: day"),
    "an unknown unit": in_split("field: t, unit: h, by: day", ".unit", "ms"),
    "unit and pattern": in_split("field: t, unit: s, pattern: '%Y', by: day", ".unit", "remove"),
    "a Java pattern": in_split("field: t, pattern: yyyy, by: day", ".pattern", "%Y"),
    "an unknown zone": in_export(
        "split: {t: {timestamp: true, by: day, zone: Mars/Base}}", "split.t.zone", "Europe/Berlin"
    ),
    "a zone that leaves": in_export(
        "split: {t: {timestamp: true, by: day, zone: ../../etc/passwd}}", "split.t.zone", "UTC"
    ),
    "a timestamp without by": in_export("split: {t: {timestamp: true}}", "split.t.by", "by: day"),
    "finalize without days": in_export("finalize: {lateness: 1h}", "finalize", "by: day"),
    "an unknown late": in_export(
        "split: {d: {timestamp: true, by: day}}, finalize: {late: drop}", "finalize.late", "republish"
    ),
    "a policy of no age": in_export("policy: {max_age: 0s}", "policy.max_age", "5s"),
    "an uneven alignment": in_export("policy: {max_age: 7m, align: true}", "policy.max_age", "15m"),
    "messages as text": in_export("policy: {max_messages: '10'}", "policy.max_messages", "without quotes"),
    "a share over 100%": in_export("dead_letters: {stop_above: 101%}", "dead_letters.stop_above", "1%"),
    # tables
    "a table without dataset": in_tables("items: [{table: orders}]", "items[0].table", "dataset/table"),
    "a table that leaves": in_tables("items: [{table: ../orders}]", "items[0].table", "dataset/table"),
    "a table twice": in_tables("items: [{table: a/b}, {table: a/b}]", "items[1].table", "own"),
    "an unknown lateness": in_tables("items: [{table: a/b, late: drop}]", "items[0].late", "refuse, apply, report"),
    "negative retries": in_tables("max_retries: -1", "max_retries", "0 or more"),
    "a source of ours": in_tables("items: [{table: a/b, source: warehouse/a/b}]", "items[0].source", "folder"),
    "a gate that is a path": in_tables("start_backfill_filename: a/b", "start_backfill_filename", "_HISTORYDONE"),
    "a gate with a meaning": in_tables("start_backfill_filename: _SUCCESS", "start_backfill_filename", "_HISTORYDONE"),
    "naming without groups": in_tables("naming: '.*'", "naming", "(?P<dataset>"),
    # pipelines
    "no code": in_pipeline("run", "python", rest="retries: 1"),
    "two kinds of code": in_pipeline("run", "one of", rest="run: {sql: select 1, python: 'a:b'}"),
    "a function without module": in_pipeline("run.python", "module:function", rest="run: {python: count}"),
    "no inputs": in_pipeline("inputs", "add one", inputs="inputs: []", results="results: [{name: r, key: out}]"),
    "an unbound capture": in_key("out/<b>", "capture"),
    "bound by an optional input": in_pipeline(
        "results[0].key",
        "always there",
        inputs="inputs: [{name: i, glob: 'in/<a>'}, {name: o, glob: 'op/<a>/<b>', optional: true}]",
        results="results: [{name: r, key: 'out/<b>'}]",
    ),
    "an accidental cross": in_pipeline(
        "inputs[1].glob", "cross: true", inputs="inputs: [{name: i, glob: 'in/<a>'}, {name: j, glob: 'on/<b>'}]"
    ),
    "an input twice": in_pipeline(
        "inputs[1].name", "rename", inputs="inputs: [{name: i, glob: 'in/<a>'}, {name: i, glob: 'on/<a>'}]"
    ),
    "an open bracket": in_glob("in/<a", "<name>"),
    "an empty capture": in_glob("in/<>", "letter"),
    "captures side by side": in_glob("in/<a><b>", "between"),
    "stars beside letters": in_glob("in/a**/<a>", "alone"),
    "a glob that leaves": in_glob("../<a>", "folder"),
    "a question mark": in_glob("in/<a>/?", "*"),
    "a wildcard in a result": in_key("out/*", "captures"),
    "a result among ours": in_key("_catchment/<a>", "another"),
    "an unknown trigger": in_pipeline("triggers[0]", "inputs, code, parameters", rest=f"{CODE}, triggers: [time]"),
    "an environment name": in_pipeline("environment.A-B", "letter", rest=f"{CODE}, environment: {{A-B: x}}"),
    "a parameter that is a map": in_pipeline(
        "parameters.a", "name: value", rest=f"{CODE}, parameters: {{a: {{b: 1}}}}"
    ),
    "two writers of one place": Case(
        "pipelines: ["
        f"{{name: p, {INPUT}, results: [{{name: r, key: 'out/<a>'}}], {CODE}}},"
        f"{{name: q, inputs: [{{name: i, glob: 'on/<b>'}}], results: [{{name: r, key: 'out/<b>'}}], {CODE}}}]",
        "pipelines[1].results[0].key",
        "own",
    ),
    "two pipelines with one name": Case(
        "pipelines: ["
        f"{{name: p, {INPUT}, results: [{{name: r, key: 'out/<a>'}}], {CODE}}},"
        f"{{name: p, {INPUT}, results: [{{name: r, key: 'on/<a>'}}], {CODE}}}]",
        "pipelines[1].name",
        "own",
    ),
    # the rest
    "an unknown master": Case("spark: {master: cluster}", "spark.master", "local[*]"),
    "a property without its name": Case("spark: {conf: {driver.memory: 2g}}", 'spark.conf["driver.memory"]', "spark."),
    "a port too high": Case("monitoring: {port: 65536}", "monitoring.port", "65535"),
    "a port of zero": Case("monitoring: {port: 0}", "monitoring.port", "from 1"),
    "a port in quotes": Case("monitoring: {port: '80'}", "monitoring.port", "without quotes"),
    "a port that is true": Case("monitoring: {port: true}", "monitoring.port", "whole number"),
    "one port for two": Case("collector: {shutdown_port: 8080}", "collector.shutdown_port", "own"),
    "lineage to two places": Case(
        "lineage: {openlineage: {url: 'https://h', file: x}}", "lineage.openlineage.url", "either"
    ),
    "a webhook without port": Case("events: {webhook: {}}", "events.webhook.port", "port: 8090"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_says_where_and_what_next(case: Case) -> None:
    found = problems(case.text)
    at = [problem for problem in found if problem.path == case.path]
    assert at, f"no problem at {case.path!r} in {[str(problem) for problem in found]}"
    assert any(case.next_step in problem.message for problem in at), [problem.message for problem in at]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_one_mistake_is_one_problem(case: Case) -> None:
    assert len(problems(case.text)) == 1


def test_all_mistakes_are_told_at_once() -> None:
    found = problems(
        """
        feeds:
          - {id: a, url: 'https://h', peridicity: 5s}
          - {id: b, url: 'https://h', periodicity: 0s}
          - {id: c, url: 'https://h', periodicity: 5s}
          - {id: c, url: 'https://h', periodicity: 5s}
          - {id: d, url: '${NOWHERE}', periodicity: 5s, max_body: 1}
        monitoring: {port: 99999, port: 1}
        topics:
          - {match: t, brokers: 'h:1', exports: [{group: broken, generation: 0}, {group: g}, {group: g}]}
        spark: {mastr: local}
        tables: {items: [{table: x}, {table: a/b, late: never}]}
        """
    )
    assert {problem.path for problem in found} == {
        "feeds[0].peridicity",
        "feeds[1].periodicity",
        "feeds[3].id",
        "feeds[4].url",
        "feeds[4].max_body",
        "monitoring.port",
        "topics[0].exports[0].generation",
        "topics[0].exports[2].group",
        "spark.mastr",
        "tables.items[0].table",
        "tables.items[1].late",
    }
    [duplicate] = [problem for problem in found if problem.path == "feeds[3].id"]
    assert "feeds[2].id" in duplicate.message  # its place in the file, though broken entries stand before it


def test_a_broken_storage_does_not_make_the_state_look_unmarked() -> None:
    found = problems(
        "object_storage: [{id: a, path: x, state: true, versions: -1}, {id: b, path: y}, {id: c, path: z}]\ntables: {}"
    )
    assert [problem.path for problem in found] == ["object_storage[0].versions"]


def test_an_unreadable_line_is_named() -> None:
    [problem] = problems("feeds:\n  - id: 'open\n")
    assert "line 3" in problem.message


def test_both_lines_of_a_key_given_twice_are_named() -> None:
    [problem] = problems("workspace: a\nfeeds: []\nworkspace: b\n")
    assert "line 3" in problem.message
    assert "line 1" in problem.message


LAUGHS = "c0: &c0 [x, x]\n" + "".join(f"c{n}: &c{n} [*c{n - 1}, *c{n - 1}]\n" for n in range(1, 30))
HOSTILE = {
    "billion laughs": LAUGHS,
    "deep list": "[" * 5000,
    "deep map": "a: " + "{a: " * 5000,
    "not its tag": "workspace: !!int abc",
    "long number": "workspace: " + "9" * 5000,
    "list as a key": "? [a, b]\n: c",
    "merge of a number": "<<: 5",
    "half a surrogate": 'workspace: "\\ud800"',
    "byte order marks": "\ufeff\ufeff{",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_refused_and_not_a_crash(text: str) -> None:
    assert problems(text)

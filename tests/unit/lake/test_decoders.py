"""Decoders before anything is started: where their modules are found, and what `catchment check` says of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from catchment.lake import Lake
from catchment.lake.check import decoder_findings
from catchment.lake.decoders import plugins
from catchment.topics.decode.modules import find


@pytest.fixture(autouse=True)
def _path_as_it_was() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before
    find.cache_clear()


def config(folder: Path, *decodes: Any) -> Path:
    exports = [{"group": f"g{at}", "decode": decode} for at, decode in enumerate(decodes)]
    topic = {"match": "events", "brokers": "localhost:1", "exports": [{"group": "backup"}, *exports]}
    folder.mkdir(exist_ok=True)
    (folder / "lake").mkdir(exist_ok=True)
    (folder / "catchment.yaml").write_text(
        yaml.safe_dump({"object_storage": [{"id": "main", "path": "./lake"}], "topics": [topic]})
    )
    return folder / "catchment.yaml"


def test_each_decoder_is_looked_at_by_itself(tmp_path: Path) -> None:
    path = config(
        tmp_path,
        "json",
        {"name": "json", "schemas": {"*": "a NOTHING"}},
        {"name": "regex", "pattern": "(?P<a>x)(?=y)"},
        "absent_module:decode",
        "own_decoder_of_check:decode",
        {"name": "avro", "schema_file": "absent.avsc"},
    )
    (tmp_path / "own_decoder_of_check.py").write_text("def decode(records, options): ...\n")
    with Lake.open(path) as lake:
        found = decoder_findings(lake.config)
        assert plugins(lake.config) == ["absent_module:decode", "own_decoder_of_check:decode"]
    assert [(one.part, one.name, str(one.verdict)) for one in found] == [
        ("decoder", "g0/events", "ok"),
        ("decoder", "g1/events", "failed"),
        ("decoder", "g2/events", "failed"),
        ("decoder", "g3/events", "failed"),
        ("decoder", "g4/events", "ok"),
        ("decoder", "g5/events", "failed"),
    ]
    said = [f"{one.detail}; {one.hint}" for one in found]
    assert "NOTHING is not a type" in said[1]
    assert "(?=" in said[2] and "change decode.pattern" in said[2]
    assert "there is no module absent_module; put it next to the configuration" in said[3]
    assert "absent.avsc cannot be read" in said[5]


def test_a_module_is_found_next_to_the_configuration_and_in_the_current_folder(tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    path = config(elsewhere, "beside_config:decode", "beside_us:decode")
    here.mkdir()
    (elsewhere / "beside_config.py").write_text("def decode(records, options): ...\n")
    (here / "beside_us.py").write_text("def decode(records, options): ...\n")
    # As the command does it: a script, whose own folder is the first place where Python looks.
    program = here.parent / "script.py"
    program.write_text(
        "import sys\n"
        "from catchment.lake import Lake\n"
        "from catchment.lake.check import decoder_findings\n"
        "with Lake.open(sys.argv[1]) as lake:\n"
        "    print([str(one.verdict) for one in decoder_findings(lake.config)])\n"
    )
    done = subprocess.run(
        [sys.executable, str(program), str(path)], cwd=here, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "['ok', 'ok']", done.stderr


def test_without_a_decoder_of_ones_own_nothing_is_added_to_where_python_looks(tmp_path: Path) -> None:
    before = list(sys.path)
    with Lake.open(config(tmp_path, "json")):
        assert sys.path == before

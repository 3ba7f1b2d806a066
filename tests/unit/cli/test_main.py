"""The command line as a person and as a program meet it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import catchment
from catchment.cli.main import COMMANDS, main


def run(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = {"PATH": "/usr/bin:/bin", "HOME": str(folder), **environment}
    command = [sys.executable, "-m", "catchment", *arguments]
    return subprocess.run(command, cwd=folder, env=path, capture_output=True, text=True, check=False)


def test_help_imports_nothing_heavy() -> None:
    probe = """
import sys
from catchment.cli.main import main
try:
    main(["--help"])
finally:
    heavy = {"pyspark", "boto3", "botocore", "pydantic", "yaml", "rich", "click", "httpx", "confluent_kafka"}
    print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    for name, (_, words) in COMMANDS.items():
        assert name in done.stdout
        assert words in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_each_command_imports_neither_pyspark_nor_boto3(name: str) -> None:
    probe = f"""
import sys
from catchment.cli.main import main
try:
    main([{name!r}, "--help"])
finally:
    print(sorted({{"pyspark", "boto3", "pydantic"}} & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    for option in ("--config", "--workspace", "--json"):
        assert option in done.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["init", "--help"], ["--version"]])
def test_asking_is_not_an_error(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 0


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["check", "--nonsense"], ["check", "extra"], ["init", "--config"]]
)
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    said = capsys.readouterr()
    assert "--help" in said.out + said.err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"catchment {catchment.__version__}\n"


def test_from_nothing_to_a_checked_lake(tmp_path: Path) -> None:
    begun = run("init", folder=tmp_path)
    assert begun.returncode == 0
    assert begun.stdout.strip() == str(tmp_path / "catchment.yaml")
    checked = run("check", "--no-spark", folder=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert "conditional writes, tags, versions" in checked.stdout
    assert checked.stderr == ""
    told = json.loads(run("check", "--no-spark", "--json", folder=tmp_path).stdout)
    assert {finding["part"]: finding["verdict"] for finding in told} == {
        "config": "ok",
        "workspace": "ok",
        "object storage": "ok",
    }
    assert list((tmp_path / "lake").rglob("*probe*")) == []


def test_init_never_writes_over_a_file_by_itself(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("precious")
    refused = run("init", "--config", "mine.yaml", folder=tmp_path)
    assert refused.returncode == 2
    assert "mine.yaml" in refused.stderr
    assert "--force" in refused.stderr
    assert (tmp_path / "mine.yaml").read_text() == "precious"
    assert run("init", "--config", "mine.yaml", "--force", folder=tmp_path).returncode == 0
    assert "object_storage" in (tmp_path / "mine.yaml").read_text()


def test_init_into_a_folder_that_is_not_there(tmp_path: Path) -> None:
    refused = run("init", "--config", "no/such/folder.yaml", folder=tmp_path)
    assert refused.returncode == 2
    assert "no/such/folder.yaml" in refused.stderr


def test_a_wrong_config_ends_with_2_and_names_every_key(tmp_path: Path) -> None:
    (tmp_path / "catchment.yaml").write_text("feeds: [{id: a, url: 'https://x', peridicity: 5s}]\nworkspce: x\n")
    done = run("check", folder=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "feeds[0].peridicity" in done.stderr
    assert "workspce" in done.stderr
    told = json.loads(run("check", "--json", folder=tmp_path).stdout)
    assert {problem["path"] for problem in told["error"]["problems"]} >= {"feeds[0].peridicity", "workspce"}


def test_no_config_names_the_command_that_makes_one(tmp_path: Path) -> None:
    done = run("check", folder=tmp_path)
    assert done.returncode == 2
    assert "catchment init" in done.stderr


def test_a_dead_storage_ends_with_1_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "catchment.yaml").write_text("object_storage: [{id: far, path: ./no/such/folder}]")
    done = run("check", "--no-spark", folder=tmp_path)
    assert done.returncode == 1
    assert "failed" in done.stdout
    assert "object storage far" in done.stderr


def test_workspace_can_be_given(tmp_path: Path) -> None:
    run("init", folder=tmp_path)
    done = run("check", "--no-spark", "--workspace", "elsewhere", folder=tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "elsewhere").is_dir()
    assert not (tmp_path / "workspace").exists()

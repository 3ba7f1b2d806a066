"""`catchment feeds …` as a person and as a program meet it."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import catchment
from catchment.bucket.local import LocalBucket
from catchment.cli.app import run
from catchment.cli.bars import bars
from catchment.cli.main import FEEDS, main
from catchment.clock import SYSTEM, isoformat
from catchment.config import load_text
from catchment.errors import UsageError
from catchment.feeds.downloads import Downloads
from catchment.feeds.names import Compression, Hour
from catchment.lake import Lake
from catchment.monitor.record import FAILED, OK
from tests.unit.feeds.stores import cut_short, download, noise, store

CONFIG = """
object_storage:
  - {id: main, path: ./main}
  - {id: spare, path: ./spare}
feeds:
  - {id: subway, url: "https://feeds.example.com/subway?key=${KEY:-s3cret}", periodicity: 5s, postfix: .json}
  - {id: bus, url: "https://feeds.example.com/bus", periodicity: 5s, compression: zstd}
"""
# Hours that have ended, whenever this runs.
NOW = Hour.of(SYSTEM.now())
OLD, NEXT = Hour(NOW.start - timedelta(hours=6)), Hour(NOW.start - timedelta(hours=5))
START, END = isoformat(OLD.start), isoformat(NEXT.next.start)
THESE = ("--feed-ids", "subway", "--end-time", END)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "catchment.yaml").write_text(CONFIG)
    return tmp_path


@pytest.fixture
def main_bucket(folder: Path) -> LocalBucket:
    return LocalBucket(folder / "main", create_below=folder)


@pytest.fixture
def spare_bucket(folder: Path) -> LocalBucket:
    return LocalBucket(folder / "spare", create_below=folder)


class Said:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def value(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def feeds(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: object) -> Said:
        status = run(["feeds", *map(str, arguments)])
        said = capsys.readouterr()
        return Said(status, said.out, said.err)

    return call


def files(folder: Path) -> list[bytes]:
    return [
        path.read_bytes() for path in sorted(folder.rglob("*_*")) if path.is_file() and ".retrieved" not in str(path)
    ]


def probe(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = f"""
import sys
from catchment.cli.main import main
try:
    main({list(arguments)!r})
finally:
    heavy = {{"pyspark", "boto3", "botocore", "pydantic", "yaml", "rich", "click", "httpx", "zstandard"}}
    print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)


def test_help_imports_nothing_heavy() -> None:
    done = probe("feeds", "--help")
    assert done.stderr.strip() == "[]"
    assert "catchment feeds COMMAND" in done.stdout
    for name, (_, words) in FEEDS.items():
        assert f"  {name} " in done.stdout
        assert words in done.stdout


def test_the_help_of_each_command_imports_only_the_parser() -> None:
    assert probe("feeds", "retrieve", "--help").stderr.strip() == "['click']"


@pytest.mark.parametrize("name", FEEDS)
def test_each_command_has_its_own_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["feeds", name, "--help"]) == 0
    said = capsys.readouterr().out
    assert f"catchment feeds {name}" in said
    for option in ("--config", "--workspace", "--json"):
        assert option in said


@pytest.mark.parametrize(
    "arguments", [["feeds"], ["feeds", "nonsense"], ["feeds", "--nonsense"], ["feeds", "retrieve"]]
)
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    said = capsys.readouterr()
    assert "--help" in said.out + said.err


@pytest.mark.parametrize("arguments", [["feeds", "-h"], ["feeds", "--help"], ["feeds", "audit", "-h"]])
def test_asking_is_not_an_error(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 0


def test_from_downloads_to_files_and_away(folder: Path, feeds: Any) -> None:
    landing = Downloads(folder / "workspace")
    for hour in (OLD, NEXT):
        for second, body in enumerate((b"a", b"b", b"b")):
            landing.land(download(second, body, hour=hour), body)

    archived = feeds("archive", "--json")
    assert (archived.status, len(archived.value["archived"])) == (0, 2)
    assert feeds("status", "--feed-ids", "subway").out.count("0 downloads, 2 archives") == 1
    assert len(feeds("upload", "--json").value["uploaded"]) == 4
    assert feeds("reconcile").status == 0
    assert not list((folder / "workspace" / "archives").rglob("*.tar.*"))

    state = feeds("status", "--json", "--feed-ids", "subway")
    assert state.status == 0
    (subway,) = state.value
    assert [(stock["storage"], stock["hours"]) for stock in subway["stock"]] == [("main", 2), ("spare", 2)]
    assert subway["archive"]["count"] == 2
    audited = feeds("audit", *THESE)
    assert audited.status == 0, audited.out
    assert "2 hours looked at, 4 archives read, 0 findings" in audited.out

    got = feeds("retrieve", "--target-directory", "out", "--start-time", START, "--end-time", END)
    assert got.status == 0, got.err
    assert files(folder / "out") == [b"a", b"b", b"b"] * 2
    folded = feeds("retrieve", "--target-directory", "folded", "--fold", "--json")
    assert folded.value["files"] == 4

    away = feeds(
        *("delete", "--object-storage-ids", "main", "--feed-ids", "subway", "--yes", "--json"),
        *("--start-time", START, "--end-time", isoformat(NEXT.start)),
    )
    assert (away.status, away.value["done"]) == (0, True)
    assert feeds("reconcile").status == 0
    assert feeds("retrieve", "--target-directory", "left", "--json").value["hours"] == 1
    assert (
        feeds("retrieve", "--target-directory", "spare", "--object-storage-ids", "spare", "--json").value["hours"] == 2
    )


def test_clean_sends_the_current_hour_too(folder: Path, feeds: Any) -> None:
    landing = Downloads(folder / "workspace")
    landing.land(download(1, b"now", hour=Hour.of(SYSTEM.now())), b"now")  # the tests may have begun an hour ago
    assert feeds("archive", "--json").value["archived"] == []
    done = feeds("clean", "--json")
    assert (done.status, done.value["left"]) == (0, [])
    feeds("retrieve", "--target-directory", "out")
    assert files(folder / "out") == [b"now"]


def test_collect_once_settles_what_is_there(folder: Path, feeds: Any, main_bucket: LocalBucket) -> None:
    Downloads(folder / "workspace").land(download(1, b"a", hour=OLD), b"a")
    store(main_bucket, {2: b"b"}, hour=OLD)
    done = feeds("collect", "--once", "--json")
    assert done.status == 0, done.err
    assert len(list(main_bucket.list("feeds/"))) == 1
    feeds("retrieve", "--target-directory", "out", "--object-storage-ids", "spare")
    assert files(folder / "out") == [b"a", b"b"]


def test_retrieve_options_reach_the_disk(folder: Path, feeds: Any, main_bucket: LocalBucket) -> None:
    one = store(main_bucket, {1: b"a"}, hour=OLD)
    two = store(main_bucket, {1: b"b"}, hour=OLD, feed="bus", compression=Compression.ZSTD)
    feeds("retrieve", "--target-directory", "flat", "--collapse-feeds", "--collapse-time", "--no-extract")
    assert {path.name for path in (folder / "flat").glob("*.tar.*")} == {one.name, two.name}
    feeds("retrieve", "--target-directory", "bus", "--collapse-time", "--feed-ids", "bus")
    assert [path.name for path in (folder / "bus").iterdir() if path.name[0] != "."] == ["bus"]
    feeds("retrieve", "--target-directory", "both", "--feed-ids", "bus,subway", "--collapse-feeds")
    assert files(folder / "both") == [b"b", b"a"]


def test_an_unknown_feed_is_told_and_the_rest_is_done(folder: Path, feeds: Any, main_bucket: LocalBucket) -> None:
    store(main_bucket, {1: b"a"}, hour=OLD)
    done = feeds("retrieve", "--target-directory", "out", "--feed-ids", "tram", "--feed-ids", "subway")
    assert done.status == 1
    assert "'tram'" in done.err and "subway" in done.err
    assert files(folder / "out") == [b"a"]


def test_a_feed_that_is_no_longer_declared_can_be_had(folder: Path, feeds: Any, main_bucket: LocalBucket) -> None:
    store(main_bucket, {1: b"old"}, hour=OLD, feed="tram")
    assert feeds("retrieve", "--target-directory", "out", "--feed-ids", "tram").status == 0
    assert files(folder / "out") == [b"old"]
    assert feeds("retrieve", "--target-directory", "all", "--json").value["hours"] == 1
    assert "tram (not declared)" in feeds("status").out


def test_a_corrupt_archive_is_told_and_the_rest_is_done(folder: Path, feeds: Any, main_bucket: LocalBucket) -> None:
    bad = store(main_bucket, {second: noise(50_000, second) for second in range(4)}, hour=OLD)
    cut_short(main_bucket, bad)
    store(main_bucket, {1: b"fine"}, hour=NEXT)
    done = feeds("retrieve", "--target-directory", "out", "--json")
    assert done.status == 1
    assert bad.name in done.err
    assert done.value["hours"] == 1
    assert b"fine" in files(folder / "out")


@pytest.mark.parametrize("command", ["retrieve", "delete", "reconcile", "audit"])
def test_start_after_end_is_wrong_usage(folder: Path, feeds: Any, command: str) -> None:
    more = {
        "retrieve": ["--target-directory", "out"],
        "delete": ["--object-storage-ids", "main", "--yes"],
    }.get(command, [])
    done = feeds(command, *more, "--start-time", END, "--end-time", START)
    assert done.status == 2
    assert "start_time" in done.err
    assert not (folder / "out").exists()


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01T00:00:00Z", ""])
def test_a_time_that_is_none(feeds: Any, text: str) -> None:
    done = feeds("retrieve", "--target-directory", "out", "--start-time", text)
    assert done.status == 2
    assert "2026-11-15T08:00:00Z" in done.err


def test_a_time_without_a_zone_is_utc(folder: Path, feeds: Any, main_bucket: LocalBucket) -> None:
    store(main_bucket, {1: b"a"}, hour=OLD)
    store(main_bucket, {1: b"b"}, hour=NEXT)
    period = ("--start-time", f"{OLD.start:%Y-%m-%dT%H:30}", "--end-time", f"{OLD.start:%Y-%m-%dT%H:31}")
    assert feeds("retrieve", "--target-directory", "out", *period).status == 0
    assert files(folder / "out") == [b"a"]


def test_an_unknown_storage_is_wrong_usage(feeds: Any) -> None:
    done = feeds("retrieve", "--target-directory", "out", "--object-storage-ids", "far")
    assert done.status == 2
    assert "main, spare" in done.err


@pytest.mark.parametrize("left_out", ["--start-time", "--end-time", "--object-storage-ids"])
def test_delete_needs_its_storage_and_both_times_named(feeds: Any, left_out: str) -> None:
    given = {"--start-time": START, "--end-time": END, "--object-storage-ids": "main"}
    del given[left_out]
    done = feeds("delete", "--yes", *(part for pair in given.items() for part in pair))
    assert done.status == 2
    assert left_out in done.err


def test_delete_shows_and_asks(
    folder: Path, feeds: Any, main_bucket: LocalBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    store(main_bucket, {1: b"a"}, hour=OLD)
    period = ("--object-storage-ids", "main", "--start-time", START, "--end-time", END)
    for answer in ("n\n", "\n", ""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        done = feeds("delete", *period)
        assert (done.status, len(list(main_bucket.list("feeds/subway/")))) == (1, 1)
        assert "main: subway: 1 hour, " in done.err
        assert ": 1 archive, " in done.err
        assert "nothing was deleted" in done.out
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert feeds("delete", *period).status == 0
    assert [entry.key for entry in main_bucket.list("feeds/subway/")] == [OLD.tombstone("subway")]
    assert "nothing to delete" in feeds("delete", *period).out


def test_delete_of_an_unknown_feed_deletes_nothing(feeds: Any, main_bucket: LocalBucket) -> None:
    store(main_bucket, {1: b"a"}, hour=OLD)
    period = ("--object-storage-ids", "main", "--start-time", START, "--end-time", END)
    done = feeds("delete", *period, "--yes", "--feed-ids", "subway,tram")
    assert done.status == 2
    assert "tram" in done.err
    assert len(list(main_bucket.list("feeds/"))) == 1


def test_audit_exits_1_and_mends(feeds: Any, main_bucket: LocalBucket, spare_bucket: LocalBucket) -> None:
    store(main_bucket, {1: b"a"}, hour=OLD)
    store(main_bucket, {2: b"b"}, hour=OLD)
    store(spare_bucket, {3: b"c"}, hour=NEXT)
    found = feeds("audit", *THESE)
    assert found.status == 1
    for word in ("unmerged", "unreplicated", "subway", "main", "spare"):
        assert word in found.out
    kinds = [finding["kind"] for finding in feeds("audit", "--json", "--quick", *THESE).value["findings"]]
    assert sorted(kinds) == ["unmerged", "unreplicated", "unreplicated"]
    mended = feeds("audit", "--fix", *THESE)
    assert mended.status == 0, mended.err
    assert "mended" in mended.out
    assert feeds("audit", *THESE).status == 0
    assert len(list(spare_bucket.list("feeds/"))) == 2


def test_audit_tells_that_nothing_is_collected_any_more(feeds: Any, main_bucket: LocalBucket) -> None:
    store(main_bucket, {1: b"a"}, hour=OLD)
    store(main_bucket, {1: b"a"}, hour=OLD, feed="tram")  # which is not declared
    only = ("audit", "--quick", "--object-storage-ids", "main")
    for end in ((), ("--end-time", isoformat(NOW.start + timedelta(days=2)))):  # what is to come is not expected yet
        done = feeds(*only, "--json", *end)
        assert done.status == 1
        missing = {finding["feed"]: finding for finding in done.value["findings"]}
        assert set(missing) == {"subway", "bus"}
        assert missing["subway"]["hour"] == NEXT.start.isoformat()
        ended = (Hour.of(SYSTEM.now()).start - NEXT.start) // timedelta(hours=1)
        assert missing["subway"]["hours"] in (ended - 1, ended)  # the last one is expected ten minutes after its end
        assert "nothing of it is there" in missing["bus"]["detail"]
    assert feeds(*only, *THESE, "--start-time", START).status == 1
    assert feeds(*only, "--feed-ids", "subway", "--end-time", isoformat(NEXT.start)).status == 0


def test_audit_is_well_if_all_there_is_are_notes(feeds: Any, main_bucket: LocalBucket) -> None:
    archive = store(main_bucket, {1: b"b"}, hour=OLD, feed="bus")  # .gz, which is kept before .zst
    these = ("--feed-ids", "bus", "--end-time", isoformat(NEXT.start), "--object-storage-ids", "main")
    for fix in ((), ("--fix",)):
        done = feeds("audit", *fix, *these)
        assert done.status == 0, done.err
        assert "note" in done.out
        assert archive.name in done.out
        assert "1 hour looked at, " in done.out
        assert ", 1 finding\n" in done.out


def test_audit_mends_the_rest_if_a_storage_is_gone(folder: Path, feeds: Any, main_bucket: LocalBucket) -> None:
    (folder / "catchment.yaml").write_text(CONFIG.replace("./spare", "./no/such/folder"))
    store(main_bucket, {1: b"a"}, hour=OLD)
    store(main_bucket, {2: b"b"}, hour=OLD)
    done = feeds("audit", "--fix", "--end-time", isoformat(NEXT.start))
    assert done.status == 1
    assert "mended" in done.out
    assert done.err.count("catchment: spare: ") == 1  # and not for each feed
    assert len(list(main_bucket.list("feeds/subway/"))) == 1


def test_status_tells_what_fails(folder: Path, feeds: Any) -> None:
    assert feeds("status").status == 0
    with catchment.open() as lake:
        lake.monitor.record("feeds/subway", "download", OK, duration=0.1)
        lake.monitor.record("feeds/subway", "download", FAILED, note="HTTP 500")
        lake.monitor.record("feeds/subway", "download", FAILED, note="HTTP 500")
    done = feeds("status")
    assert done.status == 1
    assert "2 errors since" in done.out


def test_a_storage_that_is_gone_is_told(folder: Path, feeds: Any, main_bucket: LocalBucket) -> None:
    store(main_bucket, {1: b"a"}, hour=OLD)
    (folder / "catchment.yaml").write_text(CONFIG.replace("./spare", "./no/such/folder"))
    for command in (["status"], ["audit"], ["reconcile"]):
        done = feeds(*command)
        assert done.status == 1
        assert "spare" in done.out + done.err
    assert feeds("retrieve", "--target-directory", "out").status == 0
    assert feeds("retrieve", "--target-directory", "both", "--object-storage-ids", "spare,main").status == 1
    assert files(folder / "both") == [b"a"]


def test_no_secret_is_ever_said(folder: Path, feeds: Any, main_bucket: LocalBucket) -> None:
    cut_short(main_bucket, store(main_bucket, {1: noise(5000, 1)}, hour=OLD))
    for command in (["status", "--json"], ["audit", "--json"], ["retrieve", "--target-directory", "out", "-vv"]):
        done = feeds(*command)
        assert "s3cret" not in done.out + done.err


# -- lake.feeds ------------------------------------------------------------------------------------------------------


def test_reading_from_python(folder: Path, main_bucket: LocalBucket) -> None:
    store(main_bucket, {1: b"a", 2: b"a"}, hour=OLD)
    store(main_bucket, {1: b"a", 3: b"b"}, hour=OLD)
    store(main_bucket, {1: b"c"}, hour=NEXT)
    with catchment.open() as lake:
        found = list(lake.feeds.read("subway", OLD.start, NEXT.start))
        assert [(time - OLD.start, body) for time, _, body in found] == [
            (timedelta(seconds=second), body) for second, body in ((1, b"a"), (2, b"a"), (3, b"b"))
        ]
        assert [body for _, _, body in lake.feeds.read("subway", fold=True)] == [b"a", b"b", b"c"]
        assert list(lake.feeds.read("subway", object_storage_ids=["spare"])) == []
        with pytest.raises(UsageError, match="tram"):
            lake.feeds.read("tram")


def test_a_lake_made_of_a_value_has_feeds_too(folder: Path, main_bucket: LocalBucket) -> None:
    store(main_bucket, {1: b"a"}, hour=OLD)
    with Lake(load_text("object_storage: [{id: main, path: ./main}]")) as lake:
        assert [body for _, _, body in lake.feeds.read("subway")] == [b"a"]
        assert lake.feeds is lake.feeds


# -- bars ------------------------------------------------------------------------------------------------------------


def test_bars_are_for_terminals_only(capsys: pytest.CaptureFixture[str]) -> None:
    import io

    with bars("hours") as step:
        step(1, 2)
    assert capsys.readouterr() == ("", "")
    screen = io.StringIO()
    with bars("hours", console=Console(file=screen, force_terminal=True, width=100)) as step:
        step(1, 2, 1500, 3000)
        step(2, 2, 3000, 3000)
    assert "hours" in screen.getvalue()
    assert "2/2" in screen.getvalue()
    assert "3.0 kB of 3.0 kB" in screen.getvalue()

"""Fetching jars, from a mirror on loopback: whole or not at all, checked, once, and clear when it cannot be done."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from catchment.errors import SetupError
from catchment.spark import jars
from catchment.spark.jars import MIRROR, JarSet
from tests.spark.programs import run

(AVRO,) = jars.locked()[JarSet.AVRO]
FETCH = "from catchment.spark import jars; print(*jars.resolve(jars.JarSet.AVRO))"


class Mirror:
    """A folder laid out as Maven Central is, served over HTTP."""

    def __init__(self, root: Path) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                if self.command == "GET" and self.path.endswith(".jar"):
                    asked.append(self.path)

        self.root = root
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(root)))
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def place(self, source: Path | bytes) -> None:
        """Put Avro's jar, or other bytes in its stead."""
        target = self.root.joinpath(*AVRO.organisation.split("."), AVRO.name, AVRO.revision, AVRO.file_name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, bytes):
            target.write_bytes(source)
        else:
            shutil.copyfile(source, target)


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    found = Mirror(tmp_path / "mirror")
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache. What is in the real one can be had by asking before."""
    monkeypatch.setenv("CATCHMENT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def real_jar() -> Path:
    (path,) = jars.resolve(JarSet.AVRO)
    return path


def left(cache: Path) -> list[str]:
    """What is in the cache's folder of jars, hidden or not."""
    return sorted(path.name for path in (cache / "jars").iterdir())


def test_two_processes_fetch_it_once(real_jar: Path, mirror: Mirror, cache: Path) -> None:
    mirror.place(real_jar)
    env = {MIRROR: mirror.url, "CATCHMENT_CACHE": str(cache)}
    with ThreadPoolExecutor() as pool:
        both = list(pool.map(lambda _: run(FETCH, env=env), range(2)))
    expected = str(JarSet.AVRO.folder() / AVRO.file_name)
    assert [(done.stdout.strip(), done.stderr) for done in both] == [(expected, "")] * 2
    assert len(mirror.asked) == 1
    assert jars.sha256(Path(expected)) == AVRO.sha256
    assert left(cache) == [JarSet.AVRO.folder().name]


def test_other_bytes_are_refused_and_not_kept(mirror: Mirror, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MIRROR, mirror.url)
    mirror.place(b"not what was locked")
    with pytest.raises(SetupError, match=f"{AVRO.coordinate}.*jars.lock"):
        jars.resolve(JarSet.AVRO)
    assert left(cache) == []


def test_a_jar_that_is_not_there_is_named(mirror: Mirror, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MIRROR, mirror.url)
    with pytest.raises(SetupError) as caught:
        jars.resolve(JarSet.AVRO)
    assert AVRO.coordinate in caught.value.message
    assert MIRROR in caught.value.hint
    assert left(cache) == []


def test_without_a_network_the_first_missing_jar_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MIRROR, "http://127.0.0.1:1/")
    with pytest.raises(SetupError) as caught:
        jars.resolve(JarSet.DELTA)
    assert jars.locked()[JarSet.DELTA][0].coordinate in caught.value.message
    assert "network" in caught.value.hint
    assert left(cache) == []


def test_what_a_killed_process_left_is_cleared_away(
    real_jar: Path, mirror: Mirror, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MIRROR, mirror.url)
    mirror.place(real_jar)
    folder = JarSet.AVRO.folder()
    folder.with_name(f".{folder.name}-abandoned").mkdir(parents=True)
    jars.resolve(JarSet.AVRO)
    assert left(cache) == [folder.name]

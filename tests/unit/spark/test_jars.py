from __future__ import annotations

import re
from pathlib import Path

import pytest

from catchment.spark import jars
from catchment.spark.jars import ROOTS, SETS_FOR, Jar, JarSet


def test_every_pinned_jar_is_locked() -> None:
    for jar_set, roots in ROOTS.items():
        assert set(roots) <= {jar.coordinate for jar in jars.locked()[jar_set]}


def test_every_locked_jar_has_a_digest_and_one_version() -> None:
    for found in jars.locked().values():
        assert found
        assert len({jar.name for jar in found}) == len(found)
        for jar in found:
            assert re.fullmatch("[0-9a-f]{64}", jar.sha256)
            assert Jar.parse(str(jar)) == jar


def test_nothing_that_spark_has_itself_is_added_to_it() -> None:
    shipped = {path.name for path in (jars.spark_home() / "jars").iterdir()}
    for jar_set in SETS_FOR["demo"] + (JarSet.S3,):
        for jar in jars.locked()[jar_set]:
            version = re.compile(re.escape(jar.name) + r"-\d+\..*\.jar")
            assert not [name for name in shipped if version.fullmatch(name)], jar.coordinate


def test_what_is_in_the_cache_is_used_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CATCHMENT_CACHE", str(tmp_path))
    monkeypatch.setenv(jars.MIRROR, "http://127.0.0.1:1/")
    JarSet.AVRO.folder().mkdir(parents=True)
    assert JarSet.AVRO.there()
    (path,) = jars.resolve(JarSet.AVRO)
    assert path == tmp_path / "jars" / JarSet.AVRO.folder().name / "spark-avro_2.13-4.0.0.jar"

"""What the Spark source plans and reads, without Spark."""

from __future__ import annotations

import pickle
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition

from catchment.bucket.open import open_bucket
from catchment.config import load_text
from catchment.errors import DamagedArchive, UsageError
from catchment.feeds import source
from catchment.feeds.names import Compression
from catchment.feeds.source import ArchiveSource, HourPartition, HourReader, Known, asked
from tests.unit.feeds.stores import HOUR, cut_short, hours_later, noise, store

CONFIG = """
object_storage: [{id: main, path: ./main}, {id: spare, path: ./spare}]
feeds: [{id: subway, url: "https://feeds.example.com/subway", periodicity: 5s}]
"""


class Site:
    def __init__(self, root: Path) -> None:
        (root / "catchment.yaml").write_text(CONFIG)
        self.known = Known.of(load_text(CONFIG, base=root))
        self.main, self.spare = (open_bucket(storage) for storage in self.known.storages)

    def reader(self, **options: str) -> HourReader:
        return HourReader(asked({"feed": "subway", **options}, self.known))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def rows(reader: HourReader) -> list[tuple[str, datetime, str, bytes]]:
    """As Spark does it: the reader and the partitions go to other processes."""
    there: HourReader = pickle.loads(pickle.dumps(reader))
    found = []
    for partition in pickle.loads(pickle.dumps(reader.partitions())):
        for batch in there.read(partition):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


def bodies(reader: HourReader) -> list[bytes]:
    return [row[3] for row in rows(reader)]


def test_rows(site: Site) -> None:
    store(site.main, {1: b"a"})
    ((feed, time, hash, body),) = rows(site.reader())
    assert (feed, time, len(hash), body) == ("subway", HOUR.start + timedelta(seconds=1), 20, b"a")


def test_one_partition_an_hour_and_each_download_once(site: Site) -> None:
    store(site.main, {1: b"a", 2: b"b"})
    store(site.main, {2: b"b", 3: b"c"}, compression=Compression.ZSTD)
    store(site.main, {1: b"d"}, hour=hours_later(1))
    reader = site.reader()
    assert len(reader.partitions()) == 2
    assert bodies(reader) == [b"a", b"b", b"c", b"d"]


def test_only_the_period(site: Site) -> None:
    for later in range(5):
        store(site.main, {0: b"first", 1800: b"half"}, hour=hours_later(later))
    reader = site.reader(start="2026-11-15T09:30:00Z", end="2026-11-15T10:30:00")
    assert len(reader.partitions()) == 2
    assert bodies(reader) == [b"half", b"first"]


def test_an_archive_that_is_merged_between_planning_and_reading(site: Site) -> None:
    old = [store(site.main, {1: b"a"}), store(site.main, {2: b"b"})]
    reader = site.reader()
    planned = reader.partitions()
    store(site.main, {1: b"a", 2: b"b"})
    for archive in old:
        site.main.delete(archive.key)
    assert [row["body"] for part in planned for batch in reader.read(part) for row in batch.to_pylist()] == [b"a", b"b"]


def test_folding(site: Site) -> None:
    store(site.main, {1: b"a", 2: b"a", 3: b"b"})
    assert bodies(site.reader()) == [b"a", b"a", b"b"]
    assert bodies(site.reader(fold="True")) == [b"a", b"b"]


def test_several_feeds_and_storages(site: Site) -> None:
    store(site.main, {1: b"a"})
    store(site.spare, {2: b"b"})
    store(site.spare, {1: b"bus"}, feed="bus")
    assert bodies(site.reader()) == [b"a"]
    assert bodies(site.reader(feed="subway, bus", object_storage_ids="main,spare")) == [b"a", b"b", b"bus"]


def test_damage_fails_unless_it_may_be_skipped(site: Site) -> None:
    cut_short(site.main, store(site.main, {second: noise(50_000, second) for second in range(5)}))
    with pytest.raises(DamagedArchive):
        rows(site.reader())
    assert 0 < len(bodies(site.reader(damaged="skip"))) < 5


def test_a_deleted_hour_and_an_empty_feed(site: Site) -> None:
    assert site.reader().partitions() == []  # declared, and nothing is there yet
    store(site.main, {1: b"a"})
    site.main.put(HOUR.tombstone("subway"), b"{}")
    assert site.reader().partitions() == []


def test_what_spark_gives_where_there_is_no_partition(site: Site) -> None:
    assert list(site.reader().read(InputPartition(None))) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"feed": ""}, "feed"),
        ({"fed": "x"}, "fed"),
        ({"start": "yesterday"}, "start"),
        ({"start": "2026-11-15T09:00:00Z", "end": "2026-11-15T08:00:00Z"}, "start_time"),
        ({"fold": "perhaps"}, "fold"),
        ({"damaged": "mend"}, "damaged"),
        ({"object_storage_ids": "far"}, "far"),
    ],
)
def test_options_that_cannot_be_understood(site: Site, options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        site.reader(**options)
    assert error.value.hint


def test_an_unknown_feed(site: Site) -> None:
    store(site.main, {1: b"a"})
    with pytest.raises(UsageError, match="tram"):
        site.reader(feed="tram").partitions()


def test_batches_are_small(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BATCH_BYTES", 100_000)
    store(site.main, {second: noise(40_000, second) for second in range(7)})
    reader = site.reader()
    (partition,) = reader.partitions()
    assert isinstance(partition, HourPartition)
    assert [batch.num_rows for batch in reader.read(partition)] == [3, 3, 1]


def test_the_configuration_may_be_named_by_an_option(site: Site, tmp_path: Path) -> None:
    store(site.main, {1: b"a"})
    made = ArchiveSource({"feed": "subway", "config": str(tmp_path / "catchment.yaml")})
    assert made.name() == "catchment"
    assert [row[3] for row in rows(made.reader(None))] == [b"a"]  # type: ignore[arg-type]


def test_no_secret_is_shown() -> None:
    text = "object_storage: [{id: main, bucket: lake, aws_access_key_id: k3y, aws_secret_access_key: s3cret}]"
    reader = HourReader(asked({"feed": "subway"}, Known.of(load_text(text))))
    there: HourReader = pickle.loads(pickle.dumps(reader))
    assert there.asked == reader.asked
    for shown in (repr(reader.asked), str(there.asked), repr(there.asked.storages)):
        assert "s3cret" not in shown
        assert "k3y" not in shown

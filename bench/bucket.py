"""The local directory against what the operating system does by itself."""

from __future__ import annotations

import os
import shutil
import tempfile
from itertools import count
from pathlib import Path

from bench.measure import against
from catchment.bucket.local import LocalBucket

KEYS = 100_000
PUTS = 10_000


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="catchment-bench-"))
    try:
        listing(folder / "list")
        puts(folder)
    finally:
        shutil.rmtree(folder)


def listing(root: Path) -> None:
    for n in range(KEYS):
        path = root / f"{n // 10_000:02d}/{n // 100 % 100:02d}/{n:06d}.json"
        if n % 100 == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def walked() -> None:
        assert sum(len(files) for _, _, files in os.walk(root)) == KEYS

    def walked_with_stat() -> None:
        assert sum(os.stat(f"{at}/{name}").st_size == 0 for at, _, files in os.walk(root) for name in files) == KEYS

    def listed() -> None:
        assert sum(1 for _ in LocalBucket(root).list()) == KEYS

    against(f"list {KEYS} keys, against os.walk (which does not sort, and knows no sizes)", listed, walked)
    against(f"list {KEYS} keys, against os.walk with a stat of each file", listed, walked_with_stat)


def puts(folder: Path) -> None:
    body = b"x" * 200
    turns = count()

    def plain(*, durable: bool) -> None:
        root = folder / f"plain-{next(turns)}"
        root.mkdir()
        for n in range(PUTS):
            aside = root / f".{n}"
            with aside.open("wb") as file:
                file.write(body)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            aside.rename(root / f"{n}.json")
        shutil.rmtree(root)

    def ours(*, durable: bool) -> None:
        root = folder / f"ours-{next(turns)}"
        root.mkdir()
        bucket = LocalBucket(root, durable=durable)
        for n in range(PUTS):
            bucket.put(f"{n}.json", body)
        shutil.rmtree(root)

    for durable, words in ((False, "without fsync"), (True, "with fsync (ours also syncs the folder)")):
        against(
            f"put {PUTS} small objects {words}, against plain temp-and-rename",
            lambda durable=durable: ours(durable=durable),  # type: ignore[misc]
            lambda durable=durable: plain(durable=durable),  # type: ignore[misc]
            rounds=3,
        )


if __name__ == "__main__":
    main()

"""Packing and merging archives, against tar and the compressors' own programs.

Each measurement runs in a process of its own, which tells its CPU time (user and system) and how far its memory rose
above what it was before. The data: an hour of a feed that changes a little each second, as two replicas saw it. They
poll at different moments, so half of their bodies are the same.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from catchment.feeds.archive import Source, merge, pack
from catchment.feeds.names import Archive, Compression, Download, Hour, body_hash

HOUR = Hour(datetime(2026, 11, 15, 8, tzinfo=UTC))
FEED = "subway"
BODIES = 3600
ROUNDS = 3
# CPU seconds of the Go program of the reference design, on a machine like the one this was written on.
REFERENCE = {("pack", "zstd"): 1.3, ("merge", "zstd"): 2.5, ("pack", "gzip"): 12.5, ("merge", "gzip"): 13.5}
PROGRAMS = {"gzip": "gzip -6", "zstd": "zstd -3 -q"}


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="catchment-bench-"))
    try:
        total = make_hours(folder)
        print(f"two hours of {BODIES} bodies, {total / BODIES / 2 / 1000:.0f} KB each; the least of {ROUNDS} rounds")
        print(f"{'':34}{'CPU s':>8}{'memory MB':>11}{'archive MB':>12}{'reference/ours':>16}")
        for compression in ("zstd", "gzip"):
            for work in ("pack", "merge"):
                ours = min((child(folder, work, compression) for _ in range(ROUNDS)), key=lambda each: each["cpu"])
                times = REFERENCE[work, compression] / ours["cpu"]
                print(f"{work}, {compression}".ljust(34), f"{ours['cpu']:7.2f}{ours['memory'] / 1e6:11.1f}", end="")
                print(f"{ours['size'] / 1e6:12.2f}{times:15.1f}×", flush=True)
                programs(folder, work, compression)
    finally:
        shutil.rmtree(folder)


def make_hours(folder: Path) -> int:
    """Write both replicas' downloads. Returns their bytes."""
    dice = random.Random(8)
    vehicles: list[dict[str, Any]] = [
        {
            "id": f"{dice.getrandbits(64):016x}",
            "trip": f"{dice.getrandbits(48):012x}",
            "lat": round(40 + dice.random(), 6),
            "lon": round(-74 + dice.random(), 6),
            "bearing": dice.randrange(360),
            "stop": f"S{dice.randrange(900):03d}",
            "delay": dice.randrange(600),
            "status": dice.choice(["IN_TRANSIT_TO", "STOPPED_AT", "INCOMING_AT"]),
        }
        for _ in range(347)
    ]
    total = 0
    for replica in ("a", "b"):
        (folder / replica).mkdir()
    for second in range(BODIES):
        versions = []
        for half in range(2):
            for vehicle in dice.sample(vehicles, 3):
                vehicle["lat"] = round(vehicle["lat"] + dice.uniform(-1, 1) / 1000, 6)
                vehicle["lon"] = round(vehicle["lon"] + dice.uniform(-1, 1) / 1000, 6)
            versions.append(json.dumps({"timestamp": 1_794_700_800_000 + second * 1000 + half * 500, "v": vehicles}))
        for replica, millis, version in (("a", 210, 0), ("b", 640, dice.randrange(2))):
            body = versions[version].encode()
            time = HOUR.start + timedelta(milliseconds=second * 1000 + millis)
            (folder / replica / Download(FEED, time, body_hash(body), ".json").name).write_bytes(body)
            total += len(body)
    return total


def child(folder: Path, work: str, compression: str) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.feeds_archives", str(folder), work, compression]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measured(folder: Path, work: str, compression: Compression) -> None:
    """What the child does. For a merge, the two hours have been packed by `pack` before."""
    target = folder / f"ours-{compression}"
    files = {replica: list((folder / replica).iterdir()) for replica in ("a", "b")}
    sources: list[Source] = []
    if work == "merge":
        for replica in ("a", "b"):
            path = next((target / replica).rglob("*.tar.*"))
            sources.append((path.name, lambda path=path: path.open("rb"), compression))  # type: ignore[misc]
    idle, before = memory("VmRSS"), resource.getrusage(resource.RUSAGE_SELF)
    if work == "merge":
        done = merge(sources, target / "merged", feed=FEED, hour=HOUR, compression=compression)
    else:
        packed = pack(files["a"], target / "a", feed=FEED, hour=HOUR, compression=compression)
        assert packed is not None
        done = packed
    after, peak = resource.getrusage(resource.RUSAGE_SELF), memory("VmHWM")
    assert len(done.members) == BODIES * (2 if work == "merge" else 1) and Archive.parse_name(done.path.name)
    if work == "pack":
        pack(files["b"], target / "b", feed=FEED, hour=HOUR, compression=compression)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"cpu": cpu, "memory": peak - idle, "size": done.path.stat().st_size}))


def memory(what: str) -> int:
    """Of this process, in bytes. (What getrusage calls the maximum counts the parent's memory, too.)"""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what))
    return int(line.split()[1]) * 1024


def programs(folder: Path, work: str, compression: str) -> None:
    """The same work by tar and a compressor, as CPU time of all of their processes."""
    program = PROGRAMS[compression]
    if shutil.which(program.split()[0]) is None:
        print(f"  {program}: not on this machine (it is in the package {program.split()[0]})")
        return
    out = folder / "programs"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    if work == "pack":
        command = f"tar -cf - -C {folder}/a . | {program} > {out}/made"
        name = f"  tar | {program}"
    else:
        ours = [next((folder / f"ours-{compression}" / each).rglob("*.tar.*")) for each in ("a", "b")]
        unpack = " && ".join(f"tar -xf {path} -C {out}/all" for path in ours)
        command = f"mkdir {out}/all && {unpack} && tar -cf - -C {out}/all . | {program} > {out}/made"
        name = f"  tar -x twice, tar | {program}"
    best = min(_cpu_of(command, out) for _ in range(ROUNDS))
    print(name.ljust(34), f"{best:7.2f}{'':11}{(out / 'made').stat().st_size / 1e6:12.2f}", flush=True)


def _cpu_of(command: str, out: Path) -> float:
    shutil.rmtree(out / "all", ignore_errors=True)
    before = os.times()
    subprocess.run(["sh", "-c", command], check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


if __name__ == "__main__":
    if len(sys.argv) == 4:
        measured(Path(sys.argv[1]), sys.argv[2], Compression(sys.argv[3]))
    else:
        main()

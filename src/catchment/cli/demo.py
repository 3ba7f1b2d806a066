"""`catchment demo`: a lake on this machine, from nothing to a table that can be queried, in a minute."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from catchment.cli.output import Given, options, say
from catchment.clock import SYSTEM, Clock


@dataclass(frozen=True)
class Demo:
    """What the demo did."""

    lake: str  # the folder; gone unless it was asked to be kept
    table: str  # the table's key in the lake
    rows: tuple[tuple[str, int], ...]  # what was read back
    files: tuple[str, ...]  # the objects that make up the table
    seconds: float  # from start to answer


NEXT = """Try next:
  {catchment} init     write a commented catchment.yaml to start from
  {catchment} check    say whether its buckets, Spark and brokers are in reach"""


def run(say: Callable[[str], None], *, keep: Path | None = None, clock: Clock = SYSTEM) -> Demo:
    """Make a lake (in `keep`, else in a folder that is removed again), write a row to a Delta table, read it back.

    `say` gets one line of plain words per step. SetupError if Spark cannot be started.
    """
    from catchment.spark.session import session

    began = clock.monotonic()
    lake = keep.absolute() if keep else Path(tempfile.mkdtemp(prefix="catchment-demo-"))
    key = "warehouse/demo/springs"
    table = lake / key
    try:
        say(f"A lake is a folder (or an S3 bucket). This one: {lake}")
        say("Starting Spark on this machine …")
        spark = session("local[*]", app="catchment-demo")
        try:
            say(f"Writing one row to a Delta table, {key} …")
            rows = spark.createDataFrame([("Blautopf", 2300)], "spring string, litres_per_second int")
            rows.coalesce(1).write.format("delta").mode("overwrite").save(str(table))
            found = spark.sql(f"SELECT spring, litres_per_second FROM delta.`{table}`").collect()
        finally:
            spark.stop()
        files = tuple(sorted(str(path.relative_to(lake)) for path in table.rglob("*") if _is_object(path)))
        done = Demo(str(lake), key, tuple((row[0], row[1]) for row in found), files, clock.monotonic() - began)
    finally:
        if keep is None:
            shutil.rmtree(lake, ignore_errors=True)
    for spring, litres in done.rows:
        say(f"Read back: {spring}, {litres} litres per second.")
    say(f"The table is {len(done.files)} objects: the rows as Parquet, and a log that says which files count.")
    say(f"That took {done.seconds:.0f} seconds, most of it Spark's start.")
    say("")
    say(NEXT.format(catchment="catchment" if shutil.which("catchment") else _beside_python()))
    return done


def _beside_python() -> str:
    """How to call it where its folder is not on PATH."""
    script = Path(sys.executable).with_name("catchment")
    return os.path.relpath(script) if script.is_relative_to(Path.cwd()) else str(script)


def _is_object(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".")  # Hadoop keeps checksums in dot files


@click.command()
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep the lake in this folder.")
@options
def demo(*, given: Given, keep: Path | None) -> None:
    """Show a small lake on this machine: Spark up, a row written to a Delta table and read back."""
    done = run(say if given.as_json else click.echo, keep=keep)
    given.show(done, lambda: None)

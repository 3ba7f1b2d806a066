"""What the guide shows of decoders and formats can be written so: configurations are read, programs compile."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from catchment.bucket.memory import MemoryBucket
from catchment.config.decode import Decode
from catchment.config.topics import Export
from catchment.topics.decode.decoder import check_decoder, decoder_of
from catchment.topics.decode.schemas import Schemas
from catchment.topics.files.format import file_format
from catchment.topics.names import Place
from tests.unit.topics.decode.messages import reasons, records

DOCS = Path(__file__).parents[3] / "docs"
PAGES = ("topics-decoders.md", "topics-formats.md")


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def configurations(page: str) -> list[dict[str, Any]]:
    """The exports that are shown. Where a block has the same key again, it shows one after the other."""
    found: list[dict[str, Any]] = []
    for block in blocks(page, "yaml"):
        for one in re.split(r"^(?=decode:)", block, flags=re.MULTILINE):
            values = yaml.safe_load(one) or {}
            found += values.get("exports", [{"group": "shown", **values}] if values else [])
    return found


SHOWN = [one for page in PAGES for one in configurations(page)]


def test_there_are_examples() -> None:
    assert len(SHOWN) == 17
    assert {str(one["decode"]["name"]) for one in SHOWN if isinstance(one.get("decode"), dict)} == {
        "regex",
        "avro",
        "protobuf",
        "payments:payments",
    }
    assert sum(len(blocks(page, "python")) for page in PAGES) == 4


@pytest.mark.parametrize("shown", SHOWN, ids=range(len(SHOWN)))
def test_every_configuration_is_one(shown: dict[str, Any]) -> None:
    export = Export.model_validate(shown)
    assert file_format(export.format).ext
    decode = export.decode
    if decode is not None and ":" not in decode.name and decode.schema_file is None and decode.descriptor is None:
        check_decoder(decode)


@pytest.mark.parametrize("page", PAGES)
def test_every_program_compiles(page: str) -> None:
    for program in blocks(page, "python"):
        compile(program, page, "exec")


def test_the_log_line_of_the_guide_is_read_as_it_says() -> None:
    (shown,) = (one["decode"] for one in SHOWN if "host" in str(one.get("decode")))
    decode = Decode.model_validate(shown)
    decoder = decoder_of(decode, Schemas(MemoryBucket(), Place("g", "t"), decode.schemas, 1))
    line = b'10.0.0.7 - kim [16/Nov/2026:08:00:00 +0000] "GET / HTTP/1.1" 304 '
    found = decoder.decode("", records([line + b"12", line + b"-", b"nothing"]))
    assert found.table.select(["host", "status", "bytes"]).to_pylist() == [
        {"host": "10.0.0.7", "status": 304, "bytes": 12},
        {"host": "10.0.0.7", "status": 304, "bytes": None},
    ]
    assert found.table.schema.field("status").type == pa.int32()
    assert reasons(found) == ["does not match decode.pattern"]

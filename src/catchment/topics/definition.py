"""A generation is one definition: decode, filter, split, format and the version of the code that carries them out.

Its fingerprint is in every name, so two definitions can never write the same object. What is not in it may change at
any time without a new generation: policy, heartbeat, finalising, thresholds.

Files that a decoder names, and the module of one's own decoder, are in it by their content. What that module imports
is not.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from catchment.config.decode import Decode
from catchment.config.secret import HIDDEN
from catchment.config.section import Section
from catchment.config.topics import Export
from catchment.topics.decode.modules import find, is_plugin
from catchment.topics.names import FINGERPRINT

CODE = {  # raise the number when the same bytes would make other rows; old and new then need two generations
    None: 1,
    "json": 1,
    "msgpack": 1,
    "avro": 1,
    "protobuf": 1,
    "regex": 1,
}
WRITER = 1  # the same for what is written around the rows: columns of Kafka's own, names of folders


def definition(export: Export) -> dict[str, Any]:
    """What makes this export's rows what they are, as plain values.

    Without defaults, so that a later release can add an option and leave the fingerprints of existing lakes alone.
    UsageError if a file or a module that it names is not there.
    """
    return {
        "decode": _given(export.decode) | _contents(export.decode) if export.decode else None,
        "filter": export.filter,
        "format": _given(export.format),
        "split": [[name, _given(split)] for name, split in export.split.items()],
        "code": _code(export.decode),
    }


def _code(decode: Decode | None) -> list[int | str]:
    if decode is not None and is_plugin(decode.name):
        return [1, WRITER, find(decode.name).digest]
    return [CODE[decode.name if decode else None], WRITER]


def _given(section: Section) -> dict[str, Any]:
    return section.model_dump(mode="json", exclude_defaults=True)


def _contents(decode: Decode) -> dict[str, str]:
    """Of files, what is in them counts, and not where they are. Of a registry, where it is, and not who asks."""
    files = {"schema_file": decode.schema_file, "descriptor": decode.descriptor}
    found = {name: file.digest() for name, file in files.items() if file is not None}
    if decode.registry is not None:
        found["registry"] = str(decode.registry).replace(f"{HIDDEN}@", "", 1)
    return found


def fingerprint(export: Export) -> str:
    """The hash of the definition."""
    return digest(definition(export))


def digest(value: object) -> str:
    """The hash of plain values, as long as names have it."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:FINGERPRINT]


def with_schema(fingerprint: str, schema: object) -> str:
    """The fingerprint that a file's name carries: definition and schema."""
    return digest([fingerprint, schema])

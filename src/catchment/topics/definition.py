"""A generation is one definition: decode, filter, split, format and the version of the code that carries them out.

Its fingerprint is in every name, so two definitions can never write the same object. What is not in it may change at
any time without a new generation: policy, heartbeat, finalising, thresholds.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from catchment.config.section import Section
from catchment.config.topics import Export
from catchment.topics.names import FINGERPRINT

CODE = {  # raise the number when the same bytes would make other rows; old and new then need two generations
    None: 1,
    "json": 1,
}
WRITER = 1  # the same for what is written around the rows: columns of Kafka's own, names of folders


def definition(export: Export) -> dict[str, Any]:
    """What makes this export's rows what they are, as plain values.

    Without defaults, so that a later release can add an option and leave the fingerprints of existing lakes alone.
    """
    decoder = export.decode.name if export.decode else None
    return {
        "decode": _given(export.decode) if export.decode else None,
        "filter": export.filter,
        "format": _given(export.format),
        "split": [[name, _given(split)] for name, split in export.split.items()],
        "code": [CODE.get(decoder, 1), WRITER],
    }


def _given(section: Section) -> dict[str, Any]:
    return section.model_dump(mode="json", exclude_defaults=True)


def fingerprint(export: Export) -> str:
    """The hash of the definition."""
    return digest(definition(export))


def digest(value: object) -> str:
    """The hash of plain values, as long as names have it."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:FINGERPRINT]


def with_schema(fingerprint: str, schema: object) -> str:
    """The fingerprint that a file's name carries: definition and schema."""
    return digest([fingerprint, schema])

"""Protobuf messages as JSON text, as protobuf itself writes it: one by one, so for what has no columns alone."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from catchment.topics.decode.wire import Positions

_OPAQUE = "google.protobuf.Any"


def as_json(
    descriptor: Descriptor, pieces: pa.BinaryArray, rows: Positions, count: int
) -> tuple[pa.Array, list[int], dict[int, str]]:
    """The texts of `count` messages, each merged from its pieces; which are no messages; and why others have no text.

    rows: of each piece, ascending. Fields have the names of the .proto file, and those of an object are sorted.
    """
    wrong: list[int] = []
    unfit: dict[int, str] = {}
    found = ["{}"] * count
    kind = GetMessageClass(descriptor)
    begins = np.searchsorted(rows, np.arange(count + 1)).tolist()
    values = pieces.to_pylist()
    for row in range(count):
        message = kind()
        try:
            for piece in values[begins[row] : begins[row + 1]]:
                message.MergeFromString(piece)
        except DecodeError:
            wrong.append(row)
            continue
        if not message.IsInitialized():
            unfit[row] = "without a field that is required"
            continue
        try:
            found[row] = _text(message)
        except (json_format.Error, DecodeError, TypeError, ValueError) as error:
            unfit[row] = f"has no JSON text ({str(error)[:100]})"
    return pa.array(found, pa.string()), wrong, unfit


def _text(message: Message) -> str:
    pool: Any = message.DESCRIPTOR.file.pool
    try:
        plain = json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
    except (TypeError, DecodeError):
        if message.DESCRIPTOR.full_name != _OPAQUE:
            raise
        # Nobody said what is in it, or it is something else: it is kept as it is.
        content = {field.name: value for field, value in message.ListFields()}
        plain = {"@type": content.get("type_url", ""), "value": b64encode(content.get("value", b"")).decode()}
    return json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)

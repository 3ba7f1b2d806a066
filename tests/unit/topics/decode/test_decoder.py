"""Which decoder an export gets, and what it needs."""

from __future__ import annotations

from typing import Any

import pytest

from catchment.config.decode import Decode
from catchment.topics.decode.decoder import check_decoder, needs_headers

RECORD = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'


@pytest.mark.parametrize(
    "decode",
    [
        {"name": "json"},
        {"name": "json", "registry": "http://localhost:1"},
        {"name": "msgpack"},
        {"name": "avro", "schema": RECORD},
        {"name": "avro", "registry": "http://localhost:1"},
        {"name": "protobuf", "registry": "http://localhost:1"},
        {"name": "regex", "pattern": "(?P<a>.*)"},
        {"name": "json:loads"},
    ],
)
def test_each_can_be_had_without_asking_anybody_and_takes_declared_fields(decode: dict[str, Any]) -> None:
    check_decoder(Decode.model_validate(decode))
    check_decoder(Decode.model_validate({**decode, "schemas": {"*": "a BIGINT"}}))


def test_headers_are_read_only_where_somebody_looks_at_them() -> None:
    def of(**decode: Any) -> Decode:
        return Decode.model_validate(decode)

    assert needs_headers(None)
    assert needs_headers(of(name="mine:decode"))
    assert not needs_headers(of(name="json"))
    assert not needs_headers(of(name="regex", pattern="(?P<a>.*)"))
    chosen = {"name": "protobuf", "descriptor": "x", "messages": {"a": "b.C"}}
    assert needs_headers(of(**chosen, type_from={"header": "type"}))
    assert not needs_headers(of(**chosen, type_from={"field": "type"}))

"""Asking a schema registry: once per schema, patiently, and without giving a password away."""

from __future__ import annotations

import logging
import pickle
import struct

import httpx
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.config.decode import Decode
from catchment.config.secret import Url
from catchment.errors import ExportStopped, RegistryError, UsageError
from catchment.testing.clock import FakeClock
from catchment.testing.registry import SchemaRegistry, framed
from catchment.topics.decode import registry as module
from catchment.topics.decode.registry import Reference, Registered, Registry, UnknownSchema, shared, unframed

STRING = '"string"'


def client(server: SchemaRegistry, url: str = "http://registry.test", clock: FakeClock | None = None) -> Registry:
    return Registry(url, transport=server.transport(), clock=clock or FakeClock())


def test_a_schema_is_asked_for_once() -> None:
    server = SchemaRegistry()
    number = server.register("s", STRING)
    registry = client(server)
    assert [registry.schema(number) for _ in range(3)] == [Registered(number, "AVRO", STRING)] * 3
    assert server.requests == [f"/schemas/ids/{number}"]


def test_kinds_and_references() -> None:
    server = SchemaRegistry()
    server.register("other/one", '{"type": "enum", "name": "E", "symbols": ["A"]}')
    number = server.register("s", '"E"', references=[("E", "other/one", 1)])
    json_number = server.register("t", "{}", "JSON")
    registry = client(server, "http://registry.test/")
    found = registry.schema(number)
    assert found.references == (Reference("E", "other/one", 1),)
    assert registry.referenced(found.references[0]).number == 1
    assert registry.referenced(found.references[0]).number == 1
    assert registry.schema(json_number).kind == "JSON"
    assert server.requests.count("/subjects/other%2Fone/versions/1?deleted=true") == 1


def test_protobuf_in_its_serialized_form() -> None:
    server = SchemaRegistry()
    number = server.register("p", "message M {}", "PROTOBUF", serialized="QUJD")
    registry = client(server)
    assert registry.schema(number).text == "message M {}"
    assert registry.schema(number, serialized=True).text == "QUJD"


def test_a_number_that_is_not_there_is_no_trouble_of_the_registry() -> None:
    server, clock = SchemaRegistry(), FakeClock()
    registry = client(server, clock=clock)
    for _ in range(2):
        with pytest.raises(UnknownSchema, match="the registry has no schema 17"):
            registry.schema(17)
    assert len(server.requests) == 1
    clock.advance(module.MEMORY + 1)
    for _ in range(17):
        server.register("s", f'{{"type": "fixed", "name": "F{_}", "size": 1}}')
    assert registry.schema(17).kind == "AVRO"


def test_far_too_many_numbers_that_are_not_there_stop_the_export() -> None:
    registry = client(SchemaRegistry())
    with pytest.raises(ExportStopped, match="begin with a byte 0"):
        for number in range(module.MOST_UNKNOWN + 1):
            with pytest.raises(UnknownSchema):
                registry.schema(number)


def test_a_reference_to_nothing() -> None:
    with pytest.raises(UnknownSchema, match="version 3 of subject 's'"):
        client(SchemaRegistry()).referenced(Reference("n", "s", 3))


def test_a_registry_that_is_away_is_asked_a_few_times_and_then_an_error() -> None:
    server, clock = SchemaRegistry(away=True), FakeClock()
    before = clock.monotonic()
    with pytest.raises(RegistryError, match=r"http://registry.test.* schema 1 .*nothing was written"):
        client(server, clock=clock).schema(1)
    assert clock.monotonic() - before == sum(module.PAUSES)


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_registry_in_trouble_is_asked_again(status: int) -> None:
    server = SchemaRegistry(trouble=status)
    with pytest.raises(RegistryError, match=str(status)):
        client(server).schema(1)
    assert len(server.requests) == len(module.PAUSES) + 1


def test_trouble_that_passes_is_not_seen() -> None:
    server = SchemaRegistry(away=True)
    number = server.register("s", STRING)

    class Mending(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            server.away = False

    assert client(server, clock=Mending()).schema(number).text == STRING


def test_a_wrong_path_is_not_taken_for_an_unknown_schema() -> None:
    server = SchemaRegistry()
    server.register("s", STRING)
    with pytest.raises(RegistryError, match=r"answered 404.*is the URL right"):
        client(server, "http://registry.test/api").schema(1)


@pytest.mark.parametrize("body", ["[]", "{}", "<html>", '{"schema": 3}', '{"schema": "x", "references": [{}]}'])
def test_what_is_no_registry_is_told(body: str) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, text=body))
    with pytest.raises(RegistryError):
        Registry("http://registry.test", transport=transport, clock=FakeClock()).schema(1)


@pytest.mark.parametrize(
    "status, body, coding",
    [(200, b"not gzip", "gzip"), (200, b"[" * 200_000, "identity"), (404, b'{"error_code": [40403]}', "identity")],
    ids=["broken", "deep", "odd"],
)
def test_an_answer_that_cannot_be_read_is_an_error_of_the_registry(status: int, body: bytes, coding: str) -> None:
    transport = httpx.MockTransport(
        lambda request: httpx.Response(status, headers={"content-encoding": coding}, stream=httpx.ByteStream(body))
    )
    with pytest.raises(RegistryError):
        Registry("http://registry.test", transport=transport, clock=FakeClock()).schema(1)


def test_user_and_password_are_sent_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server = SchemaRegistry(user=("kim", "p@ss/word"))
    number = server.register("s", STRING)
    registry = client(server, "http://kim:p%40ss%2Fword@registry.test")
    assert registry.schema(number).text == STRING
    for wrong in ("http://kim:secret-42@registry.test", "http://registry.test"):
        with pytest.raises(RegistryError, match=r"answered 401.*user:password@host") as raised:
            client(server, wrong).schema(number)
        assert "secret-42" not in str(raised.value)
    server.away = True
    with pytest.raises(RegistryError) as raised:
        client(server, "http://kim:secret-42@registry.test").schema(number)
    assert "https" not in str(raised.value) and "secret-42" not in str(raised.value)
    assert "secret-42" not in caplog.text and "p%40ss" not in caplog.text


def test_a_query_in_the_url_is_refused_unseen() -> None:
    with pytest.raises(UsageError, match="query") as raised:
        Registry("https://registry.test/?key=secret-42")
    assert "secret-42" not in str(raised.value)


def test_the_configured_registry_hides_its_password_and_takes_it_along() -> None:
    decode = Decode.model_validate({"name": "json", "registry": "https://kim:secret-42@registry.test/x"})
    assert "secret-42" not in repr(decode) and "secret-42" not in str(decode.model_dump(mode="json"))
    there = pickle.loads(pickle.dumps(decode))
    assert there.registry.reveal() == "https://kim:secret-42@registry.test/x"
    assert "secret-42" not in shared(there.registry).shown


def test_one_registry_for_each_url() -> None:
    assert shared("http://one.test") is shared(Url("http://one.test"))
    assert shared("http://one.test") is not shared("http://two.test")


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=8) | st.binary(max_size=4).map(lambda body: framed(7, body))))
def test_frames_come_off(messages: list[bytes | None]) -> None:
    found = unframed(pa.array(messages, pa.binary()))
    bodies = found.bodies.to_pylist()
    for at, message in enumerate(messages):
        fine = message is not None and len(message) >= 5 and message[0] == 0 and message[1] < 0x80
        assert (at in found.bad) == (not fine)
        if fine and message is not None:
            assert found.numbers[at] == struct.unpack(">i", message[1:5])[0]
            assert bodies[at] == message[5:]
        else:
            assert bodies[at] == b""


def test_why_there_is_no_frame() -> None:
    messages = [None, b"", b"{}", b"\0\0", b"\0\xff\0\0\0", framed(3, b"")]
    reasons = unframed(pa.array(messages, pa.binary())).bad
    assert [reasons.get(at, "")[:40] for at in range(6)] == [
        "the message has no value",
        "the message has no value",
        "not framed: the first byte is not the 0 ",
        "not framed: ends within the schema's num",
        "not framed: no schema has a negative num",
        "",
    ]

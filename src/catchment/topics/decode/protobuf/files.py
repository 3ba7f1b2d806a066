"""The messages that a descriptor set, or a registry, describes.

A set comes from `protoc --include_imports --descriptor_set_out`. What Google's own files describe (Timestamp, Struct
and the like) need not be in it, nor the two that registries have of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from catchment.errors import UsageError
from catchment.topics.decode.protobuf.source import file_of

_SHOWN = 20  # names in an error
_OWN = "google/protobuf/"
_REGISTRY = {  # of the first, messages on the wire need nothing: it is about options
    "confluent/meta.proto": 'syntax = "proto3"; package confluent;',
    "confluent/type/decimal.proto": 'syntax = "proto3"; package confluent.type;'
    " message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
}
_ANEW = "make it anew with protoc --include_imports --descriptor_set_out"


class Messages:
    """The messages of some files that belong together. `source` is where they come from, for people."""

    def __init__(self, files: Iterable[FileDescriptorProto], source: str) -> None:
        """UsageError if the files do not make sense together."""
        self.pool = DescriptorPool()
        self._source = source
        self._files = {one.name: one for one in files}
        self._added: set[str] = set()
        for name in self._files:
            self._add(name, ())

    @classmethod
    def of_set(cls, content: bytes, source: str) -> Messages:
        """Those of a descriptor set. UsageError if it is none."""
        try:
            files = FileDescriptorSet.FromString(content).file
        except DecodeError:
            raise UsageError(f"{source} is not a descriptor set", hint=_ANEW) from None
        if not files:
            raise UsageError(f"{source} is a descriptor set without a file", hint=_ANEW)
        return cls(files, source)

    def names(self) -> list[str]:
        """Of all messages that the files themselves describe, nested ones too."""
        return sorted(name for file in self._files.values() for name in _names(file))

    def find(self, name: str) -> Descriptor:
        """UsageError if there is none of this name: it names those that there are."""
        try:
            return self.pool.FindMessageTypeByName(name)
        except KeyError:
            pass
        there = self.names()
        more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
        raise UsageError(
            f"there is no message {name} in {self._source}",
            hint=f"write one of those that are there: {', '.join(there[:_SHOWN])}{more}",
        )

    def numbered(self, file: str, path: Sequence[int]) -> Descriptor | None:
        """A message by its number within a file, then within the message around it; None if there is no such one."""
        described: FileDescriptorProto = self._files[file]
        messages, name = described.message_type, described.package
        for number in path:
            if not 0 <= number < len(messages):
                return None
            name = f"{name}.{messages[number].name}" if name else messages[number].name
            messages = messages[number].nested_type
        return self.pool.FindMessageTypeByName(name) if path else None

    def _add(self, name: str, within: tuple[str, ...]) -> None:
        if name in self._added:
            return
        file = self._files.get(name) or _own(name)
        if file is None or name in within:
            why = "is imported, and not there" if file is None else "imports itself"
            raise UsageError(f"{self._source}: {name} {why}", hint=_ANEW)
        for needed in file.dependency:
            self._add(needed, (*within, name))
        try:
            self.pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            raise UsageError(f"{self._source}: {name} cannot be understood ({str(error)[:300]})", hint=_ANEW) from None
        self._added.add(name)


def _names(file: FileDescriptorProto) -> Iterator[str]:
    pending = [(f"{file.package}.{one.name}".lstrip("."), one) for one in file.message_type]
    while pending:
        name, message = pending.pop()
        if not message.options.map_entry:
            yield name
            pending += [(f"{name}.{one.name}", one) for one in message.nested_type]


def _own(name: str) -> FileDescriptorProto | None:
    """One of Google's own files, as the library has it, or of the registry's."""
    if name in _REGISTRY:
        return file_of(_REGISTRY[name], name)
    module = name.removeprefix(_OWN).removesuffix(".proto")
    if not name.startswith(_OWN) or not module.isidentifier():
        return None
    try:
        described = import_module(f"google.protobuf.{module}_pb2").DESCRIPTOR
    except ImportError:
        return None
    file = FileDescriptorProto()
    described.CopyToProto(file)
    return file

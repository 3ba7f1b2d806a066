"""Protobuf messages with a frame of a schema registry: which message of which file each one is.

Behind the registry's own frame (a byte 0, the number of a schema) stands which message of the schema's file it is: how
many numbers follow, and each number, as zigzag varints. The first counts the messages of the file, the next those
within that message, and so on. A single byte 0 is short for the first message of the file.

The registry is asked for files in their serialized form. Some give the .proto text all the same; then that is read.
"""

from __future__ import annotations

import base64

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from catchment.errors import UsageError
from catchment.topics.decode.arrays import whole
from catchment.topics.decode.protobuf.choice import Sorted
from catchment.topics.decode.protobuf.files import Messages
from catchment.topics.decode.protobuf.scan import MAX_DEPTH
from catchment.topics.decode.protobuf.shape import Shape, shape_of
from catchment.topics.decode.protobuf.source import NotProto, file_of
from catchment.topics.decode.registry import Registered, Registry, Unframed, UnknownSchema, unframed
from catchment.topics.decode.wire import Flags, Positions, varints, zigzag

_KIND = "PROTOBUF"
_NOWHERE = np.iinfo(np.int64).max  # in place of a number below 0: no message has it either
_CUT = "not framed: ends within the number of the message"
_DEEP = f"not framed: a message more than {MAX_DEPTH} levels deep"


class Framed:
    """The frame says which message it is. With `only`, others are dead letters."""

    def __init__(self, registry: Registry, only: str | None = None) -> None:
        self._registry, self._only = registry, only
        self._files: dict[int, Messages] = {}
        self._shapes: dict[tuple[int, ...], Shape | str] = {}  # by number and path; or why there is none

    def sort(self, records: pa.Table) -> Sorted:
        """Those of a shape together. May raise ExportStopped or RegistryError."""
        frames = unframed(whole(records["value"]))
        dead = dict(frames.bad)
        paths, starts = _paths(frames, dead)
        groups = []
        rows = np.flatnonzero(~np.isin(np.arange(len(starts)), list(dead))) if dead else np.arange(len(starts))
        distinct, which = np.unique(np.column_stack([frames.numbers, paths])[rows], axis=0, return_inverse=True)
        for at, (number, *path) in enumerate(distinct.tolist()):
            mine = rows[which.reshape(-1) == at]
            try:
                groups.append((self._shape(number, tuple(one for one in path if one >= 0)), mine))
            except (UnknownSchema, _Other) as error:
                dead |= dict.fromkeys(mine.tolist(), str(error))
        return Sorted(frames.data, starts, frames.ends, groups, dead)

    def _shape(self, number: int, path: tuple[int, ...]) -> Shape:
        at = (number, *path)
        if at not in self._shapes:
            try:
                self._shapes[at] = self._usable(number, path)
            except UsageError as error:  # nobody wrote it in the configuration: it came with a message
                self._shapes[at] = f"schema {number} cannot be used: {error.message}"
        found = self._shapes[at]
        if isinstance(found, str):
            raise _Other(found)
        return found

    def _usable(self, number: int, path: tuple[int, ...]) -> Shape:
        if number not in self._files:
            self._files[number] = self._asked(number)
        message = self._files[number].numbered(_name(number), path)
        if message is None:
            raise _Other(f"schema {number} has no message {list(path)}")
        if self._only is not None and message.full_name != self._only:
            raise _Other(f"a {message.full_name}, and not a {self._only}")
        return shape_of(message)

    def _asked(self, number: int) -> Messages:
        files: dict[str, FileDescriptorProto] = {}
        self._gather(_name(number), self._registry.schema(number, serialized=True), files)
        return Messages(files.values(), "its files")

    def _gather(self, name: str, schema: Registered, files: dict[str, FileDescriptorProto]) -> None:
        """The file of a schema and all that it imports, each under the name by which it is imported."""
        if name in files:
            return
        if schema.kind != _KIND:
            raise _Other(f"schema {schema.number} is {schema.kind}, and not {_KIND}")
        files[name] = _file(schema, name)
        for reference in schema.references:
            self._gather(reference.name, self._registry.referenced(reference, serialized=True), files)


class _Other(Exception):
    """These messages are something else."""


def _name(number: int) -> str:
    return f"schema-{number}.proto"


def _file(schema: Registered, name: str) -> FileDescriptorProto:
    """In the form that was asked for, or as text, which is what some registries give all the same."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
        file.name = name
        return file
    except (ValueError, DecodeError):
        pass
    try:
        return file_of(schema.text, name)
    except NotProto as error:
        raise _Other(f"schema {schema.number} cannot be used: it is not the text of a .proto file ({error})") from None


def _paths(frames: Unframed, dead: dict[int, str]) -> tuple[Positions, Positions]:
    """The numbers of each message, -1 behind the last one, and where the messages begin. Cut ones are noted as dead."""
    counts, at, bad = varints(frames.data, frames.starts, frames.ends)
    left = zigzag(counts)
    left[bad] = 0
    _note(bad, _CUT, dead)
    _note((left < 0) | (left > MAX_DEPTH), _DEEP, dead)
    if dead:
        left[list(dead)] = 0
    columns = [np.where(left == 0, 0, -1)]
    for depth in range(int(left.max(initial=0))):
        rows = np.flatnonzero(left > depth)
        values, after, bad = varints(frames.data, at[rows], frames.ends[rows])
        if depth:
            columns.append(np.full(len(left), -1))
        number = zigzag(values)
        columns[-1][rows] = np.where(number < 0, _NOWHERE, number)
        at[rows] = after
        cut = np.zeros(len(left), np.bool_)
        cut[rows[bad]] = True
        _note(cut, _CUT, dead)
    return np.column_stack(columns), at


def _note(where: Flags, reason: str, dead: dict[int, str]) -> None:
    for row in np.flatnonzero(where).tolist():
        dead.setdefault(row, reason)

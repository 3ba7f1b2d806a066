"""The text of a .proto file, read as far as messages on the wire depend on it.

For registries that give nothing else. Services, extensions, reserved numbers and options that do not touch the wire
are passed over, and what no compiler would take may be taken: the text was compiled before it was registered.
"""

from __future__ import annotations

import re
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.text_encoding import CEscape, CUnescape

MOST = 50  # messages inside each other
_TOKEN = re.compile(
    r"(?P<space>\s+|//[^\n]*|/\*.*?\*/)"
    r"""|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"|(?P<name>\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
    r"|(?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<sign>.)",
    re.DOTALL | re.ASCII,
)
_F = FieldDescriptorProto
_TYPES = {
    "double": _F.TYPE_DOUBLE,
    "float": _F.TYPE_FLOAT,
    "int64": _F.TYPE_INT64,
    "uint64": _F.TYPE_UINT64,
    "int32": _F.TYPE_INT32,
    "fixed64": _F.TYPE_FIXED64,
    "fixed32": _F.TYPE_FIXED32,
    "bool": _F.TYPE_BOOL,
    "string": _F.TYPE_STRING,
    "bytes": _F.TYPE_BYTES,
    "uint32": _F.TYPE_UINT32,
    "sfixed32": _F.TYPE_SFIXED32,
    "sfixed64": _F.TYPE_SFIXED64,
    "sint32": _F.TYPE_SINT32,
    "sint64": _F.TYPE_SINT64,
}
_LABELS = {"optional": _F.LABEL_OPTIONAL, "required": _F.LABEL_REQUIRED, "repeated": _F.LABEL_REPEATED}
_PAIRS = {"{": "}", "[": "]", "(": ")", "<": ">"}


class NotProto(Exception):
    """This is not the text of a .proto file."""


def file_of(text: str, name: str) -> FileDescriptorProto:
    """What the text describes. NotProto if it cannot be read."""
    file = FileDescriptorProto(name=name)
    try:
        _Source(text, file).file()
    except (IndexError, ValueError, KeyError, AttributeError) as error:
        raise NotProto(str(error)[:100] or type(error).__name__) from None
    return file


class _Source:
    def __init__(self, text: str, file: FileDescriptorProto) -> None:
        self._tokens = [found[0] for found in _TOKEN.finditer(text) if found.lastgroup != "space"]
        self._at = 0
        self._file = file

    def file(self) -> None:
        file = self._file
        while self._at < len(self._tokens):
            match self._next():
                case "syntax":
                    self._expect("=")
                    file.syntax = self._text()
                    self._expect(";")
                case "edition":
                    self._expect("=")
                    file.syntax, file.edition = "editions", Edition.Value(f"EDITION_{self._text()}")
                    self._expect(";")
                case "package":
                    file.package = self._next()
                    self._expect(";")
                case "import":
                    if self._peek() in ("public", "weak"):
                        self._next()
                    file.dependency.append(self._text())
                    self._expect(";")
                case "option":
                    self._option(file)
                    self._expect(";")
                case "message":
                    self._message(file.message_type.add(), 0)
                case "enum":
                    self._enum(file.enum_type.add())
                case "service" | "extend":
                    self._skip()
                case ";":
                    pass
                case other:
                    raise ValueError(f"unexpected {other}")
        if file.syntax == "proto2":
            file.ClearField("syntax")  # which goes without saying

    def _message(self, message: DescriptorProto, depth: int) -> None:
        message.name = self._next()
        self._body(message, depth)

    def _body(self, message: DescriptorProto, depth: int) -> None:
        if depth > MOST:
            raise ValueError("nested too deep")
        self._expect("{")
        while (token := self._next()) != "}":
            match token:
                case "message" if self._peek(1) == "{":
                    self._message(message.nested_type.add(), depth + 1)
                case "enum" if self._peek(1) == "{":
                    self._enum(message.enum_type.add())
                case "oneof" if self._peek(1) == "{":
                    self._oneof(message, depth)
                case "option" if self._peek(1) in ("=", ".", ")") or self._peek() == "(":
                    self._option(message)
                    self._expect(";")
                case "extend" if self._peek(1) == "{":
                    self._skip()
                case "reserved" | "extensions" if self._peek(1) != "=":
                    self._skip()
                case ";":
                    pass
                case _:
                    self._at -= 1
                    self._field(message, depth)
        for field in message.field:  # what knows that it is absent is a oneof of its own, behind all others
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _oneof(self, message: DescriptorProto, depth: int) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._next())
        self._expect("{")
        while (token := self._next()) != "}":
            if token == "option":
                self._option(message.oneof_decl[index])
                self._expect(";")
            elif token != ";":
                self._at -= 1
                self._field(message, depth, oneof=index)

    def _field(self, message: DescriptorProto, depth: int, *, oneof: int | None = None) -> None:
        label = self._next() if self._peek() in _LABELS and self._peek(1) != "=" else ""
        kind = self._next()
        field = FieldDescriptorProto(label=_LABELS[label or "optional"])
        if kind == "map" and self._peek() == "<":
            return self._map(message, field)
        field.name = self._next()
        self._number(field)
        if kind == "group":
            group = message.nested_type.add(name=field.name)
            field.type, field.type_name, field.name = _F.TYPE_GROUP, field.name, field.name.lower()
            self._body(group, depth + 1)
        else:
            self._typed(field, kind)
            self._expect(";")
        if oneof is not None:
            field.oneof_index = oneof
        elif label == "optional" and self._file.syntax == "proto3":
            field.proto3_optional = True
        message.field.append(field)
        return None

    def _map(self, message: DescriptorProto, field: FieldDescriptorProto) -> None:
        self._expect("<")
        key = self._next()
        self._expect(",")
        value = self._next()
        self._expect(">")
        field.name = self._next()
        self._number(field)
        self._expect(";")
        entry = message.nested_type.add(name="".join(map(_capital, field.name.split("_"))) + "Entry")
        entry.options.map_entry = True
        for number, (name, kind) in enumerate((("key", key), ("value", value)), 1):
            self._typed(entry.field.add(name=name, number=number, label=_F.LABEL_OPTIONAL), kind)
        field.label, field.type, field.type_name = _F.LABEL_REPEATED, _F.TYPE_MESSAGE, entry.name
        message.field.append(field)

    def _number(self, field: FieldDescriptorProto) -> None:
        """What comes behind the name: number and options."""
        self._expect("=")
        field.number = int(self._next(), 0)
        if self._peek() == "[":
            while self._next() != "]":
                self._option(field)

    @staticmethod
    def _typed(field: FieldDescriptorProto, kind: str) -> None:
        if kind in _TYPES:
            field.type = _TYPES[kind]
        else:
            field.type_name = kind  # whether it is a message or an enum is found out when all files are together
        if field.default_value and field.type in (_F.TYPE_STRING, _F.TYPE_BYTES):
            content = CUnescape(field.default_value)
            field.default_value = content.decode() if field.type == _F.TYPE_STRING else CEscape(content, False)

    def _enum(self, enum: EnumDescriptorProto) -> None:
        enum.name = self._next()
        self._expect("{")
        while (token := self._next()) != "}":
            if token == "option" and self._peek() != "=":
                self._option(enum)
                self._expect(";")
            elif token == "reserved" and self._peek() != "=":
                self._skip()
            elif token != ";":
                self._expect("=")
                enum.value.add(name=token, number=int(self._signed(), 0))
                if self._peek() == "[":
                    self._group()
                self._expect(";")

    def _option(self, target: Any) -> None:
        """Name and value; those that say what is on the wire are kept."""
        name = ""
        while self._peek() != "=":
            name += self._group() if self._peek() == "(" else self._next()
        self._expect("=")
        if self._peek() == "{":
            self._group()
            return
        first = self._peek()[:1]
        value = self._texts() if first in ("'", '"') else self._signed()
        scope, _, feature = name.rpartition(".")
        if name == "packed":
            target.options.packed = value == "true"
        elif name == "default":
            target.default_value = value
        elif name == "json_name":
            target.json_name = value
        elif name == "allow_alias":
            target.options.allow_alias = value == "true"
        elif name == "message_set_wire_format":
            raise ValueError("message sets are not read")
        elif scope == "features":
            features = target.options.features
            setattr(
                features, feature, features.DESCRIPTOR.fields_by_name[feature].enum_type.values_by_name[value].number
            )

    def _signed(self) -> str:
        sign = self._next() if self._peek() in ("-", "+") else ""
        return sign.replace("+", "") + self._next()

    def _text(self) -> str:
        return CUnescape(self._texts()).decode()

    def _texts(self) -> str:
        """Without quotes, and with what is escaped as it is; several in a row are one."""
        found = ""
        while self._at < len(self._tokens) and self._peek()[:1] in ("'", '"'):
            found += self._next()[1:-1]
        return found

    def _skip(self) -> None:
        """Up to the end of a statement."""
        while self._peek() not in (";", "{"):
            if self._peek() in _PAIRS:
                self._group()
            else:
                self._next()
        if self._peek() == "{":
            self._group()
        else:
            self._next()

    def _group(self) -> str:
        """What is in brackets, with them."""
        begin = self._at
        waiting: list[str] = []
        while True:
            token = self._next()
            if token in _PAIRS:
                waiting.append(_PAIRS[token])
            elif waiting and token == waiting[-1]:
                waiting.pop()
            if not waiting:
                return "".join(self._tokens[begin : self._at])

    def _peek(self, ahead: int = 0) -> str:
        return self._tokens[self._at + ahead]

    def _next(self) -> str:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _expect(self, wanted: str) -> None:
        found = self._next()
        if found != wanted:
            raise ValueError(f"{wanted} was expected, and not {found}")


def _capital(word: str) -> str:
    return word[:1].upper() + word[1:]

"""The schemas of an export's types, as they are recorded in the bucket and as a task finds them.

One object per type, `_schemas/<type>.json`, holds the schema of each generation, so that old and new replicas side by
side do not disturb each other. It is changed by compare-and-set alone, and a schema in it only grows: fields are
added, none is taken away, and none gets another type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from catchment.bucket.contract import Bucket
from catchment.bucket.swap import NONCE, Document, fresh, read, swap
from catchment.errors import BucketError, CatchmentError, Conflict, ExportStopped
from catchment.topics.decode import ddl
from catchment.topics.decode.schema import MAX_FIELDS, Schema, SchemaClash
from catchment.topics.names import Place

EVERY = "*"
_GENERATIONS = "generations"
_ATTEMPTS = 50  # each one that fails is a success of somebody else


class SchemaMoved(CatchmentError):
    """Another replica recorded something that ours cannot be united with. Do the range again, with what it recorded."""


class Schemas:
    """The schemas of one export in one generation. `declared` is DDL by type, with "*" for every type.

    Nothing is written but by `settle`. Not for two threads at a time.
    """

    def __init__(
        self,
        bucket: Bucket,
        place: Place,
        declared: Mapping[str, str],
        generation: int,
        *,
        known: dict[str, Document] | None = None,
        nonce: Callable[[], str] = fresh,
    ) -> None:
        """`known` are documents by type as they were once: kept up to date, and looked at before the bucket is."""
        self._bucket, self._place, self._generation, self._nonce = bucket, place, generation, nonce
        self._declared = {name: ddl.parse(text) for name, text in declared.items()}
        self._documents: dict[str, Document] = {} if known is None else known
        self._ours: dict[str, Schema] = {}

    def of(self, type_name: str) -> Schema:
        """What is declared, recorded and grown here, in this order. One read of the bucket per type.

        ExportStopped if what is recorded in this generation contradicts what is declared.
        """
        if type_name not in self._ours:
            self._begin(type_name, self._documents.get(type_name))
        return self._ours[type_name]

    def grow(self, type_name: str, found: Schema) -> None:
        """Add fields, here alone. SchemaClash if one has another type."""
        ours = self.of(type_name)
        if found != ours:
            self._ours[type_name] = ours.grown(found)

    def settle(self, types: Iterable[str]) -> None:
        """Record what grew. After it, `of` gives what is recorded, which may have more fields than were found here.

        No request where nothing grew. SchemaMoved if another replica was first with something else; `of` has it then.
        """
        for type_name in types:
            self._settle(type_name)

    def _settle(self, type_name: str) -> None:
        ours = self.of(type_name)
        for _ in range(_ATTEMPTS):
            document = self._documents[type_name]
            if self._recorded(document) == ours:
                self._ours[type_name] = ours
                return
            try:
                value = self._with(document, type_name, ours)
                self._documents[type_name] = swap(self._bucket, document, value, nonce=self._nonce)
            except Conflict:
                theirs = self._begin(type_name)
                ours = self._united(type_name, theirs, ours)
        raise Conflict(
            f"the schema of {type_name!r} was changed by others {_ATTEMPTS} times in a row",
            key=self._place.schema(type_name),
            hint="nothing was committed; it is tried again",
        )

    def _united(self, type_name: str, theirs: Schema, ours: Schema) -> Schema:
        hint = "nothing was committed; it is done again with the recorded schema"
        try:
            united = theirs.grown(ours)
        except SchemaClash as clash:
            raise SchemaMoved(
                f"the schema of {type_name!r} was recorded by another: {clash.message}", hint=hint
            ) from None
        if united.count() > MAX_FIELDS:
            raise SchemaMoved(f"the schema of {type_name!r} has more than {MAX_FIELDS} fields with ours", hint=hint)
        return united

    def _begin(self, type_name: str, document: Document | None = None) -> Schema:
        """Begin (again) from what is recorded, which is read unless it is given."""
        if document is None:
            document = self._documents[type_name] = read(self._bucket, self._place.schema(type_name))
        declared = self._of_type(type_name)
        recorded = self._recorded(document)
        if recorded is None:
            earlier = [number for number in _generations(document) if number < self._generation]
            before = _parsed(document, max(earlier)) if earlier else Schema()
            self._ours[type_name] = declared.without_clash(before)
            return self._ours[type_name]
        try:
            self._ours[type_name] = recorded.grown(declared)
        except SchemaClash as clash:
            raise ExportStopped(
                f"{self._place}: in type {type_name!r}, {clash.path} is declared {clash.theirs} and recorded"
                f" {clash.ours} in generation {self._generation}",
                hint=f"declare it {clash.ours}, or set the export's generation to {self._generation + 1}",
            ) from None
        return self._ours[type_name]

    def _of_type(self, type_name: str) -> Schema:
        own, every = self._declared.get(type_name, Schema()), self._declared.get(EVERY, Schema())
        return own.without_clash(every)  # what is said of one type goes before what is said of all

    def _recorded(self, document: Document) -> Schema | None:
        return _parsed(document, self._generation) if self._generation in _generations(document) else None

    def _with(self, document: Document, type_name: str, ours: Schema) -> dict[str, Any]:
        kept = {name: value for name, value in document.value.items() if name != NONCE}
        generations = {**document.value.get(_GENERATIONS, {}), str(self._generation): ours.plain()}
        return {**kept, "type": type_name, _GENERATIONS: generations}


def _generations(document: Document) -> list[int]:
    found = document.value.get(_GENERATIONS, {})
    if not isinstance(found, dict):
        raise _damaged(document, "its generations are not an object")
    return [int(number) for number in found if number.isascii() and number.isdigit()]


def _parsed(document: Document, generation: int) -> Schema:
    try:
        return Schema.parse(document.value[_GENERATIONS][str(generation)])
    except ValueError as error:
        raise _damaged(document, str(error)) from error


def _damaged(document: Document, why: str) -> BucketError:
    return BucketError(
        f"{document.key} is not a schema that can be read ({why})",
        key=document.key,
        hint="restore the object's earlier version",
    )

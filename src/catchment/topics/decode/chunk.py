"""Texts of one type on their way to columns: read in one go, and if that fails, surveyed until it does not.

A survey says three things: which texts are dead letters and why, which fields are new, and which texts have to be
written anew before they can be read. After it the rest is read in one go again, with the schema grown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.topics.decode import value
from catchment.topics.decode.read import How, Misread, Reader, declared_text, discovered, lifts
from catchment.topics.decode.schema import MAX_FIELDS, TOO_MANY, Schema, SchemaClash
from catchment.topics.decode.structure import GREAT, Doubt, studied

MALFORMED = "not valid JSON"
_CLASH = "a field differs only in case from another; rename one of them"
RARE = 100  # what fewer than one in so many texts say of a new field does not decide what it is
_SMALL = 16  # texts of a piece that are looked at one by one
_PIECES = 16
# Lifting fields out writes the text anew. That must not mend what is not JSON, nor round a long fraction.
_HAZARD = r",\s*[}\]]|[:\[,]\s*[-+]?(?i:nan|inf)"
_LONG = r"\d[\d.]{16}"


@dataclass
class Chunk:
    """Texts, each of them an object, and the schema they are read with."""

    reader: Reader
    schema: Schema  # grows
    texts: pa.StringArray
    how: How
    dead: dict[int, str] = field(default_factory=dict)  # why a text cannot be a row, by its number

    def read(self) -> pa.StructArray:
        """Columns of all texts that are not dead, in their order."""
        if lifts(self.schema.kind, self.how):
            self._mend()
        while True:
            rows, texts = self._left()
            try:
                return self.reader.objects(texts, self.schema.kind, self.how)
            except Misread:
                survey = _Survey(self, texts)
            if not (survey.at_once() or self._loosened() or survey.by_structure() or survey.by_pieces()):
                return self._trusted()
            self._take(rows, survey)

    def _left(self) -> tuple[np.ndarray[Any, Any], pa.StringArray]:
        rows = np.delete(np.arange(len(self.texts)), sorted(self.dead))
        return rows, self.texts.take(pa.array(rows)) if self.dead else self.texts

    def _loosened(self) -> bool:
        """Whether declared text is only from now on taken to hold other things, too."""
        if self.how.loose or not declared_text(self.schema.kind):
            return False
        self.how = replace(self.how, loose=True)
        self._mend()
        return True

    def _take(self, rows: np.ndarray[Any, Any], survey: _Survey) -> None:
        self.dead |= {int(rows[at]): why for at, why in survey.dead.items()}
        self._replace({int(rows[at]): text for at, text in survey.mended.items()})
        before, self.schema = self.schema, survey.schema
        if lifts(self.schema.kind, self.how) and not lifts(before.kind, self.how):
            self._mend()

    def _replace(self, mended: dict[int, str]) -> None:
        if mended:
            mask = np.zeros(len(self.texts), dtype=bool)
            mask[list(mended)] = True
            news = pa.array([mended[at] for at in sorted(mended)], pa.string())
            self.texts = pc.replace_with_mask(self.texts, pa.array(mask), news)

    def _mend(self) -> None:
        """Before fields are lifted out: what is not JSON is dead, and long fractions become text."""
        decimal = "DECIMAL" in str(self.schema.kind)
        risky = pc.match_substring_regex(self.texts, f"{_HAZARD}|{_LONG}" if decimal else _HAZARD)
        mended = {}
        for at in map(int, np.flatnonzero(risky.to_numpy(zero_copy_only=False))):
            if at in self.dead:
                continue
            try:
                found = value.parse(self.texts[at].as_py())
            except ValueError:
                self.dead[at] = MALFORMED
                continue
            if decimal:
                mended[at] = value.dump(found, self.schema.kind)
        self._replace(mended)

    def _trusted(self) -> pa.StructArray:
        """Each text was looked at. What cannot be read all the same is set aside."""
        rows, texts = self._left()
        how = replace(self.how, trusted=True)

        def aside(first: int, end: int) -> None:
            try:
                self.reader.objects(texts.slice(first, end - first), self.schema.kind, how)
            except Misread as error:
                if end - first == 1:
                    self.dead[int(rows[first])] = f"cannot be read: {str(error)[:100]}"
                    return
                middle = (first + end) // 2
                aside(first, middle)
                aside(middle, end)

        try:
            return self.reader.objects(texts, self.schema.kind, how)
        except Misread:
            aside(0, len(texts))
        return self.reader.objects(self._left()[1], self.schema.kind, how)


@dataclass
class _Survey:
    """What in some texts does not fit, and what is new. Each way to look says whether it found anything."""

    chunk: Chunk
    texts: pa.StringArray
    dead: dict[int, str] = field(default_factory=dict)
    repeated: dict[int, object] = field(default_factory=dict)  # in which a name comes again

    def __post_init__(self) -> None:
        self.found = Schema()  # what the texts bring; of fields that are new, with all kinds that were seen
        self.base = self.schema = self.chunk.schema
        self.kind = self.base.kind

    @property
    def mended(self) -> dict[int, str]:
        """Texts anew, by what all of them together say a field is: in JSON text, names may come again."""
        kind = self.schema.kind
        return {at: value.dump(one, kind) for at, one in self.repeated.items() if value.repeats(one, kind)}

    def changed(self) -> bool:
        return bool(self.dead or self.mended or self.schema != self.base)

    def at_once(self) -> bool:
        """All texts fit, and some bring new fields."""
        return self._infers(0, len(self.texts)) and self.changed()

    def by_structure(self) -> bool:
        """Each text by what its structure says, and those in doubt by themselves."""
        table = self.chunk.reader.query(
            "SELECT json_structure(text) AS structure, regexp_matches(text, ?) AS great FROM given", self.texts, GREAT
        )
        structures = table["structure"].combine_chunks().dictionary_encode()
        if isinstance(structures, pa.ChunkedArray):
            structures = structures.combine_chunks()
        codes = structures.indices.to_numpy()
        words = structures.dictionary.to_pylist()
        counts = np.bincount(codes, minlength=len(words))
        doubtful = np.zeros(len(words), dtype=bool)
        for at in sorted(range(len(words)), key=lambda at: (-counts[at], at)):  # what is frequent says what a field is
            doubtful[at] = not self._sure(words[at], rare=self._rare(int(counts[at])))
        doubts = doubtful[codes] | table["great"].to_numpy()
        self._each(map(int, np.flatnonzero(doubts)))
        return self.changed()

    def by_pieces(self) -> bool:
        """Pieces that can be read are fine; the others are cut until each text is looked at by itself."""
        self._piece(0, len(self.texts))
        return self.changed()

    def _piece(self, first: int, end: int) -> None:
        if end - first <= _SMALL:
            self._each(range(first, end))
            return
        step = -(-(end - first) // _PIECES)
        for start in range(first, end, step):
            stop = min(start + step, end)
            if not self._reads(start, stop):
                self._piece(start, stop)

    def _reads(self, first: int, end: int) -> bool:
        try:
            self.chunk.reader.objects(self.texts.slice(first, end - first), self.kind, self.chunk.how)
        except Misread:
            return False
        return True

    def _infers(self, first: int, end: int) -> bool:
        how = replace(self.chunk.how, infer=True)
        try:
            read = self.chunk.reader.objects(self.texts.slice(first, end - first), self.kind, how)
            found = discovered(self.kind, read.type)
        except Misread:
            return False
        return self._add(Schema(found.fields)) is None

    def _rare(self, number: int) -> bool:
        return number * RARE < len(self.texts)

    def _sure(self, structure: str, *, rare: bool) -> bool:
        try:
            return self._add(Schema(studied(self.kind, structure).fields), rare=rare) is None
        except Doubt:
            return False

    def _each(self, numbers: Iterable[int]) -> None:
        numbers = list(numbers)
        rare = self._rare(len(numbers))
        for at in numbers:
            try:
                found = value.parse(self.texts[at].as_py())
            except ValueError:
                self.dead[at] = MALFORMED
                continue
            why = value.misfit(self.kind, found)
            if why is None and value.adds(self.kind, found):
                why = self._add(Schema(value.brings(self.kind, found).fields), rare=rare)
                if why == _CLASH:
                    why = value.misfit(self.schema.kind, found) or why
            if why is not None:
                self.dead[at] = why
            elif value.repeats(found, self.kind):
                self.repeated[at] = found

    def _add(self, found: Schema, *, rare: bool = False) -> str | None:
        """Take what was found into the schema, or say why it cannot be.

        What is rare does not turn a field into JSON text that is something else in all other texts.
        """
        if why := found.misnamed():
            return why
        try:
            news = self.found.mixed(found)
            schema = self.base.grown(news)
        except SchemaClash:
            return _CLASH
        if rare and (odd := self._odd(found)):
            return odd
        if schema.count() > MAX_FIELDS:
            return TOO_MANY
        self.found, self.schema = news, schema
        return None

    def _odd(self, found: Schema) -> str | None:
        try:
            self.found.agreed(found)
        except SchemaClash as clash:
            return (
                f"{clash.path}: {clash.theirs}, and {clash.ours} in nearly all messages; declare it if both are meant"
            )
        return None

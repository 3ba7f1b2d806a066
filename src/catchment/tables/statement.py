"""The SQL of a query: cut into statements, and each is what it may be.

    CREATE OR REPLACE TEMPORARY VIEW good AS SELECT * FROM batch WHERE id IS NOT NULL;      any number of these
    MERGE INTO {dest_dataset}.{dest_table} AS t USING good AS b ON t.id = b.id …;           then exactly one of these

The cut is where Spark's own lexer sees a `;`: not in quotes (with backslashes, and without them in `r'…'`), backquotes,
`-- …` or `/* … */`, which nest. `{dest_dataset}` and `{dest_table}` are the only words of our own; whatever else stands
in braces is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from catchment.errors import Problem
from catchment.tables.refusal import refusal

DATASET = "{dest_dataset}"
TABLE = "{dest_table}"
DESTINATION = f"{DATASET}.{TABLE}"
CHANGES = ("INSERT", "UPDATE", "DELETE", "MERGE")

_TOKEN = re.compile(
    r"""
      (?P<comment> --(?:\\\n|[^\r\n])* )              # a backslash at the end of the line goes on, as in Spark
    | (?P<opened>  /\*(?!\+) )                        # a comment; /*+ begins a hint, which is code
    | (?P<text>    [rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
    | (?P<name>    `(?:[^`]|``)*` )
    | (?P<word>    (?:\{\w+\} | \w)+ )
    | (?P<space>   \s+ )
    | (?P<mark>    \*/ | . )                          # the end of a hint begins no comment with what follows it
    """,
    re.DOTALL | re.VERBOSE,
)
_COMMENT_EDGE = re.compile(r"/\*(?!\+)|\*/")
_DESTINATION = re.compile(r"\{dest_dataset\}|\{dest_table\}")
_UNCLOSED = {"'": "a quote", '"': "a quote", "`": "a backquote"}
# What may stand between the first word of a statement that changes data and its table.
_BEFORE_TARGET = {"INTO", "OVERWRITE", "TABLE", "FROM", "WITH", "SCHEMA", "EVOLUTION"}
_KIND_WORDS = {
    *("OR", "REPLACE", "GLOBAL", "TEMPORARY", "TEMP", "TABLE", "VIEW", "DATABASE", "SCHEMA", "FUNCTION", "INTO")
}
_NAME_MARKS = (".", "-")
_TARGETS = {one + "." + other for one in (DATASET, f"`{DATASET}`") for other in (TABLE, f"`{TABLE}`")}


@dataclass(frozen=True)
class Token:
    """One piece of SQL that Spark's lexer would not divide."""

    kind: str  # comment, text, name, word, space or mark
    text: str
    line: int

    @property
    def upper(self) -> str:
        return self.text.upper()


@dataclass(frozen=True)
class Statement:
    """What stands between two semicolons, and says something."""

    text: str  # without white space around it; comments and hints are in it
    tokens: tuple[Token, ...]  # without comments and white space; at least one

    @property
    def line(self) -> int:
        return self.tokens[0].line


@dataclass(frozen=True)
class Script:
    """What a query does."""

    views: tuple[str, ...]
    change: str


class Unclosed(ValueError):
    """A quote, a backquote or a comment has no end."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(f"{what} that is opened in line {line} is never closed")
        self.what, self.line = what, line


def fill(sql: str, dataset: str, table: str) -> str:
    """With the destination in place of its two tokens: in backquotes where one is a name in the code, else as it is.

    The destination may be any text: `delta` and a path are fine. Unclosed if a quote or a comment has no end.
    """

    def filled(token: Token) -> str:
        if token.kind == "word" and token.text in (DATASET, TABLE):
            return "`" + (dataset if token.text == DATASET else table).replace("`", "``") + "`"
        return _DESTINATION.sub(lambda found: dataset if found[0] == DATASET else table, token.text)

    return "".join(filled(token) for token in tokens(sql))


def script(file: str, sql: str) -> Script:
    """What the text of a `*.sql` says. BatchFailed with everything that is wrong, by line."""
    try:
        found = statements(sql)
    except Unclosed as error:
        raise refusal(file, [Problem(f"line {error.line}", f"{error.what} is opened here and never closed")]) from None
    problems = list(_problems(found))
    if problems:
        raise refusal(file, problems)
    return Script(tuple(one.text for one in found[:-1]), found[-1].text)


def statements(sql: str) -> list[Statement]:
    """All that say something, in order. Unclosed if a quote or a comment has no end."""
    found = []
    for piece in split(sql):
        meant = tuple(token for token in piece if token.kind not in ("space", "comment"))
        if meant:
            found.append(Statement("".join(token.text for token in piece).strip(), meant))
    return found


def split(sql: str) -> list[list[Token]]:
    """The tokens between semicolons: joined by `;`, their texts are the SQL again."""
    pieces: list[list[Token]] = [[]]
    for token in tokens(sql):
        if token.text == ";":
            pieces.append([])
        else:
            pieces[-1].append(token)
    return pieces


def tokens(sql: str) -> Iterator[Token]:
    """Every character, each in one token."""
    at, line = 0, 1
    while at < len(sql):
        found = _TOKEN.match(sql, at)
        assert found is not None and found.lastgroup is not None  # a mark is any character
        kind, end = found.lastgroup, found.end()
        if kind == "opened":
            kind, end = "comment", _comment_end(sql, end, line)
        elif kind == "mark" and found[0] in _UNCLOSED:
            raise Unclosed(_UNCLOSED[found[0]], line)
        yield Token(kind, sql[at:end], line)
        line += sql.count("\n", at, end)
        at = end


def _comment_end(sql: str, at: int, line: int) -> int:
    depth = 1
    while depth:
        edge = _COMMENT_EDGE.search(sql, at)
        if edge is None:
            raise Unclosed("a comment", line)
        depth += -1 if edge[0] == "*/" else 1
        at = edge.end()
    return at


# -- what statements are ---------------------------------------------------------------------------------------------


def _problems(found: Sequence[Statement]) -> Iterator[Problem]:
    change: Statement | None = None
    others = False
    for one in found:
        where, verb = f"line {one.line}", _verb(one)
        if verb not in (*CHANGES, "VIEW"):
            others = True
            yield Problem(where, f"{_what(one)} is not allowed here; {_instead(verb)}")
        elif change is not None:
            before = f"the {_verb(change)} in line {change.line}"
            if verb == "VIEW":
                yield Problem(where, f"a view after {before} is used by nothing; move it before that, or remove it")
            else:
                yield Problem(where, f"{verb} changes data a second time, after {before}; write one, maybe a MERGE")
        if verb in CHANGES:
            yield from _target(one, verb)
            change = change or one
    if change is None and not others:  # else it is perhaps one of those
        yield Problem("", f"nothing here changes data; end with one INSERT, UPDATE, DELETE or MERGE of {DESTINATION}")


def _verb(statement: Statement) -> str:
    """INSERT, UPDATE, DELETE, MERGE, VIEW (a temporary one), or whatever else it begins with."""
    words = [token.upper for token in statement.tokens[:5]]
    if words[0] == "CREATE":
        rest = words[3:] if words[1:3] == ["OR", "REPLACE"] else words[1:]
        return "VIEW" if rest[:2] in (["TEMPORARY", "VIEW"], ["TEMP", "VIEW"]) else "CREATE"
    head = _head(statement.tokens)
    return statement.tokens[head].upper if head < len(statement.tokens) else "WITH"


def _head(found: Sequence[Token]) -> int:
    """Where the verb stands: first, or after `WITH name (column, …) AS (…), …`. The end if there is none."""
    if found[0].upper != "WITH":
        return 0
    texts = [token.upper for token in found]
    at = 2 if texts[1:2] == ["RECURSIVE"] and texts[2:3] not in (["AS"], ["("]) else 1
    while at < len(found):
        at += 1  # its name
        while at < len(found) and (texts[at] in ("(", "AS", "MAX", "RECURSION", "LEVEL") or texts[at].isdigit()):
            at = _after_group(texts, at) if texts[at] == "(" else at + 1
        if texts[at : at + 1] != [","]:
            break
        at += 1
    return at


def _after_group(texts: Sequence[str], at: int) -> int:
    depth = 0
    for place in range(at, len(texts)):
        depth += (texts[place] == "(") - (texts[place] == ")")
        if not depth:
            return place + 1
    return len(texts)


def _target(statement: Statement, verb: str) -> Iterator[Problem]:
    """A change of another table is not in this one's history, so the batch would be applied again and again."""
    rest = list(statement.tokens[_head(statement.tokens) + 1 :])
    while rest and rest[0].kind == "word" and rest[0].upper in _BEFORE_TARGET:
        rest.pop(0)
    texts = [token.text for token in rest]
    if "".join(texts[:3]) in _TARGETS and texts[3:4] != ["."]:
        return
    end = 0
    while end < len(rest) and (texts[end] in _NAME_MARKS or end == 0 or texts[end - 1] in _NAME_MARKS):
        end += 1
    line = rest[0].line if rest else statement.line
    found = "".join(texts[:end])[:80] or "nothing"
    yield Problem(f"line {line}", f"{verb} is to change {found}; write {DESTINATION} in its place")


def _what(statement: Statement) -> str:
    """The first words of a statement, as far as they say what it is."""
    words: list[str] = []
    for token in statement.tokens[:6]:
        if token.kind != "word" or (words and token.upper not in _KIND_WORDS):
            break
        words.append(token.upper)
    return " ".join(words) or f"a statement that begins with {statement.tokens[0].text[:20]!r}"


def _instead(verb: str) -> str:
    match verb:
        case "CREATE":
            return "write CREATE OR REPLACE TEMPORARY VIEW, which lasts as long as the batch"
        case "SELECT" | "VALUES" | "TABLE" | "(" | "WITH":
            return f"put INSERT INTO {DESTINATION} before it, or make it a temporary view"
        case "FROM":
            return f"write INSERT INTO {DESTINATION} SELECT … FROM …"
        case _:
            return "remove it: temporary views, then one INSERT, UPDATE, DELETE or MERGE"

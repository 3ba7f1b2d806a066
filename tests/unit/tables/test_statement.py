"""SQL is cut where Spark would cut it, nothing of it is lost, and only what a batch may do is let through."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catchment.tables.statement import Unclosed, fill, script, split, statements
from catchment.tables.work import BatchFailed

DEST = "{dest_dataset}.{dest_table}"
FILE = "tables/sales/orders/_config/merge.sql"


def pieces(sql: str) -> list[str]:
    return ["".join(token.text for token in piece) for piece in split(sql)]


def refused(sql: str) -> str:
    with pytest.raises(BatchFailed) as caught:
        script(FILE, sql)
    assert caught.value.message.startswith(FILE)
    assert FILE in caught.value.hint
    return caught.value.message.removeprefix(f"{FILE}: ")


# -- where it is cut -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql, expected",
    [
        ("a;b", ["a", "b"]),
        ("a;", ["a", ""]),
        ("'a;b';c", ["'a;b'", "c"]),
        ("'it''s;'; c", ["'it''s;'", " c"]),
        (r"'a\';b';c", [r"'a\';b'", "c"]),
        (r"'a\\';b", [r"'a\\'", "b"]),
        (r"r'a\';b", [r"r'a\'", "b"]),
        (r"bar'a\';b'", [r"bar'a\';b'"]),  # bar is a word, and what follows is an ordinary text
        (r"""R"\";b""", [r"""R"\" """.rstrip(), "b"]),
        ('"a;b" ; c', ['"a;b" ', " c"]),
        ("`a;``;`;b", ["`a;``;`", "b"]),
        (r"`a\`;b", [r"`a\`", "b"]),  # a backslash is nothing special in a name
        ("a -- b; 'c\n;d", ["a -- b; 'c\n", "d"]),
        ("a -- b\\\n; c\n;d", ["a -- b\\\n; c\n", "d"]),
        ("a /* ; /* ; */ ' ; */ ; b", ["a /* ; /* ; */ ' ; */ ", " b"]),
        ("a /*+ x(b) */ ; c", ["a /*+ x(b) */ ", " c"]),
        ("a /* /*+ ; */ ; c", ["a /* /*+ ; */ ", " c"]),  # a hint begins no comment within a comment
        ("a - - b; '--' ; c", ["a - - b", " '--' ", " c"]),
        ('from_json(x, \'{"a": ";"}\'); b', ['from_json(x, \'{"a": ";"}\')', " b"]),
    ],
)
def test_a_cut_is_at_semicolons_of_the_code(sql: str, expected: list[str]) -> None:
    assert pieces(sql) == expected


def walked(sql: str) -> list[str] | None:
    """The same by a walk from character to character; None if something is never closed."""
    found, at, word = [""], 0, ""
    while at < len(sql):
        here, two = sql[at], sql[at : at + 2]
        end = at + 2 if two == "*/" else at + 1
        if two == "--":
            while end < len(sql) and sql[end] not in "\r\n":
                end += 2 if sql[end : end + 2] == "\\\n" else 1
        elif two == "/*" and sql[at + 2 : at + 3] != "+":
            depth, end = 1, at + 2
            while depth:
                if end >= len(sql):
                    return None
                if sql[end : end + 2] == "*/":
                    depth, end = depth - 1, end + 2
                elif sql[end : end + 2] == "/*" and sql[end + 2 : end + 3] != "+":
                    depth, end = depth + 1, end + 2
                else:
                    end += 1
        elif here in "'\"`":
            raw = word in ("r", "R") and here != "`"
            while True:
                if end >= len(sql):
                    return None
                if sql[end] == "\\" and not raw and here != "`":
                    end += 2
                elif sql[end] == here:
                    end += 1
                    break
                else:
                    end += 1
            if end > len(sql):
                return None
        if here == ";":
            found.append("")
        else:
            found[-1] += sql[at:end]
        word = word + here if here.isalnum() or here == "_" else ""
        at = end
    return found


@given(st.text("'\"`-/*+;\\rR\na1 {}", max_size=30))
@example("r'\\';")
@example("/*/*+*/;")
@example("--\\\n;\n;")
@example("`a```;`")
@example("*/*;*/")
def test_no_cut_within_quotes_or_comments_and_no_character_lost(sql: str) -> None:
    expected = walked(sql)
    if expected is None:
        with pytest.raises(Unclosed):
            split(sql)
    else:
        assert pieces(sql) == expected
        assert ";".join(pieces(sql)) == sql


QUOTED = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ATOMS = st.one_of(
    QUOTED.map(lambda text: "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"),
    QUOTED.map(lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'),
    QUOTED.map(lambda text: "`" + text.replace("`", "``") + "`"),
    QUOTED.map(lambda text: " r'" + text.replace("'", "") + "'"),
    QUOTED.map(lambda text: "--" + "".join(c for c in text if c not in "\r\n\\") + "\n"),
    QUOTED.map(lambda text: "/* " + text.replace("*", "").replace("/", "") + " /* ; */ */"),
    st.sampled_from(["SELECT", " ", "\n", "(1, 2)", "{a}", "1.5", "-", "{dest_table}"]),
)


@given(st.lists(st.lists(ATOMS, max_size=6).map(" ".join), min_size=1, max_size=5))
def test_what_is_joined_by_semicolons_is_cut_there_and_nowhere_else(texts: list[str]) -> None:
    assert pieces(";".join(texts)) == texts


def test_what_says_nothing_is_no_statement_and_lines_are_those_of_the_first_word() -> None:
    found = statements("-- about\n\n;; /* a\n*/ ;\n  -- why\n  SELECT 1 -- end\n ; -- done")
    assert [(one.text, one.line) for one in found] == [("-- why\n  SELECT 1 -- end", 6)]


# -- what is let through ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        f"INSERT INTO {DEST} SELECT * FROM batch",
        f"insert into table {DEST} (a, b) VALUES (1, ';')",
        f"INSERT OVERWRITE {DEST} SELECT * FROM batch",
        f"INSERT OVERWRITE TABLE {DEST} PARTITION (day) SELECT * FROM batch",
        "INSERT INTO `{dest_dataset}`.`{dest_table}` SELECT * FROM batch",
        f"UPDATE {DEST} AS t SET a = 1",
        f"DELETE FROM {DEST} WHERE id IN (SELECT id FROM batch)",
        f"MERGE INTO {DEST} t USING batch b ON t.id = b.id WHEN MATCHED THEN DELETE",
        f"MERGE WITH SCHEMA EVOLUTION INTO {DEST} t USING batch b ON t.id = b.id WHEN MATCHED THEN UPDATE SET *",
        f"WITH a AS (SELECT (1)), b (x, y) AS (SELECT 1, 2) INSERT INTO {DEST} SELECT * FROM a",
        f"WITH insert AS (SELECT 1) INSERT INTO {DEST} SELECT * FROM insert",
        f"WITH RECURSIVE a (n) AS (SELECT 1) INSERT INTO {DEST} SELECT * FROM a",
        f"WITH recursive AS (SELECT 1) INSERT INTO {DEST} SELECT * FROM recursive",
        f"/* why */ INSERT INTO {DEST} SELECT /*+ COALESCE(1) */ 1",
        f"INSERT INTO {DEST} SELECT from_json(a, '{{\"b\": {{}}}}'), '{{dest}}' FROM batch",
    ],
)
@pytest.mark.parametrize("end", ["", ";", " ;\n-- done\n"])
def test_one_statement_that_changes_the_destination(change: str, end: str) -> None:
    found = script(FILE, change + end)
    assert (found.views, found.change) == ((), change)


def test_views_come_before_it_in_their_order() -> None:
    views = [
        "CREATE TEMPORARY VIEW a AS SELECT ';' AS x FROM batch",
        "create or replace temp view b as select * from a",
        "CREATE OR REPLACE TEMPORARY VIEW c AS WITH x AS (SELECT 1) SELECT * FROM x",
    ]
    change = f"INSERT INTO {DEST} SELECT * FROM b"
    found = script(FILE, ";\n".join([*views, change]))
    assert found.views == tuple(views)
    assert found.change == change


@pytest.mark.parametrize(
    "sql, says",
    [
        (f"DROP TABLE {DEST}", ["line 1: DROP TABLE is not allowed here; remove it"]),
        (f"-- x\n\nSET a = b; INSERT INTO {DEST} SELECT 1", ["line 3: SET is not allowed here; remove it"]),
        (
            f"CREATE TABLE x (a INT);\nINSERT INTO {DEST} SELECT 1",
            ["line 1: CREATE TABLE is not allowed here; write CREATE OR REPLACE TEMPORARY VIEW"],
        ),
        (
            f"CREATE OR REPLACE GLOBAL TEMPORARY VIEW x AS SELECT 1; INSERT INTO {DEST} SELECT 1",
            ["line 1: CREATE OR REPLACE GLOBAL TEMPORARY VIEW is not allowed here"],
        ),
        (f"CREATE VIEW x AS SELECT 1; INSERT INTO {DEST} SELECT 1", ["line 1: CREATE VIEW is not allowed here"]),
        (
            f"INSERT INTO {DEST} SELECT 1;\nUPDATE {DEST} SET a = 1",
            ["line 2: UPDATE changes data a second time, after the INSERT in line 1"],
        ),
        (
            f"INSERT INTO {DEST} SELECT 1;\nCREATE TEMP VIEW x AS SELECT 1",
            ["line 2: a view after the INSERT in line 1 is used by nothing"],
        ),
        (
            "CREATE TEMP VIEW x AS SELECT 1",
            [f"nothing here changes data; end with one INSERT, UPDATE, DELETE or MERGE of {DEST}"],
        ),
        ("", ["nothing here changes data"]),
        ("-- only words", ["nothing here changes data"]),
        ("SELECT 1", [f"line 1: SELECT is not allowed here; put INSERT INTO {DEST} before it"]),
        ("WITH a AS (SELECT 1) SELECT * FROM a", ["put INSERT INTO"]),
        ("WITH a AS (SELECT 1)", ["line 1: WITH is not allowed here"]),
        (f"FROM batch INSERT INTO {DEST} SELECT *", ["line 1: FROM is not allowed here; write INSERT INTO"]),
        ("(SELECT 1)", ["a statement that begins with '('"]),
        (f"EXPLAIN INSERT INTO {DEST} SELECT 1", ["line 1: EXPLAIN is not allowed here"]),
        ("TRUNCATE TABLE x; VACUUM x", ["2 problems", "TRUNCATE TABLE is not", "VACUUM is not"]),
        (
            f"INSERT INTO\n  sales.orders SELECT * FROM {DEST}",
            [f"line 2: INSERT is to change sales.orders; write {DEST}"],
        ),
        (
            "INSERT INTO {dest_dataset}.{dest_tabel} SELECT 1",
            ["INSERT is to change {dest_dataset}.{dest_tabel}; write"],
        ),
        ("INSERT INTO `{dest_dataset}.{dest_table}` SELECT 1", [f"write {DEST} in its place"]),
        ("MERGE INTO {dest_table} USING batch ON true", ["MERGE is to change {dest_table}; write"]),
        (f"DELETE FROM x.{DEST}", ["DELETE is to change x.{dest_dataset}.{dest_table}; write"]),
        (f"DELETE FROM {DEST}.x", ["DELETE is to change {dest_dataset}.{dest_table}.x; write"]),
        ("INSERT OVERWRITE DIRECTORY '/tmp/x' USING csv SELECT 1", ["INSERT is to change DIRECTORY; write"]),
        ("INSERT", ["INSERT is to change nothing; write"]),
        (f"\nINSERT INTO {DEST} VALUES ('a)", ["line 2: a quote is opened here and never closed"]),
        (f"INSERT INTO {DEST} VALUES (1) /* a\n/* b */", ["line 1: a comment is opened here and never closed"]),
        (f"INSERT INTO {DEST}\nSELECT `a", ["line 2: a backquote is opened here and never closed"]),
    ],
)
def test_anything_else_is_refused_by_name_and_line(sql: str, says: list[str]) -> None:
    message = refused(sql)
    for one in says:
        assert one in message
    if len(says) == 1:
        assert "problems" not in message


# -- the destination -------------------------------------------------------------------------------------------------


def test_the_destination_is_filled_in_and_other_braces_are_left_alone() -> None:
    sql = "UPDATE {dest_dataset}.{dest_table} SET a = '{\"a\": {b}}', `{dest_table}` = '{dest_table}'/*{dest_dataset}*/"
    assert fill(sql, "sales", "web-orders") == (
        "UPDATE `sales`.`web-orders` SET a = '{\"a\": {b}}', `web-orders` = 'web-orders'/*sales*/"
    )


def test_what_is_filled_in_is_not_looked_at_again() -> None:
    assert fill("{dest_dataset}.{dest_table}", "{dest_table}", "a`b") == "`{dest_table}`.`a``b`"


def test_a_name_may_be_made_with_the_destination_s() -> None:
    assert fill("FROM old.{dest_table}_2025", "sales", "orders") == "FROM old.orders_2025"
    message = refused("MERGE INTO {dest_dataset}.{dest_table}_2025 USING batch ON true")
    assert "MERGE is to change {dest_dataset}.{dest_table}_2025; write" in message

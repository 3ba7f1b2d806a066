"""Batches applied to Delta tables by Spark.

    1 look       the table's own transactions say whether the batch is in it, or is never to be
    2 check      every file is still the one that was listed
    3 write      the rows, or what the statement makes of them; nobody sees them yet
    4 commit     with the batch's transaction: Delta refuses it if another attempt was faster

A load begins its transaction at 1 and commits it at 4. A statement runs in a session of its own whose settings name the
transaction, and Delta does 3 and 4; the commit is then found by the attempt's own mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os.path import commonpath
from typing import TYPE_CHECKING
from uuid import uuid4

from catchment.bucket.contract import Bucket
from catchment.bucket.open import open_bucket
from catchment.clock import SYSTEM, Clock
from catchment.config.storage import Storage
from catchment.errors import CatchmentError, NotFound
from catchment.spark import failures
from catchment.spark.uris import uri
from catchment.tables import history as log
from catchment.tables import reading
from catchment.tables.fit import fitted
from catchment.tables.history import Commit, Note
from catchment.tables.names import Batch, Table
from catchment.tables.partition import NULL
from catchment.tables.settings import Disposition, Load, Query
from catchment.tables.statement import fill
from catchment.tables.transactions import FENCED, Begun, Carried, Look, TableLog
from catchment.tables.work import Applied, BatchFailed, Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

VIEWS = ("batch", "temp_ext")
_SAME = "ConcurrentTransactionException"  # Delta: a commit with our transaction was faster
_OTHERS = ("Concurrent", "MetadataChanged", "ProtocolChanged", "FileAlreadyExists", "VersionNotFound")
_VIOLATED = "CHECK constraint EXPRESSION("  # Delta's name for what replaceWhere demands
_HINTS = {
    "DELTA_UNSUPPORTED_SUBQUERY": "write it as MERGE INTO … USING batch …: UPDATE and DELETE take no subqueries",
    "DELTA_MERGE_UNRESOLVED_EXPRESSION": "a column in the MERGE is not the table's nor the batch's: correct its name",
    "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE": "make the rows of the batch unique first, in a view",
}
_TRANSACTION = "spark.databricks.delta.write.txnAppId"
_NUMBER = "spark.databricks.delta.write.txnVersion"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


class DeltaEngine:
    """Is a `work.Engine`. Any thread may use it, and any number of processes may work on the same tables."""

    def __init__(
        self,
        spark: SparkSession,
        storage: Storage,
        *,
        bucket: Bucket | None = None,
        clock: Clock = SYSTEM,
        attempt: Callable[[], str] = lambda: uuid4().hex,
        on_step: Callable[[str], object] = lambda name: None,
    ) -> None:
        """`on_step` is told the name of each step before it, for tests that stop the process there."""
        self._spark, self._storage = spark, storage
        self._session = reading.prepare(spark.newSession())
        self._bucket = bucket if bucket is not None else open_bucket(storage, create=False)
        self._clock, self._attempt, self._on_step = clock, attempt, on_step
        self._logs: dict[Table, TableLog] = {}

    # -- what is in

    def applied(self, batch: Batch) -> int | None:
        """By the transactions of the table. If its log is too short to tell the version, the oldest one that it has."""
        with _explained(str(batch)):
            look = self._log(batch.table).look()
            return self._in(look, batch, look.carried(batch.transaction))

    def history(self, table: Table) -> Iterator[Commit]:
        """Newest first, read one by one."""
        return log.history(self._bucket, table)

    def _in(self, look: Look, batch: Batch, carried: Carried) -> int | None:
        """The version that the batch is in by; None if it is not."""
        if carried.fenced or not carried.committed:
            return None
        made = self._commit_of(look, batch, carried)
        if made is None:
            return self._log(batch.table).oldest(look.version)
        return made.version if made.counts else None

    def _commit_of(self, look: Look, batch: Batch, carried: Carried) -> Commit | None:
        if carried.version is not None:
            return log.commit(self._bucket, batch.table, carried.version)
        return look.find(batch.transaction)

    # -- apply

    def apply(self, job: Job) -> Applied:
        """See `work.Engine`. What a statement reads and changes is at the table's newest version."""
        began = self._clock.monotonic()
        what = job.settings.do.file if isinstance(job.settings.do, Query) else str(job.batch)
        for last in (False, True):
            try:
                with _explained(what):
                    found = self._apply(job)
                return replace(found, seconds=self._clock.monotonic() - began)
            except _Overtaken:  # by an attempt at the same batch: look what became of it
                if last:
                    raise
        raise AssertionError("the second attempt returns or raises")

    def _apply(self, job: Job) -> Applied:
        batch = job.batch
        self._on_step("look")
        begun = self._log(batch.table).begin()  # 1
        carried = begun.carried(batch.transaction)
        if carried.fenced:
            raise BatchFailed(f"{batch} was skipped", hint="to have it applied after all, publish it again")
        version = self._in(begun, batch, carried)
        if version is not None:
            made = log.commit(self._bucket, batch.table, version)
            same = made is not None and batch.transaction in made.transactions
            return Applied(version, made.rows if made is not None and same else None, already=True)
        self._on_step("check")
        self._unchanged(job)  # 2
        note = self._note(batch, zero=job.settings.allow_zero_rows)
        if isinstance(job.settings.do, Query):
            return self._query(job, job.settings.do, begun, note, carried.next)
        return self._load(job, job.settings.do, begun, note, carried.next)

    def _unchanged(self, job: Job) -> None:
        """BatchFailed if a file is not the one that was listed. One listing."""
        if not job.files:
            return
        wanted = {file.key: file for file in job.files}
        for entry in self._bucket.list(commonpath(wanted)):
            file = wanted.get(entry.key)
            if file is None:
                continue
            try:
                if entry.size == file.size and (entry.etag or self._bucket.head(entry.key).etag) == file.etag:
                    del wanted[entry.key]
            except NotFound:
                pass
        if wanted:
            raise BatchFailed(
                f"{next(iter(wanted))} was changed or removed since the batch was taken up",
                hint="publish the batch again (a new _SUCCESS), or try it again as it is now",
            )

    # -- load

    def _load(self, job: Job, load: Load, begun: Begun, note: Note, number: int) -> Applied:
        batch, settings = job.batch, job.settings
        table = begun.schema
        if not job.files and not settings.allow_zero_rows:
            raise _no_rows(batch, "it has no files")
        frame = reading.rows(self._session, job, self._uri, table)
        if frame is None or not frame.columns:
            if not settings.allow_zero_rows:
                raise _no_rows(batch, "its files have no columns")
            return Applied(begun.empty(note, batch.transaction, number), rows=0)
        replaced = dict(load.partition) if load.disposition is Disposition.PARTITION else {}
        frame = _with_partition(frame, replaced, table)
        options: dict[str, str] = {}
        mode = "Append" if load.disposition is Disposition.APPEND else "Overwrite"
        if table is not None:
            frame, grows = fitted(frame, table, add=settings.evolution == "add columns")
            options |= {"mergeSchema": "true"} if grows else {}
            options |= {"replaceWhere": _predicate(replaced)} if replaced else {}
        else:
            _check_partition(frame, replaced, batch)
            if begun.version >= 0:  # it was made without columns
                mode, options = "Overwrite", {"overwriteSchema": "true"}
        self._on_step("write")
        by = load.partition_by if table is None else ()
        with _inside(batch, replaced):
            written = begun.write(  # 3
                frame, note, batch.transaction, number, mode=mode, partition_by=by, options=options
            )
        if written.rows == 0 and not settings.allow_zero_rows:
            raise _no_rows(batch, "its files have no rows")
        self._on_step("commit")
        return Applied(written.commit(), rows=written.rows)  # 4

    # -- query

    def _query(self, job: Job, query: Query, begun: Begun, note: Note, number: int) -> Applied:
        batch = job.batch
        schema = begun.schema
        if schema is None:
            raise BatchFailed(
                f"{query.file}: there is no table {batch.table} that the statement could change",
                hint="load its first batch with a load.json, or make a Delta table at " + self._log(batch.table).uri,
            )
        if not job.files and not job.settings.allow_zero_rows:
            raise _no_rows(batch, "it has no files")
        session = reading.prepare(self._spark.newSession())
        frame = reading.rows(session, job, self._uri, None if job.files else schema)
        assert frame is not None  # the table has columns
        for name in VIEWS:
            frame.createOrReplaceTempView(name)
        place = self._log(batch.table).uri
        for view in query.views:
            session.sql(fill(view, "delta", place))
        for name, value in ((_TRANSACTION, batch.transaction), (_NUMBER, str(number)), (_METADATA, note.text())):
            session.conf.set(name, value)
        self._on_step("write")
        told = session.sql(fill(query.statement, "delta", place)).collect()  # 3, 4
        return self._found(job, note, number, begun.version, _affected(told))

    def _found(self, job: Job, note: Note, number: int, before: int, affected: int | None) -> Applied:
        """What became of a statement: its commit, if it made one."""
        batch, table = job.batch, self._log(job.batch.table)
        look = table.look()
        if (carried := look.carried(batch.transaction)).number > number:
            raise _Overtaken(batch)
        if carried.number == number:
            made = self._commit_of(look, batch, carried)
            if made is None or made.note is None or made.note.attempt != note.attempt:
                raise _Overtaken(batch)  # it was faster, and Delta passed ours over in silence
            if made.counts:
                rows = affected if affected is not None else made.rows
                return Applied(made.version, rows, numbers=dict(made.numbers))
            table.begin().empty(replace(note, why="void"), batch.transaction, number + 1)
        elif job.settings.allow_zero_rows:
            return Applied(table.begin().empty(note, batch.transaction, number), rows=0)
        raise _no_rows(batch, "the statement changed no row")

    # -- fence

    def fence(self, batch: Batch) -> int:
        """See `work.Engine`. Safe to repeat."""
        note = self._note(batch, why="skipped")
        while True:
            try:
                with _explained(str(batch)):
                    begun = self._log(batch.table).begin()
                    carried = begun.carried(batch.transaction)
                    if carried.fenced:
                        made = self._commit_of(begun, batch, carried)
                        return made.version if made is not None else self._log(batch.table).oldest(begun.version)
                    version = self._in(begun, batch, carried)
                    if version is not None:
                        raise BatchFailed(f"{batch} is in the table, as version {version}")
                    self._on_step("fence")
                    return begun.empty(note, batch.transaction, FENCED)
            except _Overtaken:
                continue

    # -- small things

    def _note(self, batch: Batch, *, why: str = "", zero: bool = False) -> Note:
        began = int(self._clock.now().timestamp() * 1000)
        return Note(batch.path, batch.publication.id, self._attempt(), began, why, zero)

    def _log(self, table: Table) -> TableLog:
        found = self._logs.get(table)
        if found is None:
            made = TableLog(
                self._session,
                self._uri(table.warehouse),
                lambda version: log.commit(self._bucket, table, version),
            )
            found = self._logs.setdefault(table, made)
        return found

    def _uri(self, key: str) -> str:
        return uri(self._storage, key)


class _Overtaken(CatchmentError):
    """Another attempt at the same batch was faster."""

    def __init__(self, batch: object) -> None:
        super().__init__(f"another attempt at {batch} was faster", hint="it is tried again")


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Spark's errors as ours: BatchFailed if trying again is no use."""
    try:
        yield
    except failures.raised() as error:
        chain = failures.causes(error)
        names = [cause.kind.rpartition(".")[2] for cause in chain]
        if any(_SAME in name for name in names):
            raise _Overtaken(what) from error
        if any(word in name for name in names for word in _OTHERS):
            raise CatchmentError(
                f"{what}: the table was changed meanwhile: {failures.said(chain)}", hint="it is tried again"
            ) from error
        if failures.passes(chain):
            raise CatchmentError(f"{what} was not applied: {failures.said(chain)}", hint="it is tried again") from error
        known = {name for cause in chain for name in cause.conditions}
        hint = next((said for name, said in _HINTS.items() if name in known), "mend the batch, its _config or its SQL")
        raise BatchFailed(f"{what}: {failures.said(chain)}", hint=hint) from error


def _no_rows(batch: Batch, why: str) -> BatchFailed:
    return BatchFailed(
        f"{batch}: {why}", hint='if that is fine, say "allow_zero_rows": true in its load.json or external.json'
    )


def _affected(told: Sequence[object]) -> int | None:
    """What UPDATE, DELETE and MERGE say of themselves; None for INSERT."""
    count = getattr(told[0], "num_affected_rows", None) if told else None
    return int(count) if count is not None and count >= 0 else None


def _with_partition(frame: DataFrame, replaced: dict[str, str], table: StructType | None) -> DataFrame:
    """With the columns of the partition, where the rows do not have them."""
    from pyspark.sql.functions import lit

    there = {name.lower() for name in frame.columns}
    types = {field.name.lower(): field.dataType for field in table.fields} if table is not None else {}
    missing = {
        name: lit(None if value == NULL else value).cast(types.get(name.lower(), "string"))
        for name, value in replaced.items()
        if name.lower() not in there
    }
    return frame.withColumns(missing) if missing else frame


def _predicate(replaced: dict[str, str]) -> str:
    """The rows of a partition, in SQL."""

    def one(name: str, value: str) -> str:
        column = "`" + name.replace("`", "``") + "`"
        if value == NULL:
            return f"{column} IS NULL"
        return f"{column} = '" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

    return " AND ".join(one(name, value) for name, value in replaced.items())


def _check_partition(frame: DataFrame, replaced: dict[str, str], batch: Batch) -> None:
    """BatchFailed if rows are outside of the partition. For a table that is there, Delta sees to it while it writes."""
    from pyspark.sql.functions import expr

    if replaced and not frame.filter(~expr(f"coalesce({_predicate(replaced)}, false)")).isEmpty():
        raise _outside(batch, replaced)


@contextmanager
def _inside(batch: Batch, replaced: dict[str, str]) -> Iterator[None]:
    """What Delta says of a row outside of the partition, in our words."""
    try:
        yield
    except failures.raised() as error:
        if replaced and any(_VIOLATED in cause.message for cause in failures.causes(error)):
            raise _outside(batch, replaced) from error
        raise


def _outside(batch: Batch, replaced: dict[str, str]) -> BatchFailed:
    return BatchFailed(
        f"{batch} has rows outside of the partition that it is to replace ({_predicate(replaced)})",
        hint="publish only rows of that partition, or choose another write_disposition",
    )

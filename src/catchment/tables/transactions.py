"""The transactions of a Delta table: what its log says of a batch, and commits that carry one.

A batch is the application id of a Delta transaction. Its version tells what became of it:

    none, or an even number     it is not in the table, and may be tried
    an odd number               a commit that carries it is in the table
    FENCED                      it is never to be applied

An attempt takes the next odd number. One that must have changed rows and changed none is taken back by the even number
after it. Delta refuses a commit if another one with the same id was made since its transaction began, and so no two
attempts ever succeed.

Delta's own check (`txnAppId` of the writer) replays the whole state of the table each time, which takes longer than to
append a small batch. So what the table carries is asked of Delta once, and then kept up to date by its commits.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from catchment.tables.history import Commit, Note

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FENCED = 1 << 52
_FOLLOW = 64  # commits of others that are read one by one; of more, Delta itself is asked


@dataclass(frozen=True)
class Carried:
    """The transaction of one batch, as a table has it."""

    number: int = 0
    version: int | None = None  # of the table that it was made by, if that is known

    @property
    def fenced(self) -> bool:
        return self.number >= FENCED

    @property
    def committed(self) -> bool:
        return self.number % 2 == 1

    @property
    def next(self) -> int:
        """The number of the next attempt."""
        return self.number + (2 if self.committed else 1)


@dataclass
class _Known:
    """What a table carries, up to one of its versions."""

    id: str = ""  # of the table: one that was removed and made again is another one
    version: int = -1
    before: Any = None  # a map of Scala's: too large to be moved
    since: dict[str, Carried] = field(default_factory=dict)

    def get(self, transaction: str) -> Carried:
        found = self.since.get(transaction)
        if found is None and self.before is not None and self.before.contains(transaction):
            found = Carried(int(self.before.apply(transaction)))
        return found or Carried()


class TableLog:
    """The log of one table. Any thread may use it."""

    def __init__(self, session: SparkSession, uri: str, commit: Callable[[int], Commit | None]) -> None:
        self.uri = uri
        self._session, self._commit = session, commit
        self._known, self._lock = _Known(), threading.Lock()

    def look(self) -> Look:
        """The table as it is now."""
        jvm = self._jvm
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._session._jsparkSession, self.uri)
        return Look(self, log, log.update(False, jvm.scala.Option.empty(), jvm.scala.Option.empty()))

    def begin(self) -> Begun:
        """A transaction on the table as it is now."""
        log = self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._session._jsparkSession, self.uri)
        return Begun(self, log, log.startTransaction())

    def carried(self, transaction: str, snapshot: Any) -> Carried:
        """What this version of the table carries."""
        with self._lock:
            self._follow(snapshot)
            return self._known.get(transaction)

    def find(self, transaction: str, version: int) -> Commit | None:
        """The newest commit, from this version down, that carries it. None if the log does not go back that far."""
        while version >= 0 and (found := self._commit(version)) is not None:
            if transaction in found.transactions:
                return found
            version -= 1
        return None

    def oldest(self, version: int) -> int:
        """The oldest version that the log still has, of those from this one down."""
        while version > 0 and self._commit(version - 1) is not None:
            version -= 1
        return version

    def made(self, id: str, version: int, transaction: str, number: int) -> None:
        """We committed this: nobody needs to read it."""
        with self._lock:
            known = self._known
            if version == 0:
                self._known = known = _Known(id)
            if known.id == id and known.version == version - 1:
                known.version = version
                known.since[transaction] = Carried(number, version)

    def _follow(self, snapshot: Any) -> None:
        version, known = int(snapshot.version()), self._known
        if version < 0:
            self._known = _Known()
            return
        id = str(snapshot.metadata().id())
        if known.id == id and known.version >= 0 and 0 <= version - known.version <= _FOLLOW:
            commits = [self._commit(one) for one in range(known.version + 1, version + 1)]
            if all(commit is not None for commit in commits):
                for commit in commits:
                    assert commit is not None
                    known.since |= {
                        name: Carried(number, commit.version) for name, number in commit.transactions.items()
                    }
                known.version = version
                return
        if known.id != id or known.version < version:
            self._known = _Known(id, version, snapshot.transactions())

    @property
    def _jvm(self) -> Any:
        return self._session._jvm


class Look:
    """One version of a table."""

    def __init__(self, log: TableLog, java: Any, snapshot: Any) -> None:
        self._log, self._java, self._snapshot = log, java, snapshot

    @property
    def version(self) -> int:
        """-1 if there is no table."""
        return int(self._snapshot.version())

    @property
    def schema(self) -> StructType | None:
        """None if there is no table, or one without columns: whoever writes first says what they are."""
        from pyspark.sql.types import StructType

        if self.version < 0:
            return None
        found = StructType.fromJson(json.loads(self._snapshot.schema().json()))
        return found if found.fields else None

    def carried(self, transaction: str) -> Carried:
        """What it carries of a batch."""
        return self._log.carried(transaction, self._snapshot)

    def find(self, transaction: str) -> Commit | None:
        """The commit that carries a batch."""
        return self._log.find(transaction, self.version)


class Begun(Look):
    """A transaction that has begun: at most one commit, and only if nobody has touched the batch since."""

    def __init__(self, log: TableLog, java: Any, transaction: Any) -> None:
        super().__init__(log, java, transaction.snapshot())
        self._transaction = transaction
        self._jvm = log._jvm
        self._delta = self._jvm.org.apache.spark.sql.delta

    def write(
        self,
        frame: DataFrame,
        note: Note,
        transaction: str,
        number: int,
        *,
        mode: str,
        partition_by: Sequence[str],
        options: Mapping[str, str],
    ) -> Written:
        """Write the files of a commit; nobody sees them before it is made."""
        self._follow(transaction)
        some = self._some
        java_frame = frame._jdf
        everything = dict(options, txnAppId=transaction, txnVersion=str(number), userMetadata=note.text())
        session = self._log._session._jsparkSession
        chosen = self._delta.DeltaOptions(self._jvm.PythonUtils.toScalaMap(everything), session.sessionState().conf())
        save = getattr(self._jvm.org.apache.spark.sql.SaveMode, mode)
        none = self._jvm.scala.Option.empty()
        columns = self._jvm.PythonUtils.toSeq(list(partition_by))
        into = self._delta.commands.WriteIntoDelta(
            self._java, save, chosen, columns, self._jvm.PythonUtils.toScalaMap({}), java_frame, none, none, False
        )
        data = into.writeAndReturnCommitData(self._transaction, session, none, False)
        operation = self._operation(save, note, columns=some(columns), predicate=chosen.replaceWhere())
        metric = self._transaction.getMetric("numOutputRows")
        rows = int(metric.get().value()) if metric.isDefined() else None

        def commit() -> int:
            made = self._transaction.commitIfNeeded(data.actions(), operation, data.stringTags())
            return self._made(int(made.get()), transaction, number)

        return Written(rows, commit)

    def empty(self, note: Note, transaction: str, number: int) -> int:
        """A commit without data: the version. A table that is not there is made, without columns."""
        self._follow(transaction)
        if self.version < 0:
            companion = getattr(getattr(self._delta.actions, "Metadata$"), "MODULE$")
            defaults = [getattr(companion, f"$lessinit$greater$default${at}")() for at in range(1, 9)]
            self._transaction.updateMetadata(self._delta.actions.Metadata(*defaults), False)
        at = self._some(self._jvm.java.lang.Long(note.began))
        carried = self._delta.actions.SetTransaction(transaction, number, at)
        operation = self._operation(self._jvm.org.apache.spark.sql.SaveMode.Append, note)
        actions = self._jvm.PythonUtils.toSeq([carried])
        return self._made(int(self._transaction.commit(actions, operation)), transaction, number)

    def _follow(self, transaction: str) -> None:
        """From now on Delta refuses our commit if another one carries this."""
        self._transaction.readTxn().addOne(transaction)

    def _made(self, version: int, transaction: str, number: int) -> int:
        self._log.made(str(self._transaction.metadata().id()), version, transaction, number)
        return version

    def _operation(self, save: Any, note: Note, *, columns: Any = None, predicate: Any = None) -> Any:
        none = self._jvm.scala.Option.empty()
        kind = getattr(self._delta, "DeltaOperations$Write")
        return kind(save, columns or none, predicate or none, self._some(note.text()), *[none] * 5)

    def _some(self, value: Any) -> Any:
        return self._jvm.scala.Option.apply(value)


@dataclass(frozen=True)
class Written:
    """Files that are there, and no commit yet."""

    rows: int | None
    commit: Callable[[], int]  # the version

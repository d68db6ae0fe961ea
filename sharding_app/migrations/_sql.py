"""An operation that runs files of `sql/` on the cluster's PostgreSQL alias, and does nothing
elsewhere.

In the files, @schema@ stands for the schema that the tables are made in: functions and triggers
name it, so that no search path and no temporary table can lead a write around the fence.

Whatever waits for a table's lock makes everything wait that comes after it, and a dump holds its
locks until it is through. So a migration waits for a moment only, gives up what it holds, and tries
again: nodes work on in between.

An index that is built CONCURRENTLY and interrupted stays behind, unfinished: no query uses it, and
`IF NOT EXISTS` takes it for an index. It is dropped before it is built again.
"""

import re
import time
from importlib import resources
from typing import Any

from django.conf import settings
from django.db import OperationalError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation

from sharding_app.adapters.django.database import holds_our_tables

LOCK_NOT_AVAILABLE = "55P03"
LOCK_SECONDS = 1.0
"""Less than a caller waits for its answer."""
PAUSE_SECONDS = 2.0
TRIES = 20
HOLDERS = """
SELECT DISTINCT a.pid, a.usename, a.application_name, extract(epoch FROM now() - COALESCE(a.xact_start, now()))
FROM pg_locks l
JOIN pg_class c ON c.oid = l.relation AND starts_with(c.relname, 'sharding_') AND c.relkind IN ('r', 'p')
JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND l.pid <> pg_backend_pid() AND NOT starts_with(a.application_name, 'sharding/')
ORDER BY 4 DESC
LIMIT 5
"""
_CONCURRENT = re.compile(r"CREATE INDEX CONCURRENTLY IF NOT EXISTS (\w+)")
UNFINISHED = "SELECT 1 FROM pg_index i WHERE i.indexrelid = to_regclass(%s) AND NOT i.indisvalid"


def load(name: str, schema: str = "public") -> str:
    """Return the text of one file, for tables in this schema (already quoted where it must be)."""
    text = resources.files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    return text.replace("@schema@", schema)


class RunFiles(Operation):
    """Run the files named first, and the others when the migration is taken back. `partitioned`:
    only where the settings want the journal partitioned.
    """

    def __init__(
        self, forwards: tuple[str, ...], backwards: tuple[str, ...], *, partitioned: bool = False
    ) -> None:
        self.forwards = forwards
        self.backwards = backwards
        self.partitioned = partitioned

    def state_forwards(self, app_label: str, state: Any) -> None:
        """The state is told by the models' own operations."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if not self.partitioned or getattr(settings, "SHARDING", {}).get("PARTITION_JOURNAL"):
            _run(self.forwards, schema_editor)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        _run(self.backwards, schema_editor)

    def describe(self) -> str:
        return f"Run {', '.join(self.forwards)} (SQL) on the cluster's database"


def _run(names: tuple[str, ...], schema_editor: BaseDatabaseSchemaEditor) -> None:
    connection = schema_editor.connection
    if not holds_our_tables(connection):
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        row = cursor.fetchone()
    if row is None or row[0] is None:
        raise RuntimeError("The cluster's tables need a schema: the database's search_path names none.")
    schema = connection.ops.quote_name(row[0])
    if schema_editor.collect_sql or not connection.in_atomic_block:
        _execute(names, schema, schema_editor)
        return
    for tried in range(1, TRIES + 1):
        try:
            with transaction.atomic(using=connection.alias):
                with connection.cursor() as cursor:
                    cursor.execute(f"SET LOCAL lock_timeout = {round(LOCK_SECONDS * 1000)}")
                _execute(names, schema, schema_editor)
                with connection.cursor() as cursor:
                    cursor.execute("SET LOCAL lock_timeout TO DEFAULT")
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                raise
            if tried == TRIES:
                raise RuntimeError(_in_the_way(connection)) from error
            time.sleep(PAUSE_SECONDS)
        else:
            return


def _execute(names: tuple[str, ...], schema: str, schema_editor: BaseDatabaseSchemaEditor) -> None:
    for name in names:
        for index in _CONCURRENT.findall(load(name)):
            _drop_unfinished(index, schema, schema_editor)
        schema_editor.execute(load(name, schema), params=None)


def _drop_unfinished(index: str, schema: str, schema_editor: BaseDatabaseSchemaEditor) -> None:
    if schema_editor.collect_sql:
        return
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(UNFINISHED, [f"{schema}.{index}"])
        unfinished = cursor.fetchone() is not None
    if unfinished:
        schema_editor.execute(f"DROP INDEX CONCURRENTLY {schema}.{index}", params=None)


def _in_the_way(connection: BaseDatabaseWrapper) -> str:
    """Say who holds the locks for which we have waited."""
    with connection.cursor() as cursor:
        cursor.execute(HOLDERS)
        holders = [
            f"process {pid} ({' '.join(each for each in (user, name) if each)}, for {seconds:.0f} s)"
            for pid, user, name, seconds in cursor.fetchall()
        ]
    return (
        f"The cluster's tables are in use, and were so at each of {TRIES} tries: {', '.join(holders) or 'by others'}. "
        "Nothing is changed, and no node was held up for long. Run migrate again when that has ended: a dump, a VACUUM FULL or "
        "an open transaction, mostly."
    )

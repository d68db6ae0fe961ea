"""`persist(..., also=fn)`: a user's own rows and an entity's events in one transaction, both or neither.

The function runs in a thread inside `atomic` on the journal's database; the events are appended on that same connection
as the last statement, so that the shard's row is locked for the commit only: a function that waits for a row of the
user's own holds up this command, and neither its shard's move nor anybody else's commits.
"""

import asyncio
import concurrent.futures
from collections.abc import Callable, Sequence

from django.db import Error, connections, transaction

from sharding_app.adapters.postgres.copying import append_within
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.line import application_name
from sharding_app.core.records import Backend
from sharding_app.ports.journal import EventRow, JournalUnavailable

LOCK_TIMEOUT_SECONDS = 10.0
THREADS = 4
DURABLE = """
SELECT set_config('synchronous_commit', 'on', true)
WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
"""
WHO = (
    "SELECT pg_backend_pid(), (SELECT backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid())"
)


class DjangoTogether:
    """`runtime.owner.Together` on Django's connections: a bounded pool of threads, a connection for each in use."""

    def __init__(self, alias: str, journal: PostgresJournal, *, owner: str, threads: int = THREADS) -> None:
        self._alias = alias
        self._name = application_name(owner, "also")
        self._journal = journal
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="sharding-also")

    async def __call__(self, rows: Sequence[EventRow], functions: Sequence[Callable[[], object]]) -> None:
        doubt = await asyncio.get_running_loop().run_in_executor(self._pool, self._run, rows, functions)
        if doubt is not None and not (rows and await self._journal.settle_of(doubt, rows)):
            raise JournalUnavailable("the connection was lost before the commit; nothing is stored")

    def _run(self, rows: Sequence[EventRow], functions: Sequence[Callable[[], object]]) -> Backend | None:
        """Do it all; returns the server process whose commit nobody has answered, if that is how it ended."""
        connection = connections[self._alias]
        backend: Backend | None = None
        functions_done = False
        try:
            with transaction.atomic(using=self._alias, durable=True):
                with connection.cursor() as cursor:
                    cursor.execute(f"SET LOCAL lock_timeout = {round(LOCK_TIMEOUT_SECONDS * 1000)}")
                    # By this name the coordinator finds the connection of a process that froze before its commit.
                    cursor.execute("SELECT set_config('application_name', %s, true)", [self._name])
                    cursor.execute(DURABLE)
                    cursor.execute(WHO)
                    pid, started = cursor.fetchone()
                    backend = Backend(pid=pid, started=started)
                for function in functions:
                    function()
                functions_done = True
                if rows:
                    with connection.cursor() as cursor:
                        append_within(cursor.cursor, rows)
        except Error as error:
            # A user's error is the user's; after the last function it can only be the commit's.
            if functions_done and backend is not None and not connection.is_usable():
                return backend
            if functions_done:
                raise JournalUnavailable(str(error)) from error
            raise
        finally:
            connection.close_if_unusable_or_obsolete()
        return None

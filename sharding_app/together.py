"""`persist(..., also=fn)`: a user's own rows and an entity's events in one transaction, both or neither.

The function runs in a thread inside `atomic` on the journal's database; the events are appended on that same connection
as the last statement, so that the shard's row is locked for the commit only: a function that waits for a row of the
user's own holds up this command, and neither its shard's move nor anybody else's commits.

Contract: returns when all is committed; raises what the function raised, or the journal's errors, when nothing is. When a
commit's answer was lost, the server is asked until it says which of the two it was.
"""

import asyncio
import concurrent.futures
import contextvars
import functools
import logging
from collections.abc import Callable, Sequence

from django.db import InterfaceError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from sharding_app.adapters.postgres.appending import append_within
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.line import application_name
from sharding_app.core.records import Backend
from sharding_app.ports.journal import EventRow, JournalUnavailable

logger = logging.getLogger("sharding.journal")

RETRY_SECONDS = 0.1
DURABLE = """
SELECT set_config('synchronous_commit', 'on', true)
WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
"""
WHO = (
    "SELECT pg_backend_pid(), (SELECT backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid())"
)


class DjangoTogether:
    """`runtime.owner.Together` on Django's connections: a bounded pool of threads, a connection for each in use."""

    def __init__(
        self,
        alias: str,
        journal: PostgresJournal,
        *,
        owner: str,
        threads: int,
        lock_timeout_seconds: float,
    ) -> None:
        self._alias = alias
        self._name = application_name(owner, "also")
        self._journal = journal
        self._lock_timeout_ms = round(lock_timeout_seconds * 1000)
        self._connections: set[BaseDatabaseWrapper] = set()
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="sharding-also")

    async def __call__(self, rows: Sequence[EventRow], functions: Sequence[Callable[[], object]]) -> None:
        run = functools.partial(contextvars.copy_context().run, self._run, rows, functions)
        doubt = await asyncio.get_running_loop().run_in_executor(self._pool, run)
        if doubt is None:
            return
        logger.warning("a commit was not answered: asking", extra={"action": "commit_unknown"})
        if not rows:
            raise JournalUnavailable(
                "the connection was lost at the commit, and no event says what became of it"
            )
        if not await self._committed(doubt, rows):
            raise JournalUnavailable("the connection was lost before the commit")

    def close(self) -> None:
        """End the threads and their connections: what still runs there fails."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        while self._connections:
            connection = self._connections.pop()
            connection.inc_thread_sharing()
            connection.close()

    async def _committed(self, backend: Backend, rows: Sequence[EventRow]) -> bool:
        while True:
            try:
                return await self._journal.settle_of(backend, rows)
            except JournalUnavailable:
                await asyncio.sleep(RETRY_SECONDS)

    def _run(self, rows: Sequence[EventRow], functions: Sequence[Callable[[], object]]) -> Backend | None:
        """Do it all; returns the server process whose commit nobody has answered, if that is how it ended."""
        connection = connections[self._alias]
        connection.close_if_unusable_or_obsolete()
        self._connections.add(connection)
        backend: Backend | None = None
        functions_done = False
        try:
            with transaction.atomic(using=self._alias, durable=True):
                with connection.cursor() as cursor:
                    cursor.execute(f"SET LOCAL lock_timeout = {self._lock_timeout_ms}")
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
        except (OperationalError, InterfaceError) as error:
            if backend is None:
                raise JournalUnavailable(str(error)) from error  # it could not even begin
            if not functions_done:
                raise  # the user's function, and so the user's error
            if not connection.is_usable():
                return backend  # nothing but the commit's answer can be missing
            raise JournalUnavailable(str(error)) from error
        finally:
            connection.close_if_unusable_or_obsolete()
        return None

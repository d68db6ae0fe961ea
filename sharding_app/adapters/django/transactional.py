"""`persist(..., in_transaction=fn)`: a user's own rows and an entity's events in one transaction,
or neither.

The function runs in a thread inside `atomic` on the journal's database. The events are appended on
that same connection as the last statement, so that the shard's row is locked for the commit only. A
function that waits for a row of the user's own holds up this command, and neither its shard's move
nor the commits of others.

Contract: returns when all is committed. Raises the function's error, or the journal's errors, when
nothing is. When a commit's answer was lost, the server is asked until it says which of the two it
was. Django runs `transaction.on_commit` hooks after the commit: one that raises is logged, and
takes nothing back.
"""

import asyncio
import concurrent.futures
import contextvars
import functools
import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple, TypeVar, assert_never, cast

from django.db import InterfaceError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from sharding_app.adapters.django.database import OF_PERSIST, refuse_broken
from sharding_app.adapters.postgres.appending_messages import append_within
from sharding_app.adapters.postgres.connection import application_name, cut, notice_silence
from sharding_app.adapters.postgres.errors import has_failed
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.within import Connection, Replication, prepare_within, watched
from sharding_app.ports.deliveries import MessageChanges
from sharding_app.ports.journal import EventRow, JournalUnavailable, RowRefused
from sharding_app.protocol.records import Backend, Lineage
from sharding_app.redaction import traceable

logger = logging.getLogger("sharding.journal")

T = TypeVar("T")

RETRY_SECONDS = 0.1
LOOK_SECONDS = 1.0


class Phase(IntEnum):
    """The progress of a transaction, which decides on the meaning of an error."""

    BEGIN = 0
    FUNCTIONS = 1
    "The user's functions: the error is the user's."
    APPEND = 2
    COMMIT = 3
    "Without an answer the outcome is unknown."
    HOOKS = 4
    "All is committed, whatever happens now."


class _Work(NamedTuple):
    """What one transaction does."""

    rows: Sequence[EventRow]
    message_changes: MessageChanges | None
    functions: Sequence[Callable[[], object]]
    lineage: Lineage | None

    @property
    def entity(self) -> tuple[int, str] | None:
        """The entity whose rows these are; None: there are only functions."""
        return (self.rows[0].type_id, self.rows[0].entity) if self.rows else None


class DjangoTogether:
    """`runtime.base.interfaces.Together` on Django's connections: a bounded pool of threads, a
    connection for each in use.
    """

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
        self._lock = threading.Lock()
        self._resting: set[BaseDatabaseWrapper] = set()
        "Open connections of idle threads."
        self._busy: dict[BaseDatabaseWrapper, Lineage | None] = {}
        "Those at work, each with the lineage of the rows that it writes."
        self._at_work: dict[tuple[int, str] | None, Backend] = {}
        "The server process of each entity's transaction that is under way."
        self._closed = False
        self.pool = concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="sharding-also")

    async def __call__(
        self,
        rows: Sequence[EventRow],
        functions: Sequence[Callable[[], object]],
        changes: MessageChanges | None = None,
    ) -> datetime | None:
        # The lineage of the object that these rows follow. It may be another one when a thread
        # begins.
        lineage = self._journal.lineage
        work = _Work(rows, changes, functions, lineage)
        run = functools.partial(contextvars.copy_context().run, self._run, work)
        try:
            backend, at, answered = await self._followed(
                asyncio.get_running_loop().run_in_executor(self.pool, run)
            )
        except RowRefused as refused:
            await self._journal.look_for_the_next_home(refused, rows)
            raise
        # Another server may be used by now, which does not have what a former one has answered.
        if answered and lineage == self._journal.lineage:
            return at
        logger.warning(
            "a commit was not answered, or by a former server: asking", extra={"action": "commit_unknown"}
        )
        if not await self._committed(backend, rows):
            raise JournalUnavailable("the connection was lost before the commit")
        return None

    async def _followed(self, done: asyncio.Future[T]) -> T:
        """Wait for a thread, and end its wait for a server that the node has left: that one may
        never answer.
        """
        try:
            while not done.done():
                await asyncio.wait({done}, timeout=LOOK_SECONDS)
                with self._lock:
                    for connection, lineage in self._busy.items():
                        if lineage not in (None, self._journal.lineage):
                            _cut(connection)
        finally:
            done.cancel()
        return done.result()

    async def held_up(self, type_id: int, entity: str) -> str:
        """As in `Together`."""
        backend = self._at_work.get((type_id, entity))
        return "" if backend is None else await self._journal.held_up(backend.pid)

    async def close(self) -> None:
        """End the threads and their connections. Transactions that still run there fail.

        Django lets no connection be closed in a thread with an event loop. So an idle one is closed
        in another thread; one at work is cut, and its own thread closes it.
        """
        with self._lock:
            self._closed = True
            resting, self._resting = list(self._resting), set()
            for connection in self._busy:
                _cut(connection)
        self.pool.shutdown(wait=False, cancel_futures=True)
        if resting:
            with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="sharding-also-end") as one:
                await asyncio.get_running_loop().run_in_executor(one, _close, resting)

    async def _committed(self, backend: Backend, rows: Sequence[EventRow]) -> bool:
        while True:
            try:
                return await self._journal.settle_of(backend, rows)
            except JournalUnavailable:
                await asyncio.sleep(RETRY_SECONDS)

    def _run(self, work: _Work) -> tuple[Backend, datetime | None, bool]:
        """Do the whole transaction.

        Return its server process, the time of the append, and whether the commit was answered.
        """
        connection = connections[self._alias]
        try:
            return self._transact(connection, work)
        finally:
            self._at_work.pop(work.entity, None)
            self._rest(connection)

    def _transact(
        self, connection: BaseDatabaseWrapper, work: _Work
    ) -> tuple[Backend, datetime | None, bool]:
        phase = Phase.BEGIN
        backend: Backend | None = None
        at: datetime | None = None
        replication = Replication()

        def committed() -> None:
            nonlocal phase
            phase = Phase.HOOKS

        try:
            raw = self._open(connection, work.lineage)
            with watched(raw, replication), transaction.atomic(using=self._alias, durable=True):
                backend = prepare_within(raw, self._name, self._lock_timeout_ms, work.lineage)
                self._at_work[work.entity] = backend
                transaction.on_commit(committed, using=self._alias)  # before any of the user's
                phase = Phase.FUNCTIONS
                for function in work.functions:
                    function()
                refuse_broken(connection, OF_PERSIST)
                phase = Phase.APPEND
                with connection.cursor() as cursor:
                    at = append_within(cursor.cursor, work.rows, work.message_changes)
                phase = Phase.COMMIT
        # A hook may raise what is no Exception, and all is committed then too.
        except BaseException as error:
            match phase:
                case Phase.BEGIN:
                    if isinstance(error, JournalUnavailable) or not isinstance(error, Exception):
                        raise
                    raise JournalUnavailable(" ".join(str(error).split())) from error
                case Phase.FUNCTIONS:
                    raise
                case Phase.HOOKS:
                    logger.error(
                        "a transaction.on_commit hook raised %s: all is committed, and hooks after it did not run"
                        " (on_commit(..., robust=True) lets them)", type(error).__qualname__,
                        exc_info=traceable(error), extra={"action": "hook_failed"},
                    )  # fmt: skip
                case Phase.COMMIT if not has_failed(error.__cause__):
                    # Only the commit's answer is missing. Django may have reconnected by now, so a
                    # working connection proves nothing.
                    connection.close()
                    return _known(backend), None, False
                case Phase.APPEND | Phase.COMMIT:
                    if isinstance(error, OperationalError | InterfaceError):
                        raise JournalUnavailable(" ".join(str(error).split())) from error
                    raise
                case _:
                    assert_never(phase)
        if replication.cancelled:
            connection.close()
            return _known(backend), None, False
        return _known(backend), at, True

    def _open(self, connection: BaseDatabaseWrapper, lineage: Lineage | None) -> Connection:
        connection.close_if_unusable_or_obsolete()
        connection.ensure_connection()
        with self._lock:
            if self._closed:
                raise JournalUnavailable("this node has ended")
            self._resting.discard(connection)
            self._busy[connection] = lineage
        raw = cast(Connection, connection.connection)
        notice_silence(raw)
        return raw

    def _rest(self, connection: BaseDatabaseWrapper) -> None:
        """Keep the connection as long as Django would, and no longer than this node."""
        connection.close_if_unusable_or_obsolete()
        with self._lock:
            self._busy.pop(connection, None)
            if not self._closed and connection.connection is not None:
                self._resting.add(connection)
                return
        connection.close()


def _cut(connection: BaseDatabaseWrapper) -> None:
    raw = connection.connection
    if raw is not None:  # Django connects again at this moment: then it has no work to do
        cut(cast(Connection, raw))


def _known(backend: Backend | None) -> Backend:
    if backend is None:
        raise RuntimeError("a transaction has no server process")
    return backend


def _close(resting: Sequence[BaseDatabaseWrapper]) -> None:
    for connection in resting:
        connection.inc_thread_sharing()
        connection.close()

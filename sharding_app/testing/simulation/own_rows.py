"""`persist(..., in_transaction=fn)` in a virtual node: a user's rows and events in one virtual
transaction.

The server executes the functions, then appends and commits. Hooks run in the client after the
commit's answer, as Django's do; the error of a hook is logged, and takes nothing back. A commit
whose answer was lost is settled. On a server of another lineage nothing is written, as
`adapters.postgres.within` makes sure on a real one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from sharding_app.adapters.memory.connection import Connection
from sharding_app.adapters.memory.journal import LOCK_SECONDS, MemoryJournal
from sharding_app.adapters.memory.journal_writes import JournalWrites
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.sessions import ConnectionLost, ServerError, Session
from sharding_app.adapters.memory.steps import Steps
from sharding_app.ports.deliveries import MessageChanges
from sharding_app.ports.journal import EventRow, JournalUnavailable

if TYPE_CHECKING:
    from sharding_app.testing.simulation.world import World

logger = logging.getLogger("sharding.journal")

RETRY_SECONDS = 0.1
OF_ALL_WRITES = frozenset({"53100", "25006"})


class Transaction:
    """The work of the functions of one commit."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.hooks: list[Callable[[], object]] = []


present: Transaction | None = None
"""The transaction in which a function runs now."""


def insert(token: str) -> None:
    """Write a row of the user's own."""
    if present is not None:
        present.rows.append(token)


def on_commit(hook: Callable[[], object]) -> None:
    if present is not None:
        present.hooks.append(hook)


class VirtualTogether:
    """`runtime.base.interfaces.Together` over the virtual server."""

    def __init__(self, world: World, client: str, journal: MemoryJournal, server: MemoryServer) -> None:
        """`journal`: that of the server."""
        self._world = world
        self._server = server
        self._client = client
        self._journal = journal

    async def __call__(
        self,
        rows: Sequence[EventRow],
        functions: Sequence[Callable[[], object]],
        changes: MessageChanges | None = None,
    ) -> datetime | None:
        done = Transaction()
        at: datetime | None = None
        server = self._server

        def commit() -> Steps[datetime | None]:
            global present
            present = done
            try:
                for function in functions:
                    function()
            finally:
                present = None
            found = yield from JournalWrites(server).append(rows, changes)
            for token in done.rows:
                self._world.witness.own_row(self._client, token, rows)
                server.journal.beside[token] = self._client
            return found

        connection = Connection(server, self._client, lock_seconds=LOCK_SECONDS)
        try:
            at = await connection.reach("append", self._journal.in_lineage(commit))
        except ConnectionLost as error:
            if not rows or not await self._settle(connection.doubtful, rows):
                raise JournalUnavailable(str(error)) from error
        except ServerError as error:
            if error.state in OF_ALL_WRITES:
                self._world.witness.statement_failed_at = self._world.now
                raise  # the first statement that writes is the user's
            raise JournalUnavailable(str(error)) from error
        finally:
            connection.close()
        for hook in done.hooks:
            self._call(hook)
        return at

    async def held_up(self, type_id: int, entity: str) -> str:
        """Return nothing: no server is asked."""
        return ""

    async def close(self) -> None:
        """Do nothing."""

    async def _settle(self, doubtful: Sequence[Session], rows: Sequence[EventRow]) -> bool:
        while True:
            try:
                return await self._journal.settle_of(doubtful, rows)
            except JournalUnavailable:
                await asyncio.sleep(RETRY_SECONDS)

    def _call(self, hook: Callable[[], object]) -> None:
        try:
            hook()
        except Exception:
            self._world.transition("hook", "committed", "raised")
            logger.exception("a transaction.on_commit hook raised: all is committed")

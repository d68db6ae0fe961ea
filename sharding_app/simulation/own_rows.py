"""`persist(..., also=fn)` in a virtual node: a user's own rows and an entity's events in one transaction of the virtual server.

The server executes functions, append and commit as one step. Hooks run in the client after the commit's answer, as
Django's do; what one raises is logged, and takes nothing back. A commit whose answer was lost is settled. On a server of
another lineage than the one that is lived in nothing is written, as `adapters.postgres.within` sees to on a real one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sharding_app.adapters.memory.connection import Connection
from sharding_app.adapters.memory.journal import MemoryJournal
from sharding_app.adapters.memory.sessions import ConnectionLost, ServerError, Session
from sharding_app.ports.journal import EventRow, JournalUnavailable

if TYPE_CHECKING:
    from sharding_app.simulation.world import World

logger = logging.getLogger("sharding.journal")

RETRY_SECONDS = 0.1
OF_ALL_WRITES = frozenset({"53100", "25006"})


class Transaction:
    """What the functions of one commit do."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.hooks: list[Callable[[], object]] = []


present: Transaction | None = None
"""The one in which a function runs now."""


def insert(token: str) -> None:
    """Write a row of the user's own."""
    if present is not None:
        present.rows.append(token)


def on_commit(hook: Callable[[], object]) -> None:
    if present is not None:
        present.hooks.append(hook)


class VirtualTogether:
    """`runtime.owner.Together` over the virtual server."""

    def __init__(self, world: World, client: str, journal: MemoryJournal) -> None:
        self._world = world
        self._client = client
        self._journal = journal

    async def __call__(self, rows: Sequence[EventRow], functions: Sequence[Callable[[], object]]) -> None:
        done = Transaction()

        def commit() -> None:
            global present
            present = done
            try:
                for function in functions:
                    function()
            finally:
                present = None
            server = self._world.server
            server.journal.append(rows, server.now())
            for token in done.rows:
                self._world.witness.own_row(self._client, token, rows)
                server.journal.beside[token] = self._client

        connection = Connection(self._world.server, self._client)
        try:
            await connection.reach("append", self._journal.in_lineage(commit))
        except ConnectionLost as error:
            if not rows or not await self._settle(connection.doubtful, rows):
                raise JournalUnavailable(str(error)) from error
        except ServerError as error:
            if error.state in OF_ALL_WRITES:
                raise  # the first statement that writes is the user's
            raise JournalUnavailable(str(error)) from error
        finally:
            connection.close()
        for hook in done.hooks:
            self._call(hook)

    async def close(self) -> None:
        """Nothing is held."""

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

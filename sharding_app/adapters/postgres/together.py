"""Questions that wait for the same line: one statement asks for all that have come by its turn.

On a busy machine each statement takes its time whatever it reads. With one for each question, the
questions would become ever more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

import psycopg

from sharding_app.adapters.postgres.connection import Connection, Line

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class _Group(Generic[K, R]):
    """Callers of whom the first one waits for the line, and the others for its answer."""

    def __init__(self, line: Line) -> None:
        self.lineage = line.wanted
        "A caller that goes on in another lineage may not get the answer."
        self.keys: dict[K, None] = {}
        self.answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()


class Together(Generic[K, R]):
    def __init__(self, line: Line, ask: Callable[[Connection, Sequence[K]], Awaitable[R]]) -> None:
        self._line = line
        self._ask = ask
        self._waiting: _Group[K, R] | None = None

    async def find(self, key: K) -> R:
        """Return the answer to a question and to those beside it. Raises as `Line.run` does."""
        group = self._waiting
        if group is not None and group.lineage == self._line.wanted:
            group.keys[key] = None
            answer = await asyncio.shield(group.answer)
            if group.lineage != self._line.wanted:
                raise psycopg.OperationalError("the node has gone on in another lineage")
            return answer
        group = self._waiting = _Group(self._line)
        group.keys[key] = None
        try:
            answer = await self._line.run(lambda connection: self._answer(connection, group), first=True)
        except BaseException as error:
            self._begins(group)
            gone = psycopg.OperationalError("the caller that was to ask for all has gone")
            group.answer.set_exception(error if isinstance(error, Exception) else gone)
            group.answer.exception()  # there may be no other caller
            raise
        group.answer.set_result(answer)
        return answer

    async def _answer(self, connection: Connection, group: _Group[K, R]) -> R:
        self._begins(group)
        return await self._ask(connection, list(group.keys))

    def _begins(self, group: _Group[K, R]) -> None:
        """Take no more questions: a later one may need newer rows."""
        if self._waiting is group:
            self._waiting = None

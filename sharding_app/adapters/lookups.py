"""Look-ups of the outcomes of commands by their ids: those that wait at the same time share one
query.

Ids given by callers are asked for apart from ids made by this package: the server finds the former
by an index, and the latter among their entity's last events. After a query that failed or was slow
by its size, half as many ids are asked for at a time, down to one. After a failover all commands
under way are retried at once, and an entity goes on only when its command's outcome is known. With
one query each, through one connection, every entity would wait for all the others at each of its
commands.

The server looks back from the moment in which it executes a query. That may be as late as the
answer, if the query waits for a connection or in a frozen server. So a query has spare time: twice
the time that the last one took. A look-up that finds nothing, and whose query took longer than
that, is asked for again. The time that it waits here does not count: its age grows until it is
sent.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from sharding_app.ports.journal import Outcome
from sharding_app.protocol.command_ids import is_ours
from sharding_app.protocol.recovery_limits import Pace

AT_ONCE = 500
SPARE_SECONDS = 1.0
"""Least time that a query may take and still prove that there is nothing."""
CLOCK_DRIFT = 1.1
"""Clock rates of processes and server are assumed to differ by less than a tenth."""


class Lookup(NamedTuple):
    type_id: int
    entity: str
    command_id: str
    age_ms: int
    asked_at: float
    answer: "asyncio.Future[Outcome | None]"

    def sent(self, now: float, spare: float) -> "Lookup":
        """Return it with the age at which it is sent, and spare time."""
        more = (now - self.asked_at + spare) * CLOCK_DRIFT
        return self._replace(age_ms=self.age_ms + int(more * 1000))


Query = Callable[[bool, Sequence[Lookup]], Awaitable[Sequence[Outcome | None]]]


class Lookups:
    def __init__(self, query: Query, now: Callable[[], float] | None = None) -> None:
        """`query`: asks the server, given whether the ids were made by this package. `now`: a clock
        that goes on while the machine sleeps; None: the loop's.
        """
        self._query = query
        self._clock = now
        self._paces = {ours: Pace(AT_ONCE) for ours in (False, True)}
        self._spare = SPARE_SECONDS
        self._waiting: list[Lookup] = []
        self._asking: asyncio.Task[None] | None = None

    async def find(self, type_id: int, entity: str, command_id: str, age_ms: int) -> Outcome | None:
        """Return the command's outcome. Raises JournalUnavailable."""
        loop = asyncio.get_running_loop()
        lookup = Lookup(type_id, entity, command_id, age_ms, self._now(), loop.create_future())
        self._waiting.append(lookup)
        if self._asking is None:
            self._asking = loop.create_task(self._ask(), name="sharding look-ups")
        return await lookup.answer

    def _now(self) -> float:
        return asyncio.get_running_loop().time() if self._clock is None else self._clock()

    async def _ask(self) -> None:
        batch: list[Lookup] = []
        try:
            while batch := self._next():
                ours = is_ours(batch[0].command_id)
                pace, began, spare = self._paces[ours], self._now(), self._spare
                try:
                    found = await self._query(ours, [each.sent(began, spare) for each in batch])
                    took = self._now() - began
                    pace.took(took)
                    # One quick query among slow ones is no reason to ask most look-ups again.
                    self._spare = max(SPARE_SECONDS, 2 * took, spare * 3 / 4)
                    self._tell(batch, found, in_time=took * CLOCK_DRIFT <= spare)
                except Exception as error:  # noqa: BLE001  (any error has to reach the waiting callers)
                    pace.failed()
                    for each in batch:
                        if not each.answer.done():
                            each.answer.set_exception(error)
        finally:
            self._asking = None
            for each in (*batch, *self._waiting):
                each.answer.cancel()
            self._waiting.clear()

    def _next(self) -> list[Lookup]:
        """Take the look-ups of the next query, without those whose callers have gone."""
        waiting = [each for each in self._waiting if not each.answer.done()]
        if not waiting:
            self._waiting = []
            return []
        ours = is_ours(waiting[0].command_id)
        batch = [each for each in waiting if is_ours(each.command_id) is ours][: self._paces[ours].size]
        asked = set(map(id, batch))
        self._waiting = [each for each in waiting if id(each) not in asked]
        return batch

    def _tell(self, batch: Sequence[Lookup], found: Sequence[Outcome | None], *, in_time: bool) -> None:
        for each, outcome in zip(batch, found, strict=True):
            if each.answer.done():
                continue  # its caller has gone
            if outcome is None and not in_time:
                self._waiting.append(each)
            else:
                each.answer.set_result(outcome)

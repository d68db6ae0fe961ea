"""Look-ups of the outcomes of commands by their ids: those that wait at the same time share one
query.

Ids given by callers are asked for apart from ids made by this package: the server finds the former
by an index, and the latter among their entity's last events. After a query that failed or was slow
by its size, half as many ids are asked for at a time, down to one. After a failover all commands
under way are retried at once, and an entity goes on only when its command's outcome is known. With
one query each, through one connection, every entity would wait for all the others at each of its
commands.

The server looks back from the moment in which it executes a query. That may be as late as the
answer, if the query waits for a connection or in a frozen server. So a look-up has spare time. If
it finds nothing, and its query took longer than that, it is asked for again with more of it. The
others get as much as the last query of their kind would have needed twice, within limits. The time
that a look-up waits here does not count: its age grows until it is sent.
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
MOST_SPARE_SECONDS = 10.0
"""Most of it for a look-up that was not late itself: the process may have slept during the last
query.
"""
CLOCK_DRIFT = 1.1
"""Clock rates of processes and server are assumed to differ by less than a tenth."""


class Lookup(NamedTuple):
    type_id: int
    entity: str
    command_id: str
    age_ms: int
    asked_at: float
    answer: "asyncio.Future[Outcome | None]"
    spare: float = 0.0

    def sent(self, now: float, spare: float) -> "Lookup":
        """Return it as it is sent: with its spare time, and the age from which it looks back."""
        spare = max(spare, self.spare)
        more = (now - self.asked_at + spare) * CLOCK_DRIFT
        return self._replace(age_ms=self.age_ms + int(more * 1000), spare=spare)


Query = Callable[[bool, Sequence[Lookup]], Awaitable[Sequence[Outcome | None]]]


class Lookups:
    def __init__(self, query: Query, now: Callable[[], float] | None = None) -> None:
        """`query`: asks the server, given whether the ids were made by this package. `now`: a clock
        that goes on while the machine sleeps; None: the loop's.
        """
        self._query = query
        self._clock = now
        self._paces = {ours: Pace(AT_ONCE) for ours in (False, True)}
        self._spare = dict.fromkeys((False, True), SPARE_SECONDS)
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
                pace, began, spare = self._paces[ours], self._now(), self._spare[ours]
                sent = [each.sent(began, spare) for each in batch]
                try:
                    found = await self._query(ours, sent)
                    took = self._now() - began
                    pace.took(took)
                    # One quick query among slow ones is no reason to ask most look-ups again.
                    wanted = max(2 * took, spare * 3 / 4)
                    self._spare[ours] = min(max(wanted, SPARE_SECONDS), MOST_SPARE_SECONDS)
                    self._tell(batch, sent, found, took)
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

    def _tell(
        self,
        batch: Sequence[Lookup],
        sent: Sequence[Lookup],
        found: Sequence[Outcome | None],
        took: float,
    ) -> None:
        for each, as_sent, outcome in zip(batch, sent, found, strict=True):
            if each.answer.done():
                continue  # its caller has gone
            if outcome is None and took * CLOCK_DRIFT > as_sent.spare:
                self._waiting.append(each._replace(spare=2 * took))
            else:
                each.answer.set_result(outcome)

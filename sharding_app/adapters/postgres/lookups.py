"""What became of retried commands: those that ask at the same time are asked in one query.

After a failover whatever was under way is retried at once, and an entity goes on only when its command's outcome is
known. One query each, through one connection, would have every entity wait for all the others at each of its commands.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from sharding_app.ports.journal import Outcome

AT_ONCE = 500

Rows = Callable[[str, dict[str, Any]], Awaitable[Sequence[tuple[Any, ...]]]]


class _Lookup(NamedTuple):
    type_id: int
    entity: str
    command_id: str
    age_ms: int
    answer: "asyncio.Future[Outcome | None]"


class Lookups:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._waiting: list[_Lookup] = []
        self._asking: asyncio.Task[None] | None = None

    async def find(self, type_id: int, entity: str, command_id: str, age_ms: int) -> Outcome | None:
        """Raises JournalUnavailable."""
        loop = asyncio.get_running_loop()
        lookup = _Lookup(type_id, entity, command_id, age_ms, loop.create_future())
        self._waiting.append(lookup)
        if self._asking is None:
            self._asking = loop.create_task(self._ask(), name="sharding look-ups")
        return await lookup.answer

    async def _ask(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:AT_ONCE], self._waiting[AT_ONCE:]
                try:
                    found = await self._found(batch)
                except Exception as error:  # noqa: BLE001  (whoever waits has to learn of it, whatever it is)
                    for each in batch:
                        if not each.answer.done():
                            each.answer.set_exception(error)
                else:
                    for place, each in enumerate(batch, 1):
                        if not each.answer.done():
                            each.answer.set_result(found.get(place))
        finally:
            self._asking = None
            for each in self._waiting:
                each.answer.cancel()
            self._waiting.clear()

    async def _found(self, batch: Sequence[_Lookup]) -> dict[int, Outcome]:
        rows = await self._rows(
            "outcome",
            {
                "types": [each.type_id for each in batch],
                "entities": [each.entity for each in batch],
                "command_ids": [each.command_id for each in batch],
                "ages": [each.age_ms for each in batch],
            },
        )
        return {
            place: Outcome(seq, command or "", reply, partial) for place, seq, command, reply, partial in rows
        }

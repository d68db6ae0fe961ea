"""Marks of messages whose rows lie in other journals are removed once the rows are gone.

Contract: `protocol.delivery.foreign` decides. Only marks of shards that are at home here are
removed, at the epochs of these homes. While a journal of the cluster does not answer, marks stay:
the row of a message may have moved there with its shard.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

from sharding_app.ports.journal import Journal, JournalUnavailable, ShardsFenced
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.delivery.foreign import (
    MarkedShards,
    Place,
    Search,
    TakenMark,
)
from sharding_app.protocol.ids import Epoch, ShardId
from sharding_app.runtime.execution.execution import Execution
from sharding_app.runtime.execution.foreign import ForeignMessages
from sharding_app.runtime.journal.commits import ResidentShard

LOOK_SECONDS = 5.0
SHARDS_AT_ONCE = 200
MARKS_AT_ONCE = 1000


class MarkingHost(Protocol):
    """The host of a type, as the removal of its marks needs it."""

    execution: Execution
    shards: dict[ShardId, ResidentShard]


class Marks:
    """Those in one journal: `others` returns a journal by its name, `names` those in which shards
    lie. It raises StoreUnavailable.
    """

    def __init__(
        self,
        journal: Journal,
        hosts: Mapping[str, MarkingHost],
        others: Callable[[str], Journal],
        names: Callable[[], Awaitable[Collection[str]]],
        may_handle: Callable[[], bool],
    ) -> None:
        self.removed = 0
        self._journal = journal
        self._hosts = hosts
        self._others = others
        self._names = names
        self._may_handle = may_handle
        self._shards = MarkedShards()

    def follow(self, type_id: int, foreign: ForeignMessages) -> None:
        """Take in which shards of a type may make marks."""
        foreign.took = lambda shard: self._shards.took((type_id, shard))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._may_handle():
                await self.look()

    async def look(self) -> None:
        """Remove the marks that may go, of all shards that may have some."""
        homes: dict[Place, Epoch] = {}
        busy: list[Place] = []
        for type_id, host, foreign in self._marking():
            homes |= {(type_id, number): shard.epoch for number, shard in host.shards.items()}
            busy += [(type_id, number) for number in foreign.shards_in_hand()]
        places = self._shards.begin(homes, busy)
        for first in range(0, len(places), SHARDS_AT_ONCE):
            try:
                await self._look_at(places[first : first + SHARDS_AT_ONCE], homes)
            except (JournalUnavailable, StoreUnavailable):
                continue  # of these shards

    async def _look_at(self, places: Sequence[Place], homes: Mapping[Place, Epoch]) -> None:
        marked: set[Place] = set()
        after = ""
        while True:
            page = await self._journal.marks(places, after, MARKS_AT_ONCE)
            marked.update((each.type_id, each.shard) for each in page)
            await self._remove(page, homes)
            if len(page) < MARKS_AT_ONCE:
                break
            after = page[-1].id
        self._shards.end(places, homes, marked)

    async def _remove(self, page: Sequence[TakenMark], homes: Mapping[Place, Epoch]) -> None:
        search = Search(page)
        for journal, messages in search.named().items():
            await self._ask(search, journal, messages)
        for _ in range(2):
            # By now all that has left the journals above lies in one of these.
            for journal in sorted(await self._names() if search.left() else ()):
                await self._ask(search, journal, search.left())
        by_type = {type_id: foreign for type_id, _, foreign in self._marking()}
        going = search.spent(lambda mark: by_type[mark.type_id].is_in_hand(mark.id))
        for (type_id, shard), messages in going.items():
            try:
                await self._journal.unmark(messages, (type_id, shard, homes[type_id, shard]))
            except ShardsFenced:
                continue  # its next home removes them
            self.removed += len(messages)

    async def _ask(self, search: Search, journal: str, messages: list[str]) -> None:
        if not messages:
            return
        try:
            search.answer(messages, await self._others(journal).standing(messages, secured=True))
        except JournalUnavailable:
            search.answer(messages, None)  # their marks stay

    def _marking(self) -> list[tuple[int, MarkingHost, ForeignMessages]]:
        return [
            (host.execution.type_id, host, host.execution.foreign)
            for host in self._hosts.values()
            if host.execution.foreign is not None
        ]

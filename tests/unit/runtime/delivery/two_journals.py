"""A cluster in memory with two journals: the rows of odd shards lie in the second one.

The second server sees the homes of the first one as its own fence: so nothing has to be taken
there.
"""

import dataclasses
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any

from sharding_app.adapters.memory import MemoryJournal, MemoryServer
from sharding_app.adapters.memory.journal_rows import JournalRows
from sharding_app.ports.deliveries import Claim, MessageChanges, MessageRow, Page, ShardKey, Taking, TimerKey
from sharding_app.ports.journal import (
    EVERYTHING,
    Bounds,
    EventRow,
    History,
    Journal,
    RowRefused,
    Snapshot,
)
from sharding_app.protocol.delivery.foreign import Standing, TakenMark
from sharding_app.protocol.ids import Epoch, ShardId, shard_of
from sharding_app.runtime.base.config import NodePorts
from sharding_app.testing.cluster import MemoryCluster

SHARDS = 16
SECOND = "journal_b"


def lies_in(shard: ShardId) -> str:
    return SECOND if shard % 2 else ""


def ids(journal: str) -> list[str]:
    """Return ids of entities whose rows lie in a journal."""
    return [str(number) for number in range(100) if lies_in(shard_of(str(number), SHARDS)) == journal]


class TwoJournals:
    """`ports.journal.Journal`, of which one part lies elsewhere: as much as these tests need."""

    several = True

    def __init__(self, first: Journal, second: Journal) -> None:
        self.first = first
        self.of = {"": first, SECOND: second}
        self.asked: list[tuple[str, str, object]] = []
        "What was asked of rows and marks: the method, the journal, and about what."
        self.before: Callable[[str, str], Any] | None = None
        "Called before such a question, and waited for."

    def __getattr__(self, name: str) -> Any:
        return getattr(self.first, name)

    def lies_in(self, type_id: int, shard: ShardId) -> str:
        return lies_in(shard)

    async def _asked(self, method: str, journal: str, about: object) -> Journal:
        self.asked.append((method, journal, about))
        if self.before is not None:
            await self.before(method, journal)
        return self.of[journal]

    def _at(self, shard: ShardId) -> Journal:
        return self.of[lies_in(shard)]

    def _with(self, entity: str) -> Journal:
        return self._at(shard_of(entity, SHARDS))

    async def append(
        self, rows: Sequence[EventRow], changes: MessageChanges | None = None, *, on: int = 0
    ) -> datetime | None:
        if len({lies_in(row.shard) for row in rows}) > 1:
            raise RowRefused("rows of two journals: the writer tries each commit alone")
        return await self._at(rows[0].shard).append(rows, changes, on=on)

    async def settle(self, rows: Sequence[EventRow], *, on: int = 0) -> bool:
        return await self._at(rows[0].shard).settle(rows, on=on)

    async def read(
        self, type_id: int, entities: Sequence[str], bounds: Bounds = EVERYTHING
    ) -> dict[str, History]:
        found: dict[str, History] = {}
        for journal in self.of.values():
            mine = [each for each in entities if self._with(each) is journal]
            if mine:
                found |= await journal.read(type_id, mine, bounds)
        return found

    async def read_from(self, type_id: int, entity: str, after: int, bounds: Bounds = EVERYTHING) -> History:
        return await self._with(entity).read_from(type_id, entity, after, bounds)

    async def save_snapshots(self, snapshots: Sequence[Snapshot]) -> None:
        for each in snapshots:
            await self._at(each.shard).save_snapshots([each])

    async def stage(self, sends: Sequence[MessageRow], cancels: Sequence[TimerKey] = ()) -> datetime:
        entity = sends[0].entity if sends else cancels[0][1]
        return await self._with(entity).stage(sends, cancels)

    async def due(
        self,
        shards: Sequence[ShardKey],
        horizon_seconds: float,
        limit: int,
        held: Collection[str] = (),
        alone: Collection[str] = (),
    ) -> Page:
        """Read the rows of the second journal there, and those from outside in the first."""
        page = await self.first.due(shards, horizon_seconds, limit, held, alone)
        far = [each for each in shards if lies_in(each[1])]
        other = await self.of[SECOND].due(far, horizon_seconds, limit, held, alone)
        return Page(
            page.now,
            [*page.messages, *(each._replace(journal=SECOND) for each in other.messages)],
            page.more | other.more,
            {**page.next_due, **other.next_due},
            [*(page.aside or ()), *(other.aside or ())],
        )

    async def discard(self, takes: Sequence[Taking], journal: str = "") -> list[str]:
        asked = await self._asked("discard", journal, [each.id for each in takes])
        return await asked.discard(takes, journal)

    async def set_aside(
        self, message: str, failures: int, delay_seconds: float, error: str, claim: Claim, journal: str = ""
    ) -> bool:
        asked = await self._asked("set_aside", journal, message)
        return await asked.set_aside(message, failures, delay_seconds, error, claim)

    async def park(self, message: str, error: str, claim: Claim, journal: str = "") -> bool:
        return await (await self._asked("park", journal, message)).park(message, error, claim)

    async def turn(
        self, message: str, new: str, command: str, args: bytes, claim: Claim, journal: str = ""
    ) -> bool:
        asked = await self._asked("turn", journal, message)
        return await asked.turn(message, new, command, args, claim)

    async def standing(
        self, journal: str, messages: Collection[str], *, secured: bool = False
    ) -> dict[str, Standing]:
        asked = await self._asked("standing", journal, sorted(messages))
        return await asked.standing(journal, messages, secured=secured)

    async def marked(self, type_id: int, shard: ShardId, messages: Collection[str]) -> dict[str, bool]:
        asked = await self._asked("marked", lies_in(shard), sorted(messages))
        return await asked.marked(type_id, shard, messages)

    async def marks(self, shards: Sequence[ShardKey], after: str, limit: int) -> list[TakenMark]:
        found: list[TakenMark] = []
        for name, journal in self.of.items():
            found += await journal.marks([each for each in shards if lies_in(each[1]) == name], after, limit)
        return sorted(found)[:limit]

    async def unmark(self, messages: Collection[str], claim: Claim) -> None:
        await (await self._asked("unmark", lies_in(claim[1]), sorted(messages))).unmark(messages, claim)

    async def erase(self, type_id: int, shard: ShardId, epoch: Epoch, entity: str, **rest: Any) -> Any:
        return await self._at(shard).erase(type_id, shard, epoch, entity, **rest)


class TwoJournalCluster(MemoryCluster):
    """A `MemoryCluster` of that kind; `second` is the server of the second journal."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        first = self.server
        self.second = MemoryServer(now=first.now, steady=first.steady, faults=first.faults)
        self.second.cluster = first.cluster
        self.second.journal = JournalRows(first.cluster.epochs)
        self.servers = {"": self.server, SECOND: self.second}
        self.journals: dict[str, TwoJournals] = {}
        "Of each incarnation."

    def _node_ports(self, incarnation: str) -> NodePorts:
        ports = super()._node_ports(incarnation)
        made = TwoJournals(ports.journal, MemoryJournal(self.second, incarnation))
        self.journals[incarnation] = made
        return dataclasses.replace(ports, journal=made)

    async def kill_node(self, name: str) -> None:
        incarnation = self.nodes[name].incarnation
        await super().kill_node(name)
        self.second.client_died(incarnation)

    def rows(self, journal: str) -> list[str]:
        """Return the commands of the messages that wait in a journal."""
        return [each.row.command for each in self.servers[journal].messages.rows.values()]

    def marks(self, journal: str) -> list[str]:
        return sorted(self.servers[journal].messages.marks)

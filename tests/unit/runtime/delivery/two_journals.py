"""A cluster in memory with two journals, which notes what is asked of rows and marks."""

import dataclasses
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from sharding_app.ports.deliveries import Claim, Taking
from sharding_app.ports.journal import Journal
from sharding_app.protocol.delivery.foreign import Standing
from sharding_app.protocol.ids import shard_of
from sharding_app.runtime.base.config import NodePorts
from tests.unit.runtime.two_journals import SECOND, SHARDS, TwoJournals, entity_type_name


class AskedJournal:
    """One of the journals of a node: a journal in memory behind a note of what is asked."""

    def __init__(self, name: str, journal: Journal, cluster: "AskedCluster") -> None:
        self.name = name
        self._journal = journal
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def _asked(self, method: str) -> None:
        self._cluster.asked.append((method, self.name))
        if self._cluster.before is not None:
            await self._cluster.before(method, self.name)

    async def discard(self, takes: Sequence[Taking]) -> list[str]:
        await self._asked("discard")
        return await self._journal.discard(takes)

    async def park(self, message: str, error: str, claim: Claim) -> bool:
        await self._asked("park")
        return await self._journal.park(message, error, claim)

    async def standing(self, messages: Collection[str], *, secured: bool = False) -> dict[str, Standing]:
        await self._asked("standing")
        return await self._journal.standing(messages, secured=secured)

    async def marked(self, messages: Collection[str]) -> dict[str, bool]:
        await self._asked("marked")
        return await self._journal.marked(messages)

    async def marks(self, shards: Sequence[tuple[int, int]], after: str, limit: int) -> Any:
        await self._asked("marks")
        return await self._journal.marks(shards, after, limit)

    async def unmark(self, messages: Collection[str], claim: Claim) -> None:
        await self._asked("unmark")
        await self._journal.unmark(messages, claim)


class AskedCluster(TwoJournals):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.asked: list[tuple[str, str]] = []
        "Methods that were asked, and the names of the journals."
        self.before: Callable[[str, str], Awaitable[None]] | None = None
        "Waited for before such a question is asked."
        self.servers = {"": self.server, SECOND: self.second}

    def _node_ports(self, incarnation: str) -> NodePorts:
        ports = super()._node_ports(incarnation)
        first: Any = AskedJournal("", ports.journal, self)
        second: Any = AskedJournal(SECOND, ports.journals[SECOND], self)
        return dataclasses.replace(ports, journal=first, journals={SECOND: second})

    def home_of(self, entity: type[Any], entity_id: object) -> str:
        shard = shard_of(str(entity_id), SHARDS)
        for name, node in self.nodes.items():
            if any(shard in host.shards for host in node.hosting.hosts_of(entity_type_name(entity))):
                return name
        return ""

    def rows(self, journal: str) -> list[str]:
        """Return the commands of the messages that wait in a journal."""
        return [each.row.command for each in self.servers[journal].messages.rows.values()]

    def marks(self, journal: str) -> list[str]:
        return sorted(self.servers[journal].messages.marks)

    @property
    def pending(self) -> int:
        """Number of messages in memory of all nodes."""
        return sum(part.deliverer.pending for node in self.nodes.values() for part in node.hosting.parts)

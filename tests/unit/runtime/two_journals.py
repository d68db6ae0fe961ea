"""A cluster in memory whose shards lie in two journals, on two virtual servers."""

from typing import Any

from sharding_app import EventSourced, applies, command, event, query
from sharding_app.adapters.memory import MemoryJournal, MemoryServer, Plan
from sharding_app.protocol.ids import Incarnation, shard_of
from sharding_app.protocol.journals import journal_of
from sharding_app.runtime.base.config import NodePorts
from sharding_app.testing.cluster import MemoryCluster
from sharding_app.testing.faults import DeadProcesses

SECOND = "second"
WEIGHTS = {"": 1.0, SECOND: 1.0}
SHARDS = 1000


@event
class Paid:
    cents: int


class Purse(EventSourced, name="journals.Purse"):
    total: int = 0

    @command
    def pay(self, cents: int) -> int:
        self.persist(Paid(cents))
        return self.total

    @query
    def sum(self) -> int:
        return self.total

    @applies(Paid)
    def on_paid(self, happened: Paid) -> None:
        self.total += happened.cents


class CutOff(DeadProcesses):
    """Some processes do not reach a server. Those that were killed reach none."""

    def __init__(self, dead: DeadProcesses) -> None:
        super().__init__()
        self._dead = dead

    def plan(self, client: str, kind: str) -> Plan | None:
        return super().plan(client, kind) or self._dead.plan(client, kind)


class TwoJournals(MemoryCluster):
    """`second`: the server of the journal of that name. `cut_off_from_second`: incarnations that do
    not reach it.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.server.cluster.journal_weights = WEIGHTS
        faults = CutOff(self._faults)
        self.cut_off_from_second = faults.killed
        self.second = MemoryServer(now=self.loop.time, steady=self.loop.time, faults=faults)

    def _node_ports(self, incarnation: Incarnation) -> NodePorts:
        ports = super()._node_ports(incarnation)
        ports.journals = {SECOND: MemoryJournal(self.second, incarnation)}
        return ports

    async def kill_node(self, name: str) -> None:
        self.second.client_died(self._node(name).incarnation)
        await super().kill_node(name)

    def server_of(self, entity: type[Any], entity_id: str) -> MemoryServer:
        """Return the server on which the events of an entity belong."""
        return self.second if lies_in(entity_type_name(entity), entity_id) else self.server


def entity_type_name(entity: type[Any]) -> str:
    return str(entity._sharding_type.name)


def lies_in(type_name: str, entity_id: str) -> str:
    return journal_of(type_name, shard_of(entity_id, SHARDS), WEIGHTS)


def some(journal: str, many: int, type_name: str = "journals.Purse") -> list[str]:
    """Return ids of entities whose shards lie in that journal, all in shards of their own."""
    found: dict[int, str] = {}
    for number in range(1000):
        entity_id = f"e{number}"
        if lies_in(type_name, entity_id) == journal:
            found.setdefault(shard_of(entity_id, SHARDS), entity_id)
    return list(found.values())[:many]

"""A cluster whose nodes' lives are written down, in the order in which things happen."""

from typing import Any

from sharding_app.adapters.memory import MemoryStore
from sharding_app.entities.entity_type import EntityType
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId, Term
from sharding_app.runtime.base.config import NodePorts
from sharding_app.runtime.base.interfaces import NoListener
from sharding_app.testing.cluster import MemoryCluster

Log = list[tuple[str, str, ShardId]]
"""The node's name, what happened, and to which shard of it (-1: to the node itself)."""


class RecordedCluster(MemoryCluster):
    def __init__(self, log: Log, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._log = log

    def _node_ports(self, incarnation: Incarnation) -> NodePorts:
        ports = super()._node_ports(incarnation)
        name, log = incarnation.split("-")[1], self._log

        class Store(MemoryStore):
            async def leave(self, incarnation: Incarnation) -> None:
                log.append((name, "its row goes", -1))
                await super().leave(incarnation)

        ports.store = Store(self.server, incarnation)
        ports.listener = Recorder(incarnation, name, log)
        return ports


class Recorder(NoListener):
    def __init__(self, incarnation: Incarnation, name: str, log: Log) -> None:
        self._incarnation = incarnation
        self._name = name
        self._log = log

    def node_down(self, incarnation: Incarnation, name: str) -> None:
        if incarnation == self._incarnation:
            self._log.append((self._name, "is down", -1))

    def coordinator_changed(self, term: Term, incarnation: Incarnation | None) -> None:
        if incarnation == self._incarnation:
            self._log.append((self._name, "coordinates", -1))

    def shard_started(self, entity_type: EntityType, shard: ShardId, epoch: Epoch) -> None:
        self._log.append((self._name, "started", shard))

    def shard_stopped(self, entity_type: EntityType, shard: ShardId, epoch: Epoch) -> None:
        self._log.append((self._name, "stopped", shard))

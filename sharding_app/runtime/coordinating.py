"""A node's turns as the coordinator: from its election to its standing down.

The work itself is the shell's (`runtime.coordinator`); `node.coordinator` is that shell while there is one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sharding_app.core.allocation import ShardAllocationStrategy
from sharding_app.core.ids import Incarnation, Term
from sharding_app.core.messages import AnyMessage, NodeGone
from sharding_app.core.oldest import SINGLETON, OldestAllocation
from sharding_app.core.records import Decision
from sharding_app.runtime.coordinator import CoordinatorShell

if TYPE_CHECKING:
    from sharding_app.runtime.node import Node

_OLDEST = OldestAllocation()


class Coordinating:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._task: asyncio.Task[None] | None = None

    def begin(self, term: Term) -> None:
        """This node is elected."""
        self.stop()
        node = self._node
        ports, config = node.node_ports, node.config
        node.coordinator = CoordinatorShell(
            node.incarnation, term, ports.store, ports.clock, self._put, node.try_send_all, config.coordinator,
            self._strategy_of, config.lease_ttl_seconds, self._decided, config.ping_interval_seconds,
            node.valid_since + config.lease_ttl_seconds,
        )  # fmt: skip
        node.homes.coordinator_told(node.incarnation, term)
        self._task = node.run(self._run(node.coordinator), "coordinator")

    def stop(self) -> None:
        self._node.coordinator = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def look_at(self, *suspects: Incarnation) -> None:
        """These processes may be gone: if one coordinates, its lock may be free."""
        node = self._node
        if node.homes.coordinator in suspects and node.coordinator is None:
            node.lifeline.look_now()

    async def _run(self, shell: CoordinatorShell) -> None:
        await shell.run()
        node = self._node
        if node.coordinator is shell:
            node.coordinator = None
            # Standing down deposes, which cancels what coordinates: not this, or we would never stand again.
            self._task = None
            await node.lifeline.resign()
            node.lifeline.set_candidate(node.config.candidate and node.state == "up")

    def _put(self, target: Incarnation, message: AnyMessage) -> bool:
        """Tell one process. A link that has just been made ends before a second frame goes out: who is buried and lives
        would not hear of it."""
        if isinstance(message, NodeGone) and message.incarnation == target:
            self._node.links.say_now(target, message)
        return self._node.try_send(target, message)

    def _strategy_of(self, type_name: str) -> ShardAllocationStrategy:
        if type_name.startswith(SINGLETON):
            return _OLDEST
        known = self._node.types.get(type_name)
        own = None if known is None else known.settings.allocation
        return self._node.config.strategy_of(type_name) if own is None else own

    def _decided(self, decision: Decision) -> None:
        """The coordinator here sees others come and go."""
        ports = self._node.node_ports
        ports.on_decision(decision)
        if decision.subject != self._node.incarnation:
            if decision.action == "node_up":
                ports.listener.node_up(decision.subject, decision.detail)
            elif decision.action in ("node_dead", "node_left"):
                ports.listener.node_down(decision.subject, decision.detail)

"""A node's terms as the coordinator, each from election to resignation.

The shell (`runtime.coordinator_shell`) does the work. `node.coordinator` is that shell during a
term.
"""

from __future__ import annotations

import asyncio

from sharding_app.protocol.allocation.singleton import SINGLETON, OldestAllocation
from sharding_app.protocol.allocation.strategy import ShardAllocationStrategy
from sharding_app.protocol.ids import Incarnation, Term
from sharding_app.protocol.messages import AnyMessage, NodeGone
from sharding_app.protocol.records import Decision
from sharding_app.runtime.coordinator_shell import CoordinatorShell
from sharding_app.runtime.node.interfaces import NodeParts

_OLDEST = OldestAllocation()


class CoordinatorTerms:
    def __init__(self, node: NodeParts) -> None:
        self._node = node
        self._task: asyncio.Task[None] | None = None
        self._stood_down = False

    def begin(self, term: Term) -> None:
        """Begin a term: this node is elected."""
        self.stop()
        node = self._node
        ports, config = node.node_ports, node.config
        node.coordinator = CoordinatorShell(
            node.incarnation, term, ports.store, ports.clock, self._put, node.try_send_all, config.coordinator,
            self._strategy_of, config.lease_ttl_seconds, self._decided, config.ping_interval_seconds,
            node.valid_since + config.lease_ttl_seconds, ports.journals,
        )  # fmt: skip
        node.locator.coordinator_told(node.incarnation, term)
        self._task = node.run(self._run(node.coordinator), "coordinator")

    def stop(self) -> None:
        self._node.coordinator = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def look_at(self, *suspects: Incarnation) -> None:
        """Look at the coordinator's lock at once if the coordinator is one of these suspects."""
        node = self._node
        if node.locator.coordinator in suspects and node.coordinator is None:
            node.lifeline.look_now()

    async def _run(self, shell: CoordinatorShell) -> None:
        await shell.run()
        node = self._node
        if node.coordinator is shell:
            node.coordinator = None
            # To resign deposes this node, which cancels `_task`. That must not be this task, or the
            # node would never stand again.
            self._task = None
            await node.lifeline.resign()
            stands = node.config.candidate and node.state == "up"
            self._stood_down = node.config.candidate and not stands
            node.lifeline.set_candidate(stands)

    def stand_again(self) -> None:
        """Stand for election again, if this node resigned while it was drained."""
        if self._stood_down:
            self._stood_down = False
            self._node.lifeline.set_candidate(True)

    def _put(self, target: Incarnation, message: AnyMessage) -> bool:
        """Send to one process.

        A link that was just made ends before its second frame. A process that lives and was
        declared dead would not learn of it, so it is told by `say_now` first.
        """
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
        """Record a decision. The coordinator's node tells its listener of other nodes."""
        ports = self._node.node_ports
        ports.on_decision(decision)
        if decision.subject != self._node.incarnation:
            if decision.action == "node_up":
                shell = self._node.coordinator
                member = None if shell is None else shell.machine.members.get(decision.subject)
                name = decision.detail if member is None else member.name
                ports.listener.node_up(decision.subject, name)
            elif decision.action in ("node_dead", "node_left"):
                ports.listener.node_down(decision.subject, decision.detail)

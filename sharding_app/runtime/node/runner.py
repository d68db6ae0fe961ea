"""A node's life beyond one incarnation: after it is fenced, deaf or too late, the next one begins.

Contract: `run` returns only after `request_stop`. Each incarnation gets ports of its own, so that
nothing of a former one (a connection, a lease, a link) is used again.
"""

import asyncio
import logging
from collections.abc import Callable
from hashlib import blake2b

from sharding_app.entities.entity_type import EntityType
from sharding_app.ports.journal import JournalUnavailable
from sharding_app.ports.store import StoreUnavailable
from sharding_app.ports.transport import TransportError
from sharding_app.protocol.ids import Incarnation
from sharding_app.runtime.base.config import NodeConfig, NodePorts
from sharding_app.runtime.node.node import Node
from sharding_app.runtime.node.process import cluster_of

logger = logging.getLogger("sharding.node")

RETRY_SECONDS = 0.2
RETRY_MAX_SECONDS = 1.0
WARN_AGAIN_SECONDS = 30.0


class NodeRunner:
    def __init__(
        self,
        config: NodeConfig,
        types: list[EntityType],
        make_ports: Callable[[Incarnation], NodePorts],
        new_incarnation: Callable[[], Incarnation],
        on_node: Callable[[Node], None] = lambda _: None,
        patience_seconds: float = 30.0,
    ) -> None:
        self.config = config
        self.node: Node | None = None
        "The present incarnation; None: PostgreSQL has not said yet which cluster it is to join."
        self.incarnations = 0
        self.up = asyncio.Event()
        self._types = types
        self._make_ports = make_ports
        self._new_incarnation = new_incarnation
        self._on_node = on_node
        self._stop = asyncio.Event()
        self.patience_seconds = patience_seconds
        "Time for leaving in order, whether an operator or this process asks for it."
        self._trouble = ""
        self._warn_at = 0.0

    def request_stop(self, patience_seconds: float | None = None) -> None:
        """Leave in order, within that time."""
        if patience_seconds is not None:
            self.patience_seconds = patience_seconds
        self._stop.set()

    async def run(self) -> None:
        delay = RETRY_SECONDS
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            while not self._stop.is_set():
                incarnation = self._new_incarnation()
                self.incarnations += 1
                starting = asyncio.ensure_future(self._start(incarnation))
                await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not starting.done():
                    starting.cancel()
                try:
                    node = await starting
                except asyncio.CancelledError:
                    if self.node is not None:
                        await self.node.stop(self.patience_seconds)
                    continue
                except (StoreUnavailable, TransportError, JournalUnavailable) as error:
                    self._warn(str(error))
                    if self.node is not None:
                        await self.node.close()
                    await asyncio.wait((stopping,), timeout=delay * _chance(incarnation))
                    delay = min(delay * 2, RETRY_MAX_SECONDS)
                    continue
                delay = RETRY_SECONDS
                self.up.set()
                asked = asyncio.ensure_future(node.asked_to_leave.wait())
                await asyncio.wait((node.ended, stopping, asked), return_when=asyncio.FIRST_COMPLETED)
                asked.cancel()
                if node.asked_to_leave.is_set():
                    self._stop.set()
                self.up.clear()
                if node.ended.done():
                    await node.close()
                    if node.failed.is_set():  # it may fail at once again
                        await asyncio.wait((stopping,), timeout=RETRY_MAX_SECONDS)
                else:
                    await node.stop(self.patience_seconds)
        finally:
            stopping.cancel()

    async def _start(self, incarnation: Incarnation) -> Node:
        self.node, ports = None, self._make_ports(incarnation)
        node = Node(incarnation, self.config, ports, self._types, await cluster_of(ports))
        self.node = node
        self._on_node(node)
        await node.start()
        return node

    def _warn(self, trouble: str) -> None:
        """Log why this process is not in the cluster; the same reason only once in a while."""
        now = asyncio.get_running_loop().time()
        if trouble != self._trouble or now >= self._warn_at:
            self._trouble, self._warn_at = trouble, now + WARN_AGAIN_SECONDS
            logger.warning("cannot join yet, tries again: %s", trouble, extra={"action": "join_waits"})


def _chance(incarnation: Incarnation) -> float:
    """Return a factor from half to one, so that nodes come to a server at different times.

    Names that are alike, those of the simulation for example, have nothing in common here, as they
    would with a checksum.
    """
    return 1 - int.from_bytes(blake2b(incarnation.encode(), digest_size=4).digest()) / 2**33

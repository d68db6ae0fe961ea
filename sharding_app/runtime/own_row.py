"""A node's row in the store: what it writes there, for as long as it takes, and what the rows say after a suspension.

Contract: a row that is gone ends this incarnation: somebody has buried it. After a suspension only shards go on whose rows
still show this incarnation and epoch. A row names the server on which both locks are held, and then only: whoever finds
both gone from that one takes the process for dead at once. With one of them a node goes on only after its row has said so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sharding_app.core.records import MemberState, Server
from sharding_app.ports.store import StoreUnavailable

if TYPE_CHECKING:
    from sharding_app.runtime.node import Node

RETRY_SECONDS = 0.1


class OwnRow:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._settled: Server | None = None
        "Where both locks are held, as the lifeline said last."

    async def settle(self, server: Server) -> None:
        """Both locks are held there; once that is written, the loss of both means death."""
        self._settled = server
        await self._write(lambda: {"server": self._settled})

    async def write(self, *, state: MemberState | None = None, deaf: bool | None = None) -> None:
        await self._write(lambda: {"state": state, "deaf": deaf})

    async def _write(self, changes: Callable[[], dict[str, Any]]) -> None:
        """Write what these are at that moment."""
        node = self._node
        while not node.ended.done():
            try:
                if not await node.ports.store.update_member(node.incarnation, **changes()):
                    node.end("buried")
                return
            except StoreUnavailable:
                await asyncio.sleep(RETRY_SECONDS)

    async def compare(self, generation: int, settled: Server | None) -> None:
        """The lifeline is back: keep the shards whose rows still say that they are ours, drop the others."""
        self._settled = settled
        node = self._node
        while not node.ended.done():
            # What is started while the rows are read is not in them.
            held = node.hosting.epochs()
            try:
                # A write, not a look: who is about to bury us meets it (`ClusterStore.bury`).
                known = self._settled
                if not await node.ports.store.update_member(
                    node.incarnation, server=known, unsettled=known is None
                ):
                    node.end("buried")
                    return
                rows = await node.ports.store.homes_of(node.incarnation)
            except StoreUnavailable:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            node.hosting.keep(rows, held)
            if await node.lifeline.resume(generation):
                node.log("node_resumed", "node %s goes on", node.config.name)
                node.links.resume()
                node.writer.resume()
                node.hosting.resume()
            return

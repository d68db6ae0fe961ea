"""A node's row in the store: what it writes there, for as long as it takes, and what the rows say after a suspension.

Contract: a row that is gone ends this incarnation: another node has buried it. After a suspension only shards go on whose rows
still show this incarnation and epoch. A row names the server on which both locks are held, and then only: whoever finds
both gone from that one takes the process for dead at once. With one of them a node goes on only after its row has said so.
Where the server goes on in another lineage, `core.lease.after_return` says what becomes of the objects in memory. What the
row says of the node may be lost there too, and no answer would ever tell: so the node compares it at rest, and says it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sharding_app.core.lease import after_return
from sharding_app.core.records import Lineage, MemberState, News, Server
from sharding_app.ports.store import StoreUnavailable

if TYPE_CHECKING:
    from sharding_app.runtime.node import Node

logger = logging.getLogger("sharding.node")

RETRY_SECONDS = 0.1


class OwnRow:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._lineage: Lineage | None = None
        "Of what is in memory."
        self._generation = 0
        "Of the lapse that is being compared."
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

    async def mend(self, news: News) -> None:
        """Write again what the row no longer says: else the others go by it for as long as this node lives.

        Raises StoreUnavailable; the next look comes back to it.
        """
        node = self._node
        state, deaf = node.state, node.hearing.says_deaf
        if (
            state == "new"
            or state == "ended"
            or news.state is None
            or (news.state, news.deaf) == (state, deaf)
        ):
            return
        node.log(
            "row_mended", "node %s is %s%s, and not %s%s, as its row says", node.config.name,
            state, ", deaf" * deaf, news.state, ", deaf" * news.deaf,
        )  # fmt: skip
        await node.ports.store.update_member(node.incarnation, state=state, deaf=deaf)

    def begins_in(self, lineage: Lineage) -> None:
        """The lease is valid for the first time there: nothing is in memory yet."""
        if self._lineage is None:
            self.lives_in(lineage)

    def lives_in(self, lineage: Lineage) -> None:
        """From now on what is read and written belongs to that lineage."""
        self._lineage = lineage
        self._node.node_ports.journal.live_in(lineage)

    async def compare(self, generation: int, settled: Server | None, lineage: Lineage) -> None:
        """The lifeline is back: keep the shards whose rows still say that they are ours, drop the others."""
        self._settled, self._generation = settled, generation
        node = self._node
        match after_return(self._lineage, lineage):
            case "begin_anew":
                logger.error(
                    "the database is another system now: node %s joins the cluster that it holds", node.config.name,
                    extra={"action": "database_replaced", "node": node.config.name},
                )  # fmt: skip
                node.end("elsewhere")
                return
            case "read_again":
                logger.warning(
                    "the database goes on at timeline %d, after a failover or a restore: node %s gives up its shards, to read them again, "
                    "in case some of their last events are missing", lineage.timeline, node.config.name,
                    extra={"action": "database_moved_on", "node": node.config.name},
                )  # fmt: skip
                node.hosting.give_up_stored()
                self.lives_in(lineage)
            case "go_on":
                pass
        while not node.ended.done() and self._generation == generation:
            # What is started while the rows are read is not in them.
            held = node.hosting.epochs()
            try:
                # A write, not a look: who is about to bury us meets it (`ClusterStore.bury`).
                found = await node.ports.store.come_back(node.incarnation, self._settled)
            except StoreUnavailable:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if found is None:
                node.end("buried")
                return
            server, rows = found
            if server.lineage != lineage:
                await (
                    node.ports.store.close()
                )  # its next connection leads to where the lifeline is, or we hear from that
                await asyncio.sleep(RETRY_SECONDS)
                continue
            node.hosting.keep(rows, held)
            if await node.lifeline.resume(generation):
                node.log("node_resumed", "node %s goes on", node.config.name)
                node.links.resume()
                node.writer.resume()
                node.hosting.resume()
            return

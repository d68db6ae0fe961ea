"""A node's membership: its way up, its row, its registration with the coordinator, its way out.

Contract: if the row is gone, another node has declared this incarnation dead, and it ends. After a
suspension only shards go on whose rows still show this incarnation and epoch. The row names a
server only while both locks are held there: a reader that finds both gone from it takes the process
for dead at once. With one of them a node goes on only after its row has said so.

When the server goes on in another lineage, `protocol.liveness.node_lease.after_return` decides
about the objects in memory. The node's own entries in the row may be lost there too, and no answer
would ever say so. That is why the node compares them at rest, and writes them again.

Leaving waits for nothing longer than its deadline. If no other node can take anything over, or the
whole cluster is to stop, nothing is handed over: the shards stop where they are.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, assert_never

from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.ids import Incarnation, Term
from sharding_app.protocol.liveness.node_lease import after_return
from sharding_app.protocol.messages import Left, Register, RegisterAck, Suspect
from sharding_app.protocol.records import Lineage, Member, MemberState, News, Server
from sharding_app.protocol.versions import kept_out
from sharding_app.runtime.node.interfaces import NodeParts
from sharding_app.runtime.node.reach import Reaching

logger = logging.getLogger("sharding.node")

RETRY_SECONDS = 0.1
REFUSED_SECONDS = 0.5
"""Time between two looks for nodes whose release is too far from ours."""
REGISTER_AGAIN_SECONDS = 0.5
LOOK_SECONDS = 0.2
"""Time between two looks, while leaving, for nodes that can take shards over."""
RELEASE_SECONDS = 5.0
"""Longest wait for leases to be given back."""
DRAIN_SECONDS = 1.0
"""Longest wait for links to deliver their messages."""


class NodeMembership:
    def __init__(self, node: NodeParts, reaching: Reaching) -> None:
        self._node = node
        self._reaching = reaching
        self._lineage: Lineage | None = None
        "Lineage of the objects in memory."
        self._generation = 0
        "Generation of the lapse that is being compared."
        self._settled: Server | None = None
        "Server on which both locks are held, as the lifeline said last."
        self._known_to: tuple[Incarnation, Term] | None = None
        """The coordinator that has heard us, and its term then. In its next term it knows nothing
        of that.
        """
        self._told: tuple[Incarnation, Term] | None = None
        """The coordinator that has acknowledged our row, and its term. We repeat the term to it,
        which shows that we hear it.
        """
        self._said_at = float("-inf")
        self._leave_asked_at = float("-inf")

    # -- The way up --------------------------------------------------------------------------------

    async def ready(self) -> None:
        """Return when the node may say that it is up.

        It waits for a lease, its own echo, nodes of neighbouring releases only, and the journals
        that other nodes use. Raises StoreUnavailable if its incarnation ends before.
        """
        await self._wait_for(self._node.valid)
        await self._wait_for(self._node.hearing.heard)
        await self._wait_until_understood()
        await self._wait_until_it_reaches()

    async def _wait_for(self, event: asyncio.Event) -> None:
        waiter = asyncio.ensure_future(event.wait())
        await asyncio.wait((waiter, self._node.ended), return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        if self._node.ended.done():
            raise self._ended()

    async def _wait_until_understood(self) -> None:
        """Stay outside while there is a node whose release is too far from ours."""
        node, said = self._node, ""
        while not node.ended.done():
            with contextlib.suppress(StoreUnavailable):
                _, members = await node.ports.store.members()
                why = kept_out(members).get(node.incarnation, "")
                if not why:
                    return
                if why != said:
                    logger.error(
                        "node %s is refused: %s. It joins when they are gone.", node.config.name, why,
                        extra={"action": "node_refused", "node": node.config.name},
                    )  # fmt: skip
                said = why
            await asyncio.sleep(REFUSED_SECONDS)
        raise self._ended()

    async def _wait_until_it_reaches(self) -> None:
        """Stay outside while there is a journal that other nodes use and this one cannot."""
        while not self._node.ended.done():
            if not await self._reaching.out_of_reach():
                return
            await asyncio.sleep(RETRY_SECONDS)
        raise self._ended()

    def _ended(self) -> StoreUnavailable:
        missing = f" ({self._reaching.missing})" if self._reaching.missing else ""
        return StoreUnavailable(
            f"this incarnation ended before it was up: {self._node.ended.result()}{missing}"
        )

    # -- Its row -----------------------------------------------------------------------------------

    async def settle(self, server: Server) -> None:
        """Name the server that holds both locks.

        Once that is written, the loss of both means death.
        """
        self._settled = server
        await self._write(lambda: {"server": self._settled})

    async def write(
        self, *, state: MemberState | None = None, deaf: bool | None = None, deadline: float = float("inf")
    ) -> None:
        await self._write(lambda: {"state": state, "deaf": deaf}, deadline)

    async def _write(self, changes: Callable[[], dict[str, Any]], deadline: float = float("inf")) -> None:
        """Write until it succeeds. `changes` is called for each attempt.

        An attempt that fails after the deadline is the last one: its StoreUnavailable is raised.
        """
        node = self._node
        while not node.ended.done():
            try:
                if not await node.ports.store.update_member(node.incarnation, **changes()):
                    node.end("buried")
                return
            except StoreUnavailable:
                if node.ports.clock.now() >= deadline:
                    raise
                await asyncio.sleep(RETRY_SECONDS)

    async def mend(self, news: News) -> None:
        """Write the node's state again if the row has lost it: other nodes go by the row.

        Raises StoreUnavailable; the next look tries again.
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
        """Note the lineage of the first valid lease: nothing is in memory yet."""
        if self._lineage is None:
            self._live_in(lineage)

    def _live_in(self, lineage: Lineage) -> None:
        """Bind all reads and writes from now on to that lineage."""
        self._lineage = lineage
        self._node.node_ports.journal.live_in(lineage)

    async def compare(self, generation: int, settled: Server | None, lineage: Lineage) -> None:
        """Keep the shards whose rows still name us after the lifeline is back, drop the others."""
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
                self._live_in(lineage)
            case "go_on":
                pass
            case unknown:
                assert_never(unknown)
        while not node.ended.done() and self._generation == generation:
            # Shards that start while the rows are read are not in them.
            held = node.hosting.epochs()
            try:
                # A write, not a read: a coordinator that is about to bury us meets it
                # (`ClusterStore.bury`).
                found = await node.ports.store.come_back(node.incarnation, self._settled)
            except StoreUnavailable:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if found is None:
                node.end("buried")
                return
            server, rows = found
            if server.lineage != lineage:
                # The next connection leads to the lifeline's server, or the lifeline reports a new
                # one.
                await node.ports.store.close()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            node.hosting.keep(rows, held)
            if await node.lifeline.resume(generation):
                node.log("node_resumed", "node %s goes on", node.config.name)
                node.links.resume()
                node.hosting.resume()
            return

    async def delete_row(self) -> None:
        """Delete the row, so that no other node waits for us.

        If that fails, the coordinator finds us dead.
        """
        with contextlib.suppress(StoreUnavailable):
            await self._node.ports.store.leave(self._node.incarnation)

    # -- Its registration, repeated until the coordinator has heard it -----------------------------

    @property
    def registered(self) -> bool:
        """Whether a coordinator has heard this node over the wire, and this node has heard so."""
        return self._known_to is not None

    def acknowledged(self, message: RegisterAck) -> None:
        """Note that a coordinator has our row. If it has not heard us yet, register now."""
        node = self._node
        if message.term < node.locator.term:
            return
        self._told = message.coordinator, message.term
        if message.heard:
            self._known_to = self._told
        else:
            self._register(message.coordinator, node.ports.clock.now())

    def register_again(self) -> None:
        """Register again: the coordinator's knowledge of us is out of date."""
        self._known_to = None

    def tick(self, now: float) -> None:
        """Register, and ask for the leave of regions, unless the coordinator has heard it."""
        node = self._node
        coordinator = node.locator.coordinator
        registered = self._known_to == (coordinator, node.locator.term) or node.state not in ("up", "leaving")
        if coordinator is not None and not registered and now - self._said_at >= REGISTER_AGAIN_SECONDS:
            self._register(coordinator, now)
        if now - self._leave_asked_at >= REGISTER_AGAIN_SECONDS and node.hosting.ask_to_leave():
            self._leave_asked_at = now

    def _register(self, coordinator: Incarnation, now: float) -> None:
        self._said_at = now
        term = self._told[1] if self._told is not None and self._told[0] == coordinator else 0
        self._node.try_send(coordinator, Register(self._node.incarnation, term))

    # -- The way out -------------------------------------------------------------------------------

    async def leave(self, deadline: float) -> None:
        """Leave the cluster: other nodes take shards over, the rest stops, then the row goes.

        Raises StoreUnavailable.
        """
        node = self._node
        node.lifeline.set_candidate(False)
        await node.lifeline.resign()
        now = node.ports.clock.now
        await self._hand_over(deadline)
        node.hosting.stop_all()
        await node.hosting.emptied(deadline - now())
        # Nothing may run here longer than the row exists: without it no other node waits for our
        # lease.
        node.hosting.drop_all()
        await node.hosting.released(min(RELEASE_SECONDS, deadline - now()))
        for each in node.links.peers():
            # Otherwise peers send here until they hear that we are gone, and do not know whether it
            # was handled.
            node.try_send(each, Left(node.incarnation))
        await node.links.drain(min(DRAIN_SECONDS, max(0.0, deadline - now())))
        await node.ports.store.leave(node.incarnation)

    async def _hand_over(self, deadline: float) -> None:
        """Wait until the coordinator has given all shards to other nodes."""
        node = self._node
        now = node.ports.clock.now
        others = await self._others_up()
        for each in (member.incarnation for member in others):
            node.try_send(each, Suspect([node.incarnation]))
        look_at = now() + LOOK_SECONDS
        while not node.all_stops and now() < deadline and not node.ended.done():
            # A type that only our code knows is never taken over.
            takable = {name for member in others for name in member.types}
            if not takable & node.hosting.types_here():
                break
            if node.locator.coordinator not in (None, node.incarnation):
                node.try_send(str(node.locator.coordinator), Register(node.incarnation))
            await asyncio.sleep(0.02)
            if now() >= look_at:
                # They may all be leaving at once. Then no node is left to take anything over.
                look_at = now() + LOOK_SECONDS
                with contextlib.suppress(StoreUnavailable):
                    others = await self._others_up()

    async def _others_up(self) -> list[Member]:
        """Return the nodes that could take our shards over."""
        node = self._node
        _, members = await node.ports.store.members()
        return [
            each
            for each in members
            if each.state == "up" and each.locks and each.incarnation != node.incarnation
        ]

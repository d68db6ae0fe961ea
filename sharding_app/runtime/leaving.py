"""Leaving in order: others take the shards over while they can, what is left stops, and then the row goes.

Contract: nothing of this waits longer than the deadline. When nobody is left to take anything over, or the whole cluster
is to stop, nothing is handed over: the shards stop where they are.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from sharding_app.core.messages import Left, Register, Suspect
from sharding_app.core.records import Member
from sharding_app.ports.store import StoreUnavailable

if TYPE_CHECKING:
    from sharding_app.runtime.node import Node

LOOK_SECONDS = 0.2
RELEASE_SECONDS = 5.0
"""So long at most for leases to be given back."""
DRAIN_SECONDS = 1.0
"""So long at most for links to deliver what they hold."""


async def leave(node: Node, deadline: float) -> None:
    """Go. Raises StoreUnavailable."""
    node.log("node_leaving", "node %s leaves", node.config.name)
    await node.store_state("leaving")
    node.lifeline.set_candidate(False)
    await node.lifeline.resign()
    now = node.ports.clock.now
    await _hand_over(node, deadline)
    node.hosting.stop_all()
    await node.hosting.emptied(deadline - now())
    # What still runs must not outlive the row: without it the others wait for no lease of ours.
    node.hosting.drop_all()
    await node.hosting.released(min(RELEASE_SECONDS, deadline - now()))
    for each in node.links.peers():
        # Else they send here until they hear that we are gone, and would not know whether that was handled.
        node.try_send(each, Left(node.incarnation))
    await node.links.drain(min(DRAIN_SECONDS, max(0.0, deadline - now())))
    await node.ports.store.leave(node.incarnation)


async def _hand_over(node: Node, deadline: float) -> None:
    """Wait until the coordinator has given all shards to others."""
    now = node.ports.clock.now
    others = await _others_up(node)
    for each in (member.incarnation for member in others):
        node.try_send(each, Suspect([node.incarnation]))
    look_at = now() + LOOK_SECONDS
    while not node.all_stops and now() < deadline and not node.ended.done():
        # Of a type that only our code knows nothing is ever taken over.
        takable = {name for member in others for name in member.types}
        if not takable & node.hosting.types_here():
            break
        if node.homes.coordinator not in (None, node.incarnation):
            node.try_send(str(node.homes.coordinator), Register(node.incarnation))
        await asyncio.sleep(0.02)
        if now() >= look_at:
            # They may be leaving too, all at once: then nobody is left to take anything over.
            look_at = now() + LOOK_SECONDS
            with contextlib.suppress(StoreUnavailable):
                others = await _others_up(node)


async def _others_up(node: Node) -> list[Member]:
    """Return who could take our shards over."""
    _, members = await node.ports.store.members()
    return [
        each for each in members if each.state == "up" and each.locks and each.incarnation != node.incarnation
    ]

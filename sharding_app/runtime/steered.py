"""What an operator asks of a node: about itself, or about an entity in it. Wishes about shards are the coordinator's."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import Steer, Steered
from sharding_app.core.steering import COORDINATOR_ACTIONS
from sharding_app.ports.journal import Erasure

if TYPE_CHECKING:
    from sharding_app.runtime.node import Node

logger = logging.getLogger("sharding.node")


async def answer_wish(node: Node, source: Incarnation, wish: Steer) -> None:
    """Do it, or say why not."""
    if wish.action == "erase":
        answer = await _erase(node, wish)
    else:
        answer = Steered(wish.request, *await _follow(node, wish))
    logger.info(
        "%s wanted %s: %s", wish.by, wish.action, answer.text,
        extra={"action": "steered", "wish": wish.action, "by": wish.by, "done": answer.ok},
    )  # fmt: skip
    node.try_send(source, answer)


async def _follow(node: Node, wish: Steer) -> tuple[bool, str]:
    match wish.action:
        case "drain" if node.state == "up":
            await node.drain(drained=True)
            return True, "It hands its shards over and takes no new ones. It stays in the cluster."
        case "undrain" if node.state == "leaving":
            await node.drain(drained=False)
            return True, "It takes shards again, with the next round of rebalancing."
        case "shutdown" if node.state in ("up", "leaving"):
            node.asked_to_leave.set()
            return True, "It hands its shards over, leaves the cluster and ends."
        case "drain" | "undrain" | "shutdown":
            return False, f"Its state is {node.state!r}: there is nothing to do."
        case "passivate" | "restart":
            return _entity(node, wish)
    if wish.action in COORDINATOR_ACTIONS:
        return False, "This node does not coordinate, or no longer does: try again."
    return False, f"This node does not know the wish {wish.action!r}."


async def _erase(node: Node, wish: Steer) -> Steered:
    host = node.hosts.get(wish.type)
    found = "away" if host is None else await host.erasing.erase(wish.shard, wish.entity, wish.by)
    if isinstance(found, Erasure):
        counts = {"events": found.events, "snapshots": found.snapshots, "remembered": found.remembered}
        text = f"{found.events} events, {found.snapshots} snapshots."
        return Steered(wish.request, ok=True, text=text, counts=counts)
    if found == "away":
        text = "Its shard is not at home there, or no longer: try again."
    elif not found.begun:
        text = "It is still at work on a command, and is erased after it: try again."
    else:
        text = f"It is being erased, {found.events} events so far: try again."
    return Steered(wish.request, ok=False, text=text, again=True)


def _entity(node: Node, wish: Steer) -> tuple[bool, str]:
    host = node.hosts.get(wish.type)
    restart = wish.action == "restart"
    match "away" if host is None else host.entity_life.steer(wish.shard, wish.entity, restart=restart):
        case "done" if restart:
            return True, "It is recovered anew from the journal."
        case "done":
            return True, "It stops when it has handled what it does now; its next message starts it again."
        case "busy":
            return False, "It is busy now: try again."
        case "absent":
            return False, "It is not in memory: its next message starts it."
    return False, "Its shard is not at home there, or no longer: try again."

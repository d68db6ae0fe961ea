"""Operators' requests to a node, about itself or its entities.

Those about shards go to the coordinator.
"""

from __future__ import annotations

import logging
from typing import assert_never

from sharding_app.ports.journal import Erasure
from sharding_app.protocol.coordinator.operator import COORDINATOR_ACTIONS, Outcome
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import OperatorReply, OperatorRequest, ReplyCode
from sharding_app.runtime.hosting.erasure import UnderWay
from sharding_app.runtime.node.interfaces import NodeParts

logger = logging.getLogger("sharding.node")


async def answer_operator(node: NodeParts, source: Incarnation, message: OperatorRequest) -> None:
    """Do it, or answer with the reason why not."""
    if message.action == "erase":
        answer = await _erase(node, message)
    elif message.action == "archive":
        answer = await _archive(node, message)
    else:
        answer = OperatorReply(message.request, *await _follow(node, message))
    logger.info(
        "%s wanted %s: %s", message.by, message.action, answer.text,
        extra={"action": "operator_request", "request": message.action, "by": message.by, "done": answer.ok},
    )  # fmt: skip
    node.try_send(source, answer)


async def _follow(node: NodeParts, message: OperatorRequest) -> Outcome:
    match message.action:
        case "drain" if node.state == "up":
            await node.drain(drained=True)
            return ReplyCode.DONE, "It hands its shards over and takes no new ones. It stays in the cluster."
        case "undrain" if node.asked_to_leave.is_set():
            return ReplyCode.REFUSED, "It is about to end: it takes no shards again."
        case "undrain" if node.state == "leaving":
            await node.drain(drained=False)
            return ReplyCode.DONE, "It takes shards again, with the next round of rebalancing."
        case "shutdown" if node.state in ("up", "leaving"):
            node.asked_to_leave.set()
            return ReplyCode.DONE, "It hands its shards over, leaves the cluster and ends."
        case "drain" | "undrain" | "shutdown":
            return ReplyCode.REFUSED, f"Its state is {node.state!r}: there is nothing to do."
        case "passivate" | "restart":
            return _entity(node, message)
    if message.action in COORDINATOR_ACTIONS:
        return ReplyCode.NOT_COORDINATOR, "This node does not coordinate, or no longer does: try again."
    return ReplyCode.REFUSED, f"This node does not know the request {message.action!r}."


async def _erase(node: NodeParts, message: OperatorRequest) -> OperatorReply:
    host = node.hosting.host_at(message.type, message.shard)
    found = "away" if host is None else await host.erasing.erase(message.shard, message.entity, message.by)
    if isinstance(found, Erasure):
        counts = {
            "events": found.events,
            "snapshots": found.snapshots,
            "remembered": found.remembered,
            "messages": found.messages,
        }
        text = f"{found.events} events, {found.snapshots} snapshots."
        return OperatorReply(message.request, ReplyCode.DONE, text, counts)
    if found == "away":
        text = "Its shard is not at home there, or no longer: try again."
        return OperatorReply(message.request, ReplyCode.AWAY, text)
    if not found.begun:
        text = "It is still at work on a command, and is erased after it: try again."
    else:
        text = f"It is being erased, {found.events} events so far: try again."
    return OperatorReply(message.request, ReplyCode.BUSY, text, {"events": found.events})


async def _archive(node: NodeParts, message: OperatorRequest) -> OperatorReply:
    host = node.hosting.host_at(message.type, message.shard)
    found = (
        "away" if host is None else await host.erasing.archive(message.shard, message.entity, message.mark)
    )
    if found == "away":
        text = "Its shard is not at home there, or no longer: try again."
        return OperatorReply(message.request, ReplyCode.AWAY, text)
    if isinstance(found, UnderWay):
        return OperatorReply(message.request, ReplyCode.BUSY, "It is being removed: try again.")
    if found.left:
        text = f"It stays in the journal: {found.left}."
        return OperatorReply(message.request, ReplyCode.LEFT, text, {found.left: 1})
    counts = {"events": found.events, "snapshots": found.snapshots, "remembered": found.remembered}
    return OperatorReply(message.request, ReplyCode.DONE, "It is removed from the journal.", counts)


def _entity(node: NodeParts, message: OperatorRequest) -> Outcome:
    host = node.hosting.host_at(message.type, message.shard)
    restart = message.action == "restart"
    match (
        "away" if host is None else host.entity_life.operate(message.shard, message.entity, restart=restart)
    ):
        case "done" if restart:
            return ReplyCode.DONE, "It is recovered anew from the journal."
        case "done":
            return (
                ReplyCode.DONE,
                "It stops when it has handled what it does now; its next message starts it again.",
            )
        case "busy":
            return ReplyCode.BUSY, "It is busy now: try again."
        case "absent":
            return ReplyCode.REFUSED, "It is not in memory: its next message starts it."
        case "away":
            return ReplyCode.AWAY, "Its shard is not at home there, or no longer: try again."
        case unknown:
            assert_never(unknown)

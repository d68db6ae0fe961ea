"""What a node waits for before it is up: a valid lease, its own echo, and nobody too far from its release."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from sharding_app.core.wire import kept_out
from sharding_app.ports.store import StoreUnavailable

if TYPE_CHECKING:
    from sharding_app.runtime.node import Node

logger = logging.getLogger("sharding.node")

REFUSED_SECONDS = 0.5


async def ready(node: Node) -> None:
    """Return when the node may say that it is up; raises StoreUnavailable if its incarnation ends before."""
    await _wait_for(node, node.valid)
    await _wait_for(node, node.hearing.heard)
    await _wait_until_understood(node)


async def _wait_for(node: Node, event: asyncio.Event) -> None:
    waiter = asyncio.ensure_future(event.wait())
    await asyncio.wait((waiter, node.ended), return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    if node.ended.done():
        raise _ended(node)


async def _wait_until_understood(node: Node) -> None:
    """Stay outside while a node is there whose release is too far from ours."""
    said = ""
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
    raise _ended(node)


def _ended(node: Node) -> StoreUnavailable:
    missing = f" ({node.reaching.missing})" if node.reaching.missing else ""
    return StoreUnavailable(f"this incarnation ended before it was up: {node.ended.result()}{missing}")

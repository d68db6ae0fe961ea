"""Asking processes something and waiting for what they say, for a while. Who is late is named, not waited for.

The asking side of the pairs GetNodeStats/NodeStats, GetEntities/Entities and Steer/Steered. Belongs to one process, and to its event loop.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import (
    AnyMessage,
    Entities,
    GetEntities,
    GetNodeStats,
    NodeStats,
    Steer,
    Steered,
)

ANSWER_SECONDS = 1.0
STEERED_SECONDS = 5.0


class Questions:
    def __init__(
        self,
        put: Callable[[Incarnation, AnyMessage], bool],
        sign: Callable[[Steer, Incarnation], None] = lambda wish, target: None,
    ) -> None:
        self._put = put
        self._sign = sign
        self._last = 0
        self._open: dict[int, tuple[Incarnation, asyncio.Future[Any]]] = {}

    async def stats(
        self, nodes: Iterable[Incarnation], timeout: float = ANSWER_SECONDS
    ) -> Mapping[Incarnation, NodeStats]:
        """What these nodes say of themselves; who is missing did not answer in time."""
        found: Mapping[Incarnation, NodeStats] = await self._ask(dict.fromkeys(nodes, GetNodeStats), timeout)
        return found

    async def entities(
        self, node: Incarnation, wanted: GetEntities, timeout: float = ANSWER_SECONDS
    ) -> Entities | None:
        """Who is in memory in a shard; None: its home did not answer in time."""

        def numbered(request: int) -> GetEntities:
            wanted.request = request
            return wanted

        found: Mapping[Incarnation, Entities] = await self._ask({node: numbered}, timeout)
        return found.get(node)

    async def steer(self, node: Incarnation, wish: Steer, timeout: float = STEERED_SECONDS) -> Steered | None:
        """Pass an operator's wish on; None: no answer in time, so that it may or may not have been heard."""

        def numbered(request: int) -> Steer:
            wish.request = request
            self._sign(wish, node)
            return wish

        found: Mapping[Incarnation, Steered] = await self._ask({node: numbered}, timeout)
        return found.get(node)

    def told(self, source: Incarnation, message: NodeStats | Entities | Steered) -> None:
        """An answer has come; one that is late, or from another process, is dropped."""
        node, answer = self._open.get(message.request, ("", None))
        if answer is not None and node == source and not answer.done():
            answer.set_result(message)

    async def _ask(self, wanted: Mapping[Incarnation, Callable[[int], AnyMessage]], timeout: float) -> Any:
        mine: dict[int, tuple[Incarnation, asyncio.Future[Any]]] = {}
        try:
            for node, make in wanted.items():
                self._last += 1
                mine[self._last] = self._open[self._last] = node, asyncio.get_running_loop().create_future()
                self._put(node, make(self._last))
            if mine:
                await asyncio.wait([answer for _, answer in mine.values()], timeout=timeout)
        finally:
            for request in mine:
                del self._open[request]
        return {node: answer.result() for node, answer in mine.values() if answer.done()}

"""Questions to other processes. One that does not answer in time is left out, not waited for.

The calling side of the pairs GetNodeStats/NodeStats, GetShardRegionState/ShardRegionState,
GetEntities/Entities, GetNodeTrend/NodeTrend and OperatorRequest/OperatorReply. Belongs to one
process, and to its event loop.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import (
    AnyMessage,
    Entities,
    GetEntities,
    GetNodeStats,
    GetNodeTrend,
    GetShardRegionState,
    NodeStats,
    NodeTrend,
    OperatorReply,
    OperatorRequest,
    ShardRegionState,
)

ANSWER_SECONDS = 1.0
OPERATOR_SECONDS = 5.0


Reply = NodeStats | NodeTrend | ShardRegionState | Entities | OperatorReply


@dataclass(frozen=True, slots=True)
class RegionStates:
    """The shards of nodes. The rows say where shards should be; only the homes know which entities
    are in memory.
    """

    answers: Mapping[Incarnation, ShardRegionState]
    failed: frozenset[Incarnation]
    "Nodes that did not answer in time."


class Queries:
    def __init__(
        self,
        put: Callable[[Incarnation, AnyMessage], bool],
        sign: Callable[[OperatorRequest, Incarnation], None] = lambda message, target: None,
    ) -> None:
        self._put = put
        self._sign = sign
        self._last = 0
        self._open: dict[int, tuple[Incarnation, asyncio.Future[Any]]] = {}

    async def stats(
        self, nodes: Iterable[Incarnation], timeout: float = ANSWER_SECONDS
    ) -> Mapping[Incarnation, NodeStats]:
        """Return the nodes' figures. A node that is missing did not answer in time."""
        found: Mapping[Incarnation, NodeStats] = await self._ask(dict.fromkeys(nodes, GetNodeStats), timeout)
        return found

    async def trends(
        self, nodes: Iterable[Incarnation], period: int, timeout: float = ANSWER_SECONDS, type_name: str = ""
    ) -> Mapping[Incarnation, NodeTrend]:
        """Return the nodes' figures over time, or those of one type. A node that is missing did not
        answer in time, or keeps none of types.
        """

        def numbered(request: int) -> GetNodeTrend:
            return GetNodeTrend(request, period, type_name)

        found: Mapping[Incarnation, NodeTrend] = await self._ask(dict.fromkeys(nodes, numbered), timeout)
        return {node: answer for node, answer in found.items() if answer.type == type_name}

    async def region_states(
        self, nodes: Iterable[Incarnation], types: Iterable[str] = (), timeout: float = ANSWER_SECONDS
    ) -> RegionStates:
        """Ask these nodes about these types; without types, about all that they host."""
        asked, wanted = list(nodes), list(types)

        def numbered(request: int) -> GetShardRegionState:
            return GetShardRegionState(request, wanted)

        answers = await self._ask(dict.fromkeys(asked, numbered), timeout)
        return RegionStates(answers, frozenset(asked) - answers.keys())

    async def entities(
        self, node: Incarnation, wanted: GetEntities, timeout: float = ANSWER_SECONDS
    ) -> Entities | None:
        """Return the entities of a shard in memory; None: its home did not answer in time."""

        def numbered(request: int) -> GetEntities:
            wanted.request = request
            return wanted

        found: Mapping[Incarnation, Entities] = await self._ask({node: numbered}, timeout)
        return found.get(node)

    async def operate(
        self, node: Incarnation, message: OperatorRequest, timeout: float = OPERATOR_SECONDS
    ) -> OperatorReply | None:
        """Pass an operator's request on.

        None: no answer in time, so it may or may not have been heard.
        """

        def numbered(number: int) -> OperatorRequest:
            message.request = number
            self._sign(message, node)
            return message

        found: Mapping[Incarnation, OperatorReply] = await self._ask({node: numbered}, timeout)
        return found.get(node)

    def told(self, source: Incarnation, message: Reply) -> None:
        """Take an answer. One that is late, or from another process, is dropped."""
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

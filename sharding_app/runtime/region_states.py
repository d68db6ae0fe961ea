"""Asking nodes what they host now. Best effort: who does not answer in time is named, not waited for.

The rows say where shards should be; only their homes know what is in memory there.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import AnyMessage, GetShardRegionState, ShardRegionState

ANSWER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RegionStates:
    answers: Mapping[Incarnation, ShardRegionState]
    failed: frozenset[Incarnation]
    "Those that did not answer in time."


class RegionQuestions:
    """The asking side. Belongs to one process, and to its event loop."""

    def __init__(self, put: Callable[[Incarnation, AnyMessage], bool]) -> None:
        self._put = put
        self._last = 0
        self._open: dict[int, tuple[Incarnation, asyncio.Future[ShardRegionState]]] = {}

    async def ask(
        self, nodes: Iterable[Incarnation], types: Iterable[str] = (), timeout: float = ANSWER_SECONDS
    ) -> RegionStates:
        """Ask these nodes about these types (none named: all that they host)."""
        wanted = list(types)
        mine: dict[int, tuple[Incarnation, asyncio.Future[ShardRegionState]]] = {}
        for node in nodes:
            self._last += 1
            mine[self._last] = node, asyncio.get_running_loop().create_future()
        self._open |= mine
        try:
            for request, (node, _) in mine.items():
                self._put(node, GetShardRegionState(request, wanted))
            if mine:
                await asyncio.wait([answer for _, answer in mine.values()], timeout=timeout)
        finally:
            for request in mine:
                del self._open[request]
        answers = {node: answer.result() for node, answer in mine.values() if answer.done()}
        return RegionStates(answers, frozenset(node for node, _ in mine.values()) - answers.keys())

    def told(self, source: Incarnation, message: ShardRegionState) -> None:
        """An answer has come; one that is late, or from somebody else, is nobody's."""
        node, answer = self._open.get(message.request, ("", None))
        if answer is not None and node == source and not answer.done():
            answer.set_result(message)

"""The check whether this node hears itself through the channel layer (promise 13).

It sends itself a numbered echo now and then. After a long silence the node is *deaf*, and says so
in its row. When other nodes say that they hear, it gives its shards up through Postgres. When no
node hears, the layer is down and nothing moves.

A late echo counts as heard. On a machine without a free processor echoes come seconds late, and the
node does listen. So the patience grows by the time that the last echo took, and doubles at most.
Time during which the process stood still is no silence: the node looks at its clock before it reads
the messages of that time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from sharding_app.ports.store import ClusterStore, StoreUnavailable
from sharding_app.ports.transport import TransportError
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import Echo

logger = logging.getLogger("sharding.node")

KEPT = 100
"""Send times that are kept. An older echo that comes back counts as late by the whole patience."""


class Deaf(Protocol):
    """The node, as this check sees it."""

    incarnation: Incarnation

    async def say_deaf(self, deaf: bool) -> None:
        """Write it to the node's row."""
        ...

    async def step_aside(self) -> None:
        """Give everything up: other nodes hear, and this one does not."""
        ...


class Hearing:
    def __init__(
        self,
        node: Deaf,
        echo: Callable[[int], Awaitable[None]],
        store: ClusterStore,
        now: Callable[[], float],
        *,
        interval_seconds: float,
        deaf_after_seconds: float,
    ) -> None:
        self.heard = asyncio.Event()
        "Set when the first echo has come back."
        self._node = node
        self._echo = echo
        self._store = store
        self._now = now
        self._interval = interval_seconds
        self._deaf_after = deaf_after_seconds
        self._said = 0
        self._last_heard = 0
        self._heard_at = self._looked_at = now()
        self._said_at = float("-inf")
        self._under_way: dict[int, float] = {}
        "Send times of the newest echoes that have not come back."
        self._took = 0.0
        "Time that the echo heard last took."
        self._changes = 0
        self.says_deaf = False

    def hear(self, source: Incarnation, message: Echo) -> None:
        """Take an echo. One of another process, or one that was heard before, proves nothing."""
        if source == self._node.incarnation and self._last_heard < message.number <= self._said:
            self._last_heard = message.number
            self._heard_at = self._now()
            said_at = self._under_way.get(message.number)
            self._took = self._deaf_after if said_at is None else self._heard_at - said_at
            self._under_way = {
                number: at for number, at in self._under_way.items() if number > message.number
            }
            self.heard.set()

    def due(self) -> bool:
        """Whether it is time for the next echo."""
        return self._now() - self._said_at >= self._interval or not self.heard.is_set()

    async def say(self) -> None:
        self._said_at = self._now()
        self._said += 1
        self._under_way[self._said] = self._said_at
        self._under_way.pop(self._said - KEPT, None)
        try:
            await self._echo(self._said)
        except TransportError as error:
            logger.debug("no echo: %s", error, extra={"action": "echo_failed"})

    def changed(self) -> bool:
        """Whether the node has become deaf, or hears again, since the last call."""
        now = self._now()
        stood_still = now - self._looked_at - self._interval
        if stood_still > 0:
            self._heard_at = min(now, self._heard_at + stood_still)
        self._looked_at = now
        deaf = now - self._heard_at > self._deaf_after + min(self._took, self._deaf_after)
        changed, self.says_deaf = deaf != self.says_deaf, deaf
        self._changes += changed
        return changed

    async def tell(self) -> None:
        """Write the change to the row. While deaf, watch whether other nodes hear."""
        deaf, changes = self.says_deaf, self._changes
        logger.info(
            "node %s hears itself: %s", self._node.incarnation, not deaf,
            extra={"action": "node_deaf" if deaf else "node_hears"},
        )  # fmt: skip
        # While the store is away several of these wait, and the last to write need not be the
        # newest.
        told: bool | None = None
        while told is not self.says_deaf:
            told = self.says_deaf
            await self._node.say_deaf(told)

        def still() -> bool:
            return self.says_deaf and changes == self._changes

        others_hear_since: float | None = None
        while deaf and still():
            now = self._now()
            others_hear = await self._others_hear()
            if not still():
                return  # it has heard since; if it is deaf again, another call reports that
            if not others_hear:
                others_hear_since = None
            elif others_hear_since is None:
                # After an outage of the layer some node hears first. Give the others their turn.
                others_hear_since = now
            elif now - others_hear_since >= 2 * self._interval:
                await self._node.step_aside()
                return
            await asyncio.sleep(self._interval)

    async def _others_hear(self) -> bool:
        try:
            _, members = await self._store.members()
        except StoreUnavailable:
            return False
        me = self._node.incarnation
        return any(
            each.locks and not each.deaf and each.state == "up" for each in members if each.incarnation != me
        )

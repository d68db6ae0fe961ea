"""Does this node hear itself through the channel layer? (promise 13)

It sends itself a numbered word now and then. Silence for long makes it *deaf*: it says so in its row, and when others
say that they hear, it gives its shards up through Postgres. When nobody hears, the layer is down and nothing moves.

A word that comes late is heard. On a machine without a free processor words come seconds late, and those who listen do. So
the patience is longer by what the last word took, and doubled at most; and what a process misses while it stands still
itself is no silence: it looks at its clock before it reads what has arrived meanwhile.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import Echo
from sharding_app.ports.store import ClusterStore, StoreUnavailable
from sharding_app.ports.transport import TransportError

logger = logging.getLogger("sharding.node")

KEPT = 100
"""A word that comes back after so many later ones was said long ago, whenever that was."""


class Deaf(Protocol):
    """The node, as its hearing sees it."""

    incarnation: Incarnation

    async def say_deaf(self, deaf: bool) -> None:
        """Write it to the node's row."""
        ...

    async def step_aside(self) -> None:
        """Others hear and we do not: give everything up."""
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
        "Set when the first word has come back."
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
        "When the newest of the words was said that have not come back."
        self._took = 0.0
        "From the moment in which the word that was heard last was said."
        self._changes = 0
        self.says_deaf = False

    def hear(self, source: Incarnation, message: Echo) -> None:
        """Take a word; one that somebody else said, or that was heard before, is no proof of anything."""
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
        """Whether it is time for the next word."""
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
        """Whether it has become deaf, or hears again, since it was last asked."""
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
        """Say it in the row; while deaf, watch whether others hear."""
        deaf, changes = self.says_deaf, self._changes
        logger.info(
            "node %s hears itself: %s", self._node.incarnation, not deaf,
            extra={"action": "node_deaf" if deaf else "node_hears"},
        )  # fmt: skip
        # While the store is away several of us wait, and the last one to write need not be the newest.
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
                return  # it has heard meanwhile; where it is deaf once more, that is told anew
            if not others_hear:
                others_hear_since = None
            elif others_hear_since is None:
                # After an outage of the layer somebody is the first to hear again: the others' turn is to come.
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

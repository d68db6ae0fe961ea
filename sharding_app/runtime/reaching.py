"""A node's look at its own connections to Postgres: opened at the start, kept open, and given up for without them.

Contract: at rest it costs one small query a second (`ClusterStore.news`), whatever the cluster's size: a connection that is
open is not asked. What follows from a look is the machine's to say (`core.reach`). A server that answers and refuses, since a
table is locked for one, is reached: it refuses every other node too, so that nothing would be gained by giving up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from sharding_app.core.reach import Reach
from sharding_app.ports.journal import JournalUnavailable
from sharding_app.ports.store import StoreUnavailable

if TYPE_CHECKING:
    from sharding_app.runtime.node import Node

logger = logging.getLogger("sharding.node")

LOOK_SECONDS = 1.0
ROWS = "the cluster's rows"


class Reaching:
    def __init__(self, node: Node) -> None:
        self._node = node
        self.reach = Reach(node.config.step_aside_after_seconds)
        self._looks_cut_off = 0
        self._reasons: dict[str, str] = {}
        "Why each of the missing connections is missing."
        self._refused = False
        "The rows could not be read at the last look, though the server was reached."

    @property
    def why_cut_off(self) -> str:
        """Say what is missing, for who asks whether the node is ready; nothing if all is there, or was at the last look but
        one: a connection may be lost and opened again."""
        if self._looks_cut_off < 2:
            return ""
        return self.missing

    @property
    def missing(self) -> str:
        """What the last look did not find, and why."""
        return "; ".join(f"no connection for {name}: {reason}" for name, reason in self._reasons.items())

    async def run(self) -> None:
        node = self._node
        while not node.ended.done():
            before = self.reach.state
            missing = await self._look()
            state = self.reach.look(
                missing,
                server_answers=node.lifeline_answers() or ROWS not in missing,
                now=node.ports.clock.now(),
            )
            self._looks_cut_off = 0 if state in ("reaches", "away") else self._looks_cut_off + 1
            if state == "cut_off" and before != "cut_off":
                logger.warning(
                    "node %s is cut off from its work: %s", node.config.name, self.missing,
                    extra={"action": "node_cut_off", "node": node.config.name},
                )  # fmt: skip
            if state == "step_aside":
                logger.error(
                    "node %s gives up its shards and its connections, and begins anew: for %g s it lacked some of those that it"
                    " needs, while PostgreSQL was there (%s)",
                    node.config.name, node.config.step_aside_after_seconds, self.missing,
                    extra={"action": "node_steps_aside", "node": node.config.name},
                )  # fmt: skip
                await node.step_aside("cut off")
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> list[str]:
        """Read the news through the one, open the others; return what could not be reached."""
        node = self._node
        self._reasons = {}
        try:
            await node.read_news()
        except StoreUnavailable as error:
            if not error.answered:
                self._reasons[ROWS] = str(error)
            elif not self._refused:
                logger.warning(
                    "node %s cannot read the cluster's rows, and goes on with what it knows: %s", node.config.name, error,
                    extra={"action": "rows_not_readable", "node": node.config.name},
                )  # fmt: skip
            self._refused = error.answered
        else:
            self._refused = False
        if why := self._lifeline_refused():
            self._reasons["the lifeline"] = why
        if node.lifeline_answers():
            try:
                await node.node_ports.journal.connect()
            except JournalUnavailable as error:
                self._reasons["the journal"] = str(error)
        return list(self._reasons)

    def _lifeline_refused(self) -> str:
        """Why there is no lifeline. One of its sessions is enough to go on, and both are needed to begin."""
        node = self._node
        return "" if node.valid.is_set() and node.lifeline_answers() else node.lifeline.refused


async def leave_quietly(node: Node) -> None:
    """Take the own row away, so that nobody waits for us; without a way to it the coordinator finds us dead."""
    with contextlib.suppress(StoreUnavailable):
        await node.ports.store.leave(node.incarnation)

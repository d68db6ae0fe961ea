"""A node's check of its connections to Postgres. Without them it gives its shards up (promise 13).

Contract: at rest it costs one small query a second (`ClusterStore.news`), whatever the cluster's
size: a connection that is open is not asked. The machine (`protocol.liveness.reach`) decides on the
consequences. A server that answers with a refusal, for a locked table say, counts as reached: it
refuses every other node too, so that nothing would be gained by giving up.
"""

import asyncio
import logging

from sharding_app.ports.journal import JournalUnavailable
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.liveness.reach import Reach
from sharding_app.runtime.node.interfaces import NodeParts

logger = logging.getLogger("sharding.node")

LOOK_SECONDS = 1.0
ROWS = "the cluster's rows"


class Reaching:
    def __init__(self, node: NodeParts) -> None:
        self._node = node
        self.reach = Reach(node.config.step_aside_after_seconds)
        self._looks_cut_off = 0
        self._reasons: dict[str, str] = {}
        "Reasons for the missing connections, by name."
        self._refused = False
        "At the last look the server was reached, but the rows could not be read."

    @property
    def why_cut_off(self) -> str:
        """The missing connections, for the readiness probe.

        Empty unless two looks in a row lack some.

        A connection may be lost and opened again.
        """
        if self._looks_cut_off < 2:
            return ""
        return self.missing

    @property
    def missing(self) -> str:
        """The connections that the last look did not find, and why."""
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
        """Read the news through one connection, open the others; return those that fail."""
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
        self._reasons |= {f"the journal {name}": why for name, why in (await self.out_of_reach()).items()}
        return list(self._reasons)

    async def out_of_reach(self) -> dict[str, str]:
        """Return the further journals that this node cannot use and another node can, and why.

        One that no node can use is no reason to give anything up.
        """
        node = self._node
        troubled = {part.name: part.trouble for part in node.hosting.parts if part.trouble}
        if not troubled:
            return {}
        try:
            in_use = await node.ports.store.journals_in_use(but=node.incarnation)
        except StoreUnavailable:
            return {}  # that is a reason of its own
        return {name: why for name, why in troubled.items() if name in in_use}

    def _lifeline_refused(self) -> str:
        """Return why there is no lifeline.

        One session is enough to go on; both are needed to begin.
        """
        node = self._node
        return "" if node.valid.is_set() and node.lifeline_answers() else node.lifeline.refused

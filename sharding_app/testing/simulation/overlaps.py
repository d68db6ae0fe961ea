"""Nodes that the server has let go and that cannot know it: two instances may live for a while.

See promise 2. Something on the way ends both lifelines of a living node towards the server alone.
The other nodes take it for dead at once, since this looks like the end of a process. The node goes
on until it hears of it, or until its own limit. That time is bounded
(`protocol.liveness.node_lease.longest_overlap`). Within it the former home may only handle
messages, and answer from its memory. It stores nothing, a fenced query is right, and after the
bound all is as strict as ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from sharding_app.protocol.ids import Epoch, Incarnation, ShardKey
from sharding_app.protocol.liveness.node_lease import longest_overlap
from sharding_app.testing.simulation.promises import Call
from sharding_app.testing.simulation.virtual_node import DRIFT, OWN_LIMIT_SECONDS

if TYPE_CHECKING:
    from sharding_app.testing.simulation.world import World

BOUND_SECONDS = longest_overlap(OWN_LIMIT_SECONDS, DRIFT)
FENCED = "total_surely"


class Overlap(NamedTuple):
    incarnation: Incarnation
    since: float
    epochs: dict[ShardKey, Epoch]
    "Shards whose home it was at the beginning."

    @property
    def until(self) -> float:
        return self.since + BOUND_SECONDS


class Overlaps:
    def __init__(self, world: World) -> None:
        self._world = world
        self._all: list[Overlap] = []

    def of_now(self, incarnation: Incarnation) -> Overlap:
        """Return the overlap that begins now, if the node does not hear of it."""
        rows = self._world.server.cluster.shards
        epochs = {key: row.epoch for key, row in rows.items() if row.home == incarnation}
        return Overlap(incarnation, self._world.now, epochs)

    def begins(self, incarnation: Incarnation) -> None:
        """Note that the server has freed the node's second lock, and the node may not know."""
        self.has_begun(self.of_now(incarnation))

    def has_begun(self, overlap: Overlap) -> None:
        self._all.append(overlap)
        self._world.trace.note("world", None, "%s is let go unheard", overlap.incarnation)

    def excuses(self, incarnation: Incarnation | None) -> bool:
        """Whether that node may still go on beside its successors."""
        now = self._world.now
        return any(each.incarnation == incarnation and now <= each.until for each in self._all)

    def of(self, call: Call) -> Iterator[Overlap]:
        """Return the overlaps in which a former home may have answered the call from memory."""
        if call.command == FENCED or call.tokens or call.ended is None:
            return
        for each in self._all:
            if each.since <= call.ended and call.began <= each.until:
                yield each

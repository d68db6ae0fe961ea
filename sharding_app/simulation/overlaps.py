"""Nodes that the server has let go, and that cannot know it: for so long two instances may live (promise 2).

Something on the way ends both lifelines of a living node towards the server alone. The others take it for dead at once,
since nothing tells that from the end of a process; the node goes on until it is told, or until its own limit. That is bounded
(`core.lease.longest_overlap`), and only this is allowed meanwhile: the former home handles, and answers what it knows.
It stores nothing, a fenced query sees through it, and after the bound all is as strict as ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from sharding_app.core.ids import Epoch, Incarnation, ShardKey
from sharding_app.core.lease import longest_overlap
from sharding_app.simulation.promises import Call
from sharding_app.simulation.virtual_node import DRIFT, OWN_LIMIT_SECONDS

if TYPE_CHECKING:
    from sharding_app.simulation.world import World

BOUND_SECONDS = longest_overlap(OWN_LIMIT_SECONDS, DRIFT)
FENCED = "total_surely"


class Overlap(NamedTuple):
    incarnation: Incarnation
    since: float
    epochs: dict[ShardKey, Epoch]
    "Of the shards whose home it was then."

    @property
    def until(self) -> float:
        return self.since + BOUND_SECONDS


class Overlaps:
    def __init__(self, world: World) -> None:
        self._world = world
        self._all: list[Overlap] = []

    def begins(self, incarnation: Incarnation) -> None:
        """The server has freed the second of its locks, and the node may not have heard."""
        rows = self._world.server.cluster.shards
        epochs = {key: row.epoch for key, row in rows.items() if row.home == incarnation}
        self._all.append(Overlap(incarnation, self._world.now, epochs))
        self._world.trace.note("world", None, "%s is let go unheard", incarnation)

    def excuses(self, incarnation: Incarnation | None) -> bool:
        """Whether that node may still go on beside its successors."""
        now = self._world.now
        return any(each.incarnation == incarnation and now <= each.until for each in self._all)

    def of(self, call: Call) -> Iterator[Overlap]:
        """Those in which a former home may have answered that call from what it knew."""
        if call.command == FENCED or call.tokens or call.ended is None:
            return
        for each in self._all:
            if each.since <= call.ended and call.began <= each.until:
                yield each

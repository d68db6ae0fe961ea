"""Judges the coordinator's decisions by the rules of allocation.

The simulation's strategy asks the default one, and looks at its answers. Decisions are compared
with the rows, as the witness sees them.

* Nothing is allocated before the wanted number of nodes, of all and of a role, has been up since
  everything was down.
* While app versions are mixed, or a node comes or goes, no shard is chosen to be moved.
* In calm a singleton's new home is the oldest node that is up. A shard leaves a node that stays
  only while all nodes run the same version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING

from sharding_app.protocol.allocation.least_shards import LeastShardAllocation
from sharding_app.protocol.allocation.singleton import SINGLETON
from sharding_app.protocol.allocation.strategy import Allocations, ClusterView
from sharding_app.protocol.ids import Incarnation, ShardId
from sharding_app.protocol.records import Member, ShardRow
from sharding_app.testing.simulation.fault_policy import slot_of
from sharding_app.testing.simulation.promises import PromiseBroken

if TYPE_CHECKING:
    from sharding_app.testing.simulation.world import World

KNOWN_AFTER_SECONDS = 1.0
"""In calm a coordinator must know facts that have held for this long."""


class JudgedStrategy:
    """The default strategy. Its moves, and their times, are judged."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._real = LeastShardAllocation()

    def allocate(
        self, requester: Incarnation | None, shard: ShardId, allocations: Allocations, view: ClusterView
    ) -> Incarnation:
        return self._real.allocate(requester, shard, allocations, view)

    def rebalance(
        self,
        allocations: Mapping[Incarnation, Sequence[ShardId]],
        in_progress: Set[ShardId],
        view: ClusterView,
    ) -> list[ShardId]:
        chosen = self._real.rebalance(allocations, in_progress, view)
        versions = sorted({host.app_version for host in view.hosts.values()})
        mixed = len(versions) > 1
        if chosen and (mixed or not view.settled):
            why = f"versions {', '.join(versions)}" if mixed else "a node comes, goes or is in doubt"
            self._world.broke(PromiseBroken(0, "no_rebalance_while_mixed", f"moves {chosen}: {why}"))
        if mixed:
            self._world.transition("rebalance", "asked", "kept while mixed")
        elif not view.settled:
            self._world.transition("rebalance", "asked", "kept while unsettled")
        elif chosen:
            self._world.transition("rebalance", "asked", "moved")
        return chosen


class Judge:
    def __init__(self, world: World) -> None:
        self.world = world
        self._assembled = False
        self._before: frozenset[Incarnation] = frozenset()
        "Members that were there when everything went down."
        self._up: dict[str, Member] = {}
        "Nodes that have been up since then, by name."
        self._up_since: dict[Incarnation, float] = {}
        self._mixed_since: float | None = None

    def everything_is_down(self) -> None:
        """Count towards the minimum of nodes from the beginning."""
        self._assembled = False
        self._before = frozenset(self.world.server.cluster.members)
        self._up.clear()

    def look(self) -> None:
        now = self.world.now
        members = self.world.server.cluster.members
        if self._up_since.keys() - members.keys():
            self._up_since = {each: at for each, at in self._up_since.items() if each in members}
        versions: dict[str, None] = {}
        for each in members.values():
            if each.state == "joining":
                continue
            versions[each.app_version] = None
            if each.state == "up":
                self._up_since.setdefault(each.incarnation, now)
                if not self._assembled and each.incarnation not in self._before:
                    self._up[slot_of(each.incarnation)] = each
            else:
                self._up_since.pop(each.incarnation, None)
        if len(versions) <= 1:
            self._mixed_since = None
        elif self._mixed_since is None:
            self._mixed_since = now

    def decided(self, writer: str, before: ShardRow | None, after: ShardRow) -> None:
        self.look()
        placed = after.home is not None and (before is None or before.home != after.home)
        if placed and not self._assembled and self.world.node_of(writer) is not None:
            self._is_assembled(after)
        if not self.world.calm:
            return
        if placed and after.type.startswith(SINGLETON):
            self._is_oldest(after)
        if before is not None and before.step == "home" and after.step == "handoff":
            self._may_move(after)

    # -- Inside ------------------------------------------------------------------------------------

    def _is_assembled(self, row: ShardRow) -> None:
        of_all, of_roles = self.world.cast.minimum(self.world.size)
        up = list(self._up.values())
        enough = len(up) >= of_all and all(
            sum(role in each.roles for each in up) >= number for role, number in of_roles.items()
        )
        if not enough:
            names = ", ".join(sorted(self._up)) or "no nodes"
            raise PromiseBroken(
                0, "nothing_before_the_minimum", f"{row.home} gets a shard, up were {names}, wanted are {of_all}",
                f"{row.type}/{row.shard}",
            )  # fmt: skip
        self._assembled = True
        if of_all > 1:
            self.world.transition("cluster", "too small", "assembled")

    def _is_oldest(self, row: ShardRow) -> None:
        members = self.world.server.cluster.members
        home = members.get(str(row.home))
        for each in members.values():
            since = self._up_since.get(each.incarnation)
            known = since is not None and self.world.now - since > KNOWN_AFTER_SECONDS
            if home is not None and known and row.type in each.types and each.age < home.age:
                raise PromiseBroken(
                    0, "singleton_on_the_oldest", f"{row.home} gets it, {each.incarnation} is older", row.type
                )

    def _may_move(self, row: ShardRow) -> None:
        home = self.world.server.cluster.members.get(str(row.home))
        mixed = self._mixed_since is not None and self.world.now - self._mixed_since > KNOWN_AFTER_SECONDS
        if mixed and home is not None and home.state == "up":
            raise PromiseBroken(
                0, "no_rebalance_while_mixed", f"it leaves {row.home}, which stays, while versions are mixed",
                f"{row.type}/{row.shard}",
            )  # fmt: skip

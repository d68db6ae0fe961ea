"""Shards and singletons: their homes, their moves, and how they stop."""

from __future__ import annotations

from typing import Any

from sharding_app.protocol.allocation.least_shards import LeastShardAllocation
from sharding_app.protocol.allocation.singleton import OldestAllocation
from sharding_app.protocol.allocation.strategy import ClusterView
from sharding_app.protocol.coordinator.handoff import STOPPING, HandOffs
from sharding_app.protocol.coordinator.machine import Coordinator
from sharding_app.protocol.coordinator.placement import Placement
from sharding_app.runtime.hosting.entities import EntityLife
from sharding_app.runtime.hosting.shards import ShardLife
from sharding_app.runtime.journal.commits import ResidentShard
from tests.simulation.mistakes.mistake import Mistake, yes


def _does_not_wait_to_stop(real: Any) -> Any:
    def stop(self: HandOffs, key: Any, handoff: Any, now: float) -> None:
        self._outbox.decide([self._move(key, handoff)])

    return stop


def _gives_up_on_the_slow(real: Any) -> Any:
    def tick(self: HandOffs, now: float) -> None:
        for key, handoff in self.active.items():
            if handoff.phase is STOPPING and now >= handoff.deadline:
                self._outbox.decide([self._move(key, handoff)])
        real(self, now)

    return tick


def _has_stopped_at_once(real: Any) -> Any:
    def stop(self: ShardLife, number: int, epoch: int) -> None:
        real(self, number, epoch)
        if number in self._host.shards:
            self._on_stopped(self._host.type.name, number, epoch)

    return stop


def _hides_what_runs(real: Any) -> Any:
    def stop(self: ShardLife, number: int, epoch: int) -> None:
        real(self, number, epoch)
        shard = self._host.shards.get(number)
        if shard is not None and shard.epoch == epoch:
            self.ended(shard)

    return stop


def _counts_everybody(real: Any) -> Any:
    def enough_members(self: Placement) -> bool:
        if not self.assembled:
            self.assembled = len(self.members) >= self._min_members
        return self.assembled

    return enough_members


def _moves_at_any_time(real: Any) -> Any:
    def rebalance(self: Any, allocations: Any, in_progress: Any, view: ClusterView) -> Any:
        return real(self, allocations, in_progress, ClusterView({}))

    return rebalance


def _the_youngest(real: Any) -> Any:
    def allocate(self: Any, requester: Any, shard: int, allocations: Any, view: Any) -> Any:
        return list(allocations)[-1]

    return allocate


def _says_nothing_at_the_end(real: Any) -> Any:
    def stop(self: ShardLife, number: int, epoch: int) -> None:
        entities = self._host.entity_life
        message, entities.stop_message = entities.stop_message, None
        try:
            real(self, number, epoch)
        finally:
            entities.stop_message = message

    return stop


def _reloads_singletons_nowhere(real: Any) -> Any:
    def start_in(self: EntityLife, shard: ResidentShard, entity: str) -> None:
        if self._host.type.singleton_id is None:
            real(self, shard, entity)

    return start_in


PLACEMENT: dict[str, Mistake] = {
    "double_allocation": Mistake((2,), HandOffs, "_stop_when_acknowledged", _does_not_wait_to_stop),
    "hand_off_gives_up_on_the_slow": Mistake((2,), HandOffs, "tick", _gives_up_on_the_slow),
    "hand_over_without_waiting": Mistake((2,), ShardLife, "stop", _has_stopped_at_once),
    "stopped_while_it_runs": Mistake((0, 2), ShardLife, "stop", _hides_what_runs),
    "allocates_before_the_minimum": Mistake((0,), Placement, "_enough_members", lambda _: yes),
    "dead_count_for_the_minimum": Mistake((0,), Placement, "_enough_members", _counts_everybody),
    "answers_to_former_coordinators_count": Mistake((10,), Coordinator, "_has_asked", lambda _: yes),
    "rebalances_while_mixed": Mistake((0,), LeastShardAllocation, "rebalance", _moves_at_any_time),
    "singleton_on_the_youngest": Mistake((0,), OldestAllocation, "allocate", _the_youngest),
    "singleton_not_terminated": Mistake((0,), ShardLife, "stop", _says_nothing_at_the_end),
    "singleton_waits_for_a_message": Mistake((10,), EntityLife, "start_in", _reloads_singletons_nowhere),
}

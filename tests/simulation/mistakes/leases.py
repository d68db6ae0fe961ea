"""Leases of nodes, and of shards that need one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from sharding_app.protocol.liveness.node_lease import Lease
from sharding_app.protocol.liveness.shard_lease import ShardLeases
from sharding_app.protocol.shard import Shard
from sharding_app.runtime.hosting.shard_leases import LeaseKeeper, ShardGate
from sharding_app.runtime.hosting.type_host import TypeHost
from tests.simulation.mistakes.mistake import Mistake, nothing, yes


def _believes_it_for_ever(real: Any) -> Any:
    def extend(self: ShardLeases, lease: Any, sent_at: float) -> None:
        real(self, lease, sent_at)
        lease.valid_until = float("inf")

    return extend


def _renewed_whatever_is_said(real: Any) -> Any:
    def renewed(self: ShardLeases, asked: Iterable[str], kept: Collection[str], sent_at: float) -> None:
        asked = list(asked)
        real(self, asked, asked, sent_at)

    return renewed


def _left_to_timers(real: Any) -> Any:
    def may_begin(self: TypeHost, shard: Shard[Any]) -> bool:
        return not shard.closed

    return may_begin


LEASES: dict[str, Mistake] = {
    "lease_not_waited_for": Mistake((0,), LeaseKeeper, "holds", lambda _: yes),
    "lease_loss_is_not_told": Mistake((10,), ShardGate, "lost", lambda _: nothing),
    "former_leases_are_not_waited_for": Mistake((2,), Lease, "_former_is_over", lambda _: yes),
    "lease_is_not_given_back": Mistake((10,), ShardGate, "left", lambda _: nothing),
    "lease_never_over": Mistake((0,), ShardLeases, "_extend", _believes_it_for_ever),
    "lost_lease_is_kept": Mistake((0,), ShardLeases, "renewed", _renewed_whatever_is_said),
    "lease_is_left_to_timers": Mistake((0,), TypeHost, "may_begin", _left_to_timers),
}

"""Nodes that answer without running: what the dashboard would hear from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sharding_app.errors import Unavailable
from sharding_app.operations.cache import Answers, Collector
from sharding_app.protocol.histogram import ROWS, SECONDS
from sharding_app.protocol.messages import (
    Coordination,
    NodeStats,
    RegionState,
    ShardRegionState,
    SlowCommand,
    Trouble,
    TypeStats,
)
from tests.support.cluster_rows import SHARDS

NODES = ("n-a", "n-b", "n-c")


def answer(node: str, clock: float, *, rebalancing: bool = True) -> NodeStats:
    """What a node says after some seconds: a hundred commands a second, and ten that fail."""
    done = int(clock * 100)
    latency = [0] * (len(SECONDS) + 1)
    latency[12] = done
    rows = [0] * (len(ROWS) + 1)
    rows[2] = done
    return NodeStats(
        0,
        clock,
        {"entities": 7.0, "memory_bytes": 1e8, "lease_seconds": 1.9, "loop_lag_seconds": 0.001},
        {"journal_appends": done // 2, "journal_events": done, "cpu_milliseconds": int(clock * 250)},
        {"journal_append_seconds": (latency, 1.0), "journal_batch_rows": (rows, 1.0)},
        [
            TypeStats(
                "shop.Cart", 4, 7, done, {"failed": done // 10, "handler_failed": done // 10}, latency, 1.0,
                [("alice", 5, 40), ("user-001", 2, 10)],
                slowest=[SlowCommand(65.0, "alice", "add", 2.5)], hot_shards=[(5, 60)],
            )
        ],
        [("shop.Cart", "timeout", 3)],
        [Trouble(4.0, "shop.Cart", "alice", "add", "ValueError")],
        Coordination(1, rebalancing, 0, 0, 0, 0, {}, {"shop.Cart": 2}) if node == "n-a" else None,
        [("shop.Cart", "user-007", 3, 12)],
    )  # fmt: skip


class FakeNodes:
    """Stands where the cluster is asked. `silent` ones are late; `trouble` is why no node can be
    asked.
    """

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.trouble = ""
        self.rebalancing = True
        self.asked = 0

    def __call__(self, nodes: list[str], join_seconds: float) -> Answers:
        if self.trouble:
            raise Unavailable(self.trouble)
        self.asked += 1
        heard = [node for node in nodes if node not in self.silent]
        stats = {node: answer(node, float(self.asked), rebalancing=self.rebalancing) for node in heard}
        return stats, {node: region(node) for node in heard}


def region(node: str) -> ShardRegionState:
    mine = [shard for shard in range(SHARDS) if NODES[shard % 3] == node]
    return ShardRegionState(0, [RegionState("shop.Cart", mine, [1] * len(mine), list(mine))])


class HandClock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def collector(nodes: FakeNodes, clock: HandClock, **more: Any) -> Collector:
    return Collector(ask=nodes, clock=clock, pause=lambda _seconds: None, **more)


def rates(found: Mapping[str, Any]) -> list[Any]:
    return [found[node].commands for node in sorted(found)]

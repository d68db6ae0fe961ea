"""A look at a cluster with which nothing is wrong, to be changed where a test wants something
wrong.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sharding_app.operations.diagnosis.look import DatabaseLook, LayerLook, Look
from sharding_app.operations.snapshot import ClusterSnapshot, NodeAnswers, TypeRow, Unsettled
from sharding_app.protocol.coordinator.terms import next_term
from sharding_app.protocol.ids import Term
from sharding_app.protocol.messages import (
    FailedStart,
    NodeStats,
    RegionState,
    ShardRegionState,
    TypeStats,
)
from sharding_app.protocol.records import CoordinatorRow, Member, ShardRow, TypeConfig
from tests.support.shard_groups import groups_of

CART = TypeConfig("shop.Cart", "event_sourced", 10, "hash:crc32-1", "crc32-1", "", "postgres")


def member(name: str, **changes: Any) -> Member:
    said: dict[str, Any] = {
        "incarnation": f"n-{name}", "name": name, "host": "h", "pid": 1, "age": ord(name[0]), "state": "up",
        "types": ("shop.Cart",), "locks": 2, **changes,
    }  # fmt: skip
    return Member(**said)


def database(**changes: Any) -> DatabaseLook:
    said: dict[str, Any] = {
        "alias": "default",
        "settings": {
            "max_connections": "100", "superuser_reserved_connections": "3", "autovacuum": "on", "fsync": "on",
            "synchronous_commit": "on", "idle_session_timeout": "0", "session_replication_role": "origin",
            "default_transaction_read_only": "off",
        },
        **changes,
    }  # fmt: skip
    return DatabaseLook(**said)


NOW = datetime(2026, 5, 4, tzinfo=UTC)


def cluster(**changes: Any) -> ClusterSnapshot:
    said: dict[str, Any] = {
        "now": NOW,
        "cluster_id": "c1",
        "coordinator": CoordinatorRow(4, "n-a"),
        "members": (member("a"), member("b")),
        "types": (TypeRow(1, CART, NOW),),
        "elected": NOW,
        "events": 0,
        "joined": {},
        "shards": (),
        **changes,
    }
    return ClusterSnapshot(**said)


def unsettled(seconds: float = 300.0, **changes: Any) -> ClusterSnapshot:
    """A cluster with one shard that has not been at home for that time."""
    given = {"type": "shop.Cart", "shard": 3, "epoch": 1, "home": "n-a", "step": "handoff", **changes}
    more = {"types": given.pop("types")} if "types" in given else {}
    row = ShardRow(**given)
    return cluster(shards=groups_of([row]), unsettled=[Unsettled(row, seconds)], **more)


def closed(seconds: float) -> ClusterSnapshot:
    """A cluster with a shard that has been closed for a move for that time."""
    row = ShardRow("shop.Cart", 3, 1, None, "stopped")
    return cluster(shards=groups_of([row]), unsettled=[Unsettled(row, seconds + 60, "two", seconds)])


def nodes(**changes: Any) -> NodeAnswers:
    regions = {"n-a": ShardRegionState(1, []), "n-b": ShardRegionState(1, [])}
    return NodeAnswers(**{"regions": regions, **changes})


def term_of(moved_on: datetime) -> Term:
    """As the first coordinator has that is elected in another lineage."""
    return next_term(4, same_lineage=False, now_seconds=int(moved_on.timestamp()))


def holding(entities: int) -> ShardRegionState:
    """What a node says that may hold a hundred."""
    return ShardRegionState(1, [RegionState("shop.Cart", [0, 1], [1, 1], [entities - 1, 1], limit=100)])


def failing(retry_seconds: float) -> NodeAnswers:
    """What a node says on which some entities cannot start."""
    failed = [FailedStart("alice", 3, "LookupError", 7, 12.0, retry_seconds)]
    carts = TypeStats("shop.Cart", 1, 0, 0, {}, [], 0.0, [], 3, failed)
    remembered = (3, failed) if retry_seconds >= 0 else (0, [])
    region = RegionState("shop.Cart", [0], [1], [0], *remembered)
    stats = NodeStats(1, 0.0, {}, {}, {}, [carts], [], [])
    return nodes(regions={"n-a": ShardRegionState(1, [region])}, stats={"n-a": stats})


def layer(**changes: Any) -> LayerLook:
    said: dict[str, Any] = {"alias": "default", "backend": "", "config": {}, **changes}
    return LayerLook(**said)


def look(**changes: Any) -> Look:
    return Look(
        **{"database": database(), "cluster": cluster(), "nodes": nodes(), "layer": layer(), **changes}
    )

"""The hosts of a node, which has one for each type and journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sharding_app.protocol.ids import ShardId
    from sharding_app.runtime.hosting.type_host import TypeHost
    from sharding_app.runtime.journal.commits import ResidentShard
    from sharding_app.runtime.node.node import Node


def all_hosts(node: Node) -> Iterable[TypeHost]:
    return node.hosting.all_hosts()


def hosts_of(node: Node, type_name: str) -> list[TypeHost]:
    """Return the hosts of a type, in the order of the journals."""
    return node.hosting.hosts_of(type_name)


def host_at(node: Node, type_name: str, shard: ShardId) -> TypeHost | None:
    """Return the host that has a shard, or the first one of its type."""
    return node.hosting.host_at(type_name, shard)


def shard_at(node: Node, type_name: str, shard: ShardId) -> ResidentShard | None:
    """Return a shard that a node has."""
    for part in node.hosting.parts:
        host = part.hosts.get(type_name)
        if host is not None and shard in host.shards:
            return host.shards[shard]
    return None


def home_of(node: Node, type_name: str, entity: str) -> ResidentShard | None:
    """Return the shard that has an entity in memory."""
    for part in node.hosting.parts:
        if type_name in part.hosts:
            for shard in part.hosts[type_name].shards.values():
                if entity in shard.slots:
                    return shard
    return None


def waits_in(node: Node, type_name: str, entity: str) -> ResidentShard | None:
    """Return the shard in which an entity waits for its next start."""
    for host in hosts_of(node, type_name):
        for number, name in host.entity_life.restarting:
            if name == entity:
                return host.shards.get(number)
    return None


def forced_of(node: Node, type_name: str) -> int:
    """Return how many objects of a type the node has given up by force."""
    return sum(host.counters["stopped_by_force"] for host in hosts_of(node, type_name))

"""Questions about the state of a world, answered from the virtual server's rows and its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sharding_app.protocol.ids import Epoch, Incarnation, ShardId, ShardKey
from sharding_app.protocol.records import ShardRow
from sharding_app.testing.simulation.hosts import all_hosts, shard_at
from sharding_app.testing.simulation.topology import Named

if TYPE_CHECKING:
    from sharding_app.runtime.node.node import Node
    from sharding_app.testing.simulation.virtual_node import VirtualNode
    from sharding_app.testing.simulation.world import World


def rows_to_live(world: World) -> list[ShardRow]:
    """Return the rows of shards that are to have a home: not of workers beyond their number."""
    cluster = world.server.cluster
    return [
        row
        for row in cluster.present()
        if row.type not in cluster.workers or row.shard < cluster.workers[row.type].wanted
    ]


def is_settled(world: World) -> bool:
    """Whether every node is up, and every shard and lease is where its row says, and only there."""
    members = world.server.cluster.members
    for each in world.nodes:
        own = members.get(each.incarnations[-1]) if each.is_up else None
        if own is None or own.state != "up" or own.deaf:
            return False
    return all(is_taken(world, row) for row in rows_to_live(world)) and not any(
        _keeps_a_lease_for_nothing(node) for each in world.nodes if (node := each.node) is not None
    )


def is_taken(world: World, row: ShardRow) -> bool:
    """Whether the shard is at the home that its row names, at its epoch, and is not to leave it.

    Its journal says the same.
    """
    node = world.node_of(row.home) if row.home is not None else None
    if node is None or row.step != "home" or not world.is_valid(node):
        return False
    key = row.type, row.shard
    journal = world.journals.get(world.where.is_in(key))
    there = row if journal is None else journal.cluster.shards.get(key)
    if there is None or (there.home, there.epoch) != (row.home, row.epoch):
        return False
    shard = shard_at(node, *key)
    return shard is not None and shard.epoch == row.epoch


def _keeps_a_lease_for_nothing(node: Node) -> bool:
    """Whether the node has, or waits for, the lease of a shard that is not there.

    Another home would never get it.
    """
    gates = ((host, host.gate) for host in all_hosts(node) if host.gate is not None)
    return any(gate.wanted.keys() - host.shards.keys() for host, gate in gates)


def is_balanced(world: World) -> bool:
    """Whether no region has two shards more than another one, of types that the strategy places."""
    members = world.server.cluster.members.values()
    for made in world.cast.types:
        if made.singleton_id is None:
            has = {each.incarnation: 0 for each in members if made.name in each.types}
            for row in world.server.cluster.present():
                if row.type == made.name and row.home in has:
                    has[row.home] += 1
            if has and max(has.values()) - min(has.values()) > 1:
                return False
    return True


def key_of(world: World, entity: Named) -> ShardKey:
    made, entity_id = entity
    return made.name, world.shard_of(made.name, entity_id)


def home_of(world: World, entity: Named) -> VirtualNode | None:
    """Return the node that the row of the entity's shard names, if it lives."""
    home = world.server.cluster.shards[key_of(world, entity)].home
    return next((each for each in world.nodes if each.runs and home in each.incarnations), None)


class Place(NamedTuple):
    """Where an entity's shard is by its row, and whether it is about to move."""

    shard: ShardId
    epoch: Epoch = 0
    "0: the shard has never had a home."
    home: Incarnation | None = None
    step: str = ""


def place_of(world: World, entity: Named) -> Place:
    entity_type, entity_id = entity
    shard = world.shard_of(entity_type.name, entity_id)
    row = world.server.cluster.shards.get((entity_type.name, shard))
    return Place(shard) if row is None else Place(shard, row.epoch, row.home, row.step)


def is_at_home(world: World, entity: Named) -> bool:
    """Whether the entity's shard is not on its way from one home to another."""
    return world.server.cluster.shards[key_of(world, entity)].step == "home"

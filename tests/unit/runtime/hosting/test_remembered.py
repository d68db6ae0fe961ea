"""Remembered entities run again without a message: after a move, a crash, a restart of everything,
a stop by themselves.
"""

import asyncio
import dataclasses
from collections import Counter

import pytest

from sharding_app import Entity, ShardingSettings, command
from sharding_app.entities.registry import registry
from sharding_app.runtime.node.stats import read_stats
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.counter_cluster import CONFIG, NAMES, until
from tests.unit.runtime.counters import Get, Increment, Quit, Remembered, Rest, counters, remembered, to

pytestmark = pytest.mark.asyncio


class Sleeper(Entity, name="protocol.Sleeper"):
    settings = ShardingSettings(remember_entities=True)

    @command
    def wake(self) -> None:
        """Nothing but the message."""

    @command
    def rest(self) -> None:
        self.context.passivate()


IDS = [str(number) for number in range(30)]


def running(cluster: MemoryCluster) -> set[str]:
    return {each for each in IDS if cluster.is_in_memory(Remembered, each)}


def counted(cluster: MemoryCluster) -> Counter[str]:
    total = Counter[str]()
    for node in cluster.nodes.values():
        for each in read_stats(node, 1).types:
            total.update(each.counters)
    return total


async def start_all() -> None:
    for each in IDS:
        await remembered.ask(to(each, Increment()))


async def test_a_crash_starts_them_on_the_others(cluster: MemoryCluster) -> None:
    """B1.5, C1"""
    await start_all()
    assert counted(cluster)["remembered_started"] == len(IDS)
    home = cluster.home_of(Remembered, "1")
    await cluster.kill_node(home)
    await until(lambda: running(cluster) == set(IDS))
    assert counted(cluster)["remembered_recalled"] > 0


async def test_a_node_that_leaves_has_them_moved(cluster: MemoryCluster) -> None:
    """B1.16"""
    await start_all()
    await cluster.stop_node("node2")
    await until(lambda: running(cluster) == set(IDS))


async def test_a_restart_of_everything_starts_them_without_a_message(cluster: MemoryCluster) -> None:
    """C1"""
    await start_all()
    for name in list(cluster.nodes):
        await cluster.stop_node(name)
    Remembered.born.clear()
    await cluster.add_node("later")
    await until(lambda: running(cluster) == set(IDS) <= set(Remembered.born))
    assert sorted(Remembered.born) == sorted(IDS), "each of them once"


async def test_one_that_stops_by_itself_is_started_after_a_back_off(cluster: MemoryCluster) -> None:
    """B1.14, B2.20"""
    await remembered.ask(to("1", Increment()))
    await remembered.ask(to("1", Quit()))
    await until(lambda: Remembered.born == ["1", "1"])
    assert await remembered.ask(Get("1")) == 0


async def test_one_that_passivates_stays_away(cluster: MemoryCluster) -> None:
    """B2.20, C8"""
    await start_all()
    await remembered.ask(to("1", Rest()))
    await until(lambda: not cluster.is_in_memory(Remembered, "1"))
    rows = cluster.server.journal
    type_id = cluster.nodes["node1"].hosts["protocol.Remembered"].execution.type_id
    await until(
        lambda: not any("1" in found for (owner, _), found in rows.remembered.items() if owner == type_id)
    )
    await cluster.kill_node("node1")
    await until(lambda: running(cluster) == set(IDS) - {"1"})


async def is_forgotten(cluster: MemoryCluster, entity: str) -> None:
    """Wait until it neither runs nor has a row."""
    rows = cluster.server.journal
    await until(
        lambda: (
            not cluster.is_in_memory(Remembered, entity)
            and not any(entity in found for found in rows.remembered.values())
        )
    )


async def test_one_whose_passivation_waited_in_its_mailbox_stays_away_too() -> None:
    """C8: it goes to rest in the turn in which it has been started."""
    sleeper = Sleeper._sharding_type
    assert sleeper is not None
    async with MemoryCluster([sleeper], nodes=1, config=CONFIG) as cluster:
        with cluster.in_use():
            await asyncio.gather(Sleeper.ref("1").wake(), Sleeper.ref("1").rest())
            await until(lambda: not cluster.is_in_memory(Sleeper, "1"))
            await asyncio.sleep(3 * CONFIG.restart_backoff_seconds)
            assert not cluster.is_in_memory(Sleeper, "1")
            assert not any(cluster.server.journal.remembered.values())


async def test_a_back_off_ends_when_the_entity_passivates_meanwhile(cluster: MemoryCluster) -> None:
    """C8: it stops by itself, comes back for a message, and goes to rest before its restart is
    due.
    """
    await remembered.ask(to("1", Quit()))
    await remembered.ask(to("1", Increment()))
    await remembered.ask(to("1", Rest()))
    await is_forgotten(cluster, "1")
    await asyncio.sleep(3 * CONFIG.restart_backoff_seconds)
    assert Remembered.born == ["1", "1"]
    assert not cluster.is_in_memory(Remembered, "1")


async def test_their_start_is_stored_before_they_handle_anything(cluster: MemoryCluster) -> None:
    """C10"""
    await remembered.ask(to("1", Increment()))
    stored = [entity for entities in cluster.server.journal.remembered.values() for entity in entities]
    assert stored == ["1"]


async def test_idle_ones_are_never_passivated() -> None:
    """D14: off while entities are remembered, whatever the node's setting is for others"""
    config = dataclasses.replace(CONFIG, passivate_after_seconds=20.0)
    types = [registry.get(name) for name in NAMES[:2]]
    async with MemoryCluster(types, nodes=1, config=config) as cluster:
        with cluster.in_use():
            await start_all()
            await counters.ask(to("1", Increment()))
            hosts = cluster.nodes["node1"].hosts
            for host in hosts.values():
                host.entity_life.tick(host.now() + 1e9)
            passivated = {name: host.counters["passivated"] for name, host in hosts.items()}
            assert passivated == {"protocol.Counter": 1, "protocol.Remembered": 0}
            assert running(cluster) == set(IDS)


async def test_a_row_in_a_shard_that_the_id_no_longer_leads_to_moves_on(cluster: MemoryCluster) -> None:
    """C6: the extractor has changed between two runs"""
    await remembered.ask(to("1", Increment()))
    (home,) = [name for name in cluster.nodes if cluster.home_of(Remembered, "1") == name]
    host = cluster.nodes[home].hosts["protocol.Remembered"]
    type_id = host.execution.type_id
    rows = cluster.server.journal.remembered
    wrong = (next(iter(host.shards)) + 1) % 20
    for name in list(cluster.nodes):
        await cluster.stop_node(name)
    rows.clear()
    rows[type_id, wrong] = {"1": None}
    Remembered.born.clear()
    await cluster.add_node("later")
    await until(lambda: cluster.is_in_memory(Remembered, "1"))
    await until(lambda: not rows.get((type_id, wrong)))
    assert Remembered.born == ["1"]
    assert registry.get("protocol.Remembered").settings.remember_entities

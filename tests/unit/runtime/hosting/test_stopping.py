"""Singletons and remembered entities while the whole cluster stops, and remembered ones that start
at a rate.
"""

import dataclasses

import pytest

from sharding_app.entities.registry import registry
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.counter_cluster import CONFIG, NAMES, until
from tests.unit.runtime.counters import Get, Increment, Mailer, Remembered, mailer, remembered, to

pytestmark = pytest.mark.asyncio


async def test_j9_a_singleton_is_not_handed_over_once_everything_is_to_stop(cluster: MemoryCluster) -> None:
    await until(lambda: len(Mailer.born) == 1)
    everybody = [each.incarnation for each in cluster.nodes.values()]
    await cluster.client.ports.store.ask_to("prepare", everybody)
    await until(lambda: all(node.all_stops for node in cluster.nodes.values()))
    home = next(name for name, node in cluster.nodes.items() if node.coordinator is not None)
    await cluster.stop_node(home)
    rows = cluster.server.cluster.shards
    await until(lambda: all(row.home is None for key, row in rows.items() if key[0].startswith("singleton:")))
    assert len(Mailer.born) == 1
    assert await mailer.ask(Get("protocol.mailer")) == 0, "asked for, it runs on who is left"
    assert len(Mailer.born) == 2


async def test_c6_remembered_entities_start_at_a_constant_rate_across_their_shards() -> None:
    ids = [str(number) for number in range(12)]
    config = dataclasses.replace(CONFIG, recovery_rate=(2, 0.2))
    types = [registry.get(name) for name in NAMES]
    async with MemoryCluster(types, nodes=1, config=config) as cluster:
        with cluster.in_use():
            for each in ids:
                await remembered.ask(to(each, Increment()))
            await cluster.stop_node("node1")
            Remembered.born.clear()
            began = cluster.loop.time()
            await cluster.add_node("later")
            await until(lambda: len(Remembered.born) == len(ids))
            assert cluster.loop.time() - began >= 5 * 0.2
            assert sorted(Remembered.born) == sorted(ids)

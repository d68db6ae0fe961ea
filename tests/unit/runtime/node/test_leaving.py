"""Leaving: one node hands over to the others; where all leave at once, no node waits for another
that is going too.
"""

from __future__ import annotations

import asyncio

import pytest

from sharding_app.testing.cluster import MemoryCluster
from tests.badinput.app.entities import Ledger
from tests.support.slack import SLACK

LEAVE_SECONDS = 30.0 * SLACK
SOON = 5.0 * SLACK
LEDGERS = 60


async def book_all(times: int) -> None:
    for number in range(LEDGERS):
        assert await Ledger.ref(number).book(1) == times


@pytest.mark.asyncio
async def test_nodes_that_all_leave_at_once_do_not_wait_for_each_other() -> None:
    async with MemoryCluster([Ledger], nodes=3) as cluster:
        with cluster.in_use():
            await book_all(1)
            # More than one holds shards: otherwise there would be nothing to wait for.
            assert len({cluster.home_of(Ledger, number) for number in range(LEDGERS)}) >= 2
            nodes = list(cluster.nodes.values())
            began = asyncio.get_running_loop().time()
            await asyncio.gather(*(node.stop(LEAVE_SECONDS) for node in nodes))
            assert asyncio.get_running_loop().time() - began < SOON
            cluster.nodes.clear()
            # Nothing is lost by that: who comes next has it all.
            await cluster.add_node("later")
            await book_all(2)


@pytest.mark.asyncio
async def test_a_node_that_leaves_alone_hands_its_shards_over() -> None:
    async with MemoryCluster([Ledger], nodes=2) as cluster:
        with cluster.in_use():
            await book_all(1)
            leaving, staying = cluster.nodes
            await cluster.stop_node(leaving)
            assert {cluster.home_of(Ledger, number) for number in range(LEDGERS)} == {staying}
            await book_all(2)


@pytest.mark.asyncio
async def test_a_node_that_cannot_say_that_it_leaves_goes_at_its_deadline() -> None:
    """PostgreSQL is away: the row goes on saying "up", and a service manager waits for the end."""
    async with MemoryCluster([Ledger], nodes=2) as cluster:
        with cluster.in_use():
            await book_all(1)
            leaving = next(iter(cluster.nodes))
            cluster.cut_off(leaving)
            node = cluster.nodes.pop(leaving)
            async with asyncio.timeout(SOON):
                await node.stop(0.5)
            # The others find it dead.
            await book_all(2)

"""One entity whose rows the server cannot read, a damaged page say: it waits, and the others of its
type come into memory.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from sharding_app.ports.journal import EVERYTHING, Bounds, History, JournalUnavailable
from sharding_app.testing.clock import TravelLoop
from sharding_app.testing.cluster import MemoryCluster
from tests.support.steady_loop import SteadyLoop
from tests.unit.runtime.one_of_each import Cart

GOOD = [f"cart-{number}" for number in range(60)]


class Damaged:
    """Fails whatever reads that entity, in a moment: the server answers."""

    def __init__(self, cluster: MemoryCluster) -> None:
        (node,) = cluster.nodes.values()
        self.journal = node.node_ports.journal
        self.read = self.journal.read
        self.attempts = 0
        self.journal.read = self  # type: ignore[method-assign]

    async def __call__(
        self, type_id: int, entities: Sequence[str], bounds: Bounds = EVERYTHING
    ) -> dict[str, History]:
        if "bad" in entities:
            self.attempts += 1
            raise JournalUnavailable("missing chunk number 0 for toast value (XX001)", answered=True)
        return await self.read(type_id, entities, bounds)


def with_a_damaged_entity(case: Callable[[TravelLoop, MemoryCluster, Damaged], Awaitable[None]]) -> None:
    """Run a case in a cluster of one node, whose carts are in use but for the damaged one."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TravelLoop)
        async with MemoryCluster([Cart]) as cluster:
            with cluster.in_use():
                await loop.hurry(Cart.ref("first").add("book", 1))
                await case(loop, cluster, Damaged(cluster))

    with asyncio.Runner(loop_factory=SteadyLoop) as runner:
        runner.run(main())


def test_it_holds_up_no_other() -> None:
    async def case(loop: TravelLoop, cluster: MemoryCluster, damaged: Damaged) -> None:
        bad = asyncio.ensure_future(Cart.ref("bad", timeout=600).add("book", 1))
        for each in GOOD:
            began = loop.time()
            assert await loop.hurry(Cart.ref(each, timeout=600).add("book", 1)) == 1
            assert loop.time() - began < 2, "it waits for no more than an attempt or two"
        assert damaged.attempts
        damaged.journal.read = damaged.read  # type: ignore[method-assign]
        assert await loop.hurry(bad) == 1, "it is tried again all the while"

    with_a_damaged_entity(case)


def test_once_its_shard_has_left_it_is_not_read_any_more() -> None:
    async def case(loop: TravelLoop, cluster: MemoryCluster, damaged: Damaged) -> None:
        asking = asyncio.ensure_future(Cart.ref("bad", timeout=600).add("book", 1))
        await loop.travel(5)
        (node,) = cluster.nodes.values()
        (host,) = node.hosts.values()
        for number in list(host.shards):
            host.shard_life.drop(number)
        await loop.travel(5)
        attempts = damaged.attempts
        assert attempts
        await loop.travel(60)
        assert damaged.attempts == attempts
        asking.cancel()

    with_a_damaged_entity(case)

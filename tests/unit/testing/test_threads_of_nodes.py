"""Handlers in threads of a cluster in memory: a node that is killed ends its own alone."""

import asyncio
import threading

import pytest

from sharding_app import Entity, command
from sharding_app.runtime.base.threads import THREADS
from sharding_app.testing import MemoryCluster

pytestmark = pytest.mark.asyncio
goes_on = threading.Event()


class Blocking(Entity, name="threads.Blocking"):
    @command
    def wake(self) -> None: ...

    @command(thread=True)
    def wait(self) -> int:
        goes_on.wait(20)
        return 1


async def test_handlers_that_wait_for_a_thread_outlive_another_node() -> None:
    goes_on.clear()
    async with MemoryCluster([Blocking], nodes=2) as cluster:
        with cluster.in_use():
            await asyncio.gather(*(Blocking.ref(number).wake() for number in range(100)))
            homes = {each: cluster.home_of(Blocking, each) for each in range(100)}
            stays = max("node1", "node2", key=list(homes.values()).count)
            last, *others = [each for each, home in homes.items() if home == stays][: THREADS + 4]
            assert len(others) > THREADS
            asked = [asyncio.ensure_future(Blocking.ref(each, timeout=30).wait()) for each in others]
            await Blocking.ref(last).wake()  # behind the others
            try:
                await cluster.kill_node("node2" if stays == "node1" else "node1")
            finally:
                goes_on.set()
            assert await asyncio.gather(*asked) == [1] * len(asked)
